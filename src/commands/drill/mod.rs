//! `drill`: rehearses the failures that locks have, with real workers on a real Redis, and checks that they are seen.
//!
//! * `table`: the scenarios and what is expected of each, stated before anything runs; `scenarios`: what happens in them
//! * `stage`, `worker`: one scenario while it runs, and who acts in it; `process`, `worker_process`: workers that are processes
//! * `server`, `proxy`: a Redis of its own, and a network that can be made worse
//! * `configuration`, `journal`: what an exporter needs to see it, and the workers' log
//! * `probe`, `samples`, `verify`: what the exporter says, compared with what happened; `prometheus`: and its alerts
//! * `progress`, `report`: what people see
//!
//! It writes in keys under its own prefix only, and takes them away again, whatever ends it.

mod configuration;
mod journal;
mod probe;
mod process;
mod progress;
mod prometheus;
mod report;
mod scenarios;
mod setup;
mod stage;
mod table;
mod timing;
mod verify;
mod worker;
mod worker_process;

pub use table::NAMES;
pub use worker_process::run as run_worker;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::progress::{Phase, Progress};
use self::prometheus::Watch;
use self::report::{Report, ScenarioReport};
use self::scenarios::Servers;
use self::setup::{Base, Setup, random_id};
use self::stage::{Ground, Stage};
use self::table::{Kind, SCENARIOS, Scenario};
use self::timing::Timing;
use crate::cli::{DrillArgs, DrillOutput, EXIT_FAILED, EXIT_FINDINGS, EXIT_OK};
use crate::clock;
use crate::http_client;

/// Runs the command and returns the exit code.
pub fn run(args: &DrillArgs) -> u8 {
    if args.list {
        list();
        return EXIT_OK;
    }
    if args.print_config {
        print!("{}", setup::snippet(args));
        return EXIT_OK;
    }
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(drill(args)))
        .and_then(|report| write(&report, args).map(|()| exit_code(&report)));
    match result {
        Ok(exit_code) => exit_code,
        Err(failure) => {
            eprintln!("{failure:#}");
            EXIT_FAILED
        }
    }
}

fn list() {
    for scenario in &SCENARIOS {
        println!("{}\n  {}", scenario.name, scenario.rehearses);
        for expectation in scenario.expectations {
            println!("    {}: {}", expectation.side.as_str(), expectation.statement);
        }
    }
}

/// The chosen ones in their usual order, each once; all if none was chosen.
fn choose(names: &[String]) -> Vec<&'static Scenario> {
    let is_chosen = |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    SCENARIOS.iter().filter(is_chosen).collect()
}

async fn drill(args: &DrillArgs) -> anyhow::Result<Report> {
    let scenarios = choose(&args.scenarios);
    let timing = Timing::new(args.speed, args.duration);
    let started = (Instant::now(), clock::format(clock::now()).unwrap_or_default());
    // Signals first: from here on, being told to stop means cleaning up.
    let mut stop = StopSignals::new()?;
    state_expectations(&scenarios, &timing);
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    let progress = Arc::new(Progress::new(&names));
    let run_id = args.run_id.clone().unwrap_or_else(random_id);
    let base = Base::open(args, &run_id, &progress).await?;
    let done = rehearse(&base, args, &run_id, scenarios, &progress, &mut stop).await;
    progress.end();
    // Whatever happened.
    let cleanup = base.clean_up().await;
    let Done { setup, interrupted, reports: scenarios } = done?;

    let is_clean = cleanup.keys_left.is_empty() && cleanup.error.is_none();
    let exporter_problem = setup.ground().blind.clone();
    let report = Report {
        held: !interrupted && is_clean && exporter_problem.is_none() && scenarios.iter().all(|report| report.held),
        interrupted,
        run_id,
        started: started.1,
        took_seconds: started.0.elapsed().as_secs_f64(),
        redis: base.redis()?,
        exporter: setup.exporter(),
        exporter_problem,
        prometheus: args.prometheus.as_deref().map(http_client::shown),
        speed: timing.speed,
        ttl_seconds: timing.ttl.as_secs_f64(),
        duration_seconds: timing.duration.map(|duration| duration.as_secs_f64()),
        timing: timing.describe(),
        scenarios,
        cleanup,
    };
    setup.stop().await;
    Ok(report)
}

/// What is left when all has happened.
struct Done {
    setup: Setup,
    interrupted: bool,
    reports: Vec<ScenarioReport>,
}

/// The reports of all scenarios in their order; of those that have not ended, what was expected.
type Finished = Mutex<Vec<ScenarioReport>>;

fn lock(finished: &Finished) -> std::sync::MutexGuard<'_, Vec<ScenarioReport>> {
    finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

async fn rehearse(
    base: &Base,
    args: &DrillArgs,
    run_id: &str,
    scenarios: Vec<&'static Scenario>,
    progress: &Arc<Progress>,
    stop: &mut StopSignals,
) -> anyhow::Result<Done> {
    let timing = Timing::new(args.speed, args.duration);
    let setup = tokio::select! {
        setup = Setup::start(base, args, run_id, timing, progress) => setup?,
        () = stop.received() => anyhow::bail!("interrupted before anything happened"),
    };
    // A task of its own: a panic in it must not keep us from cleaning up.
    let prometheus = args.prometheus.clone().map(|url| (url, args.prometheus_settle));
    let finished: Arc<Finished> =
        Arc::new(Mutex::new(scenarios.iter().map(|scenario| ScenarioReport::new(scenario)).collect()));
    let ground = Arc::clone(setup.ground());
    let mut running = tokio::spawn(run_all(ground, scenarios, prometheus, Arc::clone(&finished)));
    let outcome = tokio::select! {
        outcome = &mut running => outcome,
        () = progress.draw() => unreachable!("it is drawn until the end"),
        () = stop.received() => {
            running.abort();
            // Until all of its workers are gone.
            let _ = running.await;
            return Ok(Done { setup, interrupted: true, reports: lock(&finished).clone() });
        }
    };
    let outcome = outcome.map_err(|panic| anyhow::Error::new(panic).context("the drill ended unexpectedly"));
    match outcome.and_then(|done| done) {
        Ok(()) => Ok(Done { setup, interrupted: false, reports: lock(&finished).clone() }),
        Err(failure) => {
            setup.stop().await;
            Err(failure)
        }
    }
}

/// SIGINT and SIGTERM.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn state_expectations(scenarios: &[&'static Scenario], timing: &Timing) {
    eprintln!("{}.", timing.describe());
    for scenario in scenarios {
        eprintln!("{}: {}. Expected:", scenario.name, scenario.rehearses);
        for expectation in scenario.expectations {
            eprintln!("  {}: {}", expectation.side.as_str(), expectation.statement);
        }
    }
}

/// One after the other. What the exporter says about one is checked while the next one runs: they have different namespaces.
async fn run_all(
    ground: Arc<Ground>,
    scenarios: Vec<&'static Scenario>,
    prometheus: Option<(String, Duration)>,
    finished: Arc<Finished>,
) -> anyhow::Result<()> {
    let watch = match &prometheus {
        Some((url, settle)) => {
            ground.progress.say("waiting for Prometheus to scrape the exporter");
            Some((Watch::start(url).await?, *settle))
        }
        None => None,
    };
    let mut checks = JoinSet::new();
    for (index, scenario) in scenarios.iter().copied().enumerate() {
        ground.progress.phase(scenario.name, Phase::Running);
        let finished = Arc::clone(&finished);
        if scenario.kind == Kind::RedisFailover {
            let ground = Arc::clone(&ground);
            checks.spawn(async move {
                let report = fail_over(ground, scenario).await;
                lock(&finished)[index] = report;
            });
            continue;
        }
        let mut report = ScenarioReport::new(scenario);
        let stage = Stage::new(&ground, scenario).await?;
        if let Err(failure) = act(&stage, &mut report, None).await {
            report.stop(&failure);
        }
        checks.spawn(async move {
            check(&stage, &mut report).await;
            lock(&finished)[index] = report;
        });
    }
    while let Some(checked) = checks.join_next().await {
        checked.context("a check ended unexpectedly")?;
    }
    if let Some((watch, settle)) = watch {
        ground.progress.say("waiting for alerts that may come late");
        watch.settle(settle).await;
        for (scenario, report) in scenarios.iter().zip(lock(&finished).iter_mut()) {
            watch.judge(scenario, &ground.timing, report);
            report.conclude();
        }
    }
    Ok(())
}

/// All rounds of a scenario.
async fn act(stage: &Stage, report: &mut ScenarioReport, mut servers: Option<&mut Servers>) -> anyhow::Result<()> {
    loop {
        report.rounds += 1;
        scenarios::round(stage, report.rounds, servers.as_deref_mut()).await?;
        if stage.elapsed() >= stage.timing().duration.unwrap_or_default() {
            return Ok(());
        }
    }
}

async fn check(stage: &Stage, report: &mut ScenarioReport) {
    let progress = &stage.ground.progress;
    if stage.scenario.expectations.iter().any(|expectation| expectation.id == "keyspace") {
        stage.claim_truth(report.rounds);
    }
    let notes = stage.finish(report);
    // Of what was not finished it is not known what had to be seen.
    if report.error.is_none() {
        progress.phase(report.name, Phase::Checking);
        verify::verify(stage, notes, report).await;
    }
    report.conclude();
    progress.phase(report.name, if report.held { Phase::Held } else { Phase::Failed });
}

/// With servers and an exporter of its own.
async fn fail_over(ground: Arc<Ground>, scenario: &'static Scenario) -> ScenarioReport {
    let mut report = ScenarioReport::new(scenario);
    let result = async {
        let mut servers = Servers::start().await?;
        let directory = tempfile::tempdir().context("cannot make a directory for the drill")?;
        let own = Setup::for_failover(&ground, &servers, &directory).await?;
        let stage = Stage::new(own.ground(), scenario).await?;
        if let Err(failure) = act(&stage, &mut report, Some(&mut servers)).await {
            report.stop(&failure);
        }
        check(&stage, &mut report).await;
        drop(stage);
        own.stop().await;
        anyhow::Ok(())
    };
    if let Err(failure) = result.await {
        report.stop(&failure);
        report.conclude();
        ground.progress.phase(scenario.name, Phase::Failed);
    }
    report
}

/// To standard output, and to the files that were asked for.
fn write(report: &Report, args: &DrillArgs) -> anyhow::Result<()> {
    for path in &args.report {
        let text = if is_json(path) { report.json() } else { report.markdown() };
        fs::write(path, text).with_context(|| format!("cannot write the report {}", path.display()))?;
    }
    match args.output {
        DrillOutput::Text => print!("{}", report.text()),
        DrillOutput::Json => print!("{}", report.json()),
        DrillOutput::Markdown => print!("{}", report.markdown()),
    }
    Ok(())
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn exit_code(report: &Report) -> u8 {
    let could_not_run = report.interrupted || report.scenarios.iter().any(|scenario| scenario.is_broken);
    match (could_not_run, report.held) {
        (true, _) => EXIT_FAILED,
        (false, true) => EXIT_OK,
        (false, false) => EXIT_FINDINGS,
    }
}
