//! Fills a Redis with locks and other keys, or acquires and releases locks at a steady rate. `make
//! bench` uses it to generate load.
//!
//!   lock_load fill --port 6379 --keys 900000 --locks 100000 --ttl-seconds 3600
//!   lock_load cycles --port 6379 --rate 5000 --seconds 20
//!
//! Prints its results as one line of JSON. The keys are those of Cordum's job locks.

use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, cmd, pipe};
use redis_lock_exporter::rehearsal::fleet::RELEASE;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Commands in one pipeline.
const BATCH: usize = 1_000;
const TICK: Duration = Duration::from_millis(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: Option<u64>| -> anyhow::Result<u64> {
        match arguments.iter().position(|argument| argument == name) {
            Some(at) => Ok(arguments.get(at + 1).with_context(|| format!("{name} needs a number"))?.parse()?),
            None => default.with_context(|| format!("{name} is missing")),
        }
    };
    let client = Client::open(format!("redis://127.0.0.1:{}/", number("--port", None)?))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    match arguments.first().map(String::as_str) {
        Some("fill") => {
            let ttl = number("--ttl-seconds", Some(3600))?;
            fill(connection, number("--keys", Some(0))?, number("--locks", Some(0))?, ttl).await
        }
        Some("cycles") => cycles(connection, number("--rate", None)?, number("--seconds", None)?).await,
        _ => bail!("usage: lock_load fill|cycles --port PORT ..."),
    }
}

/// Keys have the length of Cordum's keys and are distributed like random ids.
fn lock_key(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("cordum:scheduler:job:{mixed:016x}{number:08x}")
}

async fn fill(mut connection: MultiplexedConnection, keys: u64, locks: u64, ttl: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut pipeline = pipe();
    let mut send = async |pipeline: &mut redis::Pipeline, at_least: usize| -> anyhow::Result<()> {
        if pipeline.len() >= at_least && !pipeline.is_empty() {
            pipeline.exec_async(&mut connection).await?;
            pipeline.clear();
        }
        Ok(())
    };
    for number in 0..keys {
        pipeline.set(format!("cache:session:{number:012}"), "value").ignore();
        send(&mut pipeline, BATCH).await?;
    }
    for number in 0..locks {
        pipeline.cmd("SET").arg(lock_key(number)).arg(token(number)).arg("EX").arg(ttl).ignore();
        send(&mut pipeline, BATCH).await?;
    }
    send(&mut pipeline, 1).await?;
    say(&format!("{{\"keys\": {keys}, \"locks\": {locks}, \"seconds\": {:.3}}}", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Acquires each lock at one tick and releases it at the next, with the script that real programs
/// use.
async fn cycles(mut connection: MultiplexedConnection, rate: u64, seconds: u64) -> anyhow::Result<()> {
    let release = Script::new(RELEASE);
    release.prepare_invoke().load_async(&mut connection).await?;
    let hash = release.get_hash().to_owned();
    let n_ticks = seconds * 1000 / TICK.as_millis() as u64;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let begun = Instant::now();
    let mut next = 0_u64;
    let mut held = 0..0;
    for tick in 1..=n_ticks + 1 {
        ticks.tick().await;
        let mut pipeline = pipe();
        for number in held.clone() {
            pipeline.cmd("EVALSHA").arg(&hash).arg(1).arg(lock_key(number)).arg(token(number)).ignore();
        }
        let until = if tick <= n_ticks { rate * tick * TICK.as_millis() as u64 / 1000 } else { next };
        for number in next..until {
            pipeline.cmd("SET").arg(lock_key(number)).arg(token(number)).arg("NX").arg("PX").arg(60_000).ignore();
        }
        (held, next) = (next..until, until);
        if !pipeline.is_empty() {
            pipeline.exec_async(&mut connection).await?;
        }
    }
    let left: u64 = cmd("EXISTS").arg(lock_key(0)).query_async(&mut connection).await?;
    anyhow::ensure!(left == 0, "locks were not released");
    say(&format!("{{\"cycles\": {next}, \"seconds\": {:.3}}}", begun.elapsed().as_secs_f64()));
    Ok(())
}

fn token(number: u64) -> String {
    format!("{:032x}", u128::from(number) << 64 | 0x5eed)
}

#[allow(clippy::print_stdout)] // The result, for the script that runs this.
fn say(line: &str) {
    println!("{line}");
}
