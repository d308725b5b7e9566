//! Controls one worker of the fleet manually, so that tests in other languages use the same lock
//! code.
//!
//!   lock_by_hand redis://127.0.0.1:6379/
//!
//! Reads one JSON command per line from standard input and prints one JSON answer per line, in
//! order. `{"acquire":{"key": KEY, "ttl_ms": 5000}}` returns the token, or null if another owner
//! holds the lock. `renew` (also with a `token`) and `release` (with a `token`, without `ttl_ms`)
//! return whether the caller still held the lock. The program ends when its input ends.

#![allow(clippy::print_stdout)] // For the tests that run this.

use std::time::Duration;

use anyhow::Context as _;
use redis_lock_exporter::rehearsal::fleet::{LockToken, Locker};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    Acquire { key: String, ttl_ms: u64 },
    Renew { key: String, token: String, ttl_ms: u64 },
    Release { key: String, token: String },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).context("usage: lock_by_hand redis://HOST:PORT/")?;
    let client = redis::Client::open(url).context("not the URL of a Redis")?;
    let mut locker = Locker::connect(&client).await.context("cannot connect to Redis")?;
    for line in std::io::stdin().lines() {
        println!("{}", obey(&mut locker, &line?).await?);
    }
    Ok(())
}

async fn obey(locker: &mut Locker, line: &str) -> anyhow::Result<Value> {
    let command = serde_json::from_str(line).with_context(|| format!("an unknown command: {line}"))?;
    Ok(match command {
        Command::Acquire { key, ttl_ms } => {
            let token = locker.acquire(&key, Duration::from_millis(ttl_ms)).await?;
            json!(token.as_ref().map(LockToken::reveal))
        }
        Command::Renew { key, token, ttl_ms } => {
            json!(locker.renew(&key, &LockToken::new(&token), Duration::from_millis(ttl_ms)).await?)
        }
        Command::Release { key, token } => json!(locker.release(&key, &LockToken::new(&token)).await?),
    })
}
