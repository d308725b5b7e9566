//! The exporter's counters beside the truth, as a table.
//!
//! Every series of a metric that the truth knows has to agree, series that only one side has included: a failure counted
//! in the wrong namespace shows as one too few here and one too many there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::truth::Truth;

const METRICS: &[&str] = &[
    "redis_lock_not_owned_total",
    "redis_lock_renewal_failures_total",
    "redis_lock_abandonments_total",
    "redis_lock_release_failures_total",
    "redis_lock_acquire_failures_total",
    "redis_lock_unlocked_work_total",
    "redis_lock_conflicting_writes_total",
];

/// Whether all of them agree.
pub(crate) fn run(truth: &Path, metrics: &str) -> anyhow::Result<bool> {
    let truth = Truth::load(truth)?;
    let text = match metrics.parse() {
        Ok(address) => fetch(address)?,
        Err(_) => std::fs::read_to_string(metrics).with_context(|| format!("cannot read {metrics}"))?,
    };
    let counted = parse(&text);
    let series: BTreeSet<&String> = truth.series.keys().chain(counted.keys()).collect();

    let mut all_agree = true;
    println!(
        "{:>9} {:>9}  {} lines, {} of them about lock failures",
        "truth", "exporter", truth.lines, truth.event_lines
    );
    for name in series {
        let expected = truth.series.get(name).copied().unwrap_or(0);
        let found = counted.get(name).copied().unwrap_or(0);
        let mark = if expected == found { " " } else { "*" };
        all_agree &= expected == found;
        println!("{expected:>9} {found:>9} {mark}{}", name.trim_start_matches("redis_lock_"));
    }
    Ok(all_agree)
}

/// Series above 0 of the metrics in question, by their canonical name. Labels are sorted, so that order does not matter.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let mut series = BTreeMap::new();
    for line in text.lines() {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let (metric, labels) = name.split_once('{').unwrap_or((name, "}"));
        let count = value.parse::<f64>().unwrap_or(0.0) as u64;
        if !METRICS.contains(&metric) || count == 0 {
            continue;
        }
        let mut labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
        labels.sort_by_key(|label| (!label.starts_with("lock_namespace="), *label));
        *series.entry(format!("{metric}{{{}}}", labels.join(","))).or_default() += count;
    }
    series
}

fn fetch(address: std::net::SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))
        .with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    // HTTP/1.0: the answer ends where the connection does, and is never sent in chunks.
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\nAccept: text/plain\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("cannot read /metrics from {address}"))?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("{address} did not answer in HTTP") };
    let status = head.lines().next().unwrap_or_default();
    if !status.contains(" 200 ") {
        bail!("{address} answered /metrics with {status:?}");
    }
    Ok(body.to_owned())
}
