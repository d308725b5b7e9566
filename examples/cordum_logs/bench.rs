//! Writes one big JSON log of all three services, as if a log collector had merged them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use redis_lock_exporter::rehearsal::fleet::Random;
use redis_lock_exporter::rehearsal::fleet::cordum::{CordumLogFormat, LineWriter, Nanos, SECOND, Service, chatter};

use crate::incidents::{Due, Incidents, MEAN_LINES};
use crate::truth::Truth;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Stop after the line that reaches this size.
    #[arg(long, default_value_t = 1_000_000_000)]
    bytes: u64,
    /// Share of lines about failed locks.
    #[arg(long, default_value_t = 0.001)]
    event_share: f64,
    /// Share of lines that report a job's final state. Real logs have many such lines, and rules
    /// must check each of them.
    #[arg(long, default_value_t = 0.0)]
    state_share: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The log file; default: standard output.
    #[arg(long)]
    output: Option<PathBuf>,
    /// The recorded failures as JSON; default: standard error.
    #[arg(long)]
    truth: Option<PathBuf>,
}

/// 2026-06-25 13:37:04 UTC: a fixed start, so that one seed always produces the same file.
const START: Nanos = 1_782_394_624 * SECOND;
/// Fast enough that 1 GB covers about half an hour, slow enough that failures of one lock stay
/// separate.
const LINES_PER_SECOND: i64 = 2000;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut sink: Box<dyn Write> = match &arguments.output {
        Some(path) => Box::new(File::create(path).with_context(|| format!("cannot create {}", path.display()))?),
        None => Box::new(std::io::stdout().lock()),
    };
    let mut truth = Truth::default();
    let mut random = Random::new(arguments.seed);
    let mut incidents = Incidents::new();
    let mut out = LineWriter::new(CordumLogFormat::Json);
    // Lines of started failures, ordered by time. The number keeps the order of lines with the same
    // time.
    let mut due = BTreeMap::<(Nanos, u64), Due>::new();
    let mut n_due = 0;
    let mut time = START;
    let incident_share = arguments.event_share / MEAN_LINES;

    while truth.bytes + (out.out.len() as u64) < arguments.bytes {
        time += SECOND / LINES_PER_SECOND;
        while let Some(first) = due.first_entry()
            && first.key().0 <= time
        {
            first.remove().write(&mut out, &mut truth);
        }
        if random.chance(incident_share) {
            let service = [Service::Scheduler, Service::Gateway, Service::WorkflowEngine][random.below(3)];
            for line in incidents.start(service, &mut random, time, &mut truth) {
                due.insert((line.time, n_due), line);
                n_due += 1;
            }
        } else if arguments.state_share > 0.0 && random.chance(arguments.state_share) {
            let job = random.uuid();
            out.begin(time, "scheduler", "INFO", "job state changed")
                .uuid("job_id", "", job)
                .text("new_state", "SUCCEEDED")
                .end();
        } else if random.chance(0.000_05) {
            chatter::write_near_miss(&mut out, &mut random, time);
        } else {
            match random.below(3) {
                0 => chatter::write_scheduler(&mut out, &mut random, time),
                1 => chatter::write_gateway(&mut out, &mut random, time),
                _ => chatter::write_workflow_engine(&mut out, &mut random, time),
            }
        }
        if out.out.len() >= 1 << 20 {
            flush(&mut out, sink.as_mut(), &mut truth)?;
        }
    }
    // Finishes started failures. Otherwise the record would count failures that the log does not
    // contain.
    for line in due.values() {
        line.write(&mut out, &mut truth);
    }
    flush(&mut out, sink.as_mut(), &mut truth)?;
    sink.flush().context("cannot write the log")?;

    truth.lines = out.n_lines;
    match &arguments.truth {
        Some(path) => truth.save(path),
        None => {
            eprintln!("{}", serde_json::to_string_pretty(&truth)?);
            Ok(())
        }
    }
}

fn flush(out: &mut LineWriter, sink: &mut dyn Write, truth: &mut Truth) -> anyhow::Result<()> {
    sink.write_all(&out.out).context("cannot write the log")?;
    truth.bytes += out.out.len() as u64;
    out.out.clear();
    Ok(())
}
