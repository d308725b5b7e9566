//! TLS to Redis, and to the https servers that commands talk to: trusted certificates, client
//! certificate and expected server name.
//!
//! `connect` and `client` call it. Certificate files are read at each connection, so that renewed
//! certificates are used without a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::config::redis::Tls;

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read a PEM certificate from {path}")]
    Certificate { path: PathBuf, source: pem::Error },
    #[error("there is no certificate in {0}")]
    NoCertificate(PathBuf),
    #[error("cannot use a certificate of {path}")]
    BadCertificate { path: PathBuf, source: rustls::Error },
    #[error("cannot read a PEM private key from {path}")]
    Key { path: PathBuf, source: pem::Error },
    #[error("cannot use the client certificate {path}")]
    Client { path: PathBuf, source: rustls::Error },
    #[error("this system has no CA certificates: install them (ca-certificates) or set `ca_file`")]
    NoSystemRoots,
    #[error("{name:?} cannot be the name in a certificate: set `server_name`")]
    Name { name: String, source: InvalidDnsNameError },
    #[error("cannot read certificates")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// The name that is sent to the server and that its certificate must contain.
pub(crate) fn server_name(tls: &Tls, host: &str) -> Result<ServerName<'static>, TlsError> {
    let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
    ServerName::try_from(name.clone()).map_err(|source| TlsError::Name { name, source })
}

pub(crate) async fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let tls = tls.clone();
    tokio::task::spawn_blocking(move || read(&tls)).await?
}

/// A configuration that accepts any server certificate.
pub(crate) async fn trusting_config(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let tls = tls.clone();
    let read = move || {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let verifier = Arc::new(AnyCertificate(algorithms));
        let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier);
        with_client(builder, &tls)
    };
    tokio::task::spawn_blocking(read).await?
}

/// Accepts any certificate. The signature check still proves that the server has its private key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

fn read(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    match &tls.ca_file {
        Some(path) => {
            for certificate in certificates(path)? {
                let bad = |source| TlsError::BadCertificate { path: path.clone(), source };
                roots.add(certificate).map_err(bad)?;
            }
        }
        None => {
            // One unusable certificate in the system's collection is no reason to reject all of
            // them.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsError::NoSystemRoots);
            }
        }
    }
    with_client(ClientConfig::builder().with_root_certificates(roots), tls)
}

/// Adds the client certificate, if one is configured.
fn with_client(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    tls: &Tls,
) -> Result<Arc<ClientConfig>, TlsError> {
    let config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let cannot_read = |source| TlsError::Key { path: key.clone(), source };
            let private_key = PrivateKeyDer::from_pem_file(key).map_err(cannot_read)?;
            let cannot_use = |source| TlsError::Client { path: certificate.clone(), source };
            builder.with_client_auth_cert(certificates(certificate)?, private_key).map_err(cannot_use)?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let cannot_read = |source| TlsError::Certificate { path: path.to_owned(), source };
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(cannot_read)?.collect();
    let certificates = read.map_err(cannot_read)?;
    match certificates.is_empty() {
        true => Err(TlsError::NoCertificate(path.to_owned())),
        false => Ok(certificates),
    }
}
