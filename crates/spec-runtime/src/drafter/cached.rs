use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{DraftCost, DraftTree, NodeId, Noise, Proposal, Token};

use super::{Class, DraftContext, Drafter, GenerationId, Member, Work};
use crate::draft_cache::{CachedDraft, DraftCache, DraftCacheStats, DraftKey};
use crate::{Event, KvUsage, RuntimeError, Stream};

/// A drafter that is not asked where its draft is in a [`DraftCache`].
///
/// Only drafts without draws are kept and found: of most probable tokens, and of samples under the noise that the target samples with.
/// Whatever such a draft proposes, what stands is what the target would have said. Where a rule draws, a draw belongs to the round that it was made
/// in: that a drafter is asked then as if there were no cache is what keeps the law. A trial is no use to anybody else, and a
/// generation without a tenant shares nothing.
///
/// A draft that was made with less room than there is now is made again.
pub struct CachedDrafter {
    drafter: Box<dyn Drafter>,
    cache: Arc<DraftCache>,
    /// Classes of the last draft of a generation that came from the cache.
    served: HashMap<GenerationId, Vec<Class>>,
    work: Work,
}

impl CachedDrafter {
    /// Puts `cache` before `drafter`. Drafters over different models have different names.
    pub fn new(drafter: Box<dyn Drafter>, cache: Arc<DraftCache>) -> Self {
        Self { drafter, cache, served: HashMap::new(), work: Work::default() }
    }
}

/// The noise of a proposal whose drafts can be kept; `None` for others.
fn noise_of(proposal: &Proposal<'_>) -> Option<Option<Noise>> {
    match proposal {
        Proposal::Argmax => Some(None),
        Proposal::Shared(shared) => Some(Some(shared.noise)),
        _ => None,
    }
}

impl Drafter for CachedDrafter {
    fn name(&self) -> &str {
        self.drafter.name()
    }

    fn cost(&self) -> DraftCost {
        self.drafter.cost()
    }

    fn has_laws(&self) -> bool {
        self.drafter.has_laws()
    }

    fn branches(&self) -> bool {
        self.drafter.branches()
    }

    fn class(&self, generation: GenerationId, node: NodeId) -> Class {
        let served = self.served.get(&generation).and_then(|classes| classes.get(node.index()));
        served.copied().unwrap_or_else(|| self.drafter.class(generation, node))
    }

    fn work(&self) -> Work {
        self.work
    }

    fn prepare(&mut self) -> Result<(), RuntimeError> {
        self.drafter.prepare()
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let DraftContext { generation, tokens: text, budget, width, .. } = context;
        self.served.remove(&generation);
        let weighed = context.worth.is_some() || context.prices.is_some();
        let kept_for = match (context.tenant, noise_of(&context.proposal), context.context) {
            (Some(tenant), Some(noise), None) => Some((tenant, noise)),
            _ => None,
        };
        // What was drafted ahead is at hand as well.
        let found = kept_for.filter(|_| !self.drafter.is_ahead(generation, text)).and_then(|(tenant, noise)| {
            self.cache.get(&DraftKey { model: self.drafter.name(), tenant, noise, width, weighed, text })
        });
        if let Some(found) = found.filter(|found| found.budget() >= budget) {
            let drafter = || self.drafter.name().to_owned();
            let served = found.tree(budget).map_err(|source| RuntimeError::Draft { drafter: drafter(), source });
            let (tree, classes) = served?;
            self.served.insert(generation, classes);
            self.work = Work::default();
            return Ok(tree);
        }
        let tree = self.drafter.draft(context)?;
        self.work = self.drafter.work();
        if let (Some((tenant, noise)), false) = (kept_for, tree.is_empty()) {
            let class = |node| self.drafter.class(generation, node);
            if let Some(draft) = CachedDraft::of(&tree, budget, class) {
                self.cache.put(&DraftKey { model: self.drafter.name(), tenant, noise, width, weighed, text }, draft);
            }
        }
        Ok(tree)
    }

    fn read(&mut self, generation: GenerationId, prompt: &[Token]) {
        self.drafter.read(generation, prompt);
    }

    fn drafts_ahead(&self) -> bool {
        self.drafter.drafts_ahead()
    }

    fn likeliest_leaf(&self, generation: GenerationId, tree: &DraftTree) -> Option<NodeId> {
        self.drafter.likeliest_leaf(generation, tree)
    }

    fn draft_ahead(
        &mut self,
        context: DraftContext<'_>,
        assumed: usize,
        under_way: &dyn Fn() -> bool,
    ) -> Result<usize, RuntimeError> {
        self.drafter.draft_ahead(context, assumed, under_way)
    }

    fn is_ahead(&self, generation: GenerationId, tokens: &[Token]) -> bool {
        self.drafter.is_ahead(generation, tokens)
    }

    fn follow(&self, event: &dyn Event) -> Result<(), RuntimeError> {
        self.drafter.follow(event)
    }

    fn precede(&self, stream: &dyn Stream) -> Result<(), RuntimeError> {
        self.drafter.precede(stream)
    }

    fn observe(&mut self, generation: GenerationId, tokens: &[Token], accepted: usize) -> Result<(), RuntimeError> {
        self.drafter.observe(generation, tokens, accepted)
    }

    fn resume(&mut self, generation: GenerationId, kept: usize) -> Result<(), RuntimeError> {
        self.served.remove(&generation);
        self.drafter.resume(generation, kept)
    }

    fn members(&self) -> Vec<Member> {
        self.drafter.members()
    }

    fn restrict(&mut self, generation: GenerationId, only: Option<&str>) {
        self.drafter.restrict(generation, only);
    }

    fn kv_usage(&self) -> Option<KvUsage> {
        self.drafter.kv_usage()
    }

    fn draft_cache(&self) -> Option<DraftCacheStats> {
        Some(self.cache.stats())
    }

    fn suspend(&mut self, generation: GenerationId) {
        self.drafter.suspend(generation);
    }

    fn forget(&mut self, generation: GenerationId) {
        self.served.remove(&generation);
        self.drafter.forget(generation);
    }
}
