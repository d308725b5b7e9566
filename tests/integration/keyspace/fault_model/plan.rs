//! Which faults happen when. A plan has a text form, which a failure prints and
//! `FAULT_PLAN` takes:
//!
//! ```text
//! single: flush@0; stall 1200@300 + reload@0; kill-exporter@0
//! ```
//!
//! The installation comes first. Steps are separated by `;` and follow each other; after each step
//! everything must be correct again. The faults of a step are separated by `+` and overlap. `@300`
//! is how many milliseconds after the previous fault of the same kind the fault begins, or after
//! the begin of the step. `stall 1200` lasts for 1200 ms.

use std::fmt;
use std::str::FromStr;

use redis_lock_exporter::rehearsal::fleet::Random;

/// What the exporter observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installation {
    /// One server behind a proxy.
    Single,
    /// The same with many keys that are not locks.
    Large,
    Sentinel,
    Cluster,
}

/// Faults of one kind follow each other. Faults of different kinds overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Network,
    Exporter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Flush,
    FlushOther,
    KillConnection,
    StopRedis,
    RestartWithData,
    RestartWithoutData,
    Evict,
    Burst,
    Failover,
    MigrateSlot,
    Stall,
    Delay,
    Cut,
    Reload,
    KillExporter,
    RestartExporter,
    StopExporter,
    ClockForward,
    ClockBackward,
}

use Action::*;

impl Action {
    pub(super) const ALL: [Self; 19] = [
        Flush,
        FlushOther,
        KillConnection,
        StopRedis,
        RestartWithData,
        RestartWithoutData,
        Evict,
        Burst,
        Failover,
        MigrateSlot,
        Stall,
        Delay,
        Cut,
        Reload,
        KillExporter,
        RestartExporter,
        StopExporter,
        ClockForward,
        ClockBackward,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Flush => "flush",
            FlushOther => "flush-other",
            KillConnection => "kill-connection",
            StopRedis => "stop-redis",
            RestartWithData => "restart-with-data",
            RestartWithoutData => "restart-without-data",
            Evict => "evict",
            Burst => "burst",
            Failover => "failover",
            MigrateSlot => "migrate-slot",
            Stall => "stall",
            Delay => "delay",
            Cut => "cut",
            Reload => "reload",
            KillExporter => "kill-exporter",
            RestartExporter => "restart-exporter",
            StopExporter => "stop-exporter",
            ClockForward => "clock-forward",
            ClockBackward => "clock-backward",
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Flush | FlushOther | KillConnection | StopRedis | RestartWithData | RestartWithoutData | Evict | Burst
            | Failover | MigrateSlot => Kind::Server,
            Stall | Delay | Cut => Kind::Network,
            Reload | KillExporter | RestartExporter | StopExporter | ClockForward | ClockBackward => Kind::Exporter,
        }
    }

    pub(super) fn is_possible(self, installation: Installation) -> bool {
        match installation {
            Installation::Single => !matches!(self, Failover | MigrateSlot),
            // A new process must list all keys first, which takes as long as there are keys.
            Installation::Large => {
                matches!(
                    self,
                    Flush | FlushOther | Evict | Delay | Burst | Reload | StopExporter | KillConnection | Cut
                ) || matches!(self, ClockForward | ClockBackward)
            }
            Installation::Sentinel => {
                matches!(self, Flush | FlushOther | KillConnection | Failover) || self.kind() == Kind::Exporter
            }
            // A cluster has one database only.
            Installation::Cluster => {
                matches!(self, Flush | KillConnection | MigrateSlot) || self.kind() == Kind::Exporter
            }
        }
    }

    /// The shortest and the longest time that the fault lasts, in milliseconds. 0 if it does not
    /// last.
    fn duration(self) -> (usize, usize) {
        match self {
            StopRedis | StopExporter | Cut => (100, 3_000),
            RestartWithData | RestartWithoutData => (0, 3_000),
            Stall => (100, 6_000),
            Delay => (500, 3_000),
            Evict => (100, 1_000),
            Burst => (100, 500),
            _ => (0, 0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) action: Action,
    /// In milliseconds.
    pub(super) after: u64,
    pub(super) duration: u64,
}

/// Faults that overlap.
pub(super) type Step = Vec<Fault>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) installation: Installation,
    pub(super) steps: Vec<Step>,
}

impl Plan {
    /// Draws a plan with these actions, as far as they are possible.
    pub(super) fn random(installation: Installation, seed: u64, n_steps: usize, actions: &[Action]) -> Self {
        let possible: Vec<Action> = actions.iter().copied().filter(|action| action.is_possible(installation)).collect();
        let mut random = Random::new(seed);
        let steps = (0..n_steps).map(|_| random_step(&mut random, &possible)).collect();
        Self { installation, steps }
    }

    /// All plans with one step or one fault less, the smallest first.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let with = |steps| Self { installation: self.installation, steps };
        let n = self.steps.len();
        let mut smaller = Vec::new();
        if n > 1 {
            smaller.push(with(self.steps[n - 1..].to_vec()));
            smaller.push(with(self.steps[n / 2..].to_vec()));
            smaller.extend((0..n).map(|left_out| {
                let others = (0..n).filter(|number| *number != left_out);
                with(others.map(|number| self.steps[number].clone()).collect())
            }));
        }
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.len() > 1) {
            for left_out in 0..step.len() {
                let mut steps = self.steps.clone();
                steps[number].remove(left_out);
                smaller.push(with(steps));
            }
        }
        smaller.dedup();
        smaller
    }

    pub(super) fn first_steps(&self, n_steps: usize) -> Self {
        Self { installation: self.installation, steps: self.steps[..n_steps].to_vec() }
    }

    fn uses(&self, action: Action) -> bool {
        self.steps.iter().flatten().any(|fault| fault.action == action)
    }
}

/// One to three faults.
fn random_step(random: &mut Random, possible: &[Action]) -> Step {
    let n_faults = 1 + [0, 0, 1, 1, 2][random.below(5)];
    (0..n_faults).map(|_| random_fault(random, possible)).collect()
}

fn random_fault(random: &mut Random, possible: &[Action]) -> Fault {
    let action = possible[random.below(possible.len())];
    let (shortest, longest) = action.duration();
    let duration = shortest + random.below(longest - shortest + 1);
    Fault { action, after: random.below(800) as u64, duration: duration as u64 }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(step_text).collect();
        write!(formatter, "{}: {}", format!("{:?}", self.installation).to_lowercase(), steps.join("; "))
    }
}

pub(super) fn step_text(step: &Step) -> String {
    step.iter().map(Fault::to_string).collect::<Vec<_>>().join(" + ")
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration {
            0 => write!(formatter, "{}@{}", self.action.name(), self.after),
            duration => write!(formatter, "{} {duration}@{}", self.action.name(), self.after),
        }
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (installation, steps) = text.split_once(':').ok_or("no installation")?;
        let all = [Installation::Single, Installation::Large, Installation::Sentinel, Installation::Cluster];
        let is_named = |one: &Installation| format!("{one:?}").eq_ignore_ascii_case(installation.trim());
        let installation = all.into_iter().find(is_named).ok_or(format!("no installation {installation:?}"))?;
        let parse_step = |step: &str| step.split('+').map(|fault| fault.trim().parse()).collect();
        let steps = steps.split(';').map(parse_step).collect::<Result<_, String>>()?;
        Ok(Self { installation, steps })
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("not a fault: {text:?}");
        let (what, after) = text.split_once('@').ok_or_else(bad)?;
        let (name, duration) = what.split_once(' ').unwrap_or((what, "0"));
        let action = Action::ALL.into_iter().find(|action| action.name() == name).ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse().map_err(|_| bad());
        Ok(Self { action, after: number(after)?, duration: number(duration)? })
    }
}

#[test]
fn a_plan_survives_its_text() {
    for installation in [Installation::Single, Installation::Sentinel, Installation::Cluster] {
        let plan = Plan::random(installation, 7, 40, &Action::ALL);
        assert_eq!(plan.to_string().parse(), Ok(plan));
    }
    assert!("single: earthquake@0".parse::<Plan>().is_err());
}

#[test]
fn shrinking_ends_with_single_faults() {
    let mut plan = Plan::random(Installation::Single, 3, 12, &Action::ALL);
    let culprit = plan.steps[5][0].action;
    while let Some(smaller) = plan.smaller().into_iter().find(|plan| plan.uses(culprit)) {
        plan = smaller;
    }
    assert_eq!(plan.steps.concat().len(), 1);
}
