//! The types that the other modules share: what log lines report, what Redis shows, and the
//! counters.
//!
//! Nothing here does I/O. In reading order:
//!
//! * `label`: closed sets of label values
//! * `failure`: operations, reasons, conflicts and causes
//! * `log_event`: what one log record reports about one lock
//! * `sighting`: what Redis shows: key reads, link events, owners as hashes
//! * `owner`: how the value of a lock names its owner
//! * `namespace`: lock namespaces and their policy
//! * `key_template`, `key_index`: key patterns with named fields; key -> namespace
//! * `position`: how far a log source was read, and its totals
//! * `pushed_lines`: pushed lines that were counted, to recognize a retry
//! * `counters`: the counters of one namespace, as saved and exposed
//! * `input`: the batches that sources send to the pipeline
//! * `query`: questions about single locks, and their answers

pub mod counters;
pub mod failure;
pub mod input;
pub mod key_index;
pub mod key_template;
pub mod label;
pub mod log_event;
pub mod namespace;
pub mod owner;
pub mod position;
pub mod pushed_lines;
pub mod query;
pub mod sighting;
