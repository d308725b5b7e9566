//! Parses the arguments, starts logging and calls a command. Contains no other logic.
//!
//! Invalid arguments print an error and set the exit code; each command returns its own exit code.

use std::process::ExitCode;

use redis_lock_exporter::cli::{Cli, Command, LogFormat, LogLevel};
use redis_lock_exporter::{commands, daemon, rehearsal};
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let command = match Cli::parse_from(std::env::args_os()) {
        Ok(command) => command,
        Err(refused) => {
            // If the error message cannot be printed, there is no other output to report that on.
            let _ = refused.error.print();
            return refused.exit_code.into();
        }
    };
    // Fails only if a provider is already installed, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match command {
        Command::Run(args) => {
            start_logging(args.log_level, args.log_format);
            daemon::run::run(&args)
        }
        Command::Advise(args) => commands::advise::run(&args).into(),
        Command::Check(args) => commands::check::run(&args).into(),
        Command::Replay(args) => {
            start_logging(LogLevel::Warn, LogFormat::Text);
            commands::replay::run(&args)
        }
        Command::Drill(args) => {
            start_logging(LogLevel::Error, LogFormat::Text);
            rehearsal::drill::run(&args).into()
        }
        Command::DrillWorker => rehearsal::drill::run_worker().into(),
        Command::Healthcheck(args) => commands::healthcheck::run(&args),
        Command::Presets(args) => commands::presets::run(&args).into(),
        Command::Pack(args) => commands::pack::run(&args),
        Command::Completions(args) => commands::manual::completions(&args),
        Command::Man(args) => commands::manual::pages(&args),
        Command::Demo(args) => rehearsal::demo::run(&args),
    }
}

fn start_logging(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    match format {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => builder.json().init(),
    }
}
