//! `spec inspect --plan`: what a run will take, and what of it speculation adds.

use std::fmt::Write as _;

use anyhow::Result;
use clap::ValueEnum as _;
use serde_json::{Value, json};
use spec_model::Outline;
use spec_runtime::resident_memory;

use super::planned::Planned;
use crate::args::InspectArgs;
use crate::memory::{Models, Room, Run, Size};
use crate::session::CpuDevice;
use crate::storage::Storage;
use crate::usage;

/// Positions of a text unless told otherwise.
const CONTEXT: usize = 4096;
/// Draft lengths with a line each.
const LENGTHS: [usize; 8] = [1, 2, 3, 5, 7, 10, 16, 32];
/// The length that is taken for the sum.
const USUAL_LENGTH: usize = 5;
/// What is usually advised: a draft model of a tenth of the target's size.
const USUAL_SHARE: f64 = 0.1;
/// Bytes that a tokenizer takes for each token of a vocabulary that is not at hand.
const TOKENIZER_BYTES: usize = 350;

/// A plan, and what it is for.
pub(super) struct Plan {
    target: Planned,
    draft: Option<Planned>,
    room: Room,
    storage: Storage,
    draft_storage: Storage,
    run: Run,
}

impl Plan {
    /// Plans what the flags describe.
    pub(super) fn new(args: &InspectArgs) -> Result<Self> {
        let target = Planned::find(&args.file.model)?;
        let draft = args.plan.draft_model.as_deref().map(Planned::find).transpose()?;
        let trained = target.outline.config.context_length;
        let context = args.plan.context.unwrap_or_else(|| trained.min(CONTEXT));
        if context == 0 || context > trained {
            return Err(usage(format!("--context {context}: {} was trained for {trained} positions", target.name)));
        }
        let room = Room { context, parallel: args.plan.parallel, kv_tokens: None };
        let device = CpuDevice::new(Some(1))?;
        let storage = Storage::from(args.storage);
        let draft_storage = Storage::of_draft(args.storage, args.draft_storage);
        // A run has the target's tokenizer, and has looked at the draft model's tokens. A file whose text cannot be read has a plan all
        // the same.
        let tokenizer = target.checkpoint.as_ref().and_then(|checkpoint| checkpoint.tokenizer().ok());
        drop(draft.as_ref().and_then(|draft| draft.checkpoint.as_ref()?.vocabulary().ok()));
        let absent = if tokenizer.is_none() { target.outline.config.vocab_size * TOKENIZER_BYTES } else { 0 };
        let models = Models {
            device: &device,
            target: (&target.outline, storage),
            draft: draft.as_ref().map(|draft| (&draft.outline, draft_storage)),
            program: resident_memory().unwrap_or(0) + absent,
        };
        let run = models.run(models.choice(room))?;
        Ok(Self { target, draft, room, storage, draft_storage, run })
    }

    /// Parameters and weights of the draft model, as shares of the target's.
    fn shares(&self) -> Option<(f64, f64)> {
        let draft = &self.draft.as_ref()?.outline;
        let share = |part: usize, whole: usize| part as f64 / whole as f64;
        let parameters = share(draft.parameters(), self.target.outline.parameters());
        Some((parameters, share(self.run.draft?.weights, self.run.target.weights)))
    }

    fn percent(&self, added: usize) -> f64 {
        100.0 * added as f64 / self.run.plain() as f64
    }

    pub(super) fn json(&self) -> Value {
        let model = |planned: &Planned, plan: &spec_cpu::MemoryPlan, storage: Storage| {
            json!({
                "name": planned.name,
                "parameters": planned.outline.parameters(),
                "kv": kv_name(storage),
                "weights_bytes": plan.weights,
                "loading_bytes": plan.loading,
                "kv_bytes": plan.kv,
                "kv_bytes_per_token": plan.kv_per_token,
                "activations_bytes": plan.activations,
                "logits_row_bytes": plan.logits_row,
            })
        };
        let draft = self.draft.as_ref().zip(self.run.draft.as_ref()).map(|(planned, plan)| {
            let mut object = model(planned, plan, self.draft_storage);
            object["shortlist_bytes"] = plan.shortlist.into();
            object["file_pages_bytes"] = plan.file_pages.into();
            object
        });
        let lengths: Vec<Value> = LENGTHS
            .iter()
            .map(|&length| {
                let added = self.run.added(length);
                json!({
                    "length": length,
                    "target_scratch_bytes": added.target_scratch,
                    "draft_scratch_bytes": added.draft_scratch,
                    "adds_bytes": added.with_model,
                    "adds_percent": added.with_model.map(|bytes| self.percent(bytes)),
                    "draft_free_adds_bytes": added.without_model,
                    "draft_free_adds_percent": self.percent(added.without_model),
                })
            })
            .collect();
        let shares = self.shares();
        json!({
            "context": self.room.context,
            "parallel": self.room.parallel,
            "program_bytes": self.run.program,
            "target": model(&self.target, &self.run.target, self.storage),
            "draft": draft,
            "lookup_bytes": self.run.lookup,
            "plain_bytes": self.run.plain(),
            "peak_bytes": self.run.peak(),
            "draft_share": shares.map(|(parameters, weights)| json!({
                "parameters": parameters, "weights": weights, "usual": USUAL_SHARE,
            })),
            "by_draft_length": lengths,
        })
    }

    pub(super) fn text(&self, out: &mut String) -> Result<(), std::fmt::Error> {
        let Room { context, parallel, .. } = self.room;
        let texts = if parallel == 1 { "1 text".to_owned() } else { format!("{parallel} texts at a time") };
        writeln!(out, "memory for {texts} of {context} positions")?;
        writeln!(out, "\n{:<34} {:>14} {:>14}", "", "target", "draft")?;
        let draft = self.run.draft;
        let outlines = (&self.target.outline, self.draft.as_ref().map(|draft| &draft.outline));
        let millions = |outline: &Outline| format!("{:.1} million", outline.parameters() as f64 / 1e6);
        row(out, "parameters", millions(outlines.0), outlines.1.map(millions))?;
        row(out, "cache", kv_name(self.storage), draft.map(|_| kv_name(self.draft_storage)))?;
        let target = self.run.target;
        row(out, "weights", size(target.weights), draft.map(|plan| size(plan.weights)))?;
        row(out, "the part of the head that is listed", String::new(), draft.map(|plan| size(plan.shortlist)))?;
        if let Some(plan) = draft.filter(|plan| plan.file_pages > 0) {
            row(out, "pages of its file", String::new(), Some(size(plan.file_pages)))?;
        }
        row(out, "keys and values", size(target.kv), draft.map(|plan| size(plan.kv)))?;
        let added = self.run.added(USUAL_LENGTH);
        let scratch = format!("scratch, for drafts of {USUAL_LENGTH}");
        row(out, &scratch, size(added.target_scratch), draft.map(|_| size(added.draft_scratch)))?;
        row(out, "program and vocabulary", size(self.run.program), None)?;
        writeln!(out, "\nwithout speculation {}", size(self.run.plain()))?;
        if let Some(bytes) = added.with_model {
            writeln!(out, "speculation adds    {}, {:.1} %", size(bytes), self.percent(bytes))?;
        }
        let free = added.without_model;
        writeln!(out, "without a draft model it adds {}, {:.1} %", size(free), self.percent(free))?;
        if let Some((parameters, weights)) = self.shares() {
            writeln!(
                out,
                "the draft model has {:.1} % of the target's parameters and {:.1} % of its weights' bytes; the usual \
                 advice is {:.0} %",
                100.0 * parameters,
                100.0 * weights,
                100.0 * USUAL_SHARE
            )?;
        }
        self.by_length(out)?;
        writeln!(out, "\nat most, with a margin {}", size(self.run.peak()))
    }

    fn by_length(&self, out: &mut String) -> Result<(), std::fmt::Error> {
        let with_model = self.run.draft.is_some();
        let heads = ["target's", "draft's", "adds", "", "draft-free", ""];
        let heads = if with_model { &heads[..] } else { &[heads[0], heads[4], heads[5]] };
        write!(out, "\n{:<14}", "draft length")?;
        heads.iter().try_for_each(|head| write!(out, " {head:>12}"))?;
        writeln!(out)?;
        for length in LENGTHS {
            let added = self.run.added(length);
            write!(out, "  {length:<12} {:>12}", size(added.target_scratch))?;
            if let Some(bytes) = added.with_model {
                let percent = format!("{:.1} %", self.percent(bytes));
                write!(out, " {:>12} {:>12} {percent:>12}", size(added.draft_scratch), size(bytes))?;
            }
            let percent = format!("{:.2} %", self.percent(added.without_model));
            writeln!(out, " {:>12} {percent:>12}", size(added.without_model))?;
        }
        Ok(())
    }
}

fn row(out: &mut String, name: &str, target: String, draft: Option<String>) -> std::fmt::Result {
    writeln!(out, "  {name:<32} {target:>14} {:>14}", draft.unwrap_or_default())
}

fn kv_name(storage: Storage) -> String {
    storage.kv.to_possible_value().map_or(String::new(), |kv| kv.get_name().to_owned())
}

fn size(bytes: usize) -> String {
    Size(bytes).to_string()
}
