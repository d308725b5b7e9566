//! Valkey in the place of Redis: the same protocol, and the same numbers.
//!
//! All other tests can be run against it too: `REDIS_SERVER=valkey-server cargo nextest run keyspace::`.

use std::process::Command;

use super::truth::counts_the_truth;
use crate::redis::RedisServer;

const PROGRAM: &str = "valkey-server";

#[test]
fn watching_valkey_counts_the_truth() {
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        eprintln!("SKIPPED: {PROGRAM} is not installed; scripts/install.sh says why");
        return;
    }
    counts_the_truth(|| {
        let server = RedisServer::start_program(PROGRAM, &[]);
        assert_eq!(server.info("server_name").as_deref(), Some("valkey"));
        server
    });
}
