//! Go's names for TLS versions, cipher suites and curves, and what they are in rustls. The format
//! of the web configuration uses these names.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::{cipher_suite as suite, kx_group};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

/// Oldest first. `None` for a known version that cannot be served.
pub(super) const VERSIONS: [(&str, Option<&SupportedProtocolVersion>); 4] =
    [("TLS10", None), ("TLS11", None), ("TLS12", Some(&version::TLS12)), ("TLS13", Some(&version::TLS13))];

/// `None` for a known suite that cannot be served.
pub(super) const CIPHER_SUITES: [(&str, Option<SupportedCipherSuite>); 17] = [
    ("TLS_AES_128_GCM_SHA256", Some(suite::TLS13_AES_128_GCM_SHA256)),
    ("TLS_AES_256_GCM_SHA384", Some(suite::TLS13_AES_256_GCM_SHA384)),
    ("TLS_CHACHA20_POLY1305_SHA256", Some(suite::TLS13_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Some(suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Some(suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", Some(suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Some(suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Some(suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384)),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", Some(suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_GCM_SHA256", None),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", None),
];

/// `None` for a known curve that cannot be served.
pub(super) const CURVES: [(&str, Option<&'static dyn SupportedKxGroup>); 4] = [
    ("CurveP256", Some(kx_group::SECP256R1)),
    ("CurveP384", Some(kx_group::SECP384R1)),
    ("CurveP521", None),
    ("X25519", Some(kx_group::X25519)),
];
