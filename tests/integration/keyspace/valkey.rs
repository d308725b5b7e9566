//! Valkey in the place of Redis: the same protocol, and the same numbers.
//!
//! All other tests can be run against it too: `REDIS_SERVER=valkey-server cargo test --test integration keyspace::`.

use std::process::Command;

use super::truth::counts_the_truth;
use crate::redis::RedisServer;
use crate::skipped::skip;

const PROGRAM: &str = "valkey-server";

#[test]
fn watching_valkey_counts_the_truth() {
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        return skip("valkey-server is not installed; `make test-all` installs it where it can");
    }
    counts_the_truth(|| {
        let server = RedisServer::start_program(PROGRAM, &[]);
        assert_eq!(server.info("server_name").as_deref(), Some("valkey"));
        server
    });
}
