//! Three services that log for as long as they are told to, with the rotations found in the field.
//!
//! | file | form | rotated by |
//! |---|---|---|
//! | scheduler.log | JSON | rename + create; the one before is gzipped |
//! | workflow-engine.log | text inside Docker json-file | rename + create |
//! | gateway.log | text, no time at all | copytruncate |
//!
//! copytruncate loses what is written between copy and truncation, and what a reader had not read by then. The first
//! cannot happen here (one writer does both); for the second the gateway is silent for a while before each truncation.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::chatter;
use crate::incidents::{Incidents, Service};
use crate::line::{Form, LineWriter, Nanos};
use crate::random::Random;
use crate::truth::Truth;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory for logs/ and truth.json; created when missing.
    #[arg(long)]
    dir: PathBuf,
    /// Lines a second, all services together.
    #[arg(long, default_value_t = 300)]
    rate: u64,
    /// How long to write; 0 is until killed.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const TICK: Duration = Duration::from_millis(50);
/// One failure for so many ordinary lines.
const LINES_PER_INCIDENT: f64 = 25.0;
/// Rotated files that are kept; a demo that runs all day must not fill the disk.
const GENERATIONS: u64 = 5;
const COPYTRUNCATE_SILENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
enum Rotation {
    Rename,
    RenameAndGzip,
    CopyTruncate,
}

struct Plan {
    name: &'static str,
    service: Service,
    form: Form,
    rotation: Rotation,
    every: Duration,
}

const PLANS: [Plan; 3] = [
    Plan {
        name: "scheduler",
        service: Service::Scheduler,
        form: Form::Json,
        rotation: Rotation::RenameAndGzip,
        every: Duration::from_secs(4),
    },
    Plan {
        name: "workflow-engine",
        service: Service::WorkflowEngine,
        form: Form::Docker,
        rotation: Rotation::Rename,
        every: Duration::from_secs(5),
    },
    Plan {
        name: "gateway",
        service: Service::Gateway,
        form: Form::Text,
        rotation: Rotation::CopyTruncate,
        every: Duration::from_secs(9),
    },
];

struct Log {
    plan: Plan,
    last_rotation: Instant,
    generation: u64,
    path: PathBuf,
    file: File,
    out: LineWriter,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let directory = arguments.dir.join("logs");
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let truth_path = arguments.dir.join("truth.json");
    let mut logs = Vec::new();
    for plan in PLANS {
        logs.push(Log::create(&directory, plan)?);
    }
    let mut random = Random::new(arguments.seed);
    let mut incidents = Incidents::new();
    let mut truth = Truth::default();
    let started = Instant::now();
    let mut n_ticks = 0;

    while arguments.seconds == 0 || started.elapsed() < Duration::from_secs(arguments.seconds) {
        n_ticks += 1;
        let n_lines = lines_in_tick(arguments.rate, n_ticks);
        for _line in 0..n_lines {
            let log = &mut logs[random.below(3) as usize];
            if log.is_silent() {
                continue;
            }
            if random.chance(1.0 / LINES_PER_INCIDENT) {
                log.write_incident(&mut incidents, &mut random, &mut truth);
            } else {
                log.write_chatter(&mut random);
            }
        }
        for log in &mut logs {
            truth.bytes += log.flush()?;
            if log.last_rotation.elapsed() >= log.plan.every {
                log.rotate()?;
            }
        }
        truth.lines = logs.iter().map(|log| log.out.n_lines).sum();
        truth.save(&truth_path)?;
        thread::sleep((TICK * n_ticks).saturating_sub(started.elapsed()));
    }
    Ok(())
}

/// Spreads a rate that is no multiple of the ticks evenly over them.
fn lines_in_tick(rate: u64, n_ticks: u32) -> u64 {
    let per_second = (1000 / TICK.as_millis()) as u64;
    let tick = u64::from(n_ticks);
    tick * rate / per_second - (tick - 1) * rate / per_second
}

fn now() -> Nanos {
    jiff::Timestamp::now().as_nanosecond() as Nanos
}

impl Log {
    fn create(directory: &Path, plan: Plan) -> anyhow::Result<Self> {
        let path = directory.join(format!("{}.log", plan.name));
        let file = open(&path)?;
        let out = LineWriter::new(plan.form);
        Ok(Self { plan, last_rotation: Instant::now(), generation: 0, path, file, out })
    }

    /// Before a truncation: a reader gets the time to read what is going away.
    fn is_silent(&self) -> bool {
        matches!(self.plan.rotation, Rotation::CopyTruncate)
            && self.last_rotation.elapsed() + COPYTRUNCATE_SILENCE >= self.plan.every
    }

    fn write_chatter(&mut self, random: &mut Random) {
        match self.plan.service {
            Service::Scheduler if random.chance(0.01) => chatter::write_near_miss(&mut self.out, random, now()),
            Service::Scheduler => chatter::write_scheduler(&mut self.out, random, now()),
            Service::Gateway => chatter::write_gateway(&mut self.out, random, now()),
            Service::WorkflowEngine => chatter::write_workflow_engine(&mut self.out, random, now()),
        }
    }

    /// Nobody wants to watch a demo for the 40 seconds that a lost renewal takes: the failure is told at its end, with
    /// the times at which its lines would have been written.
    fn write_incident(&mut self, incidents: &mut Incidents, random: &mut Random, truth: &mut Truth) {
        let now = now();
        let mut lines = incidents.start(self.plan.service, random, now, truth);
        let too_late = lines.last().map_or(0, |last| last.time - now);
        for line in &mut lines {
            line.time -= too_late;
            line.write(&mut self.out, truth);
        }
    }

    fn flush(&mut self) -> anyhow::Result<u64> {
        self.file.write_all(&self.out.out).with_context(|| format!("cannot write {}", self.path.display()))?;
        let n_bytes = self.out.out.len() as u64;
        self.out.out.clear();
        Ok(n_bytes)
    }

    fn rotate(&mut self) -> anyhow::Result<()> {
        self.generation += 1;
        self.last_rotation = Instant::now();
        let rotated = self.rotated(self.generation);
        match self.plan.rotation {
            Rotation::CopyTruncate => {
                fs::copy(&self.path, &rotated)?;
                self.file.set_len(0)?;
            }
            Rotation::Rename | Rotation::RenameAndGzip => {
                fs::rename(&self.path, &rotated)?;
                self.file = open(&self.path)?;
            }
        }
        // logrotate's `delaycompress`: the newest rotated file stays plain for a reader that is still in it.
        if matches!(self.plan.rotation, Rotation::RenameAndGzip) && self.generation > 1 {
            gzip(&self.rotated(self.generation - 1))?;
        }
        if self.generation > GENERATIONS {
            let oldest = self.rotated(self.generation - GENERATIONS);
            // One of the two names exists.
            _ = fs::remove_file(&oldest);
            _ = fs::remove_file(gzipped(&oldest));
        }
        Ok(())
    }

    fn rotated(&self, generation: u64) -> PathBuf {
        PathBuf::from(format!("{}.{generation}", self.path.display()))
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    // Append, as every program does whose log is rotated by copytruncate.
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

fn gzipped(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.gz", path.display()))
}

fn gzip(path: &Path) -> anyhow::Result<()> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let compressed = File::create(gzipped(path))?;
    let mut encoder = flate2::write::GzEncoder::new(compressed, flate2::Compression::default());
    encoder.write_all(&text)?;
    encoder.finish()?;
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}
