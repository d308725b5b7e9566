use std::process::ExitCode;

use redis_lock_exporter::cli::{Cli, Command, EXIT_FAILED};
use redis_lock_exporter::commands;

fn main() -> ExitCode {
    match Cli::parse_from(std::env::args_os()) {
        Ok(Command::Check(args)) => commands::check::run(&args).into(),
        Ok(Command::Run(_) | Command::Replay(_)) => EXIT_FAILED.into(),
        Err(refused) => {
            let _ = refused.error.print();
            refused.exit_code.into()
        }
    }
}
