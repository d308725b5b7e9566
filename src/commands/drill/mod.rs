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
mod proxy;
mod report;
mod samples;
mod scenarios;
mod server;
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
use std::sync::Arc;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::progress::{Phase, Progress};
use self::prometheus::Watch;
use self::report::{Cleanup, Report, ScenarioReport};
use self::scenarios::Servers;
use self::setup::{Setup, random_id};
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
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    state_expectations(&scenarios, &timing);

    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    let progress = Arc::new(Progress::new(&names));
    let run_id = args.run_id.clone().unwrap_or_else(random_id);
    let mut setup = tokio::select! {
        setup = Setup::start(args, &run_id, timing, &progress) => setup?,
        _ = interrupt.recv() => anyhow::bail!("interrupted before anything was done"),
        _ = terminate.recv() => anyhow::bail!("interrupted before anything was done"),
    };
    let mut reports: Vec<ScenarioReport> = scenarios.iter().map(|scenario| ScenarioReport::new(scenario)).collect();
    // A task of its own: a panic in it must not keep us from cleaning up.
    let ground = setup.ground();
    let prometheus = args.prometheus.clone();
    let mut running = tokio::spawn(run_all(ground, scenarios, prometheus));
    let mut interrupted = false;
    let outcome = tokio::select! {
        outcome = &mut running => outcome,
        () = progress.draw() => unreachable!("it is drawn until the end"),
        _ = interrupt.recv() => { interrupted = true; running.abort(); running.await }
        _ = terminate.recv() => { interrupted = true; running.abort(); running.await }
    };
    progress.end();
    let failure = match outcome {
        Ok(Ok(done)) => {
            reports = done;
            None
        }
        Ok(Err(failure)) => Some(failure),
        Err(_) if interrupted => None,
        Err(panic) => Some(anyhow::Error::new(panic).context("the drill ended unexpectedly")),
    };
    let cleanup = setup.clean_up().await;
    if let Some(failure) = failure {
        setup.stop().await;
        return Err(failure);
    }
    let held = !interrupted && reports.iter().all(|report| report.held) && setup.ground().blind.is_none();
    let report = Report {
        held: held && cleanup.keys_left.is_empty() && cleanup.error.is_none(),
        interrupted,
        run_id,
        started: started.1,
        took_seconds: started.0.elapsed().as_secs_f64(),
        redis: setup.redis(),
        exporter: setup.exporter(),
        exporter_problem: setup.ground().blind.clone(),
        prometheus: args.prometheus.as_deref().map(http_client::shown),
        speed: timing.speed,
        ttl_seconds: timing.ttl.as_secs_f64(),
        duration_seconds: timing.duration.map(|duration| duration.as_secs_f64()),
        timing: timing.describe(),
        scenarios: reports,
        cleanup,
    };
    setup.stop().await;
    Ok(report)
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
    prometheus: Option<String>,
) -> anyhow::Result<Vec<ScenarioReport>> {
    let watch = match &prometheus {
        Some(url) => {
            ground.progress.say("waiting for Prometheus to scrape the exporter");
            Some(Watch::start(url).await?)
        }
        None => None,
    };
    let mut checks = JoinSet::new();
    for scenario in &scenarios {
        ground.progress.phase(scenario.name, Phase::Running);
        if scenario.kind == Kind::RedisFailover {
            checks.spawn(fail_over(Arc::clone(&ground), scenario));
            continue;
        }
        let mut report = ScenarioReport::new(scenario);
        let stage = Stage::new(&ground, scenario).await?;
        if let Err(failure) = act(&stage, &mut report, None).await {
            report.error = Some(format!("{failure:#}"));
        }
        checks.spawn(async move {
            check(&stage, &mut report).await;
            report
        });
    }
    let mut reports = Vec::new();
    while let Some(report) = checks.join_next().await {
        reports.push(report.context("a check ended unexpectedly")?);
    }
    reports.sort_by_key(|report| NAMES.iter().position(|name| *name == report.name));
    if let Some(watch) = watch {
        ground.progress.say("waiting for alerts that may come late");
        watch.settle().await;
        for (scenario, report) in scenarios.iter().zip(&mut reports) {
            watch.judge(scenario, &ground.timing, report);
            report.conclude();
        }
    }
    Ok(reports)
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
        stage.claim_truth();
    }
    let notes = stage.finish(report);
    progress.phase(report.name, Phase::Checking);
    verify::verify(stage, notes, report).await;
    report.conclude();
    progress.phase(report.name, if report.held { Phase::Held } else { Phase::Failed });
}

/// With servers and an exporter of its own.
async fn fail_over(ground: Arc<Ground>, scenario: &'static Scenario) -> ScenarioReport {
    let mut report = ScenarioReport::new(scenario);
    let result = async {
        let mut servers = Servers::start().await?;
        let own = Setup::for_failover(&ground, &servers).await?;
        let stage = Stage::new(&own.ground(), scenario).await?;
        if let Err(failure) = act(&stage, &mut report, Some(&mut servers)).await {
            report.error = Some(format!("{failure:#}"));
        }
        check(&stage, &mut report).await;
        drop(stage);
        own.stop().await;
        anyhow::Ok(())
    };
    if let Err(failure) = result.await {
        report.error = Some(format!("{failure:#}"));
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
    let could_not_run = report.interrupted || report.scenarios.iter().any(|scenario| scenario.error.is_some());
    match (could_not_run, report.held) {
        (true, _) => EXIT_FAILED,
        (false, true) => EXIT_OK,
        (false, false) => EXIT_FINDINGS,
    }
}

impl Cleanup {
    fn failed(error: &anyhow::Error) -> Self {
        Self { error: Some(format!("{error:#}")), ..Self::default() }
    }
}
