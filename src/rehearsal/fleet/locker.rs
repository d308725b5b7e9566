//! The operations of a lock, in the form that programs use: `SET NX PX` with a random token,
//! compare-and-delete, compare-and-pexpire. Also the operations of the storage that a lock
//! protects: a fence counter, and writes with or without a comparison of the fence.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Script, cmd};

use super::KeyScope;
use super::key_scope::WrittenKey;

/// Compare-and-delete.
pub const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const RENEW: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
const NEXT_FENCE: &str = "\
local fence = redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return fence";
/// A value consists of the fence, a space and the writer.
const WRITE_FENCED: &str = "\
local seen = tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) ')) or 0
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return 1";
/// Returns 0 if the key does not exist, 1 if the value was ours and was deleted, -1 if another
/// program wrote it.
const CLEAR: &str = "\
local now = redis.call('GET', KEYS[1])
if not now then return 0 end
if ARGV[1] == 'counter' and string.match(now, '^%d+$') then return redis.call('DEL', KEYS[1]) end
for index = 2, #ARGV do
  if now == ARGV[index] then return redis.call('DEL', KEYS[1]) end
end
return -1";
/// Longer than any pause of Redis in a rehearsal.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A secret of the holder, different for each acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockToken(String);

impl LockToken {
    pub fn random() -> Self {
        let random = || std::collections::hash_map::RandomState::new().hash_one(0);
        Self(format!("{:016x}{:016x}", random(), random()))
    }

    /// A token that another process generated.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The value of the key. A program that knows it can release the lock.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// One connection of one worker.
#[derive(Clone)]
pub struct Locker {
    connection: MultiplexedConnection,
    release: Script,
    renew: Script,
    /// `None`: the connection may write to any key.
    key_scope: Option<Arc<KeyScope>>,
}

impl Locker {
    pub async fn connect(client: &Client) -> RedisResult<Self> {
        Self::open(client, TIMEOUT, None).await
    }

    /// Refuses to write outside of the key scope, and waits for a reply for at most `timeout`.
    pub async fn connect_within(client: &Client, key_scope: &Arc<KeyScope>, timeout: Duration) -> RedisResult<Self> {
        Self::open(client, timeout, Some(Arc::clone(key_scope))).await
    }

    /// For a caller that has its own timeout of `patience`. The timeout of the connection is twice
    /// as long, so that the caller's comes first.
    pub(super) async fn patient(
        client: &Client,
        patience: Duration,
        key_scope: Option<Arc<KeyScope>>,
    ) -> RedisResult<Self> {
        Self::open(client, patience * 2, key_scope).await
    }

    async fn open(client: &Client, timeout: Duration, key_scope: Option<Arc<KeyScope>>) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(timeout))
            .set_connection_timeout(Some(TIMEOUT.min(timeout * 4)));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { connection, release: Script::new(RELEASE), renew: Script::new(RENEW), key_scope })
    }

    /// Returns `None` if the lock is taken.
    pub async fn acquire(&mut self, key: &str, ttl: Duration) -> RedisResult<Option<LockToken>> {
        let token = LockToken::random();
        Ok(self.acquire_as(key, &token, ttl).await?.then_some(token))
    }

    /// Acquires with a given token. Returns whether the lock was free.
    pub async fn acquire_as(&mut self, key: &str, token: &LockToken, ttl: Duration) -> RedisResult<bool> {
        self.note(key, &token.0)?;
        let mut set = cmd("SET");
        set.arg(key).arg(&token.0).arg("NX").arg("PX").arg(milliseconds(ttl));
        let taken: Option<String> = set.query_async(&mut self.connection).await?;
        Ok(taken.is_some())
    }

    /// Returns whether the caller still owned the lock.
    pub async fn renew(&mut self, key: &str, token: &LockToken, ttl: Duration) -> RedisResult<bool> {
        self.check(key)?;
        let mut call = self.renew.key(key);
        call.arg(&token.0).arg(milliseconds(ttl)).invoke_async(&mut self.connection).await
    }

    /// Returns whether the caller still owned the lock.
    pub async fn release(&mut self, key: &str, token: &LockToken) -> RedisResult<bool> {
        self.check(key)?;
        self.release.key(key).arg(&token.0).invoke_async(&mut self.connection).await
    }

    /// Takes the lock from its holder, like a program that forgets `NX`.
    pub async fn steal(&mut self, key: &str, ttl: Duration) -> RedisResult<LockToken> {
        let token = LockToken::random();
        self.note(key, &token.0)?;
        self.set(key, &token.0, ttl).await?;
        Ok(token)
    }

    /// Deletes the lock without comparing the owner, a bug that causes no error. Returns whether
    /// the lock existed.
    pub async fn delete(&mut self, key: &str) -> RedisResult<bool> {
        self.check(key)?;
        cmd("DEL").arg(key).query_async(&mut self.connection).await
    }

    /// Returns whether the caller owns the lock now.
    pub async fn holds(&mut self, key: &str, token: &LockToken) -> RedisResult<bool> {
        Ok(self.read(key).await?.as_deref() == Some(&token.0))
    }

    /// Returns a number that grows with every holder. The counter expires after `keep` without a
    /// call.
    pub async fn next_fence(&mut self, key: &str, keep: Duration) -> RedisResult<u64> {
        if let Some(key_scope) = &self.key_scope {
            key_scope.note_counter(key)?;
        }
        Script::new(NEXT_FENCE).key(key).arg(milliseconds(keep)).invoke_async(&mut self.connection).await
    }

    /// Writes to storage that compares fences. Returns false if the storage has already seen a
    /// later fence.
    pub async fn write_fenced(&mut self, key: &str, fence: u64, writer: &str, keep: Duration) -> RedisResult<bool> {
        self.note(key, &resource(fence, writer))?;
        let script = Script::new(WRITE_FENCED);
        let mut call = script.key(key);
        call.arg(fence).arg(writer).arg(milliseconds(keep)).invoke_async(&mut self.connection).await
    }

    /// Writes to storage that accepts every write.
    pub async fn write(&mut self, key: &str, fence: u64, writer: &str, keep: Duration) -> RedisResult<()> {
        let value = resource(fence, writer);
        self.note(key, &value)?;
        self.set(key, &value, keep).await
    }

    pub async fn read(&mut self, key: &str) -> RedisResult<Option<String>> {
        cmd("GET").arg(key).query_async(&mut self.connection).await
    }

    pub(super) async fn clear(&mut self, key: &str, made: &WrittenKey) -> RedisResult<i64> {
        self.check(key)?;
        let script = Script::new(CLEAR);
        let mut call = script.key(key);
        call.arg(if made.counter { "counter" } else { "values" });
        for value in &made.values {
            call.arg(value);
        }
        call.invoke_async(&mut self.connection).await
    }

    async fn set(&mut self, key: &str, value: &str, keep: Duration) -> RedisResult<()> {
        let mut set = cmd("SET");
        set.arg(key).arg(value).arg("PX").arg(milliseconds(keep));
        set.exec_async(&mut self.connection).await
    }

    fn check(&self, key: &str) -> RedisResult<()> {
        self.key_scope.as_ref().map_or(Ok(()), |key_scope| key_scope.check(key))
    }

    fn note(&self, key: &str, value: &str) -> RedisResult<()> {
        self.key_scope.as_ref().map_or(Ok(()), |key_scope| key_scope.note(key, value))
    }
}

/// The value that a write stores.
pub fn resource(fence: u64, writer: &str) -> String {
    format!("{fence} {writer}")
}

fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
