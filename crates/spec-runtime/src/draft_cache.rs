//! Drafts that were made before, for the texts that they continue.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use spec_core::{DraftTree, Noise, Origin, Token, TreeError};

use crate::drafter::Class;

/// Tokens at the end of a text that are compared one by one.
const COMPARED: usize = 32;
/// Bytes that an entry is counted with beside its tokens: its places in the two maps, and the heap's own.
const OVERHEAD: usize = 2 * (size_of::<(Key, Entry)>() + 2 * size_of::<(u64, Arc<Key>)>());

/// A cache of drafts with a bound on its bytes: of the entries that are used least recently as many are dropped as a new one needs.
///
/// An entry belongs to a draft model, a tenant, and a text; it holds the tokens that were drafted, how they hang together, and what was
/// expected of each ([`Class`]), but no logits. A text is known by its last 32 tokens and a keyed hash of those before them: if
/// ever two were taken for each other, a draft would be refused, and nothing else. Tenants are compared as they are.
#[doc(alias = "CacheManager")]
pub struct DraftCache {
    name: String,
    capacity: usize,
    hasher: RandomState,
    kept: Mutex<Kept>,
}

/// The text that a draft continues, and what it was drafted for.
#[derive(Clone, Copy, Debug)]
pub struct DraftKey<'a> {
    /// Name of the draft model.
    pub model: &'a str,
    /// Whose text it is.
    pub tenant: u64,
    /// The noise that drafts are sampled with; `None` where they are the model's most probable tokens.
    pub noise: Option<Noise>,
    /// Children that a node may have.
    pub width: usize,
    /// Whether the draft stops where no more pays, rather than at the budget.
    pub weighed: bool,
    /// The committed text.
    pub text: &'a [Token],
}

/// A draft of given nodes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CachedDraft {
    nodes: Vec<CachedNode>,
    /// Nodes that it could have had.
    budget: usize,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct CachedNode {
    token: Token,
    parent: Option<u32>,
    origin: Origin,
    class: Class,
}

/// How a [`DraftCache`] has fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DraftCacheStats {
    /// Drafts that were found.
    pub hits: u64,
    /// Drafts that were not.
    pub misses: u64,
    /// Drafts that are kept.
    pub entries: usize,
    /// Bytes that they take.
    pub bytes: usize,
    /// Bytes that they may take.
    pub capacity: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    model: Arc<str>,
    tenant: u64,
    noise: Option<Noise>,
    width: usize,
    weighed: bool,
    length: usize,
    before: u64,
    end: Box<[Token]>,
}

#[derive(Debug)]
struct Entry {
    draft: Arc<CachedDraft>,
    used: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Arc<Key>, Entry>,
    /// By when they were last used.
    order: BTreeMap<u64, Arc<Key>>,
    models: Vec<Arc<str>>,
    used: u64,
    bytes: usize,
    hits: u64,
    misses: u64,
}

impl CachedDraft {
    /// What `tree` proposes, `class` being what is expected of each node; `None` where a node was drawn, for a draw belongs to its round.
    pub fn of(tree: &DraftTree, budget: usize, class: impl Fn(spec_core::NodeId) -> Class) -> Option<Self> {
        let nodes = tree.nodes().map(|(id, node)| match node.kind {
            spec_core::NodeKind::Given(origin) => {
                let parent = node.parent.map(|parent| parent.index() as u32);
                Some(CachedNode { token: node.token, parent, origin, class: class(id) })
            }
            spec_core::NodeKind::Sampled(_) => None,
        });
        Some(Self { nodes: nodes.collect::<Option<_>>()?, budget })
    }

    /// Nodes that the drafter could propose when it made this.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// The first `budget` nodes, and their classes.
    ///
    /// # Errors
    /// As [`DraftTree::push`]; never for what [`of`](Self::of) has made.
    pub fn tree(&self, budget: usize) -> Result<(DraftTree, Vec<Class>), TreeError> {
        let (mut tree, mut ids) = (DraftTree::new(), Vec::new());
        let nodes = &self.nodes[..self.nodes.len().min(budget)];
        for node in nodes {
            ids.push(tree.push(node.parent.map(|parent| ids[parent as usize]), node.token, node.origin)?);
        }
        Ok((tree, nodes.iter().map(|node| node.class).collect()))
    }
}

impl DraftCache {
    /// An empty cache that takes `bytes` at most; `name` is for people. One of a few bytes keeps nothing.
    pub fn new(name: impl Into<String>, bytes: usize) -> Self {
        Self { name: name.into(), capacity: bytes, hasher: RandomState::new(), kept: Mutex::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a draft for this; neither counts nor keeps it.
    pub fn hit(&self, key: &DraftKey<'_>) -> bool {
        let mut kept = self.kept.lock();
        let key = self.key(&mut kept, key);
        kept.entries.contains_key(&key)
    }

    /// The draft for this, which has been used now.
    pub fn get(&self, key: &DraftKey<'_>) -> Option<Arc<CachedDraft>> {
        let mut kept = self.kept.lock();
        let key = self.key(&mut kept, key);
        let Kept { entries, order, used, hits, misses, .. } = &mut *kept;
        let Some((key, _)) = entries.get_key_value(&key) else {
            *misses += 1;
            return None;
        };
        let key = Arc::clone(key);
        let entry = entries.get_mut(&key)?;
        *hits += 1;
        *used += 1;
        order.remove(&entry.used);
        entry.used = *used;
        order.insert(*used, key);
        Some(Arc::clone(&entry.draft))
    }

    /// Keeps a draft, in the place of one that is there for the same. What would not fit by itself is not kept.
    pub fn put(&self, key: &DraftKey<'_>, draft: CachedDraft) {
        let mut kept = self.kept.lock();
        let key = Arc::new(self.key(&mut kept, key));
        let bytes = OVERHEAD + size_of_val(&*key.end) + draft.nodes.len() * size_of::<CachedNode>();
        if let Some(old) = kept.entries.remove(&key) {
            kept.order.remove(&old.used);
            kept.bytes -= old.bytes;
        }
        if bytes > self.capacity {
            return;
        }
        while kept.bytes + bytes > self.capacity {
            let Some((_, oldest)) = kept.order.pop_first() else { break };
            kept.bytes -= kept.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
        kept.used += 1;
        let used = kept.used;
        kept.bytes += bytes;
        kept.order.insert(used, Arc::clone(&key));
        kept.entries.insert(key, Entry { draft: Arc::new(draft), used, bytes });
    }

    /// Forgets all drafts; what was counted stays.
    pub fn clear(&self) {
        let mut kept = self.kept.lock();
        kept.entries.clear();
        kept.order.clear();
        kept.bytes = 0;
    }

    /// How it has fared so far.
    pub fn stats(&self) -> DraftCacheStats {
        let kept = self.kept.lock();
        let Kept { hits, misses, bytes, .. } = *kept;
        DraftCacheStats { hits, misses, entries: kept.entries.len(), bytes, capacity: self.capacity }
    }

    fn key(&self, kept: &mut Kept, key: &DraftKey<'_>) -> Key {
        let model = match kept.models.iter().find(|model| &***model == key.model) {
            Some(model) => Arc::clone(model),
            None => {
                let model: Arc<str> = key.model.into();
                kept.models.push(Arc::clone(&model));
                model
            }
        };
        let (before, end) = key.text.split_at(key.text.len().saturating_sub(COMPARED));
        let DraftKey { tenant, noise, width, weighed, text, .. } = *key;
        let before = self.hasher.hash_one(before);
        Key { model, tenant, noise, width, weighed, length: text.len(), before, end: end.into() }
    }
}

impl std::fmt::Debug for DraftCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DraftCache").field("name", &self.name).field("stats", &self.stats()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: u64, text: &[Token]) -> DraftKey<'_> {
        DraftKey { model: "m", tenant, noise: None, width: 1, weighed: false, text }
    }

    fn draft(tokens: &[Token]) -> CachedDraft {
        let class = |_| Class { index: 3, prior: 0.5 };
        CachedDraft::of(&DraftTree::chain(tokens, Origin::Fixed), 8, class).expect("nothing is drawn")
    }

    #[test]
    fn a_draft_is_found_by_model_tenant_and_text_and_by_nothing_less() {
        let cache = DraftCache::new("drafts", 1 << 20);
        let text: Vec<Token> = (0..100).collect();
        let mut other = text.clone();
        other[0] = 7;
        cache.put(&key(1, &text), draft(&[5, 6]));
        let near = [
            DraftKey { tenant: 2, ..key(1, &text) },
            DraftKey { model: "n", ..key(1, &text) },
            DraftKey { noise: Some(Noise::new(3)), ..key(1, &text) },
            DraftKey { weighed: true, ..key(1, &text) },
            DraftKey { width: 3, ..key(1, &text) },
            key(1, &other),
            key(1, &text[1..]),
            key(1, &text[..99]),
        ];
        for near in near {
            assert!(!cache.hit(&near) && cache.get(&near).is_none(), "{near:?}");
        }
        let found = cache.get(&key(1, &text)).expect("it was kept");
        let (tree, classes) = found.tree(1).expect("a tree");
        assert_eq!((tree, classes.len()), (DraftTree::chain(&[5], Origin::Fixed), 1));
        let DraftCacheStats { hits, misses, entries, .. } = cache.stats();
        assert_eq!((hits, misses, entries), (1, near.len() as u64, 1));
    }

    #[test]
    fn bytes_are_bounded_and_the_least_recently_used_goes_first() {
        let cache = DraftCache::new("drafts", 4096);
        let texts: Vec<Vec<Token>> = (0..60).map(|at| vec![at; 40]).collect();
        for (at, text) in texts.iter().enumerate() {
            cache.put(&key(1, text), draft(&[1, 2, 3]));
            // The first is used all the time.
            assert!(cache.get(&key(1, &texts[0])).is_some(), "after {at}");
            let stats = cache.stats();
            assert!(stats.bytes <= 4096 && stats.entries * 64 <= stats.bytes, "{stats:?}");
        }
        let kept: Vec<usize> = (0..60).filter(|&at| cache.hit(&key(1, &texts[at]))).collect();
        assert_eq!(kept.len(), cache.stats().entries);
        assert!(kept.len() > 2 && kept[0] == 0 && kept[1..].windows(2).all(|two| two[1] == two[0] + 1), "{kept:?}");
        assert_eq!(kept.last(), Some(&59));
        let small = DraftCache::new("none", 16);
        small.put(&key(1, &texts[0]), draft(&[1]));
        assert_eq!(small.stats().entries, 0);
    }
}
