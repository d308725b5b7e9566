//! Tests lines that a container runtime has split into pieces.

use std::thread;
use std::time::{Duration, Instant};

use crate::site::{Site, lost, lost_line};
use crate::undisturbed::staged;

#[test]
fn cri_pieces_of_both_streams_are_joined() {
    let site = Site::new();
    let daemon = site.start();
    let (out, err) = (lost_line(), lost_line());
    let ([out_1, out_2, out_3], [err_1, err_2, err_3]) = (thirds(&out), thirds(&err));
    let text = [
        cri("stdout", 'P', out_1),
        cri("stderr", 'P', err_1),
        cri("stderr", 'P', err_2),
        cri("stdout", 'P', out_2),
        cri("stderr", 'F', err_3),
        cri("stderr", 'F', &lost_line()),
        cri("stdout", 'F', out_3),
        cri("stdout", 'F', &lost_line()),
    ];
    site.append("logs/app.log", text.concat());
    daemon.wait_counted(4);
}

#[test]
fn cri_pieces_are_joined_across_a_kill() {
    const N_LINES: u64 = 30;
    let site = staged("every line completed before the daemon stops waiting for it", || {
        let site = Site::new();
        let mut daemon = site.start();
        let mut rest = String::new();
        for (index, stream) in (0..N_LINES).zip(["stdout", "stderr"].iter().cycle()) {
            let line = lost_line();
            let [first, second, third] = thirds(&line);
            // One line begins before the other ends. Every saved state therefore contains an
            // incomplete line.
            site.append("logs/app.log", cri(stream, 'P', first) + &rest);
            let mut begun = Instant::now();
            rest = cri(stream, 'P', second) + &cri(stream, 'F', third);
            thread::sleep(Duration::from_millis(100));
            if index == 15 {
                daemon.kill();
                begun = Instant::now();
                daemon = site.start();
            }
            // The daemon waits two seconds for the rest of a line.
            if begun.elapsed() > Duration::from_millis(1900) {
                return None;
            }
        }
        daemon.kill();
        site.append("logs/app.log", rest);
        Some(site)
    });
    let daemon = site.start();
    daemon.wait_counted(N_LINES);
    site.append("logs/app.log", cri("stdout", 'F', &lost_line()));
    daemon.wait_counted(N_LINES + 1);
}

#[test]
fn an_incomplete_split_line_delays_no_other_line() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", cri("stdout", 'F', &lost_line()) + &cri("stdout", 'P', &lost_line()));
    daemon.wait_counted(2);
    site.append("logs/app.log", cri("stderr", 'F', &lost_line()));
    daemon.wait_counted(3);
}

#[test]
fn docker_lines_of_more_than_16_kib_are_joined() {
    let site = Site::new();
    let daemon = site.start();
    let padding = "x".repeat(40_000);
    let line = lost_line().replacen('{', &format!("{{\"padding\":\"{padding}\","), 1);
    let mut text = docker(&(lost_line() + "\n"));
    // The third split is inside the matching words.
    let last_cut = line.find("lock release").unwrap() + 6;
    for piece in [&line[..16_384], &line[16_384..32_768], &line[32_768..last_cut]] {
        text += &docker(piece);
    }
    text += &docker(&format!("{}\n", &line[last_cut..]));
    text += &docker(&(lost_line() + "\n"));
    site.append("logs/app.log", text);
    daemon.wait_counted(3);
    site.append("logs/plain.log", lost(1));
    daemon.wait_counted(4);
}

/// Split inside the matching words.
fn thirds(line: &str) -> [&str; 3] {
    let (first, second) = (line.find("run lock").unwrap() + 6, line.find("not owned").unwrap() + 2);
    [&line[..first], &line[first..second], &line[second..]]
}

fn cri(stream: &str, tag: char, text: &str) -> String {
    format!("2026-06-25T13:37:04.123456789Z {stream} {tag} {text}\n")
}

fn docker(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!("{{\"log\":{text},\"stream\":\"stderr\",\"time\":\"2026-06-25T13:37:04.123456789Z\"}}\n")
}
