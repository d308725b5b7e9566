//! Runs only the fleet of the demo, for scripts that have their own Redis, exporters and
//! Prometheus. These scripts test dashboards and make screenshots.
//!
//!   cordum_fleet run --redis redis://127.0.0.1:6379/ --logs DIRECTORY --speed 30 --nodes 3
//!   cordum_fleet settings --speed 30          what exporters that watch it must have in their configuration
//!   cordum_fleet scale --speed 30 <RULES      rules, or queries, that are as much faster
//!
//! `run` reads one command per line from standard input: a fault to start (`pauses`,
//! `slow-network`, `outages`, `slow-admissions`, `late-renewals`, `leaderless`), `calm`, or
//! `failures`, which prints the failures of the services so far as one line of JSON. The program
//! ends when its input ends. Each service logs to `DIRECTORY/SERVICE-NODE.log`.

#![allow(clippy::print_stdout)] // For the scripts that run this.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use redis_lock_exporter::rehearsal::fleet::cordum::{Fault, Fleet, Load, TimeScale, exporter_settings};
use redis_lock_exporter::rehearsal::rule_scaling;
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| -> anyhow::Result<&str> {
        let at =
            arguments.iter().position(|argument| argument == name).with_context(|| format!("{name} is missing"))?;
        Ok(arguments.get(at + 1).with_context(|| format!("{name} needs a value"))?)
    };
    let pace = || TimeScale::new(flag("--speed")?.parse().context("--speed is no number")?);
    match arguments.first().map(String::as_str) {
        Some("run") => {
            let n_nodes = flag("--nodes")?.parse().context("--nodes is no number")?;
            let load = Load { n_nodes, ..Load::default() };
            run(Fleet::start(flag("--redis")?, Path::new(flag("--logs")?), pace()?, load, 7).await?).await
        }
        Some("settings") => {
            print!("{}", exporter_settings(&pace()?));
            Ok(())
        }
        Some("scale") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            print!("{}", rule_scaling::scale(&text, pace()?.speed()));
            Ok(())
        }
        _ => bail!("usage: cordum_fleet run|settings|scale ..."),
    }
}

async fn run(mut fleet: Fleet) -> anyhow::Result<()> {
    let (sender, mut commands) = mpsc::channel(1);
    // Reading blocks, and the program does not wait for this thread at its end.
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.blocking_send(line))
    });
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => obey(&mut fleet, command.trim())?,
                None => return fleet.stop().await,
            },
            failure = fleet.failed() => return Err(failure),
        }
    }
}

fn obey(fleet: &mut Fleet, command: &str) -> anyhow::Result<()> {
    fleet.begin(match command {
        "pauses" => Fault::Pauses,
        "slow-network" => Fault::SlowNetwork,
        "outages" => Fault::Outages,
        "slow-admissions" => Fault::SlowAdmissions,
        "late-renewals" => Fault::LateRenewals,
        "leaderless" => Fault::Leaderless,
        "calm" => {
            fleet.calm();
            return Ok(());
        }
        "failures" => {
            println!("{}", serde_json::to_string(&fleet.totals().failures)?);
            return Ok(());
        }
        _ => bail!("an unknown command: {command}"),
    });
    Ok(())
}
