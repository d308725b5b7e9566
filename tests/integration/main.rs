//! The one integration binary: every test goes through the CLI, HTTP, files or Redis.

mod exposition;
mod sample;
