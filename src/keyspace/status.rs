//! The status of one link, and the sum over all links that `/metrics` shows.
//!
//! A link updates its [`LinkStatus`] behind a mutex that it holds only for a short step. The
//! supervisor reads the status of all links twice a second. The counts of a link stay in the sum
//! after the link has ended.

use std::fmt;
use std::time::Duration;

use crate::model::counters::{Histogram, ReplyBounds};
use crate::model::label::{Label, label_enum};
use crate::snapshot::RedisNow;
use crate::util::clock::TimeMs;

label_enum! {
    /// Every command that is sent. None of them writes. `Hello` stands for all commands of a login.
    #[expect(unreachable_pub, reason = "the macro makes every enum public")]
    Command {
        Hello = "hello",
        Ping = "ping",
        Info = "info",
        Scan = "scan",
        Getrange = "getrange",
        Pttl = "pttl",
        Type = "type",
        Hscan = "hscan",
        Hpttl = "hpttl",
        Zrange = "zrange",
        ClientTracking = "client_tracking",
        ClientNoTouch = "client_no_touch",
        ClusterSlots = "cluster_slots",
        Asking = "asking",
        Readonly = "readonly",
        Role = "role",
        Sentinel = "sentinel",
    }
}

impl Command {
    const COUNT: usize = 17;

    /// Commands that a user may have been denied and whose absence makes results incomplete.
    const WANTED: [Self; 10] = [
        Self::Info,
        Self::Scan,
        Self::Getrange,
        Self::Pttl,
        Self::Type,
        Self::Hscan,
        Self::Hpttl,
        Self::Zrange,
        Self::ClientTracking,
        Self::ClusterSlots,
    ];
}

#[derive(Clone, Debug, Default)]
pub(super) struct LinkStatus {
    pub(super) up: bool,
    pub(super) tracking: bool,
    pub(super) totals: LinkTotals,
    /// The denied commands among [`Command::WANTED`], as of the last check.
    pub(super) denied: Vec<Command>,
    /// Time between the starts of two passes, on this connection or the last one.
    pub(super) scan_interval: Option<Duration>,
    /// The last complete pass.
    pub(super) last_pass: Option<LastPass>,
    /// Progress of the current pass, from 0 to 1.
    pub(super) progress: Option<f64>,
    /// One line each for the operator, with the fix.
    pub(super) complaints: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LastPass {
    pub(super) seconds: f64,
    pub(super) keys: u64,
    pub(super) lock_keys: u64,
    /// When the pass ended, by the wall clock.
    pub(super) ended: TimeMs,
}

/// Counters of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LinkTotals {
    pub(super) connects: u64,
    pub(super) connect_errors: u64,
    pub(super) failovers: u64,
    commands: [u64; Command::COUNT],
    pub(super) pushes: u64,
    pub(super) flushes: u64,
    pub(super) evicted_keys: u64,
    pub(super) skipped_reads: u64,
    pub(super) overflows: u64,
    pub(super) read_errors: u64,
    pub(super) scan_passes: u64,
    pub(super) scan_failures: u64,
    /// Time that Redis took to answer.
    pub(super) busy_seconds: f64,
    /// Time from a request with no other request before it to its reply.
    pub(super) reply_seconds: Histogram<ReplyBounds>,
}

impl LinkTotals {
    pub(super) fn count_commands(&mut self, command: Command, n_sent: u64) {
        self.commands[command.index()] += n_sent;
    }

    pub(super) fn add(&mut self, more: &Self) {
        let Self { connects, connect_errors, failovers, commands, pushes, flushes, skipped_reads, .. } = more;
        let Self { evicted_keys, overflows, read_errors, scan_passes, scan_failures, .. } = more;
        let Self { busy_seconds, reply_seconds, .. } = more;
        self.connects += connects;
        self.connect_errors += connect_errors;
        self.failovers += failovers;
        for (sum, count) in self.commands.iter_mut().zip(commands) {
            *sum += count;
        }
        self.pushes += pushes;
        self.flushes += flushes;
        self.evicted_keys += evicted_keys;
        self.skipped_reads += skipped_reads;
        self.overflows += overflows;
        self.read_errors += read_errors;
        self.scan_passes += scan_passes;
        self.scan_failures += scan_failures;
        self.busy_seconds += busy_seconds;
        self.reply_seconds.add(reply_seconds);
    }
}

/// Adds up all links. `ended` contains the counts of ended links and of the supervisor itself.
pub(super) fn sum(links: &[LinkStatus], ended: &LinkTotals, complaints: Vec<String>) -> RedisNow {
    let mut totals = ended.clone();
    links.iter().for_each(|link| totals.add(&link.totals));
    let passes: Vec<LastPass> = links.iter().filter_map(|link| link.last_pass).collect();
    // Until every node has completed a pass, not all keys have been seen.
    let all_passed = !links.is_empty() && passes.len() == links.len();
    let under_way: Vec<f64> = links.iter().filter_map(|link| link.progress).collect();
    let mut complaints = complaints;
    for complaint in links.iter().flat_map(|link| &link.complaints) {
        if !complaints.contains(complaint) {
            complaints.push(complaint.clone());
        }
    }
    let is_denied = |command: Command| links.iter().any(|link| link.denied.contains(&command));
    RedisNow {
        nodes: links.len() as u64,
        nodes_up: links.iter().filter(|link| link.up).count() as u64,
        nodes_tracking: links.iter().filter(|link| link.up && link.tracking).count() as u64,
        connects: totals.connects,
        connect_errors: totals.connect_errors,
        failovers: totals.failovers,
        commands: Command::ALL.iter().map(|command| (command.as_str(), totals.commands[command.index()])).collect(),
        denied: Command::WANTED.iter().map(|command| (command.as_str(), is_denied(*command))).collect(),
        pushes: totals.pushes,
        flushes: totals.flushes,
        evicted_keys: totals.evicted_keys,
        skipped_reads: totals.skipped_reads,
        overflows: totals.overflows,
        read_errors: totals.read_errors,
        scan_passes: totals.scan_passes,
        scan_failures: totals.scan_failures,
        scan_interval_seconds: links.iter().filter_map(|link| link.scan_interval).max().map(|one| one.as_secs_f64()),
        scan_duration_seconds: all_passed.then(|| passes.iter().map(|pass| pass.seconds).fold(0.0, f64::max)),
        scan_keys: passes.iter().map(|pass| pass.keys).sum(),
        scan_lock_keys: passes.iter().map(|pass| pass.lock_keys).sum(),
        scan_progress: under_way.iter().copied().reduce(f64::min),
        scan_last_success: passes.iter().map(|pass| pass.ended).min().filter(|_| all_passed),
        busy_seconds: totals.busy_seconds,
        reply_seconds: totals.reply_seconds,
        complaints,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_complete_when_every_node_had_one() {
        let pass = LastPass { seconds: 2.0, keys: 10, lock_keys: 3, ended: 5_000 };
        let mut first = LinkStatus { up: true, tracking: true, last_pass: Some(pass), ..Default::default() };
        first.totals.count_commands(Command::Scan, 4);
        let mut second = LinkStatus { tracking: true, progress: Some(0.5), ..Default::default() };
        second.denied.push(Command::Zrange);
        let mut ended = LinkTotals { connects: 7, ..Default::default() };
        ended.count_commands(Command::Scan, 1);

        let now = sum(&[first.clone(), second.clone()], &ended, Vec::new());
        assert_eq!((now.nodes, now.nodes_up, now.nodes_tracking), (2, 1, 1));
        assert_eq!((now.connects, now.scan_last_success, now.scan_duration_seconds), (7, None, None));
        assert_eq!(now.commands.len(), Command::COUNT);
        assert!(now.commands.contains(&("scan", 5)) && now.denied.contains(&("zrange", true)));

        second.last_pass = Some(LastPass { seconds: 1.0, ended: 6_000, ..pass });
        let now = sum(&[first, second], &ended, Vec::new());
        assert_eq!((now.scan_last_success, now.scan_duration_seconds, now.scan_keys), (Some(5_000), Some(2.0), 20));
        assert_eq!(sum(&[], &ended, Vec::new()).scan_last_success, None, "no node is not all nodes");
    }
}
