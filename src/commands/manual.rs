//! The `completions` and `man` commands: shell completions and manual pages, generated from the
//! command-line definition. Packages install them.
//!
//! `main` calls [`completions`] and [`pages`].

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs, EXIT_FAILED, EXIT_OK, ManArgs};

const NAME: &str = "redis_lock_exporter";

pub fn completions(args: &CompletionsArgs) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut text);
    finish(print(&text))
}

pub fn pages(args: &ManArgs) -> ExitCode {
    let Some(directory) = &args.directory else {
        let mut text = Vec::new();
        let rendered = clap_mangen::Man::new(Cli::command()).render(&mut text).context("cannot make the page");
        return finish(rendered.and_then(|()| print(&text)));
    };
    let written = std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    finish(written.with_context(|| format!("cannot write to {}", directory.display())))
}

fn print(text: &[u8]) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text) {
        // `| head` closes the pipe when it has enough lines.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

fn finish(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => EXIT_OK.into(),
        Err(failure) => {
            eprintln!("{failure:#}");
            EXIT_FAILED.into()
        }
    }
}
