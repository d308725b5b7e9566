//! Tests which log files are read, from which position, and at which cost.

mod backlog;
mod lines;
mod pieces;
mod rotation;

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, not_owned, sum};
use crate::site::{Site, lost, lost_line};
use crate::undisturbed::staged;

#[test]
fn a_new_file_is_found_soon_and_read_from_its_beginning() {
    let site = Site::new();
    let daemon = site.start();
    let counted = Cell::new(0);
    staged("a new file is counted", || {
        counted.set(counted.get() + 2);
        let written = Instant::now();
        site.append(&format!("logs/new-{}.log", counted.get()), lost(2));
        daemon.wait_counted(counted.get());
        // Time for a file search every 400 ms, a save every second, and a busy machine.
        (written.elapsed() < Duration::from_secs(6)).then_some(())
    });
}

#[test]
fn files_present_at_the_first_start_are_read_from_their_end() {
    let site = Site::new();
    site.append("logs/app.log", lost(3));
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    assert_eq!(daemon.scrape()[&site.series("log_bytes_total", "logs/*.log")], lost(1).len() as f64);
}

#[test]
fn a_partial_line_at_the_first_start_is_not_read_from_its_middle() {
    let site = Site::new();
    site.append("logs/app.log", "this line began before and ends with: ");
    let daemon = site.start();
    // This text would count as a separate line.
    site.append("logs/app.log", lost(1));
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
}

#[test]
fn with_start_at_beginning_files_are_read_completely_at_the_first_start() {
    let site = Site::new();
    site.append("logs/app.log", lost(3));
    site.append("logs/other.log", lost(1));
    site.configure(
        "presets: [cordum]\nlogs: [{path: SITE/logs/app.log, start_at: beginning}, {path: SITE/logs/other.log}]\n",
    );
    let daemon = site.start_configured(&[]);
    daemon.wait_counted(3);
    site.append("logs/other.log", lost(1));
    daemon.wait_counted(4);
    daemon.kill();
    let daemon = site.start_configured(&[]);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(5);
}

#[test]
fn double_star_patterns_find_files_in_new_directories() {
    let site = Site::new();
    let daemon = site.start_on(&["logs/**/*.log"]);
    site.append("logs/top.log", lost(1));
    fs::create_dir_all(site.path("logs/one/two/three")).unwrap();
    site.append("logs/one/app.log", lost(1));
    site.append("logs/one/two/three/app.log", lost(1));
    site.append("logs/one/two/three/app.txt", lost(1));
    daemon.wait_counted(3);
    fs::create_dir_all(site.path("logs/four/five")).unwrap();
    site.append("logs/four/five/app.log", lost(1));
    daemon.wait_counted(4);
}

#[test]
fn every_source_has_its_own_metrics() {
    let site = Site::new();
    let daemon = site.start_on(&["logs/a*.log", "logs/b*.log", "logs/c.log"]);
    let (first, second) = (lost(2), format!("nothing\n{}nothing\n", lost(1)));
    site.append("logs/a1.log", &first);
    site.append("logs/b1.log", &second);
    site.append("logs/b2.log", "");
    daemon.wait_counted(3);
    daemon.wait_for(&site.series("log_open_files", "logs/b*.log"), 2.0);
    let samples = daemon.scrape();
    for (pattern, bytes, lines, events, files) in
        [("logs/a*.log", first.len(), 2, 2, 1), ("logs/b*.log", second.len(), 3, 1, 2), ("logs/c.log", 0, 0, 0, 0)]
    {
        let shown = ["log_bytes_total", "log_lines_total", "log_events_total", "log_open_files"]
            .map(|metric| samples[&site.series(metric, pattern)] as usize);
        assert_eq!(shown, [bytes, lines, events, files], "{pattern}");
    }
    assert!(daemon.log().contains("no log file matches yet"), "{}", daemon.log());
}

#[test]
fn a_file_that_matches_two_patterns_is_read_once() {
    let site = Site::new();
    let daemon = site.start_on(&["logs/*.log", "logs/app.log", "logs/**/app.*"]);
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    assert_eq!(sum(&daemon.scrape(), "redis_lock_exporter_log_open_files"), 1.0);
}

#[test]
fn symlink_loops_do_not_make_the_file_search_endless() {
    let site = Site::new();
    fs::create_dir(site.path("logs/deep")).unwrap();
    for name in ["one", "two", "three"] {
        symlink(site.path("logs"), site.path(&format!("logs/deep/{name}"))).unwrap();
    }
    let daemon = site.start_on(&["logs/**/*.log"]);
    site.append("logs/deep/app.log", lost(1));
    daemon.wait_counted(1);
    site.append("logs/deep/app.log", lost(1));
    daemon.wait_counted(2);
}

#[test]
fn a_file_keeps_its_position_when_another_pattern_matches_it() {
    let site = Site::new();
    let daemon = site.start_on(&["logs/*.log"]);
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    daemon.kill();
    site.append("logs/app.log", lost(1));
    let daemon = site.start_on(&["logs/app.log"]);
    let counted = |daemon: &Daemon, expected: f64| {
        daemon.wait_for(&not_owned("workflow", "release"), expected);
    };
    counted(&daemon, 3.0);
    assert_eq!(daemon.scrape()[&site.series("log_events_total", "logs/app.log")], 1.0);
    // The daemon recognizes copies of the file as copies, too.
    site.copy_and_truncate("logs/app.log", "logs/app.log.1");
    site.append("logs/app.log", lost(1));
    counted(&daemon, 4.0);
    assert_eq!(daemon.scrape()[&site.series("log_events_total", "logs/app.log")], 2.0);
    daemon.kill();
    site.rename("logs/app.log", "logs/app.log.2");
    site.gzip("logs/app.log.2");
    site.append("logs/app.log", lost(1));
    let daemon = site.start_on(&["logs/app.log"]);
    counted(&daemon, 5.0);
    assert_eq!(daemon.scrape()[&site.series("log_events_total", "logs/app.log")], 3.0);
}

#[test]
fn a_source_that_is_removed_and_added_again_keeps_its_position() {
    let site = Site::new();
    let daemon = site.start_on(&["logs/a.log", "logs/b.log"]);
    site.append("logs/a.log", lost(1));
    site.append("logs/b.log", lost(1));
    daemon.wait_counted(2);
    daemon.kill();
    let daemon = site.start_on(&["logs/a.log"]);
    site.append("logs/b.log", lost(1));
    site.append("logs/a.log", lost(1));
    daemon.wait_for(&not_owned("workflow", "release"), 3.0);
    daemon.kill();
    let daemon = site.start_on(&["logs/a.log", "logs/b.log"]);
    daemon.wait_counted(4);
    site.append("logs/b.log", lost(1));
    daemon.wait_counted(5);
}

#[test]
fn an_unreadable_file_is_counted_and_does_not_stop_other_files() {
    let site = Site::new();
    // Every process may open its own memory, but cannot read its first page.
    symlink("/proc/self/mem", site.path("logs/a-unreadable.log")).unwrap();
    symlink(site.path("logs/b-loop.log"), site.path("logs/b-loop.log")).unwrap();
    fs::create_dir(site.path("logs/c-directory.log")).unwrap();
    symlink(site.path("nowhere"), site.path("logs/d-dangling.log")).unwrap();
    let daemon = site.start();
    let errors = site.series("log_read_errors_total", "logs/*.log");
    daemon.wait("more than three read errors", |daemon| daemon.scrape()[&errors] > 3.0);
    site.append("logs/e-fine.log", lost(1));
    daemon.wait_counted(1);
    let before = daemon.scrape()[&errors];
    daemon.wait("another read error", |daemon| daemon.scrape()[&errors] > before);
    for name in ["/mem", "b-loop.log"] {
        let mentions = daemon.log().lines().filter(|line| line.contains(name) && line.contains("cannot read")).count();
        assert_eq!(mentions, 1, "{name}:\n{}", daemon.log());
    }
    // The symlink loop is now a file.
    site.remove("logs/b-loop.log");
    site.append("logs/b-loop.log", lost(1));
    daemon.wait_counted(2);
}

#[test]
fn a_directory_that_disappears_and_reappears_is_not_read_twice() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    site.rename("logs", "elsewhere");
    // Long enough for the daemon to read the file to its end and close it.
    daemon.wait_for(&site.series("log_open_files", "logs/*.log"), 0.0);
    site.append("elsewhere/app.log", lost(1));
    site.rename("elsewhere", "logs");
    daemon.wait_counted(3);
    site.append("logs/app.log", lost(1));
    site.append("logs/another.log", lost(1));
    daemon.wait_counted(5);
}

#[test]
fn a_file_that_reappears_under_its_name_may_end_in_a_partial_line() {
    let line = lost_line();
    let (half, rest) = line.split_at(line.len() - 10);
    let (site, daemon) = staged("the file removed and restored before the daemon finishes it", || {
        let site = Site::new();
        let daemon = site.start();
        site.append("logs/app.log", lost(1) + half);
        daemon.wait_counted(1);
        let away = Instant::now();
        site.rename("logs/app.log", "logs/app.log.1");
        daemon.wait_for_log("app.log to=");
        site.rename("logs/app.log.1", "logs/app.log");
        daemon.wait_for_log("app.log.1 to=");
        (away.elapsed() < Duration::from_millis(1900)).then_some((site, daemon))
    });
    // While another file is written to, more time passes than the daemon waits before it finishes a
    // rotated file.
    let started = Instant::now();
    let mut counted = 1;
    while started.elapsed() < Duration::from_millis(3500) {
        site.append("logs/clock.log", lost(1));
        counted += 1;
        daemon.wait_counted(counted);
    }
    site.append("logs/app.log", format!("{rest}\n"));
    daemon.wait_counted(counted + 1);
}

#[test]
fn lag_and_open_files_are_shown() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/one.log", lost(1) + "half a line");
    site.append("logs/two.log", lost(1));
    daemon.wait_counted(2);
    daemon.wait_for(&site.series("log_lag_bytes", "logs/*.log"), 11.0);
    daemon.wait_for(&site.series("log_open_files", "logs/*.log"), 2.0);
    site.append("logs/one.log", "\n");
    daemon.wait_for(&site.series("log_lag_bytes", "logs/*.log"), 0.0);
    site.remove("logs/two.log");
    daemon.wait_for(&site.series("log_open_files", "logs/*.log"), 1.0);
}

#[test]
fn a_huge_backlog_does_not_delay_a_small_file() {
    let site = Site::new();
    site.append("logs/a-huge.log", "");
    site.append("logs/b-small.log", "");
    let daemon = site.start_on(&["logs/a*.log", "logs/b*.log"]);
    daemon.pause();
    // A sparse file needs no disk space, and reading it takes far longer than this test.
    let huge: u64 = 256 << 30;
    File::options().write(true).open(site.path("logs/a-huge.log")).unwrap().set_len(huge).unwrap();
    site.append("logs/b-small.log", lost(1));
    daemon.resume();
    daemon.wait_counted(1);
    let samples = daemon.scrape();
    let lag = samples[&site.series("log_lag_bytes", "logs/a*.log")];
    assert!(lag > (huge / 4) as f64, "the daemon has only {lag} bytes left to read");
    assert!(samples[&site.series("log_bytes_total", "logs/a*.log")] > 0.0);
    // The daemon can also stop in the middle.
    assert!(daemon.stop().success());
}

#[test]
fn hundreds_of_idle_files_use_little_cpu() {
    let site = Site::new();
    for index in 0..300 {
        site.append(&format!("logs/idle-{index}.log"), lost(1));
    }
    let daemon = site.start();
    daemon.wait_for(&site.series("log_open_files", "logs/*.log"), 300.0);
    let cpu = |daemon: &Daemon| sum(&daemon.scrape(), "process_cpu_seconds_total");
    // Measured in a build without optimization. A busy machine needs more time for the same work.
    staged("a CPU share below a fifth of a core", || {
        let (before, started) = (cpu(&daemon), Instant::now());
        thread::sleep(Duration::from_secs(4));
        let share = (cpu(&daemon) - before) / started.elapsed().as_secs_f64();
        eprintln!("{share} of a core");
        (share < 0.2).then_some(())
    });
    site.append("logs/idle-7.log", lost(1));
    daemon.wait_counted(1);
}
