//! The subcommands, one file each. They talk to people: text and JSON on standard output, complaints on standard error.

#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod advise;
pub mod check;
mod check_logs;
mod check_report;
pub mod demo;
pub mod drill;
pub mod healthcheck;
mod input;
pub mod manual;
pub mod pack;
pub mod presets;
pub mod replay;
pub mod run;
mod stop_signals;
mod table;
