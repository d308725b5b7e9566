//! The only integration test binary. Every test uses the CLI, HTTP, files or Redis.

#![allow(clippy::unwrap_used)] // clippy.toml's allowance does not reach the helpers of tests

mod alertmanager;
mod api;
mod architecture;
mod check_logs;
mod check_rules;
mod configuration;
mod cordum;
mod daemon;
mod dashboards;
mod demo;
mod drill;
mod endtoend;
mod exposition;
mod fleet;
mod http;
mod journal;
mod keyspace;
mod lifecycle;
mod lines;
mod model;
mod pack;
mod page;
mod preset;
mod presets;
mod prometheus;
mod push;
mod records;
mod redis;
mod replay;
mod runbooks;
mod sample;
mod seeds;
mod server;
mod site;
mod skipped;
mod state;
mod tailing;
mod undisturbed;
mod web;
