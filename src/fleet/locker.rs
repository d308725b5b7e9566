//! The operations of a lock as programs do them: `SET NX PX` with a random token, compare-and-delete, compare-and-pexpire.

use std::hash::BuildHasher;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Script, cmd};

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const RENEW: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
/// Longer than any pause of Redis that is rehearsed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a holder knows and nobody else: one for each acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn random() -> Self {
        let random = || std::collections::hash_map::RandomState::new().hash_one(0);
        Self(format!("{:016x}{:016x}", random(), random()))
    }
}

/// One connection of one worker.
#[derive(Clone)]
pub struct Locker {
    connection: MultiplexedConnection,
    release: Script,
    renew: Script,
}

impl Locker {
    pub async fn connect(client: &Client) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { connection, release: Script::new(RELEASE), renew: Script::new(RENEW) })
    }

    /// Nothing if somebody else has it.
    pub async fn acquire(&mut self, key: &str, ttl: Duration) -> RedisResult<Option<Token>> {
        let token = Token::random();
        let mut set = cmd("SET");
        set.arg(key).arg(&token.0).arg("NX").arg("PX").arg(milliseconds(ttl));
        let taken: Option<String> = set.query_async(&mut self.connection).await?;
        Ok(taken.map(|_| token))
    }

    /// Whether the lock was still the caller's.
    pub async fn renew(&mut self, key: &str, token: &Token, ttl: Duration) -> RedisResult<bool> {
        let mut call = self.renew.key(key);
        call.arg(&token.0).arg(milliseconds(ttl)).invoke_async(&mut self.connection).await
    }

    /// Whether the lock was still the caller's.
    pub async fn release(&mut self, key: &str, token: &Token) -> RedisResult<bool> {
        self.release.key(key).arg(&token.0).invoke_async(&mut self.connection).await
    }

    /// Takes the lock from whoever has it: what a program without `NX` does.
    pub async fn steal(&mut self, key: &str, ttl: Duration) -> RedisResult<Token> {
        let token = Token::random();
        let mut set = cmd("SET");
        set.arg(key).arg(&token.0).arg("PX").arg(milliseconds(ttl));
        set.exec_async(&mut self.connection).await?;
        Ok(token)
    }

    /// The silent bug: a release that does not look whose lock it is. Whether there was one.
    pub async fn delete(&mut self, key: &str) -> RedisResult<bool> {
        cmd("DEL").arg(key).query_async(&mut self.connection).await
    }
}

fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
