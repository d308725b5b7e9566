//! What is wrong now, as sentences with a level, worst first. The page and `/api/v1/overview` show
//! them.
//!
//! Pure: takes a snapshot and the time, returns findings. Thresholds are those of the namespace,
//! with the defaults of the alert rules. The alert rules wait until a problem lasts and this module
//! does not, so it reports a problem minutes before a page. A source that cannot be read is a
//! finding too: the absence of failures means nothing unless every source is read.

use std::fmt;
use std::time::Duration;

use crate::config::STDIN;
use crate::model::label::{Label, label_enum};
use crate::model::namespace::{Namespace, OnRenewalFailure, Severity, Style};
use crate::model::sighting::OperationsSource;
use crate::snapshot::{KeyspaceView, NamespaceView, RedisView, Snapshot, SourceView};
use crate::util::clock::{TimeMs, span};

/// Defaults if nothing is configured, the same as in the alert rules.
const DEFAULT_RATIO: f64 = 0.05;
const DEFAULT_MIN_FAILURES: u64 = 5;
/// Limit for expirations as a share of all ended holds.
const EXPIRY_RATIO: f64 = 0.2;
/// Share of failed attempts to acquire a lock from which on work has practically stopped.
const STANDSTILL: f64 = 0.5;
/// Locks with an overdue renewal as a share of held locks: limit for a warning, and for most of the
/// locks.
const OVERDUE_SHARES: (f64, f64) = (0.1, 0.5);
/// Age at which a snapshot is stale. A snapshot is published every second.
const STALE_SNAPSHOT: TimeMs = 15_000;
/// A log with unread bytes is stuck if nothing was read from it for this long.
const STALLED_LOG: TimeMs = 60_000;
const SILENT_LOG: TimeMs = 6 * 3_600_000;
/// Added to the time of three passes. After that a scan is stale.
const STALE_SCAN_SECONDS: f64 = 60.0;

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
        let text = format!("The numbers are {} old: the exporter does not get to publishing new ones.", span(age));
        findings.add(Level::Blind, "RedisLockExporterAbsent", text);
    }
    if let Some(redis) = &snapshot.redis {
        let watches = snapshot.config.as_ref().and_then(|config| config.redis.as_ref());
        let watches = watches.is_none_or(|redis| redis.watch.enabled);
        of_redis(redis, watches, now, &mut findings);
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
        let text = "The configuration was refused at the last reload; the old one is in effect.";
        findings.add(Level::Warning, "RedisLockConfigReloadFailed", text.to_owned());
    }
    findings.sorted()
}

fn of_redis(redis: &RedisView, watches: bool, now: TimeMs, findings: &mut HealthFindings) {
    let RedisView { name, now: state } = redis;
    let complaints = state.complaints.join("; ");
    if !state.is_up() {
        let why = if complaints.is_empty() { String::new() } else { format!(": {complaints}") };
        let (up, known) = (state.nodes_up, state.nodes);
        let text = format!("Redis {name} is not seen, {up} of {known} known primaries connected{why}.");
        findings.add(Level::Critical, "RedisLockRedisDown", text);
        return;
    }
    if watches && !state.is_tracking() {
        let text = format!("Redis {name} does not push changes: short holds are missed, counts are lower bounds.");
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
    let patience = 3.0 * (interval.unwrap_or(0.0) + duration.unwrap_or(0.0)) + STALE_SCAN_SECONDS;
    match state.scan_last_success {
        None => {
            let progress = state.scan_progress.map_or_else(String::new, |share| format!(", {} so far", percent(share)));
            let text = format!("Redis {name}: the first look over all keys is not done{progress}.");
            findings.add(Level::Blind, "RedisLockScanStale", text);
        }
        Some(last) if (now - last) as f64 > patience * 1000.0 => {
            let text = format!("Redis {name}: the last look over all keys was {} ago.", span(now - last));
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
            STDIN => "Standard input has ended: nothing is read from it any more.".to_owned(),
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
    of_losses(view, &mut findings);
    of_renewals(view, &mut findings);
    of_acquisitions(view, &mut findings);
    of_damage(view, &mut findings);
    if let Some(keyspace) = &view.keyspace {
        of_keyspace(&view.namespace, keyspace, now, &mut findings);
        of_expiries(view, keyspace, &mut findings);
    }
    findings.sorted()
}

fn of_losses(view: &NamespaceView, findings: &mut HealthFindings) {
    let NamespaceView { namespace, keyspace, lately, .. } = view;
    let lost = lately.windows[0].not_owned;
    if lost == 0 {
        return;
    }
    let locks = counted(lost, "lock was", "locks were");
    let enough = lost >= min_failures(namespace);
    let (threshold, complete) = (namespace.thresholds.not_owned_ratio.unwrap_or(DEFAULT_RATIO), ratio(keyspace));
    match complete.and_then(|ratios| ratios.not_owned) {
        Some(ratio) if enough && ratio > threshold => {
            let (ratio, threshold) = (percent(ratio), percent(threshold));
            let text =
                format!("{locks} lost in 5 minutes: {ratio} of releases and renewals were refused, above {threshold}.");
            findings.add(urgent(namespace), "RedisLockNotOwnedRatioHigh", text);
        }
        Some(ratio) => {
            let (ratio, threshold) = (percent(ratio), percent(threshold));
            let text =
                format!("{locks} lost in 5 minutes: {ratio} of releases and renewals; it pages above {threshold}.");
            findings.add(Level::Warning, "RedisLockNotOwnedRatioHigh", text);
        }
        None => {
            let text = format!("{locks} lost in 5 minutes; how many operations went well is not known.");
            let level = if enough { urgent(namespace) } else { Level::Warning };
            findings.add(level, "RedisLockNotOwnedRateHigh", text);
        }
    }
}

fn of_renewals(view: &NamespaceView, findings: &mut HealthFindings) {
    let NamespaceView { namespace, keyspace, lately, .. } = view;
    let failed = lately.windows[0].renewal_failures;
    if failed == 0 {
        return;
    }
    let renewals = counted(failed, "renewal", "renewals");
    let threshold = namespace.thresholds.renewal_failure_ratio.unwrap_or(DEFAULT_RATIO);
    let runbook = "RedisLockRenewalFailureRatioHigh";
    match ratio(keyspace).and_then(|ratios| ratios.renewal_failure) {
        Some(ratio) if failed >= min_failures(namespace) && ratio > threshold => {
            let is_urgent = namespace.on_renewal_failure == OnRenewalFailure::Continue || ratio >= 0.5;
            let level = if is_urgent { urgent(namespace) } else { Level::Warning };
            let (ratio, threshold) = (percent(ratio), percent(threshold));
            findings.add(
                level,
                runbook,
                format!("{renewals} failed in 5 minutes, {ratio} of them, above {threshold}."),
            );
        }
        Some(ratio) => {
            let ratio = percent(ratio);
            findings.add(Level::Warning, runbook, format!("{renewals} failed in 5 minutes, {ratio} of them."));
        }
        None => findings.add(Level::Warning, runbook, format!("{renewals} failed in 5 minutes.")),
    }
}

/// Uses the threshold for renewals, as the alert rules do: both operations send the same kind of
/// request to Redis and fail for the same reasons.
fn of_acquisitions(view: &NamespaceView, findings: &mut HealthFindings) {
    let NamespaceView { namespace, keyspace, lately, .. } = view;
    let failed = lately.windows[0].acquire_failures;
    if failed == 0 {
        return;
    }
    let attempts = counted(failed, "attempt", "attempts");
    let text = format!("{attempts} to take a lock failed in 5 minutes, not counting those that found it taken");
    let threshold = namespace.thresholds.renewal_failure_ratio.unwrap_or(DEFAULT_RATIO);
    let runbook = "RedisLockAcquireFailing";
    // If acquisitions are not observed completely, their share is meaningless.
    if ratio(keyspace).is_none() {
        return findings.add(Level::Warning, runbook, format!("{text}."));
    }
    let share = failed as f64 / (failed + lately.windows[0].acquisitions) as f64;
    let (of_all, limit) = (percent(share), percent(threshold));
    match failed >= min_failures(namespace) && share > threshold {
        true => {
            let level = if share >= STANDSTILL { urgent(namespace) } else { Level::Warning };
            findings.add(level, runbook, format!("{text}: {of_all} of all, above {limit}."));
        }
        false => findings.add(Level::Warning, runbook, format!("{text}: {of_all} of all.")),
    }
}

fn of_damage(view: &NamespaceView, findings: &mut HealthFindings) {
    let NamespaceView { namespace, lately, .. } = view;
    let [minutes, hour] = &lately.windows;
    if minutes.unlocked_work > 0 {
        let pieces = counted(minutes.unlocked_work, "piece of work", "pieces of work");
        let text = format!("{pieces} ran without a distributed lock in 5 minutes.");
        findings.add(urgent(namespace), "RedisLockUnlockedWork", text);
    }
    if minutes.abandonments > 0 {
        let (level, runbook) = match namespace.thresholds.strict {
            true => (Level::Critical, "RedisLockAbandoned"),
            false => (Level::Warning, "RedisLockAbandonedEvent"),
        };
        let holders = counted(minutes.abandonments, "holder", "holders");
        findings.add(level, runbook, format!("{holders} gave up and stopped in 5 minutes."));
    }
    if minutes.conflicting_writes > 0 {
        let writes = counted(minutes.conflicting_writes, "write", "writes");
        let text = format!("{writes} collided with another holder's in 5 minutes.");
        findings.add(Level::Warning, "RedisLockDuplicateTerminalState", text);
    }
    if hour.fence_regressions > 0 {
        let fences = counted(hour.fence_regressions, "fence counter", "fence counters");
        findings.add(urgent(namespace), "RedisLockFenceRegression", format!("{fences} went backwards within an hour."));
    }
}

fn of_keyspace(namespace: &Namespace, keyspace: &KeyspaceView, now: TimeMs, findings: &mut HealthFindings) {
    let state = &keyspace.now;
    if state.source.is_none_or(|source| source == OperationsSource::None) {
        let text = "Redis is not seen: what happens to these locks is not known.";
        findings.add(Level::Blind, "RedisLockRedisDown", text.to_owned());
        return;
    }
    if let Some(limit) = namespace.thresholds.leader_absent {
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
        match share > most && state.renewal_overdue >= 2 {
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
    if let (Some(limit), Some(oldest)) = (namespace.thresholds.max_hold, state.oldest_acquired)
        && is_older(now - oldest, limit)
    {
        let text =
            format!("A lock is held for {}, longer than {}.", span(now - oldest), span(limit.as_millis() as TimeMs));
        findings.add(Level::Warning, "RedisLockHeldTooLong", text);
    }
}

fn of_expiries(view: &NamespaceView, keyspace: &KeyspaceView, findings: &mut HealthFindings) {
    let expired = view.lately.windows[0].expirations;
    let ratio = keyspace.ratios[0].expiry.filter(|ratio| *ratio > EXPIRY_RATIO);
    if let Some(ratio) =
        ratio.filter(|_| expired >= min_failures(&view.namespace) && view.namespace.style == Style::Item)
    {
        let locks = counted(expired, "lock", "locks");
        let text = format!("{locks} expired instead of being released in 5 minutes, {} of all.", percent(ratio));
        findings.add(Level::Warning, "RedisLockExpiryRatioHigh", text);
    }
}

/// Returns the headline. It never claims more than what is observed. `subjects` are the affected
/// namespaces.
pub fn summary(snapshot: &Snapshot, level: Level, subjects: &[&str]) -> String {
    let seen = match (&snapshot.redis, snapshot.sources.is_empty()) {
        (Some(_), false) => "Every log is read and Redis is watched.",
        (Some(_), true) => "Redis is watched. No logs are read here, so refused releases and renewals are not seen.",
        (None, false) => "Every log is read. Redis is not watched here, so expiries and causes are not seen.",
        (None, true) => "Nothing is watched.",
    };
    let at = match subjects {
        [] => String::new(),
        [one] => format!(": {one}"),
        [one, two] => format!(": {one} and {two}"),
        [one, two, rest @ ..] => format!(": {one}, {two} and {} more", rest.len()),
    };
    match level {
        Level::Well => format!("All well for the last 5 minutes. {seen}"),
        Level::Warning => format!("Worth a look{at}."),
        Level::Blind => "The exporter does not see everything, so nothing here proves that all is well.".to_owned(),
        Level::Critical => format!("Wrong now{at}."),
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
fn ratio(keyspace: &Option<KeyspaceView>) -> Option<crate::snapshot::Ratios> {
    let keyspace = keyspace.as_ref()?;
    (keyspace.now.source == Some(OperationsSource::Watch)).then_some(keyspace.ratios[0])
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
    use crate::snapshot::{ExporterView, KeyspaceNow, Ratios, RecentCounts, RedisNow, SourceNow};

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
            lately: Default::default(),
        }
    }

    fn with(change: impl FnOnce(&mut Namespace), view: NamespaceView) -> NamespaceView {
        let mut namespace = Namespace::clone(&view.namespace);
        change(&mut namespace);
        NamespaceView { namespace: Arc::new(namespace), ..view }
    }

    fn lost(count: u64, ratio: Option<f64>) -> NamespaceView {
        let mut view = view();
        view.lately.windows[0] = RecentCounts { not_owned: count, ..RecentCounts::default() };
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
        let above = "6 locks were lost in 5 minutes: 12 % of releases and renewals were refused, above 5 %.";
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
    fn attempts_that_fail_are_urgent_when_half_of_them_do() {
        let failed = |count: u64, acquisitions: u64| {
            let mut view = view();
            view.lately.windows[0] = RecentCounts { acquire_failures: count, acquisitions, ..RecentCounts::default() };
            view
        };
        let runbook = "RedisLockAcquireFailing";
        let text =
            |rest: &str| format!("to take a lock failed in 5 minutes, not counting those that found it taken{rest}");
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
        let text = "6 locks were lost in 5 minutes; how many operations went well is not known.";
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
        let text = "Redis is not seen: what happens to these locks is not known.";
        check(&view, &[(Level::Blind, "RedisLockRedisDown", text)]);
        view.keyspace.as_mut().unwrap().now.source = None;
        assert_eq!(level(&of_namespace(&view, NOW)), Level::Blind);
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
            renewal_failures: 5,
            unlocked_work: 2,
            abandonments: 1,
            conflicting_writes: 1,
            expirations: 9,
            ..RecentCounts::default()
        };
        view.lately.windows[1].fence_regressions = 1;
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
            told(&logs_only, Level::Well).ends_with("Redis is not watched here, so expiries and causes are not seen.")
        );
        let redis_only = Snapshot { sources: Vec::new(), ..well() };
        assert!(told(&redis_only, Level::Well).ends_with("so refused releases and renewals are not seen."));
        for level in [Level::Critical, Level::Blind, Level::Warning] {
            assert!(!told(&whole, level).contains("All well"));
        }
        assert_eq!(summary(&whole, Level::Critical, &["a"]), "Wrong now: a.");
        assert_eq!(summary(&whole, Level::Critical, &["a", "b", "c", "d"]), "Wrong now: a, b and 2 more.");
        assert_eq!(summary(&whole, Level::Warning, &["a", "b"]), "Worth a look: a and b.");
    }
}
