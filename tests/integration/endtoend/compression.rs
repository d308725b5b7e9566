//! Time made shorter by one factor everywhere it is written down.
//!
//! Alert rules, the configurations of Prometheus and Alertmanager, Cordum's preset and the workload are all in seconds of the
//! world they are made for. Each duration that stands in them is divided by the same number, so what counts stays the same: slices
//! for each window, windows for each burst, renewals for each TTL. What is left as it is: the exporter's own second between
//! two saves, its retries, and numbers of seconds inside expressions (the default of `leader_absent`, the limits of ScanStale).

use std::sync::LazyLock;
use std::time::Duration;

use regex::{Captures, Regex};

#[derive(Clone, Copy, Debug)]
pub(super) struct Compression(u32);

impl Compression {
    /// `ALERT_TIME_FACTOR=1` runs the same tests in the time that people live in.
    pub(super) fn by(factor: u32) -> Self {
        let wanted = std::env::var("ALERT_TIME_FACTOR").ok();
        Self(wanted.map_or(factor, |text| text.parse().expect("ALERT_TIME_FACTOR is no number")))
    }

    /// So many seconds of the uncompressed world.
    pub(super) fn seconds(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds / f64::from(self.0))
    }

    /// The reverse: what a time that has passed would have been.
    pub(super) fn uncompressed(self, elapsed: Duration) -> Duration {
        elapsed * self.0
    }

    /// Every duration of a text, none of which becomes 0, such as `5m30s`, `[10m]` or `offset 1h`. `ratio10m` is a name and stays.
    pub(super) fn apply(self, text: &str) -> String {
        static DURATION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:\d+(?:ms|[smhdw]))+\b").unwrap());
        DURATION
            .replace_all(text, |found: &Captures| format!("{}ms", (milliseconds(&found[0]) / u64::from(self.0)).max(1)))
            .into()
    }
}

fn milliseconds(duration: &str) -> u64 {
    static PART: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\d+)(ms|[smhdw])").unwrap());
    let parts = PART.captures_iter(duration).map(|part| {
        let unit = match &part[2] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => 7 * 86_400_000,
        };
        part[1].parse::<u64>().unwrap() * unit
    });
    parts.sum()
}

#[test]
fn durations_are_divided_and_names_are_not() {
    let text = "interval: 30s\nsum_over_time(a:ratio10m_p10_30m[5m30s]) offset 1h >= 15 for: 2m # 1d:15s, 250ms";
    let expected = "interval: 3000ms\nsum_over_time(a:ratio10m_p10_30m[33000ms]) offset 360000ms >= 15 for: 12000ms # 8640000ms:1500ms, 25ms";
    assert_eq!(Compression(10).apply(text), expected);
}
