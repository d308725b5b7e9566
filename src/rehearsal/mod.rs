//! Simulations: programs that really lock keys in Redis, and failures caused on purpose. The daemon
//! uses nothing from this module.
//!
//! `main` calls [`drill`] and [`demo`]. Tests and examples use [`fleet`]. In reading order:
//!
//! * `fleet`: simulated workers that lock in a real Redis, and a record of what they did
//! * `drill`: the `drill` command, which causes lock failures and checks that the exporter and
//!   Prometheus report them
//! * `demo`: the `demo` command, which runs a fleet, an exporter, Prometheus and a sequence of
//!   incidents
//! * `rule_scaling`: alert rules with shorter durations
//! * `stop_signals`: Ctrl-C, SIGTERM and the other signals that stop a command

#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod demo;
pub mod drill;
pub mod fleet;
pub mod rule_scaling;
mod stop_signals;
