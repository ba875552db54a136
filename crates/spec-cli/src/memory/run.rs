//! What a run takes: the target, a draft model beside it, and what both need beside their weights.

use anyhow::Result;
use spec_cpu::{LoadOptions, MemoryPlan};
use spec_model::Outline;

use super::{Room, Size};
use crate::args::KvKind;
use crate::session::CpuDevice;
use crate::storage::Storage;

/// The part that is added for pages that are used in part, and for code that has not run yet.
const MARGIN: usize = 32;
/// Rows that sampling makes of one row of logits, and keeps.
const OF_SAMPLING: usize = 8;
/// What the automaton and the tables of the draft-free drafters take for a token of a text.
const LOOKUP_BYTES: usize = 320;

/// What decides how much is taken, of what people choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) room: Room,
    pub(crate) kv: KvKind,
    pub(crate) draft_kv: KvKind,
    /// Whether a draft model is loaded.
    pub(crate) draft: bool,
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a context of {}", self.room.context)?;
        if self.room.parallel > 1 { write!(f, " for {} texts at a time", self.room.parallel) } else { Ok(()) }
    }
}

/// The models of a run.
#[derive(Clone, Copy)]
pub(crate) struct Models<'a> {
    pub(crate) device: &'a CpuDevice,
    pub(crate) target: (&'a Outline, Storage),
    pub(crate) draft: Option<(&'a Outline, Storage)>,
    /// Bytes of the program itself, with the vocabulary.
    pub(crate) program: usize,
}

impl Models<'_> {
    /// What they are stored as, for texts that need so much room.
    pub(crate) fn choice(&self, room: Room) -> Choice {
        let kv = self.target.1.kv;
        Choice { room, kv, draft_kv: self.draft.map_or(kv, |draft| draft.1.kv), draft: self.draft.is_some() }
    }

    /// What `choice` takes.
    pub(crate) fn run(&self, choice: Choice) -> Result<Run> {
        let plan = |(outline, storage): (&Outline, Storage), kv| -> Result<MemoryPlan> {
            let context = choice.room.context.min(outline.config.context_length);
            let mut options: LoadOptions<'_> = self.device.options(Storage { kv, ..storage }, context)?;
            (options.parallel, options.kv_tokens) = (choice.room.parallel, choice.room.kv_tokens);
            Ok(MemoryPlan::of_outline(outline, &options)?)
        };
        let draft = self.draft.filter(|_| choice.draft).map(|draft| plan(draft, choice.draft_kv)).transpose()?;
        let Room { context, parallel, kv_tokens } = choice.room;
        let tokens = kv_tokens.unwrap_or_else(|| context.saturating_mul(parallel));
        let lookup = tokens.saturating_mul(LOOKUP_BYTES);
        Ok(Run { program: self.program, target: plan(self.target, choice.kv)?, draft, lookup, parallel })
    }
}

/// What a run takes, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) program: usize,
    pub(crate) target: MemoryPlan,
    pub(crate) draft: Option<MemoryPlan>,
    /// Of drafters without a model.
    pub(crate) lookup: usize,
    pub(crate) parallel: usize,
}

/// What speculation with drafts of one length adds to a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Added {
    /// The target's scratch, which grows with the rows of a pass.
    pub(crate) target_scratch: usize,
    /// The draft model's scratch; 0 without one.
    pub(crate) draft_scratch: usize,
    /// Everything, with the draft model.
    pub(crate) with_model: Option<usize>,
    /// Everything, without a draft model.
    pub(crate) without_model: usize,
}

impl Run {
    /// The most at any time: the models are loaded one after the other.
    pub(crate) fn peak(&self) -> usize {
        let beside = self.target.weights + self.target.kv + self.target.scratch;
        let draft = self.draft.map_or(0, |draft| draft.peak() + draft.shortlist);
        let counted = self.program + self.lookup + self.target.peak().max(beside + draft);
        counted + counted / MARGIN
    }

    /// What the target takes that drafts for nobody: decoding plainly, with everything loaded.
    pub(crate) fn plain(&self) -> usize {
        self.program + self.target.weights + self.target.kv + self.target_scratch(0)
    }

    /// What drafts of `length` tokens add to that.
    pub(crate) fn added(&self, length: usize) -> Added {
        let target_scratch = self.target_scratch(length);
        let without_model = target_scratch - self.target_scratch(0) + self.lookup;
        let draft_scratch = self.draft.map_or(0, |draft| draft.scratch_for(self.parallel * length + OF_SAMPLING));
        let of_model = self.draft.map(|draft| draft.weights + draft.file_pages + draft.shortlist + draft.kv);
        let with_model = of_model.map(|bytes| bytes + draft_scratch + without_model);
        Added { target_scratch, draft_scratch, with_model, without_model }
    }

    fn target_scratch(&self, length: usize) -> usize {
        self.target.scratch_for(self.parallel * (length + 1) + OF_SAMPLING)
    }

    /// A line for each part, and their sum.
    pub(crate) fn table(&self) -> String {
        let draft = self.draft.unwrap_or_default();
        let rows = [
            ("this program and the vocabulary", self.program),
            ("weights", self.target.weights),
            ("weights of the draft model", draft.weights + draft.shortlist + draft.file_pages),
            ("keys and values", self.target.kv + draft.kv),
            ("scratch", self.target.scratch + draft.scratch + self.lookup),
        ];
        let settled: usize = rows.iter().map(|row| row.1).sum();
        let margin = self.peak() / (MARGIN + 1);
        let loading = self.peak().saturating_sub(settled + margin);
        let rest = [("the file's pages while loading", loading), ("margin", margin)];
        let mut table = String::new();
        let parts = rows.into_iter().filter(|row| row.1 > 0).chain(rest.into_iter().filter(|row| row.1 >= 1000));
        for (name, bytes) in parts.chain([("together", self.peak())]) {
            table += &format!("  {name:<32} {:>10}\n", Size(bytes).to_string());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(weights: usize, kv: usize, scratch: usize) -> MemoryPlan {
        let mut plan = MemoryPlan::default();
        (plan.weights, plan.loading, plan.kv, plan.activations, plan.logits_row) = (weights, weights, kv, scratch, 10);
        plan.scratch = plan.scratch_for(16);
        plan
    }

    #[test]
    fn drafts_add_rows_the_model_and_its_cache() {
        let mut run = Run { program: 7, target: plan(1000, 100, 50), draft: None, lookup: 3, parallel: 2 };
        assert_eq!(run.plain(), 7 + 1000 + 100 + 50 + (2 + OF_SAMPLING) * 10);
        let five = run.added(5);
        assert_eq!(five, Added { without_model: 2 * 5 * 10 + 3, with_model: None, ..five });
        let mut draft = plan(100, 20, 5);
        (draft.shortlist, draft.file_pages) = (9, 4);
        run.draft = Some(draft);
        let with = run.added(5);
        let scratch = 5 + (2 * 5 + OF_SAMPLING) * 10;
        assert_eq!((with.draft_scratch, with.without_model), (scratch, five.without_model));
        assert_eq!(with.with_model, Some(100 + 9 + 4 + 20 + scratch + five.without_model));
        assert_eq!(run.added(0).without_model, 3, "nothing is drafted, and the look-ups are there");
    }

    #[test]
    fn the_parts_of_the_table_are_the_peak() {
        let run = Run {
            program: 7_000_000,
            target: plan(1_000_000_000, 100_000_000, 50_000_000),
            draft: Some(plan(100_000_000, 20_000_000, 5_000_000)),
            lookup: 3_000_000,
            parallel: 1,
        };
        let table = run.table();
        let megabytes = |line: &str| -> f64 {
            let mut words = line.split_whitespace().rev();
            let (unit, number) = (words.next(), words.next().and_then(|word| word.parse::<f64>().ok()));
            number.expect("a number") * if unit == Some("GB") { 1e3 } else { 1.0 }
        };
        let lines: Vec<f64> = table.lines().map(megabytes).collect();
        let (together, parts) = lines.split_last().expect("lines");
        assert!((parts.iter().sum::<f64>() - together).abs() < 10.0, "{table}");
    }
}
