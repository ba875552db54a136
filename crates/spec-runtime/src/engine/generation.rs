//! A generation under way: judging what was drafted, emitting what stands.

use std::time::Duration;

use spec_core::{
    AcceptanceRule, DraftTree, KeyedChoices, KnownLaws, LogitRows, LossBudget, Outcome, PathLaws, PathMasks, Pipeline,
    Token, top_log_probabilities,
};

use super::Completion;
use crate::constraint::ConstraintMasks;
use crate::emission::Emission;
use crate::{
    CancelToken, Emitted, FinishReason, GenerationId, Request, Rows, RuntimeError, Sequence, TokenSource, TokenText,
};

/// A generation under way. Dropping it frees its KV blocks; its drafter state goes with [`Engine::finish`](crate::Engine::finish)
/// or when [`Engine::generate`](crate::Engine::generate) returns.
pub struct Generation {
    pub(super) id: GenerationId,
    pub(super) request: Request,
    pub(super) rule: Box<dyn AcceptanceRule>,
    /// What a lossy rule may still forgive.
    pub(super) loss: LossBudget,
    /// `None` while it waits for its place in the KV cache.
    pub(super) sequence: Option<Sequence>,
    pub(super) pipeline: Pipeline,
    pub(super) emission: Emission,
    /// Prompt and emitted tokens.
    pub(super) tokens: Vec<Token>,
    /// Whether the target's verdicts say all that the rule asks.
    pub(super) verdicts: bool,
    /// When the first pass over its prompt began.
    pub(super) begun: Option<Duration>,
    pub(super) first_token: Option<Duration>,
    /// How long the drafter drafted ahead during the last pass of the target.
    pub(super) drafted_ahead: Duration,
    pub(super) completion: Completion,
    pub(super) finished: bool,
}

impl Generation {
    /// The text so far: prompt and emitted tokens.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The result so far.
    pub fn completion(&self) -> &Completion {
        &self.completion
    }

    /// Gives it an empty sequence, or one that holds the beginning of its text.
    pub(super) fn enter(&mut self, sequence: Sequence) -> Result<(), RuntimeError> {
        if let (Some(tenant), 0, [before @ .., _]) = (self.request.tenant, sequence.kv_len()?, &self.tokens[..]) {
            sequence.adopt(tenant, before)?;
        }
        if self.first_token.is_none() && self.begun.is_none() {
            self.completion.cached_tokens = sequence.kv_len()?;
        }
        self.sequence = Some(sequence);
        Ok(())
    }

    /// Tokens that the cache holds.
    pub(crate) fn kv_len(&self) -> usize {
        self.sequence.as_ref().and_then(|sequence| sequence.kv_len().ok()).unwrap_or(0)
    }

    /// Tokens that may still be emitted.
    pub(crate) fn remaining(&self) -> usize {
        self.emission.remaining()
    }

    /// Lowers the number of tokens that may be emitted.
    pub(crate) fn limit(&mut self, max_tokens: usize) {
        self.emission.limit(max_tokens);
    }

    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.request.cancel
    }

    pub(crate) fn count_preemption(&mut self) {
        self.completion.preempted += 1;
    }

    pub(crate) fn into_completion(self) -> Completion {
        self.completion
    }

    /// The randomness of the round that begins now; drafting and judging ask it for different purposes.
    pub(super) fn choices(&self) -> KeyedChoices {
        KeyedChoices::with_choice(self.completion.seed, self.request.choice, self.tokens.len())
    }

    /// Judges a tree and emits what stands.
    pub(super) fn judge(
        &mut self,
        text: &dyn TokenText,
        tree: &DraftTree,
        rows: &Scored<'_>,
        sink: &mut dyn FnMut(&Emitted),
    ) -> Result<Judged, RuntimeError> {
        let base = self.tokens.len();
        let (outcome, forbidden) = {
            let mut choices = self.choices();
            let end_ids = self.emission.end_ids();
            let constraint = self.request.constraint.as_deref_mut();
            let masks = constraint.map(|constraint| ConstraintMasks::new(tree, constraint, text.vocab(), end_ids));
            let path_masks = masks.as_ref().map(|masks| masks as &dyn PathMasks);
            let laws = PathLaws::new(tree, rows, &mut self.pipeline, base, path_masks);
            let mut laws = KnownLaws { known: &rows.argmax, laws };
            let outcome = self.rule.verify_within(self.loss, tree, &mut laws, &mut choices);
            drop(laws);
            let forbidden = match (&outcome, path_masks) {
                (Ok(Outcome { rejection: Some(rejection), accepted, .. }), Some(masks)) => {
                    masks.mask(accepted.last().copied()).is_some_and(|mask| !mask.allows(rejection.token))
                }
                _ => false,
            };
            masks.map_or(Ok(()), ConstraintMasks::finish)?;
            (outcome?, forbidden)
        };
        debug_assert_eq!(self.pipeline.len(), base, "the rule restores the history");
        let accepted = outcome.accepted.iter().map(|&node| {
            let source = (TokenSource::Accepted, Vec::new());
            (node.index() as u32 + 1, tree.node(node).token, source)
        });
        let own = TokenSource::behind(tree, outcome.accepted.last().copied());
        let mut row = 0;
        let mut path = vec![0];
        let mut emitted = 0;
        for (next_row, token, source) in accepted.chain([(0, outcome.next, own)]) {
            self.emit(text, (token, source), rows.logits[row as usize], sink)?;
            emitted += 1;
            if self.finished || emitted > outcome.accepted.len() {
                break;
            }
            path.push(next_row);
            row = next_row;
        }
        let accepted = emitted.min(outcome.accepted.len());
        self.forgive(&outcome, accepted);
        Ok(Judged { path, emitted, accepted, outcome, forbidden })
    }

    /// Tells the policy how sure the target was in a round without drafts.
    pub(super) fn tell_certainty(&mut self, rows: &Scored<'_>) {
        // Of a device that judges rows only those come here that it could not decide.
        if self.verdicts || !self.request.draft_len.listens() {
            return;
        }
        // A row without a law has been refused, or edited, by those whom it concerns.
        if let Some(Ok(probability)) = rows.logits.first().map(|logits| self.pipeline.greatest_probability(logits)) {
            self.request.draft_len.hear(probability);
        }
    }

    /// Counts what the rule forgave among the first `accepted` nodes of its path, and takes it from the budget.
    fn forgive(&mut self, outcome: &Outcome, accepted: usize) {
        let stands = &outcome.accepted[..accepted];
        for node in outcome.forgiven.nodes.iter().filter(|forgiven| stands.contains(&forgiven.node)) {
            self.loss.charge(node.log_ratio);
            self.completion.speculation.forgiven.record(node.log_ratio);
        }
        if outcome.forgiven.turned_exact {
            self.loss.close();
        }
    }

    fn emit(
        &mut self,
        text: &dyn TokenText,
        (token, (source, rejected)): (Token, (TokenSource, Vec<Token>)),
        logits: &[f32],
        sink: &mut dyn FnMut(&Emitted),
    ) -> Result<(), RuntimeError> {
        let mut emitted = Emitted { source, rejected, ..self.emission.push(token, &text.bytes(token)) };
        self.tokens.push(token);
        self.pipeline.push(token);
        let completion = &mut self.completion;
        completion.completion_tokens = self.emission.count();
        completion.text.push_str(&emitted.text);
        if emitted.shown {
            completion.tokens.push(token);
            if let (Some(all), Some(n)) = (&mut completion.logprobs, self.request.logprobs) {
                let logprob = top_log_probabilities(logits, text.vocab(), token, n)?;
                emitted.logprob = Some(logprob.clone());
                all.push(logprob);
            }
        }
        match emitted.finish {
            Some(reason) => self.end(reason),
            None => self.request.constraint.as_mut().map_or(Ok(()), |constraint| constraint.advance(token))?,
        }
        sink(&emitted);
        Ok(())
    }

    /// Ends it before its time.
    pub(crate) fn stop(&mut self, reason: FinishReason, sink: &mut dyn FnMut(&Emitted)) {
        self.end(reason);
        let text = self.emission.flush();
        if !text.is_empty() {
            self.completion.text.push_str(&text);
            let token = self.tokens[self.tokens.len() - 1];
            sink(&Emitted { token, text, finish: Some(reason), ..Emitted::default() });
        }
    }

    /// Tells its observers that it has ended, if it has.
    pub(super) fn conclude(&mut self) {
        if self.finished {
            self.request.observers.iter_mut().for_each(|observer| observer.ended(&self.completion));
        }
    }

    pub(super) fn end(&mut self, reason: FinishReason) {
        self.completion.finish = reason;
        self.finished = true;
    }
}

/// What a round came to.
pub(super) struct Judged {
    /// Rows of the accepted path, the root row first; as many as tokens were emitted, at least.
    pub(super) path: Vec<u32>,
    /// Tokens emitted.
    pub(super) emitted: usize,
    /// Those of them that were drafted.
    pub(super) accepted: usize,
    /// What the rule said.
    pub(super) outcome: Outcome,
    /// Whether the path ended at a token that the constraint forbids.
    pub(super) forbidden: bool,
}

/// `count` rows of a pass from row `first` on: their logits, or where verdicts were asked for over so many tokens, what the device
/// says.
pub(super) fn collect(
    rows: &dyn Rows,
    first: usize,
    count: usize,
    verdicts: Option<usize>,
) -> Result<Scored<'_>, RuntimeError> {
    let mut scored = Scored { logits: Vec::with_capacity(count), argmax: Vec::with_capacity(count) };
    for row in first..first + count {
        // Rows may be wider than the vocabulary: then the tokens have to be looked at, and not the padding.
        let argmax = match verdicts {
            Some(vocab) => rows.verdict(row)?.filter(|&token| (token as usize) < vocab),
            None => None,
        };
        scored.logits.push(if argmax.is_some() { &[] } else { rows.logits(row)? });
        scored.argmax.push(argmax);
    }
    Ok(scored)
}

/// What is known of the rows of a pass.
pub(super) struct Scored<'a> {
    /// The logits of each row, empty where they are not needed.
    logits: Vec<&'a [f32]>,
    /// The most probable token of each row that the device has judged.
    argmax: Vec<Option<Token>>,
}

impl LogitRows for Scored<'_> {
    fn row(&self, index: usize) -> &[f32] {
        self.logits[index]
    }
}
