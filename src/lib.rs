//! Prometheus exporter for distributed locks in Redis.
//!
//! It reads the logs of the programs that use the locks, finds the lines that say a lock was lost, and shows each failure as
//! one count, by lock namespace, in a way that survives crashes, restarts and log rotation.
//!
//! ```text
//!  log files, stdin --> tailer --> blocks --> search --> lines --> rules --> events
//!                                                                              |
//!        every second, if changed:  save state, THEN publish   <-- ledger <-- pipeline
//!                                                   |
//!                              /metrics  / (page)  <-'
//! ```
//!
//! # Layout, in reading order
//!
//! * [`event`]: the words everything else speaks: what a line said about a lock, batches
//! * [`namespace`]: lock namespaces and key templates: key -> namespace, log fields -> key
//! * [`config`]: YAML, presets and flags -> a checked `Config`, or every problem with its line
//! * [`sources`]: where events come from: files, standard input, and how lines become events
//! * [`ledger`]: THE state, pure: what an event adds to the counters
//! * [`pipeline`]: the only writer: batch -> ledger; save, then publish
//! * [`state`]: the state file: positions and counters together, atomically
//! * [`snapshot`]: what is published
//! * [`exposition`]: every metric name and HELP; a snapshot as text
//! * [`server`]: HTTP routes
//! * [`cli`], [`commands`]: flags, and one file for each command
//! * [`clock`]: the wall clock
//!
//! Invariants: the ledger does no I/O and reads no clock; nothing but the pipeline writes to it; label values come from the
//! configuration or from closed enums, never from input; nothing is published that was not saved.

pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod event;
pub mod exposition;
pub mod ledger;
pub mod namespace;
pub mod pipeline;
pub mod server;
pub mod snapshot;
pub mod sources;
pub mod state;
