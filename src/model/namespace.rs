//! Lock namespaces and their key templates: key -> namespace, log fields -> key.
//!
//! A template such as `cordum:wf:run:lock:{run_id}` has a literal head (what a scan would look for) and named fields that
//! log lines carry too, so that a line leads to the very key it speaks of. Nothing here does I/O.

use crate::model::key_template::KeyTemplate;
use crate::model::owner::OwnerRule;
use std::time::Duration;

/// Index of a lock namespace in the configuration in effect. `other` is always the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u16);

/// Name of the namespace that takes every lock event no configured namespace claims.
pub const OTHER: &str = "other";

/// `item` locks are acquired and released explicitly; `loop` locks are held until their TTL runs out on purpose.
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

/// What the program does when it cannot renew: stop its own writes, or carry on without the lock.
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

/// Whether trouble in this namespace should wake somebody.
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

/// Per-namespace limits that the bundled alert rules read from the `redis_lock_config_*` metrics.
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

/// A family of locks with one purpose.
#[derive(Clone, Debug)]
pub struct Namespace {
    pub name: String,
    pub keys: Vec<KeyTemplate>,
    /// Keys that are no locks although `keys` describes them: a library's queues, counters and latches.
    pub exclude: Vec<KeyTemplate>,
    pub owner: OwnerRule,
    /// Where several namespaces share a key template: the components (the `component` field of a line) whose lines are
    /// about this one. Empty: any.
    pub components: Vec<String>,
    pub style: Style,
    pub on_renewal_failure: OnRenewalFailure,
    pub severity: Severity,
    pub ttl: Option<Duration>,
    /// Locks that stay until they are deleted are how the library works, not a sign of trouble.
    pub no_ttl_is_normal: bool,
    pub renew_every: Option<Duration>,
    pub takeover_slo: Option<Duration>,
    /// How often those who wait for the lock try to take it.
    pub retry_every: Option<Duration>,
    /// After so many renewals in a row that failed the program gives up and fences itself.
    pub renewal_failure_budget: Option<u64>,
    /// Where the fence counter of a lock is: `{key}` stands for the lock's key, other fields are those of its template.
    pub fence: Option<KeyTemplate>,
    pub thresholds: Thresholds,
}

/// How a lock is shown to people and programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockName<'a> {
    /// What tells it from the others of its namespace.
    pub id: Option<&'a str>,
    /// The Redis key, where it is known to be one.
    pub key: Option<&'a str>,
}

impl Namespace {
    /// Takes what no configured namespace claims. Nobody said that an unknown lock is worth waking somebody.
    pub fn other() -> Self {
        Self {
            name: OTHER.to_owned(),
            keys: Vec::new(),
            exclude: Vec::new(),
            owner: OwnerRule::default(),
            components: Vec::new(),
            style: Style::Item,
            on_renewal_failure: OnRenewalFailure::Fence,
            severity: Severity::Ticket,
            ttl: None,
            no_ttl_is_normal: false,
            renew_every: None,
            takeover_slo: None,
            retry_every: None,
            renewal_failure_budget: None,
            fence: None,
            thresholds: Thresholds::default(),
        }
    }

    /// The template that describes a key of this namespace.
    pub fn template_of(&self, key: &str) -> Option<&KeyTemplate> {
        let matching = self.keys.iter().filter(|template| template.matches(key));
        let best = matching.max_by_key(|template| template.literal_length())?;
        (!self.exclude.iter().any(|template| template.matches(key))).then_some(best)
    }

    /// `lock` is what a line told about the lock: its key, or its bare id.
    pub fn name_lock<'a>(&self, lock: Option<&'a str>) -> LockName<'a> {
        let Some(lock) = lock else { return LockName::default() };
        let template = self.template_of(lock);
        let id = template.and_then(|template| template.id_of(lock)).unwrap_or(lock);
        LockName { id: Some(id), key: template.map(|_| lock) }
    }
}
