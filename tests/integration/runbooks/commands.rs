//! Tests the commands in runbooks. shellcheck accepts them, they run against a live Redis and a
//! live exporter, and they print no token. A read-only user is enough except on pages that say
//! otherwise.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;

use super::page::{DIRECTORY, Page, all_pages};
use crate::daemon::Daemon;
use crate::redis::RedisServer;
use crate::redis::client::Client;
use crate::site::Site;

/// The two pages with commands that write. All blocks of such a page form one script.
const WRITING: [&str; 2] = ["common/safe-release.md", "common/drill.md"];
/// The read-only rights of a person on call. `GET` is excluded because it prints tokens.
const ON_CALL: &str =
    "resetkeys %R~* -@all +scan +type +pttl +ttl +object +info +client|list +latency|latest +ping +role";
const TOKEN: &str = "5f2c9a1e-0b7d-4c3a-9e55-d1c0ffee0001";
const KEY: &str = "cordum:wf:run:lock:run-7";

#[test]
fn shellcheck_accepts_all_commands() {
    for page in all_pages() {
        for language in ["sh", "console"] {
            let script = page.blocks_of(language).concat();
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("blocks.sh");
            fs::write(&path, script).unwrap();
            let output = Command::new("shellcheck").args(["--shell=sh", "--severity=style"]).arg(&path).output();
            let output = output.expect("shellcheck is missing: scripts/install.sh installs it");
            assert!(output.status.success(), "{}\n{}", page.place(), String::from_utf8_lossy(&output.stdout));
        }
    }
}

#[test]
fn no_runbook_contains_a_dangerous_command() {
    let command = Regex::new(r#"redis-cli(?: -[-a-z]+(?: +"[^"]*")?)* +([A-Za-z_]+)"#).unwrap();
    let deletion = Regex::new(r"(?i)\b(DEL|UNLINK|FLUSH\w*)\b").unwrap();
    let bare = Regex::new(r"(?i)redis-cli[^\n`]* (DEL|UNLINK|GET|KEYS|MONITOR) ").unwrap();
    // Commands that print values or stop Redis do not appear, except where a page forbids them.
    let named =
        Regex::new(r"`(?:redis-cli [^`]*)?(?:SLOWLOG GET|MONITOR|KEYS|M?GET|GETRANGE|HGETALL|HVALS|DUMP)\b[^`]*`")
            .unwrap();
    let mut n_forbidden = 0;
    for page in all_pages() {
        let allowed: &[&str] = match page.place().as_str() {
            "common/safe-release.md" => &["EVAL", "PTTL"],
            "common/drill.md" => &["EVAL", "PTTL", "SET"],
            _ => &["TYPE", "PTTL", "INFO", "CLIENT", "LATENCY", "PING", "ROLE"],
        };
        for block in page.blocks() {
            for captures in command.captures_iter(&block.text) {
                assert!(allowed.contains(&&captures[1]), "{}: {}", page.place(), &captures[0]);
            }
            // A script compares the value before it deletes a key.
            for line in block.text.lines().filter(|line| deletion.is_match(line)) {
                let is_guarded = line.contains("== ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0");
                assert!(is_guarded && deletion.find_iter(line).count() == 1, "{}: {line}", page.place());
            }
        }
        let prose = page.prose();
        assert!(!bare.is_match(&prose), "{}: a forbidden command", page.place());
        for found in named.find_iter(&prose) {
            assert_eq!(page.place(), "common/looking.md", "{} must not be advised", found.as_str());
            n_forbidden += 1;
        }
    }
    assert_eq!(n_forbidden, 4, "looking.md must forbid four commands");
}

#[test]
fn commands_only_read_and_print_no_token() {
    let stage = Stage::new();
    stage.admin().command(&["ACL", "SETUSER", "default", "reset", "on", "nopass"]);
    let rights: Vec<&str> = ["ACL", "SETUSER", "default"].into_iter().chain(ON_CALL.split(' ')).collect();
    stage.admin().command(&rights);
    let mut n_blocks = 0;
    for page in all_pages().iter().filter(|page| !WRITING.contains(&page.place().as_str())) {
        for block in page.blocks_of("sh") {
            stage.run(page, &block);
            n_blocks += 1;
        }
    }
    assert!(n_blocks > 5, "only {n_blocks} blocks were found");
}

#[test]
fn the_safe_release_deletes_only_the_inspected_lock() {
    let stage = Stage::new();
    let page = Page::read(&Path::new(DIRECTORY).join("common/safe-release.md"));
    let [look, delete, shorten]: [String; 3] = page.blocks_of("sh").try_into().unwrap();
    let held = || stage.admin().command(&["GET", KEY]);
    // Another client acquires the lock between the inspection and the deletion.
    let other =
        format!("redis-cli -h \"$REDIS_HOST\" -p \"$REDIS_PORT\" SET {KEY} somebody-else PX 100000 >/dev/null\n");
    let output = stage.run(&page, &[&look, &other, &shorten, &delete].map(String::as_str).concat());
    assert!(output.trim().ends_with("0\n0"), "{output}");
    assert_eq!(held(), redis::Value::BulkString(b"somebody-else".to_vec()));
    // No other client acquires the lock.
    let output = stage.run(&page, &[&look, &shorten, &delete].map(String::as_str).concat());
    assert!(output.starts_with("held\n") && output.trim().ends_with("1\n1"), "{output}");
    assert_eq!(held(), redis::Value::Nil);
    // The lock is free.
    let output = stage.run(&page, &[&look, &delete].map(String::as_str).concat());
    assert!(output.contains("stop here") && output.trim().ends_with('0'), "{output}");
}

#[test]
fn the_exporter_reports_the_cause_of_the_losses_in_the_drill() {
    let stage = Stage::new();
    let page = Page::read(&Path::new(DIRECTORY).join("common/drill.md"));
    let output = stage.run(&page, &page.blocks_of("sh").concat());
    // Acquired, taken over, stale release and renewal refused while the lock stays held, then
    // released.
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((&lines[..3], lines[4], lines.last()), (&["OK", "OK", "0"][..], "0", Some(&"1")), "{output}");
    assert!(lines[3].parse::<u64>().unwrap() > 60_000, "{output}");
    let incidents: Vec<&&str> = lines.iter().filter(|line| line.contains("drill-1")).collect();
    assert!(!incidents.is_empty(), "{output}");
    assert!(incidents.iter().all(|line| line.contains(r#""cause":"expired_never_renewed""#)), "{output}");
}

/// A Redis with locks, an exporter that watches it, and a log with a lost lock.
struct Stage {
    server: RedisServer,
    daemon: Daemon,
    site: Site,
}

impl Stage {
    fn new() -> Self {
        let server = RedisServer::start(&[]);
        let mut client = server.client();
        client.command(&["ACL", "SETUSER", "admin", "on", "nopass", "~*", "&*", "+@all"]);
        client.command(&["SET", KEY, TOKEN, "PX", "600000"]);
        client.command(&["SET", "cordum:reconciler:default", TOKEN, "PX", "600000"]);
        // A separate user, which keeps working when the rights of the others are removed.
        client.command(&["ACL", "SETUSER", "exporter", "on", ">secret", "~*", "&*", "+@all"]);
        let url = format!("redis://exporter:secret@127.0.0.1:{}", server.port());
        let site = Site::new();
        let logs = site.full_path("logs/*.log");
        let daemon = Daemon::start(&["--preset", "cordum", "--redis.url", &url, "--logs.path", &logs]);
        daemon.wait_ready();
        site.append(
            "logs/app.log",
            "[WORKFLOW-ENGINE] WARN run lock renewal failed run_id=run-7 error=lock not owned\n",
        );
        daemon.wait("the incident is listed", |daemon| daemon.get("/api/v1/incidents").text().contains("run-7"));
        Self { server, daemon, site }
    }

    fn admin(&self) -> Client {
        let mut client = Client::connect(self.server.port()).unwrap();
        client.command(&["AUTH", "admin", "any"]);
        client
    }

    /// Returns the output of a command. The command must succeed, print something, and not print
    /// the token.
    fn run(&self, page: &Page, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-eu", "-c", script]).stdin(Stdio::null());
        command.env("REDIS_HOST", "127.0.0.1").env("REDIS_PORT", self.server.port().to_string());
        command.env("EXPORTER", format!("http://{}", self.daemon.address));
        command.env("LOCK_NAMESPACE", "workflow").env("LOCK_KEY", KEY).env("LOCK_PREFIX", "cordum:wf:run:lock:");
        command.env("DRILL_KEY", "cordum:wf:run:lock:drill-1").env("DRILL_LOG", self.site.path("logs/drill.log"));
        let output = command.output().unwrap();
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        let told = format!("{}\n{script}\n{stdout}{stderr}", page.place());
        assert!(output.status.success() && stderr.is_empty() && !stdout.is_empty(), "{told}");
        let is_refused = ["NOPERM", "ERR ", "WRONGTYPE"].iter().any(|word| stdout.contains(word));
        assert!(!is_refused && !stdout.contains(TOKEN), "{told}");
        stdout
    }
}
