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
//! # Layout, in reading order
//!
//! * [`event`]: the words everything else speaks: what a line said about a lock, batches
//! * [`observation`]: what Redis tells: sightings of keys, news of links, owners as hashes
//! * [`namespace`]: lock namespaces and key templates: key -> namespace, log fields -> key
//! * [`config`]: YAML, presets and flags -> a checked `Config`, or every problem with its line
//! * [`sources`]: where events come from: files, standard input, journals, what is pushed, and how lines
//!   become events; Redis and its links
//! * [`ledger`]: THE state, pure: what events and sightings add to the counters, and why locks were lost
//! * [`advice`]: which TTL and renewal interval the locks should have, pure
//! * [`pipeline`]: the only writer: batch -> ledger; save, then publish
//! * [`state`]: the state file: positions and counters together, atomically
//! * [`snapshot`]: what is published
//! * [`health`]: what is wrong now, in sentences
//! * [`inquiry`]: questions about single locks, and their answers
//! * [`exposition`]: every metric name and HELP; a snapshot as text
//! * [`server`]: HTTP routes
//! * [`pack`]: rules, dashboards, runbooks and examples that are part of the program
//! * `systemd`: what the service manager is told
//! * [`cli`], [`commands`]: flags, and one file for each command
//! * [`rule_scaling`]: alert rules that run faster, for demonstrations and tests
//! * [`fleet`]: simulated workers that really lock, and a record of what they did
//! * [`http_client`]: one GET of one URL, for the commands that ask an exporter or Prometheus
//! * [`prometheus`]: questions to a Prometheus, for the same commands
//! * [`clock`]: the wall clock and one that never steps
//!
//! Invariants: the ledger does no I/O and reads no clock; nothing but the pipeline writes to it; label values come from the
//! configuration or from closed enums, never from input; nothing is published that was not saved; nothing but `fleet` writes to
//! Redis; an owner's token is hashed where it is read and kept nowhere.

pub mod bundle;
pub mod cli;
pub mod client;
pub mod commands;
pub mod config;
pub mod exposition;
pub mod fleet;
pub mod http;
pub mod keyspace;
pub mod ledger;
pub mod logs;
pub mod model;
pub mod pipeline;
pub mod report;
pub mod rule_scaling;
pub mod snapshot;
pub mod state;
mod systemd;
pub mod util;
