//! Constraints: what a grammar, a schema or a template allows, token by token.

use std::cell::{OnceCell, RefCell};

use spec_core::{DraftTree, NodeId, PathMasks, SmallPath, Token, TokenMask};

use crate::RuntimeError;

/// A set of token ids below the size of a vocabulary, a bit each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenSet {
    words: Vec<u64>,
    vocab: usize,
}

impl TokenSet {
    /// The empty set over a vocabulary of `vocab` tokens.
    pub fn new(vocab: usize) -> Self {
        Self { words: vec![0; vocab.div_ceil(64)], vocab }
    }

    /// Number of tokens that can be in the set.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Puts a token in; does nothing for an id past the vocabulary.
    pub fn insert(&mut self, token: Token) {
        if (token as usize) < self.vocab {
            self.words[token as usize / 64] |= 1 << (token % 64);
        }
    }

    /// Puts all tokens in.
    pub fn insert_all(&mut self) {
        self.words.fill(u64::MAX);
        self.clear_past_the_end();
    }

    /// Puts in the tokens of a bit set: bit `b` of word `w` is token `32 w + b`. Bits past the vocabulary do nothing.
    pub fn insert_words(&mut self, words: &[u32]) {
        for (own, pair) in self.words.iter_mut().zip(words.chunks(2)) {
            *own |= u64::from(pair[0]) | pair.get(1).map_or(0, |&high| u64::from(high) << 32);
        }
        self.clear_past_the_end();
    }

    fn clear_past_the_end(&mut self) {
        if let (Some(last), rest @ 1..) = (self.words.last_mut(), self.vocab % 64) {
            *last &= (1 << rest) - 1;
        }
    }

    /// Takes all tokens out.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Whether a token is in.
    pub fn contains(&self, token: Token) -> bool {
        self.words.get(token as usize / 64).is_some_and(|word| word >> (token % 64) & 1 == 1)
    }

    /// Number of tokens in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no token is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The token, where the set has one alone.
    pub fn sole(&self) -> Option<Token> {
        let mut filled = (0u32..).zip(&self.words).filter(|&(_, &word)| word != 0);
        let (index, word) = filled.next()?;
        (word.is_power_of_two() && filled.next().is_none()).then(|| index * 64 + word.trailing_zeros())
    }
}

impl TokenMask for TokenSet {
    fn allows(&self, token: Token) -> bool {
        self.contains(token)
    }

    fn apply(&self, logits: &mut [f32]) {
        for (index, logits) in logits.chunks_mut(64).enumerate() {
            let word = self.words.get(index).copied().unwrap_or(0);
            if word == u64::MAX {
                continue;
            }
            for (bit, logit) in logits.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// What may be generated, as a state that tokens move.
///
/// The state begins before the first generated token. The engine moves it along a draft to learn the masks there and takes it
/// back before it moves it on by the tokens that are emitted: a constraint never learns which tokens were drafted.
pub trait Constraint: Send {
    /// Puts the tokens that may come next into `allowed`, which is empty when given. Where the text may end, the end ids of the
    /// request are among them.
    ///
    /// # Errors
    /// When the constraint's own machine gives up, on a limit for instance.
    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), RuntimeError>;

    /// Moves on by a token that is allowed and is no end id.
    ///
    /// # Errors
    /// As [`allow`](Self::allow).
    fn advance(&mut self, token: Token) -> Result<(), RuntimeError>;

    /// Takes the last `tokens` moves back.
    fn roll_back(&mut self, tokens: usize);

    /// Tokens that spell what must come next because nothing else may, at most `limit`, up to an end id. They are drafted without a
    /// drafter, so that they may be wrong where the same text can be cut into tokens otherwise. The state stays where it is.
    ///
    /// # Errors
    /// As [`allow`](Self::allow).
    fn forced(&mut self, limit: usize, vocab: usize, end_ids: &[Token]) -> Result<Vec<Token>, RuntimeError> {
        let mut forced = Vec::new();
        let mut moves = 0;
        let mut allowed = TokenSet::new(vocab);
        let mut outcome = Ok(());
        while forced.len() < limit {
            allowed.clear();
            outcome = self.allow(&mut allowed);
            let Some(token) = allowed.sole().filter(|token| outcome.is_ok() && !end_ids.contains(token)) else { break };
            forced.push(token);
            if forced.len() == limit {
                break;
            }
            outcome = self.advance(token);
            if outcome.is_err() {
                break;
            }
            moves += 1;
        }
        self.roll_back(moves);
        outcome.map(|()| forced)
    }
}

/// A constraint's masks at the nodes of a draft, formed where they are asked for.
pub(crate) struct ConstraintMasks<'a> {
    tree: &'a DraftTree,
    end_ids: &'a [Token],
    vocab: usize,
    walk: RefCell<Walk<'a>>,
    /// By row: that of the committed text, then those of the nodes. `None` behind a token that is not allowed or ends the
    /// text: nothing of it can be emitted.
    sets: Vec<OnceCell<Option<TokenSet>>>,
}

struct Walk<'a> {
    constraint: &'a mut dyn Constraint,
    /// Where the constraint's state stands.
    path: SmallPath,
    failure: Option<RuntimeError>,
}

impl<'a> ConstraintMasks<'a> {
    pub(crate) fn new(
        tree: &'a DraftTree,
        constraint: &'a mut dyn Constraint,
        vocab: usize,
        end_ids: &'a [Token],
    ) -> Self {
        let walk = RefCell::new(Walk { constraint, path: SmallPath::new(), failure: None });
        Self { tree, end_ids, vocab, walk, sets: vec![OnceCell::new(); tree.len() + 1] }
    }

    /// Takes the constraint back to the committed text.
    ///
    /// # Errors
    /// What the constraint reported meanwhile; masks formed since then allow everything.
    pub(crate) fn finish(self) -> Result<(), RuntimeError> {
        let walk = self.walk.into_inner();
        walk.constraint.roll_back(walk.path.len());
        walk.failure.map_or(Ok(()), Err)
    }

    fn set(&self, node: Option<NodeId>) -> Option<&TokenSet> {
        let cell = &self.sets[node.map_or(0, |node| node.index() + 1)];
        cell.get_or_init(|| {
            if let Some(node) = node {
                let node = self.tree.node(node);
                let before = self.set(node.parent)?;
                if !before.contains(node.token) || self.end_ids.contains(&node.token) {
                    return None;
                }
            }
            let mut walk = self.walk.borrow_mut();
            let mut allowed = TokenSet::new(self.vocab);
            match walk.to(self.tree, node).and_then(|()| walk.constraint.allow(&mut allowed)) {
                Ok(()) => Some(allowed),
                Err(error) => {
                    walk.failure.get_or_insert(error);
                    None
                }
            }
        })
        .as_ref()
    }
}

impl Walk<'_> {
    fn to(&mut self, tree: &DraftTree, node: Option<NodeId>) -> Result<(), RuntimeError> {
        let path = node.map_or_else(SmallPath::new, |node| tree.path(node));
        let shared = self.path.iter().zip(&path).take_while(|(a, b)| a == b).count();
        self.constraint.roll_back(self.path.len() - shared);
        self.path.truncate(shared);
        for &node in &path[shared..] {
            self.constraint.advance(tree.node(node).token)?;
            self.path.push(node);
        }
        Ok(())
    }
}

impl PathMasks for ConstraintMasks<'_> {
    fn mask(&self, node: Option<NodeId>) -> Option<&dyn TokenMask> {
        self.set(node).map(|set| set as &dyn TokenMask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_at_every_size() {
        for vocab in [1, 63, 64, 65, 200] {
            let mut set = TokenSet::new(vocab);
            assert!(set.is_empty() && set.sole().is_none());
            set.insert(vocab as Token);
            assert!(set.is_empty(), "past the vocabulary");
            set.insert(vocab as Token - 1);
            assert_eq!((set.sole(), set.len()), (Some(vocab as Token - 1), 1));
            set.insert_all();
            assert_eq!((set.len(), set.sole().is_some()), (vocab, vocab == 1));
            assert!(!set.contains(vocab as Token));
            set.clear();
            assert!(set.is_empty());
        }
    }

    #[test]
    fn words_of_a_bit_set_are_the_tokens_one_by_one() {
        for vocab in [5, 32, 40, 64, 130] {
            let (mut whole, mut single) = (TokenSet::new(vocab), TokenSet::new(vocab));
            whole.insert(1);
            single.insert(1);
            let words = [0x8000_0011, 0xffff_0000, 7, 0, 0x55, 1];
            whole.insert_words(&words);
            for token in (0..192).filter(|token| words[token / 32] >> (token % 32) & 1 == 1) {
                single.insert(token as Token);
            }
            assert_eq!(whole, single, "{vocab}");
        }
    }

    #[test]
    fn a_mask_applied_as_words_is_the_mask_token_by_token() {
        for vocab in [5, 64, 130] {
            let mut set = TokenSet::new(vocab);
            (0..vocab as Token).filter(|token| token * token % 7 < 3).for_each(|token| set.insert(token));
            let mut logits = vec![1.0; vocab + 3];
            set.apply(&mut logits);
            for (token, logit) in (0..).zip(&logits) {
                assert_eq!(*logit == 1.0, set.allows(token), "token {token} of {vocab}");
            }
        }
    }
}
