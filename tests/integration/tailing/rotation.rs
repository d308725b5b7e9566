//! Tests files that are renamed, copied, compressed, truncated, replaced or deleted, while the
//! daemon runs and while it is stopped.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, Instant};

use crate::site::{Site, lost, lost_line};
use crate::undisturbed::staged;

const LOGS: &str = "logs/*.log";
const CONFLICTS: &str =
    "redis_lock_conflicting_writes_total{lock_namespace=\"scheduler\",kind=\"duplicate_terminal_state\"}";

#[test]
fn rotations_while_running_lose_no_line() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    for round in 1..=3 {
        site.append("logs/app.log", lost(1));
        for number in (1..round).rev() {
            site.rename(&format!("logs/app.log.{number}"), &format!("logs/app.log.{}", number + 1));
        }
        site.rename("logs/app.log", "logs/app.log.1");
        site.append("logs/app.log", lost(1));
        // The program has not reopened its log yet.
        site.append("logs/app.log.1", lost(1));
        daemon.wait_counted(1 + 3 * round);
        daemon.wait_for(&site.series("log_rotations_total", LOGS), round as f64);
    }
}

/// Each file counts as rotated once. Renaming it again after it was read does not count.
#[test]
fn renaming_a_rotated_file_again_is_not_counted_as_a_rotation() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    let rotations = site.series("log_rotations_total", LOGS);
    for round in 1..=2 {
        if round == 2 {
            site.rename("logs/app.log.1", "logs/app.log.2");
        }
        site.rename("logs/app.log", "logs/app.log.1");
        site.append("logs/app.log", lost(1));
        daemon.wait_counted(1 + round);
        daemon.wait_for(&site.series("log_open_files", LOGS), 1.0);
        assert_eq!(daemon.scrape()[&rotations], round as f64);
    }
    // A rotation while the daemon was stopped counts once.
    daemon.kill();
    site.rename("logs/app.log.2", "logs/app.log.3");
    site.rename("logs/app.log.1", "logs/app.log.2");
    site.rename("logs/app.log", "logs/app.log.1");
    site.append("logs/app.log", lost(1));
    let daemon = site.start();
    daemon.wait_counted(4);
    daemon.wait_for(&rotations, 3.0);
}

#[test]
fn files_rotated_while_stopped_are_read_from_oldest_to_newest() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", job_state(0, "SUCCEEDED"));
    daemon.wait_for(&site.series("log_events_total", LOGS), 1.0);
    daemon.kill();
    let rotations = 4;
    for job in 0..rotations {
        // The two states of a job are valid in this order. In the other order they conflict.
        site.append("logs/app.log", job_state(job, "OUTPUT_QUARANTINED"));
        site.append("logs/app.log", job_state(job + 1, "SUCCEEDED"));
        for number in (1..=job).rev() {
            site.rename(&format!("logs/app.log.{number}"), &format!("logs/app.log.{}", number + 1));
        }
        site.rename("logs/app.log", "logs/app.log.1");
    }
    site.append("logs/app.log", job_state(rotations, "OUTPUT_QUARANTINED"));
    let daemon = site.start();
    daemon.wait_for(&site.series("log_events_total", LOGS), (2 + 2 * rotations) as f64);
    assert_eq!(daemon.scrape()[CONFLICTS], 0.0);
    // The exporter detects the other order.
    site.append("logs/app.log", job_state(99, "OUTPUT_QUARANTINED") + &job_state(99, "SUCCEEDED"));
    daemon.wait_for(CONFLICTS, 1.0);
    assert_eq!(daemon.scrape()[&site.series("log_events_total", LOGS)], (4 + 2 * rotations) as f64);
}

#[test]
fn files_compressed_while_stopped_are_read_from_the_saved_position() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    assert!(daemon.stop().success());
    site.append("logs/app.log", lost(1));
    site.rename("logs/app.log", "logs/app.log.2");
    site.gzip("logs/app.log.2");
    site.append("logs/app.log.1", lost(1));
    site.gzip("logs/app.log.1");
    site.append("logs/app.log", lost(1));
    let daemon = site.start();
    daemon.wait_counted(5);
    // Read lines are not read again, neither under another name nor after another start.
    site.rename("logs/app.log.2.gz", "logs/app.log.3.gz");
    daemon.kill();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(6);
}

#[test]
fn an_incomplete_compressed_file_is_read_once_it_is_complete() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    daemon.kill();
    site.append("logs/app.log", lost(20));
    site.rename("logs/app.log", "logs/app.log.1");
    site.gzip("logs/app.log.1");
    let packed = fs::read(site.path("logs/app.log.1.gz")).unwrap();
    let (half, rest) = packed.split_at(packed.len() / 2);
    fs::write(site.path("logs/app.log.1.gz"), half).unwrap();
    let daemon = site.start();
    let errors = site.series("log_read_errors_total", LOGS);
    daemon.wait("a read error", |daemon| daemon.scrape()[&errors] > 0.0);
    site.append("logs/app.log.1.gz", rest);
    daemon.wait_counted(21);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(22);
}

#[test]
fn a_file_compressed_while_running_is_not_read_twice() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    site.rename("logs/app.log", "logs/app.log.1");
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(3);
    site.gzip("logs/app.log.1");
    daemon.wait_for(&site.series("log_open_files", LOGS), 1.0);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(4);
}

#[test]
fn copytruncate_while_running_restarts_the_file_at_its_beginning() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(3));
    daemon.wait_counted(3);
    for round in 1..=2 {
        site.copy_and_truncate("logs/app.log", &format!("logs/app.log.{round}"));
        site.append("logs/app.log", lost(1));
        daemon.wait_counted(3 + round);
        daemon.wait_for(&site.series("log_truncations_total", LOGS), round as f64);
    }
}

#[test]
fn copytruncate_while_stopped_reads_the_remaining_lines_from_the_copy() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(3));
    daemon.wait_counted(3);
    daemon.kill();
    site.append("logs/app.log", lost(1));
    site.copy_and_truncate("logs/app.log", "logs/app.log.2");
    site.append("logs/app.log", lost(1));
    site.copy_and_truncate("logs/app.log", "logs/app.log.1");
    site.append("logs/app.log", lost(1));
    let daemon = site.start();
    daemon.wait_counted(6);
}

#[test]
fn a_file_renamed_to_any_name_while_stopped_is_found_by_its_inode() {
    let site = Site::new();
    let daemon = site.start_on(&["logs/app.log"]);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    daemon.kill();
    site.append("logs/app.log", lost(1));
    site.rename("logs/app.log", "logs/what the night shift saved");
    site.append("logs/app.log", lost(1));
    let daemon = site.start_on(&["logs/app.log"]);
    daemon.wait_counted(3);
}

#[test]
fn a_deleted_file_is_read_to_its_end_and_closed() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    daemon.pause();
    site.append("logs/app.log", lost(2));
    site.remove("logs/app.log");
    site.append("logs/app.log", lost(1));
    daemon.resume();
    daemon.wait_counted(4);
    daemon.wait("the deleted file is closed", |daemon| {
        !daemon.open_files().iter().any(|target| target.ends_with("app.log (deleted)"))
    });
    assert!(daemon.open_files().contains(&site.full_path("logs/app.log")), "{:?}", daemon.open_files());
    daemon.wait_for(&site.series("log_open_files", LOGS), 1.0);
    assert_eq!(daemon.scrape()[&site.series("log_rotations_total", LOGS)], 1.0);
}

#[test]
fn a_file_truncated_and_grown_past_its_old_position_is_read_from_its_beginning() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    daemon.pause();
    fs::write(site.path("logs/app.log"), lost(5)).unwrap();
    daemon.resume();
    daemon.wait_counted(7);
    assert_eq!(daemon.scrape()[&site.series("log_truncations_total", LOGS)], 1.0);
}

#[test]
fn a_replacement_with_the_same_inode_and_size_is_read_from_its_beginning() {
    for running in [true, false] {
        let site = Site::new();
        let daemon = site.start();
        let (old, new) = (lost(3), lost(3));
        site.append("logs/app.log", &old);
        daemon.wait_counted(3);
        let inode = fs::metadata(site.path("logs/app.log")).unwrap().ino();
        // Numbers of runs may differ in length.
        let new = format!("{}{new}", "-".repeat(old.len().saturating_sub(new.len() + 1)) + "\n");
        daemon.pause();
        let daemon = if running {
            fs::write(site.path("logs/app.log"), new).unwrap();
            daemon.resume();
            daemon
        } else {
            daemon.kill();
            fs::write(site.path("logs/app.log"), new).unwrap();
            site.start()
        };
        daemon.wait_counted(6);
        assert_eq!(fs::metadata(site.path("logs/app.log")).unwrap().ino(), inode);
    }
}

#[test]
fn symlinks_to_files_rotated_in_another_directory_are_followed() {
    let site = Site::new();
    fs::create_dir_all(site.path("pods/shop_api/api")).unwrap();
    fs::create_dir(site.path("containers")).unwrap();
    let daemon = site.start_on(&["containers/*.log"]);
    site.append("pods/shop_api/api/0.log", cri(&lost_line()));
    symlink(site.path("pods/shop_api/api/0.log"), site.path("containers/api_shop-1234.log")).unwrap();
    daemon.wait_counted(1);
    // While the daemon runs.
    site.append("pods/shop_api/api/0.log", cri(&lost_line()));
    site.rename("pods/shop_api/api/0.log", "pods/shop_api/api/0.log.20260625-133704");
    site.append("pods/shop_api/api/0.log", cri(&lost_line()));
    daemon.wait_counted(3);
    daemon.kill();
    // While the daemon is stopped: two rotations, the first file compressed.
    site.gzip("pods/shop_api/api/0.log.20260625-133704");
    site.append("pods/shop_api/api/0.log", cri(&lost_line()));
    site.rename("pods/shop_api/api/0.log", "pods/shop_api/api/0.log.20260625-143704");
    site.append("pods/shop_api/api/0.log", cri(&lost_line()));
    site.gzip("pods/shop_api/api/0.log.20260625-143704");
    site.rename("pods/shop_api/api/0.log", "pods/shop_api/api/0.log.20260625-153704");
    site.append("pods/shop_api/api/0.log", cri(&lost_line()));
    let daemon = site.start_on(&["containers/*.log"]);
    daemon.wait_counted(6);
    // The container was restarted: the link points to another file.
    site.append("pods/shop_api/api/1.log", cri(&lost_line()));
    site.remove("containers/api_shop-1234.log");
    symlink(site.path("pods/shop_api/api/1.log"), site.path("containers/api_shop-1234.log")).unwrap();
    daemon.wait_counted(7);
}

#[test]
fn the_last_line_of_a_rotated_or_deleted_file_needs_no_newline() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/renamed.log", lost_line());
    site.append("logs/deleted.log", lost_line());
    site.append("logs/stays.log", lost(1) + &lost_line());
    daemon.wait_for(&site.series("log_open_files", LOGS), 3.0);
    daemon.wait_counted(1);
    site.rename("logs/renamed.log", "logs/renamed.log.1");
    site.remove("logs/deleted.log");
    daemon.wait_counted(3);
    site.append("logs/stays.log", "\n");
    daemon.wait_counted(4);
}

#[test]
fn the_last_line_of_a_file_rotated_while_stopped_needs_no_newline() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(1) + &lost_line());
    daemon.wait_counted(1);
    daemon.kill();
    site.rename("logs/app.log", "logs/app.log.1");
    site.append("logs/app.log", lost(1));
    let daemon = site.start();
    daemon.wait_counted(3);
}

#[test]
fn a_rotated_file_is_read_to_its_end_before_the_new_file() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", job_state(1, "RUNNING"));
    daemon.wait_for(&site.series("log_lines_total", LOGS), 1.0);
    daemon.pause();
    // More data than one turn reads lies between the two lines.
    let padding = "x".repeat(1000) + "\n";
    site.append("logs/app.log", padding.repeat(10_000) + &job_state(1, "SUCCEEDED"));
    site.rename("logs/app.log", "logs/app.log.1");
    site.append("logs/app.log", job_state(1, "OUTPUT_QUARANTINED"));
    daemon.resume();
    daemon.wait_for(&site.series("log_events_total", LOGS), 2.0);
    assert_eq!(daemon.scrape()[CONFLICTS], 0.0);
}

/// The daemon checks idle files less often. After a rotation, the last lines of the idle file still
/// come before the first lines of the new file.
#[test]
fn an_idle_rotated_file_is_read_to_its_end_before_the_new_file() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", "nothing\n");
    daemon.wait_for(&site.series("log_lines_total", LOGS), 1.0);
    for round in 1..=8 {
        site.append("logs/app.log", job_state(round, "SUCCEEDED"));
        site.rename("logs/app.log", &format!("logs/app.log.{round}"));
        site.append("logs/app.log", job_state(round, "OUTPUT_QUARANTINED"));
        daemon.wait_for(&site.series("log_events_total", LOGS), 2.0 * round as f64);
        assert_eq!(daemon.scrape()[CONFLICTS], 0.0);
    }
}

#[test]
fn a_copy_in_progress_is_not_read_as_a_new_file() {
    // The daemon reads a copy that has not grown for 5 s as a complete file.
    let (site, daemon, text) = staged("a copy written in two parts within 4.9 s", || {
        let site = Site::new();
        let daemon = site.start();
        site.append("logs/app.log", lost(20));
        daemon.wait_counted(20);
        let text = fs::read(site.path("logs/app.log")).unwrap();
        let begun = Instant::now();
        fs::write(site.path("logs/app.log.1"), &text[..text.len() / 2]).unwrap();
        site.append("logs/app.log", lost(1));
        daemon.wait_counted(21);
        site.append("logs/app.log.1", &text[text.len() / 2..]);
        (begun.elapsed() < Duration::from_millis(4900)).then_some((site, daemon, text))
    });
    site.append("logs/app.log.1", &fs::read(site.path("logs/app.log")).unwrap()[text.len()..]);
    File::options().write(true).truncate(true).open(site.path("logs/app.log")).unwrap();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(22);
}

/// Returns a line about a job that reached a state, as Cordum's scheduler prints it.
fn job_state(job: usize, state: &str) -> String {
    format!(
        r#"{{"time":"2026-06-25T13:37:04.123Z","level":"INFO","msg":"job state changed","component":"scheduler","job_id":"job-{job}","new_state":"{state}"}}"#
    ) + "\n"
}

/// Returns a line in the format of a container runtime.
fn cri(line: &str) -> String {
    format!("2026-06-25T13:37:04.123456789Z stderr F {line}\n")
}

/// The kernel gives the inode number of a deleted file to the next new file. While the daemon is
/// down, another file in the directory may get the number of a log.
#[test]
fn another_file_with_the_inode_of_a_log_is_not_read() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(3));
    daemon.wait_counted(3);
    daemon.kill();
    site.rename("logs/app.log", "logs/notes.txt");
    fs::write(site.path("logs/notes.txt"), lost(2)).unwrap();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(4);
}
