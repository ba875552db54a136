//! The next block is drafted while the target verifies the present one.
//!
//! The draft assumes that the present block stands up to its end, and guesses the token that the target adds. If the text then is what
//! was assumed, the next round begins with its draft at hand; otherwise the draft is forgotten. Rounds judge what they would judge anyway,
//! so nothing changes but time. PEARL (arXiv 2408.11850) calls this post-verify.
//!
//! Two rules make that true of every lossless rule. Tokens that are drawn are not drafted ahead: their draws are keyed by the round that
//! submits them. And drafting ahead that fails does not end the generation: it may have failed on a text that never comes to be. The next
//! round drafts as if nothing had been, and reports what fails then.

use std::cell::Cell;
use std::time::Duration;

use spec_core::{NodeId, Token};

use super::drafting::Draft;
use super::{Engine, Generation};
use crate::{CancelToken, Clock, DraftContext, Event, RuntimeError};

/// What was drafted while the target verified.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead {
    pub(super) nodes: usize,
    pub(super) time: Duration,
    /// The part of that time for which the target's pass was over already, at most.
    pub(super) late: Duration,
}

/// Watches the pass that is drafted behind.
struct Watch<'a> {
    done: Box<dyn Event>,
    clock: &'a dyn Clock,
    cancel: CancelToken,
    /// When the pass was last seen to be under way.
    seen: Cell<Duration>,
}

impl Watch<'_> {
    fn is_under_way(&self) -> bool {
        let now = self.clock.now();
        // A failure is the pass's to report.
        let under_way = matches!(self.done.is_done(), Ok(false));
        if under_way {
            self.seen.set(now);
        }
        under_way && !self.cancel.is_cancelled()
    }
}

impl Engine {
    /// Lets look-ups index the prompt while the target reads it.
    pub(super) fn read_prompt(&mut self, generation: &Generation) -> Result<(), RuntimeError> {
        if let Some(drafter) = &mut self.drafter
            && matches!(self.stream.record()?.is_done(), Ok(false))
        {
            drafter.read(generation.id, &generation.tokens);
        }
        Ok(())
    }

    /// Drafts behind `draft`, which the target is verifying, for as long as it does. `None` where that cannot be.
    pub(super) fn draft_ahead(
        &mut self,
        generation: &mut Generation,
        draft: &Draft,
    ) -> Result<Option<Ahead>, RuntimeError> {
        let Some(drafter) = self.drafter.as_ref().filter(|drafter| drafter.drafts_ahead()) else { return Ok(None) };
        if generation.rule.proposal().draws() {
            return Ok(None);
        }
        let begun = self.clock.now();
        let watch = Watch {
            done: self.stream.record()?,
            clock: &*self.clock,
            cancel: generation.request.cancel.clone(),
            seen: Cell::new(begun),
        };
        if !watch.is_under_way() {
            return Ok(None);
        }
        let path: Vec<Token> = drafter.likeliest_leaf(generation.id, &draft.tree).map_or_else(Vec::new, |leaf| {
            draft.tree.path(leaf).iter().map(|&node: &NodeId| draft.tree.node(node).token).collect()
        });
        let remaining = generation.emission.remaining().saturating_sub(path.len() + 1);
        let budget = draft.budget.min(self.most_drafted(generation.tokens.len() + path.len() + 1, remaining));
        let end_ids = generation.emission.end_ids();
        // A drafter on trial has not earned it.
        let on_trial = generation.request.draft_len.context().is_some();
        if path.is_empty() || budget == 0 || on_trial || path.iter().any(|token| end_ids.contains(token)) {
            return Ok(Some(Ahead::default()));
        }

        let Some(drafter) = &mut self.drafter else { return Ok(None) };
        let committed = generation.tokens.len();
        let mut choices = generation.choices();
        generation.tokens.extend(&path);
        path.iter().for_each(|&token| generation.pipeline.push(token));
        let drafted = drafter.draft_ahead(
            DraftContext { context: None, ..generation.draft_context(budget, &mut choices) },
            path.len(),
            &|| watch.is_under_way(),
        );
        generation.tokens.truncate(committed);
        generation.pipeline.truncate(committed);

        let over = self.clock.now();
        let late = if matches!(watch.done.is_done(), Ok(false)) { Duration::ZERO } else { over - watch.seen.get() };
        Ok(Some(Ahead { nodes: drafted.unwrap_or(0), time: over - begun, late }))
    }
}
