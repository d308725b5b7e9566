//! One worker's connection to Redis, with the patience that Cordum has and errors in the words of its Redis client.

use std::time::Duration;

use redis::{Client, RedisError, RedisResult};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::fleet::{Locker, Token};

pub(super) struct Link {
    client: Client,
    patience: Duration,
    /// Made anew after an error.
    locker: Option<Locker>,
}

/// An operation of which nobody knows whether it was done.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) text: String,
    /// What the exporter calls it.
    pub(super) reason: &'static str,
}

impl Link {
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        Self { client, patience, locker: None }
    }

    pub(super) async fn acquire(&mut self, key: &str, ttl: Duration) -> Result<Option<Token>, Trouble> {
        let call = async { connected(&self.client, &mut self.locker).await?.acquire(key, ttl).await };
        let answer = timeout(self.patience, call).await;
        self.judge(answer)
    }

    pub(super) async fn renew(&mut self, key: &str, token: &Token, ttl: Duration) -> Result<bool, Trouble> {
        let call = async { connected(&self.client, &mut self.locker).await?.renew(key, token, ttl).await };
        let answer = timeout(self.patience, call).await;
        self.judge(answer)
    }

    pub(super) async fn release(&mut self, key: &str, token: &Token) -> Result<bool, Trouble> {
        let call = async { connected(&self.client, &mut self.locker).await?.release(key, token).await };
        let answer = timeout(self.patience, call).await;
        self.judge(answer)
    }

    fn judge<T>(&mut self, answer: Result<RedisResult<T>, Elapsed>) -> Result<T, Trouble> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            // A late answer belongs to nobody; the connection is good for the next question.
            Err(_) => Err(Trouble { text: "context deadline exceeded".to_owned(), reason: "redis_unavailable" }),
            Ok(Err(error)) => {
                self.locker = None;
                Err(Trouble::of(&error))
            }
        }
    }
}

impl Trouble {
    fn of(error: &RedisError) -> Self {
        match error.code() {
            Some(code @ ("LOADING" | "READONLY" | "MASTERDOWN")) => {
                Self { text: format!("{code} {}", error.detail().unwrap_or_default()), reason: "failover" }
            }
            _ if error.is_timeout() => Self { text: "i/o timeout".to_owned(), reason: "redis_unavailable" },
            _ => Self { text: "EOF".to_owned(), reason: "redis_unavailable" },
        }
    }
}

async fn connected<'a>(client: &Client, locker: &'a mut Option<Locker>) -> RedisResult<&'a mut Locker> {
    match locker {
        Some(locker) => Ok(locker),
        None => Ok(locker.insert(Locker::connect(client).await?)),
    }
}
