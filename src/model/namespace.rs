//! Lock namespaces: which keys belong to one, and the policy that applies to its locks.
//!
//! `config` builds them. Log sources, links, the ledger and `exposition` read them. Nothing here
//! does I/O.

use std::hash::Hasher;
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::model::key_template::KeyTemplate;
use crate::model::owner::OwnerRule;

/// Index of a lock namespace in the configuration in effect. `other` is always the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct NamespaceId(pub u16);

/// Name of the namespace for all log events that belong to no configured namespace.
pub const OTHER: &str = "other";

/// `item` locks are released explicitly after the work. `loop` locks are left to expire on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    #[default]
    Item,
    Loop,
}

impl Style {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::Loop => "loop",
        }
    }
}

/// What the program does when it cannot renew: stop its own writes (`fence`), or continue without
/// the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRenewalFailure {
    #[default]
    Fence,
    Continue,
}

impl OnRenewalFailure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Continue => "continue",
        }
    }
}

/// How programs acquire the lock. `nx`: only if its key does not exist, with `NX` or an equal check
/// in a script, so nobody overwrites a held lock. `any`: perhaps without such a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcquiredWith {
    #[default]
    Any,
    Nx,
}

impl AcquiredWith {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Nx => "nx",
        }
    }
}

/// Whether a problem in this namespace pages somebody or opens a ticket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    #[default]
    Page,
    Ticket,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Ticket => "ticket",
        }
    }
}

/// Limits of one namespace. The bundled alert rules read them from the `redis_lock_config_*`
/// metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thresholds {
    pub not_owned_ratio: Option<f64>,
    pub renewal_failure_ratio: Option<f64>,
    pub busy_ratio: Option<f64>,
    pub min_failures: Option<u64>,
    pub max_hold: Option<Duration>,
    pub leader_absent: Option<Duration>,
    /// Page on the first abandonment.
    pub strict: bool,
}

/// A named group of locks with one policy.
#[derive(Clone, Debug)]
pub struct Namespace {
    pub name: String,
    pub keys: Vec<KeyTemplate>,
    /// Keys that are not locks, although `keys` matches them: a library's queues, counters and
    /// latches.
    pub exclude: Vec<KeyTemplate>,
    pub owner: OwnerRule,
    /// If several namespaces share a key template: only lines with one of these values in their
    /// `component` field belong to this namespace. Empty: any component.
    pub components: Vec<String>,
    pub acquired_with: AcquiredWith,
    pub style: Style,
    pub on_renewal_failure: OnRenewalFailure,
    pub severity: Severity,
    pub ttl: Option<Duration>,
    /// Locks without a TTL are normal for the library that uses them and do not indicate a problem.
    pub no_ttl_is_normal: bool,
    pub renew_every: Option<Duration>,
    /// The holder writes a new token when it renews, so an owner change before the deadline is a
    /// renewal.
    pub renewal_changes_owner: bool,
    pub takeover_slo: Option<Duration>,
    /// How often a waiting program tries to acquire the lock.
    pub retry_every: Option<Duration>,
    /// After this many failed renewals in a row, the program gives up and fences itself.
    pub renewal_failure_budget: Option<u64>,
    /// Key of the fence counter of a lock: `{key}` stands for the key of the lock. Other fields are
    /// those of the lock's key template.
    pub fence: Option<KeyTemplate>,
    pub thresholds: Thresholds,
}

/// How a lock is shown to people and programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockName<'a> {
    /// The part that distinguishes the lock from the others in its namespace.
    pub id: Option<&'a str>,
    /// The Redis key, if the lock is known by its key.
    pub key: Option<&'a str>,
}

impl Namespace {
    /// Returns the namespace for locks that belong to no configured namespace. Its severity is
    /// `ticket`, because nobody configured that such a lock is worth a page.
    pub fn other() -> Self {
        Self {
            name: OTHER.to_owned(),
            keys: Vec::new(),
            exclude: Vec::new(),
            owner: OwnerRule::default(),
            components: Vec::new(),
            acquired_with: AcquiredWith::default(),
            style: Style::Item,
            on_renewal_failure: OnRenewalFailure::Fence,
            severity: Severity::Ticket,
            ttl: None,
            no_ttl_is_normal: false,
            renew_every: None,
            renewal_changes_owner: false,
            takeover_slo: None,
            retry_every: None,
            renewal_failure_budget: None,
            fence: None,
            thresholds: Thresholds::default(),
        }
    }

    /// Identifies what belongs to the namespace and what its counts mean. If a new configuration
    /// changes the identity, the namespace starts over. Policy (thresholds, TTL, severity) is not
    /// part of it.
    pub fn identity(&self) -> u64 {
        let Self { name, keys, exclude, owner, components, style, .. } = self;
        let mut hasher = SipHasher13::new();
        hasher.write(format!("{:?}", (name, keys, exclude, owner, components, style)).as_bytes());
        hasher.finish()
    }

    /// Whether links read the same keys in the same way for both namespaces.
    pub fn is_read_like(&self, other: &Self) -> bool {
        // Regexes cannot be compared, but their texts can.
        let owner = |namespace: &Self| format!("{:?}", namespace.owner);
        self.keys == other.keys
            && self.exclude == other.exclude
            && self.fence == other.fence
            && owner(self) == owner(other)
    }

    /// Returns the template with the most literal text that matches the key. `None` if no template
    /// matches or the key is excluded.
    pub fn template_of(&self, key: &str) -> Option<&KeyTemplate> {
        let matching = self.keys.iter().filter(|template| template.matches(key));
        let best = matching.max_by_key(|template| template.literal_length())?;
        (!self.exclude.iter().any(|template| template.matches(key))).then_some(best)
    }

    /// `lock` is what a log line contains: the key of the lock, or its bare id.
    pub fn name_lock<'a>(&self, lock: Option<&'a str>) -> LockName<'a> {
        let Some(lock) = lock else { return LockName::default() };
        let template = self.template_of(lock);
        let id = template.and_then(|template| template.id_of(lock)).unwrap_or(lock);
        LockName { id: Some(id), key: template.map(|_| lock) }
    }
}
