//! The subcommands that do one task and exit. They print text or JSON, and errors on standard
//! error.
//!
//! `main` calls one of them. In reading order:
//!
//! * `check`: checks a configuration, log lines or rule files
//! * `replay`: counts the failures in old logs
//! * `advise`: recommends TTLs and renewal intervals
//! * `presets`: lists the presets
//! * `pack`: writes the bundled rules, dashboards and runbooks to a directory
//! * `healthcheck`: asks a running exporter whether it is healthy
//! * `manual`: manual pages and shell completions
//! * `input`: reads log lines from files or standard input, for `check` and `replay`
//! * `table`: the table that `replay` prints

#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod advise;
pub mod check;
pub mod healthcheck;
mod input;
pub mod manual;
pub mod pack;
pub mod presets;
pub mod replay;
mod table;
