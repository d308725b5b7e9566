//! Computes what the exporter would have exposed: simulated lock users in virtual time, the
//! exporter's real code, and every scrape as series.
//!
//!   lock_history < orders.jsonl > series.jsonl
//!
//! Input and output contain one JSON object per line. An input line is a scenario of
//! `alerts/scenarios/manifest.json` with a seed. The output has a value for each series every 15 s,
//! or null if a scrape had no sample. scripts/alert_bench.py uses this program. Simulating hours
//! takes seconds, because tokio's clock is paused and jumps from one timer to the next, and the
//! exporter reads no other clock for its counts.

mod exporter;
mod programs;
mod scenario;
mod store;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use redis_lock_exporter::client::scrape::Samples;
use redis_lock_exporter::rehearsal::fleet::Random;
use redis_lock_exporter::util::clock;
use redis_lock_exporter::util::clock::TimeMs;
use serde::Serialize;

use exporter::{Exporter, Eyes, RedisSeen};
use programs::{Line, Programs, minutes, seconds};
use scenario::{FaultKind, Order, Twin};

const SCRAPE_MS: TimeMs = 15_000;
const STEP_MS: TimeMs = 250;
/// The longest time that the exporter takes to reconnect.
const RECONNECT_MS: usize = 10_000;

#[derive(Serialize)]
struct Answer {
    name: String,
    /// Seconds by which all faults were delayed compared to the scenario.
    shift: f64,
    /// Seconds from the first line about a failure to the last one.
    burst: f64,
    series: BTreeMap<String, Vec<Option<f64>>>,
}

fn main() -> anyhow::Result<()> {
    let lines: Result<Vec<String>, _> = std::io::stdin().lock().lines().collect();
    let orders: Result<Vec<Order>, _> = lines?.iter().map(|line| serde_json::from_str(line)).collect();
    let orders = orders.context("an order cannot be read")?;
    let next = AtomicUsize::new(0);
    let out = Mutex::new(std::io::stdout());
    let work = || -> anyhow::Result<()> {
        while let Some(order) = orders.get(next.fetch_add(1, Ordering::Relaxed)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
            let answer = runtime.block_on(play(order)).with_context(|| format!("scenario {}", order.name))?;
            let text = serde_json::to_string(&answer)?;
            let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            writeln!(out, "{text}")?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a run panicked"))?)
    })
}

/// An exporter and its inputs.
struct Post {
    exporter: Exporter,
    instance: &'static str,
    /// The lines that the exporter reads.
    reads: fn(u64) -> bool,
    /// Lines written while the exporter was stopped.
    unread: Vec<Line>,
    /// The exporter is stopped until this time.
    away_until: Option<TimeMs>,
    /// The exporter can reach Redis again from this time on.
    reconnects: TimeMs,
}

async fn play(order: &Order) -> anyhow::Result<Answer> {
    let scenario = &order.scenario;
    let mut random = Random::new(order.seed ^ 0x5ca1_ab1e);
    let shift = seconds(60.0 * random.unit());
    let mut programs = Programs::new(scenario, order.seed, shift)?;
    let zero = clock::steady();
    let begun = tokio::time::Instant::now();
    let eyes = Eyes { redis: !scenario.exporter.logs_only, watch: !scenario.exporter.scan };
    let post = |instance, reads| -> anyhow::Result<Post> {
        let mut exporter = Exporter::new(eyes, zero)?;
        exporter.start(0);
        Ok(Post { exporter, instance, reads, unread: Vec::new(), away_until: None, reconnects: 0 })
    };
    let mut posts = match scenario.exporter.twin {
        Twin::None => vec![post("a:9190", |_| true)?],
        Twin::Keyspace => vec![post("a:9190", |_| true)?, post("b:9190", |_| false)?],
        Twin::Half => vec![post("a:9190", |replica| replica % 2 == 0)?, post("b:9190", |replica| replica % 2 == 1)?],
    };
    let namespaces: Vec<&str> = scenario.services.iter().map(|service| service.kind.namespace()).collect();
    let mut recorder = Recorder::new(order, zero);
    let mut restarts = scenario.exporter.restarts.clone();
    restarts.reverse();
    let end = minutes(order.minutes);
    // Times of the first and the last line.
    let mut written = (TimeMs::MAX, 0);
    let mut now = 0;
    while now <= end {
        tokio::time::sleep_until(begun + Duration::from_millis(now as u64)).await;
        programs.advance(now);
        let (lines, changes) = (programs.take_lines(now), programs.store.take_changes());
        if let (Some(first), Some(last)) = (lines.first(), lines.last()) {
            written = (written.0.min(first.at), last.at);
        }
        let is_cut = scenario.faults.iter().any(|fault| {
            let from = programs.begin(fault);
            fault.fault == FaultKind::Cut && (from..from + minutes(fault.minutes)).contains(&now)
        });
        // Only the first exporter restarts.
        if let Some((_, away, keeps)) = restarts.pop_if(|(at, _, _)| minutes(*at) + shift <= now) {
            posts[0].exporter.stop(keeps).await?;
            posts[0].away_until = Some(now + seconds(away));
        }
        for post in &mut posts {
            if post.away_until.is_some_and(|until| until <= now) {
                post.away_until = None;
                post.exporter.start(now);
            }
            if programs.store.down || is_cut {
                post.reconnects = now + 100 + random.below(RECONNECT_MS) as TimeMs;
            }
            let fresh = lines.iter().filter(|line| (post.reads)(line.replica));
            if !post.exporter.is_running() {
                post.unread.extend(fresh.cloned());
                continue;
            }
            let unread = std::mem::take(&mut post.unread);
            let all: Vec<&Line> = unread.iter().chain(fresh).collect();
            let redis = RedisSeen { store: &programs.store, changes: &changes, reaches: now >= post.reconnects };
            post.exporter.tell(now, &all, redis).await?;
        }
        if now % SCRAPE_MS == 0 {
            recorder.scrape(now, &posts, &namespaces);
        }
        now += STEP_MS;
    }
    for post in &mut posts {
        post.exporter.stop(true).await?;
    }
    let as_seconds = |time: TimeMs| time.max(0) as f64 / 1_000.0;
    let burst = as_seconds(written.1.saturating_sub(written.0));
    Ok(Answer { name: order.name.clone(), shift: as_seconds(shift), burst, series: recorder.series })
}

/// Converts scrapes to series.
struct Recorder<'a> {
    order: &'a Order,
    zero: TimeMs,
    n_scrapes: usize,
    series: BTreeMap<String, Vec<Option<f64>>>,
}

impl<'a> Recorder<'a> {
    fn new(order: &'a Order, zero: TimeMs) -> Self {
        Self { order, zero, n_scrapes: 0, series: BTreeMap::new() }
    }

    fn scrape(&mut self, now: TimeMs, posts: &[Post], namespaces: &[&str]) {
        let gap = self.order.scenario.gap;
        let is_gap = gap.is_some_and(|(from, length)| (minutes(from)..minutes(from + length)).contains(&now));
        for post in posts.iter().filter(|_| !is_gap) {
            let text = post.exporter.scrape(namespaces);
            self.put("up", "", post.instance, f64::from(u8::from(text.is_some())));
            for (series, value) in Samples::parse(&text.unwrap_or_default()) {
                let (name, labels) =
                    series.split_once('{').map_or((&*series, ""), |(name, rest)| (name, rest.trim_end_matches('}')));
                if !self.is_wanted(name) {
                    continue;
                }
                // Times in the rule tests start at 0.
                let is_time = name.ends_with("_timestamp_seconds") || name.ends_with("start_time_seconds");
                let value = if is_time { value - self.zero as f64 / 1_000.0 } else { value };
                self.put(name, labels, post.instance, value);
            }
        }
        self.n_scrapes += 1;
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.order.metrics.iter().any(|wanted| wanted == name)
    }

    fn put(&mut self, name: &str, labels: &str, instance: &str, value: f64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let key = format!("{name}{{{labels}{comma}instance=\"{instance}\",job=\"locks\"}}");
        let values = self.series.entry(key).or_default();
        values.resize(self.n_scrapes, None);
        values.push(Some(value));
    }
}
