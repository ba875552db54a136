use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{DraftTree, Pipeline, Scratch, Token};

use super::{DraftContext, Drafter, GenerationId};
use crate::{Batch, HostStream, KvGuard, Model, Rows, RuntimeError, Sequence, Stream, Want};

/// Drafts with a model of its own: a smaller one of the same vocabulary, or the target's file opened again.
///
/// Its KV cache holds entries of the committed prefix only. Tokens it has not seen, because they were the
/// target's corrections or because rounds went by without drafting, are caught up before it proposes.
pub struct ModelDrafter {
    model: Arc<dyn Model>,
    stream: Box<dyn Stream>,
    name: String,
    states: HashMap<GenerationId, State>,
    scratch: Scratch,
}

struct State {
    sequence: Sequence,
    /// Rows of the block under verification, and how many of them were submitted.
    block: Option<(KvGuard, usize)>,
}

impl ModelDrafter {
    /// A drafter over `model`, whose vocabulary the caller has compared with the target's
    /// ([`check_vocabularies`](crate::check_vocabularies)).
    pub fn new(model: Arc<dyn Model>) -> Self {
        let name = format!("model {}", model.config().name);
        Self { model, stream: Box::new(HostStream), name, states: HashMap::new(), scratch: Scratch::default() }
    }

    /// Runs passes on a stream of the model's device.
    #[must_use]
    pub fn on_stream(mut self, stream: Box<dyn Stream>) -> Self {
        self.stream = stream;
        self
    }

    /// Brings the drafter's cache up to the committed text; gives the last pass and the row of the last token.
    fn catch_up(&self, sequence: &Sequence, tokens: &[Token]) -> Result<(Box<dyn Rows>, usize), RuntimeError> {
        loop {
            let done = sequence.kv_len()?;
            let end = tokens.len().min(done + self.model.config().max_rows);
            let last = end == tokens.len();
            let want = if last { Want::Logits } else { Want::Nothing };
            let guard = KvGuard::reserve(sequence, end - done)?;
            let batch = Batch::chain(sequence.id(), &tokens[done..end], done, None, want);
            let rows = self.model.submit(&*self.stream, &batch)?.wait()?;
            guard.commit_chain(end - done)?;
            if last {
                return Ok((rows, end - done - 1));
            }
        }
    }

    /// Drafts a chain behind `text`, which is the end of the committed text; gives it with the open reservation of its rows
    /// and their number.
    fn draft_chain(
        &mut self,
        sequence: &Sequence,
        text: &[Token],
        budget: usize,
        context: &mut DraftContext<'_>,
    ) -> Result<(DraftTree, KvGuard, usize), RuntimeError> {
        let committed = context.tokens.len();
        let (mut rows, mut row) = self.catch_up(sequence, text)?;
        let guard = KvGuard::reserve(sequence, budget - 1)?;
        let history = Restored { length: context.pipeline.len(), pipeline: &mut *context.pipeline };
        let mut tree = DraftTree::new();
        let mut parent = None;
        let mut submitted: usize = 0;
        loop {
            let law = history.pipeline.law(rows.logits(row)?, None, &mut self.scratch)?;
            let position = committed + tree.len();
            let nodes = context
                .proposal
                .propose(&mut tree, parent, &law, 1, position, context.choices)
                .map_err(|source| RuntimeError::Draft { drafter: self.name.clone(), source })?;
            let Some(&node) = nodes.first() else { break };
            let token = tree.node(node).token;
            if tree.len() == budget || context.end_ids.contains(&token) {
                break;
            }
            parent = Some(node);
            history.pipeline.push(token);
            let above = submitted.checked_sub(1).map(|row| row as u32);
            let position = text.len() + submitted;
            let batch = Batch::chain(sequence.id(), &[token], position, above, Want::Logits);
            rows = self.model.submit(&*self.stream, &batch)?.wait()?;
            row = 0;
            submitted += 1;
        }
        drop(history);
        Ok((tree, guard, submitted))
    }
}

impl Drafter for ModelDrafter {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_laws(&self) -> bool {
        true
    }

    fn draft(&mut self, mut context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let seen = context.context.filter(|&seen| seen > 0 && seen < context.tokens.len());
        let text = &context.tokens[context.tokens.len() - seen.unwrap_or(context.tokens.len())..];
        // The last draft token is proposed, never fed, so the row of position `text.len() - 1 + k - 1` is the last.
        let room = (self.model.config().context + 1).saturating_sub(text.len());
        let budget = context.budget.min(room);
        if budget == 0 {
            return Ok(DraftTree::new());
        }
        let state = match self.states.remove(&context.generation) {
            Some(state) => state,
            None => State { sequence: Sequence::open(&self.model)?, block: None },
        };
        // An error below drops the state: the sequence closes, and the next round starts it afresh.
        let State { sequence, block } = state;
        drop(block);
        let (tree, block) = if seen.is_some() {
            // A trial reads the end of the text as if there were nothing before it, on the side.
            let aside = Sequence::open(&self.model)?;
            (self.draft_chain(&aside, text, budget, &mut context)?.0, None)
        } else {
            let (tree, guard, submitted) = self.draft_chain(&sequence, text, budget, &mut context)?;
            (tree, Some((guard, submitted)))
        };
        self.states.insert(context.generation, State { sequence, block });
        Ok(tree)
    }

    fn observe(&mut self, generation: GenerationId, _: &[Token], accepted: usize) -> Result<(), RuntimeError> {
        match self.states.get_mut(&generation).and_then(|state| state.block.take()) {
            Some((guard, submitted)) => guard.commit_chain(accepted.min(submitted)),
            None => Ok(()),
        }
    }

    fn forget(&mut self, generation: GenerationId) {
        self.states.remove(&generation);
    }
}

/// Gives the pipeline back as it was.
struct Restored<'a> {
    length: usize,
    pipeline: &'a mut Pipeline,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        self.pipeline.truncate(self.length);
    }
}
