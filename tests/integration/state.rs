//! Tests what survives restarts, kills, damaged state files, and a disk that cannot be written to.

use std::fs;
use std::path::PathBuf;

use crate::daemon::{Daemon, not_owned, sum};
use crate::site::{Site, lost};

const DURABLE: &str = "redis_lock_exporter_state_durable";
const SAVE_ERRORS: &str = "redis_lock_exporter_state_save_errors_total";
const SET_ASIDE: &str = "redis_lock_exporter_state_set_aside_total";

#[test]
fn counters_continue_after_a_restart() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    let before = daemon.scrape();
    assert!(daemon.stop().success());
    site.append("logs/app.log", lost(1));
    let daemon = site.start();
    daemon.wait_counted(3);
    let after = daemon.scrape();
    for (series, value) in
        before.iter().filter(|(series, _)| series.contains("_total") && !series.starts_with("process"))
    {
        assert!(after[series] >= *value, "{series} fell from {value} to {}", after[series]);
    }
}

#[test]
fn exposed_counts_survive_an_immediate_kill() {
    let site = Site::new();
    let mut daemon = site.start();
    for round in 1..=3 {
        site.append("logs/app.log", lost(1));
        daemon.wait_counted(round);
        daemon.kill();
        daemon = site.start();
        let shown = daemon.scrape()[&not_owned("workflow", "release")];
        assert_eq!(shown, round as f64);
    }
}

#[test]
fn an_unusable_state_file_is_renamed_and_kept() {
    let good = {
        let site = Site::new();
        let daemon = site.start();
        site.append("logs/app.log", lost(1));
        daemon.wait_counted(1);
        daemon.kill();
        fs::read_to_string(site.path("state/state.json")).unwrap()
    };
    for (content, reason) in [
        (String::new(), "it is damaged: it is empty"),
        (good[..good.len() - 9].to_owned(), "it is damaged: the checksum does not match"),
        (
            good.replacen("\"version\":1", "\"version\":7", 1),
            "it was written by a newer version (format 7, this one knows 1)",
        ),
        ("[state]\nof = another program\n".to_owned(), "it is not a state file of this program"),
    ] {
        let site = Site::new();
        fs::create_dir(site.path("state")).unwrap();
        fs::write(site.path("state/state.json"), &content).unwrap();
        let daemon = site.start();
        assert_eq!(daemon.scrape()[SET_ASIDE], 1.0);
        let log = daemon.log();
        assert!(log.contains("was set aside") && log.contains(reason), "{reason}:\n{log}");
        let [aside] = set_aside(&site).try_into().unwrap();
        assert_eq!(fs::read_to_string(aside).unwrap(), content);
        // The daemon works, and the next start reports no problem. The counter of this event is
        // kept.
        site.append("logs/app.log", lost(1));
        daemon.wait_counted(1);
        daemon.kill();
        let daemon = site.start();
        daemon.wait_counted(1);
        assert_eq!(daemon.scrape()[SET_ASIDE], 1.0);
        assert_eq!(set_aside(&site).len(), 1);
    }
}

#[test]
fn a_second_process_on_the_same_state_directory_refuses_to_start() {
    let site = Site::new();
    let daemon = site.start();
    let (logs, state) = (site.full_path("logs/*.log"), site.full_path("state"));
    let arguments = ["--preset", "cordum", "--logs.path", &logs, "--state.dir", &state];
    let Err(log) = Daemon::try_start(&arguments, |command| command) else { panic!("both run") };
    assert!(log.contains("is in use by another process") && log.contains(&state), "{log}");
    assert!(log.ends_with("exit status: 2"), "{log}");
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    daemon.kill();
    // A killed process leaves no lock behind.
    site.start().wait_counted(1);
}

#[test]
fn a_missing_state_directory_setting_is_reported() {
    let site = Site::new();
    let logs = site.full_path("logs/*.log");
    let daemon = Daemon::start(&["--preset", "cordum", "--logs.path", &logs]);
    daemon.wait_ready();
    assert!(daemon.log().contains("no state directory") && daemon.log().contains("--state.dir"), "{}", daemon.log());
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    let samples = daemon.scrape();
    assert_eq!((samples["redis_lock_exporter_state_enabled"], samples[DURABLE]), (0.0, 0.0));
}

#[test]
fn counting_continues_while_the_state_cannot_be_saved() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    assert_eq!(daemon.scrape()[DURABLE], 1.0);

    site.rename("state", "lost state");
    fs::write(site.path("state"), "in the way").unwrap();
    site.append("logs/app.log", lost(1));
    daemon.wait_for(DURABLE, 0.0);
    let errors = daemon.scrape()[SAVE_ERRORS];
    // At first the daemon exposes only saved counts. After a while it exposes unsaved counts,
    // because showing nothing would be worse.
    daemon.wait_counted(2);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(3);
    let samples = daemon.scrape();
    assert!(samples[SAVE_ERRORS] > errors && samples[DURABLE] == 0.0);
    assert_eq!(daemon.log().matches("cannot save state").count(), 1, "{}", daemon.log());

    site.remove("state");
    site.rename("lost state", "state");
    daemon.wait_for(DURABLE, 1.0);
    assert!(daemon.log().contains("state is saved again"), "{}", daemon.log());
    let errors = daemon.scrape()[SAVE_ERRORS];
    daemon.kill();
    let daemon = site.start();
    daemon.wait_counted(3);
    assert_eq!(daemon.scrape()[SAVE_ERRORS], errors);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(4);
}

#[test]
fn a_namespace_that_is_removed_and_added_again_keeps_its_counters() {
    let site = Site::new();
    let billing = "namespaces: [{name: billing, keys: ['billing:{id}']}]\nrules: [{message: invoice lock lost, event: not_owned, operation: release, namespace: billing, id: id}]\n";
    let logs = "presets: [cordum]\nlogs: [{path: 'SITE/logs/*.log'}]\n";
    let line = |id: u32| format!("{{\"msg\":\"invoice lock lost\",\"id\":\"{id}\"}}\n");
    site.configure(&format!("{logs}{billing}"));
    let daemon = site.start_configured(&[]);
    site.append("logs/app.log", line(1) + &line(2));
    daemon.wait_for(&not_owned("billing", "release"), 2.0);
    daemon.kill();

    site.configure(logs);
    let daemon = site.start_configured(&[]);
    site.append("logs/app.log", lost(1));
    daemon.wait_for(&not_owned("workflow", "release"), 1.0);
    assert!(!daemon.scrape().contains_key(&not_owned("billing", "release")));
    daemon.kill();

    site.configure(&format!("{logs}{billing}"));
    let daemon = site.start_configured(&[]);
    site.append("logs/app.log", line(3));
    daemon.wait_for(&not_owned("billing", "release"), 3.0);
    assert_eq!(sum(&daemon.scrape(), "redis_lock_not_owned_total"), 4.0);
}

/// Returns the state files that the daemon renamed.
fn set_aside(site: &Site) -> Vec<PathBuf> {
    let files = fs::read_dir(site.path("state")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.display().to_string().contains("state.json.unusable-")).collect()
}
