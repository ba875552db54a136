use std::collections::VecDeque;

use spec_core::{DraftCost, DraftTree, Origin, Token};

use super::{DraftContext, Drafter, GenerationId};
use crate::RuntimeError;

/// Proposes given trees, one a round, then nothing: any layout of accepted, refused and end tokens
/// can be forced. For one generation at a time.
#[derive(Debug, Default)]
pub struct ScriptedDrafter {
    rounds: VecDeque<DraftTree>,
}

impl ScriptedDrafter {
    /// A script of chains.
    pub fn chains<'a>(rounds: impl IntoIterator<Item = &'a [Token]>) -> Self {
        Self { rounds: rounds.into_iter().map(|tokens| DraftTree::chain(tokens, Origin::Fixed)).collect() }
    }

    /// A script of trees.
    pub fn trees(rounds: impl IntoIterator<Item = DraftTree>) -> Self {
        Self { rounds: rounds.into_iter().collect() }
    }
}

impl Drafter for ScriptedDrafter {
    fn name(&self) -> &str {
        "scripted"
    }

    fn cost(&self) -> DraftCost {
        DraftCost::Free
    }

    fn branches(&self) -> bool {
        self.rounds.iter().any(|tree| !tree.is_chain())
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let mut tree = self.rounds.pop_front().unwrap_or_default();
        tree.truncate(context.budget)
            .map_err(|source| RuntimeError::Draft { drafter: self.name().to_owned(), source })?;
        Ok(tree)
    }

    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn forget(&mut self, _: GenerationId) {}
}
