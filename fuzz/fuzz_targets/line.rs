//! A line of any bytes through everything that looks at lines: container wrapping, fields, the Cordum preset's rules.
//!
//! Nothing may panic, and a rule may only take a line that the search finds: the daemon never
//! shows other lines to the rules, so anything else would be counted here and missed there. Lines with `\u` escapes are left
//! out of that: they can spell any letter, and no encoder spells plain letters so.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use redis_lock_exporter::config::{Config, Overrides};
use redis_lock_exporter::logs::line::{LogRecord, unwrap_line};
use redis_lock_exporter::logs::rules::{RuleSet, RuleMatch};
use redis_lock_exporter::logs::extract::search::Searcher;

static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let overrides =
        Overrides { logs: vec!["-".to_owned()], presets: vec!["cordum".to_owned()], ..Overrides::default() };
    RuleSet::compile(&Config::from_yaml("fuzz", "", &overrides).expect("the embedded preset is valid"))
});

static SEARCHER: LazyLock<Searcher> = LazyLock::new(|| Searcher::new(&RULES.needed_texts()));

fuzz_target!(|line: &[u8]| {
    let unwrapped = unwrap_line(line);
    let record = LogRecord::parse(&unwrapped.text, unwrapped.time);
    let contains = |text: &[u8]| line.windows(text.len()).any(|window| window == text);
    if let RuleMatch::Event(_) = RULES.evaluate(&record)
        && !contains(b"\\u")
    {
        assert!(SEARCHER.find_at(line, 0).is_some(), "a rule took a line that the search does not find");
    }
});
