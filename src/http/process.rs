//! Process metrics, read from `/proc` at each scrape.
//!
//! `routes` calls this module. A value that cannot be read or parsed (another operating system, a
//! hardened container) is absent. No function here fails.

use std::fs;
use std::sync::OnceLock;

use crate::exposition::ProcessStats;
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Used if the kernel does not provide the values. They hold for Linux on common hardware.
const USUAL_TICKS_PER_SECOND: u64 = 100;
const USUAL_PAGE_BYTES: u64 = 4096;

/// Keys of the auxiliary vector, see getauxval(3).
const AT_PAGESZ: u64 = 6;
const AT_CLKTCK: u64 = 17;

/// Time of the first start of the server.
static STARTED: OnceLock<TimeMs> = OnceLock::new();

/// Records the start of the process. Call it as early as possible.
pub(super) fn note_start() {
    STARTED.get_or_init(clock::now);
}

pub(super) fn read_process() -> ProcessStats {
    let auxiliary = fs::read("/proc/self/auxv").unwrap_or_default();
    let ticks = auxiliary_value(&auxiliary, AT_CLKTCK).unwrap_or(USUAL_TICKS_PER_SECOND) as f64;
    let page_bytes = auxiliary_value(&auxiliary, AT_PAGESZ).unwrap_or(USUAL_PAGE_BYTES);
    let stat = read("/proc/self/stat").and_then(|text| parse_stat(&text));
    let boot_time = read("/proc/stat").and_then(|text| boot_time(&text));
    let start_time = boot_time.zip(stat).map(|(boot, stat)| boot as f64 + stat.start_ticks as f64 / ticks);
    ProcessStats {
        resident_memory_bytes: stat.map(|stat| stat.resident_pages.saturating_mul(page_bytes)),
        cpu_seconds: stat.map(|stat| stat.cpu_ticks as f64 / ticks),
        // One entry is the open directory itself.
        open_fds: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as u64),
        max_fds: read("/proc/self/limits").and_then(|text| max_open_files(&text)),
        // With `ProcSubset=pid`, `/proc` shows only processes, and the boot time is unknown.
        start_time_seconds: start_time.or_else(|| STARTED.get().map(|started| *started as f64 / 1000.0)),
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    /// Ticks from boot to the start of the process.
    start_ticks: u64,
    resident_pages: u64,
}

/// The second field is the program's name in parentheses and may contain any character. Fields are
/// therefore counted from its closing parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    // proc(5) counts fields from 1. The first field after the name is field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat { cpu_ticks: field(14)?.saturating_add(field(15)?), start_ticks: field(22)?, resident_pages: field(24)? })
}

fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the soft limit, or `None` if it is unlimited.
fn max_open_files(text: &str) -> Option<u64> {
    let limits = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    limits.split_ascii_whitespace().next()?.parse().ok()
}

/// Finds a value in the auxiliary vector, which is a list of key and value pairs of native words.
fn auxiliary_value(bytes: &[u8], key: u64) -> Option<u64> {
    const WORD: usize = size_of::<usize>();
    let words: Vec<u64> = bytes
        .chunks_exact(WORD)
        .filter_map(|word| word.try_into().ok())
        .map(|word| usize::from_ne_bytes(word) as u64)
        .collect();
    words.chunks_exact(2).find(|pair| pair[0] == key).map(|pair| pair[1]).filter(|value| *value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_a_program_name_with_parentheses_and_spaces() {
        let text = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 120 30 13 14 15 16 17 18 5000 20 777 22";
        assert_eq!(parse_stat(text), Some(Stat { cpu_ticks: 150, start_ticks: 5000, resident_pages: 777 }));
        for broken in ["", "42 (a", "42 (a) S 1 2", "42 (a) S 1 2 3 4 5 6 7 8 9 10 x 30 13 14 15 16 17 18 5000 20 7"] {
            assert_eq!(parse_stat(broken), None, "{broken}");
        }
    }

    #[test]
    fn limits_and_boot_time_are_found_in_their_files() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1785000000\nprocesses 3\n"), Some(1_785_000_000));
        assert_eq!(boot_time("cpu 1 2\n"), None);
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024       524288    files\n";
        assert_eq!(max_open_files(limits), Some(1024));
        assert_eq!(max_open_files("Max open files  unlimited  unlimited  files\n"), None);
    }

    #[test]
    fn the_auxiliary_vector_is_pairs_of_words() {
        let words: [usize; 6] = [3, 17, 17, 250, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(auxiliary_value(&bytes, AT_CLKTCK), Some(250));
        assert_eq!(auxiliary_value(&bytes, AT_PAGESZ), None);
        assert_eq!(auxiliary_value(b"odd", AT_CLKTCK), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_very_process_is_described() {
        let process = read_process();
        let memory = process.resident_memory_bytes.unwrap();
        assert!((100_000..100_000_000_000).contains(&memory), "{memory}");
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let age = now - process.start_time_seconds.unwrap();
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(process.open_fds.unwrap() >= 3);
        assert!(process.cpu_seconds.unwrap() >= 0.0);
    }
}
