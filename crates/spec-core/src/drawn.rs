//! The law that draft tokens were drawn from, kept until they are judged.

use alloc::vec::Vec;

use crate::{Law, NodeId, SmallTokens, Token};

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

/// A law as it was when a token was drawn from it: the very numbers that were drawn by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DrawnLaw {
    /// Ascending; `None`: every id in turn.
    pub(crate) ids: Option<Vec<Token>>,
    /// In the order of `ids`; they add up to 1.
    pub(crate) probabilities: Vec<f64>,
}

impl DrawnLaw {
    pub(crate) fn of(law: &Law<'_>) -> Self {
        let probabilities = law.support_probabilities();
        let Some(ids) = law.support() else { return Self { ids: None, probabilities } };
        let mut pairs: Vec<(Token, f64)> = ids.iter().copied().zip(probabilities).collect();
        pairs.sort_unstable_by_key(|&(token, _)| token);
        let (ids, probabilities) = pairs.into_iter().unzip();
        Self { ids: Some(ids), probabilities }
    }

    #[cfg(test)]
    pub(crate) fn before_filters(law: &Law<'_>) -> Self {
        Self { ids: None, probabilities: crate::proof::softmax(law.unfiltered) }
    }

    pub(crate) fn token(&self, index: usize) -> Token {
        self.ids.as_ref().map_or(index as Token, |ids| ids[index])
    }

    pub(crate) fn index(&self, token: Token) -> Option<usize> {
        match &self.ids {
            None => ((token as usize) < self.probabilities.len()).then_some(token as usize),
            Some(ids) => ids.binary_search(&token).ok(),
        }
    }

    pub(crate) fn probability(&self, token: Token) -> f64 {
        self.index(token).map_or(0.0, |index| self.probabilities[index])
    }

    /// Probability of all tokens but `excluded`, added up rather than taken from 1, where it would cancel.
    pub(crate) fn mass_without(&self, excluded: &[Token]) -> f64 {
        if excluded.is_empty() {
            return 1.0;
        }
        let kept = |&(index, _): &(usize, &f64)| !excluded.contains(&self.token(index));
        self.probabilities.iter().enumerate().filter(kept).map(|(_, probability)| probability).sum()
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
    Drawn {
        law: &'a DrawnLaw,
        excluded: SmallTokens,
        mass: f64,
    },
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
