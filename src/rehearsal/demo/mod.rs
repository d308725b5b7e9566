//! `demo`: runs everything on one machine for a user to watch: a Redis, a small Cordum whose
//! services lock and log, the exporter, and, if they are installed, Prometheus with the bundled
//! rules and Alertmanager. Then it causes an incident.
//!
//! Minutes are too long for a demo, so TTLs, rules and waiting times are divided by one number, the
//! speed. Everything else is real: locks are lost because they expire, services log because Redis
//! refuses a release, alerts fire because of the rules. At the end, the summary compares what the
//! fleet did with what each of the other programs reported.
//!
//! ```text
//!  fleet::cordum --> Proxy --> Server <-- Proxy <-- exporter <-- Prometheus --> Alertmanager
//!        '--> logs ------------------------------------^                             |
//!        '--> Totals --> DemoSummary <-- Observer (queries all)         Receiver <---'
//! ```
//!
//! Everything listens on the loopback interface on free ports and keeps its files in one temporary
//! directory. All processes end with this command, also after an error or a signal. Only `kill -9`
//! leaves processes behind.
//!
//! `main` calls [`run`]. In reading order:
//!
//! * `demo_run`: everything that runs, and the events so far
//! * `programs`: the programs that the demo starts, and their files
//! * `observer`: what the exporter and Prometheus report
//! * `alerts`, `receiver`: the life cycle of each alert, and what Alertmanager sends
//! * `terminal`: what the demo shows, and the keys that the user presses
//! * `summary`: compares what the fleet did with what the others reported

mod alerts;
mod demo_run;
mod observer;
mod programs;
mod receiver;
mod summary;
mod terminal;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::cli::{DemoArgs, DemoIncident, DemoOutput, EXIT_FAILED, EXIT_FINDINGS, EXIT_OK};
use crate::rehearsal::stop_signals::StopSignals;
use demo_run::DemoRun;
use summary::DemoSummary;
use terminal::{DemoView, Keyboard};

/// How often the demo queries all programs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the last counts may take to appear in the exporter's metrics after the fleet has
/// stopped.
const SETTLE: Duration = Duration::from_secs(20);

pub fn run(args: &DemoArgs) -> ExitCode {
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .and_then(|runtime| {
            let result = runtime.block_on(perform(args));
            // Return without waiting for threads that are still blocked.
            runtime.shutdown_background();
            result
        });
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            eprintln!("error: {failure:#}");
            EXIT_FAILED.into()
        }
    }
}

async fn perform(args: &DemoArgs) -> anyhow::Result<u8> {
    // Install the signal handlers first: from here on a signal must end everything that was
    // started.
    let stop = StopSignals::listen()?;
    let mut directory = tempfile::Builder::new()
        .prefix("redis_lock_exporter-demo-")
        .tempdir()
        .context("cannot make a directory for the demo")?;
    directory.disable_cleanup(args.keep);
    let result = show(args, directory.path(), stop).await;
    if args.keep {
        eprintln!("kept {}", directory.path().display());
        return result;
    }
    let path = directory.path().to_owned();
    let removed = directory.close().with_context(|| format!("cannot remove {}", path.display()));
    result.and_then(|code| removed.map(|()| code))
}

async fn show(args: &DemoArgs, directory: &Path, mut stop: StopSignals) -> anyhow::Result<u8> {
    let mut demo = tokio::select! {
        demo = DemoRun::set(args, directory) => demo?,
        // Dropping the future ends everything that it has started.
        () = stop.received() => return Ok(EXIT_OK),
    };
    let mut view = DemoView::new(args, &demo);
    let played = tokio::select! {
        played = play(args, &mut demo, &mut view) => played,
        () = stop.received() => Ok(()),
    };
    let code = played.and_then(|()| conclude(args, &demo, &view));
    let struck = demo.strike().await;
    code.and_then(|code| struck.map(|()| code))
}

/// Runs until the duration is over or the user quits.
async fn play(args: &DemoArgs, demo: &mut DemoRun, view: &mut DemoView) -> anyhow::Result<()> {
    let mut keyboard = Keyboard::listen();
    let start = Instant::now();
    let end = args.duration.map(|duration| start + duration);
    let mut incident = Some(start + args.incident_after);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {
                demo.observe().await?;
                view.show(demo);
            }
            () = at(incident) => {
                incident = None;
                demo.begin(args.incident).await?;
            }
            () = at(end) => break,
            key = keyboard.key() => match key {
                'p' => demo.begin(DemoIncident::Pauses).await?,
                's' => demo.begin(DemoIncident::SlowNetwork).await?,
                'f' => demo.begin(DemoIncident::Failover).await?,
                'c' => demo.calm(),
                'q' => return Ok(()),
                _ => {}
            },
            failure = demo.fleet.failed() => return Err(failure),
        }
    }
    demo.end().await?;
    let deadline = Instant::now() + SETTLE;
    // The exporter may not yet have counted what the fleet did last.
    loop {
        demo.observe().await?;
        view.show(demo);
        if Instant::now() > deadline || DemoSummary::of(demo).is_settled() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Prints the summary. With a duration, the exit code shows whether every program reported the
/// incident.
fn conclude(args: &DemoArgs, demo: &DemoRun, view: &DemoView) -> anyhow::Result<u8> {
    let summary = DemoSummary::of(demo);
    match args.output {
        DemoOutput::Json => println!("{}", serde_json::to_string_pretty(&summary)?),
        DemoOutput::Text => {
            view.finish();
            print!("{}", summary.to_text());
        }
    }
    Ok(if args.duration.is_none() || summary.is_complete() { EXIT_OK } else { EXIT_FINDINGS })
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
