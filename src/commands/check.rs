//! `check`: is the configuration good, and what does it say?
//!
//! Problems go to standard error as text, or to standard output as a JSON array. Exit code 1 if there are any.

use std::io::{self, Write};

use crate::cli::{CheckArgs, CheckOutput, EXIT_FAILED, EXIT_FINDINGS, EXIT_OK};
use crate::config::units::{format_duration, format_size};
use crate::config::{Config, LogSource, Problem, Problems, STDIN, StartAt};
use crate::namespace::{Namespace, OnRenewalFailure, Severity, Style};

/// Runs the command and returns the exit code.
pub fn run(args: &CheckArgs) -> u8 {
    match check_configuration(args, &mut io::stdout().lock(), &mut io::stderr().lock()) {
        Ok(Some(_config)) => EXIT_OK,
        Ok(None) => EXIT_FINDINGS,
        // Nobody reads our output any more; there is no one to tell either.
        Err(_) => EXIT_FAILED,
    }
}

/// Checks and describes the configuration. `None` if it has problems, which have been printed.
fn check_configuration(args: &CheckArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<Option<Config>> {
    match (load(args), args.output) {
        (Ok(config), CheckOutput::Text) => {
            write_summary(&config, out)?;
            Ok(Some(config))
        }
        (Ok(config), CheckOutput::Json) => {
            write_json(&[], out)?;
            Ok(Some(config))
        }
        (Err(problems), CheckOutput::Text) => {
            writeln!(errors, "{problems}")?;
            writeln!(errors, "{}", count(problems.0.len(), "problem"))?;
            Ok(None)
        }
        (Err(Problems(problems)), CheckOutput::Json) => {
            write_json(&problems, out)?;
            Ok(None)
        }
    }
}

/// A file on its own must say what to watch. A sample log, or presets alone, are for trying out rules.
fn load(args: &CheckArgs) -> Result<Config, Problems> {
    let path = args.config_file.as_deref();
    if path.is_some() && args.logs.is_none() {
        Config::load(path, &args.overrides())
    } else {
        Config::load_without_logs(path, &args.overrides())
    }
}

fn write_json(problems: &[Problem], out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, problems)?;
    writeln!(out)
}

fn write_summary(config: &Config, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "The configuration is good.")?;
    writeln!(out)?;
    let state_dir = config.state_dir.as_ref().map(|path| path.display().to_string());
    writeln!(out, "state directory: {}", state_dir.as_deref().unwrap_or("none, counts are kept in memory only"))?;
    writeln!(out, "join window:     {}", format_duration(config.join_window))?;
    let presets = if config.presets.is_empty() { "none".to_owned() } else { config.presets.join(", ") };
    writeln!(out, "presets:         {presets}")?;
    writeln!(out, "rules:           {}, the generic ones included", config.n_rules)?;
    writeln!(out)?;
    writeln!(out, "{}", count(config.logs.len(), "log source"))?;
    for source in &config.logs {
        writeln!(out, "  {}", describe_source(source))?;
    }
    writeln!(out)?;
    writeln!(out, "{}", count(config.namespaces.len(), "namespace"))?;
    for namespace in &config.namespaces {
        writeln!(out, "  {} ({})", namespace.name, describe_namespace(namespace))?;
        for key in &namespace.keys {
            writeln!(out, "    {}", key.as_str())?;
        }
    }
    Ok(())
}

fn describe_source(source: &LogSource) -> String {
    let start = match source.start_at {
        StartAt::End => "from the end",
        StartAt::Beginning => "from the beginning",
    };
    let max_line = format_size(source.max_line_bytes as u64);
    match source.path.as_str() {
        STDIN => format!("standard input (lines up to {max_line})"),
        path => format!("{path} ({start} at the first start, lines up to {max_line})"),
    }
}

fn describe_namespace(namespace: &Namespace) -> String {
    let mut facts = vec![
        match namespace.style {
            Style::Item => "item",
            Style::Loop => "loop",
        }
        .to_owned(),
        match namespace.on_renewal_failure {
            OnRenewalFailure::Fence => "fences itself",
            OnRenewalFailure::Continue => "continues without its lock",
        }
        .to_owned(),
        match namespace.severity {
            Severity::Page => "page",
            Severity::Ticket => "ticket",
        }
        .to_owned(),
    ];
    facts.extend(namespace.ttl.map(|ttl| format!("ttl {}", format_duration(ttl))));
    facts.extend(namespace.renew_every.map(|every| format!("renewed every {}", format_duration(every))));
    if !namespace.components.is_empty() {
        facts.push(format!("lines of {}", namespace.components.join(", ")));
    }
    facts.join(", ")
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
