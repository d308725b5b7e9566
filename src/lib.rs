//! Prometheus exporter for distributed locks in Redis.

pub mod event;
pub mod exposition;
pub mod ledger;
pub mod namespace;
pub mod server;
pub mod snapshot;
