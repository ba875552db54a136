use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{DraftCost, DraftTree, NodeId, Noise, Proposal, Token};

use super::{Class, DraftContext, Drafted, Drafter, GenerationId, Member, Work, draft_one};
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

impl CachedDrafter {
    /// The draft of the cache, if there is one that is long enough.
    fn serve(&mut self, context: &DraftContext<'_>) -> Option<Result<DraftTree, RuntimeError>> {
        let DraftContext { generation, tokens, budget, .. } = *context;
        self.served.remove(&generation);
        // What was drafted ahead is at hand as well.
        if self.drafter.is_ahead(generation, tokens) {
            return None;
        }
        let found = self.cache.get(&key(self.drafter.name(), context)?).filter(|found| found.budget() >= budget)?;
        let drafter = || self.drafter.name().to_owned();
        let served = found.tree(budget).map_err(|source| RuntimeError::Draft { drafter: drafter(), source });
        Some(served.map(|(tree, classes)| {
            self.served.insert(generation, classes);
            tree
        }))
    }

    /// Keeps a draft for texts to come.
    fn keep(&self, context: &DraftContext<'_>, tree: &DraftTree) {
        let Some(key) = key(self.drafter.name(), context).filter(|_| !tree.is_empty()) else { return };
        let class = |node| self.drafter.class(context.generation, node);
        if let Some(draft) = CachedDraft::of(tree, context.budget, class) {
            self.cache.put(&key, draft);
        }
    }
}

/// What a draft is found by; `None` where none is kept.
fn key<'a>(model: &'a str, context: &'a DraftContext<'_>) -> Option<DraftKey<'a>> {
    let (tenant, noise, None) = (context.tenant?, noise_of(&context.proposal)?, context.context) else { return None };
    let weighed = context.worth.is_some() || context.prices.is_some();
    Some(DraftKey { model, tenant, noise, width: context.width, weighed, text: context.tokens })
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
        let Drafted { tree, work } = draft_one(self, context)?;
        self.work = work;
        Ok(tree)
    }

    fn draft_all(&mut self, contexts: &mut [DraftContext<'_>]) -> Vec<Result<Drafted, RuntimeError>> {
        let served: Vec<_> = contexts.iter().map(|context| self.serve(context)).collect();
        let unserved = contexts.iter_mut().zip(&served).filter(|(_, served)| served.is_none());
        let mut asking: Vec<DraftContext<'_>> = unserved.map(|(context, _)| context.lend()).collect();
        let mut made = if asking.is_empty() { Vec::new() } else { self.drafter.draft_all(&mut asking) }.into_iter();
        drop(asking);
        let drafted = served.into_iter().zip(contexts).map(|(served, context)| match served {
            Some(served) => served.map(|tree| Drafted { tree, work: Work::default() }),
            None => {
                let drafted = made.next().unwrap_or_else(|| Ok(Drafted::default()))?;
                self.keep(context, &drafted.tree);
                Ok(drafted)
            }
        });
        drafted.collect()
    }

    fn unread(&self, generation: GenerationId, tokens: &[Token]) -> usize {
        self.drafter.unread(generation, tokens)
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
