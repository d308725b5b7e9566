//! Parses the address of a Redis: `redis://user:password@host:6379/0`, `unix:///run/redis.sock`,
//! `host:6379`.
//!
//! Problems name the part that is wrong and never contain the complete URL, because it may include
//! a password.

use std::net::Ipv6Addr;

use super::Address;
use crate::config::yaml::document::quote;
use crate::util::percent::{PercentError, percent_decode};

/// A problem message and a help text.
pub(in crate::config) type Complaint = (String, String);

const SCHEMES_HELP: &str = "write redis://HOST:PORT, rediss://HOST:PORT (TLS) or unix:///PATH";

#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct RedisUrl {
    pub(in crate::config) address: Address,
    pub(in crate::config) is_tls: bool,
    pub(in crate::config) username: Option<String>,
    pub(in crate::config) password: Option<String>,
    pub(in crate::config) database: u32,
}

pub(in crate::config) fn parse(url: &str, default_port: u16) -> Result<RedisUrl, Complaint> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return complain("the URL of Redis has no scheme", SCHEMES_HELP);
    };
    let is_tls = match scheme {
        "redis" => false,
        "rediss" => true,
        "unix" => return parse_unix(rest),
        _ => return complain(format!("the URL of Redis has the scheme {}", quote(scheme)), SCHEMES_HELP),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') {
        return complain("the URL of Redis has a `/` before its `@`", "write a / in a user or password as %2F");
    }
    let (login, host) = match authority.rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, authority),
    };
    if host.contains(['?', '#']) || path.contains(['?', '#']) {
        return complain(
            "the URL of Redis has options after `?` or `#`",
            "remove them; use the other fields of `redis` instead",
        );
    }
    let (username, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        Some((username, password)) => (decode(username)?, decode(password)?),
        None => (None, None),
    };
    let database = match path {
        "" => 0,
        number => parse_database(number)?,
    };
    Ok(RedisUrl { address: parse_address(host, default_port)?, is_tls, username, password, database })
}

fn parse_unix(rest: &str) -> Result<RedisUrl, Complaint> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') || path.len() < 2 {
        return complain("the URL of Redis has no path of a socket", "write unix:///PATH, with three slashes");
    }
    let database = match (query, query.strip_prefix("db=")) {
        ("", _) => 0,
        (_, Some(number)) => parse_database(number)?,
        (_, None) => return complain("the URL of Redis has unknown options", "only ?db=NUMBER is known"),
    };
    Ok(RedisUrl { address: Address::Unix(path.into()), is_tls: false, username: None, password: None, database })
}

fn parse_database(text: &str) -> Result<u32, Complaint> {
    match text.parse() {
        Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => complain(
            format!("{} is not the number of a database", quote(text)),
            "write a number after the last slash, or nothing for database 0",
        ),
    }
}

/// Parses `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
pub(in crate::config) fn parse_address(text: &str, default_port: u16) -> Result<Address, Complaint> {
    let help = "write HOST:PORT or [IPV6]:PORT";
    let refuse = |message: String| complain(message, help);
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, port))) => {
            if host.parse::<Ipv6Addr>().is_err() {
                return refuse(format!("{} is not an IPv6 address", quote(host)));
            }
            match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if port.is_empty() => (host, None),
                None => return refuse(format!("{} is not an address", quote(text))),
            }
        }
        Some(None) => return refuse(format!("{} is not an address", quote(text))),
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_bare_ipv6 = host.contains(':') && !text.starts_with('[');
    if host.is_empty() || is_bare_ipv6 || host.contains(|c: char| c.is_whitespace() || "@/[]".contains(c)) {
        let message = if host.is_empty() { "there is no host".to_owned() } else { format!("bad host {}", quote(host)) };
        return refuse(message);
    }
    let port = match port {
        None => default_port,
        Some(port) => match port.parse() {
            Ok(number) if number > 0 => number,
            _ => return refuse(format!("{} is not a port", quote(port))),
        },
    };
    Ok(Address::Tcp { host: host.to_owned(), port })
}

/// Decodes percent encoding such as `%40`. Returns `None` for an empty text.
fn decode(text: &str) -> Result<Option<String>, Complaint> {
    match percent_decode(text) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(PercentError::BadEscape) => {
            complain("a bad % in the user or password of the URL of Redis", "write a plain % as %25")
        }
        Err(PercentError::NotUtf8) => {
            complain("the user or password in the URL of Redis is not UTF-8", "put it into a file: `password_file`")
        }
    }
}

fn complain<T>(message: impl Into<String>, help: &str) -> Result<T, Complaint> {
    Err((message.into(), help.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn good_urls() {
        let plain = |address| RedisUrl { address, is_tls: false, username: None, password: None, database: 0 };
        let some = |text: &str| Some(text.to_owned());
        for (url, expected) in [
            ("redis://redis", plain(tcp("redis", 6379))),
            ("redis://redis/", plain(tcp("redis", 6379))),
            ("redis://10.0.0.1:7000/3", RedisUrl { database: 3, ..plain(tcp("10.0.0.1", 7000)) }),
            ("rediss://[::1]:6380", RedisUrl { is_tls: true, ..plain(tcp("::1", 6380)) }),
            ("redis://[::1]", plain(tcp("::1", 6379))),
            ("redis://:p%40ss@redis", RedisUrl { password: some("p@ss"), ..plain(tcp("redis", 6379)) }),
            ("redis://me@redis", RedisUrl { username: some("me"), ..plain(tcp("redis", 6379)) }),
            (
                "redis://me:a:b@redis",
                RedisUrl { username: some("me"), password: some("a:b"), ..plain(tcp("redis", 6379)) },
            ),
            ("unix:///run/redis.sock", plain(Address::Unix("/run/redis.sock".into()))),
            ("unix:///a?db=2", RedisUrl { database: 2, ..plain(Address::Unix("/a".into())) }),
        ] {
            assert_eq!(parse(url, 6379), Ok(expected), "{url}");
        }
    }

    #[test]
    fn bad_urls_are_refused_without_showing_a_password() {
        for url in [
            "redis",
            "redis:6379",
            "http://:secret@redis",
            "redis://",
            "redis://:6379",
            "redis://:secret@",
            "redis://:secret@redis:0",
            "redis://:secret@redis:port",
            "redis://:secret@redis:99999",
            "redis://:secret@redis/one",
            "redis://:secret@redis/-1",
            "redis://:secret@redis/1/2",
            "redis://:secret@redis?a=b",
            "redis://:secret%4@redis",
            "redis://me:secret/secret@redis",
            "redis://:secret%ff@redis",
            "redis://::1",
            "redis://[::1",
            "redis://[secret]:1",
            "unix://run/redis.sock",
            "unix:///",
            "unix:///a?x=1",
        ] {
            let (message, help) = parse(url, 6379).expect_err(url);
            assert!(!help.is_empty() && (!message.contains("secret") || url.contains("[secret]")), "{url}: {message}");
        }
    }
}
