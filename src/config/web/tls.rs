//! Reads `tls_server_config`: converts file names and Go's names into a rustls server
//! configuration.
//!
//! `web::build` calls [`build`]. It reports files that cannot be read, invalid PEM text, keys that
//! do not belong to the certificate, and settings that rustls does not support.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use super::super::yaml::document::{YamlNode, YamlPosition, YamlValue, quote};
use super::super::yaml::fields::{Located, YamlMapping};
use super::super::yaml::problem::ProblemCollector;
use super::super::yaml::suggest;
use super::Files;
use super::vocabulary::{CIPHER_SUITES, CURVES, VERSIONS};
use crate::config::web::client_certificates::ClientCertificates;

#[rustfmt::skip]
const FIELDS: [&str; 13] = [
    "cert", "key", "client_ca", "cert_file", "key_file", "client_auth_type", "client_ca_file", "client_allowed_sans",
    "min_version", "max_version", "cipher_suites", "prefer_server_cipher_suites", "curve_preferences",
];

/// What clients must satisfy.
#[derive(Clone, Debug, Default)]
pub(super) struct Demands {
    pub(super) client_auth: ClientAuth,
    /// Names in client certificates. `None` if any name is accepted.
    allowed_names: Option<Vec<String>>,
    /// The oldest accepted version of TLS, by its number in the protocol.
    oldest_version: u16,
}

impl Demands {
    /// Returns what `next` would remove or weaken.
    pub(super) fn lost_with(&self, next: &Self) -> Option<&'static str> {
        let (auth, next_auth) = (self.client_auth, next.client_auth);
        // Requiring a certificate and verifying one are independent checks: neither replaces the
        // other.
        if auth.is_mandatory() && !next_auth.is_mandatory() || auth.verifies() && !next_auth.verifies() {
            return Some("the check of client certificates");
        }
        if let Some(allowed) = &self.allowed_names
            && next.allowed_names.as_ref().is_none_or(|names| names.iter().any(|name| !allowed.contains(name)))
        {
            return Some("the list of allowed names in client certificates");
        }
        (self.oldest_version > next.oldest_version).then_some("the oldest version of TLS")
    }
}

/// What the server requests from clients, with Go's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClientAuth {
    #[default]
    NoClientCert,
    RequestClientCert,
    RequireAnyClientCert,
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

impl ClientAuth {
    const WORDS: [(&str, Self); 6] = [
        ("NoClientCert", Self::NoClientCert),
        ("RequestClientCert", Self::RequestClientCert),
        ("RequireAnyClientCert", Self::RequireAnyClientCert),
        // An old name with the same meaning.
        ("RequireClientCert", Self::RequireAnyClientCert),
        ("VerifyClientCertIfGiven", Self::VerifyClientCertIfGiven),
        ("RequireAndVerifyClientCert", Self::RequireAndVerifyClientCert),
    ];

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::NoClientCert => "no client certificates",
            Self::RequestClientCert => "client certificates of any kind, if there are",
            Self::RequireAnyClientCert => "client certificates of any kind",
            Self::VerifyClientCertIfGiven => "client certificates are verified, if there are",
            Self::RequireAndVerifyClientCert => "verified client certificates",
        }
    }

    pub(super) fn is_mandatory(self) -> bool {
        matches!(self, Self::RequireAnyClientCert | Self::RequireAndVerifyClientCert)
    }

    fn verifies(self) -> bool {
        matches!(self, Self::VerifyClientCertIfGiven | Self::RequireAndVerifyClientCert)
    }
}

/// Returns `None` if the section is empty or after reporting a problem.
pub(super) fn build(
    node: &YamlNode,
    files: &mut Files<'_>,
    findings: &mut ProblemCollector,
) -> Option<(Arc<ServerConfig>, Demands)> {
    let fields = YamlMapping::of(node, "`tls_server_config`", &FIELDS, findings)?;
    if !FIELDS.iter().any(|field| fields.has(field)) {
        return None;
    }
    let chain = material(&fields, "cert", files, findings).and_then(|pem| pem.certificates(findings));
    let key = material(&fields, "key", files, findings).and_then(|pem| pem.key(findings).map(|key| (key, pem.place)));
    for name in ["cert", "key"] {
        let file = format!("{name}_file");
        if !fields.has(name) && !fields.has(&file) {
            findings.add(
                node.place,
                format!("TLS without `{file}`"),
                format!("add `{file}: FILE`, a file in PEM form"),
            );
        }
    }
    let crypto = Arc::new(crypto(&fields, findings));
    let versions = versions(&fields, findings);
    let mut demands =
        Demands { oldest_version: versions.first().map_or(0, |first| first.version.into()), ..Demands::default() };
    let verifier = verifier(&fields, &crypto, &mut demands, files, findings);
    let prefers_server = fields.boolean("prefer_server_cipher_suites", findings);
    if !findings.is_empty() {
        return None;
    }
    let (chain, (key, key_place)) = chain.zip(key)?;
    let builder = match ServerConfig::builder_with_provider(crypto).with_protocol_versions(&versions) {
        Ok(builder) => builder,
        Err(error) => {
            let help = "TLS 1.3 has its own suites; for TLS 1.2 name one that rustls supports, or none";
            findings.add(node.place, format!("the versions and `cipher_suites` do not match: {error}"), help);
            return None;
        }
    };
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    match builder.with_single_cert(chain, key) {
        Ok(mut config) => {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            config.ignore_client_order = prefers_server.is_none_or(|prefers| prefers.value);
            Some((Arc::new(config), demands))
        }
        Err(rustls::Error::InconsistentKeys(_)) => {
            let help = "the first certificate of the file must be the one for the key";
            findings.add(key_place, "the key does not belong to the certificate", help);
            None
        }
        Err(error) => {
            findings.add(key_place, format!("certificate and key cannot be used: {error}"), "");
            None
        }
    }
}

/// PEM text, given inline or in a file.
struct Material {
    place: YamlPosition,
    /// The name in messages: the path, or the field.
    name: String,
    bytes: Vec<u8>,
}

/// Reads `FIELD` or `FIELD_file`. Returns `None` if neither is present or after reporting a
/// problem.
fn material(
    fields: &YamlMapping<'_>,
    field: &str,
    files: &mut Files<'_>,
    findings: &mut ProblemCollector,
) -> Option<Material> {
    let file_field = format!("{field}_file");
    let inline = fields.has(field).then(|| inline(fields, field, findings));
    let file = fields.has(&file_field).then(|| fields.text(&file_field, findings));
    if let (Some(_), Some(Some(file))) = (&inline, &file) {
        findings.add(file.place, format!("there is `{field}` too"), "remove one of them");
        return None;
    }
    match (inline, file) {
        (Some(inline), _) => {
            let Located { place, value } = inline?;
            Some(Material { place, name: format!("`{field}`"), bytes: value.into_bytes() })
        }
        (None, Some(file)) => {
            let Located { place, value } = file?;
            match files.read(&value) {
                Ok(bytes) => Some(Material { place, name: value, bytes }),
                Err(message) => {
                    let help = "check the path, which starts at the directory of this file, and the permissions";
                    findings.add(place, message, help);
                    None
                }
            }
        }
        (None, None) => None,
    }
}

/// Does not show a value that is not text, because it may be a secret.
fn inline(fields: &YamlMapping<'_>, field: &str, findings: &mut ProblemCollector) -> Option<Located<String>> {
    let node = fields.get(field)?;
    if let YamlValue::Text(text) = &node.kind {
        return Some(Located { place: node.place, value: text.clone() });
    }
    findings.add(node.place, format!("`{field}` must be text in PEM form"), "write it as a block: `|` and lines below");
    None
}

impl Material {
    fn certificates(&self, findings: &mut ProblemCollector) -> Option<Vec<CertificateDer<'static>>> {
        let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => return Some(certificates),
            Ok(_) => {
                let help = "it needs PEM text that begins with -----BEGIN CERTIFICATE-----";
                findings.add(self.place, format!("there is no certificate in {}", self.name), help);
            }
            Err(_) => findings.add(self.place, format!("{} is not valid PEM text", self.name), "is it cut off?"),
        }
        None
    }

    fn key(&self, findings: &mut ProblemCollector) -> Option<PrivateKeyDer<'static>> {
        let read = PrivateKeyDer::from_pem_slice(&self.bytes);
        if read.is_err() {
            let help = "it needs PEM text that begins with -----BEGIN PRIVATE KEY-----, without a passphrase";
            findings.add(self.place, format!("there is no private key in {}", self.name), help);
        }
        read.ok()
    }
}

/// Uses the configured suites and curves, or the defaults of rustls.
fn crypto(fields: &YamlMapping<'_>, findings: &mut ProblemCollector) -> CryptoProvider {
    let mut provider = ring::default_provider();
    let listed = |name| fields.has(name) && !fields.items(name, &mut ProblemCollector::default()).is_empty();
    if listed("cipher_suites") {
        let chosen = known(fields, "cipher_suites", &CIPHER_SUITES, findings);
        // As in Go, the list applies to TLS 1.2 only. The suites of TLS 1.3 are always available.
        let is_new = |suite: &SupportedCipherSuite| suite.tls13().is_some();
        provider.cipher_suites.retain(is_new);
        provider.cipher_suites.extend(chosen.into_iter().filter(|suite| !is_new(suite)));
    }
    if listed("curve_preferences") {
        provider.kx_groups = known(fields, "curve_preferences", &CURVES, findings);
    }
    provider
}

/// Returns the items of a list that are supported. Reports names that the format does not have or
/// rustls does not support.
fn known<T: Copy>(
    fields: &YamlMapping<'_>,
    name: &str,
    words: &[(&str, Option<T>)],
    findings: &mut ProblemCollector,
) -> Vec<T> {
    let mut chosen = Vec::new();
    for item in fields.texts(name, findings).unwrap_or_default() {
        chosen.extend(word(&item, name, words, findings));
    }
    chosen
}

fn word<T: Copy>(
    written: &Located<String>,
    name: &str,
    words: &[(&str, Option<T>)],
    findings: &mut ProblemCollector,
) -> Option<T> {
    let usable: Vec<&str> = words.iter().filter(|(_, value)| value.is_some()).map(|(word, _)| *word).collect();
    match words.iter().find(|(word, _)| *word == written.value) {
        Some((_, Some(value))) => return Some(*value),
        Some((word, None)) => {
            let message = format!("`{name}`: {word} is not supported: it is unsafe, or rustls does not have it");
            findings.add(written.place, message, format!("use one of {}", suggest::list(&usable)));
        }
        None => {
            let message = format!("`{name}`: there is no {}", quote(&written.value));
            findings.add(written.place, message, suggest::help_with(&written.value, &usable));
        }
    }
    None
}

fn versions(fields: &YamlMapping<'_>, findings: &mut ProblemCollector) -> Vec<&'static SupportedProtocolVersion> {
    let mut limit = |name: &str| {
        let written = fields.text(name, findings)?;
        word(&written, name, &VERSIONS, findings)?;
        let index = VERSIONS.iter().position(|(version, _)| *version == written.value)?;
        Some((index, written.place))
    };
    let (min, max) = (limit("min_version"), limit("max_version"));
    let first = min.map_or(0, |(index, _)| index);
    let last = max.map_or(VERSIONS.len() - 1, |(index, _)| index);
    if let (Some((_, place)), true) = (max, first > last) {
        findings.add(place, "`max_version` is older than `min_version`", "swap them, or remove one");
        return Vec::new();
    }
    VERSIONS[first..=last].iter().filter_map(|(_, version)| *version).collect()
}

/// Builds the verifier of client certificates and stores its requirements in `demands`.
fn verifier(
    fields: &YamlMapping<'_>,
    crypto: &Arc<CryptoProvider>,
    demands: &mut Demands,
    files: &mut Files<'_>,
    findings: &mut ProblemCollector,
) -> Option<Arc<dyn ClientCertVerifier>> {
    let written = fields.choice("client_auth_type", &ClientAuth::WORDS, findings);
    let client_auth = written.as_ref().map_or(ClientAuth::NoClientCert, |written| written.value);
    let authority = material(fields, "client_ca", files, findings);
    let roots = authority.as_ref().and_then(|pem| {
        let mut roots = RootCertStore::empty();
        for certificate in pem.certificates(findings)? {
            if let Err(error) = roots.add(certificate) {
                findings.add(pem.place, format!("a certificate of {} cannot be used: {error}", pem.name), "");
                return None;
            }
        }
        Some(roots)
    });
    let has_authority = fields.has("client_ca") || fields.has("client_ca_file");
    let auth_is_good = written.is_some() || !fields.has("client_auth_type");
    if let (Some(authority), ClientAuth::NoClientCert, true) = (&authority, client_auth, auth_is_good) {
        let help = "add `client_auth_type: RequireAndVerifyClientCert`, or remove the CA";
        findings.add(authority.place, "there is a CA for clients, but client certificates are not requested", help);
    }
    if let (Some(written), false, true) = (&written, has_authority, client_auth.verifies()) {
        let help = "add `client_ca_file: FILE` with the CA that signs the certificates of clients";
        findings.add(written.place, "certificates of clients cannot be verified without a CA", help);
    }
    let allowed =
        fields.get("client_allowed_sans").map(|node| (node.place, fields.texts("client_allowed_sans", findings)));
    if let (Some((place, _)), false, true) = (&allowed, client_auth.is_mandatory(), auth_is_good) {
        let help = "set `client_auth_type` to RequireAndVerifyClientCert (or RequireAnyClientCert)";
        findings.add(*place, "`client_allowed_sans` requires client certificates", help);
    }
    let allowed = allowed.and_then(|(_, names)| names);
    let names: Option<Vec<String>> = allowed.map(|names| names.into_iter().map(|name| name.value).collect());
    (demands.client_auth, demands.allowed_names) = (client_auth, names.clone());
    if client_auth == ClientAuth::NoClientCert || !findings.is_empty() {
        return None;
    }
    let mut verifier = ClientCertificates::new(client_auth, names, crypto.signature_verification_algorithms);
    if let (true, Some(roots)) = (client_auth.verifies(), roots) {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(crypto));
        match builder.build() {
            Ok(signed) => verifier = verifier.signed(signed),
            Err(error) => {
                let place = authority.map_or(fields.place(), |authority| authority.place);
                findings.add(place, format!("the CA for clients cannot be used: {error}"), "");
            }
        }
    }
    Some(Arc::new(verifier))
}
