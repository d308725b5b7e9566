//! Finds the lock namespaces that a key may belong to, and derives from all key templates what to
//! scan and what to track.
//!
//! Links use it to choose and filter keys. The ledger uses it to find the lock namespace of a key.
//! Log rules compare keys with each namespace themselves.

use std::sync::Arc;

use super::key_template::KeyTemplate;
use super::namespace::Namespace;
use crate::model::namespace::NamespaceId;

/// All key templates of a configuration.
#[derive(Clone, Debug, Default)]
pub struct KeyMap {
    /// Sorted by length of literal text, longest first: if several templates match a key, the one
    /// with the most literal text describes it best.
    templates: Vec<(KeyTemplate, NamespaceId)>,
    /// Templates of keys that are not locks of a namespace, although one of its key templates
    /// matches them.
    excluded: Vec<(KeyTemplate, NamespaceId)>,
}

impl KeyMap {
    pub fn new(namespaces: &[Arc<Namespace>]) -> Self {
        let mut templates: Vec<(KeyTemplate, NamespaceId)> = Vec::new();
        let mut excluded = Vec::new();
        for (index, namespace) in namespaces.iter().enumerate() {
            templates.extend(namespace.keys.iter().map(|key| (key.clone(), NamespaceId(index as u16))));
            excluded.extend(namespace.exclude.iter().map(|key| (key.clone(), NamespaceId(index as u16))));
        }
        // The sort is stable: namespaces that share a template keep the order of the configuration.
        templates.sort_by_key(|(template, _)| std::cmp::Reverse(template.literal_length()));
        Self { templates, excluded }
    }

    pub fn is_empty(&self) -> bool {
        self.templates.is_empty()
    }

    /// Returns the namespaces whose template describes the key best. If several namespaces share
    /// that template, the TTL decides between them.
    pub fn namespaces_of(&self, key: &str) -> impl Iterator<Item = NamespaceId> {
        let mut matching = self.matching(key).peekable();
        let length = matching.peek().map(|(template, _)| template.literal_length());
        matching.take_while(move |(template, _)| Some(template.literal_length()) == length).map(|(_, id)| *id)
    }

    pub fn is_lock(&self, key: &str) -> bool {
        self.matching(key).next().is_some()
    }

    fn matching(&self, key: &str) -> impl Iterator<Item = &(KeyTemplate, NamespaceId)> {
        let is_excluded =
            |id: NamespaceId| self.excluded.iter().any(|(template, of)| *of == id && template.matches(key));
        self.templates.iter().filter(move |(template, id)| template.matches(key) && !is_excluded(*id))
    }

    /// Returns the literal prefixes of all templates, without those that start with another prefix.
    /// Templates that begin with a field have no prefix and are omitted.
    pub fn prefixes(&self) -> Vec<&str> {
        let mut prefixes: Vec<&str> = self.templates.iter().map(|(template, _)| template.prefix()).collect();
        prefixes.sort_unstable();
        // In sorted order, a prefix comes directly before all prefixes that start with it.
        prefixes.dedup_by(|later, earlier| !earlier.is_empty() && later.starts_with(*earlier));
        prefixes.retain(|prefix| !prefix.is_empty());
        prefixes
    }

    /// Returns one glob pattern that all keys of all templates match, and as few other keys as one
    /// pattern can exclude. With it, one `SCAN` pass serves all namespaces.
    pub fn scan_pattern(&self) -> String {
        let prefixes: Vec<&[u8]> = self.templates.iter().map(|(template, _)| template.prefix().as_bytes()).collect();
        let shortest = prefixes.iter().map(|prefix| prefix.len()).min().unwrap_or(0);
        let mut pattern = String::new();
        for index in 0..shortest {
            let mut choices: Vec<u8> = prefixes.iter().map(|prefix| prefix[index]).collect();
            choices.sort_unstable();
            choices.dedup();
            match choices[..] {
                [byte] if is_plain(byte) => pattern.push(char::from(byte)),
                _ if choices.iter().all(|byte| is_plain(*byte)) => {
                    pattern.push('[');
                    pattern.extend(choices.iter().map(|byte| char::from(*byte)));
                    pattern.push(']');
                }
                // `?` matches any byte. A wider pattern is safe, because every key is also checked
                // against the templates.
                _ => pattern.push('?'),
            }
        }
        let all_fixed_and_equal = self.templates.iter().all(|(template, _)| template.is_fixed())
            && prefixes.iter().all(|prefix| prefix.len() == shortest);
        if !all_fixed_and_equal {
            pattern.push('*');
        }
        pattern
    }
}

/// Returns true for a byte that is neither special in a glob pattern nor part of a multi-byte
/// character.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":_./@#%=+,;!~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(namespaces: &[&[&str]]) -> KeyMap {
        let namespaces: Vec<Arc<Namespace>> = namespaces
            .iter()
            .map(|keys| {
                let keys = keys.iter().map(|key| KeyTemplate::parse(key).unwrap()).collect();
                Arc::new(Namespace { keys, ..Namespace::other() })
            })
            .collect();
        KeyMap::new(&namespaces)
    }

    fn found(map: &KeyMap, key: &str) -> Vec<u16> {
        map.namespaces_of(key).map(|id| id.0).collect()
    }

    #[test]
    fn the_better_description_wins_and_equals_share() {
        let map = map(&[&["job:{id}"], &["job:{job_id}"], &["job:lock:{id}", "leader"]]);
        assert_eq!(found(&map, "job:1"), [0, 1]);
        assert_eq!(found(&map, "job:lock:1"), [2]);
        assert_eq!(found(&map, "leader"), [2]);
        assert_eq!(found(&map, "leader2"), [0_u16; 0]);
        assert!(map.is_lock("job:1") && !map.is_lock("jobs"));
    }

    #[test]
    fn prefixes_do_not_overlap() {
        assert_eq!(map(&[&["a:{x}", "a:b:{x}", "b", "bc:{x}", "{x}:lock"]]).prefixes(), ["a:", "b"]);
        assert_eq!(map(&[&["{x}:lock"]]).prefixes(), Vec::<&str>::new());
    }

    #[test]
    fn one_pattern_for_all() {
        assert_eq!(map(&[&["a:lock:{x}"]]).scan_pattern(), "a:lock:*");
        assert_eq!(map(&[&["a:lock:{x}", "a:last"]]).scan_pattern(), "a:l[ao][cs][kt]*");
        assert_eq!(map(&[&["a:[{x}"]]).scan_pattern(), "a:?*");
        assert_eq!(map(&[&["leader"]]).scan_pattern(), "leader");
        assert_eq!(map(&[&["{x}:lock", "a:{x}"]]).scan_pattern(), "*");
    }
}
