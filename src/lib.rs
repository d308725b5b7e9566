//! Prometheus exporter for distributed locks in Redis.

pub mod cli;
pub mod commands;
pub mod config;
pub mod event;
pub mod ledger;
pub mod namespace;
pub mod snapshot;
pub mod sources;
