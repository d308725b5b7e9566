//! Prometheus exporter for distributed locks in Redis.

pub mod event;
pub mod ledger;
pub mod namespace;
pub mod snapshot;
pub mod sources;
