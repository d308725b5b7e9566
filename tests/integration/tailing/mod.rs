//! Which log files are read, from where, and what that costs.

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
        // A look around every 400 ms, a save every second, and a busy machine.
        (written.elapsed() < Duration::from_secs(6)).then_some(())
    });
}

#[test]
fn files_of_the_first_start_begin_at_their_end() {
    let site = Site::new();
    site.append("logs/app.log", lost(3));
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    assert_eq!(daemon.scrape()[&site.series("log_bytes_total", "logs/*.log")], lost(1).len() as f64);
}

#[test]
fn a_line_that_was_half_written_at_the_first_start_is_not_read_from_its_middle() {
    let site = Site::new();
    site.append("logs/app.log", "this line began before and ends with: ");
    let daemon = site.start();
    // Taken for a line of its own it would count.
    site.append("logs/app.log", lost(1));
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
}

#[test]
fn with_start_at_beginning_files_of_the_first_start_are_read_whole() {
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
fn two_stars_find_files_in_new_directories() {
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
fn every_source_has_its_own_numbers() {
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
fn a_file_that_two_patterns_find_is_read_once() {
    let site = Site::new();
    let daemon = site.start_on(&["logs/*.log", "logs/app.log", "logs/**/app.*"]);
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    assert_eq!(sum(&daemon.scrape(), "redis_lock_exporter_log_open_files"), 1.0);
}

#[test]
fn links_that_lead_back_up_do_not_make_the_search_endless() {
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
fn a_file_goes_on_when_another_pattern_finds_it() {
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
    // Its copies are known as copies, too.
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
fn a_source_that_is_removed_and_added_again_goes_on_where_it_was() {
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
fn a_file_that_cannot_be_read_is_counted_and_does_not_stop_the_others() {
    let site = Site::new();
    // Everybody may open the memory of his own process, nobody can read its first page.
    symlink("/proc/self/mem", site.path("logs/a-unreadable.log")).unwrap();
    symlink(site.path("logs/b-loop.log"), site.path("logs/b-loop.log")).unwrap();
    fs::create_dir(site.path("logs/c-directory.log")).unwrap();
    symlink(site.path("nowhere"), site.path("logs/d-dangling.log")).unwrap();
    let daemon = site.start();
    let errors = site.series("log_read_errors_total", "logs/*.log");
    daemon.wait("read errors that grow", |daemon| daemon.scrape()[&errors] > 3.0);
    site.append("logs/e-fine.log", lost(1));
    daemon.wait_counted(1);
    let before = daemon.scrape()[&errors];
    daemon.wait("tried again", |daemon| daemon.scrape()[&errors] > before);
    for name in ["/mem", "b-loop.log"] {
        let mentions = daemon.log().lines().filter(|line| line.contains(name) && line.contains("cannot read")).count();
        assert_eq!(mentions, 1, "{name}:\n{}", daemon.log());
    }
    // What was a loop is a file now.
    site.remove("logs/b-loop.log");
    site.append("logs/b-loop.log", lost(1));
    daemon.wait_counted(2);
}

#[test]
fn a_directory_that_vanishes_and_comes_back_is_not_read_twice() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(2));
    daemon.wait_counted(2);
    site.rename("logs", "elsewhere");
    // Long enough for the file to be read to its end and closed.
    daemon.wait_for(&site.series("log_open_files", "logs/*.log"), 0.0);
    site.append("elsewhere/app.log", lost(1));
    site.rename("elsewhere", "logs");
    daemon.wait_counted(3);
    site.append("logs/app.log", lost(1));
    site.append("logs/another.log", lost(1));
    daemon.wait_counted(5);
}

#[test]
fn a_file_that_comes_back_under_its_name_may_still_end_in_half_a_line() {
    let line = lost_line();
    let (half, rest) = line.split_at(line.len() - 10);
    let (site, daemon) = staged("away and back before the file is finished", || {
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
    // More than the time after which a rotated file is finished passes while another one is written to.
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
fn a_huge_backlog_does_not_keep_a_small_file_waiting() {
    let site = Site::new();
    site.append("logs/a-huge.log", "");
    site.append("logs/b-small.log", "");
    let daemon = site.start_on(&["logs/a*.log", "logs/b*.log"]);
    daemon.pause();
    // A hole costs no disk, and reading it takes far longer than this test.
    let huge: u64 = 256 << 30;
    File::options().write(true).open(site.path("logs/a-huge.log")).unwrap().set_len(huge).unwrap();
    site.append("logs/b-small.log", lost(1));
    daemon.go_on();
    daemon.wait_counted(1);
    let samples = daemon.scrape();
    let lag = samples[&site.series("log_lag_bytes", "logs/a*.log")];
    assert!(lag > (huge / 4) as f64, "only {lag} bytes left");
    assert!(samples[&site.series("log_bytes_total", "logs/a*.log")] > 0.0);
    // And it can be stopped in the middle.
    assert!(daemon.stop().success());
}

#[test]
fn hundreds_of_idle_files_cost_little() {
    let site = Site::new();
    for index in 0..300 {
        site.append(&format!("logs/idle-{index}.log"), lost(1));
    }
    let daemon = site.start();
    daemon.wait_for(&site.series("log_open_files", "logs/*.log"), 300.0);
    let cpu = |daemon: &Daemon| sum(&daemon.scrape(), "process_cpu_seconds_total");
    // In a build without optimization. On a busy machine the same work takes more.
    staged("a fifth of a core is enough", || {
        let (before, started) = (cpu(&daemon), Instant::now());
        thread::sleep(Duration::from_secs(4));
        let share = (cpu(&daemon) - before) / started.elapsed().as_secs_f64();
        eprintln!("{share} of a core");
        (share < 0.2).then_some(())
    });
    site.append("logs/idle-7.log", lost(1));
    daemon.wait_counted(1);
}
