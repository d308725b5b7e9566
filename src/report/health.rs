//! What is wrong now, as sentences with a level, worst first. The page and `/api/v1/overview` show
//! them.
//!
//! Pure: takes a snapshot and the time, returns findings. Thresholds are those of the namespace,
//! with the defaults of the alert rules. The alert rules wait until a problem lasts and this module
//! does not, so it reports a problem minutes before a page. A source that cannot be read is a
//! finding too: the absence of failures means nothing unless every source is read.

use std::fmt;
use std::time::Duration;

use crate::config::{Config, STDIN};
use crate::model::failure::FailureKind;
use crate::model::label::{Label, label_enum};
use crate::model::namespace::{Namespace, OnRenewalFailure, Severity, Style};
use crate::model::sighting::OperationsSource;
use crate::snapshot::{
    KeyspaceView, NamespaceView, ObservedOperation, Ratios, RecentActivity, RedisView, Snapshot, SourceView,
};
use crate::util::clock::TimeMs;
use crate::util::units::span;

// The alert rules contain the same limits as the following constants. A test compares them.

/// Defaults if nothing is configured.
const DEFAULT_RATIO: f64 = 0.05;
const DEFAULT_MIN_FAILURES: u64 = 5;
/// A loop lock may be free for this many TTLs plus this many seconds.
const DEFAULT_LEADER_ABSENT: (u32, u64) = (2, 120);
/// A lock of style item may be held for this many TTLs.
const DEFAULT_MAX_HOLD: u32 = 20;
/// Limit for expirations as a share of all ended holds.
const EXPIRY_RATIO: f64 = 0.2;
/// If this share of the renewals or acquisitions fails, work has practically stopped.
const STANDSTILL: f64 = 0.5;
/// Locks with an overdue renewal as a share of held locks: limit for a warning, and for most of the
/// locks.
const OVERDUE_SHARES: (f64, f64) = (0.1, 0.5);
/// Fewer overdue locks than this are never most of the locks.
const OVERDUE_LOCKS: u64 = 2;
/// Age at which a snapshot is stale. A snapshot is published every second.
const STALE_SNAPSHOT: TimeMs = 15_000;
/// A log with unread bytes is stuck if nothing was read from it for this long.
const STALLED_LOG: TimeMs = 60_000;
const SILENT_LOG: TimeMs = 6 * 3_600_000;
/// A scan is stale after this many seconds and this many intervals and passes.
const STALE_SCAN: (f64, f64) = (60.0, 3.0);

label_enum! {
    /// The level of a finding, worst first.
    Level {
        /// Somebody must act now.
        Critical = "critical",
        /// Something is not observed, so nothing can be concluded from it.
        Blind = "blind",
        Warning = "warning",
        Well = "well",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthFinding {
    pub level: Level,
    pub text: String,
    /// Name of the runbook that explains what to do.
    pub runbook: &'static str,
}

/// Returns the worst level of several findings.
pub fn level<'a>(findings: impl IntoIterator<Item = &'a HealthFinding>) -> Level {
    findings.into_iter().map(|finding| finding.level).min().unwrap_or(Level::Well)
}

/// Returns the level of a namespace. An exporter that does not observe everything cannot report
/// that a namespace is well, so `Well` becomes `Blind`.
pub fn level_of_namespace(findings: &[HealthFinding], of_exporter: &[HealthFinding]) -> Level {
    let own = level(findings);
    let is_blind = level(of_exporter) <= Level::Blind;
    if own == Level::Well && is_blind { Level::Blind } else { own }
}

/// Returns findings about the exporter itself: whether it reads Redis and the logs, and whether the
/// numbers are fresh and saved.
pub fn of_exporter(snapshot: &Snapshot, now: TimeMs) -> Vec<HealthFinding> {
    let mut findings = HealthFindings::default();
    let age = now - snapshot.taken;
    if snapshot.taken == 0 {
        findings.add(Level::Blind, "RedisLockExporterAbsent", "The exporter is starting.".to_owned());
        return findings.0;
    }
    if age > STALE_SNAPSHOT {
        let text = format!("The numbers are {} old: the exporter does not publish new ones.", span(age));
        findings.add(Level::Blind, "RedisLockExporterAbsent", text);
    }
    if let Some(redis) = &snapshot.redis {
        of_redis(redis, snapshot.config.as_deref(), now, &mut findings);
    }
    for source in &snapshot.sources {
        of_log(source, now, &mut findings);
    }
    let exporter = &snapshot.exporter;
    if exporter.state_enabled && !exporter.state_durable {
        let text = "State cannot be saved: after a crash, counters would start again from the last saved numbers.";
        findings.add(Level::Warning, "RedisLockStateNotSaved", text.to_owned());
    }
    if !exporter.config_reload_ok {
        let text = "The last reload rejected the configuration; the old one is in effect.";
        findings.add(Level::Warning, "RedisLockConfigReloadFailed", text.to_owned());
    }
    findings.sorted()
}

fn of_redis(redis: &RedisView, config: Option<&Config>, now: TimeMs, findings: &mut HealthFindings) {
    let RedisView { name, now: state } = redis;
    let complaints = state.complaints.join("; ");
    if !state.is_up() {
        let why = if complaints.is_empty() { String::new() } else { format!(": {complaints}") };
        let (up, known) = (state.nodes_up, state.nodes);
        let text = format!("Redis {name} is not reachable, {up} of {known} known primaries are connected{why}.");
        findings.add(Level::Critical, "RedisLockRedisDown", text);
        return;
    }
    let watches = config.and_then(|config| config.redis.as_ref()).is_none_or(|redis| redis.watch.enabled);
    if watches && !state.is_tracking() {
        let text =
            format!("Redis {name} does not push changes: short holds are not observed, counts are lower bounds.");
        findings.add(Level::Blind, "RedisLockTrackingLost", text);
    }
    if !complaints.is_empty() {
        let runbook = match state.denied.iter().any(|(_, is_denied)| *is_denied) {
            true => "RedisLockAccessDenied",
            false => "RedisLockTrackingLost",
        };
        findings.add(Level::Blind, runbook, format!("Redis {name}: {complaints}."));
    }
    let (interval, duration) = (state.scan_interval_seconds, state.scan_duration_seconds);
    let (seconds, passes) = STALE_SCAN;
    let patience = seconds + passes * (interval.unwrap_or(0.0) + duration.unwrap_or(0.0));
    match state.scan_last_success {
        None => {
            let progress = state.scan_progress.map_or_else(String::new, |share| format!(", {} so far", percent(share)));
            let text = format!("Redis {name}: the first pass over all keys is not complete{progress}.");
            findings.add(Level::Blind, "RedisLockScanStale", text);
        }
        Some(last) if (now - last) as f64 > patience * 1000.0 => {
            let text = format!("Redis {name}: the last pass over all keys was {} ago.", span(now - last));
            findings.add(Level::Blind, "RedisLockScanStale", text);
        }
        Some(_) => {}
    }
}

fn of_log(source: &SourceView, now: TimeMs, findings: &mut HealthFindings) {
    let SourceView { name, totals, now: state } = source;
    let silence = totals.last_read.map(|last| now - last);
    if let Some(complaint) = &state.complaint {
        findings.add(Level::Blind, "RedisLockLogSilent", format!("Log source {name}: {complaint}."));
    } else if state.open_files == 0 {
        let text = match name.as_str() {
            STDIN => "Standard input has ended: nothing more is read from it.".to_owned(),
            _ => format!("No log file is open for {name}."),
        };
        findings.add(Level::Blind, "RedisLockLogSilent", text);
    } else if state.lag_bytes > 0 && silence.is_none_or(|silence| silence > STALLED_LOG) {
        let text = format!("Reading {name} is stuck with {} bytes to go.", state.lag_bytes);
        findings.add(Level::Blind, "RedisLockLogTailStalled", text);
    } else if let Some(silence) = silence.filter(|silence| *silence > SILENT_LOG) {
        let text = format!("Nothing was written to {name} for {}.", span(silence));
        findings.add(Level::Blind, "RedisLockLogSilent", text);
    }
}

/// Returns findings about one namespace, according to its own thresholds.
pub fn of_namespace(view: &NamespaceView, now: TimeMs) -> Vec<HealthFinding> {
    let mut findings = HealthFindings::default();
    for (kind, count) in view.lately.windows[0].failures.iter().filter(|(_, count)| *count > 0) {
        match kind {
            FailureKind::NotOwned => of_losses(view, count, &mut findings),
            FailureKind::RenewalFailed => of_renewals(view, count, &mut findings),
            FailureKind::Abandoned => of_abandonments(view, count, &mut findings),
            // Either the lock was lost, or Redis failed. Both are findings of their own.
            FailureKind::ReleaseFailed => {}
            FailureKind::AcquireFailed => of_acquisitions(view, count, &mut findings),
            FailureKind::UnlockedWork => of_unlocked_work(view, count, &mut findings),
            FailureKind::ConflictingWrite => of_conflicting_writes(view, count, &mut findings),
        }
    }
    of_fences(view, &mut findings);
    if let Some(keyspace) = &view.keyspace {
        of_keyspace(&view.namespace, keyspace, now, &mut findings);
        of_expiries(view, keyspace, &mut findings);
    }
    findings.sorted()
}

fn of_losses(view: &NamespaceView, lost: u64, findings: &mut HealthFindings) {
    let NamespaceView { namespace, keyspace, lately, .. } = view;
    let locks = format!("{} lost{}", counted(lost, "lock was", "locks were"), within(lately));
    let enough = lost >= min_failures(namespace);
    let (threshold, complete) = (namespace.thresholds.not_owned_ratio.unwrap_or(DEFAULT_RATIO), ratio(keyspace));
    match complete.and_then(|ratios| ratios.not_owned) {
        Some(ratio) if enough && ratio > threshold => {
            let (ratio, threshold) = (percent(ratio), percent(threshold));
            let text = format!("{locks}: {ratio} of releases and renewals were rejected, above {threshold}.");
            findings.add(urgent(namespace), "RedisLockNotOwnedRatioHigh", text);
        }
        Some(ratio) => {
            let (ratio, threshold) = (percent(ratio), percent(threshold));
            let text = format!("{locks}: {ratio} of releases and renewals; it pages above {threshold}.");
            findings.add(Level::Warning, "RedisLockNotOwnedRatioHigh", text);
        }
        None => {
            let text = format!("{locks}; the number of successful operations is unknown.");
            let level = if enough { urgent(namespace) } else { Level::Warning };
            findings.add(level, "RedisLockNotOwnedRateHigh", text);
        }
    }
}

fn of_renewals(view: &NamespaceView, failed: u64, findings: &mut HealthFindings) {
    let NamespaceView { namespace, keyspace, lately, .. } = view;
    let renewals = format!("{} failed{}", counted(failed, "renewal", "renewals"), within(lately));
    let threshold = namespace.thresholds.renewal_failure_ratio.unwrap_or(DEFAULT_RATIO);
    let runbook = "RedisLockRenewalFailureRatioHigh";
    match ratio(keyspace).and_then(|ratios| ratios.renewal_failure) {
        Some(ratio) if failed >= min_failures(namespace) && ratio > threshold => {
            let is_urgent = namespace.on_renewal_failure == OnRenewalFailure::Continue || ratio >= STANDSTILL;
            let level = if is_urgent { urgent(namespace) } else { Level::Warning };
            let (ratio, threshold) = (percent(ratio), percent(threshold));
            findings.add(level, runbook, format!("{renewals}, {ratio} of them, above {threshold}."));
        }
        Some(ratio) => {
            let ratio = percent(ratio);
            findings.add(Level::Warning, runbook, format!("{renewals}, {ratio} of them."));
        }
        None => findings.add(Level::Warning, runbook, format!("{renewals}.")),
    }
}

/// Uses the threshold for renewals, as the alert rules do: both operations send the same kind of
/// request to Redis and fail for the same reasons.
fn of_acquisitions(view: &NamespaceView, failed: u64, findings: &mut HealthFindings) {
    let NamespaceView { namespace, keyspace, lately, .. } = view;
    let attempts = counted(failed, "attempt", "attempts");
    let time = within(lately);
    let text = format!("{attempts} to acquire a lock failed{time}, not counting those that found it taken");
    let threshold = namespace.thresholds.renewal_failure_ratio.unwrap_or(DEFAULT_RATIO);
    let runbook = "RedisLockAcquireFailing";
    // If acquisitions are not observed completely, their share is meaningless.
    if ratio(keyspace).is_none() {
        return findings.add(Level::Warning, runbook, format!("{text}."));
    }
    let share = failed as f64 / (failed + lately.windows[0].operations.get(ObservedOperation::Acquisition)) as f64;
    let (of_all, limit) = (percent(share), percent(threshold));
    match failed >= min_failures(namespace) && share > threshold {
        true => {
            let level = if share >= STANDSTILL { urgent(namespace) } else { Level::Warning };
            findings.add(level, runbook, format!("{text}: {of_all} of all, above {limit}."));
        }
        false => findings.add(Level::Warning, runbook, format!("{text}: {of_all} of all.")),
    }
}

fn of_unlocked_work(view: &NamespaceView, count: u64, findings: &mut HealthFindings) {
    let pieces = counted(count, "piece of work", "pieces of work");
    let text = format!("{pieces} ran without a distributed lock{}.", within(&view.lately));
    findings.add(urgent(&view.namespace), "RedisLockUnlockedWork", text);
}

fn of_abandonments(view: &NamespaceView, count: u64, findings: &mut HealthFindings) {
    let (level, runbook) = match view.namespace.thresholds.strict {
        true => (Level::Critical, "RedisLockAbandoned"),
        false => (Level::Warning, "RedisLockAbandonedEvent"),
    };
    let holders = counted(count, "holder", "holders");
    findings.add(level, runbook, format!("{holders} gave up and stopped{}.", within(&view.lately)));
}

fn of_conflicting_writes(view: &NamespaceView, count: u64, findings: &mut HealthFindings) {
    let writes = counted(count, "write", "writes");
    let text = format!("{writes} collided with another holder's{}.", within(&view.lately));
    findings.add(Level::Warning, "RedisLockDuplicateTerminalState", text);
}

fn of_fences(view: &NamespaceView, findings: &mut HealthFindings) {
    let [_, hour] = &view.lately.windows;
    let regressions = hour.operations.get(ObservedOperation::FenceRegression);
    if regressions > 0 {
        let fences = counted(regressions, "fence counter", "fence counters");
        let text = format!("{fences} went backwards within an hour.");
        findings.add(urgent(&view.namespace), "RedisLockFenceRegression", text);
    }
}

fn of_keyspace(namespace: &Namespace, keyspace: &KeyspaceView, now: TimeMs, findings: &mut HealthFindings) {
    let state = &keyspace.now;
    if state.source.is_none_or(|source| source == OperationsSource::None) {
        let text = "Redis is not observed: what happens to these locks is unknown.";
        findings.add(Level::Blind, "RedisLockRedisDown", text.to_owned());
        return;
    }
    if state.source == Some(OperationsSource::Partial) {
        let text = "Changes of these locks were missed in the last 5 minutes: counts are lower bounds.";
        findings.add(Level::Blind, "RedisLockTrackingLost", text.to_owned());
    }
    if let Some(limit) = leader_absent(namespace) {
        for (lock, last) in state.last_held.iter().filter(|(_, last)| is_older(now - last, limit)) {
            let text = format!("Nobody has held {lock} for {}.", span(now - last));
            findings.add(urgent(namespace), "RedisLockLeaderAbsent", text);
        }
    }
    let (some, most) = OVERDUE_SHARES;
    let share = state.renewal_overdue as f64 / state.held.max(1) as f64;
    // A loop lock is renewed only while its loop works, so an overdue renewal is normal.
    if share > some && namespace.style == Style::Item {
        let text = format!("{} of {} held locks are not renewed in time.", state.renewal_overdue, state.held);
        match share > most && state.renewal_overdue >= OVERDUE_LOCKS {
            true => findings.add(urgent(namespace), "RedisLockMassRenewalOverdue", text),
            false => findings.add(Level::Warning, "RedisLockRenewalOverdue", text),
        }
    }
    if state.lost_ttl > 0 {
        let locks = counted(state.lost_ttl, "lock", "locks");
        let text =
            format!("{locks} lost the TTL while held and will stay until deleted: SET without PX or EX removes it.");
        findings.add(Level::Warning, "RedisLockWithoutTtl", text);
    }
    let never_had = state.without_ttl.saturating_sub(state.lost_ttl);
    if never_had > 0 {
        let locks = counted(never_had, "lock has", "locks have");
        findings.add(Level::Warning, "RedisLockWithoutTtl", format!("{locks} no TTL and will stay until deleted."));
    }
    if let (Some(limit), Some(oldest)) = (max_hold(namespace), state.oldest_acquired)
        && is_older(now - oldest, limit)
    {
        let text =
            format!("A lock is held for {}, longer than {}.", span(now - oldest), span(limit.as_millis() as TimeMs));
        findings.add(Level::Warning, "RedisLockHeldTooLong", text);
    }
}

fn of_expiries(view: &NamespaceView, keyspace: &KeyspaceView, findings: &mut HealthFindings) {
    let expired = view.lately.windows[0].operations.get(ObservedOperation::Expiration);
    let ratio = keyspace.ratios[0].expiry.filter(|ratio| *ratio > EXPIRY_RATIO);
    if let Some(ratio) =
        ratio.filter(|_| expired >= min_failures(&view.namespace) && view.namespace.style == Style::Item)
    {
        let (locks, time) = (counted(expired, "lock", "locks"), within(&view.lately));
        let text = format!("{locks} expired instead of being released{time}, {} of all.", percent(ratio));
        findings.add(Level::Warning, "RedisLockExpiryRatioHigh", text);
    }
}

/// Returns the headline. It never claims more than what is observed. `subjects` are the affected
/// namespaces.
pub fn summary(snapshot: &Snapshot, level: Level, subjects: &[&str]) -> String {
    let seen = match (&snapshot.redis, snapshot.sources.is_empty()) {
        (Some(_), false) => "Every log is read and Redis is watched.",
        (Some(_), true) => {
            "Redis is watched. No logs are read here, so rejected releases and renewals are not observed."
        }
        (None, false) => "Every log is read. Redis is not watched here, so expirations and causes are not observed.",
        (None, true) => "Nothing is watched.",
    };
    let at = match subjects {
        [] => String::new(),
        [one] => format!(": {one}"),
        [one, two] => format!(": {one} and {two}"),
        [one, two, rest @ ..] => format!(": {one}, {two} and {} more", rest.len()),
    };
    match level {
        Level::Well => format!("{} {seen}", all_well(snapshot)),
        Level::Warning => format!("Worth checking{at}."),
        Level::Blind => "The exporter does not see everything, so nothing here proves that all is well.".to_owned(),
        Level::Critical => format!("Wrong now{at}."),
    }
}

/// States for how long nothing was wrong, as far as it was observed.
fn all_well(snapshot: &Snapshot) -> String {
    let (_, window) = Ratios::WINDOWS[0];
    let is_short = |view: &&NamespaceView| view.lately.observed[0] < window;
    let short: Vec<&NamespaceView> = snapshot.namespaces.iter().filter(is_short).collect();
    let Some(least) = short.iter().min_by_key(|view| view.lately.observed[1]) else {
        return "All well for the last 5 minutes.".to_owned();
    };
    let [minutes, hour] = least.lately.observed.map(span);
    if short.len() < snapshot.namespaces.len() {
        return format!("Nothing wrong so far, but {} was observed for {minutes} only.", least.namespace.name);
    }
    match least.lately.observed[1] < window {
        true => format!("Observing for {hour}; nothing wrong so far."),
        // The exporter did not run for a while.
        false => format!("Nothing wrong in the last 5 minutes, of which {minutes} were observed."),
    }
}

#[derive(Default)]
struct HealthFindings(Vec<HealthFinding>);

impl HealthFindings {
    fn add(&mut self, level: Level, runbook: &'static str, text: String) {
        self.0.push(HealthFinding { level, text, runbook });
    }

    fn sorted(mut self) -> Vec<HealthFinding> {
        self.0.sort_by_key(|finding| finding.level);
        self.0
    }
}

/// Returns the ratios only if every operation is observed; otherwise they are meaningless.
fn ratio(keyspace: &Option<KeyspaceView>) -> Option<Ratios> {
    let keyspace = keyspace.as_ref()?;
    (keyspace.now.source == Some(OperationsSource::Watch)).then_some(keyspace.ratios[0])
}

/// The time that the counts of the last minutes cover. They may include log lines that are older
/// than the observation.
fn within(lately: &RecentActivity) -> String {
    let (_, window) = Ratios::WINDOWS[0];
    match lately.observed[0] {
        observed if observed < window => format!(" (observed for {})", span(observed)),
        _ => " in 5 minutes".to_owned(),
    }
}

fn urgent(namespace: &Namespace) -> Level {
    match namespace.severity {
        Severity::Page => Level::Critical,
        Severity::Ticket => Level::Warning,
    }
}

fn min_failures(namespace: &Namespace) -> u64 {
    namespace.thresholds.min_failures.unwrap_or(DEFAULT_MIN_FAILURES)
}

/// Only a loop has a leader by default. A fixed key of style item may be free for any time.
fn leader_absent(namespace: &Namespace) -> Option<Duration> {
    let (ttls, seconds) = DEFAULT_LEADER_ABSENT;
    let of_loop = namespace.ttl.filter(|_| namespace.style == Style::Loop);
    namespace.thresholds.leader_absent.or_else(|| Some(ttls * of_loop? + Duration::from_secs(seconds)))
}

/// A loop may be held forever.
fn max_hold(namespace: &Namespace) -> Option<Duration> {
    let of_item = namespace.ttl.filter(|_| namespace.style == Style::Item);
    namespace.thresholds.max_hold.or_else(|| Some(DEFAULT_MAX_HOLD * of_item?))
}

fn is_older(age: TimeMs, limit: Duration) -> bool {
    age > limit.as_millis() as TimeMs
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{} %", (percent * 10.0).round() / 10.0) } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::key_template::KeyTemplate;
    use crate::model::namespace::Thresholds;
    use crate::model::position::SourceTotals;
    use crate::snapshot::{ExporterView, KeyspaceNow, RecentCounts, RedisNow, SourceNow};

    const NOW: TimeMs = 10_000_000;

    /// A watched namespace with ten successful operations for each failure that a test adds.
    fn view() -> NamespaceView {
        let namespace = Namespace {
            name: "workflow".to_owned(),
            keys: vec![KeyTemplate::parse("lock:{id}").unwrap()],
            severity: Severity::Page,
            ..Namespace::other()
        };
        let now = KeyspaceNow { source: Some(OperationsSource::Watch), held: 10, ..KeyspaceNow::default() };
        NamespaceView {
            namespace: Arc::new(namespace),
            logs: Default::default(),
            causes: Default::default(),
            keyspace: Some(KeyspaceView { now, ..KeyspaceView::default() }),
            lately: RecentActivity { observed: [300_000, 3_600_000], ..RecentActivity::default() },
        }
    }

    fn with(change: impl FnOnce(&mut Namespace), view: NamespaceView) -> NamespaceView {
        let mut namespace = Namespace::clone(&view.namespace);
        change(&mut namespace);
        NamespaceView { namespace: Arc::new(namespace), ..view }
    }

    fn failures<const N: usize>(counts: [(FailureKind, u64); N]) -> RecentCounts {
        RecentCounts { failures: counts.into(), ..RecentCounts::default() }
    }

    fn lost(count: u64, ratio: Option<f64>) -> NamespaceView {
        let mut view = view();
        view.lately.windows[0] = failures([(FailureKind::NotOwned, count)]);
        view.keyspace.as_mut().unwrap().ratios[0] = Ratios { not_owned: ratio, ..Ratios::default() };
        view
    }

    #[track_caller]
    fn check(view: &NamespaceView, expected: &[(Level, &str, &str)]) {
        let found = of_namespace(view, NOW);
        let found: Vec<(Level, &str, &str)> =
            found.iter().map(|finding| (finding.level, finding.runbook, finding.text.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn losses_are_judged_by_the_namespaces_own_threshold() {
        check(&view(), &[]);
        let runbook = "RedisLockNotOwnedRatioHigh";
        let above = "6 locks were lost in 5 minutes: 12 % of releases and renewals were rejected, above 5 %.";
        check(&lost(6, Some(0.12)), &[(Level::Critical, runbook, above)]);
        let ticket = with(|namespace| namespace.severity = Severity::Ticket, lost(6, Some(0.12)));
        check(&ticket, &[(Level::Warning, runbook, above)]);
        let few = "1 lock was lost in 5 minutes: 12 % of releases and renewals; it pages above 5 %.";
        check(&lost(1, Some(0.12)), &[(Level::Warning, runbook, few)]);
        let thresholds = Thresholds { not_owned_ratio: Some(0.2), ..Thresholds::default() };
        let below = "6 locks were lost in 5 minutes: 12 % of releases and renewals; it pages above 20 %.";
        let patient = with(|namespace| namespace.thresholds = thresholds, lost(6, Some(0.12)));
        check(&patient, &[(Level::Warning, runbook, below)]);
    }

    #[test]
    fn no_sentence_speaks_of_time_that_was_not_observed() {
        let mut few = lost(6, Some(0.12));
        few.lately.observed = [12_000; 2];
        few.lately.windows[0].failures.add(FailureKind::Abandoned, 1);
        let texts: Vec<String> = of_namespace(&few, NOW).into_iter().map(|finding| finding.text).collect();
        let lost = "6 locks were lost (observed for 12 s): 12 % of releases and renewals were rejected, above 5 %.";
        assert_eq!(texts, [lost, "1 holder gave up and stopped (observed for 12 s)."]);
        let told = |observed: &[[TimeMs; 2]]| {
            let of_time = |observed: &[TimeMs; 2]| {
                let mut view = view();
                view.lately.observed = *observed;
                view
            };
            let snapshot = Snapshot { namespaces: observed.iter().map(of_time).collect(), ..well() };
            let text = summary(&snapshot, Level::Well, &[]);
            text.strip_suffix(" Every log is read and Redis is watched.").unwrap().to_owned()
        };
        let whole = [300_000, 3_600_000];
        assert_eq!(told(&[whole, whole]), "All well for the last 5 minutes.");
        assert_eq!(told(&[[12_000; 2], [13_000; 2]]), "Observing for 12 s; nothing wrong so far.");
        assert_eq!(told(&[[200_000, 250_000]; 2]), "Observing for 4 min 10 s; nothing wrong so far.");
        let restarted = [260_000, 3_560_000];
        assert_eq!(told(&[restarted]), "Nothing wrong in the last 5 minutes, of which 4 min 20 s were observed.");
        let added = "Nothing wrong so far, but workflow was observed for 12 s only.";
        assert_eq!(told(&[whole, [12_000; 2]]), added);
    }

    #[test]
    fn attempts_that_fail_are_urgent_when_half_of_them_do() {
        let failed = |count: u64, acquisitions: u64| {
            let mut view = view();
            view.lately.windows[0] = RecentCounts {
                operations: [(ObservedOperation::Acquisition, acquisitions)].into(),
                ..failures([(FailureKind::AcquireFailed, count)])
            };
            view
        };
        let runbook = "RedisLockAcquireFailing";
        let text =
            |rest: &str| format!("to acquire a lock failed in 5 minutes, not counting those that found it taken{rest}");
        let half = format!("6 attempts {}", text(": 50 % of all, above 5 %."));
        check(&failed(6, 6), &[(Level::Critical, runbook, &half)]);
        let ticket = with(|namespace| namespace.severity = Severity::Ticket, failed(6, 6));
        check(&ticket, &[(Level::Warning, runbook, &half)]);
        let some = format!("6 attempts {}", text(": 9.1 % of all, above 5 %."));
        check(&failed(6, 60), &[(Level::Warning, runbook, &some)]);
        let few = format!("1 attempt {}", text(": 100 % of all."));
        check(&failed(1, 0), &[(Level::Warning, runbook, &few)]);
        let unknown = format!("6 attempts {}", text("."));
        check(&NamespaceView { keyspace: None, ..failed(6, 0) }, &[(Level::Warning, runbook, &unknown)]);
        check(&failed(0, 6), &[]);
    }

    #[test]
    fn without_all_successes_the_number_decides() {
        let runbook = "RedisLockNotOwnedRateHigh";
        let text = "6 locks were lost in 5 minutes; the number of successful operations is unknown.";
        let logs_only = NamespaceView { keyspace: None, ..lost(6, None) };
        check(&logs_only, &[(Level::Critical, runbook, text)]);
        let mut scanned = lost(6, Some(0.9));
        scanned.keyspace.as_mut().unwrap().now.source = Some(OperationsSource::Scan);
        check(&scanned, &[(Level::Critical, runbook, text)]);
    }

    #[test]
    fn a_namespace_that_is_not_seen_is_not_well() {
        let mut view = view();
        view.keyspace.as_mut().unwrap().now.source = Some(OperationsSource::None);
        let text = "Redis is not observed: what happens to these locks is unknown.";
        check(&view, &[(Level::Blind, "RedisLockRedisDown", text)]);
        view.keyspace.as_mut().unwrap().now.source = None;
        assert_eq!(level(&of_namespace(&view, NOW)), Level::Blind);
    }

    #[test]
    fn missed_changes_are_reported() {
        let mut view = view();
        view.keyspace.as_mut().unwrap().now.source = Some(OperationsSource::Partial);
        let text = "Changes of these locks were missed in the last 5 minutes: counts are lower bounds.";
        check(&view, &[(Level::Blind, "RedisLockTrackingLost", text)]);
    }

    #[test]
    fn damage_renewals_and_the_state_of_locks() {
        let mut view = with(
            |namespace| {
                namespace.on_renewal_failure = OnRenewalFailure::Continue;
                namespace.thresholds.max_hold = Some(Duration::from_secs(60));
                namespace.thresholds.leader_absent = Some(Duration::from_secs(45));
            },
            view(),
        );
        view.lately.windows[0] = RecentCounts {
            operations: [(ObservedOperation::Expiration, 9)].into(),
            ..failures([
                (FailureKind::RenewalFailed, 5),
                (FailureKind::UnlockedWork, 2),
                (FailureKind::Abandoned, 1),
                (FailureKind::ConflictingWrite, 1),
            ])
        };
        view.lately.windows[1].operations = [(ObservedOperation::FenceRegression, 1)].into();
        let keyspace = view.keyspace.as_mut().unwrap();
        keyspace.ratios[0] = Ratios { renewal_failure: Some(0.06), expiry: Some(0.25), not_owned: Some(0.0) };
        keyspace.now = KeyspaceNow {
            renewal_overdue: 2,
            without_ttl: 3,
            lost_ttl: 2,
            oldest_acquired: Some(NOW - 61_000),
            last_held: vec![("leader".to_owned(), NOW - 50_000), ("other".to_owned(), NOW - 1000)],
            ..keyspace.now.clone()
        };
        let expected = [
            (
                Level::Critical,
                "RedisLockRenewalFailureRatioHigh",
                "5 renewals failed in 5 minutes, 6 % of them, above 5 %.",
            ),
            (Level::Critical, "RedisLockUnlockedWork", "2 pieces of work ran without a distributed lock in 5 minutes."),
            (Level::Critical, "RedisLockFenceRegression", "1 fence counter went backwards within an hour."),
            (Level::Critical, "RedisLockLeaderAbsent", "Nobody has held leader for 50 s."),
            (Level::Warning, "RedisLockAbandonedEvent", "1 holder gave up and stopped in 5 minutes."),
            (Level::Warning, "RedisLockDuplicateTerminalState", "1 write collided with another holder's in 5 minutes."),
            (Level::Warning, "RedisLockRenewalOverdue", "2 of 10 held locks are not renewed in time."),
            (
                Level::Warning,
                "RedisLockWithoutTtl",
                "2 locks lost the TTL while held and will stay until deleted: SET without PX or EX removes it.",
            ),
            (Level::Warning, "RedisLockWithoutTtl", "1 lock has no TTL and will stay until deleted."),
            (Level::Warning, "RedisLockHeldTooLong", "A lock is held for 61 s, longer than 60 s."),
            (
                Level::Warning,
                "RedisLockExpiryRatioHigh",
                "9 locks expired instead of being released in 5 minutes, 25 % of all.",
            ),
        ];
        check(&view, &expected.map(|(level, runbook, text)| (level, runbook, text)));
        let keyspace = view.keyspace.as_mut().unwrap();
        keyspace.now.renewal_overdue = 6;
        let found = of_namespace(&view, NOW);
        assert!(found.iter().any(|one| one.runbook == "RedisLockMassRenewalOverdue" && one.level == Level::Critical));
    }

    #[test]
    fn absent_leaders_and_long_holds_have_defaults() {
        let (leader, item) = ("RedisLockLeaderAbsent", "RedisLockHeldTooLong");
        let check = |style, ttl, age: TimeMs, expected: &[&str]| {
            let change = |namespace: &mut Namespace| (namespace.style, namespace.ttl) = (style, ttl);
            let mut view = with(change, view());
            let now = &mut view.keyspace.as_mut().unwrap().now;
            (now.last_held, now.oldest_acquired) = (vec![("key".to_owned(), NOW - age)], Some(NOW - age));
            let found = of_namespace(&view, NOW);
            assert_eq!(found.iter().map(|finding| finding.runbook).collect::<Vec<_>>(), expected, "{style:?} {age}");
        };
        let ttl = Some(Duration::from_secs(30));
        check(Style::Loop, ttl, 180_000, &[]);
        check(Style::Loop, ttl, 181_000, &[leader]);
        check(Style::Item, ttl, 600_000, &[]);
        check(Style::Item, ttl, 601_000, &[item]);
        check(Style::Loop, None, 9_000_000, &[]);
        check(Style::Item, None, 9_000_000, &[]);
    }

    /// The text of the bundled rules with this name, without comments. One space follows each word.
    fn rule(name: &str) -> String {
        let lines = include_str!("../../alerts/redis_lock.rules.yml").lines().map(str::trim);
        let words = lines.filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
        let text: String = words.flat_map(|word| [word, " "]).collect();
        let rules = text.split("- record: ").flat_map(|part| part.split("- alert: "));
        rules.filter(|rule| rule.starts_with(&format!("{name} "))).collect()
    }

    #[test]
    fn the_limits_are_those_of_the_alert_rules() {
        let check = |name: &str, expected: String| {
            let rule = rule(name);
            assert!(rule.contains(&format!("{expected} ")), "{name} does not contain {expected:?}: {rule}");
        };
        let of_namespace = |name: &str| format!("lock_namespace:redis_lock_{name}");
        let default = |value: &dyn fmt::Display| format!("(redis_lock_namespace_info) * {value}");
        check(&of_namespace("not_owned_ratio:effective"), default(&DEFAULT_RATIO));
        check(&of_namespace("renewal_failure_ratio:effective"), default(&DEFAULT_RATIO));
        check(&of_namespace("min_failures:effective"), default(&DEFAULT_MIN_FAILURES));
        let (ttls, seconds) = DEFAULT_LEADER_ABSENT;
        let leader = of_namespace("leader_absent_seconds:effective");
        check(&leader, format!("or on (cluster, lock_namespace) {ttls} * max"));
        check(&leader, format!(r#"redis_lock_namespace_info{{style="loop"}} ) + {seconds}"#));
        let hold = of_namespace("max_hold_seconds:effective");
        check(&hold, format!("or on (cluster, lock_namespace) {DEFAULT_MAX_HOLD} * max"));
        check(&hold, r#"redis_lock_namespace_info{style="item"}"#.to_owned());
        check(&of_namespace("expirations:slice_bad"), format!("> bool {EXPIRY_RATIO}"));
        check("RedisLockExpiryRatioHigh", format!(") > {EXPIRY_RATIO} and"));
        check("RedisLockAcquireFailing", format!("acquire_failures:sustained >= {STANDSTILL}"));
        check("RedisLockRenewalFailureRatioHigh", format!("per_renewal:ratio5m >= {STANDSTILL}"));
        let (some, most) = OVERDUE_SHARES;
        check(&of_namespace("renewal_overdue:slice_some"), format!("> bool {some}"));
        check(&of_namespace("renewal_overdue:slice_mass"), format!("> bool {most})"));
        check(&of_namespace("renewal_overdue:slice_mass"), format!(">= bool {OVERDUE_LOCKS})"));
        check("RedisLockLogSilent", format!("log_lines_total[{}h])) == 0", SILENT_LOG / 3_600_000));
        let (seconds, passes) = STALE_SCAN;
        let interval = format!("{seconds} + {passes} * redis_lock_exporter_scan_interval_seconds");
        let pass = format!("{passes} * redis_lock_exporter_scan_duration_seconds");
        check("RedisLockScanStale", format!("{interval} + on (cluster, job, instance) {pass}"));
    }

    fn well() -> Snapshot {
        let now = RedisNow {
            nodes: 1,
            nodes_up: 1,
            nodes_tracking: 1,
            scan_interval_seconds: Some(300.0),
            scan_duration_seconds: Some(10.0),
            scan_last_success: Some(NOW - 60_000),
            ..RedisNow::default()
        };
        let source = SourceView {
            name: "/var/log/*.log".to_owned(),
            totals: SourceTotals { last_read: Some(NOW - 1000), ..SourceTotals::default() },
            now: SourceNow { open_files: 1, ..SourceNow::default() },
        };
        Snapshot {
            taken: NOW - 500,
            redis: Some(RedisView { name: "main".to_owned(), now }),
            sources: vec![source],
            exporter: ExporterView { config_reload_ok: true, ..ExporterView::default() },
            ..Snapshot::default()
        }
    }

    #[track_caller]
    fn check_exporter(change: impl FnOnce(&mut Snapshot), expected: &[(Level, &str)]) {
        let mut snapshot = well();
        change(&mut snapshot);
        let found = of_exporter(&snapshot, NOW);
        let found: Vec<(Level, &str)> = found.iter().map(|finding| (finding.level, finding.runbook)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_blind_spot_is_a_finding() {
        check_exporter(|_| (), &[]);
        check_exporter(|snapshot| snapshot.taken = 0, &[(Level::Blind, "RedisLockExporterAbsent")]);
        check_exporter(|snapshot| snapshot.taken = NOW - 16_000, &[(Level::Blind, "RedisLockExporterAbsent")]);
        let redis = |change: fn(&mut RedisNow)| {
            move |snapshot: &mut Snapshot| change(&mut snapshot.redis.as_mut().unwrap().now)
        };
        check_exporter(redis(|now| now.nodes_up = 0), &[(Level::Critical, "RedisLockRedisDown")]);
        check_exporter(redis(|now| now.nodes_tracking = 0), &[(Level::Blind, "RedisLockTrackingLost")]);
        check_exporter(redis(|now| now.scan_last_success = None), &[(Level::Blind, "RedisLockScanStale")]);
        // The limit is three intervals, three passes and one minute.
        check_exporter(redis(|now| now.scan_last_success = Some(NOW - 990_000)), &[]);
        check_exporter(
            redis(|now| now.scan_last_success = Some(NOW - 991_000)),
            &[(Level::Blind, "RedisLockScanStale")],
        );
        let rarely: fn(&mut RedisNow) = |now| {
            now.scan_interval_seconds = Some(86_400.0);
            now.scan_last_success = Some(NOW - 3 * 86_400_000);
        };
        check_exporter(redis(rarely), &[]);
        let denied: fn(&mut RedisNow) = |now| {
            now.complaints = vec!["may not SCAN".to_owned()];
            now.denied = vec![("scan", true)];
        };
        check_exporter(redis(denied), &[(Level::Blind, "RedisLockAccessDenied")]);
        let log = |change: fn(&mut SourceView)| move |snapshot: &mut Snapshot| change(&mut snapshot.sources[0]);
        check_exporter(log(|log| log.now.open_files = 0), &[(Level::Blind, "RedisLockLogSilent")]);
        check_exporter(
            log(|log| log.now.complaint = Some("journalctl is not installed".to_owned())),
            &[(Level::Blind, "RedisLockLogSilent")],
        );
        check_exporter(
            log(|log| log.totals.last_read = Some(NOW - 7 * 3_600_000)),
            &[(Level::Blind, "RedisLockLogSilent")],
        );
        let stuck: fn(&mut SourceView) = |log| {
            log.now.lag_bytes = 1;
            log.totals.last_read = Some(NOW - 61_000);
        };
        check_exporter(log(stuck), &[(Level::Blind, "RedisLockLogTailStalled")]);
        let standard_input: fn(&mut SourceView) = |log| {
            log.name = STDIN.to_owned();
            log.now.open_files = 0;
        };
        check_exporter(log(standard_input), &[(Level::Blind, "RedisLockLogSilent")]);
        check_exporter(
            |snapshot| snapshot.exporter.state_enabled = true,
            &[(Level::Warning, "RedisLockStateNotSaved")],
        );
        let refused = |snapshot: &mut Snapshot| snapshot.exporter.config_reload_ok = false;
        check_exporter(refused, &[(Level::Warning, "RedisLockConfigReloadFailed")]);
    }

    #[test]
    fn no_namespace_is_well_while_something_is_not_seen() {
        let finding = |level| HealthFinding { level, text: String::new(), runbook: "" };
        let check = |own: &[HealthFinding], exporter: Level, expected: Level| {
            assert_eq!(level_of_namespace(own, &[finding(exporter)]), expected, "{exporter}");
        };
        check(&[], Level::Blind, Level::Blind);
        check(&[], Level::Critical, Level::Blind);
        check(&[], Level::Warning, Level::Well);
        check(&[finding(Level::Warning)], Level::Blind, Level::Warning);
        assert_eq!(level_of_namespace(&[], &[]), Level::Well);
    }

    #[test]
    fn the_headline_claims_no_more_than_what_is_seen() {
        let told = |snapshot: &Snapshot, level| summary(snapshot, level, &[]);
        let whole = well();
        assert_eq!(
            told(&whole, Level::Well),
            "All well for the last 5 minutes. Every log is read and Redis is watched."
        );
        let logs_only = Snapshot { redis: None, ..well() };
        assert!(
            told(&logs_only, Level::Well)
                .ends_with("Redis is not watched here, so expirations and causes are not observed.")
        );
        let redis_only = Snapshot { sources: Vec::new(), ..well() };
        assert!(told(&redis_only, Level::Well).ends_with("so rejected releases and renewals are not observed."));
        for level in [Level::Critical, Level::Blind, Level::Warning] {
            assert!(!told(&whole, level).contains("All well"));
        }
        assert_eq!(summary(&whole, Level::Critical, &["a"]), "Wrong now: a.");
        assert_eq!(summary(&whole, Level::Critical, &["a", "b", "c", "d"]), "Wrong now: a, b and 2 more.");
        assert_eq!(summary(&whole, Level::Warning, &["a", "b"]), "Worth checking: a and b.");
    }
}
