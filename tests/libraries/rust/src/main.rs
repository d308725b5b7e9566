//! rslock: a lock that was taken away or is gone, at its release, its extension and when it is asked for, and a lock that is
//! busy.
//!
//! Most of what it says is too general for a preset to take: those failures are not told to the conductor, and must stay silent.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use rslock::{LockError, LockManager};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// A pipe of the conductor. The environment variable contains its number.
fn pipe(name: &str, options: &OpenOptions) -> File {
    options.open(format!("/proc/self/fd/{}", variable(name))).expect("a pipe of the conductor's")
}

struct Witness {
    out: File,
    input: File,
}

impl Witness {
    fn not_owned(&mut self) {
        let failure = r#"{"event": "not_owned", "operation": "unknown", "reason": "not_owned", "lock_key": null}"#;
        writeln!(self.out, r#"{{"failed": {failure}}}"#).expect("the conductor listens");
    }

    /// Waits until the conductor has read the keys.
    fn held(&mut self, state: &str) {
        writeln!(self.out, r#"{{"held": "{state}"}}"#).expect("the conductor listens");
        self.input.read_exact(&mut [0]).expect("the conductor answers");
    }
}

/// How programs log.
fn set_up(setup: &str) {
    let formatted = tracing_subscriber::fmt().with_writer(std::io::stderr);
    match setup {
        // With colors, which it also writes to files.
        "tracing" | "tracing-debug" => formatted.with_ansi(true).init(),
        "tracing-json" => formatted.json().init(),
        "env-logger" => env_logger::Builder::new().filter_level(log::LevelFilter::Info).init(),
        _ => {}
    }
}

/// What a program prints about an error.
fn tell(setup: &str, doing: &str, error: LockError) -> anyhow::Result<()> {
    match setup {
        "message" => eprintln!("ERROR billing: could not {doing}: {error}"),
        "tracing" | "tracing-json" => tracing::error!(%error, "could not {doing}"),
        "tracing-debug" => tracing::error!("could not {doing}: {error:?}"),
        "env-logger" => log::error!("could not {doing}: {error}"),
        // Printed at the end of `main`, with one line per cause.
        "report" | "report-backtrace" => return Err(error).with_context(|| format!("could not {doing}")),
        "report-deep" => return Err(error).with_context(|| format!("could not {doing}")).context("billing stopped"),
        "panic" | "panic-backtrace" => Err(error).unwrap(),
        "expect" => Err(error).expect("this lock is ours"),
        other => bail!("there is no set-up {other}"),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut witness = Witness {
        out: pipe("WITNESS_OUT", OpenOptions::new().write(true)),
        input: pipe("WITNESS_IN", OpenOptions::new().read(true)),
    };
    let (url, name, scenario, setup) = (variable("REDIS_URL"), variable("LOCK_NAME"), variable("SCENARIO"), variable("SETUP"));
    set_up(&setup);
    let mut redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let mut take_away = async |ttl: Duration| {
        let mut command = redis::cmd("SET");
        command.arg(&name).arg(b"ffffffffffffffffffff").arg("PX").arg(ttl.as_millis() as u64);
        command.query_async::<()>(&mut redis).await
    };
    let manager = LockManager::new(vec![url.clone()]);
    let minute = Duration::from_secs(60);

    if scenario == "using" {
        // The library renews the lock half a second before it expires.
        let ttl = Duration::from_millis(2500);
        let work = async || {
            witness.held("held");
            take_away(minute).await.expect("Redis answers");
            witness.held("taken");
            tokio::time::sleep(minute).await;
        };
        let error = manager.using(name.as_bytes(), ttl, work).await.expect_err("another has it");
        return tell(&setup, "go on with the lock", error);
    }
    let lock = manager.lock(name.as_bytes(), minute).await?;
    witness.held("held");
    if scenario == "is_freed_gone" {
        redis::cmd("DEL").arg(&name).query_async::<()>(&mut redis).await?;
        witness.held("gone");
        let error = manager.is_freed(&lock).await.expect_err("nobody has it");
        return tell(&setup, "see whether it is free", error);
    }
    take_away(minute).await?;
    witness.held("taken");
    match scenario.as_str() {
        // Prints nothing, and does not touch the other owner's lock.
        "release" => {
            manager.unlock(&lock).await;
            Ok(())
        }
        "is_freed" => {
            let error = manager.is_freed(&lock).await.expect_err("another has it");
            witness.not_owned();
            tell(&setup, "see whether it is free", error)
        }
        // Many programs print `Resource is unavailable` for other reasons, so no rule matches.
        "extend" => {
            let error = manager.extend(&lock, minute).await.expect_err("another has it");
            tell(&setup, "extend the lock", error)
        }
        "wait" => {
            let error = manager.lock(name.as_bytes(), minute).await.expect_err("another has it");
            tell(&setup, "get the lock", error)
        }
        other => bail!("there is no scenario {other}"),
    }
}
