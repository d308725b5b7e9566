//! Tests `healthcheck`, `completions` and `man`.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use redis_lock_exporter::util::ports::UnusedPort;
use regex::Regex;

use super::{PASSWORD, Secured, TLS, hash};
use crate::daemon::{command, text};
use crate::redis::eventually;
use crate::site::Site;

/// Returns the exit code and all output.
fn healthcheck(arguments: &[&str]) -> (i32, String) {
    let output = command(&[&["healthcheck"], arguments].concat());
    (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn healthcheck_distinguishes_healthy_and_unhealthy() {
    let site = Site::new();
    // A directory at the path of the temporary file makes saving fail, so the daemon does not
    // become ready.
    fs::create_dir_all(site.path("state/state.json.tmp")).unwrap();
    let (logs, state) = (site.full_path("logs/*.log"), site.full_path("state"));
    let socket = format!("unix://{}", site.full_path("exporter.sock"));
    let arguments =
        ["--preset", "cordum", "--logs.path", &logs, "--state.dir", &state, "--web.listen-address", &socket];
    let daemon = crate::daemon::Daemon::start(&arguments);
    let url = format!("http://{}", daemon.address);
    assert_eq!(healthcheck(&["--url", &url]), (0, "healthy\n".to_owned()));
    assert_eq!(healthcheck(&["--url", &socket]), (0, "healthy\n".to_owned()));
    let (code, printed) = healthcheck(&["--url", &url, "--ready"]);
    assert!(code == 1 && printed.contains("not ready"), "{printed}");
    fs::remove_dir(site.path("state/state.json.tmp")).unwrap();
    eventually("the daemon to be ready", || (healthcheck(&["--url", &url, "--ready"]).0 == 0).then_some(()));
    let unused = UnusedPort::reserve().unwrap();
    let (code, printed) = healthcheck(&["--url", &format!("http://127.0.0.1:{}", unused.number)]);
    assert!(code == 1 && printed.contains("cannot connect"), "{printed}");
    daemon.pause();
    let (code, printed) = healthcheck(&["--url", &url, "--timeout", "1"]);
    assert!(code == 1 && printed.contains("no complete answer within 1s"), "{printed}");
}

#[test]
fn healthcheck_works_with_tls_and_a_password() {
    let secured = Secured::new(&format!(
        "{}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem}}\nbasic_auth_users: {{me: {}}}\n",
        TLS.trim_end().trim_end_matches('}'),
        hash(PASSWORD)
    ));
    let daemon = secured.start(&[]);
    let url = format!("https://localhost:{}", daemon.address.port());
    let (ca, certificate, key) = (secured.path("ca.pem"), secured.path("client.pem"), secured.path("client.key"));
    let password = secured.path("password");
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let client = ["--url", &url, "--cert-file", &certificate, "--key-file", &key];
    let with = |more: &[&str]| healthcheck(&[&client[..], more].concat());
    assert_eq!(with(&["--ca-file", &ca]), (0, "healthy, and asks for a password\n".to_owned()));
    assert_eq!(
        with(&["--insecure", "--ready"]).0,
        1,
        "a request for a password does not show that the daemon is ready"
    );
    let login = ["--user", "me", "--password-file", &password];
    eventually("the daemon to be ready", || {
        (with(&[&login[..], &["--ca-file", &ca, "--ready"]].concat()).0 == 0).then_some(())
    });
    assert_eq!(with(&[&login[..], &["--insecure"]].concat()), (0, "healthy\n".to_owned()));
    fs::write(&password, "wrong").unwrap();
    let (code, printed) = with(&[&login[..], &["--insecure"]].concat());
    assert!(code == 1 && printed.contains("401") && !printed.contains("wrong"), "{printed}");
    // The health check of a container does not know how the exporter is served.
    let plain = format!("http://{}", daemon.address);
    assert_eq!(healthcheck(&["--url", &plain]), (0, "healthy, and requires https\n".to_owned()));
    let (code, printed) = healthcheck(&["--url", &plain, "--ready"]);
    assert!(code == 1 && printed.contains("use https://"), "{printed}");
    let (code, printed) = with(&[]);
    assert!(code == 1 && printed.contains("certificate"), "{printed}");
    let (code, printed) = healthcheck(&["--url", &url, "--ca-file", &ca]);
    assert!(code == 1 && printed.to_lowercase().contains("certificate"), "{printed}");
}

/// Returns the flags that a help text lists.
fn flags(help: &str) -> BTreeSet<String> {
    let flag = Regex::new(r"(?m)^\s+(?:-\w, )?(--[a-z.-]+)").unwrap();
    flag.captures_iter(help).map(|captures| captures[1].to_owned()).collect()
}

#[test]
fn the_manual_has_every_command_and_flag() {
    let directory = tempfile::tempdir().unwrap();
    assert!(command(&["man", text(directory.path())]).status.success());
    let help = String::from_utf8(command(&["--help"]).stdout).unwrap();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let commands: Vec<&str> =
        list.lines().take_while(|line| !line.is_empty()).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(commands.contains(&"run") && commands.contains(&"pack"), "{help}");
    let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap().replace("\\-", "-");
    let main_page = page("redis_lock_exporter.1");
    let printed = String::from_utf8(command(&["man"]).stdout).unwrap().replace("\\-", "-");
    for flag in flags(&help) {
        assert!(main_page.contains(&flag) && printed.contains(&flag), "{flag}");
    }
    for name in commands.iter().filter(|name| **name != "help") {
        let help = String::from_utf8(command(&[name, "--help"]).stdout).unwrap();
        let page = page(&format!("redis_lock_exporter-{name}.1"));
        for flag in flags(&help) {
            assert!(page.contains(&flag), "{name}: {flag}");
        }
    }
}

#[test]
fn completions_are_valid_scripts() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = command(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("web.config.file") && script.contains("healthcheck"), "{shell}");
        if shell == "bash" {
            let path = directory.path().join("completions");
            fs::write(&path, script).unwrap();
            let path = text(&path);
            // Simulates a user who types the beginning of a flag and asks for completion.
            let ask = format!(
                "source {path}; COMP_WORDS=(redis_lock_exporter --web.c); COMP_CWORD=1; \
                 _redis_lock_exporter redis_lock_exporter --web.c redis_lock_exporter; echo \"${{COMPREPLY[@]}}\""
            );
            let output = Command::new("bash").args(["-c", &ask]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "--web.config.file\n");
        }
    }
    assert_eq!(command(&["completions", "tcsh"]).status.code(), Some(64));
}
