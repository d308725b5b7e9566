//! The one integration binary: every test goes through the CLI, HTTP, files or Redis.

#![allow(clippy::unwrap_used)] // clippy.toml's allowance does not reach the helpers of tests

mod check_logs;
mod configuration;
mod cordum;
mod daemon;
mod exposition;
mod http;
mod lifecycle;
mod lines;
mod model;
mod preset;
mod replay;
mod sample;
mod seeds;
mod server;
mod site;
mod state;
mod tailing;
