//! Runs the fuzz targets on their seeds and on a few thousand mutated copies, with stable Rust and
//! in every test run.
//!
//! `fuzz/fuzz_targets` defines the properties, and these tests assert the same ones. A generator
//! with fixed seeds makes the mutations, so failures are reproducible.

use std::fs;
use std::path::Path;

use redis_lock_exporter::config::{Config, Overrides};
use redis_lock_exporter::daemon::state_file::{SavedState, decode, encode};
use redis_lock_exporter::logs::extract::search::Searcher;
use redis_lock_exporter::logs::line::{LogRecord, unwrap_line};
use redis_lock_exporter::logs::rules::{RuleMatch, RuleSet};

const CHANGES_OF_EACH_SEED: u64 = 120;

/// Returns the name and content of each seed, sorted by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut seeds: Vec<(String, Vec<u8>)> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    seeds
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Applies one to four mutations: changed bits and bytes, cuts, repeats, and pieces of another
/// seed.
fn change(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    const TELLING: &[u8] = b"{}[]\"\\\n\r\t =:,|\0\x1b\xff\xc3 uPF0";
    let mut changed = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(changed.len());
        let length = random.below(40).min(changed.len().saturating_sub(at));
        match random.below(6) {
            0 if !changed.is_empty() => changed[at] ^= 1 << random.below(8),
            1 if !changed.is_empty() => changed[at] = TELLING[random.below(TELLING.len())],
            2 => drop(changed.drain(at..at + length)),
            3 => changed.truncate(at),
            4 => {
                let repeated = changed[at..at + length].repeat(1 + random.below(60));
                changed.splice(at..at, repeated);
            }
            _ => {
                let from = random.below(other.len());
                changed.splice(at..at, other[from..].iter().copied());
            }
        }
        changed.truncate(1 << 16);
    }
    changed
}

/// Calls `check` for every seed and its mutations.
fn for_each_input(target: &str, check: impl Fn(&str, &[u8])) {
    let seeds = seeds(target);
    for (index, (name, bytes)) in seeds.iter().enumerate() {
        check(name, bytes);
        let mut random = Random(index as u64);
        for number in 0..CHANGES_OF_EACH_SEED {
            let (_, other) = &seeds[random.below(seeds.len())];
            check(&format!("{name}, change {number}"), &change(bytes, other, &mut random));
        }
    }
}

#[test]
fn arbitrary_lines_never_panic_and_the_search_finds_every_line_that_a_rule_matches() {
    let overrides =
        Overrides { logs: vec!["-".to_owned()], presets: vec!["cordum".to_owned()], ..Overrides::default() };
    let config = Config::from_yaml("seeds", "", &overrides).unwrap();
    let rules = RuleSet::compile(&config);
    let searcher = Searcher::new(&rules.needed_texts());
    let taken = std::cell::Cell::new(0);
    for_each_input("line", |name, line| {
        let unwrapped = unwrap_line(line);
        let record = LogRecord::parse(&unwrapped.text, unwrapped.time);
        let verdict = rules.evaluate(&record);
        assert_eq!(verdict, rules.evaluate(&record), "{name}");
        let is_near = rules.explain(&record).is_some();
        assert!(!is_near || verdict == RuleMatch::NoMatch, "{name} is both a match and a near match");
        let RuleMatch::Event(event) = verdict else { return };
        taken.set(taken.get() + 1);
        assert!(usize::from(event.namespace.0) < config.namespaces.len(), "{name}");
        // `\u` can encode any letter, but no encoder uses it for plain letters.
        let contains = |text: &[u8]| memchr::memmem::find(line, text).is_some();
        let is_found = contains(b"\\u") || searcher.find_at(line, 0).is_some();
        assert!(
            is_found,
            "{name}: a rule took a line that the search does not find: {:?}",
            String::from_utf8_lossy(line)
        );
    });
    assert!(taken.get() > 500, "only {} lines matched a rule: the mutations are too strong", taken.get());
}

#[test]
fn state_files_are_decoded_or_refused() {
    for_each_input("state_file", |name, bytes| {
        if let Ok(state) = decode(bytes) {
            assert_eq!(decode(&encode(&state)).as_ref(), Ok(&state), "{name}");
        }
    });
    let state = full_state();
    let encoded = encode(&state);
    assert_eq!(decode(&encoded).as_ref(), Ok(&state));
    let mut random = Random(7);
    for number in 0..2000 {
        let changed = change(&encoded, &encoded, &mut random);
        if let Ok(decoded) = decode(&changed) {
            // The header can be written in different ways, but the decoded content must not change.
            assert_eq!(decoded, state, "mutation {number} was not detected");
        }
    }
}

/// Returns the saved state of a daemon that has counted something.
fn full_state() -> SavedState {
    let body = serde_json::json!({
        "ledger": {
            "namespaces": {"jobs": {"not_owned": {"release": 3}, "release_failures": {"not_owned": 3}, "abandonments": 1}},
            "joined": {"entries": {"17": [1_782_392_400_000_i64, 1_782_392_400_100_i64]}, "evictions": 2},
            "finals": [[[5, 6]], 1],
        },
        "sources": {"/var/log/*.log": {"bytes": 100, "lines": 7}},
        "next_file_id": 4,
        "saves": 9,
    });
    serde_json::from_value(body).unwrap()
}
