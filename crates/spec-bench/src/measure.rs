//! `cargo xtask bench`: ceilings, passes by rows, and every drafter on every prompt, in one interleaved run.

mod report;

use anyhow::{Result, bail};
use clap::Args;

use crate::contention::{Contention, Ticks};
use crate::drafters::{self, Drafter};
use crate::engine::{Models, Passes, Run, Sampling, Spec};
use crate::generations::{Case, Generations};
use crate::options::Common;
use crate::passes::{PassRuns, ROWS};
use crate::progress::Progress;
use crate::prompts::Prompt;
use crate::startup;

/// Runs of `spec bench forward` for each context, spread over the whole run; each times its own rounds.
const PASS_RUNS: usize = 3;
const PASS_ROUNDS: usize = 5;
/// The context behind which a draft token's cost is taken, if it is among those measured.
const DRAFT_CONTEXT: usize = 512;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Only these settings, and plain decoding: ngram, free, model, auto, off
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    drafters: Vec<String>,

    /// How tokens are chosen
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', value_enum, default_values_t = Sampling::ALL)]
    samplings: Vec<Sampling>,

    /// Tokens in the KV cache before the passes that are timed by rows
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "0,512,3000")]
    contexts: Vec<usize>,
}

/// All that is measured.
pub(crate) struct Measured {
    passes: PassRuns,
    generations: Generations,
    startup: Startup,
    contention: Option<Contention>,
}

/// Of the target without a drafter.
#[derive(Default)]
struct Startup {
    seconds: Vec<f64>,
    /// Memory that no file backs.
    peak_bytes: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let models = common.models()?;
    let drafters = drafters::select(&options.drafters, models.draft.is_some()).map_err(anyhow::Error::msg)?;
    let mut contexts = options.contexts.clone();
    contexts.sort_unstable();
    contexts.dedup();
    if common.quick {
        contexts.truncate(2);
    }
    let prompts = common.prompts()?;
    let out = common.out()?;
    let spec = common.spec();

    let pass_rounds = pass_rounds(common.repeats(), if common.quick { 1 } else { PASS_RUNS });
    let cases = prompts.len() * options.samplings.len();
    let runs_per_passes = contexts.len() + usize::from(models.draft.is_some()) + 1;
    let total = common.repeats() * cases * drafters.len() + pass_rounds.len() * runs_per_passes;
    let mut bench = Bench {
        spec: &spec,
        models: &models,
        drafters: &drafters,
        contexts,
        max_tokens: common.max_tokens(),
        measured: Measured {
            passes: PassRuns::default(),
            generations: Generations::new(drafters.iter().map(|drafter| drafter.name).collect()),
            startup: Startup::default(),
            contention: None,
        },
        progress: Progress::new(total),
    };
    let begun = Ticks::now();
    for round in 0..common.repeats() {
        if pass_rounds.contains(&round) {
            bench.passes()?;
            bench.startup()?;
        }
        for prompt in &prompts {
            for &sampling in &options.samplings {
                bench.case(round, prompt, sampling)?;
            }
        }
    }
    let measured = Measured { contention: Contention::since(begun), ..bench.measured };
    if drafters.len() > 1 && measured.generations.drafted() == 0 {
        bail!(
            "no answer had a draft token, so that their equality shows nothing; take longer answers or other prompts"
        );
    }
    report::write(&measured, common, &models, out)
}

/// The rounds in which passes are timed, spread from the first to the last.
fn pass_rounds(rounds: usize, wanted: usize) -> Vec<usize> {
    let wanted = wanted.min(rounds);
    if wanted <= 1 {
        return vec![0];
    }
    (0..wanted).map(|at| at * (rounds - 1) / (wanted - 1)).collect()
}

struct Bench<'a> {
    spec: &'a Spec,
    models: &'a Models,
    drafters: &'a [&'static Drafter],
    /// Sorted; those that the model cannot hold leave at the first sight of it.
    contexts: Vec<usize>,
    max_tokens: usize,
    measured: Measured,
    progress: Progress,
}

impl Bench<'_> {
    fn passes(&mut self) -> Result<()> {
        let passes = Passes { rows: ROWS.to_vec(), context: 0, all_logits: true, rounds: PASS_ROUNDS };
        let most = ROWS.into_iter().max().unwrap_or(1);
        let mut at = 0;
        while let Some(&context) = self.contexts.get(at) {
            let forward = self.spec.forward(&self.models.target, &Passes { context, ..passes.clone() })?;
            let before = self.contexts.len();
            self.contexts.retain(|context| context + most <= forward.context_length);
            if self.contexts.len() < before {
                eprintln!(
                    "contexts that leave no room in the model's {} positions are left out",
                    forward.context_length
                );
                self.progress.skip(before - self.contexts.len());
            }
            let one = forward.pass(1)?;
            self.progress.done(&format!(
                "passes behind {context}: {:.1} ms a row, {:.1} GB/s of {:.1}",
                one.ms,
                one.bytes_per_second / 1e9,
                forward.bandwidth / 1e9
            ));
            self.measured.passes.target.entry(context).or_default().push(forward);
            at += 1;
        }
        if let Some(draft) = &self.models.draft {
            let context = self.contexts.iter().copied().find(|&context| context == DRAFT_CONTEXT);
            let context = context.or(self.contexts.first().copied()).unwrap_or(0);
            let forward = self.spec.forward(draft, &Passes { rows: vec![1], context, ..passes })?;
            self.progress.done(&format!("draft model behind {context}: {:.1} ms a row", forward.pass(1)?.ms));
            self.measured.passes.draft_context = context;
            self.measured.passes.draft.push(forward);
        }
        Ok(())
    }

    fn startup(&mut self) -> Result<()> {
        let mut command = self.spec.first_token_command(&self.models.target);
        // The passes before it have warmed the page cache.
        let seconds = startup::seconds_to_first_line(&mut command)?;
        let startup = &mut self.measured.startup;
        startup.seconds.push(seconds);
        if startup.peak_bytes.is_none() {
            startup.peak_bytes = startup::peak_owned_bytes(&mut command)?;
        }
        self.progress.done(&format!("start to the first token: {seconds:.2} s"));
        Ok(())
    }

    /// Every setting once on one prompt, so that each has its partner close by; the first round begins with plain decoding.
    fn case(&mut self, round: usize, prompt: &Prompt, sampling: Sampling) -> Result<()> {
        let case = Case { prompt: prompt.name.clone(), sampling };
        for at in 0..self.drafters.len() {
            let at = (at + round) % self.drafters.len();
            let drafter = self.drafters[at];
            let generation = self.spec.generate(&Run {
                models: self.models,
                drafter,
                prompt: &prompt.file,
                sampling,
                max_tokens: self.max_tokens,
            })?;
            self.progress.done(&format!(
                "{}, {}, {}: {:.1} tokens/s",
                prompt.name,
                sampling.name(),
                drafter.name,
                generation.timings.decode_tokens_per_second
            ));
            self.measured.generations.record(&case, at, generation)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::pass_rounds;

    #[test]
    fn passes_are_timed_at_the_beginning_in_the_middle_and_at_the_end() {
        assert_eq!(pass_rounds(7, 3), [0, 3, 6]);
        assert_eq!(pass_rounds(2, 3), [0, 1]);
        assert_eq!(pass_rounds(1, 3), [0]);
        assert_eq!(pass_rounds(7, 1), [0]);
    }
}
