//! Reads the Subject Alternative Names of a certificate as text: DNS names, mail addresses, URIs
//! and IP addresses.
//!
//! rustls compares names but does not list them, and it does not know mail addresses. This file
//! parses just enough DER to find that one extension. Invalid input yields `None`, which means that
//! the certificate has no names. `client_certificates` calls it.
//!
//! A library would parse much more than is needed: x509-parser 0.18 adds 26 s of CPU time to a
//! release build and 130 KB to the program, x509-cert 0.2 adds 12 s and 85 KB.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
/// Tag `[3]` in the body of the certificate.
const EXTENSIONS: u8 = 0xa3;
/// Object identifier 2.5.29.17.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];
/// Tags of the variants of `GeneralName`.
const MAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

pub(crate) fn alternative_names(certificate: &[u8]) -> Option<Vec<String>> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, body, _) = element(certificate)? else { return None };
    let extensions = find(body, EXTENSIONS)?;
    let (SEQUENCE, mut extensions, _) = element(extensions)? else { return None };
    while !extensions.is_empty() {
        let (SEQUENCE, extension, rest) = element(extensions)? else { return None };
        extensions = rest;
        let (OBJECT_IDENTIFIER, identifier, _) = element(extension)? else { return None };
        if identifier == SUBJECT_ALT_NAME {
            let (SEQUENCE, names, _) = element(find(extension, OCTET_STRING)?)? else { return None };
            return all_names(names);
        }
    }
    Some(Vec::new())
}

fn all_names(mut names: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while !names.is_empty() {
        let (kind, value, rest) = element(names)?;
        names = rest;
        match kind {
            MAIL | DNS | URI => texts.push(std::str::from_utf8(value).ok()?.to_owned()),
            IP => texts.push(address(value)?.to_string()),
            _ => {}
        }
    }
    Some(texts)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical())
}

/// Returns the content of the first element with this tag.
fn find(mut elements: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        let (tag, content, rest) = element(elements)?;
        if tag == wanted {
            return Some(content);
        }
        elements = rest;
    }
}

/// Returns tag, content and the bytes after the element.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // The length has up to three bytes. A certificate is never larger.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let head = match length {
            0..=0x7f => vec![tag, length as u8],
            _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
        };
        [head, content.to_vec()].concat()
    }

    /// Builds the parts of a certificate that are read: a body with a serial number and these
    /// names.
    fn certificate(names: &[u8]) -> Vec<u8> {
        let critical = node(0x01, &[0xff]);
        let other = node(SEQUENCE, &[node(OBJECT_IDENTIFIER, &[0x55, 0x1d, 0x0f]), node(OCTET_STRING, &[1])].concat());
        let value = node(OCTET_STRING, &node(SEQUENCE, names));
        let ours = node(SEQUENCE, &[node(OBJECT_IDENTIFIER, &SUBJECT_ALT_NAME), critical, value].concat());
        let extensions = node(EXTENSIONS, &node(SEQUENCE, &[other, ours].concat()));
        node(SEQUENCE, &node(SEQUENCE, &[node(0x02, &[1]), extensions].concat()))
    }

    #[test]
    fn every_kind_of_name() {
        let six = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let names = [
            node(DNS, b"a.example"),
            node(MAIL, b"me@a.example"),
            node(URI, b"spiffe://a/b"),
            node(IP, &[127, 0, 0, 1]),
            node(IP, &six),
            node(0xa0, b"other"),
        ];
        let expected = ["a.example", "me@a.example", "spiffe://a/b", "127.0.0.1", "2001:db8::1"];
        assert_eq!(alternative_names(&certificate(&names.concat())).unwrap(), expected);
        assert_eq!(alternative_names(&certificate(&node(IP, &[1, 2, 3]))), None);
        let long = node(DNS, &[b'a'; 300]);
        assert_eq!(alternative_names(&certificate(&long)).unwrap(), ["a".repeat(300)]);
    }

    proptest! {
        #[test]
        fn broken_certificates_have_no_names(cut in 0_usize..120, at in 0_usize..120, byte: u8) {
            let mut bytes = certificate(&node(DNS, b"a.example"));
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut);
            // Any input must not cause a panic.
            let _ = alternative_names(&bytes);
        }
    }
}
