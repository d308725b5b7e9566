//! The command line: flags as clap structs, and the exit codes of the program.
//!
//! The structs with URLs do not implement `Debug`, because a URL may contain a password.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::config::{Overrides, presets};
use crate::http::listener::ListenAddress;
use crate::util::units;

/// Exit code: success, nothing found.
pub const EXIT_OK: u8 = 0;
/// Exit code: the command ran and has findings.
pub const EXIT_FINDINGS: u8 = 1;
/// Exit code: the command could not run.
pub const EXIT_FAILED: u8 = 2;
/// Exit code: invalid flags, or an invalid configuration for `run` and `replay`.
pub const EXIT_USAGE: u8 = 64;

/// Contains the password for Redis if neither a flag nor the configuration states where it is.
const PASSWORD_VARIABLE: &str = "REDIS_LOCK_EXPORTER_REDIS_PASSWORD";

const DEFAULT_PORT: u16 = 9877;

const EXAMPLES: &str = "\
Examples:
  Read the logs of Cordum, keep counts only in memory:
    redis_lock_exporter --logs.path '/var/log/cordum/*.log' --preset cordum
  Watch the locks in Redis too:
    redis_lock_exporter --redis.url redis://127.0.0.1:6379 --logs.path '/var/log/cordum/*.log' --preset cordum
  Run with a configuration file, keep counts across restarts:
    redis_lock_exporter --config.file /etc/redis_lock_exporter.yaml --state.dir /var/lib/redis_lock_exporter
  Check a configuration, and show how it counts the lines of a sample:
    redis_lock_exporter check --config.file redis_lock_exporter.yaml --logs sample.log
  Count what happened last week:
    redis_lock_exporter replay --preset cordum /var/log/cordum/scheduler.log.*.gz
  Show what a preset reads, and what it cannot observe:
    redis_lock_exporter presets show redis-py
  Compare the TTLs with how the locks are held and renewed:
    redis_lock_exporter advise --exporter http://127.0.0.1:9877
  Rehearse the failures of locks with a temporary Redis:
    redis_lock_exporter drill
  Run everything on this machine, with an incident:
    redis_lock_exporter demo

Exit codes: 0 success, 1 findings (check, advise, drill) or unhealthy (healthcheck), 2 failure, 64 invalid usage or
configuration.";

/// Prometheus exporter for distributed locks in Redis: lost locks, failed renewals, and their causes.
#[derive(Parser)]
#[command(name = "redis_lock_exporter", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
pub enum Command {
    /// Read logs, watch Redis and serve metrics (the default command: the word `run` is optional)
    Run(RunArgs),
    /// Check a configuration and show every problem with its line; exits with status 1 if there are any
    Check(CheckArgs),
    /// Read log files once from start to end, with the same rules as the daemon, and show what happened
    Replay(ReplayArgs),
    /// Recommend TTLs and renewal intervals from observed holds; exits with status 1 if the current ones should change
    Advise(AdviseArgs),
    /// Rehearse the failures of locks with real workers; exits with status 1 if the exporter does not detect one
    Drill(DrillArgs),
    /// A worker process of a drill
    #[command(name = "drill-worker", hide = true)]
    DrillWorker,
    /// List the presets, or explain one: what it reads, what it can observe and what it cannot
    Presets(PresetsArgs),
    /// Check the health of a running exporter, for containers; exits with status 1 if it is unhealthy
    Healthcheck(HealthcheckArgs),
    /// Write the rules, dashboards, runbooks and examples of this version to a directory
    Pack(PackArgs),
    /// Print the completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write the manual pages of all commands to a directory
    Man(ManArgs),
    /// Run everything on this machine: Redis, services that use locks, the exporter, Prometheus, and an incident
    Demo(DemoArgs),
}

#[derive(Clone, Args)]
pub struct RunArgs {
    /// YAML file that states what to observe (see docs/configuration.md)
    #[arg(long = "config.file", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// A log file, a pattern with * and **, or - for standard input; repeatable, in addition to the configuration
    #[arg(long = "logs.path", value_name = "GLOB")]
    pub logs_path: Vec<String>,
    /// The Redis whose locks to watch: redis://HOST:PORT/DATABASE, rediss:// (TLS) or unix:///PATH
    #[arg(long = "redis.url", value_name = "URL")]
    pub redis_url: Option<String>,
    /// A file with the password for Redis, read at each connection; alternatively set the environment variable
    /// REDIS_LOCK_EXPORTER_REDIS_PASSWORD
    #[arg(long = "redis.password-file", value_name = "FILE")]
    pub redis_password_file: Option<PathBuf>,
    /// A built-in set of lock namespaces and rules; repeatable, in addition to the configuration
    #[arg(long = "preset", value_name = "NAME")]
    pub presets: Vec<String>,
    /// Directory for positions and counts; without it they are lost when the exporter stops
    #[arg(long = "state.dir", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    // Not a doc comment: rustdoc would take [IPV6] for a link.
    #[arg(
        long = "web.listen-address",
        value_name = "ADDRESS",
        help = "Address to listen on: :PORT (all interfaces), HOST:PORT, [IPV6]:PORT, unix:///PATH for a Unix socket, \
                or unix:///PATH?mode=660 to set its permissions; repeatable [default: :9877]"
    )]
    pub listen_addresses: Vec<ListenAddress>,
    /// Listen on the sockets that systemd passes (socket activation) and on given addresses, not on the default one
    #[arg(long = "web.systemd-socket")]
    pub systemd_socket: bool,
    /// File with TLS, users and headers, in the format of Prometheus' exporter-toolkit (see docs/web-configuration.md)
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,
    /// Maximum number of open connections for each address; further connections wait
    #[arg(long = "web.max-connections", value_name = "N", default_value = "512", value_parser = at_least_one)]
    pub max_connections: usize,
    /// Allow reloading the configuration with POST /-/reload
    #[arg(long = "web.enable-lifecycle")]
    pub enable_lifecycle: bool,
    /// Do not serve /api and the page at /, which needs it
    #[arg(long = "web.disable-api")]
    pub disable_api: bool,
    /// Do not serve the page at / and the runbooks
    #[arg(long = "web.disable-page")]
    pub disable_page: bool,
    /// Lowest level of the messages to log
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Format of log messages
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

#[derive(Clone, Args)]
#[command(after_help = "With --logs but without --config.file and --preset, only the generic rules are used.\n\n\
                        Exit codes: 0 no problems, 1 problems, 2 the sample cannot be read, 64 invalid usage.")]
pub struct CheckArgs {
    /// The configuration to check
    #[arg(long = "config.file", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// A preset to use in addition to the presets of the configuration; repeatable
    #[arg(long = "preset", value_name = "NAME")]
    pub presets: Vec<String>,
    /// A sample log (plain, .gz, or - for standard input): show what each line counts as, or why it does not count
    #[arg(long = "logs", value_name = "FILE")]
    pub logs: Option<PathBuf>,
    /// A web configuration to check, including its certificates and keys
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,
    /// A Prometheus rule file: find metrics, labels and label values that this exporter does not have
    #[arg(long = "rules", value_name = "FILE", conflicts_with = "logs")]
    pub rules: Option<PathBuf>,
    /// Output format: text or JSON
    #[arg(long = "output", value_name = "FORMAT", default_value = "text")]
    pub output: CheckOutput,
}

#[derive(Clone, Args)]
#[command(after_help = "Without --config.file and --preset, only the generic rules are used.\n\n\
                        Exit codes: 0 success, 2 a file cannot be read, 64 invalid usage or configuration.")]
pub struct ReplayArgs {
    /// Log files to read from start to end: plain, .gz, or - for standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The configuration with lock namespaces and rules; its log sources and state directory are ignored
    #[arg(long = "config.file", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// A preset to use in addition to the presets of the configuration; repeatable
    #[arg(long = "preset", value_name = "NAME")]
    pub presets: Vec<String>,
    /// Output format: a table, one JSON object for each event, or metrics in the Prometheus text format
    #[arg(long = "output", value_name = "FORMAT", default_value = "table")]
    pub output: ReplayOutput,
    /// Do not print lock ids in events
    #[arg(long = "redact")]
    pub redact: bool,
}

#[derive(Clone, Args)]
#[command(after_help = "docs/ttl-advice.md explains the formulas and their limits.\n\n\
                        Exit codes: 0 nothing to change, 1 findings, 2 no advice is possible, 64 invalid usage.")]
#[command(group = clap::ArgGroup::new("from").required(true).args(["exporter", "prometheus"]))]
pub struct AdviseArgs {
    /// A running exporter: use what it observed since its counters began, with fine histograms
    #[arg(long = "exporter", value_name = "URL")]
    pub exporter: Option<String>,
    /// A Prometheus that scrapes exporters: use a longer time, with coarser histograms
    #[arg(long = "prometheus", value_name = "URL")]
    pub prometheus: Option<String>,
    /// Time to evaluate, with --prometheus
    #[arg(long = "range", value_name = "DURATION", default_value = "7d", value_parser = duration, conflicts_with = "exporter")]
    pub range: Duration,
    /// Only targets with this value of the label `cluster`, with --prometheus
    #[arg(long = "cluster", value_name = "NAME", conflicts_with = "exporter")]
    pub cluster: Option<String>,
    /// Only this lock namespace; repeatable
    #[arg(long = "namespace", value_name = "NAME")]
    pub namespaces: Vec<String>,
    /// A pause that owners who renew must survive even if none was observed: garbage collection, failover
    #[arg(long = "pause", value_name = "DURATION", value_parser = duration)]
    pub pause: Option<Duration>,
    /// For https: certificates to trust instead of the system's
    #[arg(long = "ca-file", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Output format: text or JSON
    #[arg(long = "output", value_name = "FORMAT", default_value = "text")]
    pub output: AdviseOutput,
}

/// Above zero, as in the configuration.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = units::parse_duration(text).filter(|duration| !duration.is_zero());
    parsed.ok_or_else(|| units::DURATION_HELP.to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AdviseOutput {
    Text,
    Json,
}

/// A scenario of `drill`. They run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DrillScenario {
    StaleRelease,
    RenewalFailure,
    Combined,
    Pause,
    Delay,
    PauseAndDelay,
    CrashTakeover,
    BlindDelete,
    LeaderLoss,
    RedisFailover,
}

#[derive(Clone, Args)]
#[command(
    after_help = "Without --redis.url the drill starts a redis-server, without --exporter it starts an exporter. It writes \
                        only to keys that begin with redis_lock_drill: and its run id, and deletes them at the end.\n\n\
                        Exit codes: 0 all expectations are met, 1 one is not met, 2 the drill cannot run, 64 invalid usage."
)]
pub struct DrillArgs {
    /// Scenarios to rehearse [default: all]
    #[arg(value_name = "SCENARIO", value_enum)]
    pub scenarios: Vec<DrillScenario>,
    /// List the scenarios and their expectations
    #[arg(long = "list")]
    pub list: bool,
    /// Print the configuration that the exporter needs for --exporter
    #[arg(long = "print-config", conflicts_with = "list")]
    pub print_config: bool,
    /// The Redis of a staging environment: redis://HOST:PORT/DATABASE
    #[arg(long = "redis.url", value_name = "URL")]
    pub redis_url: Option<String>,
    /// A file with the password for Redis; alternatively set the environment variable
    /// REDIS_LOCK_EXPORTER_REDIS_PASSWORD
    #[arg(long = "redis.password-file", value_name = "FILE", requires = "redis_url")]
    pub redis_password_file: Option<PathBuf>,
    /// A running exporter to check, which watches this Redis and reads this log file: http://HOST:PORT
    #[arg(long = "exporter", value_name = "URL", requires_all = ["redis_url", "log_file", "run_id"])]
    pub exporter: Option<String>,
    /// Log file of the workers [default: a temporary file]
    #[arg(long = "log-file", value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Part of all keys, the same as in the exporter's configuration [default: random]
    #[arg(long = "run-id", value_name = "ID", value_parser = parse_run_id)]
    pub run_id: Option<String>,
    /// A Prometheus that scrapes the exporter and has the bundled rules: check which alerts fire and which do not
    #[arg(long = "prometheus", value_name = "URL")]
    pub prometheus: Option<String>,
    /// How long to wait for alerts after the last failure; at least one scrape and two evaluations
    #[arg(long = "prometheus.settle", value_name = "DURATION", default_value = "75s", value_parser = duration)]
    pub prometheus_settle: Duration,
    /// Address of the exporter that the drill starts
    #[arg(
        long = "web.listen-address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        conflicts_with = "exporter"
    )]
    pub listen_address: ListenAddress,
    /// Divide the TTL of 30s by this number
    #[arg(long = "speed", value_name = "NUMBER", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=30))]
    pub speed: u32,
    /// Repeat each failure for this time; 10m is enough for a page [default: once]
    #[arg(long = "duration", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Output format of the report
    #[arg(long = "output", value_name = "FORMAT", default_value = "text")]
    pub output: DrillOutput,
    /// A file for the report: JSON if its name ends in .json, otherwise Markdown; repeatable
    #[arg(long = "report", value_name = "FILE")]
    pub report: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DrillOutput {
    Text,
    Json,
    Markdown,
}

#[derive(Clone, Args)]
#[command(
    after_help = "An exporter that requires a password is healthy, because it answers. To check whether it is ready, use \
                        --user and --password-file.\n\n\
                        Exit codes: 0 healthy, 1 unhealthy or no answer, 64 invalid usage."
)]
pub struct HealthcheckArgs {
    /// Address of the exporter: http://HOST:PORT, https://HOST:PORT or unix:///PATH
    #[arg(long = "url", value_name = "URL", default_value = "http://127.0.0.1:9877")]
    pub url: String,
    /// Check whether the exporter is ready (/-/ready), not only whether it answers (/-/healthy)
    #[arg(long = "ready")]
    pub ready: bool,
    /// Time limit in seconds
    #[arg(long = "timeout", value_name = "SECONDS", default_value = "5", value_parser = at_least_one)]
    pub timeout: usize,
    /// For https://: certificates to trust instead of the system's
    #[arg(long = "ca-file", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// For https://: accept any certificate, because the local machine may have another name
    #[arg(long = "insecure")]
    pub insecure: bool,
    /// For https://: the client certificate
    #[arg(long = "cert-file", value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// The private key of the client certificate
    #[arg(long = "key-file", value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// User name for basic authentication
    #[arg(long = "user", value_name = "NAME", requires = "password_file")]
    pub user: Option<String>,
    /// A file with the password of the user
    #[arg(long = "password-file", value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
}

#[derive(Clone, Args)]
#[command(after_help = "Without options the files are identical to those in the project's repository.\n\n\
                        Exit codes: 0 success, 2 failure, 64 invalid usage.")]
pub struct PackArgs {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Address of your runbooks: the name of the alert is appended, or replaces {alert}
    #[arg(long = "runbook-base-url", value_name = "URL")]
    pub runbook_base_url: Option<String>,
    /// Label matchers for every metric in rules and dashboards, such as 'env="prod",team=~"a|b"'
    #[arg(long = "selector", value_name = "MATCHERS")]
    pub selector: Option<String>,
    /// Replace existing files that differ
    #[arg(long = "force")]
    pub force: bool,
}

#[derive(Clone, Args)]
pub struct CompletionsArgs {
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Clone, Args)]
pub struct ManArgs {
    /// Directory for redis_lock_exporter.1 and one page for each command [default: print the main page]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[derive(Clone, Args)]
#[command(
    after_help = "Needs redis-server on PATH. Uses prometheus and alertmanager if they are on PATH. Everything listens \
                        only on 127.0.0.1.\n\n\
                        Exit codes: 0 success, 1 something did not detect the incident (with --duration), 2 failure, \
                        64 invalid usage."
)]
pub struct DemoArgs {
    /// Time from the start to the automatic incident
    #[arg(long = "incident-after", value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub incident_after: Duration,
    /// The automatic incident
    #[arg(long = "incident", value_name = "INCIDENT", default_value = "pauses")]
    pub incident: DemoIncident,
    /// Stop after this time and print a summary [default: run until q or Ctrl-C]
    #[arg(long = "duration", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Divide TTLs and the durations of the alert rules by this number, from 1 to 30
    #[arg(long = "speed", value_name = "NUMBER", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=30))]
    pub speed: u32,
    /// Output format: text, or JSON at the end
    #[arg(long = "output", value_name = "FORMAT", default_value = "text")]
    pub output: DemoOutput,
    /// Do not start Prometheus and Alertmanager
    #[arg(long = "without-prometheus")]
    pub without_prometheus: bool,
    /// Keep the directory with logs, configuration and state
    #[arg(long = "keep")]
    pub keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemoIncident {
    /// One node repeatedly freezes for longer than the TTL of its locks
    Pauses,
    /// Replies of Redis take longer than the services wait
    SlowNetwork,
    /// Redis fails over and loses its locks
    Failover,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoOutput {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Use a preset with --preset NAME, or with `presets: [NAME]` in the configuration.\n\n\
                        Exit codes: 0 success, 64 no such preset.")]
pub struct PresetsArgs {
    #[command(subcommand)]
    pub command: Option<PresetsCommand>,
    /// Output format
    #[arg(long = "output", value_name = "FORMAT", default_value = "text", global = true)]
    pub output: CheckOutput,
}

#[derive(Clone, Debug, Subcommand)]
pub enum PresetsCommand {
    /// Explain one preset and print its YAML
    Show {
        #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(presets::names()))]
        name: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckOutput {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReplayOutput {
    Table,
    Events,
    Metrics,
}

/// A usage error or a request for help. The caller prints it and exits with `exit_code`.
#[derive(Debug)]
pub struct NotParsed {
    pub error: clap::Error,
    pub exit_code: u8,
}

impl Cli {
    /// Parses the arguments, starting with the name of the program. A usage error has exit code 64
    /// instead of clap's 2.
    pub fn parse_from<I, T>(arguments: I) -> Result<Command, NotParsed>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        match Self::try_parse_from(arguments) {
            Ok(cli) => Ok(cli.command.unwrap_or(Command::Run(cli.run))),
            Err(error) => {
                let exit_code = if error.use_stderr() { EXIT_USAGE } else { EXIT_OK };
                Err(NotParsed { error, exit_code })
            }
        }
    }
}

impl RunArgs {
    /// The addresses to listen on in addition to the sockets of systemd.
    pub fn listen_addresses(&self) -> Vec<ListenAddress> {
        match self.listen_addresses.is_empty() && !self.systemd_socket {
            true => vec![ListenAddress::Tcp { host: String::new(), port: DEFAULT_PORT }],
            false => self.listen_addresses.clone(),
        }
    }

    pub fn overrides(&self) -> Overrides {
        let password_is_set = std::env::var_os(PASSWORD_VARIABLE).is_some_and(|password| !password.is_empty());
        Overrides {
            logs: self.logs_path.clone(),
            presets: self.presets.clone(),
            state_dir: self.state_dir.clone(),
            redis_url: self.redis_url.clone(),
            redis_password_file: self.redis_password_file.clone(),
            redis_password_env: password_is_set.then(|| PASSWORD_VARIABLE.to_owned()),
        }
    }
}

impl CheckArgs {
    pub fn has_generic_rules_only(&self) -> bool {
        self.config_file.is_none() && self.presets.is_empty()
    }

    pub fn overrides(&self) -> Overrides {
        Overrides { presets: self.presets.clone(), ..Overrides::default() }
    }
}

impl ReplayArgs {
    pub fn overrides(&self) -> Overrides {
        Overrides { presets: self.presets.clone(), ..Overrides::default() }
    }
}

impl DrillArgs {
    /// The password for Redis, if it is not in the URL.
    pub fn password(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.redis_password_file else {
            return Ok(std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty()));
        };
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read the password file {}", path.display()))?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// A run id is part of keys and label values.
fn parse_run_id(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    match is_plain && (4..=32).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err("expected 4 to 32 of a-z, 0-9 and -".to_owned()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("expected a number of at least 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Command, NotParsed> {
        Cli::parse_from(std::iter::once("redis_lock_exporter").chain(arguments.split_whitespace()))
    }

    #[test]
    fn run_is_the_default() {
        for arguments in
            ["--logs.path a --logs.path b --preset cordum", "run --logs.path a --logs.path b --preset cordum"]
        {
            let Ok(Command::Run(args)) = parse(arguments) else { panic!("{arguments} is not run") };
            assert_eq!(args.logs_path, ["a", "b"]);
            assert_eq!(args.presets, ["cordum"]);
            assert_eq!(args.listen_addresses(), [ListenAddress::Tcp { host: String::new(), port: 9877 }]);
            assert_eq!((args.log_level, args.log_format), (LogLevel::Info, LogFormat::Text));
        }
    }

    #[test]
    fn subcommands() {
        let Ok(Command::Check(args)) = parse("check --config.file a.yaml --logs - --output json") else {
            panic!("check")
        };
        assert_eq!(args.output, CheckOutput::Json);
        let Ok(Command::Replay(args)) = parse("replay --preset cordum --output events --redact a b.gz -") else {
            panic!("replay")
        };
        assert_eq!(args.files.len(), 3);
        assert!(args.redact);
    }

    #[test]
    fn bad_usage_is_64_and_help_is_0() {
        let check = |arguments, exit_code| {
            assert_eq!(parse(arguments).map(drop).map_err(|refused| refused.exit_code), Err(exit_code), "{arguments}");
        };
        check("--no-such-flag", EXIT_USAGE);
        check("--web.listen-address 9877", EXIT_USAGE);
        check("--log.level loud", EXIT_USAGE);
        check("--web.max-connections 0", EXIT_USAGE);
        check("replay", EXIT_USAGE);
        check("advise", EXIT_USAGE);
        check("advise --exporter http://a --prometheus http://b", EXIT_USAGE);
        check("advise --exporter http://a --range 7d", EXIT_USAGE);
        check("advise --prometheus http://a --range 7", EXIT_USAGE);
        check("advise --prometheus http://a --pause 0s", EXIT_USAGE);
        check("--preset cordum check", EXIT_USAGE);
        check("--help", EXIT_OK);
        check("check --help", EXIT_OK);
        check("--version", EXIT_OK);
    }

    #[test]
    fn listen_addresses() {
        for good in [":9877", "127.0.0.1:9877", "[::1]:9877", "localhost:0", "unix:///a/b", "unix:///a?mode=660"] {
            assert_eq!(good.parse::<ListenAddress>().unwrap().to_string(), good);
        }
        for bad in ["", "9877", "localhost", "::1:9877", "[::1]", "[x]:1", ":99999", "http://localhost:9877", "a:b"] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
        for bad in ["unix://a", "unix:///", "unix:///a?mode=9", "unix:///a?mode=7777", "unix:/a"] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
        let Ok(Command::Run(args)) = parse("--web.systemd-socket") else { panic!("run") };
        assert_eq!(args.listen_addresses(), []);
    }
}
