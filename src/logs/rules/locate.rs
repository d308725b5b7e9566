//! Finds the lock that a record is about, and its lock namespace. Called by `rules` for each event.
//! Nothing here can fail: without a key, the lock namespace is the rule's own, or else `other`.
//!
//! A key that the record contains takes precedence over the rule's own lock namespace, because
//! messages are often copied or misleading and keys are not. Key fields come first, then the regex
//! group `key`, then keys inside texts. Without such a key, the key is built from a key template
//! and the fields of the record. An id that matches a key template is already the key.

use crate::config::rules::rule::{IdSource, KEY_FIELDS};
use std::sync::Arc;

use regex::Regex;

use crate::logs::line::LogRecord;
use crate::model::key_template::KeyTemplate;
use crate::model::namespace::{Namespace, NamespaceId};

#[derive(Debug)]
pub(super) struct Locator {
    /// The last one is `other`.
    namespaces: Vec<Arc<Namespace>>,
    /// Each regex has a group `key`.
    keys_in_text: Vec<Regex>,
}

/// What is known about the lock that a record is about.
pub(super) struct Query<'q> {
    pub(super) record: &'q LogRecord,
    /// The rule's own lock namespace.
    pub(super) namespace: Option<NamespaceId>,
    /// Where the rule finds the id of the lock.
    pub(super) ids: &'q [IdSource],
    /// The group `key` of the rule's regex.
    pub(super) key: Option<&'q str>,
    /// The group `id` of the rule's regex. It is the value of every id field.
    pub(super) id: Option<&'q str>,
}

impl Locator {
    pub(super) fn new(namespaces: &[Arc<Namespace>], keys_in_text: Vec<Regex>) -> Self {
        Self { namespaces: namespaces.to_vec(), keys_in_text }
    }

    /// Returns the lock namespace, and the key of the lock or, if the key is unknown, its id.
    pub(super) fn locate(&self, query: &Query<'_>) -> (NamespaceId, Option<String>) {
        let named = self.named_keys(query);
        for key in &named {
            if let Some(namespace) = self.namespace_of(key, query) {
                return (namespace, Some((*key).to_owned()));
            }
        }
        let own = query.namespace.unwrap_or(self.other());
        if let Some(key) = named.first() {
            return (own, Some((*key).to_owned()));
        }
        if let Some(key) = query.key_of_ids() {
            return (self.namespace_of(&key, query).unwrap_or(own), Some(key));
        }
        let built = query.namespace.and_then(|namespace| self.build_key(self.namespace(namespace), query));
        (own, built.or_else(|| query.first_id().map(str::to_owned)))
    }

    /// Keys that the record contains, most reliable first.
    fn named_keys<'q>(&self, query: &Query<'q>) -> Vec<&'q str> {
        let fields = KEY_FIELDS.iter().filter_map(|name| query.record.field(name));
        let mut keys: Vec<&str> = fields.chain(query.key).collect();
        for text in query.record.texts_by_detail() {
            let found = self.keys_in_text.iter().filter_map(|finder| finder.captures(text)?.name("key"));
            keys.extend(found.map(|key| key.as_str()));
        }
        keys.retain(|key| !key.is_empty());
        keys
    }

    /// The lock namespace whose key template matches the key with the most literal text. If several
    /// share it, the order is: the rule's own, one for the record's component, one without
    /// components, the first.
    fn namespace_of(&self, key: &str, query: &Query<'_>) -> Option<NamespaceId> {
        let mut best = 0;
        let mut sharing: Vec<NamespaceId> = Vec::new();
        for (index, namespace) in (0..=u16::MAX).zip(&self.namespaces) {
            let Some(length) = namespace.template_of(key).map(KeyTemplate::literal_length) else { continue };
            if length > best {
                sharing.clear();
                best = length;
            }
            if length == best {
                sharing.push(NamespaceId(index));
            }
        }
        let component = query.record.field("component").unwrap_or_default();
        let is_own = |id: &NamespaceId| Some(*id) == query.namespace;
        let is_of_component = |id: &NamespaceId| self.namespace(*id).components.iter().any(|known| known == component);
        let is_of_any = |id: &NamespaceId| self.namespace(*id).components.is_empty();
        let pick = |test: &dyn Fn(&NamespaceId) -> bool| sharing.iter().copied().find(test);
        pick(&is_own)
            .or_else(|| pick(&is_of_component))
            .or_else(|| pick(&is_of_any))
            .or_else(|| sharing.first().copied())
    }

    fn build_key(&self, namespace: &Namespace, query: &Query<'_>) -> Option<String> {
        if let Some(id) = query.first_id().filter(|id| namespace.template_of(id).is_some()) {
            return Some(id.to_owned());
        }
        if let Some(key) = namespace
            .keys
            .iter()
            .find_map(|template| if template.is_fixed() { None } else { template.build(|name| query.value(name)) })
        {
            return Some(key);
        }
        // If the lock namespace has only one key template, the field names do not have to match.
        let [template] = namespace.keys.as_slice() else { return None };
        match template.fields().count() {
            0 => Some(template.as_str().to_owned()),
            1 => template.build(|_| query.first_id()),
            _ => None,
        }
    }

    fn namespace(&self, id: NamespaceId) -> &Namespace {
        &self.namespaces[usize::from(id.0)]
    }

    fn other(&self) -> NamespaceId {
        NamespaceId(u16::try_from(self.namespaces.len().saturating_sub(1)).unwrap_or(u16::MAX))
    }
}

impl<'q> Query<'q> {
    fn id_fields(&self) -> impl Iterator<Item = &'q str> {
        self.ids.iter().filter_map(|source| match source {
            IdSource::Field(name) => Some(name.as_str()),
            IdSource::Key(_) => None,
        })
    }

    /// The value for a field of a key template.
    fn value(&self, name: &str) -> Option<&'q str> {
        let is_id = self.ids.is_empty() || self.id_fields().any(|field| field == name);
        self.id.filter(|_| is_id).or_else(|| self.record.field(name))
    }

    fn first_id(&self) -> Option<&'q str> {
        let fields = self.id_fields().filter_map(|name| self.record.field(name));
        self.id.into_iter().chain(fields).find(|value| !value.is_empty())
    }

    fn key_of_ids(&self) -> Option<String> {
        self.ids.iter().find_map(|source| match source {
            IdSource::Key(template) => template.build(|name| self.record.field(name)),
            IdSource::Field(_) => None,
        })
    }
}
