//! The `check` command: checks a configuration and describes it.
//!
//! `main` calls [`run`]. Problems go to standard error as text, or to standard output as JSON. Exit
//! code 1 if there are problems; warnings do not count. `--logs` tries the configuration on sample
//! lines instead of describing it. `--rules` compares a file of alert rules with the metrics that
//! exist. In reading order:
//!
//! * this file: the configuration and rule files
//! * `lines`: `check --logs`: what the rules find in each line, or why they find nothing
//! * `report`: the result of `check --logs` as rows or JSON

mod lines;
mod report;

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::input::is_closed_pipe;
use crate::bundle::rule_check::RuleFile;
use crate::cli::{CheckArgs, CheckOutput, EXIT_FAILED, EXIT_FINDINGS, EXIT_OK};
use crate::config::redis::{RedisConfig, RedisMode};
use crate::config::{
    BlindSpot, Config, ConfigProblem, JournalConfig, LogKind, LogSource, Problems, Push, StartAt, WebConfig,
};
use crate::model::namespace::{Namespace, OnRenewalFailure, Severity, Style};
use crate::util::units::{format_duration, format_size};

/// Runs the command and returns the exit code.
pub fn run(args: &CheckArgs) -> u8 {
    let mut out = BufWriter::new(io::stdout().lock());
    match check(args, &mut out, &mut io::stderr().lock()) {
        Ok(exit_code) => exit_code,
        Err(failure) if is_closed_pipe(&failure) => EXIT_OK,
        Err(failure) => {
            // Print the results so far before the error.
            let _ = out.flush();
            eprintln!("{failure:#}");
            EXIT_FAILED
        }
    }
}

fn check(args: &CheckArgs, out: &mut impl Write, errors: &mut impl Write) -> anyhow::Result<u8> {
    let web = args.web_config_file.as_deref().map(|path| WebConfig::load(path).0).transpose();
    let (config, web) = match (load(args), web) {
        (Ok(config), Ok(web)) => (config, web),
        (config, web) => {
            let found = [config.err(), web.err()].into_iter().flatten().flat_map(|problems| problems.0).collect();
            write_problems(args, &Problems(found), out, errors)?;
            out.flush()?;
            return Ok(EXIT_FINDINGS);
        }
    };
    if let Some(path) = &args.rules {
        let exit_code = match RuleFile::check(path) {
            Ok(rules) => write_rules(rules, args.output, out).map(|()| EXIT_OK)?,
            Err(problems) => write_problems(args, &problems, out, errors).map(|()| EXIT_FINDINGS)?,
        };
        out.flush()?;
        return Ok(exit_code);
    }
    if let (Some(web), CheckOutput::Text) = (&web, args.output) {
        writeln!(out, "The web configuration is good: {}.", web.describe())?;
        if let Some(warning) = web.users.warning() {
            writeln!(out, "  warning: {warning}")?;
        }
    }
    let is_about_web_only = web.is_some() && args.has_generic_rules_only() && args.logs.is_none();
    match (&args.logs, args.output) {
        (None, CheckOutput::Text) if is_about_web_only => {}
        (Some(path), _) => lines::run(path, args, &config, out)?,
        (None, CheckOutput::Text) => {
            write_summary(&config, out)?;
            write_blind_spots(&config, out)?;
        }
        (None, CheckOutput::Json) => {
            let mut findings = warnings(&config);
            findings.extend(web_warning(args, web.as_ref()));
            write_findings(&findings, out)?;
        }
    }
    out.flush()?;
    Ok(EXIT_OK)
}

fn write_problems(
    args: &CheckArgs,
    problems: &Problems,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> anyhow::Result<()> {
    match args.output {
        CheckOutput::Text => {
            writeln!(errors, "{problems}")?;
            writeln!(errors, "{}", count(problems.0.len(), "problem"))?;
        }
        CheckOutput::Json if args.logs.is_some() => {
            let document = serde_json::json!({"problems": problems.0, "lines": [], "summary": null});
            writeln!(out, "{document}")?;
        }
        CheckOutput::Json => write_json(&problems.0, out)?,
    }
    Ok(())
}

/// A configuration file must name something to watch, except with `--logs`. Presets alone need not,
/// because they are used to try out rules.
fn load(args: &CheckArgs) -> Result<Config, Problems> {
    let path = args.config_file.as_deref();
    if path.is_some() && args.logs.is_none() {
        Config::load(path, &args.overrides())
    } else {
        Config::load_without_logs(path, &args.overrides())
    }
}

/// A problem or a warning as JSON.
#[derive(Serialize)]
struct ProblemJson<'a> {
    severity: &'static str,
    #[serde(flatten)]
    problem: Cow<'a, ConfigProblem>,
}

fn write_json(problems: &[ConfigProblem], out: &mut impl Write) -> io::Result<()> {
    let finding = |problem| ProblemJson { severity: "error", problem: Cow::Borrowed(problem) };
    write_findings(&problems.iter().map(finding).collect::<Vec<_>>(), out)
}

fn write_findings(findings: &[ProblemJson<'_>], out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, findings)?;
    writeln!(out)
}

/// See [`write_blind_spots`].
fn warnings(config: &Config) -> Vec<ProblemJson<'static>> {
    let blind_spots = config.blind_spots().into_iter();
    blind_spots.map(|BlindSpot { preset, text }| warning(format!("preset {preset}"), text)).collect()
}

fn web_warning(args: &CheckArgs, web: Option<&WebConfig>) -> Option<ProblemJson<'static>> {
    let file = args.web_config_file.as_ref()?.display().to_string();
    Some(warning(file, web?.users.warning()?))
}

fn warning(file: String, message: String) -> ProblemJson<'static> {
    let problem = ConfigProblem { file, line: 0, column: 0, message, help: None };
    ProblemJson { severity: "warning", problem: Cow::Owned(problem) }
}

fn write_rules(rules: RuleFile, output: CheckOutput, out: &mut impl Write) -> io::Result<()> {
    match output {
        CheckOutput::Text => writeln!(
            out,
            "The rules fit this exporter: {}, {}.",
            count(rules.alerts, "alert"),
            count(rules.recording_rules, "recording rule")
        ),
        CheckOutput::Json => write_json(&[], out),
    }
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
    if let Some(redis) = &config.redis {
        writeln!(out)?;
        writeln!(out, "redis")?;
        writeln!(out, "  {}", describe_redis(redis))?;
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

/// A valid configuration may contain a preset that observes less than its user expects.
fn write_blind_spots(config: &Config, out: &mut impl Write) -> io::Result<()> {
    let blind_spots = config.blind_spots();
    if blind_spots.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "{}", count(blind_spots.len(), "warning"))?;
    for blind_spot in blind_spots {
        writeln!(out, "  {blind_spot}")?;
    }
    Ok(())
}

fn describe_source(source: &LogSource) -> String {
    let start = match source.start_at {
        StartAt::End => "from the end",
        StartAt::Beginning => "from the beginning",
    };
    let max_line = format_size(source.max_line_bytes as u64);
    match &source.kind {
        LogKind::Stdin => format!("standard input (lines up to {max_line})"),
        LogKind::Files => format!("{} ({start} at the first start, lines up to {max_line})", source.name),
        LogKind::Journal(JournalConfig { matches, directory }) => {
            let from = directory.as_ref().map_or_else(|| "this machine".to_owned(), |path| path.display().to_string());
            let which = if matches.is_empty() { "every entry".to_owned() } else { matches.join(" ") };
            format!("{}: journal of {from}, {which} ({start} at the first start, lines up to {max_line})", source.name)
        }
        LogKind::Push(Push { max_request_bytes }) => {
            let max_request = format_size(*max_request_bytes as u64);
            format!("{}: POST /loki/api/v1/push (requests up to {max_request}, lines up to {max_line})", source.name)
        }
    }
}

/// Describes the Redis configuration without credentials.
fn describe_redis(redis: &RedisConfig) -> String {
    let addresses: Vec<String> = redis.addresses.iter().map(ToString::to_string).collect();
    let mode = match &redis.mode {
        RedisMode::Single => format!("database {}", redis.database),
        RedisMode::Sentinel { primary, .. } => format!("Sentinels, primary {primary}, database {}", redis.database),
        RedisMode::Cluster => "cluster".to_owned(),
    };
    let tls = if redis.tls.is_some() { ", TLS" } else { "" };
    let watch = if redis.watch.enabled { "watched where possible" } else { "scanned only" };
    let scan = format_duration(redis.scan.interval);
    format!("{} at {} ({mode}{tls}, {watch}, a pass every {scan} where not watched)", redis.name, addresses.join(", "))
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
