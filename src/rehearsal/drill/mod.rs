//! `drill`: causes the failures that locks can have, with real workers on a real Redis, and checks
//! that the exporter reports them.
//!
//! `main` calls [`run`], and [`run_worker`] in the processes that a drill starts. In reading order:
//!
//! * `table`: the scenarios and what is expected of each, stated before anything runs; `scenarios`:
//!   what happens in each
//! * `scenario_run`: one running scenario; `worker`: a simulated worker in it, and its log;
//!   `worker_process`: a worker that is a separate process
//! * `setup`: starts a Redis and an exporter if none is given (the proxy that disturbs the network
//!   is in `fleet`)
//! * `settings`: all durations, and the exporter configuration that a drill needs
//! * `probe`, `verify`: read the exporter and compare it with what happened; `heartbeat`: detects
//!   stalls of the machine; `prometheus`: checks the alerts
//! * `progress`, `report`: output for people
//!
//! A drill writes only to keys under its own prefix. It deletes them at the end, also after an
//! error, a panic or a signal.

mod heartbeat;
mod probe;
mod progress;
mod prometheus;
mod report;
mod scenario_run;
mod scenarios;
mod settings;
mod setup;
mod table;
mod verify;
mod worker;
mod worker_process;

pub use table::NAMES;
pub use worker_process::run as run_worker;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::progress::{DrillProgress, Phase};
use self::prometheus::Watch;
use self::report::{DrillReport, ScenarioReport};
use self::scenario_run::{DrillContext, ScenarioRun};
use self::scenarios::Servers;
use self::settings::Timing;
use self::setup::{Base, DrillSetup, random_id};
use self::table::{SCENARIOS, Scenario};
use crate::cli::{DrillArgs, DrillOutput, DrillScenario, EXIT_FAILED, EXIT_FINDINGS, EXIT_OK};
use crate::client::http;
use crate::rehearsal::stop_signals::StopSignals;
use crate::util::clock;

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
    let result = open_reports(&args.report).and_then(|files| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let report = runtime.context("cannot start the runtime")?.block_on(drill(args))?;
        write(&report, args.output, files)?;
        Ok(exit_code(&report))
    });
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

/// Returns the chosen scenarios in the order of the table, each once, or all scenarios if none is
/// chosen.
fn choose(chosen: &[DrillScenario]) -> Vec<&'static Scenario> {
    let is_chosen = |scenario: &&Scenario| chosen.is_empty() || chosen.contains(&scenario.kind);
    SCENARIOS.iter().filter(is_chosen).collect()
}

async fn drill(args: &DrillArgs) -> anyhow::Result<DrillReport> {
    let scenarios = choose(&args.scenarios);
    let timing = Timing::new(args.speed, args.duration);
    let started = (Instant::now(), clock::format(clock::now()).unwrap_or_default());
    // Install the signal handlers first: from here on a signal must lead to a cleanup.
    let mut stop = StopSignals::listen()?;
    state_expectations(&scenarios, &timing);
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    let progress = Arc::new(DrillProgress::new(&names));
    let run_id = args.run_id.clone().unwrap_or_else(random_id);
    let base = Base::open(args, &run_id, &progress).await?;
    let done = rehearse(&base, args, &run_id, scenarios, &progress, &mut stop).await;
    progress.end();
    // Clean up also if the rehearsal failed.
    let cleanup = base.clean_up().await;
    let Done { setup, interrupted, reports: scenarios } = done?;

    let is_clean = cleanup.keys_left.is_empty() && cleanup.error.is_none();
    let exporter_problem = setup.context().blind.clone();
    let report = DrillReport {
        held: !interrupted && is_clean && exporter_problem.is_none() && scenarios.iter().all(|report| report.held),
        interrupted,
        run_id,
        started: started.1,
        took_seconds: started.0.elapsed().as_secs_f64(),
        redis: base.redis()?,
        exporter: setup.exporter(),
        exporter_problem,
        prometheus: args.prometheus.as_deref().map(http::shown),
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

/// The result of [`rehearse`].
struct Done {
    setup: DrillSetup,
    interrupted: bool,
    reports: Vec<ScenarioReport>,
}

/// The state of all scenarios. The task that runs them updates it. After an interruption, the
/// command reads from it what was recorded until then.
struct ScenarioResults(Mutex<ScenarioStates>);

struct ScenarioStates {
    /// One report per scenario, in order. The report of a scenario that has not begun contains only
    /// its expectations.
    reports: Vec<ScenarioReport>,
    /// The scenarios that run now, by index.
    running: BTreeMap<usize, Arc<ScenarioRun>>,
}

impl ScenarioResults {
    fn new(scenarios: &[&'static Scenario]) -> Self {
        let reports = scenarios.iter().map(|scenario| ScenarioReport::new(scenario)).collect();
        Self(Mutex::new(ScenarioStates { reports, running: BTreeMap::new() }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ScenarioStates> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn start(&self, index: usize, scenario_run: &Arc<ScenarioRun>) {
        self.lock().running.insert(index, Arc::clone(scenario_run));
    }

    /// Stores the report of a scenario in which nothing happens any more. The exporter may not have
    /// been checked yet.
    fn store(&self, index: usize, report: &ScenarioReport) {
        let mut states = self.lock();
        states.running.remove(&index);
        states.reports[index] = report.clone();
    }

    /// Returns all reports. Scenarios that were interrupted report what was noted until then.
    fn reports(&self) -> Vec<ScenarioReport> {
        let mut states = self.lock();
        for (index, scenario_run) in std::mem::take(&mut states.running) {
            scenario_run.finish(&mut states.reports[index]);
        }
        states.reports.clone()
    }
}

async fn rehearse(
    base: &Base,
    args: &DrillArgs,
    run_id: &str,
    scenarios: Vec<&'static Scenario>,
    progress: &Arc<DrillProgress>,
    stop: &mut StopSignals,
) -> anyhow::Result<Done> {
    let timing = Timing::new(args.speed, args.duration);
    let setup = tokio::select! {
        setup = DrillSetup::start(base, args, run_id, timing, progress) => setup?,
        () = stop.received() => anyhow::bail!("interrupted before anything happened"),
    };
    // The scenarios run in a separate task, so that a panic in it does not prevent the cleanup.
    let prometheus = args.prometheus.clone().map(|url| (url, args.prometheus_settle));
    let results = Arc::new(ScenarioResults::new(&scenarios));
    let context = Arc::clone(setup.context());
    let mut running = tokio::spawn(run_all(context, scenarios, prometheus, Arc::clone(&results)));
    let outcome = tokio::select! {
        outcome = &mut running => outcome,
        () = progress.draw() => unreachable!("it is drawn until the end"),
        () = stop.received() => {
            running.abort();
            // Wait until all workers of the task have ended.
            let _ = running.await;
            return Ok(Done { setup, interrupted: true, reports: results.reports() });
        }
    };
    let outcome = outcome.map_err(|panic| anyhow::Error::new(panic).context("the drill ended unexpectedly"));
    match outcome.and_then(|done| done) {
        Ok(()) => Ok(Done { setup, interrupted: false, reports: results.reports() }),
        Err(failure) => {
            setup.stop().await;
            Err(failure)
        }
    }
}

fn state_expectations(scenarios: &[&'static Scenario], timing: &Timing) {
    eprintln!("{}.", timing.describe());
    if timing.duration.is_some() {
        let late = heartbeat::LATE.as_millis();
        eprintln!(
            "In rounds in which the drill itself stands still for more than {late} ms, changes may be missing and causes \
             unknown; everything else is exact."
        );
    }
    for scenario in scenarios {
        eprintln!("{}: {}. Expected:", scenario.name, scenario.rehearses);
        for expectation in scenario.expectations {
            eprintln!("  {}: {}", expectation.side.as_str(), expectation.statement);
        }
    }
}

/// Runs the scenarios one after the other. While one runs, the exporter's numbers about the
/// previous one are checked: scenarios have different lock namespaces. The failover scenario has
/// its own servers and runs beside the others.
async fn run_all(
    context: Arc<DrillContext>,
    scenarios: Vec<&'static Scenario>,
    prometheus: Option<(String, Duration)>,
    results: Arc<ScenarioResults>,
) -> anyhow::Result<()> {
    let watch = match &prometheus {
        Some((url, wait_for_late_alerts)) => {
            context.progress.print("waiting for Prometheus to scrape the exporter");
            Some((Watch::start(url).await?, *wait_for_late_alerts))
        }
        None => None,
    };
    let mut checks = JoinSet::new();
    for (index, scenario) in scenarios.iter().copied().enumerate() {
        context.progress.phase(scenario.name, Phase::Running);
        let (context, results) = (Arc::clone(&context), Arc::clone(&results));
        if scenario.kind == DrillScenario::RedisFailover {
            checks.spawn(async move { fail_over(context, scenario, &results, index).await });
            continue;
        }
        let mut report = ScenarioReport::new(scenario);
        let scenario_run = match ScenarioRun::new(&context, scenario).await {
            Ok(scenario_run) => Arc::new(scenario_run),
            // The other scenarios can still run.
            Err(failure) => {
                could_not_begin(&context, &mut report, &failure);
                results.store(index, &report);
                continue;
            }
        };
        results.start(index, &scenario_run);
        if let Err(failure) = act(&scenario_run, None).await {
            report.stop(&failure);
        }
        checks.spawn(async move { check(&scenario_run, &mut report, &results, index).await });
    }
    while let Some(checked) = checks.join_next().await {
        checked.context("a check ended unexpectedly")?;
    }
    if let Some((watch, wait_for_late_alerts)) = watch {
        context.progress.print("waiting for alerts that may come late");
        watch.wait_for_late_alerts(wait_for_late_alerts).await;
        for (scenario, report) in scenarios.iter().zip(&mut results.lock().reports) {
            watch.check_alerts(scenario, &context.timing, report);
            report.conclude();
        }
    }
    Ok(())
}

/// Runs the rounds of a scenario: one, or as many as fit in the configured duration.
async fn act(scenario_run: &ScenarioRun, mut servers: Option<&mut Servers>) -> anyhow::Result<()> {
    loop {
        let round = scenario_run.round_begins();
        scenarios::round(scenario_run, round, servers.as_deref_mut()).await?;
        scenario_run.round_ends();
        if scenario_run.elapsed() >= scenario_run.timing().duration.unwrap_or_default() {
            return Ok(());
        }
    }
}

async fn check(scenario_run: &ScenarioRun, report: &mut ScenarioReport, results: &ScenarioResults, index: usize) {
    let progress = &scenario_run.context.progress;
    if scenario_run.scenario.expectations.iter().any(|expectation| expectation.id == "keyspace") {
        scenario_run.claim_truth();
    }
    let stalled = scenario_run.excuse_stalls();
    let notes = scenario_run.finish(report);
    results.store(index, report);
    // If the scenario did not finish, it is unknown what the exporter should show.
    if report.error.is_none() {
        progress.phase(report.name, Phase::Checking);
        verify::verify(scenario_run, notes, stalled, report).await;
    }
    report.conclude();
    results.store(index, report);
    progress.phase(report.name, if report.held { Phase::Held } else { Phase::Failed });
}

fn could_not_begin(context: &DrillContext, report: &mut ScenarioReport, failure: &anyhow::Error) {
    report.stop(failure);
    report.conclude();
    context.progress.phase(report.name, Phase::Failed);
}

/// Runs the failover scenario on its own Redis servers, with its own exporter.
async fn fail_over(context: Arc<DrillContext>, scenario: &'static Scenario, results: &ScenarioResults, index: usize) {
    let mut report = ScenarioReport::new(scenario);
    let result = async {
        let mut servers = Servers::start().await?;
        let directory = tempfile::tempdir().context("cannot make a directory for the drill")?;
        let own = DrillSetup::for_failover(&context, &servers, &directory).await?;
        let scenario_run = Arc::new(ScenarioRun::new(own.context(), scenario).await?);
        results.start(index, &scenario_run);
        if let Err(failure) = act(&scenario_run, Some(&mut servers)).await {
            report.stop(&failure);
        }
        check(&scenario_run, &mut report, results, index).await;
        drop(scenario_run);
        own.stop().await;
        anyhow::Ok(())
    };
    if let Err(failure) = result.await {
        could_not_begin(&context, &mut report, &failure);
        results.store(index, &report);
    }
}

/// Opens the report files before the drill, so that an unwritable file is an error at the start and
/// not at the end. Existing content stays until the report is written.
fn open_reports(paths: &[PathBuf]) -> anyhow::Result<Vec<(&Path, File)>> {
    let mut files = Vec::new();
    for path in paths {
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(path);
        files.push((path.as_path(), file.with_context(|| format!("cannot write the report {}", path.display()))?));
    }
    Ok(files)
}

/// Writes the report to standard output and then to the requested files.
fn write(report: &DrillReport, output: DrillOutput, files: Vec<(&Path, File)>) -> anyhow::Result<()> {
    match output {
        DrillOutput::Text => print!("{}", report.text()),
        DrillOutput::Json => print!("{}", report.json()),
        DrillOutput::Markdown => print!("{}", report.markdown()),
    }
    for (path, mut file) in files {
        let text = if is_json(path) { report.json() } else { report.markdown() };
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write the report {}", path.display()))?;
    }
    Ok(())
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn exit_code(report: &DrillReport) -> u8 {
    let could_not_run = report.interrupted || report.scenarios.iter().any(|scenario| scenario.is_broken);
    match (could_not_run, report.held) {
        (true, _) => EXIT_FAILED,
        (false, true) => EXIT_OK,
        (false, false) => EXIT_FINDINGS,
    }
}
