//! Tests exactly-once counting against a model: random writes, rotations, copies, deletions and
//! kills on real files with the real binary. At the end the counters equal the written lines, and
//! no counter ever went down between scrapes.
//!
//! The test avoids situations that no reader can handle, instead of tolerating errors: it writes
//! nothing between the copy and the truncation of copytruncate, and it deletes a file only after
//! the daemon has counted all of its lines.
//!
//! `MODEL_KILLS=5000 cargo test --test integration model::` runs the test for longer.
//! `MODEL_SEED=n` repeats one run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::daemon::{Daemon, Samples, not_owned, text};

/// Every test run includes four runs with this many kills each.
const KILLS: usize = 60;
const STREAMS: usize = 3;
const MOST_ROTATED: usize = 6;

#[test]
fn counters_equal_the_written_lines_after_random_actions_1() {
    run(1);
}

#[test]
fn counters_equal_the_written_lines_after_random_actions_2() {
    run(2);
}

#[test]
fn counters_equal_the_written_lines_after_random_actions_3() {
    run(3);
}

#[test]
fn counters_equal_the_written_lines_after_random_actions_4() {
    run(4);
}

fn run(seed: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("MODEL_KILLS").map_or(KILLS, |kills| kills as usize / 4);
    Model::new(number("MODEL_SEED").unwrap_or(seed)).run(kills);
}

struct Model {
    random: Random,
    directory: tempfile::TempDir,
    streams: Vec<Stream>,
    daemon: Option<Daemon>,
    last: Samples,
    /// Number of written lines, by namespace.
    truth: BTreeMap<&'static str, u64>,
    next_job: u64,
    /// The last actions, printed when a check fails.
    history: Vec<String>,
    kills: usize,
    /// Inodes of rotated files that existed when all lines were counted.
    counted: BTreeSet<u64>,
}

/// A program that writes a log.
struct Stream {
    path: PathBuf,
    file: File,
    /// The rest of a partially written line.
    rest: Option<Vec<u8>>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("logs")).unwrap();
        let streams = (0..STREAMS).map(|index| {
            let path = directory.path().join(format!("logs/app{index}.log"));
            Stream { file: open(&path), path, rest: None }
        });
        Self {
            random: Random(seed),
            streams: streams.collect(),
            directory,
            daemon: None,
            last: Samples::default(),
            truth: BTreeMap::new(),
            next_job: 0,
            history: vec![format!("seed {seed}")],
            kills: 0,
            counted: BTreeSet::new(),
        }
    }

    fn run(mut self, kills: usize) {
        self.start();
        self.daemon.as_ref().unwrap().wait_ready();
        while self.kills < kills {
            self.step();
        }
        self.finish();
    }

    fn step(&mut self) {
        let stream = self.random.below(STREAMS);
        match self.random.below(100) {
            0..30 => self.write(stream),
            30..35 => self.write_half(stream),
            35..39 => self.write_without_newline(stream),
            39..46 => self.rotate(stream),
            46..50 => self.copytruncate(stream),
            50..54 => self.gzip(stream),
            54 => self.delete(stream),
            55..60 => self.pause(),
            60..72 => self.scrape(),
            72..75 => self.stop(),
            75..85 => self.kill(),
            _ => self.start(),
        }
    }

    fn write(&mut self, stream: usize) {
        self.complete(stream);
        for _ in 0..=self.random.below(20) {
            let mut line = self.line(stream);
            line.push(b'\n');
            self.streams[stream].file.write_all(&line).unwrap();
        }
        self.note(format!("write to {stream}, {} bytes now", self.streams[stream].file.metadata().unwrap().len()));
    }

    fn write_half(&mut self, stream: usize) {
        self.complete(stream);
        let mut line = self.line(stream);
        line.push(b'\n');
        let rest = line.split_off(1 + self.random.below(line.len() - 1));
        self.streams[stream].file.write_all(&line).unwrap();
        self.streams[stream].rest = Some(rest);
        self.note(format!("write half a line to {stream}"));
    }

    /// Writes a complete line without its newline. It counts when the newline arrives or when the
    /// file is rotated.
    fn write_without_newline(&mut self, stream: usize) {
        self.complete(stream);
        let line = self.line(stream);
        self.streams[stream].file.write_all(&line).unwrap();
        self.streams[stream].rest = Some(b"\n".to_vec());
        self.note(format!("write a line without newline to {stream}"));
    }

    fn complete(&mut self, stream: usize) {
        let stream = &mut self.streams[stream];
        if let Some(rest) = stream.rest.take() {
            stream.file.write_all(&rest).unwrap();
        }
    }

    /// A program does not start a new file in the middle of a line. The last newline may be
    /// missing.
    fn settle(&mut self, stream: usize) {
        match self.streams[stream].rest.as_deref() {
            Some(b"\n") => self.streams[stream].rest = None,
            _ => self.complete(stream),
        }
    }

    fn rotate(&mut self, stream: usize) {
        self.shift(stream);
        self.settle(stream);
        let path = self.streams[stream].path.clone();
        fs::rename(&path, rotated(&path, 1)).unwrap();
        self.streams[stream].file = open(&path);
        self.note(format!("rotate {stream}"));
    }

    fn copytruncate(&mut self, stream: usize) {
        self.shift(stream);
        self.complete(stream);
        let path = self.streams[stream].path.clone();
        fs::copy(&path, rotated(&path, 1)).unwrap();
        self.streams[stream].file.set_len(0).unwrap();
        self.note(format!("copytruncate {stream}"));
    }

    /// Frees the name that ends in 1. Deletes the oldest file after it was read.
    fn shift(&mut self, stream: usize) {
        let path = self.streams[stream].path.clone();
        if let Some(last) = self.existing(&path, MOST_ROTATED) {
            if !self.counted.contains(&inode(&last)) {
                self.wait_until_counted();
            }
            self.counted.remove(&inode(&last));
            fs::remove_file(last).unwrap();
        }
        for number in (1..MOST_ROTATED).rev() {
            if let Some(old) = self.existing(&path, number) {
                let new = rotated(&path, number + 1);
                let new = if is_gzip(&old) { PathBuf::from(format!("{}.gz", new.display())) } else { new };
                fs::rename(old, new).unwrap();
            }
        }
    }

    fn gzip(&mut self, stream: usize) {
        let path = self.streams[stream].path.clone();
        let plain = (1..=MOST_ROTATED).rev().map(|number| rotated(&path, number)).find(|path| path.exists());
        let Some(plain) = plain else { return };
        let packed = PathBuf::from(format!("{}.gz", plain.display()));
        let mut encoder = GzEncoder::new(File::create(&packed).unwrap(), Compression::fast());
        encoder.write_all(&fs::read(&plain).unwrap()).unwrap();
        encoder.finish().unwrap();
        if self.counted.remove(&inode(&plain)) {
            self.counted.insert(inode(&packed));
        }
        fs::remove_file(&plain).unwrap();
        self.note(format!("gzip {}", plain.display()));
    }

    /// Renames the current file and creates a new one in its place.
    fn delete(&mut self, stream: usize) {
        self.complete(stream);
        self.wait_until_counted();
        let path = self.streams[stream].path.clone();
        fs::remove_file(&path).unwrap();
        self.streams[stream].file = open(&path);
        self.note(format!("delete {stream}"));
    }

    fn pause(&mut self) {
        let milliseconds = self.random.below(300) as u64;
        thread::sleep(Duration::from_millis(milliseconds));
    }

    fn scrape(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let samples = daemon.scrape();
        let context = || format!("{}\n{}", self.history.join("\n"), daemon.log());
        for (series, before) in self.last.iter().filter(|(series, _)| series.starts_with("redis_lock_")) {
            let now = samples.get(series).unwrap_or_else(|| panic!("{series} is gone\n{}", context()));
            let is_counter = series.split('{').next().unwrap().ends_with("_total");
            assert!(!is_counter || now >= before, "{series} fell from {before} to {now}\n{}", context());
        }
        for (namespace, written) in &self.truth {
            let shown = samples[&not_owned(namespace, "release")];
            assert!(shown <= *written as f64, "{namespace}: {shown} of {written}\n{}", context());
        }
        let (events, written) = (samples[&self.events_series()], self.truth.values().sum::<u64>() as f64);
        assert!(events <= written, "{events} events in {written} lines\n{}", context());
        self.last = samples;
    }

    /// The daemon joins lines about one lock, which would hide a line that was read twice. This
    /// counts before joining.
    fn events_series(&self) -> String {
        let source = self.directory.path().join("logs/*.log");
        format!("redis_lock_exporter_log_events_total{{source=\"{}\"}}", source.display())
    }

    fn start(&mut self) {
        if self.daemon.is_none() {
            let logs = self.directory.path().join("logs/*.log");
            let state = self.directory.path().join("state");
            let arguments =
                ["--preset", "cordum", "--logs.path", text(&logs), "--state.dir", text(&state), "--log.level", "debug"];
            self.daemon = Some(Daemon::start(&arguments));
            self.note("start".to_owned());
        }
    }

    fn kill(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            self.note(format!("log:\n{}", daemon.log()));
            daemon.kill();
            self.note("kill".to_owned());
            self.kills += 1;
        }
    }

    fn stop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let log = daemon.log();
            assert!(daemon.stop().success(), "{log}");
            self.note(format!("log:\n{log}stop"));
        }
    }

    fn wait_until_counted(&mut self) {
        self.start();
        // The last newline of the current file may be missing. The test cannot wait for that line.
        for stream in 0..STREAMS {
            self.complete(stream);
        }
        let daemon = self.daemon.as_ref().unwrap();
        let mut expected: Vec<(String, f64)> =
            self.truth.iter().map(|(namespace, count)| (not_owned(namespace, "release"), *count as f64)).collect();
        expected.push((self.events_series(), self.truth.values().sum::<u64>() as f64));
        let deadline = std::time::Instant::now() + crate::daemon::DEADLINE;
        loop {
            let samples = daemon.scrape();
            if expected.iter().all(|(series, value)| samples.get(series) == Some(value)) {
                break;
            }
            if std::time::Instant::now() > deadline {
                let shown: Vec<_> = expected.iter().map(|(series, _)| (series, samples.get(series))).collect();
                let directory = self.directory.path();
                let state = fs::read_to_string(directory.join("state/state.json")).unwrap().replace("},\"", "},\n\"");
                let files = std::process::Command::new("ls").arg("-li").arg(directory.join("logs")).output().unwrap();
                let files = String::from_utf8_lossy(&files.stdout).into_owned();
                let history = self.history.join("\n");
                panic!("shown {shown:?}\ntruth {expected:?}\n{history}\n{}\n{files}\n{state}", daemon.log());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let rotated = fs::read_dir(self.directory.path().join("logs")).unwrap().map(|entry| entry.unwrap().path());
        let rotated = rotated.filter(|path| path.extension().is_some_and(|extension| extension != "log"));
        self.counted = rotated.map(|path| inode(&path)).collect();
    }

    fn finish(&mut self) {
        self.wait_until_counted();
        // No more counts may arrive, neither now nor after another start.
        self.stop();
        self.start();
        self.daemon.as_ref().unwrap().wait_ready();
        self.scrape();
        self.wait_until_counted();
    }

    /// A refused release: one failure of one lock, in the stream's namespace.
    fn line(&mut self, stream: usize) -> Vec<u8> {
        self.next_job += 1;
        let job = self.next_job;
        let (namespace, component, message) = match stream {
            0 => ("approval", "gateway", "approval lock release failed"),
            1 => ("scheduler", "scheduler", "job lock release failed, retrying"),
            _ => ("workflow", "workflow-engine", "distributed run lock release failed"),
        };
        *self.truth.entry(namespace).or_default() += 1;
        let padding = "x".repeat(self.random.below(300));
        let line = format!(
            r#"{{"time":"2026-06-25T13:37:04.123Z","level":"WARN","msg":"{message}","component":"{component}","padding":"{padding}","job_id":"job-{job}","run_id":"run-{job}","error":"lock not owned"}}"#
        );
        line.into_bytes()
    }

    fn existing(&self, path: &Path, number: usize) -> Option<PathBuf> {
        let plain = rotated(path, number);
        let packed = PathBuf::from(format!("{}.gz", plain.display()));
        [plain, packed].into_iter().find(|path| path.exists())
    }

    fn note(&mut self, action: String) {
        self.history.push(action);
        if self.history.len() > 150 {
            self.history.remove(1);
        }
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

fn rotated(path: &Path, number: usize) -> PathBuf {
    PathBuf::from(format!("{}.{number}", path.display()))
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// SplitMix64: small, with the same results on every platform.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}
