//! Tests counting against a model while faults happen: workers on a real Redis record the truth
//! from the replies, and random faults hit Redis, the network and the exporter. `judge` lists what
//! must hold.
//!
//! `FAULT_SEED=n cargo test --test integration fault_model::` repeats a run, `FAULT_STEPS=n` makes
//! it longer, `FAULT_SECONDS=n` lets it run for that time, and `FAULT_PLAN='single: flush@0'` runs a
//! plan (see `plan`). A failure is shrunk to a short plan. `make soak HOURS=2` runs it for hours.

mod claims;
mod installation;
mod judge;
mod plan;
mod report;
mod requests;
mod starvation;
mod truth;
mod worker;
mod world;

use std::time::{Duration, Instant};

use judge::{Judge, describe};
use plan::{Action, Installation, Plan};
use report::Report;
use world::{World, faketime};

use crate::skipped::skip;

/// Enough for days.
const MOST_STEPS: usize = 100_000;
/// How much of the exporter's log a failure shows.
const N_LINES: usize = 40;
/// For how long a failure is shrunk.
const SHRINKING: Duration = Duration::from_secs(600);

#[test]
fn counts_stay_correct_through_random_faults_of_one_server_1() {
    run(Installation::Single, 1);
}

#[test]
fn counts_stay_correct_through_random_faults_of_one_server_2() {
    run(Installation::Single, 2);
}

#[test]
fn counts_stay_correct_through_random_faults_of_a_large_keyspace() {
    run(Installation::Large, 3);
}

#[test]
fn counts_stay_correct_through_random_faults_with_sentinels() {
    run(Installation::Sentinel, 4);
}

#[test]
fn counts_stay_correct_through_random_faults_of_a_cluster() {
    run(Installation::Cluster, 5);
}

/// Runs the plan of `FAULT_PLAN`.
#[test]
#[ignore = "needs FAULT_PLAN"]
fn a_given_plan() {
    let text = std::env::var("FAULT_PLAN").expect("FAULT_PLAN is not set");
    let plan: Plan = text.parse().unwrap();
    match try_plan(&plan, 1, None) {
        Ok(report) => eprintln!("{report}"),
        Err((plan, failure)) => panic!("{plan}\n{failure}"),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// All actions that this machine can perform.
fn actions() -> Vec<Action> {
    if faketime().is_some() {
        return Action::ALL.to_vec();
    }
    skip("libfaketime is not installed, so no clock steps");
    Action::ALL.into_iter().filter(|action| !is_clock(*action)).collect()
}

fn is_clock(action: Action) -> bool {
    matches!(action, Action::ClockForward | Action::ClockBackward)
}

fn run(installation: Installation, seed: u64) {
    let seed = number("FAULT_SEED").unwrap_or(seed);
    let seconds = number("FAULT_SECONDS").map(Duration::from_secs);
    let n_steps = match seconds {
        Some(_) => usize::MAX,
        None => number("FAULT_STEPS").map_or(n_steps(installation), |steps| steps as usize),
    };
    let drawn = Plan::random(installation, seed, n_steps.min(MOST_STEPS), &actions());
    let until = seconds.map(|seconds| Instant::now() + seconds);
    let Err((plan, failure)) = try_plan(&drawn, seed, until).map(|report| eprintln!("seed {seed}: {report}")) else {
        return;
    };
    eprintln!("seed {seed} failed, shrinking\n{plan}\n{failure}");
    let (plan, failure) = shrink(plan, failure, seed);
    panic!("seed {seed}; repeat it with FAULT_PLAN='{plan}' and `a_given_plan`\n{failure}");
}

/// How many steps every test run includes: about 80 seconds.
fn n_steps(installation: Installation) -> usize {
    match installation {
        Installation::Single => 7,
        Installation::Large => 6,
        Installation::Sentinel => 4,
        Installation::Cluster => 6,
    }
}

/// Returns the steps that happened and what went wrong.
fn try_plan(plan: &Plan, seed: u64, until: Option<Instant>) -> Result<Report, (Plan, String)> {
    let failed = |n_steps: usize, failure: String| (plan.first_steps(n_steps), failure);
    let has_clock = plan.steps.iter().flatten().any(|fault| is_clock(fault.action));
    let world = World::start(plan.installation, seed, has_clock);
    let mut judge = Judge::start(world).map_err(|failure| failed(0, format!("before any fault: {failure}")))?;
    for (number, step) in plan.steps.iter().enumerate() {
        if until.is_some_and(|until| Instant::now() > until) {
            break;
        }
        let judged = judge.judge_step(step).and_then(|()| judge.report.check_memory());
        judged.map_err(|failure| {
            let log = last_lines(&judge.log());
            failed(number + 1, format!("{}\n{}\n{log}", describe(number + 1, step, &failure), judge.report))
        })?;
    }
    Ok(std::mem::take(&mut judge.report))
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(N_LINES)..].join("\n")
}

/// Leaves out steps and faults as long as the rest still fails.
fn shrink(mut plan: Plan, mut failure: String, seed: u64) -> (Plan, String) {
    let start = Instant::now();
    'smaller: loop {
        for smaller in plan.smaller() {
            if start.elapsed() > SHRINKING {
                return (plan, failure);
            }
            if let Err(found) = try_plan(&smaller, seed, None) {
                (plan, failure) = found;
                continue 'smaller;
            }
        }
        return (plan, failure);
    }
}
