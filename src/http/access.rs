//! Access control: passwords of basic authentication, and the rate limit.
//!
//! `web_file` calls this module for each request. Comparing a password with its bcrypt hash is slow
//! on purpose. The comparison therefore runs on a few blocking threads, its result is cached, and
//! only 64 requests may wait for one. A flood of wrong passwords does not slow down other clients
//! noticeably. Good and bad results have separate caches, so that bad ones cannot evict good ones.
//! An unknown user takes as long as a known one. Passwords are not stored: the cache key is a keyed
//! hash of the user, the bcrypt hash and the password.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tokio::sync::{Semaphore, TryAcquireError};
use tokio::time::Instant;

use crate::config::{RateLimit, Users};

/// Cached good results in addition to one per user. bcrypt reads only 72 bytes, so several
/// passwords are good for one user if they differ only after byte 72.
const SPARE_GOOD_VERDICTS: usize = 64;
const MAX_BAD_VERDICTS: usize = 4_096;
/// Requests that may wait for a comparison at the same time.
const MAX_WAITING: usize = 64;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessDenied {
    /// The password is missing or wrong.
    Unauthorized,
    /// Too many requests wait for a comparison.
    Busy,
    /// The rate limit is exceeded.
    TooMany,
}

pub(super) struct Access {
    secret: (u64, u64),
    verdicts: Mutex<PasswordCache>,
    waiting: Arc<Semaphore>,
    comparing: Arc<Semaphore>,
    bucket: Mutex<Option<TokenBucket>>,
}

#[derive(Default)]
struct PasswordCache {
    good: HashSet<u128>,
    bad: HashSet<u128>,
}

/// A user's name and password, to be compared.
struct Login {
    /// See [`Access::key`].
    key: u128,
    /// The bcrypt hash of the user. If there is no such user, a hash that takes as long to compare.
    hash: String,
    exists: bool,
    password: Vec<u8>,
}

/// The remaining tokens of a rate limit.
struct TokenBucket {
    limit: RateLimit,
    tokens: f64,
    filled: Instant,
}

impl Access {
    pub(super) fn new() -> Self {
        let random = || RandomState::new().hash_one(0);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            secret: (random(), random()),
            verdicts: Mutex::default(),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            comparing: Arc::new(Semaphore::new((cores / 2).max(1))),
            bucket: Mutex::default(),
        }
    }

    /// Takes one token from the bucket.
    pub(super) fn spend(&self, limit: Option<RateLimit>) -> Result<(), AccessDenied> {
        let Some(limit) = limit else { return Ok(()) };
        let Ok(mut bucket) = self.bucket.lock() else { return Ok(()) };
        let now = Instant::now();
        let full = TokenBucket { limit, tokens: limit.burst as f64, filled: now };
        let bucket = match &mut *bucket {
            Some(bucket) if bucket.limit == limit => bucket,
            other => other.insert(full),
        };
        let grown = now.duration_since(bucket.filled).as_secs_f64() / limit.interval.as_secs_f64();
        bucket.tokens = (bucket.tokens + grown).min(limit.burst as f64);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return Err(AccessDenied::TooMany);
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    pub(super) async fn admit(&self, users: &Users, headers: &HeaderMap) -> Result<(), AccessDenied> {
        if users.is_empty() {
            return Ok(());
        }
        let Some((name, password)) = credentials(headers) else { return Err(AccessDenied::Unauthorized) };
        let (hash, exists) = users.find(&name);
        let login = Login { key: self.key(&name, hash, &password), hash: hash.to_owned(), exists, password };
        let is_good = match self.remembered(login.key) {
            Some(is_good) => is_good,
            None => self.compare(login, users.len()).await?,
        };
        if is_good { Ok(()) } else { Err(AccessDenied::Unauthorized) }
    }

    fn remembered(&self, key: u128) -> Option<bool> {
        let verdicts = self.verdicts.lock().ok()?;
        let is_good = verdicts.good.contains(&key);
        (is_good || verdicts.bad.contains(&key)).then_some(is_good)
    }

    async fn compare(&self, login: Login, n_users: usize) -> Result<bool, AccessDenied> {
        let Login { key, hash, exists, password } = login;
        let _waiting = match self.waiting.try_acquire() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => return Err(AccessDenied::Busy),
        };
        let turn = Arc::clone(&self.comparing).acquire_owned().await.map_err(|_| AccessDenied::Busy)?;
        // A request with the same password may have been ahead in the queue.
        if let Some(is_good) = self.remembered(key) {
            return Ok(is_good);
        }
        let compared = tokio::task::spawn_blocking(move || {
            let fits = bcrypt::verify(password, &hash).unwrap_or(false);
            // The permit is held until the comparison ends, even if the client is gone.
            drop(turn);
            fits
        });
        let is_good = compared.await.map_err(|_| AccessDenied::Busy)? && exists;
        if let Ok(mut verdicts) = self.verdicts.lock() {
            match is_good {
                true => remember(key, &mut verdicts.good, n_users + SPARE_GOOD_VERDICTS),
                false => remember(key, &mut verdicts.bad, MAX_BAD_VERDICTS),
            }
        }
        Ok(is_good)
    }

    /// Includes the bcrypt hash, so that cached results of an old password no longer match.
    fn key(&self, name: &str, hash: &str, password: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
        for part in [name.as_bytes(), hash.as_bytes(), password] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }
}

/// Clears a full cache. Each lost entry costs one more comparison.
fn remember(key: u128, verdicts: &mut HashSet<u128>, max: usize) {
    if verdicts.len() >= max {
        verdicts.clear();
    }
    verdicts.insert(key);
}

/// Returns name and password from `Authorization: Basic ...`.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((name, decoded[colon + 1..].to_vec()))
}
