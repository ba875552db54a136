//! Which blocks are held, by how many sequences, and which full ones a later text may begin with.
//!
//! A block that can be found is named by its tokens and the block before it, so that the blocks of a scope form a tree of texts. Names
//! are compared token by token: no two texts can be taken for each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use spec_core::Token;

use super::KvUsage;

/// What a full block holds. In this order the blocks behind one parent stand by their tokens, and the one that shares the most of a text
/// stands next to where that text would.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    scope: u64,
    /// The block before it, which can be found as well for as long as this one can.
    parent: Option<u32>,
    tokens: Arc<[Token]>,
}

#[derive(Clone, Default, Debug)]
struct Block {
    holders: u32,
    name: Option<Name>,
    /// When it was last given back.
    stamp: u64,
}

/// The blocks of a pool.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Blocks that nobody holds and nothing can be found in.
    empty: Vec<u32>,
    /// Blocks that nobody holds and that can be found, by their stamps: the least recently used first. A holder of a block holds the
    /// one before it too, and gives it back later, so a parent comes behind its children.
    idle: BTreeMap<u64, u32>,
    named: BTreeMap<Name, u32>,
    /// Blocks that more than one sequence holds.
    shared: usize,
    stamps: u64,
}

impl Blocks {
    pub(super) fn new(count: u32) -> Self {
        Self {
            blocks: vec![Block::default(); count as usize],
            empty: (0..count).rev().collect(),
            idle: BTreeMap::new(),
            named: BTreeMap::new(),
            shared: 0,
            stamps: 0,
        }
    }

    /// Blocks that can be taken.
    pub(super) fn free(&self) -> usize {
        self.empty.len() + self.idle.len()
    }

    pub(super) fn usage(&self, block_tokens: usize) -> KvUsage {
        let (total, free) = (self.blocks.len(), self.free());
        KvUsage { block_tokens, total, free, cached: self.idle.len(), shared: self.shared }
    }

    pub(super) fn holders(&self, block: u32) -> u32 {
        self.blocks[block as usize].holders
    }

    /// Whether it can be found.
    pub(super) fn is_named(&self, block: u32) -> bool {
        self.blocks[block as usize].name.is_some()
    }

    /// A block for one holder: an empty one, else the one whose text was used least recently.
    pub(super) fn take(&mut self) -> Option<u32> {
        let block = match self.empty.pop() {
            Some(block) => block,
            None => {
                let (_, block) = self.idle.pop_first()?;
                debug_assert!(self.children(block).is_empty(), "children were given back before their parents");
                self.unname(block);
                block
            }
        };
        self.blocks[block as usize].holders = 1;
        Some(block)
    }

    /// One holder more.
    pub(super) fn hold(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        state.holders += 1;
        match state.holders {
            1 => _ = self.idle.remove(&state.stamp),
            2 => self.shared += 1,
            _ => {}
        }
    }

    /// One holder less. Of several blocks the last of the text is given back first.
    pub(super) fn release(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        state.holders -= 1;
        match state.holders {
            1 => self.shared -= 1,
            0 if state.name.is_some() => {
                self.stamps += 1;
                state.stamp = self.stamps;
                self.idle.insert(state.stamp, block);
            }
            0 => self.empty.push(block),
            _ => {}
        }
    }

    /// The block that holds `tokens` behind `parent`.
    pub(super) fn find(&self, scope: u64, parent: Option<u32>, tokens: &[Token]) -> Option<u32> {
        self.named.get(&Name { scope, parent, tokens: tokens.into() }).copied()
    }

    /// The block behind `parent` that begins like `tokens` for longest, and for how long; `None` where none does.
    pub(super) fn nearest(&self, scope: u64, parent: Option<u32>, tokens: &[Token]) -> Option<(u32, usize)> {
        let name = Name { scope, parent, tokens: tokens.into() };
        let below = self.named.range(..&name).next_back();
        let above = self.named.range(&name..).next();
        let common = |(other, &block): (&Name, &u32)| {
            let is_sibling = (other.scope, other.parent) == (scope, parent);
            let equal = other.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            (is_sibling && equal > 0).then_some((block, equal))
        };
        below.into_iter().chain(above).filter_map(common).max_by_key(|&(_, equal)| equal)
    }

    /// Lets a held block be found from now on.
    pub(super) fn name(&mut self, block: u32, scope: u64, parent: Option<u32>, tokens: &[Token]) {
        let name = Name { scope, parent, tokens: tokens.into() };
        self.blocks[block as usize].name = Some(name.clone());
        self.named.insert(name, block);
    }

    /// Lets a block, and with it all that is behind it, be found no more. Nobody may hold those.
    pub(super) fn forget(&mut self, block: u32) {
        let mut doomed = vec![block];
        while let Some(block) = doomed.pop() {
            doomed.extend(self.children(block));
            self.unname(block);
            let state = &self.blocks[block as usize];
            if state.holders == 0 && self.idle.remove(&state.stamp).is_some() {
                self.empty.push(block);
            }
        }
    }

    /// Lets nothing be found any more; who holds blocks keeps them.
    pub(super) fn forget_all(&mut self) {
        self.named.clear();
        self.blocks.iter_mut().for_each(|block| block.name = None);
        self.empty.extend(std::mem::take(&mut self.idle).into_values());
    }

    fn children(&self, block: u32) -> Vec<u32> {
        let Some(Name { scope, .. }) = self.blocks[block as usize].name else { return Vec::new() };
        let first = Name { scope, parent: Some(block), tokens: Arc::default() };
        let behind = self.named.range(first..);
        behind
            .take_while(|(name, _)| (name.scope, name.parent) == (scope, Some(block)))
            .map(|(_, &block)| block)
            .collect()
    }

    fn unname(&mut self, block: u32) {
        if let Some(name) = self.blocks[block as usize].name.take() {
            self.named.remove(&name);
        }
    }
}
