//! Writes logs as Cordum's services write them, together with the truth about them: how often which lock failed.
//!
//! `bench` writes one big JSON log for `make bench`; `compare` holds the counters of the exporter against the truth. The
//! messages and their attributes are Cordum's own; the truth counts every failure once, however many lines it prints. It is
//! written from the meaning of the lines and shares no code with the exporter, so that it can disagree with it.

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
    /// One big JSON log for benchmarks.
    Bench(bench::Arguments),
    /// A table of the exporter's counters beside the truth; exit code 1 when they differ.
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
