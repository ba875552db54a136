//! What a scheduler has done and is doing.

use crate::{Completion, DraftCacheStats, FinishReason, KvUsage, SpeculationStats, Timings};

/// A scheduler at a moment between two rounds.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Jobs that have a place.
    pub running: usize,
    /// Jobs that wait for one, those included that had one and gave it up.
    pub queued: usize,
    /// The target's KV cache, where the model tells.
    pub kv: Option<KvUsage>,
    /// The draft model's.
    pub draft_kv: Option<KvUsage>,
    /// The cache of drafts, if there is one.
    pub draft_cache: Option<DraftCacheStats>,
    /// Everything so far, running jobs included.
    pub totals: Totals,
    /// What the device said last, while it is taken for lost.
    pub device_lost: Option<String>,
}

/// Jobs by how they ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Finished {
    /// By an end token or a stop text.
    pub stop: usize,
    /// By their length.
    pub length: usize,
    /// Cancelled, running or waiting.
    pub cancelled: usize,
    /// By their deadline, while they ran.
    pub deadline: usize,
    /// With an error.
    pub failed: usize,
    /// Not taken.
    pub refused: usize,
}

/// Sums over all jobs. They never fall.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Totals {
    /// Jobs that have ended, or were not taken.
    pub finished: Finished,
    /// Tokens of prompts.
    pub prompt_tokens: usize,
    /// Those of them that the KV cache had already.
    pub cached_tokens: usize,
    /// Tokens generated.
    pub completion_tokens: usize,
    /// What speculation did; a round is counted for each generation of its pass.
    pub speculation: SpeculationStats,
    /// How often a job gave its place in the KV cache to others.
    pub preempted: usize,
    /// Time by phase, counted for each generation: those that share a pass count it each.
    pub timings: Timings,
}

impl Totals {
    pub(super) fn add(&mut self, completion: &Completion) {
        self.prompt_tokens += completion.prompt_tokens;
        self.cached_tokens += completion.cached_tokens;
        self.completion_tokens += completion.completion_tokens;
        self.preempted += completion.preempted;
        self.speculation += &completion.speculation;
        self.timings += completion.timings;
    }

    pub(super) fn end(&mut self, reason: FinishReason) {
        let finished = &mut self.finished;
        *match reason {
            FinishReason::Stop => &mut finished.stop,
            FinishReason::Length => &mut finished.length,
            FinishReason::Cancelled => &mut finished.cancelled,
            FinishReason::Deadline => &mut finished.deadline,
        } += 1;
    }
}
