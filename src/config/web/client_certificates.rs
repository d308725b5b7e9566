//! Decides which client certificates the server accepts: any certificate or only signed ones,
//! required or optional, and only with certain names.
//!
//! The web configuration has the same choices as Go's TLS. The signature of the handshake always
//! proves that a client has the key of its certificate. rustls calls the verifier for each
//! handshake.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::alternative_names::alternative_names;
use super::tls::ClientAuth;

pub(super) struct ClientCertificates {
    client_auth: ClientAuth,
    /// `None` if any name is accepted.
    allowed_names: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
    /// Verifies the signer. `None` if any signer is accepted.
    signed: Option<Arc<dyn ClientCertVerifier>>,
}

impl ClientCertificates {
    pub(super) fn new(
        client_auth: ClientAuth,
        allowed_names: Option<Vec<String>>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { client_auth, allowed_names, algorithms, signed: None }
    }

    pub(super) fn signed(mut self, verifier: Arc<dyn ClientCertVerifier>) -> Self {
        self.signed = Some(verifier);
        self
    }

    fn has_allowed_name(&self, certificate: &CertificateDer<'_>) -> bool {
        let Some(allowed) = &self.allowed_names else { return true };
        let names = alternative_names(certificate).unwrap_or_default();
        names.iter().any(|name| allowed.contains(name))
    }
}

impl fmt::Debug for ClientCertificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ClientCertificates({:?})", self.client_auth)
    }
}

impl ClientCertVerifier for ClientCertificates {
    fn client_auth_mandatory(&self) -> bool {
        self.client_auth.is_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.as_ref().map_or(&[], |verifier| verifier.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(verifier) = &self.signed {
            verifier.verify_client_cert(end_entity, intermediates, now)?;
        }
        match self.has_allowed_name(end_entity) {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
