//! Tests the causes of losses. Each test produces a cause in a real Redis, and the holder logs the
//! loss as Cordum does.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use redis_lock_exporter::rehearsal::fleet::LockToken;
use redis_lock_exporter::util::clock;
use serde_json::Value;

use super::stage::{Counted, Program, is_watching, json};
use crate::daemon::{Daemon, Samples, sum};
use crate::lines::Line;
use crate::redis::RedisServer;
use crate::redis::proxy::Proxy;
use crate::site::Site;
use crate::undisturbed::undisturbed;

const TTL: Duration = Duration::from_secs(30);
/// Long enough that the exporter reads the lock more than once on a busy machine.
const SHORT_TTL: Duration = Duration::from_secs(3);

/// Cordum's workflow engine, its log, its Redis, and the exporter.
struct Engine {
    server: RedisServer,
    site: Site,
    daemon: Daemon,
    program: Program,
    /// All tokens that were ever used.
    tokens: Vec<String>,
}

impl Engine {
    fn start() -> Self {
        let server = RedisServer::start(&[]);
        let port = server.port();
        Self::through(server, port)
    }

    /// Starts an exporter that connects to the server through another port.
    fn through(server: RedisServer, port: u16) -> Self {
        let site = Site::new();
        let redis = format!("{{url: 'redis://127.0.0.1:{port}', response_timeout: 20s}}");
        site.configure(&format!("presets: [cordum]\nlogs: [{{path: SITE/logs/*.log}}]\nredis: {redis}\n"));
        let daemon = site.start_configured(&["--log.level", "debug"]);
        daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
        let program = Program::connect(&server);
        Self { server, site, daemon, program, tokens: Vec::new() }
    }

    fn key(run: &str) -> String {
        format!("cordum:wf:run:lock:{run}")
    }

    fn history(&self, run: &str) -> Value {
        let answer = self.daemon.get(&format!("/api/v1/locks/{}", Self::key(run)));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Waits until the exporter sees the owner, and returns the owner's hash.
    fn seen(&mut self, run: &str, before: Option<&str>) -> String {
        self.tokens.push(self.server.text(&["GET", &Self::key(run)]));
        let owner = |history: &Value| history["now"]["owner"].as_str().map(str::to_owned);
        self.daemon.wait(&format!("a hold of {run}"), |_| {
            owner(&self.history(run)).is_some_and(|owner| Some(owner.as_str()) != before)
        });
        owner(&self.history(run)).unwrap()
    }

    /// Acquires the lock for a new holder and returns the hash of its token.
    fn acquire(&mut self, run: &str, ttl: Duration) -> (LockToken, String) {
        let token = self.program.acquire(&Self::key(run), ttl);
        let owner = self.seen(run, None);
        (token, owner)
    }

    /// Waits until the last hold of a lock has ended, and checks how it ended.
    fn wait_end(&self, run: &str, what: &str) {
        self.daemon.wait(&format!("the end of the hold of {run}"), |_| self.history(run)["now"].is_null());
        let history = self.history(run);
        assert_eq!(history["history"][0]["what"], what, "{history}");
    }

    fn log(&self, message: &str, attributes: &[(&str, &str)]) {
        let line = Line::new("workflow-engine", message, attributes).json(&clock::format(clock::now()).unwrap());
        self.site.append("logs/engine.log", line + "\n");
    }

    /// The holder tries to release a lock that it has lost.
    fn release_in_vain(&mut self, run: &str, token: &LockToken) {
        let key = Self::key(run);
        assert!(!self.program.release(&key, token));
        self.log("lock release skipped: token mismatch", &[("key", &key)]);
    }

    /// The holder tries to renew a lock that it has lost. The log line contains only the id.
    fn renew_in_vain(&mut self, run: &str, token: &LockToken) {
        assert!(!self.program.renew(&Self::key(run), token, TTL));
        self.log("run lock renewal failed", &[("run_id", run), ("error", "lock not owned")]);
    }

    /// Waits for this number of causes and returns them.
    fn causes(&self, n_causes: f64) -> BTreeMap<String, u64> {
        self.daemon.wait(&format!("{n_causes} causes"), |daemon| {
            sum(&daemon.scrape(), "redis_lock_not_owned_causes_total") >= n_causes
        });
        let samples = self.daemon.scrape();
        assert_eq!(sum(&samples, "redis_lock_not_owned_total"), n_causes, "each loss must have one cause");
        let of_workflow = "redis_lock_not_owned_causes_total{lock_namespace=\"workflow\",cause=\"";
        let causes = samples.iter().filter_map(|(series, count)| {
            Some((series.strip_prefix(of_workflow)?.strip_suffix("\"}")?.to_owned(), *count as u64))
        });
        causes.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the API's description of the loss of a lock.
    fn incident(&self, run: &str, operation: &str) -> Value {
        let page = json(&self.daemon, "/api/v1/incidents?lock_namespace=workflow");
        let lock = Self::key(run);
        let found = page["incidents"].as_array().unwrap().iter().find(|incident| {
            let is_lock = incident["lock"] == lock.as_str() || incident["lock"] == run;
            is_lock && incident["operation"] == operation
        });
        found.unwrap_or_else(|| panic!("{run} {operation}: {page}")).clone()
    }

    /// Checks that no token was stored, served or logged.
    fn check_silence(&self) {
        let mut output = self.daemon.log();
        for path in ["/", "/metrics", "/-/ready", "/api/v1/namespaces", "/api/v1/locks", "/api/v1/incidents"] {
            output += &self.daemon.get(path).text();
        }
        for lock in ["expired", "stopped", "deleted", "taken", "lost"] {
            output += &self.history(lock).to_string();
        }
        for file in fs::read_dir(self.site.path("state")).unwrap() {
            output += &String::from_utf8_lossy(&fs::read(file.unwrap().path()).unwrap());
        }
        assert!(!self.tokens.is_empty());
        for token in &self.tokens {
            assert!(token.len() == 32 && !output.contains(token), "{token} in {output}");
        }
    }
}

fn ratio(samples: &Samples, name: &str) -> f64 {
    samples[&format!("redis_lock_{name}{{redis=\"redis\",lock_namespace=\"workflow\",window=\"5m\"}}")]
}

fn check_incident(incident: &Value, cause: &str, owner: &str, next_owner: Option<&str>, rule: &str) {
    assert_eq!(incident["cause"], cause, "{incident}");
    assert_eq!(incident["owner"], owner, "{incident}");
    assert_eq!(incident["next_owner"].as_str(), next_owner, "{incident}");
    assert_eq!(incident["rule"], rule, "{incident}");
    let (lost, found) = (incident["lost_at"].as_f64().unwrap(), incident["at"].as_f64().unwrap());
    assert!(lost <= found + 2.0 && found - lost < 30.0, "{incident}");
}

#[test]
fn five_causes_of_losses_are_identified() {
    undisturbed(|| {
        let mut engine = Engine::start();
        let (expired, expired_owner) = engine.acquire("expired", SHORT_TTL);
        let (stopped, stopped_owner) = engine.acquire("stopped", SHORT_TTL);
        assert!(engine.program.renew(&Engine::key("stopped"), &stopped, SHORT_TTL * 2));

        let (deleted, deleted_owner) = engine.acquire("deleted", TTL);
        assert!(engine.program.delete(&Engine::key("deleted")));
        engine.wait_end("deleted", "released");
        engine.release_in_vain("deleted", &deleted);

        let (taken, taken_owner) = engine.acquire("taken", TTL);
        // The preset says that Cordum never overwrites a lock, so this counts as a release until the
        // holder reports the loss.
        let thief = engine.program.steal(&Engine::key("taken"), TTL);
        let thief_owner = engine.seen("taken", Some(&taken_owner));
        engine.release_in_vain("taken", &taken);
        assert!(engine.program.release(&Engine::key("taken"), &thief));

        engine.log("lock release skipped: token mismatch", &[("key", &Engine::key("never-seen"))]);

        engine.wait_end("expired", "expired");
        let (next, next_owner) = engine.acquire("expired", TTL);
        engine.release_in_vain("expired", &expired);
        assert!(engine.program.release(&Engine::key("expired"), &next));

        engine.wait_end("stopped", "expired");
        engine.renew_in_vain("stopped", &stopped);
        engine.release_in_vain("stopped", &stopped);

        let causes = engine.causes(6.0);
        let expected = [
            ("deleted_early", 1),
            ("expired_never_renewed", 1),
            ("renewals_stopped", 2),
            ("taken_over", 1),
            ("unknown", 1),
        ];
        assert_eq!(causes, expected.map(|(cause, count)| (cause.to_owned(), count)).into());

        let samples = engine.daemon.scrape();
        let counted = Counted {
            acquisitions: 6,
            renewals: 1,
            releases: 4,
            expirations: 2,
            changes_after_expiry: 1,
            changes_after_release: 1,
            ..Default::default()
        };
        assert_eq!(Counted::of(&samples), counted);
        let check_ratio = |name: &str, expected: f64| {
            let shown = ratio(&samples, name);
            assert!((shown - expected).abs() < 1e-5, "{name}: {shown} instead of {expected}");
        };
        check_ratio("not_owned_ratio", 6.0 / (6.0 + 4.0 + 1.0));
        check_ratio("renewal_failure_ratio", 1.0 / (1.0 + 1.0));
        check_ratio("expiry_ratio", 2.0 / (2.0 + 4.0));

        assert_eq!(json(&engine.daemon, "/api/v1/incidents")["total"], 6);
        let check = |run: &str, operation: &str, cause: &str, owner: &str, next_owner: Option<&str>| {
            let rule = if operation == "renew" { "cordum/run-renewal-failed" } else { "cordum/token-mismatch" };
            check_incident(&engine.incident(run, operation), cause, owner, next_owner, rule);
        };
        check("deleted", "release", "deleted_early", &deleted_owner, None);
        check("taken", "release", "taken_over", &taken_owner, Some(&thief_owner));
        check("expired", "release", "expired_never_renewed", &expired_owner, Some(&next_owner));
        check("stopped", "renew", "renewals_stopped", &stopped_owner, None);
        check("stopped", "release", "renewals_stopped", &stopped_owner, None);
        let unknown = engine.incident("never-seen", "release");
        assert_eq!((&unknown["cause"], &unknown["lost_at"]), (&Value::from("unknown"), &Value::Null));
        engine.check_silence();
    });
}

impl Engine {
    /// Redis restarts empty, and the holder notices at once.
    fn lose_all(&mut self, lost: &LockToken) {
        self.server.kill();
        self.server.restart();
        self.program = Program::connect(&self.server);
        self.release_in_vain("lost", lost);
    }

    fn check_lost(&self, owner: &str) {
        assert_eq!(self.causes(1.0), [("lost_in_failover".to_owned(), 1)].into());
        check_incident(&self.incident("lost", "release"), "lost_in_failover", owner, None, "cordum/token-mismatch");
        // The exporter may read the log line before or after it sees the restart in Redis.
        let history = self.history("lost");
        let is_failover = |entry: &Value| entry["what"] == "lost_in_failover";
        assert!(history["history"].as_array().unwrap().iter().any(is_failover), "{history:#}");
        self.check_silence();
    }
}

#[test]
fn a_redis_restart_is_the_cause_of_a_loss() {
    let mut engine = Engine::start();
    let (lost, owner) = engine.acquire("lost", TTL);
    engine.lose_all(&lost);
    engine.check_lost(&owner);
}

/// The exporter reads the log line long before Redis can show the reason, so the cause is
/// determined later.
#[test]
fn a_redis_restart_that_is_seen_late_is_the_cause_of_a_loss() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port());
    let mut engine = Engine::through(server, proxy.port());
    let (lost, owner) = engine.acquire("lost", TTL);
    proxy.stall();
    engine.lose_all(&lost);
    sleep(Duration::from_secs(6));
    proxy.resume();
    engine.check_lost(&owner);
}
