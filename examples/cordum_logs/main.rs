//! Writes logs as Cordum's services write them, together with the truth about them: how often which lock failed.
//!
//! `bench` writes one big JSON log for `make bench`; `live` keeps writing rotating files for `make demo`; `compare` holds
//! the counters of a running exporter against the truth. The messages and their attributes are Cordum's own; the truth
//! counts every failure once, however many lines it prints. It is written from the meaning of the lines and shares no
//! code with the exporter, so that it can disagree with it.

#![allow(clippy::print_stdout)] // a command line tool

mod bench;
mod chatter;
mod compare;
mod incidents;
mod line;
mod live;
mod random;
mod truth;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cordum_logs", about = "Generates Cordum-like logs and knows the truth about them")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One big JSON log for benchmarks.
    Bench(bench::Arguments),
    /// Rotating logs of three services under DIR/logs, and DIR/truth.json.
    Live(live::Arguments),
    /// A table of the exporter's counters beside the truth; exit code 1 when they differ.
    Compare {
        /// File written by `bench` or `live`.
        #[arg(long)]
        truth: PathBuf,
        /// Address of the exporter, such as 127.0.0.1:9877, or a file with the text of its /metrics.
        #[arg(long)]
        metrics: String,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(arguments) => bench::run(&arguments).map(|()| true).context("cannot write the benchmark log"),
        Command::Live(arguments) => live::run(&arguments).map(|()| true).context("cannot write the live logs"),
        Command::Compare { truth, metrics } => compare::run(&truth, &metrics),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("cordum_logs: {error:#}");
            ExitCode::from(2)
        }
    }
}
