//! Prometheus exporter for distributed locks in Redis.
//!
//! There are two kinds of sources. Log sources read the logs of the programs that use the locks and
//! find the records that report a failure. The keyspace source watches the keys in Redis and infers
//! every acquisition, renewal, release and expiration. The ledger joins both: it counts each
//! failure once, by lock namespace, and finds the cause of each loss. The counts survive crashes,
//! restarts and log rotation.
//!
//! ```text
//!  log files, stdin --> blocks --> search --> lines --> records --> rules --> log events --.
//!  journalctl, push requests --> streams -------^                                          |
//!                                                                                          v
//!  Redis: pushes, SCAN, reads --> one link per primary --> sightings ----------------> pipeline
//!                                        ^                                              |    |
//!                                        '----- "read these keys" (deadlines) <---------'    |
//!                                                                                            v
//!                                                                                         ledger
//!  once a second: the pipeline saves the state, then publishes a snapshot
//!                                                                |
//!                                                                v
//!                                          /metrics   /api   / (page)   /-/ready
//! ```
//!
//! # Modules, in reading order
//!
//! A module uses only modules above it in this list. A test (`tests/integration/architecture.rs`)
//! reads the list and enforces this.
//!
//! * [`util`]: clocks, durations, percent encoding, backoff, free ports
//! * [`model`]: types that all modules share: failures, log events, sightings, namespaces, counters
//! * [`config`]: YAML, presets and flags -> a checked `Config`, or every problem with its line
//! * [`snapshot`]: the numbers that the pipeline publishes
//! * [`logs`]: log sources: files, standard input, journals, pushed lines -> log events
//! * [`keyspace`]: the Redis source: one link for each primary; keys -> sightings
//! * [`ledger`]: locks and counters, pure: counts failures and transitions, finds causes of losses
//! * [`report`]: health findings and TTL advice from a snapshot
//! * [`exposition`]: every metric name and HELP text; a snapshot as text
//! * [`bundle`]: rules, dashboards and runbooks in the program; the check of rule files
//! * [`http`]: the server: `/metrics`, the API, the page, the push endpoint
//! * [`client`]: HTTP requests to an exporter or to Prometheus
//! * [`cli`]: flags and exit codes
//! * [`daemon`]: start, reload, stop; the pipeline and the state file
//! * [`commands`]: commands that run once and exit, such as `check` and `replay`
//! * [`rehearsal`]: simulated programs that use locks, `drill` and `demo`
//!
//! # Invariants
//!
//! * The ledger does no I/O and reads no clock. Only the pipeline changes it.
//! * Label values come from the configuration or from closed enums, never from input.
//! * Numbers are saved before they are published, unless the state cannot be saved.
//! * Only `rehearsal` writes to Redis.
//! * The token of an owner is hashed as soon as it is read. Only the hash is kept.

// The unit tests of `keyspace` include the test servers of the integration tests. These servers
// refer to the crate by its name.
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
