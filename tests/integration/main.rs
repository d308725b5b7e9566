//! The one integration binary: every test goes through the CLI, HTTP, files or Redis.

#![allow(clippy::unwrap_used)] // clippy.toml's allowance does not reach the helpers of tests

mod configuration;
mod daemon;
mod exposition;
mod http;
mod lifecycle;
mod model;
mod sample;
mod server;
mod site;
mod state;
mod tailing;
