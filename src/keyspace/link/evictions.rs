//! Detects keys that Redis deletes to free memory. Their pushes do not differ from those of
//! released locks.
//!
//! `server_monitor` gives it the replies to `INFO`. If the number of evicted keys has grown, it is
//! unknown which keys were evicted.

use redis::Value;

use super::identity::field;
use super::owner;

#[derive(Debug, Default)]
pub(super) struct Evictions {
    /// Flushes are not pushed, because changes are not watched.
    unwatched: bool,
    /// Memory is limited, and the policy is not `noeviction`.
    possible: bool,
    /// Keys evicted since the server started.
    evicted: Option<u64>,
    /// Calls of `FLUSHALL` and `FLUSHDB` since the server started.
    flushes: Option<u64>,
    /// The operator was warned about evicted keys.
    is_reported: bool,
}

impl Evictions {
    pub(super) fn new(watching: bool) -> Self {
        Self { unwatched: !watching, ..Self::default() }
    }

    /// Whether the operator has not been warned about evicted keys yet. Call it before a warning.
    pub(super) fn is_first(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }

    /// Whether a key may be gone without a release.
    pub(super) fn are_possible(&self) -> bool {
        self.possible || self.unwatched
    }

    /// The sections of `INFO` that contain the numbers.
    pub(super) fn sections(&self) -> &'static [&'static [u8]] {
        if self.unwatched { &[b"stats", b"commandstats"] } else { &[b"stats"] }
    }

    /// Applies a reply to `INFO memory`.
    pub(super) fn learn_policy(&mut self, reply: &Value) {
        let Some(text) = owner::bytes(reply) else { return };
        let is_limited = field(text, "maxmemory").is_some_and(|limit| limit != "0");
        self.possible = is_limited && field(text, "maxmemory_policy").is_some_and(|policy| policy != "noeviction");
    }

    /// Applies a reply to `INFO stats`. Returns how many more keys were evicted. The first reply
    /// only sets the baseline.
    pub(super) fn learn_evicted(&mut self, reply: &Value) -> u64 {
        let text = owner::bytes(reply);
        let Some(count) = text.and_then(|text| field(text, "evicted_keys")?.parse().ok()) else { return 0 };
        growth(&mut self.evicted, count)
    }

    /// Applies a reply to `INFO commandstats`. Returns how many more flushes there were.
    pub(super) fn learn_flushes(&mut self, reply: &Value) -> u64 {
        let Some(text) = owner::bytes(reply) else { return 0 };
        let calls = |command: &str| {
            let line = field(text, command)?;
            line.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()
        };
        let count = ["cmdstat_flushall", "cmdstat_flushdb"].into_iter().filter_map(calls).sum();
        growth(&mut self.flushes, count)
    }
}

fn growth(place: &mut Option<u64>, count: u64) -> u64 {
    let before = place.replace(count).unwrap_or(count);
    // `CONFIG RESETSTAT` resets the numbers to 0.
    if count < before { count } else { count - before }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn only_a_limit_and_a_policy_together_evict() {
        let mut evictions = Evictions::default();
        for (limit, policy, expected) in
            [("0", "allkeys-lru", false), ("100", "noeviction", false), ("100", "volatile-ttl", true)]
        {
            evictions.learn_policy(&info(&format!("maxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n")));
            assert_eq!(evictions.are_possible(), expected, "{limit} {policy}");
        }
        evictions.learn_policy(&Value::Nil);
        assert!(evictions.are_possible(), "nothing new was said");
    }

    #[test]
    fn counts_what_is_new() {
        let mut evictions = Evictions::default();
        let counts = [7, 7, 9, 2].map(|count| evictions.learn_evicted(&info(&format!("evicted_keys:{count}\r\n"))));
        assert_eq!(counts, [0, 0, 2, 2]);
        assert_eq!(evictions.learn_evicted(&Value::Nil), 0);
        let commands = ["get:calls=9", "get:calls=9\r\ncmdstat_flushall:calls=1,usec=3", "flushdb:calls=2,usec=3"];
        let counts =
            commands.map(|text| evictions.learn_flushes(&info(&format!("# Commandstats\r\ncmdstat_{text}\r\n"))));
        assert_eq!(counts, [0, 1, 1]);
    }
}
