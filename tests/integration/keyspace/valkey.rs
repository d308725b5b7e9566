//! Tests Valkey instead of Redis: the same protocol and the same counts.
//!
//! All other tests can run against Valkey too: `REDIS_SERVER=valkey-server cargo test --test
//! integration keyspace::`.

use std::process::Command;

use super::truth::counts_the_truth;
use crate::redis::RedisServer;
use crate::skipped::skip;

const PROGRAM: &str = "valkey-server";

#[test]
fn watching_valkey_counts_exactly_what_the_workers_recorded() {
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        return skip("valkey-server is not installed; `make test-all` installs it where it can");
    }
    counts_the_truth(|| {
        let server = RedisServer::start_program(PROGRAM, &[]);
        assert_eq!(server.info("server_name").as_deref(), Some("valkey"));
        server
    });
}
