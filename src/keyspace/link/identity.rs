//! Identifies the server: distinguishes server processes and replication histories. `handshake` and
//! `server_monitor` use it to detect restarts and failovers.

use redis::Value;

use super::owner;

/// Identity of a server, as far as `INFO` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerIdentity {
    run_id: Option<String>,
    replication: Replication,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replication {
    is_primary: bool,
    replication_id: Option<String>,
    /// The server followed another replication history before (`master_replid2` is set).
    had_another: bool,
}

impl ServerIdentity {
    pub(super) fn read(server: &Value, replication: &Value) -> Self {
        let run_id = owner::bytes(server).and_then(|text| field(text, "run_id"));
        Self { run_id, replication: Replication::read(replication).unwrap_or_default() }
    }

    pub(super) fn is_primary(&self) -> bool {
        self.replication.is_primary
    }

    pub(super) fn into_replication(self) -> Replication {
        self.replication
    }

    /// Whether this is another server than `earlier`. `false` if one of them is unknown.
    pub(super) fn replaces(&self, earlier: &Self) -> bool {
        let (Some(now), Some(before)) = (&self.run_id, &earlier.run_id) else { return false };
        now != before || !self.replication.continues(&earlier.replication)
    }
}

impl Replication {
    /// Returns `None` if the reply is not an answer to `INFO replication`.
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let text = owner::bytes(reply)?;
        let role = field(text, "role")?;
        let second = field(text, "master_replid2").unwrap_or_default();
        Some(Self {
            is_primary: role == "master",
            replication_id: field(text, "master_replid"),
            had_another: second.bytes().any(|digit| digit != b'0'),
        })
    }

    /// Whether the same process still has the same data. A primary without replicas for an hour
    /// takes a new replication id, and its data stays the same. A server that was demoted in
    /// between has a second replication id.
    pub(super) fn continues(&self, earlier: &Self) -> bool {
        self.replication_id == earlier.replication_id && self.is_primary == earlier.is_primary
            || self.is_primary && earlier.is_primary && !self.had_another
    }
}

/// Number of keys in a database, from the reply to `INFO keyspace`.
pub(super) fn size(reply: &Value, database: u32) -> Option<u64> {
    let text = owner::bytes(reply)?;
    let line = field(text, &format!("db{database}"))?;
    line.split(',').find_map(|part| part.strip_prefix("keys="))?.parse().ok()
}

pub(super) fn field(text: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_taken_apart() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let server = text("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n");
        let primary = text("# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:def\r\n");
        let replica = text("role:slave\r\nmaster_replid:def\r\n");
        let identity = ServerIdentity::read(&server, &primary);
        assert_eq!(identity.run_id.as_deref(), Some("abc"));
        assert!(identity.replication.is_primary);
        assert!(!identity.replaces(&identity));
        assert!(ServerIdentity::read(&server, &replica).replaces(&identity), "demoted");
        assert!(ServerIdentity::read(&text("run_id:other\r\n"), &primary).replaces(&identity));
        assert!(!ServerIdentity::read(&Value::Nil, &primary).replaces(&identity), "not known");
        let later = |second: &str| text(&format!("role:master\r\nmaster_replid:new\r\nmaster_replid2:{second}\r\n"));
        assert!(ServerIdentity::read(&server, &later("def")).replaces(&identity), "demoted and promoted again");
        assert!(!ServerIdentity::read(&server, &later("0000")).replaces(&identity), "no replica for an hour");
        assert_eq!(Replication::read(&Value::Nil), None);
        let keyspace = text("# Keyspace\r\ndb0:keys=3,expires=1\r\ndb10:keys=7,expires=1\r\n");
        assert_eq!(size(&keyspace, 0), Some(3));
        assert_eq!(size(&keyspace, 1), None);
    }
}
