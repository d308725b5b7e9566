//! Prometheus exporter for distributed locks in Redis.
//!
//! Two eyes. One reads the logs of the programs that use the locks and finds the lines that say a lock was lost; the other
//! looks at the keys in Redis and sees every lock taken, renewed, released, expired or taken over. What both see is joined:
//! each failure is one count, by lock namespace, with its cause, in a way that survives crashes, restarts and log rotation.
//!
//! ```text
//!  log files, stdin --> tailer --> blocks --> search --> lines --> rules --> events --.
//!  journalctl, pushed lines --> entries with fields -------^                          |
//!  Redis: pushes, SCAN, reads --> one link for each primary --> sightings ------------+--> pipeline --> ledger
//!             ^                                                                       |        |
//!             '-------------- "read these keys" (a deadline has come) <---------------|--------'
//!                                                                                     v
//!                                       every second, if changed:  save state, THEN publish
//!                                                                                     |
//!                                            /metrics  /api  / (page)  <--------------'
//! ```
//!
//! # Modules, in reading order
//!
//! A module uses only modules above it in this list. A test (`tests/integration/architecture.rs`) reads the list and
//! enforces this.
//!
//! * [`util`]: clocks, durations, percent encoding, backoff
//! * [`model`]: the words that all modules share: failures, log events, sightings, namespaces, counters, positions
//! * [`config`]: YAML, presets and flags -> a checked `Config`, or every problem with its line
//! * [`snapshot`]: the numbers that the pipeline publishes
//! * [`logs`]: log sources: files, standard input, journals, pushed lines -> log events
//! * [`keyspace`]: the Redis source: one link for each primary; keys -> sightings
//! * [`ledger`]: THE state, pure: counts failures and lock transitions, and finds why locks were lost
//! * [`report`]: health sentences and TTL advice from a snapshot
//! * [`exposition`]: every metric name and HELP; a snapshot as text
//! * [`bundle`]: rules, dashboards and runbooks inside the program; the check of rule files
//! * [`http`]: the server: `/metrics`, the API, the page, the push endpoint
//! * [`client`]: HTTP requests to an exporter or to Prometheus
//! * [`cli`]: flags and exit codes
//! * [`daemon`]: start, reload, stop; the pipeline and the state file
//! * [`commands`]: the commands that answer one question
//! * [`rehearsal`]: simulated programs that lock, `drill` and `demo`
//!
//! Invariants: the ledger does no I/O and reads no clock; nothing but the pipeline writes to it; label values come from the
//! configuration or from closed enums, never from input; nothing is published that was not saved; nothing but `rehearsal` writes to
//! Redis; an owner's token is hashed where it is read and kept nowhere.

// The unit tests of `keyspace` share the integration tests' servers, which name the crate.
#[cfg(test)]
extern crate self as redis_lock_exporter;

pub mod bundle;
pub mod cli;
pub mod client;
pub mod commands;
pub mod config;
pub mod daemon;
pub mod exposition;
pub mod http;
pub mod keyspace;
pub mod ledger;
pub mod logs;
pub mod model;
pub mod rehearsal;
pub mod report;
pub mod snapshot;
pub mod util;
