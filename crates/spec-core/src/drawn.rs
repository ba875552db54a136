//! Laws that tokens are drawn from, and the draft's, kept until it is judged.

use alloc::vec::Vec;

use crate::math::exp_negative;
use crate::summary::{BLOCK, BlockSummary, RowSummary};
use crate::{ChoiceKey, Choices, Law, NodeId, RowKernels, SmallTokens, Token};

/// How several children of one node are drawn from one law.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Siblings {
    /// Without replacement: each from the law without the siblings before it (Sequoia, arXiv 2402.12374). No token is
    /// proposed twice, so none is refused twice.
    #[default]
    Distinct,
    /// Independently, from the law itself (SpecInfer, arXiv 2305.09781). Equal draws share a node and are judged one by one.
    Independent,
}

/// The weights of a list of logits, by blocks. A token is drawn by its block first, so that a draw forms the exponentials of
/// one block and not of the vocabulary a second time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Blocks {
    blocks: Vec<BlockSummary>,
    max: f32,
    inverse_temperature: f64,
    /// Weight of all, relative to the maximum.
    pub(crate) total: f64,
}

impl Blocks {
    pub(crate) fn of(kernels: &dyn RowKernels, logits: &[f32], inverse_temperature: f64) -> Self {
        let block = |logits: &[f32]| BlockSummary::of(kernels, logits, inverse_temperature);
        let blocks: Vec<BlockSummary> = logits.chunks(BLOCK).map(block).collect();
        let RowSummary { max, total, .. } = RowSummary::combine(blocks.iter().copied(), 0, inverse_temperature);
        Self { blocks, max, inverse_temperature, total }
    }

    fn weight(&self, logit: f32, max: f32) -> f64 {
        exp_negative((f64::from(logit) - f64::from(max)) * self.inverse_temperature)
    }

    /// Weights of the blocks relative to the maximum, without some entries of the list.
    fn weights<'a>(&'a self, logits: &'a [f32], excluded: &'a [usize]) -> impl Iterator<Item = f64> + 'a {
        self.blocks.iter().enumerate().map(move |(index, block)| {
            let kept = if excluded.iter().any(|entry| entry / BLOCK == index) {
                // Added up anew, for a difference would cancel.
                self.entries(logits, excluded, index).sum()
            } else {
                block.total
            };
            if kept > 0.0 { kept * self.weight(block.max, self.max) } else { 0.0 }
        })
    }

    /// Weights of a block's entries relative to its own maximum.
    fn entries<'a>(&'a self, logits: &'a [f32], excluded: &'a [usize], block: usize) -> impl Iterator<Item = f64> + 'a {
        let start = block * BLOCK;
        let max = self.blocks[block].max;
        let entries = logits[start..].iter().take(BLOCK).zip(start..);
        entries.map(
            move |(&logit, entry)| {
                if logit > f32::NEG_INFINITY && !excluded.contains(&entry) { self.weight(logit, max) } else { 0.0 }
            },
        )
    }

    /// Draws an entry of the list, by one choice among blocks and one within. The key's number counts draws, not choices.
    pub(crate) fn draw(
        &self,
        logits: &[f32],
        excluded: &[usize],
        key: ChoiceKey,
        choices: &mut dyn Choices,
    ) -> Option<usize> {
        let mut block = 0;
        if self.blocks.len() > 1 {
            let weights: Vec<f64> = self.weights(logits, excluded).collect();
            block = choices.draw(ChoiceKey { draw: 2 * key.draw, ..key }, &weights)?;
        }
        let weights: Vec<f64> = self.entries(logits, excluded, block).collect();
        let within = choices.draw(ChoiceKey { draw: 2 * key.draw + 1, ..key }, &weights)?;
        Some(block * BLOCK + within)
    }
}

/// A law as it was when a token was drawn from it: the very logits that were drawn by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DrawnLaw {
    /// Ascending; `None`: every id in turn.
    pub(crate) ids: Option<Vec<Token>>,
    logits: Vec<f32>,
    blocks: Blocks,
    total: f64,
}

impl DrawnLaw {
    pub(crate) fn of(law: &Law<'_>) -> Self {
        if law.is_one_hot() {
            let blocks = Blocks::of(law.kernels(), &[0.0], 1.0);
            return Self { ids: Some([law.argmax()].into()), logits: [0.0].into(), blocks, total: 1.0 };
        }
        let Some(ids) = law.kept() else {
            let logits = law.logits().to_vec();
            let blocks = Blocks::of(law.kernels(), &logits, law.scale());
            return Self { ids: None, logits, total: blocks.total, blocks };
        };
        let mut pairs: Vec<(Token, f32)> = ids.iter().copied().zip(law.logits().iter().copied()).collect();
        pairs.sort_unstable_by_key(|&(token, _)| token);
        let (ids, logits): (Vec<Token>, Vec<f32>) = pairs.into_iter().unzip();
        let blocks = Blocks::of(law.kernels(), &logits, law.scale());
        // As the law has it: another order of adding would differ in the last bit.
        Self { ids: Some(ids), logits, blocks, total: law.total() }
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn before_filters(law: &Law<'_>) -> Self {
        let logits = law.unfiltered.to_vec();
        let blocks = Blocks::of(law.kernels(), &logits, law.scale());
        Self { ids: None, logits, total: blocks.total, blocks }
    }

    pub(crate) fn index(&self, token: Token) -> Option<usize> {
        match &self.ids {
            None => ((token as usize) < self.logits.len()).then_some(token as usize),
            Some(ids) => ids.binary_search(&token).ok(),
        }
    }

    pub(crate) fn probability(&self, token: Token) -> f64 {
        self.index(token).map_or(0.0, |index| self.entry_probability(self.logits[index]))
    }

    fn entry_probability(&self, logit: f32) -> f64 {
        self.blocks.weight(logit, self.blocks.max) / self.total
    }

    /// The probabilities of all entries, in the order of `ids`.
    pub(crate) fn probabilities(&self, kernels: &dyn RowKernels) -> Vec<f64> {
        let mut probabilities = alloc::vec![0.0; self.logits.len()];
        let Blocks { max, inverse_temperature, .. } = self.blocks;
        kernels.exp_each(&self.logits, max, inverse_temperature, self.total, &mut probabilities);
        probabilities
    }

    /// Draws a token that is not among the entries `excluded`; gives it with its entry.
    pub(crate) fn draw(&self, excluded: &[usize], key: ChoiceKey, choices: &mut dyn Choices) -> Option<(usize, Token)> {
        let entry = self.blocks.draw(&self.logits, excluded, key, choices)?;
        Some((entry, self.ids.as_ref().map_or(entry as Token, |ids| ids[entry])))
    }

    /// Probability of all tokens but `excluded`.
    pub(crate) fn mass_without(&self, excluded: &[Token]) -> f64 {
        if excluded.is_empty() {
            return 1.0;
        }
        let entries: Vec<usize> = excluded.iter().filter_map(|&token| self.index(token)).collect();
        self.blocks.weights(&self.logits, &entries).sum::<f64>() / self.total
    }
}

/// All draws below one parent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draws {
    pub(crate) parent: Option<NodeId>,
    pub(crate) siblings: Siblings,
    pub(crate) law: DrawnLaw,
    /// What each draw came to; a node twice where independent draws were equal.
    pub(crate) nodes: smallvec::SmallVec<[NodeId; 4]>,
}

/// The law that a candidate was proposed from, as a rule judges it.
#[derive(Clone, Debug)]
pub(crate) enum Proposed<'a> {
    /// Not drawn: all probability on the token.
    OneHot(Token),
    /// Drawn from `law` without the `excluded` tokens, which leave `mass` of it.
    Drawn { law: &'a DrawnLaw, excluded: SmallTokens, mass: f64 },
}

impl Proposed<'_> {
    pub(crate) fn probability(&self, token: Token) -> f64 {
        match self {
            Self::OneHot(own) => f64::from(u8::from(*own == token)),
            Self::Drawn { excluded, .. } if excluded.contains(&token) => 0.0,
            Self::Drawn { law, mass, .. } => law.probability(token) / mass,
        }
    }
}
