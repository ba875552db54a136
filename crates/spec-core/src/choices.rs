//! Randomness other than the shared noise, as explicit choices.
//!
//! Rules ask a [`Choices`] source instead of drawing numbers. Production answers from a keyed generator; a proof answers
//! every way and multiplies the probabilities, so that the code that ships is the code that is enumerated.

use crate::math::{GOLDEN, mix64};
use crate::{NodeId, mutant};

/// What a choice is for. Part of the key: a draft, its acceptance and its replacement must never share a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// Drawing a draft token from the drafter's law.
    Draft = 1,
    /// Accepting or rejecting a draft token.
    Accept = 2,
    /// Drawing the token that replaces a rejected one.
    Resample = 3,
    /// Drawing the token that follows a draft accepted whole.
    Bonus = 4,
    /// Drawing a further child below a node for which one was drawn.
    Sibling = 5,
}

/// Names a choice within a round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChoiceKey {
    /// Absolute position of the token that the choice is about.
    pub position: usize,
    /// The node judged, or the parent of the node drawn; `None` for the committed text.
    pub node: Option<NodeId>,
    /// What it is for.
    pub purpose: Purpose,
    /// Which of several draws below one parent this is about, from 0: independent draws can name one node twice.
    pub draw: u32,
}

/// Answers a rule's random choices.
pub trait Choices {
    /// True with the given probability; below 0 counts as 0, above 1 as 1, NaN as 0.
    fn accept(&mut self, key: ChoiceKey, probability: f64) -> bool;

    /// An index drawn in proportion to `weights`. `None` when no weight is positive, or their sum is not finite.
    fn draw(&mut self, key: ChoiceKey, weights: &[f64]) -> Option<usize>;

    /// The number in [0, 1) that [`accept`](Self::accept) compares with a probability; `None` from a source that decides without one.
    fn number(&self, _key: ChoiceKey) -> Option<f64> {
        None
    }
}

/// The production source: counter-based, keyed by (seed, choice, committed length when the round began, position, node,
/// purpose, draw).
///
/// The committed length is in the key because a rule may look at the numbers of positions that it then does not commit;
/// without it the next round would meet them again, and block verification would be biased.
#[derive(Clone, Debug)]
pub struct KeyedChoices {
    round: u64,
}

impl KeyedChoices {
    /// The source of the round that begins with `committed_len` committed tokens, for a request's only, or first, choice.
    pub fn new(seed: u64, committed_len: usize) -> Self {
        Self::with_choice(seed, 0, committed_len)
    }

    /// The source of a round of choice `choice` of a request that asks for several.
    pub fn with_choice(seed: u64, choice: u32, committed_len: usize) -> Self {
        // Apart from the shared noise, which mixes the same seed.
        const DOMAIN: u64 = 0x6A09_E667_F3BC_C908;
        let committed_len = if mutant::is_seeded(mutant::Mutant::KeyWithoutRound) { 0 } else { committed_len };
        let text = absorb(mix64(seed ^ DOMAIN), u64::from(choice));
        Self { round: absorb(text, committed_len as u64) }
    }

    /// The 64 random bits of a key.
    pub fn bits(&self, key: ChoiceKey) -> u64 {
        let mut node = key.node.map_or(0, |node| node.index() as u64 + 1);
        if mutant::is_seeded(mutant::Mutant::KeyWithoutRound) {
            node = 0;
        }
        let state = absorb(self.round, key.position as u64);
        absorb(absorb(state, (node << 8) | key.purpose as u64), u64::from(key.draw))
    }

    /// A number in [0, 1), a multiple of 2^-53.
    fn uniform(&self, key: ChoiceKey) -> f64 {
        (self.bits(key) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }
}

/// One word more into the key; for a given state a bijection of the word.
fn absorb(state: u64, word: u64) -> u64 {
    mix64(state.rotate_left(23).wrapping_add(mix64(word.wrapping_add(GOLDEN))))
}

impl Choices for KeyedChoices {
    fn accept(&mut self, key: ChoiceKey, probability: f64) -> bool {
        self.uniform(key) < probability
    }

    fn draw(&mut self, key: ChoiceKey, weights: &[f64]) -> Option<usize> {
        let positive = |weight: &f64| *weight > 0.0;
        let total: f64 = weights.iter().copied().filter(positive).sum();
        if !(total > 0.0 && total < f64::INFINITY) {
            return None;
        }
        let mut left = self.uniform(key) * total;
        let mut last = None;
        for (index, weight) in weights.iter().enumerate().filter(|(_, weight)| positive(weight)) {
            if left < *weight {
                return Some(index);
            }
            left -= weight;
            last = Some(index);
        }
        // Rounding can leave a crumb behind the last weight.
        last
    }

    fn number(&self, key: ChoiceKey) -> Option<f64> {
        Some(self.uniform(key))
    }
}
