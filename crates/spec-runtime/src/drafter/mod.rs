//! Drafters: where guesses come from.

mod chooser;
mod copying;
mod model;
mod ngram;
mod odds;
mod reader;
mod scripted;
mod shortlist;
mod suffix;

pub use chooser::Chooser;
pub use model::ModelDrafter;
pub use ngram::NgramDrafter;
pub use odds::{Class, Odds};
pub use scripted::ScriptedDrafter;
pub use suffix::SuffixDrafter;

use spec_core::{Choices, DraftCost, DraftTree, NodeId, Pipeline, Prices, Proposal, Token};

use crate::RuntimeError;

/// Identity of a generation, as drafters know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GenerationId(pub u64);

/// What a drafter sees of a generation when a round begins.
pub struct DraftContext<'a> {
    /// Whose round it is; a drafter's state is kept per generation.
    pub generation: GenerationId,
    /// The committed text: prompt and emitted tokens.
    pub tokens: &'a [Token],
    /// Ids behind which nothing is worth drafting.
    pub end_ids: &'a [Token],
    /// Sampling state of the committed text; a drafter that advances it restores it before it returns.
    pub pipeline: &'a mut Pipeline,
    /// How a token is drawn from the drafter's processed law.
    pub proposal: Proposal<'a>,
    /// The round's randomness, for proposals that are drawn.
    pub choices: &'a mut dyn Choices,
    /// Nodes that the tree may have. Known before anything is drawn, for a drawn node must not be dropped.
    pub budget: usize,
    /// How many of the last tokens are worth looking at, when a drafter is only being tried; `None` is all.
    pub context: Option<usize>,
    /// Children that a node may have: 1 where the rule judges chains only.
    pub width: usize,
    /// What the policy says that drafts must be worth, to a drafter that weighs its drafts; `None`: draft the whole budget.
    pub prices: Option<&'a Prices>,
    /// The same for one of several drafters, by the one that weighs them.
    pub worth: Option<Worth<'a>>,
}

/// What a draft pass of a drafter must be worth.
#[derive(Clone, Copy, Debug)]
pub struct Worth<'a> {
    /// How the drafter's tokens have fared.
    pub odds: &'a Odds,
    /// Tokens that the round is expected to emit without this drafter, and the seconds that it takes.
    pub tokens: f64,
    /// See `tokens`.
    pub seconds: f64,
    /// Seconds of a pass of the drafter.
    pub pass: f64,
    /// Seconds that a row adds to the target's pass.
    pub row: f64,
}

/// What the last draft took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Passes of a model.
    pub passes: usize,
    /// Tokens that it caught up on beside.
    pub caught_up: usize,
}

/// A source of guesses. Whatever it proposes, the output stays the same; only time changes.
pub trait Drafter: Send {
    /// Name shown to people.
    fn name(&self) -> &str;

    /// What drafting costs.
    fn cost(&self) -> DraftCost {
        DraftCost::Model
    }

    /// Whether tokens are taken from a law by [`DraftContext::proposal`], which leaves the drafter's probabilities with them.
    /// Look-ups propose without a law.
    fn has_laws(&self) -> bool {
        false
    }

    /// Whether its trees may branch. Rules that judge chains only refuse such a drafter before it drafts.
    fn branches(&self) -> bool {
        false
    }

    /// What is to be expected of a node of the last [`draft`](Self::draft): nodes of one class fare alike.
    fn class(&self, generation: GenerationId, node: NodeId) -> Class {
        let _ = (generation, node);
        Class { index: 0, prior: 0.5 }
    }

    /// What the last [`draft`](Self::draft) took.
    fn work(&self) -> Work {
        Work::default()
    }

    /// Does what was put off until drafts are wanted, such as loading a model: asked before the engine's first draft, and not
    /// counted as drafting.
    ///
    /// # Errors
    /// When the drafter's own device fails.
    fn prepare(&mut self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Proposes a tree of at most `context.budget` nodes below the committed text; an empty tree is a legal answer.
    ///
    /// # Errors
    /// When the drafter's own device fails.
    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError>;

    /// Tells how the round of the last [`draft`](Self::draft) ended: `tokens` is the committed text now, and
    /// the first `accepted` nodes of the accepted path are part of it.
    ///
    /// # Errors
    /// When the drafter's own device fails.
    fn observe(&mut self, generation: GenerationId, tokens: &[Token], accepted: usize) -> Result<(), RuntimeError>;

    /// Frees what is kept for a generation.
    fn forget(&mut self, generation: GenerationId);
}
