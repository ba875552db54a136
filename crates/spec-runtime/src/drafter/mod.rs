//! Drafters: where guesses come from.

mod cached;
mod chooser;
mod copying;
mod edited;
mod growing;
mod lane;
mod model;
mod ngram;
mod odds;
mod reader;
mod scripted;
mod shortlist;
mod suffix;
mod weighed;

pub use cached::CachedDrafter;
pub use chooser::Chooser;
pub use model::ModelDrafter;
pub use ngram::NgramDrafter;
pub use odds::{Class, Odds};
pub use scripted::ScriptedDrafter;
pub use suffix::SuffixDrafter;

use spec_core::{Choices, DraftCost, DraftTree, NodeId, Pipeline, Prices, Proposal, Token};

use crate::{DraftCacheStats, Event, KvUsage, RuntimeError, Stream};

/// Identity of a generation, as drafters know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GenerationId(pub u64);

/// What a drafter sees of a generation when a round begins.
pub struct DraftContext<'a> {
    /// Whose round it is; a drafter's state is kept per generation.
    pub generation: GenerationId,
    /// For whom it is: what is kept of this text may be of use to generations of the same tenant, and to no others.
    pub tenant: Option<u64>,
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
    /// Tokens that the answer may still have, at most: what a long text is read for.
    pub left: usize,
    /// How many of the last tokens are worth looking at, when a drafter is only being tried; `None` is all.
    pub context: Option<usize>,
    /// Tokens of the text that may be caught up on now, at most: others wait meanwhile. Who is further behind reads so many and proposes
    /// nothing yet.
    pub catch_up: usize,
    /// Children that a node may have: 1 where the rule judges chains only.
    pub width: usize,
    /// What the policy says that drafts must be worth, to a drafter that weighs its drafts; `None`: draft the whole budget.
    pub prices: Option<&'a Prices>,
    /// The same for one of several drafters, by the one that weighs them.
    pub worth: Option<Worth<'a>>,
}

impl<'a> DraftContext<'a> {
    /// A chain of likeliest tokens below `tokens`, for nobody in particular, in an answer without an end: what is else has to be said.
    pub fn new(
        generation: GenerationId,
        tokens: &'a [Token],
        pipeline: &'a mut Pipeline,
        choices: &'a mut dyn Choices,
        budget: usize,
    ) -> Self {
        Self {
            generation,
            tenant: None,
            tokens,
            end_ids: &[],
            pipeline,
            proposal: Proposal::Argmax,
            choices,
            budget,
            left: usize::MAX,
            context: None,
            catch_up: usize::MAX,
            width: 1,
            prices: None,
            worth: None,
        }
    }

    /// The same context, for as long as somebody else drafts in it.
    pub(crate) fn lend(&mut self) -> DraftContext<'_> {
        DraftContext {
            generation: self.generation,
            tenant: self.tenant,
            tokens: self.tokens,
            end_ids: self.end_ids,
            pipeline: &mut *self.pipeline,
            proposal: self.proposal,
            choices: &mut *self.choices,
            budget: self.budget,
            left: self.left,
            context: self.context,
            catch_up: self.catch_up,
            width: self.width,
            prices: self.prices,
            worth: self.worth,
        }
    }
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
    /// Nodes of the draft that were drafted ahead.
    pub ahead: usize,
}

impl Work {
    /// Takes in what another draft of the same round took.
    pub(crate) fn add(&mut self, other: Self) {
        self.passes += other.passes;
        self.caught_up += other.caught_up;
        self.ahead += other.ahead;
    }

    /// The same in passes of a model.
    pub(crate) fn in_passes(&self) -> f64 {
        self.passes as f64 + self.caught_up as f64 * Prices::CATCH_UP
    }
}

/// What one of several generations got.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Drafted {
    /// What is proposed.
    pub tree: DraftTree,
    /// What that took. Generations that shared a pass have each had it.
    pub work: Work,
}

/// The draft for one generation of a drafter that makes them for several.
fn draft_one(drafter: &mut impl Drafter, context: DraftContext<'_>) -> Result<Drafted, RuntimeError> {
    drafter.draft_all(&mut [context]).pop().unwrap_or_else(|| Ok(Drafted::default()))
}

/// Which share of a time that several drafts took each of them is charged for: by its passes, where there were any.
pub(crate) fn shares(works: &[Work]) -> Vec<f64> {
    let total: f64 = works.iter().map(Work::in_passes).sum();
    let share = |work: &Work| if total > 0.0 { work.in_passes() / total } else { 1.0 / works.len() as f64 };
    works.iter().map(share).collect()
}

/// One of the drafters that a drafter is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// [`Drafter::has_laws`].
    pub has_laws: bool,
    /// [`Drafter::branches`].
    pub branches: bool,
}

impl Member {
    /// The first word of its name: `model` of `model qwen2.5`.
    pub fn kind(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// Whether `name` means it: its name or its kind.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.kind() == name
    }
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

    /// The drafters that it is made of, which a request can choose among: itself, for most.
    fn members(&self) -> Vec<Member> {
        vec![Member { name: self.name().to_owned(), has_laws: self.has_laws(), branches: self.branches() }]
    }

    /// Lets only the members that a name means draft for a generation ([`Member::is`]); `None` lets all.
    fn restrict(&mut self, generation: GenerationId, only: Option<&str>) {
        let _ = (generation, only);
    }

    /// What the KV cache of its model is used for, if it has one.
    fn kv_usage(&self) -> Option<KvUsage> {
        None
    }

    /// How the cache of its drafts has fared, if it has one.
    fn draft_cache(&self) -> Option<DraftCacheStats> {
        None
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
    #[doc(alias = "draft_forward")]
    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError>;

    /// Proposes a tree for each of several generations, which are different ones: a draft model reads them in the same passes, and who
    /// weighs drafts weighs those of all against each other. By default one after the other.
    fn draft_all(&mut self, contexts: &mut [DraftContext<'_>]) -> Vec<Result<Drafted, RuntimeError>> {
        let mut one = |context: &mut DraftContext<'_>| {
            let tree = self.draft(context.lend())?;
            Ok(Drafted { tree, work: self.work() })
        };
        contexts.iter_mut().map(&mut one).collect()
    }

    /// Tokens of the text that it has to read before it drafts; 0 where that takes no passes.
    fn unread(&self, generation: GenerationId, tokens: &[Token]) -> usize {
        let _ = (generation, tokens);
        0
    }

    /// Reads a prompt while the target does. For look-ups, which index it; asked only where the target's pass goes on by itself.
    fn read(&mut self, generation: GenerationId, prompt: &[Token]) {
        let _ = (generation, prompt);
    }

    /// Whether it can [`draft_ahead`](Self::draft_ahead).
    fn drafts_ahead(&self) -> bool {
        false
    }

    /// The leaf of its last draft at which the accepted path most likely ends if it ends at one.
    fn likeliest_leaf(&self, generation: GenerationId, tree: &DraftTree) -> Option<NodeId> {
        let _ = generation;
        let deeper = |deepest, id| if tree.depth(id) > tree.depth(deepest) { id } else { deepest };
        tree.nodes().map(|(id, _)| id).reduce(deeper)
    }

    /// Drafts for the round to come while the target verifies the present one, whose draft came from this drafter or another.
    ///
    /// `context.tokens` is the text as it will be if that draft stands up to a leaf: the last `assumed` tokens are not committed. The token that the target adds behind them is not known; the drafter guesses it, and drafts `context.budget` nodes behind
    /// its guess, looking before each pass whether the target's is still `under_way`. The next [`draft`](Self::draft) begins with
    /// those nodes if the text has become what was assumed, and forgets them otherwise. Gives the number of nodes.
    ///
    /// Never asked where tokens are drawn, nor for a trial.
    ///
    /// # Errors
    /// When the drafter's own device fails. The generation goes on: the next [`draft`](Self::draft) starts afresh.
    fn draft_ahead(
        &mut self,
        context: DraftContext<'_>,
        assumed: usize,
        under_way: &dyn Fn() -> bool,
    ) -> Result<usize, RuntimeError> {
        let _ = (context, assumed, under_way);
        Ok(0)
    }

    /// Whether something was drafted ahead behind just this text.
    fn is_ahead(&self, generation: GenerationId, tokens: &[Token]) -> bool {
        let _ = (generation, tokens);
        false
    }

    /// Lets passes that it submits from now on begin after `event`, a point in the target's work.
    ///
    /// # Errors
    /// What its device reports.
    fn follow(&self, event: &dyn Event) -> Result<(), RuntimeError> {
        let _ = event;
        Ok(())
    }

    /// Lets later work of `stream`, which is the target's, begin after all that it has submitted and settled so far.
    ///
    /// # Errors
    /// What the devices report.
    fn precede(&self, stream: &dyn Stream) -> Result<(), RuntimeError> {
        let _ = stream;
        Ok(())
    }

    /// Tells how the round of the last [`draft`](Self::draft) ended: `tokens` is the committed text now, and
    /// the first `accepted` nodes of the accepted path are part of it.
    ///
    /// # Errors
    /// When the drafter's own device fails.
    fn observe(&mut self, generation: GenerationId, tokens: &[Token], accepted: usize) -> Result<(), RuntimeError>;

    /// Prepares for a text that begins as the generation's did and goes on otherwise: the first `kept` tokens stand.
    /// Comes between two generations of a [`Session`](crate::Session), which share an identity.
    ///
    /// # Errors
    /// When the drafter's own device fails.
    fn resume(&mut self, generation: GenerationId, kept: usize) -> Result<(), RuntimeError> {
        let _ = kept;
        self.forget(generation);
        Ok(())
    }

    /// Frees what can be computed anew of a generation that waits, such as the cache of a draft model.
    fn suspend(&mut self, generation: GenerationId) {
        let _ = generation;
    }

    /// Frees what is kept for a generation.
    fn forget(&mut self, generation: GenerationId);
}
