//! One round: draft, verify, emit, roll back.

use std::time::Duration;

use spec_core::{DraftTree, Origin, Round, TreeError};

use super::generation::{Judged, LogitsOf};
use super::{Engine, Generation};
use crate::{Batch, DraftContext, Emitted, KvGuard, Row, RuntimeError, Want};

/// What a round proposes.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) tree: DraftTree,
    /// Whether a constraint left no choice, rather than a drafter guessing.
    forced: bool,
    /// Nodes that the drafter could propose.
    pub(super) budget: usize,
    /// Nodes that were drafted during the round before.
    ahead: usize,
    /// What preparing the drafter took.
    preparation: Duration,
}

impl Engine {
    pub(super) fn round(
        &mut self,
        generation: &mut Generation,
        sink: &mut dyn FnMut(&Emitted),
    ) -> Result<(), RuntimeError> {
        let begun = self.clock.now();
        self.put_drafter_behind_target()?;
        let draft = self.draft(generation)?;
        let begun = begun + draft.preparation;
        let tree = &draft.tree;
        let drafted = self.clock.now();

        let root = generation.tokens.len() - 1;
        let guard = KvGuard::reserve(&generation.sequence, 1 + tree.len())?;
        let batch = verification_batch(generation, tree);
        self.put_target_behind_drafter()?;
        let pass = self.target.submit(&*self.stream, &batch)?;
        let drafted_before = std::mem::take(&mut generation.drafted_ahead);
        let overlap = self.draft_ahead(generation, &draft)?;
        let rows = pass.wait()?;
        let verified = self.clock.now();

        let rows = LogitsOf { rows, first: 0 };
        let verdicts = generation.verdicts.then(|| self.text.vocab());
        let Judged { path, emitted, accepted } =
            generation.judge(&*self.text, tree, &rows.collect(1 + tree.len(), verdicts)?, sink)?;
        let sampled = self.clock.now();

        // The last emitted token has no KV entry yet: the root row and those of the accepted nodes before it are kept.
        guard.commit(&path[..emitted])?;
        debug_assert_eq!(generation.sequence.kv_len().ok(), Some(root + emitted), "KV length is committed - 1");
        if let Some(drafter) = &mut self.drafter
            && !generation.finished
        {
            drafter.observe(generation.id, &generation.tokens, if draft.forced { 0 } else { accepted })?;
        }
        let ahead = overlap.unwrap_or_default();
        let verify = verified.saturating_sub(drafted + ahead.late);
        // What a constraint forces says nothing about the drafter.
        if !draft.forced {
            generation.request.draft_len.observe(&Round {
                drafted: tree.len(),
                accepted,
                emitted,
                draft: drafted - begun,
                ahead: overlap.map(|_| if draft.ahead > 0 { drafted_before } else { Duration::ZERO }),
                verify,
            });
        }
        generation.drafted_ahead = ahead.time;
        let speculation = &mut generation.completion.speculation;
        speculation.forced += if draft.forced { tree.len() } else { 0 };
        speculation.record(&nodes_by_depth(tree), accepted, emitted);
        speculation.ahead.drafted += ahead.nodes;
        speculation.ahead.used += draft.ahead;
        let timings = &mut generation.completion.timings;
        timings.preparation += draft.preparation;
        timings.draft += drafted - begun + ahead.late;
        timings.ahead += ahead.time.saturating_sub(ahead.late);
        timings.verify += verify;
        timings.sample += sampled - verified;
        timings.rollback += self.clock.now() - sampled;
        if let Some(first) = generation.first_token {
            timings.decode = sampled - first - timings.preparation;
        }
        Ok(())
    }

    /// Drafts within what may still be emitted and what the context still holds.
    fn draft(&mut self, generation: &mut Generation) -> Result<Draft, RuntimeError> {
        let most = self.most_drafted(generation.tokens.len(), generation.emission.remaining());
        let Some(drafter) = &mut self.drafter else { return Ok(Draft::default()) };
        if let Some(constraint) = &mut generation.request.constraint {
            let forced = constraint.forced(most, self.text.vocab(), generation.emission.end_ids())?;
            if !forced.is_empty() {
                let tree = DraftTree::chain(&forced, Origin::Fixed);
                return Ok(Draft { tree, forced: true, ..Draft::default() });
            }
        }
        let budget = generation.request.draft_len.next().min(most);
        if budget == 0 {
            return Ok(Draft::default());
        }
        let mut preparation = Duration::ZERO;
        if !self.is_prepared {
            let begun = self.clock.now();
            drafter.prepare()?;
            preparation = self.clock.now() - begun;
            self.is_prepared = true;
        }
        let mut choices = generation.choices();
        let mut tree = drafter.draft(DraftContext {
            generation: generation.id,
            tenant: generation.request.tenant,
            tokens: &generation.tokens,
            end_ids: generation.emission.end_ids(),
            pipeline: &mut generation.pipeline,
            proposal: generation.rule.proposal(),
            choices: &mut choices,
            budget,
            context: generation.request.draft_len.context(),
            width: if generation.rule.chains_only() { 1 } else { generation.request.draft_width.max(1) },
            prices: generation.request.draft_len.prices(),
            worth: None,
        })?;
        debug_assert_eq!(generation.pipeline.len(), generation.tokens.len(), "the drafter restores the history");
        let ahead = drafter.work().ahead;
        let drafter = |source: TreeError| RuntimeError::Draft { drafter: drafter.name().to_owned(), source };
        // Given nodes can go. A drawn one cannot, and is an error: dropping it would bias the output.
        tree.truncate(budget).map_err(&drafter)?;
        // A token that the target does not have cannot be scored; what was drafted before it can.
        let vocab = self.text.vocab();
        let known = tree.nodes().take_while(|(_, node)| (node.token as usize) < vocab).count();
        tree.truncate(known).map_err(&drafter)?;
        let ahead = ahead.min(tree.len());
        Ok(Draft { tree, forced: false, budget, ahead, preparation })
    }

    /// Nodes that a draft behind `length` tokens may have when `remaining` tokens may still be emitted.
    pub(super) fn most_drafted(&self, length: usize, remaining: usize) -> usize {
        let config = self.target.config();
        let room = config.context.saturating_sub(length);
        room.min(config.max_rows - 1).min(remaining.saturating_sub(1))
    }
}

/// The last committed token and the tree below it.
fn verification_batch(generation: &Generation, tree: &DraftTree) -> Batch {
    let seq = generation.sequence.id();
    let root = generation.tokens.len() - 1;
    let want = if generation.verdicts { Want::Verdict } else { Want::Logits };
    let first = Row { seq, token: generation.tokens[root], position: root, parent: None, want };
    let nodes = tree.nodes().map(|(id, node)| Row {
        seq,
        token: node.token,
        position: root + tree.depth(id),
        parent: Some(node.parent.map_or(0, |parent| parent.index() as u32 + 1)),
        want,
    });
    Batch { rows: std::iter::once(first).chain(nodes).collect() }
}

fn nodes_by_depth(tree: &DraftTree) -> Vec<usize> {
    let mut counts = vec![0; tree.height()];
    for (id, _) in tree.nodes() {
        counts[tree.depth(id) - 1] += 1;
    }
    counts
}
