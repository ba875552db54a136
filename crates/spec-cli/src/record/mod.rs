//! What the rounds of a run did, as lines of JSON: figures alone, no text and no token ids, except in [`Training`].

mod facts;
mod lines;
mod read;
#[cfg(test)]
pub(crate) mod tests;
mod training;
mod write;

pub(crate) use facts::{DraftFacts, ModelFacts};
pub(crate) use lines::Lines;
pub(crate) use read::{Record, RequestRecord, read};
pub(crate) use training::Training;
pub(crate) use write::Recorder;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form of the lines; a reader refuses what is newer than it.
pub(crate) const VERSION: u32 = 1;

/// A line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Line {
    /// What ran, for the requests that begin behind it.
    Run(Run),
    Round(Round),
    /// The end of a request; one that failed, or that was cut off with the program, has none.
    End(End),
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) version: u32,
    /// Of `spec`: `generate`.
    pub(crate) command: String,
    pub(crate) target: ModelFacts,
    pub(crate) draft: Option<ModelFacts>,
    /// The engine's, `none` without one.
    pub(crate) drafter: String,
    /// `None` where each request has its own; so are those below.
    pub(crate) rule: Option<String>,
    pub(crate) length_policy: String,
    pub(crate) temperature: Option<f64>,
    pub(crate) prompt_tokens: Option<usize>,
    /// Of the pool; `None` off the processor.
    pub(crate) threads: Option<usize>,
    /// Of the machine.
    pub(crate) cores: usize,
    pub(crate) device: String,
    /// Positions of a sequence.
    pub(crate) context: usize,
    /// Share of the target's tokens that the draft model has too.
    pub(crate) shared_vocabulary: Option<f64>,
    /// What may be taken of the machine's memory, where that is said.
    #[serde(default)]
    pub(crate) memory_limit: Option<u64>,
    /// The machine's memory, or what of it this container may take.
    #[serde(default)]
    pub(crate) machine_memory: Option<u64>,
    /// How target and draft model are stored, as far as flags say: what passes cost depends on it.
    #[serde(default)]
    pub(crate) storage: Option<[String; 2]>,
}

/// A round of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) request: usize,
    /// From 1; 0 is the pass that ended the prompt.
    pub(crate) round: usize,
    /// Tokens of the text before.
    pub(crate) length: usize,
    /// Tokens of the text that the pass read.
    pub(crate) read: usize,
    /// Nodes proposed, by their depth below the text.
    pub(crate) by_depth: Vec<usize>,
    pub(crate) accepted: usize,
    /// Tokens emitted, accepted ones among them.
    pub(crate) emitted: usize,
    /// Whether a constraint left no choice, rather than a drafter guessing.
    pub(crate) forced: bool,
    /// Nodes that the drafter was allowed; 0 when it was not asked.
    pub(crate) budget: usize,
    /// Rows that the pass had for others.
    pub(crate) company: usize,
    /// Nodes that were drafted during the round before.
    pub(crate) ahead: usize,
    /// The drafter's probability of each node; `None` where no node has one.
    pub(crate) confidences: Option<Vec<Option<f64>>>,
    pub(crate) rejection: Option<Rejection>,
    pub(crate) seconds: Seconds,
}

impl Round {
    /// Nodes proposed.
    pub(crate) fn drafted(&self) -> usize {
        self.by_depth.iter().sum()
    }

    /// Rows of the pass, those for others among them.
    pub(crate) fn rows(&self) -> usize {
        self.company + self.read + self.drafted()
    }
}

/// The reason of a rejection that is the constraint's, whatever the rule compared.
pub(crate) const FORBIDDEN: &str = "forbidden";

/// The proposal at which the accepted path ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rejection {
    /// The rule's, or [`FORBIDDEN`].
    pub(crate) reason: String,
    /// The target's probability, and the drafter's, where the rule formed them.
    pub(crate) p: Option<f64>,
    pub(crate) q: Option<f64>,
    /// Its depth below the text, from 1.
    pub(crate) depth: usize,
}

/// Where the time of a round went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seconds {
    /// Drafting that the target waited for; `preparation` is not in it.
    pub(crate) draft: f64,
    /// Preparing the drafter, such as loading its model.
    pub(crate) preparation: f64,
    /// From the pass's submission to its rows, `ahead` and `late` included.
    pub(crate) submit_to_passed: f64,
    /// Drafting ahead.
    pub(crate) ahead: f64,
    /// What that took longer than the pass.
    pub(crate) late: f64,
    /// Judging and emitting.
    pub(crate) sample: f64,
    /// Settling the KV caches.
    pub(crate) rollback: f64,
}

impl Seconds {
    /// What the target's pass took.
    pub(crate) fn pass(&self) -> f64 {
        (self.submit_to_passed - self.late).max(0.0)
    }

    /// What the round took, without preparing the drafter.
    pub(crate) fn round(&self) -> f64 {
        self.draft + self.submit_to_passed + self.sample + self.rollback
    }
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) request: usize,
    pub(crate) finish: String,
    pub(crate) completion_tokens: usize,
    /// As `--json` has them.
    pub(crate) speculation: Value,
    pub(crate) timings: Value,
    /// Times that it gave way to others and was read again.
    #[serde(default)]
    pub(crate) preempted: usize,
    /// The most memory that the process has had so far.
    #[serde(default)]
    pub(crate) peak_resident_bytes: Option<u64>,
}
