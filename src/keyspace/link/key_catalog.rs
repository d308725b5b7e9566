//! What is known about keys by their prefix: whether changes are pushed, the type of the value, the
//! owner rule and the key of the fence.
//!
//! A session asks it for each key that it reads or that is pushed.

use std::sync::Arc;

use super::key_read::KeyType;
use crate::model::key_index::KeyMap;
use crate::model::namespace::Namespace;
use crate::model::owner::OwnerRule;

pub(super) struct KeyCatalog {
    keys: Arc<KeyMap>,
    namespaces: Vec<Arc<Namespace>>,
    has_fences: bool,
    has_owner_rules: bool,
    whole_value: OwnerRule,
    /// Each prefix with the type of the last key under it that was read.
    prefixes: Vec<(Box<str>, KeyType)>,
    /// The same for keys of templates that start with a field.
    other_kind: KeyType,
    has_others: bool,
}

impl KeyCatalog {
    pub(super) fn new(keys: Arc<KeyMap>, namespaces: Vec<Arc<Namespace>>) -> Self {
        let prefixes = keys.prefixes().into_iter().map(|prefix| (prefix.into(), KeyType::default())).collect();
        let has_fences = namespaces.iter().any(|namespace| namespace.fence.is_some());
        let has_owner_rules = namespaces.iter().any(|namespace| !namespace.owner.is_default());
        let whole_value = OwnerRule::default();
        let mut templates = namespaces.iter().flat_map(|namespace| &namespace.keys);
        let has_others = templates.any(|template| template.prefix().is_empty());
        let other_kind = KeyType::default();
        Self { keys, namespaces, has_fences, has_owner_rules, whole_value, prefixes, other_kind, has_others }
    }

    pub(super) fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().map(|(prefix, _)| &**prefix)
    }

    /// Whether some keys cannot be watched, because their templates start with a field.
    pub(super) fn has_others(&self) -> bool {
        self.has_others
    }

    pub(super) fn is_lock(&self, key: &str) -> bool {
        self.keys.is_lock(key)
    }

    /// Whether changes of the key are pushed, if tracking is on.
    pub(super) fn covers(&self, key: &str) -> bool {
        self.prefixes.iter().any(|(prefix, _)| key.starts_with(&**prefix))
    }

    pub(super) fn kind(&self, key: &str) -> KeyType {
        let found = self.prefixes.iter().find(|(prefix, _)| key.starts_with(&**prefix));
        found.map_or(self.other_kind, |(_, kind)| *kind)
    }

    pub(super) fn learn(&mut self, key: &str, kind: KeyType) {
        let found = self.prefixes.iter_mut().find(|(prefix, _)| key.starts_with(&**prefix));
        *found.map_or(&mut self.other_kind, |(_, kind)| kind) = kind;
    }

    /// How to find the owner in the value of the key.
    pub(super) fn owner_rule(&self, key: &str) -> &OwnerRule {
        if !self.has_owner_rules {
            return &self.whole_value;
        }
        let namespace = self.keys.namespaces_of(key).find_map(|id| self.namespaces.get(usize::from(id.0)));
        namespace.map_or(&self.whole_value, |namespace| &namespace.owner)
    }

    /// The key of the lock's fence counter, if it has one.
    pub(super) fn fence(&self, key: &str) -> Option<String> {
        if !self.has_fences {
            return None;
        }
        self.keys.namespaces_of(key).find_map(|id| {
            let namespace = self.namespaces.get(usize::from(id.0))?;
            let template = namespace.template_of(key);
            namespace.fence.as_ref()?.build(|field| match field {
                "key" => Some(key),
                field => template?.field_of(key, field),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key_template::KeyTemplate;

    fn prefixes(keys: &[&str], fence: &str) -> KeyCatalog {
        let template = |text: &str| KeyTemplate::parse(text).unwrap();
        let keys = keys.iter().map(|key| template(key)).collect();
        let namespaces = vec![Arc::new(Namespace { keys, fence: Some(template(fence)), ..Namespace::other() })];
        KeyCatalog::new(Arc::new(KeyMap::new(&namespaces)), namespaces)
    }

    #[test]
    fn keys_are_known_by_how_they_begin() {
        let mut prefixes = prefixes(&["a:{id}", "{id}:lock"], "fence:{key}");
        assert!(prefixes.has_others());
        assert!(prefixes.covers("a:1") && !prefixes.covers("b:lock"));
        prefixes.learn("a:1", KeyType::Hash);
        assert_eq!((prefixes.kind("a:2"), prefixes.kind("b:lock")), (KeyType::Hash, KeyType::String));
        prefixes.learn("b:lock", KeyType::SortedSet);
        assert_eq!(prefixes.kind("c:lock"), KeyType::SortedSet);
        assert!(!self::prefixes(&["a:{id}", "b:{id}"], "fence:{key}").has_others());
    }

    #[test]
    fn fences_are_found_by_key_or_by_field() {
        assert_eq!(prefixes(&["a:{id}"], "fence:{key}").fence("a:7").as_deref(), Some("fence:a:7"));
        assert_eq!(prefixes(&["a:{id}"], "fence:{id}").fence("a:7").as_deref(), Some("fence:7"));
        assert_eq!(prefixes(&["a:{id}:{part}"], "fence:{part}").fence("a:7:8").as_deref(), Some("fence:8"));
        assert_eq!(prefixes(&["a:{id}"], "fence:{key}").fence("other"), None);
    }
}
