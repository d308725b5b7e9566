//! Writes logs in the format of Cordum's services, and records how often each kind of lock failure
//! happened.
//!
//! `bench` writes one big JSON log for `make bench`. `compare` compares the counters of the
//! exporter with the record. The messages and their attributes are Cordum's own. The record counts
//! every failure once, no matter how many lines it prints. It is derived from the meaning of the
//! lines and shares no code with the exporter, so that the two can disagree.

#![allow(clippy::print_stdout)] // a command line tool

mod bench;
mod compare;
mod incidents;
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
    /// Write one big JSON log for benchmarks.
    Bench(bench::Arguments),
    /// Print a table of the exporter's counters and the record; exit with status 1 if they differ.
    Compare {
        /// File written by `bench`.
        #[arg(long)]
        truth: PathBuf,
        /// A file with the text of /metrics.
        #[arg(long)]
        metrics: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(arguments) => bench::run(&arguments).map(|()| true).context("cannot write the benchmark log"),
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
