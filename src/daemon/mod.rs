//! The daemon: starts the sources, the pipeline and the HTTP server, reloads the configuration, and
//! stops.
//!
//! `main` calls [`run::run`]. In reading order:
//!
//! * `run`: start, reload, stop
//! * `pipeline`: the only writer of the ledger; it applies batches, saves, then publishes
//! * `state_file`: saves positions and counters in one file, which it replaces atomically
//! * `memory_file`: saves incidents and the last hour for the next start, encrypted
//! * `systemd`: messages to the service manager

pub mod memory_file;
pub mod pipeline;
pub mod run;
pub mod state_file;
mod systemd;
