//! Tests the key layouts of libraries that these tests do not run. Scripts write keys as the
//! libraries' source code does, and the exporter uses the libraries' presets.

use super::scene::{Counts, Scene, sleep_ms};
use super::stage::json;
use crate::redis::client::Client;

/// The steps that a library performs on its keys. Each step is a script, which is one change.
struct Layout {
    preset: &'static str,
    /// The keys, if the library has no fixed prefix.
    keys: &'static str,
    acquire: &'static str,
    /// A renewal by the same owner.
    renew: &'static str,
    /// Another owner acquires the lock, after a release if the library has no other way.
    take_over: &'static str,
    /// Other keys of the library.
    beside: &'static [&'static str],
}

const LAYOUTS: [Layout; 10] = [
    Layout {
        preset: "redisson",
        keys: "redisson-app:{lock_name}",
        // The field is the client and its thread. The value is the number of entries.
        acquire: "redis.call('HINCRBY', 'redisson-app:a', '32caba49-5799-491b-aa7b-47d789dbca93:61', 1) redis.call('PEXPIRE', 'redisson-app:a', 30000)",
        renew: "redis.call('HINCRBY', 'redisson-app:a', '32caba49-5799-491b-aa7b-47d789dbca93:61', 1) redis.call('PEXPIRE', 'redisson-app:a', 30000)",
        take_over: "redis.call('DEL', 'redisson-app:a') redis.call('HINCRBY', 'redisson-app:a', '32caba49-5799-491b-aa7b-47d789dbca93:62', 1) redis.call('PEXPIRE', 'redisson-app:a', 30000)",
        beside: &[
            "redis.call('RPUSH', 'redisson_lock_queue:{redisson-app:a}', 'x')",
            "redis.call('ZADD', 'redisson_lock_timeout:{redisson-app:a}', 1, 'x')",
            "redis.call('SET', 'redisson_lock_token:{redisson-app:a}', 7)",
            "redis.call('SET', 'redisson_unlock_latch:{redisson-app:a}:1f2e', 1, 'PX', 60000)",
            "redis.call('SET', '{redisson-app:a}:32caba49:61:rwlock_timeout:1', 1, 'PX', 60000)",
            // A name with braces gets no additional braces.
            "redis.call('SET', 'redisson-app:{b}:32caba49:61:rwlock_timeout:1', 1, 'PX', 60000)",
            "redis.call('ZADD', 'redisson-app:{b}:timeout', 1, 'permit')",
        ],
    },
    Layout {
        preset: "sidekiq-unique-jobs",
        keys: "",
        // Without a TTL.
        acquire: "redis.call('HSET', 'uniquejobs:5f1c:LOCKED', 'jid-1', '1782394624.1')",
        renew: "redis.call('HSET', 'uniquejobs:5f1c:LOCKED', 'jid-1', '1782394625.1')",
        take_over: "redis.call('DEL', 'uniquejobs:5f1c:LOCKED') redis.call('HSET', 'uniquejobs:5f1c:LOCKED', 'jid-2', '1782394626.1')",
        beside: &[
            "redis.call('SET', 'uniquejobs:5f1c', 'jid-1')",
            "redis.call('RPUSH', 'uniquejobs:5f1c:QUEUED', 'jid-1')",
            "redis.call('RPUSH', 'uniquejobs:5f1c:PRIMED', 'jid-1')",
            "redis.call('SET', 'uniquejobs:5f1c:INFO', '{}')",
            "redis.call('ZADD', 'uniquejobs:digests', 1, 'uniquejobs:5f1c')",
            "redis.call('ZADD', 'uniquejobs:changelog', 1, '{}')",
        ],
    },
    Layout {
        preset: "distributedlock",
        keys: "distributed:{lock_name}",
        acquire: "redis.call('SET', 'distributed:a', 'HOST_17_0f8fad5bd9cb469fa16570867728950e', 'PX', 30000)",
        renew: "redis.call('PEXPIRE', 'distributed:a', 40000)",
        take_over: "redis.call('DEL', 'distributed:a') redis.call('SET', 'distributed:a', 'HOST_17_7c9e6679f5bb4a0fbd2c3a5f6e1d2c3b', 'PX', 30000)",
        // A waiting client does not hold the lock.
        beside: &["redis.call('SET', 'distributed:b.writer', 'HOST_18_0f8fad5bd9cb469f_WRITERWAITING', 'PX', 30000)"],
    },
    Layout {
        preset: "shedlock",
        keys: "",
        // Another time and id of the same host.
        acquire: "redis.call('SET', 'job-lock:default:report', 'ADDED:2026-06-25T13:37:04.123Z@worker-1:0f8fad5b-d9cb-469f-a165-70867728950e', 'PX', 30000)",
        renew: "redis.call('SET', 'job-lock:default:report', 'ADDED:2026-06-25T13:37:14.123Z@worker-1:7c9e6679-7425-40de-944b-e07fc1f90ae7', 'PX', 40000)",
        take_over: "redis.call('DEL', 'job-lock:default:report') redis.call('SET', 'job-lock:default:report', 'ADDED:2026-06-25T13:37:24.123Z@worker-2', 'PX', 30000)",
        beside: &[],
    },
    Layout {
        preset: "redislock",
        keys: "redislock-app:{lock_name}",
        // The token, followed by data of the program.
        acquire: "redis.call('SET', 'redislock-app:a', 'MTIzNDU2Nzg5MDEyMzQ1Ngpod-7', 'PX', 30000)",
        renew: "redis.call('SET', 'redislock-app:a', 'MTIzNDU2Nzg5MDEyMzQ1Ngpod-8', 'PX', 40000)",
        take_over: "redis.call('DEL', 'redislock-app:a') redis.call('SET', 'redislock-app:a', 'YWJjZGVmZ2hpamtsbW5vcApod-7', 'PX', 30000)",
        beside: &[],
    },
    Layout {
        preset: "redlock-net",
        keys: "",
        acquire: "redis.call('SET', 'redlock:orders', '3f2504e0-4f89-41d3-9a0c-0305e82c3301', 'PX', 30000)",
        renew: "redis.call('PEXPIRE', 'redlock:orders', 40000)",
        take_over: "redis.call('DEL', 'redlock:orders') redis.call('SET', 'redlock:orders', '7c9e6679-7425-40de-944b-e07fc1f90ae7', 'PX', 30000)",
        beside: &[],
    },
    Layout {
        preset: "spring-integration",
        keys: "my-registry:{lock_name}",
        acquire: "redis.call('SET', 'my-registry:orders', '3f2504e0-4f89-41d3-9a0c-0305e82c3301', 'PX', 60000)",
        renew: "redis.call('PEXPIRE', 'my-registry:orders', 70000)",
        take_over: "redis.call('DEL', 'my-registry:orders') redis.call('SET', 'my-registry:orders', '7c9e6679-7425-40de-944b-e07fc1f90ae7', 'PX', 60000)",
        beside: &[],
    },
    Layout {
        preset: "redsync",
        keys: "redsync-app:{lock_name}",
        acquire: "redis.call('SET', 'redsync-app:a', 'MTIzNDU2Nzg5MDEyMzQ1Ng==', 'PX', 8000)",
        renew: "redis.call('PEXPIRE', 'redsync-app:a', 60000)",
        take_over: "redis.call('DEL', 'redsync-app:a') redis.call('SET', 'redsync-app:a', 'YWJjZGVmZ2hpamtsbW5vcA==', 'PX', 60000)",
        beside: &[],
    },
    Layout {
        preset: "hangfire",
        keys: "{{hangfire}}:lock:{lock_name}",
        acquire: "redis.call('SET', '{hangfire}:lock:nightly', '0f8fad5b-d9cb-469f-a165-70867728950e', 'PX', 30000)",
        renew: "redis.call('PEXPIRE', '{hangfire}:lock:nightly', 40000)",
        take_over: "redis.call('DEL', '{hangfire}:lock:nightly') redis.call('SET', '{hangfire}:lock:nightly', '7c9e6679-7425-40de-944b-e07fc1f90ae7', 'PX', 30000)",
        beside: &["redis.call('HSET', '{hangfire}:job:17', 'State', 'Processing')"],
    },
    Layout {
        preset: "php-lock",
        keys: "",
        acquire: "redis.call('SET', 'php-malkusch-lock:orders', 'b1946ac92492d234', 'PX', 30000)",
        renew: "redis.call('PEXPIRE', 'php-malkusch-lock:orders', 40000)",
        take_over: "redis.call('DEL', 'php-malkusch-lock:orders') redis.call('SET', 'php-malkusch-lock:orders', 'c157a79031e1c40f', 'PX', 30000)",
        beside: &[],
    },
];

/// Long enough that the exporter reads each step separately, even on a busy machine.
fn run(client: &mut Client, script: &str) {
    client.command(&["EVAL", script, "0"]);
    sleep_ms(100);
}

#[test]
fn presets_read_keys_in_the_layouts_of_libraries() {
    let presets: Vec<&str> = LAYOUTS.iter().map(|layout| layout.preset).collect();
    let with_keys = LAYOUTS.iter().filter(|layout| !layout.keys.is_empty());
    let namespaces: Vec<String> =
        with_keys.map(|layout| format!("  - {{name: {}, keys: ['{}']}}", layout.preset, layout.keys)).collect();
    let scene = Scene::watching(&namespaces.join("\n"), &format!("presets: [{}]\n", presets.join(", ")));
    let mut client = scene.client();
    let owner = |preset: &str| {
        let locks = json(&scene.daemon, &format!("/api/v1/locks?lock_namespace={preset}"));
        assert_eq!(locks["total"], 1, "{preset}: {locks}");
        locks["locks"][0]["owner"].as_str().unwrap().to_owned()
    };
    for layout in &LAYOUTS {
        layout.beside.iter().for_each(|script| run(&mut client, script));
        run(&mut client, layout.acquire);
    }
    scene.sync();
    for layout in &LAYOUTS {
        scene.shows(layout.preset, Counts { held: 1, acquisitions: 1, ..Counts::default() });
    }
    let before: Vec<String> = presets.iter().map(|preset| owner(preset)).collect();
    LAYOUTS.iter().for_each(|layout| run(&mut client, layout.renew));
    scene.sync();
    for (layout, before) in LAYOUTS.iter().zip(&before) {
        assert_eq!(&owner(layout.preset), before, "{}: the same owner", layout.preset);
        assert_eq!(scene.number("redis_lock_owner_changes_total", layout.preset), 0.0, "{}", layout.preset);
    }
    LAYOUTS.iter().for_each(|layout| run(&mut client, layout.take_over));
    scene.sync();
    for (layout, before) in LAYOUTS.iter().zip(&before) {
        assert_ne!(&owner(layout.preset), before, "{}: another owner", layout.preset);
        assert_eq!(scene.number("redis_lock_owner_changes_total", layout.preset), 1.0, "{}", layout.preset);
        for metric in ["redis_lock_without_ttl", "redis_lock_non_lock_keys"] {
            assert_eq!(scene.number(metric, layout.preset), 0.0, "{metric} of {}", layout.preset);
        }
    }
}
