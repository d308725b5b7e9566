//! Tests how the exporter infers events of one lock on a real Redis from two consecutive sightings.

use std::thread;
use std::time::{Duration, Instant};

use super::scene::{Counts, Scene, expect, number, sleep_ms, wait_passes, wait_watching};
use super::stage::json;
use crate::daemon::sum;
use crate::redis::RedisServer;
use crate::redis::client::{Client, text};
use crate::undisturbed::undisturbed;

const JOBS: &str = "  - {name: jobs, keys: ['jobs:{id}'], ttl: 2s, renew_every: 500ms, takeover_slo: 2s}";
const LEADER: &str = "  - {name: leader, keys: [leader], style: loop, ttl: 3s, takeover_slo: 5s}";
/// Two namespaces on one key, like Cordum's gateway and scheduler.
const TWO_REGIMES: &str = "
  - {name: approval, keys: ['job:{id}'], components: [gateway], ttl: 5s}
  - {name: scheduler, keys: ['job:{id}'], components: [scheduler], ttl: 60s, renew_every: 5s}";

/// Gives a lock a new TTL. Returns the remaining milliseconds of the old TTL.
fn renew(client: &mut Client, key: &str, ttl: &str) -> f64 {
    let script = "local left = redis.call('PTTL', KEYS[1]) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return left";
    text(&client.command(&["EVAL", script, "1", key, ttl])).parse().unwrap()
}

#[test]
fn a_release_shortly_before_the_deadline_is_not_an_expiration() {
    undisturbed(|| {
        let scene = Scene::watching(JOBS, "");
        let mut client = scene.client();
        for number in 0..20 {
            client.command(&["SET", &format!("jobs:{number}"), "a", "NX", "PX", "1500"]);
        }
        // Half of the locks are released with a fifth of a second left. The other half expire.
        while text(&client.command(&["PTTL", "jobs:0"])).parse::<i64>().unwrap() > 200 {
            sleep_ms(5);
        }
        let mut released = 0;
        for number in 0..10 {
            let answer = client.command(&["DEL", &format!("jobs:{number}")]);
            released += u64::from(matches!(answer, redis::Value::Int(1)));
        }
        assert_eq!(released, 10);
        sleep_ms(400);
        scene.expect("jobs", Counts { acquisitions: 20, releases: 10, expirations: 10, ..Counts::default() });
        // Ten holds of about 1.3 seconds and ten of 1.5.
        let samples = scene.daemon.scrape();
        assert_eq!(number(&samples, "redis_lock_hold_seconds_count", &[("lock_namespace", "jobs")]), 20.0);
        let sum = number(&samples, "redis_lock_hold_seconds_sum", &[("lock_namespace", "jobs")]);
        assert!((26.0..30.0).contains(&sum), "{sum}");
    });
}

#[test]
fn renewal_margins_are_fractions_of_the_observed_ttl() {
    undisturbed(|| {
        let scene = Scene::watching(JOBS, "");
        let mut client = scene.client();
        // The configured TTL is 2 seconds, but the observed 4 seconds count.
        client.command(&["SET", "jobs:1", "a", "PX", "4000"]);
        sleep_ms(1000);
        let left = renew(&mut client, "jobs:1", "4000");
        scene.expect("jobs", Counts { held: 1, acquisitions: 1, renewals: 1, ..Counts::default() });
        let margin = scene.number("redis_lock_renewal_margin_ratio_sum", "jobs");
        assert!((-0.03..=0.005).contains(&(margin - left / 4000.0)), "{margin} with {left} ms left");
        // From now on with another TTL.
        let left = renew(&mut client, "jobs:1", "8000");
        scene.expect("jobs", Counts { held: 1, acquisitions: 1, renewals: 2, ..Counts::default() });
        let margin = scene.number("redis_lock_renewal_margin_ratio_sum", "jobs") - margin;
        assert!((margin - left / 8000.0).abs() < 0.03, "{margin} with {left} ms left");
        // A shorter TTL is not a renewal.
        client.command(&["PEXPIRE", "jobs:1", "5000"]);
        scene.expect("jobs", Counts { held: 1, acquisitions: 1, renewals: 2, ..Counts::default() });
        assert_eq!(scene.number("redis_lock_renewal_margin_ratio_count", "jobs"), 2.0);
    });
}

/// A library renews its locks every second, and acquires some for a fixed time or with their own
/// TTL.
#[test]
fn only_locks_that_should_have_been_renewed_are_overdue() {
    let scene = Scene::watching("  - {name: jobs, keys: ['jobs:{id}'], ttl: 60s, renew_every: 1s}", "");
    let mut client = scene.client();
    client.command(&["SET", "jobs:fixed", "a", "PX", "600000"]);
    client.command(&["SET", "jobs:long", "a", "PX", "600000"]);
    client.command(&["SET", "jobs:usual", "a", "PX", "60000"]);
    sleep_ms(200);
    // Every 10 seconds from now on.
    client.command(&["PEXPIRE", "jobs:long", "600000"]);
    scene.expect("jobs", Counts { held: 3, acquisitions: 3, renewals: 1, ..Counts::default() });
    scene.daemon.wait("one overdue renewal", |_| scene.number("redis_lock_renewal_overdue", "jobs") == 1.0);
    let locks = json(&scene.daemon, "/api/v1/locks?lock_namespace=jobs&sort=key");
    let is_overdue = |lock: &serde_json::Value| lock["renewal_overdue"].as_bool().unwrap();
    let overdue = locks["locks"].as_array().unwrap().iter().filter(|lock| is_overdue(lock));
    assert_eq!(overdue.map(|lock| lock["key"].as_str().unwrap()).collect::<Vec<_>>(), ["jobs:usual"]);
    // 15 seconds after its renewal the second lock is overdue too. The third is never overdue.
    scene.daemon.wait("two overdue renewals", |_| scene.number("redis_lock_renewal_overdue", "jobs") == 2.0);
}

#[test]
fn takeover_time_starts_at_the_last_activity_of_the_previous_owner() {
    undisturbed(|| {
        let scene = Scene::watching(LEADER, "");
        let mut client = scene.client();
        let mut timed = |command: &[&str]| {
            let before = Instant::now();
            client.command(command);
            (before, Instant::now())
        };
        // The takeover time is known to within the duration of the commands plus the delay of the
        // sightings.
        let check = |shown: f64, (from, lived): (Instant, Instant), (taken, until): (Instant, Instant)| {
            let (shortest, longest) = ((taken - lived).as_secs_f64(), (until - from).as_secs_f64());
            assert!((shortest - 0.3..longest + 0.3).contains(&shown), "{shown} of {shortest} to {longest}");
        };
        timed(&["SET", "leader", "a", "PX", "3000"]);
        sleep_ms(500);
        let last_sign_of_a = timed(&["PEXPIRE", "leader", "3000"]);
        scene.wait_expired("leader");
        let taken_by_b = timed(&["SET", "leader", "b", "NX", "PX", "3000"]);
        scene.sync();
        let within = |answer| [("lock_namespace", "leader"), ("within_slo", answer)];
        let samples = scene.daemon.scrape();
        let takeovers = |answer| number(&samples, "redis_lock_takeovers_total", &within(answer));
        assert_eq!((takeovers("true"), takeovers("false")), (1.0, 0.0), "{}", scene.keyspace_metrics());
        let first = scene.number("redis_lock_takeover_seconds_sum", "leader");
        check(first, last_sign_of_a, taken_by_b);
        // `b` disappears, and `c` comes late.
        thread::sleep(Duration::from_millis(5200).saturating_sub(taken_by_b.1.elapsed()));
        let taken_by_c = timed(&["SET", "leader", "c", "NX", "PX", "600000"]);
        let expected =
            Counts { held: 1, acquisitions: 3, renewals: 1, expirations: 2, after_expiry: 2, ..Counts::default() };
        scene.expect("leader", expected);
        let samples = scene.daemon.scrape();
        let takeovers = |answer| number(&samples, "redis_lock_takeovers_total", &within(answer));
        assert_eq!((takeovers("true"), takeovers("false")), (1.0, 1.0));
        let second = scene.number("redis_lock_takeover_seconds_sum", "leader") - first;
        check(second, taken_by_b, taken_by_c);
    });
}

#[test]
fn owner_changes_follow_a_release_an_expiration_or_an_unknown_end() {
    undisturbed(|| {
        let scene = Scene::watching(JOBS, "");
        scene.step(&["SET", "jobs:released", "a", "NX", "PX", "600000"]);
        scene.step(&["DEL", "jobs:released"]);
        scene.step(&["SET", "jobs:released", "b", "NX", "PX", "600000"]);
        scene.step(&["SET", "jobs:expired", "a", "NX", "PX", "3000"]);
        scene.wait_expired("jobs:expired");
        scene.step(&["SET", "jobs:expired", "b", "NX", "PX", "600000"]);
        scene.step(&["SET", "jobs:stolen", "a", "NX", "PX", "600000"]);
        scene.step(&["SET", "jobs:stolen", "b", "PX", "600000"]);
        let expected = Counts {
            held: 3,
            acquisitions: 6,
            releases: 1,
            expirations: 1,
            unknown_ends: 1,
            after_release: 1,
            after_expiry: 1,
            after_unknown: 1,
            ..Counts::default()
        };
        scene.expect("jobs", expected);
        // The same owner again is not an owner change.
        scene.step(&["DEL", "jobs:released"]);
        scene.step(&["SET", "jobs:released", "b", "NX", "PX", "600000"]);
        scene.expect("jobs", Counts { acquisitions: 7, releases: 2, ..expected });
    });
}

/// A release and the next acquisition in one transaction are announced together.
#[test]
fn a_quick_handover_is_a_release_if_nobody_overwrites_a_lock() {
    undisturbed(|| {
        let namespaces = "
  - {name: nx, keys: ['nx:{id}'], acquired_with: nx}
  - {name: any, keys: ['any:{id}']}";
        let scene = Scene::watching(namespaces, "");
        for key in ["nx:1", "any:1"] {
            scene.step(&["SET", key, "a", "NX", "PX", "600000"]);
            let set: [&str; 6] = ["SET", key, "b", "NX", "PX", "600000"];
            let replies = scene.client().pipeline(&[&["MULTI"], &["DEL", key], &set, &["EXEC"]]);
            assert_eq!(replies.last(), Some(&redis::Value::Array(vec![redis::Value::Int(1), redis::Value::Okay])));
        }
        let handover = Counts { held: 1, acquisitions: 2, releases: 1, after_release: 1, ..Counts::default() };
        scene.expect("nx", handover);
        scene.expect("any", Counts { releases: 0, after_release: 0, unknown_ends: 1, after_unknown: 1, ..handover });
        // An expired lock was not released, although nobody saw it without an owner.
        scene.step(&["SET", "nx:2", "a", "NX", "PX", "600"]);
        sleep_ms(700);
        scene.step(&["SET", "nx:2", "b", "NX", "PX", "600000"]);
        scene.expect("nx", Counts { held: 2, acquisitions: 4, expirations: 1, after_expiry: 1, ..handover });
    });
}

/// Redis announces a flush of any database, but not of which one. A pass over this keyspace would
/// take a minute.
#[test]
fn counts_are_exact_right_after_a_flush() {
    undisturbed(|| {
        let scene = Scene::watching(JOBS, "scan: {max_redis_share: 0.001}");
        let mut client = scene.client();
        let flushes = |expected: f64| {
            scene.daemon.wait("the flush, and a read of each lock", |daemon| {
                let locks = json(daemon, "/api/v1/locks?search=jobs:");
                let is_doubtful = |lock: &serde_json::Value| lock["doubtful"].as_bool().unwrap();
                sum(&daemon.scrape(), "redis_lock_exporter_tracking_flushes_total") == expected
                    && !locks["locks"].as_array().unwrap().iter().any(is_doubtful)
            });
        };
        scene.step(&["SET", "jobs:held", "a", "NX", "PX", "600000"]);
        let fill = "for number = 1, 100000 do redis.call('SET', 'other:' .. number, 'value') end";
        client.command(&["EVAL", fill, "0"]);
        client.pipeline(&[&["SELECT", "1"], &["FLUSHDB"], &["SELECT", "0"]]);
        flushes(1.0);
        scene.step(&["SET", "jobs:new", "a", "NX", "PX", "600000"]);
        scene.step(&["PEXPIRE", "jobs:held", "900000"]);
        scene.step(&["DEL", "jobs:held"]);
        let expected = Counts { held: 1, acquisitions: 2, renewals: 1, releases: 1, ..Counts::default() };
        scene.expect("jobs", expected);
        // A flush of this database, with a new lock right after it.
        client.pipeline(&[&["FLUSHALL"], &["SET", "jobs:first", "a", "NX", "PX", "600000"], &["EVAL", fill, "0"]]);
        flushes(2.0);
        scene.step(&["SET", "jobs:new", "b", "NX", "PX", "600000"]);
        scene.step(&["DEL", "jobs:first"]);
        let expected = Counts { acquisitions: 4, releases: 2, unknown_ends: 1, after_unknown: 1, ..expected };
        expect(&scene.daemon, "jobs", "the counts after a flush", expected);
    });
}

#[test]
fn a_loop_that_lets_its_lock_expire_changes_owners_once_per_ttl() {
    undisturbed(|| {
        let scene = Scene::watching(LEADER, "");
        let mut client = scene.client();
        // A new token at each tick, and four ticks per TTL.
        let (begun, mut taken) = (Instant::now(), 0);
        for tick in 0..12 {
            let answer = client.command(&["SET", "leader", &format!("token-{tick}"), "NX", "PX", "3000"]);
            taken += u64::from(matches!(answer, redis::Value::Okay));
            sleep_ms(750);
        }
        let ttls = begun.elapsed().as_secs_f64() / 3.0;
        assert!((3.0..=ttls + 1.0).contains(&(taken as f64)), "{taken} in {ttls} times the TTL");
        scene.wait_expired("leader");
        let changes = taken - 1;
        let expected = Counts { acquisitions: taken, expirations: taken, after_expiry: changes, ..Counts::default() };
        scene.expect("leader", expected);
        assert_eq!(scene.number("redis_lock_early_releases_total", "leader"), 0.0);
        // A loop does not release its lock: a release lets two run at once.
        scene.step(&["SET", "leader", "x", "NX", "PX", "3000"]);
        client.command(&["DEL", "leader"]);
        scene.sync();
        assert_eq!(scene.number("redis_lock_early_releases_total", "leader"), 1.0);
        let last_held = scene.number("redis_lock_last_held_timestamp_seconds", "leader");
        sleep_ms(600);
        assert_eq!(scene.number("redis_lock_last_held_timestamp_seconds", "leader"), last_held, "the lock is not held");
    });
}

#[test]
fn one_key_with_two_ttls_belongs_to_two_namespaces() {
    undisturbed(|| {
        let scene = Scene::watching(TWO_REGIMES, "");
        scene.step(&["SET", "job:1", "gateway", "NX", "PX", "5000"]);
        scene.step(&["DEL", "job:1"]);
        scene.step(&["SET", "job:1", "scheduler", "NX", "PX", "60000"]);
        scene.step(&["PEXPIRE", "job:1", "66000"]);
        assert_eq!((scene.counts("approval").held, scene.counts("scheduler").held), (0, 1));
        scene.step(&["DEL", "job:1"]);
        // Expires, and the other namespace acquires the key.
        scene.step(&["SET", "job:1", "gateway", "NX", "PX", "5000"]);
        scene.wait_expired("job:1");
        scene.step(&["SET", "job:1", "scheduler", "NX", "PX", "60000"]);
        // An owner change counts in the namespace that lost the lock.
        let approval = Counts {
            acquisitions: 2,
            releases: 1,
            expirations: 1,
            after_release: 1,
            after_expiry: 1,
            ..Counts::default()
        };
        scene.expect("approval", approval);
        let scheduler =
            Counts { held: 1, acquisitions: 2, renewals: 1, releases: 1, after_release: 1, ..Counts::default() };
        scene.expect("scheduler", scheduler);
    });
}

#[test]
fn holds_too_short_to_be_read_are_counted() {
    let scene = Scene::watching(JOBS, "");
    let mut client = scene.client();
    for number in 0..30 {
        let key = format!("jobs:{number}");
        let set = ["SET", &key, "a", "NX", "PX", "2000"];
        client.pipeline(&[&set, &["DEL", &key]]);
    }
    scene.expect("jobs", Counts { acquisitions: 30, releases: 30, ..Counts::default() });
    assert_eq!(scene.number("redis_lock_hold_seconds_count", "jobs"), 30.0);
}

#[test]
fn first_sightings_count_nothing_and_a_restart_keeps_counters() {
    let server = RedisServer::start(&[]);
    let mut client = server.client();
    for number in 0..5 {
        client.command(&["SET", &format!("jobs:old-{number}"), "a", "PX", "60000"]);
    }
    let mut scene = Scene::start(server, JOBS, "");
    wait_watching(&scene.daemon);
    scene.expect("jobs", Counts { held: 5, ..Counts::default() });
    client.command(&["SET", "jobs:new", "a", "NX", "PX", "60000"]);
    client.command(&["DEL", "jobs:old-0"]);
    let expected = Counts { held: 5, acquisitions: 1, releases: 1, ..Counts::default() };
    scene.expect("jobs", expected);
    // The duration of this hold is unknown.
    assert_eq!(scene.number("redis_lock_hold_seconds_count", "jobs"), 0.0);
    let since = scene.number("redis_lock_observed_since_timestamp_seconds", "jobs");

    scene.daemon.signal("TERM");
    assert!(scene.daemon.wait_for_exit().success());
    // While the exporter is stopped, one lock ends, one appears, one is renewed, and one gets
    // another owner.
    client.command(&["DEL", "jobs:old-1"]);
    client.command(&["SET", "jobs:unseen", "a", "NX", "PX", "60000"]);
    client.command(&["PEXPIRE", "jobs:old-2", "90000"]);
    client.command(&["SET", "jobs:old-3", "b", "PX", "60000"]);
    scene.daemon = scene.site.start_configured(&[]);
    wait_watching(&scene.daemon);
    wait_passes(&scene.daemon, 1.0);
    scene.expect("jobs", expected);
    assert!(scene.number("redis_lock_observed_since_timestamp_seconds", "jobs") > since);
    // Existing locks count from now on, but the duration of their holds is not measured.
    client.command(&["DEL", "jobs:unseen"]);
    client.command(&["PEXPIRE", "jobs:old-2", "120000"]);
    scene.expect("jobs", Counts { held: 4, releases: 2, renewals: 1, ..expected });
    assert_eq!(scene.number("redis_lock_hold_seconds_count", "jobs"), 0.0);
}

#[test]
fn scanning_counts_the_events_that_passes_can_show() {
    undisturbed(|| {
        let namespaces = format!(
            "{LEADER}\n  - {{name: jobs, keys: ['jobs:{{id}}'], ttl: 30s, renew_every: 10s, takeover_slo: 60s}}"
        );
        let scene = Scene::scanning(&namespaces);
        let mut client = scene.client();
        for name in ["released", "renewed", "stolen", "expiring", "passed-on"] {
            let ttl = if name == "expiring" || name == "passed-on" { "15000" } else { "30000" };
            client.command(&["SET", &format!("jobs:{name}"), "a", "NX", "PX", ttl]);
        }
        scene.expect("jobs", Counts { held: 5, acquisitions: 5, ..Counts::default() });
        client.command(&["DEL", "jobs:released"]);
        client.command(&["PEXPIRE", "jobs:renewed", "30000"]);
        client.command(&["SET", "jobs:stolen", "b", "PX", "30000"]);
        scene.sync();
        scene.daemon.wait("both locks expire", |daemon| Counts::of(&daemon.scrape(), "jobs").held == 2);
        client.command(&["SET", "jobs:passed-on", "b", "NX", "PX", "30000"]);
        let expected = Counts {
            held: 3,
            acquisitions: 7,
            renewals: 1,
            releases: 1,
            expirations: 2,
            unknown_ends: 1,
            after_expiry: 1,
            after_unknown: 1,
            ..Counts::default()
        };
        scene.expect("jobs", expected);
        assert_eq!(scene.number("redis_lock_renewal_margin_ratio_count", "jobs"), 1.0);
    });
}

#[test]
fn scanning_distinguishes_namespaces_by_ttl_and_sees_early_releases() {
    undisturbed(|| {
        let namespaces = format!("{TWO_REGIMES}\n  - {{name: leader, keys: [leader], style: loop, ttl: 30s}}")
            .replace("ttl: 5s", "ttl: 20s");
        let scene = Scene::scanning(&namespaces);
        let mut client = scene.client();
        client.command(&["SET", "job:approved", "a", "NX", "PX", "20000"]);
        client.command(&["SET", "job:scheduled", "a", "NX", "PX", "60000"]);
        client.command(&["SET", "leader", "a", "NX", "PX", "30000"]);
        let one = Counts { held: 1, acquisitions: 1, ..Counts::default() };
        scene.expect("approval", one);
        scene.shows("scheduler", one);
        scene.shows("leader", one);
        client.command(&["DEL", "leader"]);
        client.command(&["DEL", "job:scheduled"]);
        let released = Counts { held: 0, releases: 1, ..one };
        scene.expect("leader", released);
        scene.shows("scheduler", released);
        assert_eq!(scene.number("redis_lock_early_releases_total", "leader"), 1.0);
        scene.daemon.wait("the lock expires", |daemon| Counts::of(&daemon.scrape(), "approval").held == 0);
        scene.shows("approval", Counts { held: 0, expirations: 1, ..one });
    });
}

/// Without a watcher, a start also counts nothing, and changes during a restart have an unknown
/// end.
#[test]
fn scanning_counts_no_events_at_a_restart() {
    let server = RedisServer::start(&[]);
    let mut client = server.client();
    client.command(&["SET", "jobs:old", "a", "PX", "60000"]);
    let mut scene = Scene::start(server, JOBS, "scan: {interval: 1s, max_redis_share: 0.5}\nwatch: off\n");
    scene.expect("jobs", Counts { held: 1, ..Counts::default() });
    client.command(&["SET", "jobs:new", "a", "NX", "PX", "60000"]);
    let expected = Counts { held: 2, acquisitions: 1, ..Counts::default() };
    scene.expect("jobs", expected);
    scene.daemon.signal("TERM");
    assert!(scene.daemon.wait_for_exit().success());
    client.command(&["SET", "jobs:unseen", "a", "NX", "PX", "60000"]);
    client.command(&["DEL", "jobs:old"]);
    scene.daemon = scene.site.start_configured(&[]);
    wait_passes(&scene.daemon, 1.0);
    scene.expect("jobs", expected);
}
