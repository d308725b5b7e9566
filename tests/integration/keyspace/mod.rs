//! Tests of the keyspace side: an exporter that observes a real Redis.

mod access;
mod advise;
mod api;
mod causes;
mod cluster;
mod fault_model;
mod faults;
mod findings;
mod layouts;
mod libraries;
mod lives;
mod memory;
mod newest;
mod scene;
mod sentinel;
mod stage;
mod truth;
