//! The one integration binary: every test goes through the CLI, HTTP, files or Redis.

#![allow(clippy::unwrap_used)] // helpers of tests are not inside a #[test] function

mod configuration;
