//! Simulations: programs that really lock, and faults on purpose. The daemon needs none of it.
//!
//! `main` calls [`drill`] and [`demo`]; tests and examples use [`fleet`]. In reading order:
//!
//! * `fleet`: simulated workers that lock in a real Redis, and a record of what they did
//! * `drill`: the `drill` command: causes one failure and checks that the exporter and Prometheus report it
//! * `demo`: the `demo` command: a fleet, an exporter, Prometheus and a sequence of incidents
//! * `rule_scaling`: alert rules with shorter durations
//! * `stop_signals`: Ctrl-C and SIGTERM

#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod demo;
pub mod drill;
pub mod fleet;
pub mod rule_scaling;
mod stop_signals;
