//! What a round did, told to whoever asks for it.

use std::time::Duration;

use spec_core::{DraftTree, LogitRows, Outcome, Token};

use crate::{Completion, GenerationId};

/// Hears of the rounds of one generation, on the engine's thread, once their tokens are emitted and their rows are kept.
///
/// It sees everything and changes nothing: what is emitted does not depend on it. With none, nothing is computed for it.
pub trait RoundObserver: Send {
    /// Takes what a round did, or the pass that ended the prompt.
    fn round(&mut self, report: &RoundReport<'_>);

    /// Takes what the generation came to. Not told of one that fails.
    fn ended(&mut self, completion: &Completion) {
        let _ = completion;
    }

    /// Whether it reads [`RoundReport::rows`]. Then the target is asked for logits, also where its verdicts would do.
    fn reads_rows(&self) -> bool {
        false
    }
}

/// A round of one generation.
#[non_exhaustive]
pub struct RoundReport<'a> {
    /// Whose it was.
    pub generation: GenerationId,
    /// Its number, from 1; 0 is the pass that ended the prompt.
    pub round: usize,
    /// The text before: prompt and emitted tokens.
    pub text: &'a [Token],
    /// The tokens emitted.
    pub emitted: &'a [Token],
    /// Those of them that were drafted.
    pub accepted: usize,
    /// What was proposed.
    pub tree: &'a DraftTree,
    /// Whether a constraint left no choice, rather than a drafter guessing.
    pub forced: bool,
    /// Nodes that the drafter was allowed.
    pub budget: usize,
    /// What the rule said. A stop may have cut it: `emitted` is what stands.
    pub outcome: &'a Outcome,
    /// Whether the proposal at which the path ended is one that the constraint does not allow.
    pub forbidden: bool,
    /// The target's logits: row 0 behind the text, row `1 + i` behind node `i`. Rows are empty where the device judged by itself.
    pub rows: &'a dyn LogitRows,
    /// Tokens of the text that the pass read for it: 1, and more behind a prompt or a preemption.
    pub read: usize,
    /// Rows that the pass had for other generations.
    pub company: usize,
    /// Nodes that were drafted during the round before.
    pub ahead: usize,
    /// When it happened.
    pub times: RoundTimes,
}

/// When the parts of a round happened, on the engine's clock. Rounds of several generations have one pass: `drafted` to `judged` of
/// one lie between those of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundTimes {
    /// Drafting began; for a prompt, its first pass.
    pub begun: Duration,
    /// Within it, preparing the drafter, such as loading its model.
    pub preparation: Duration,
    /// Drafting ended.
    pub drafted: Duration,
    /// The pass was submitted.
    pub submitted: Duration,
    /// Its rows were there.
    pub passed: Duration,
    /// Within the pass, drafting ahead for the round to come.
    pub ahead: Duration,
    /// What drafting ahead took longer than the pass.
    pub late: Duration,
    /// Judging began.
    pub judged_from: Duration,
    /// Its tokens were emitted.
    pub sampled: Duration,
    /// The KV caches were settled.
    pub settled: Duration,
}
