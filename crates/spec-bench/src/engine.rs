//! Our engine, as a user starts it: the binary `spec`, its command line and what it answers with `--json`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::drafters::{DraftModel, Drafter};
use crate::launcher::{Launcher, capture, describe};

/// The binary, and what all its runs have in common.
pub(crate) struct Spec {
    pub(crate) program: PathBuf,
    pub(crate) launcher: Launcher,
    pub(crate) threads: usize,
}

/// The target's file, and the draft model's where there is one.
#[derive(Clone, Debug)]
pub(crate) struct Models {
    pub(crate) target: PathBuf,
    pub(crate) draft: Option<PathBuf>,
}

/// How tokens are chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sampling {
    Greedy,
    /// Temperature 0.8 with a fixed seed.
    Seeded,
}

impl Sampling {
    pub(crate) const ALL: [Self; 2] = [Self::Greedy, Self::Seeded];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Seeded => "seeded",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Greedy => &["--temperature", "0"],
            Self::Seeded => &["--temperature", "0.8", "--seed", "1"],
        }
    }
}

/// The passes that one `spec bench forward` times.
#[derive(Clone, Debug)]
pub(crate) struct Passes {
    pub(crate) rows: Vec<usize>,
    pub(crate) context: usize,
    /// Logits of all rows, as verification needs them; else of the last row, as prefill does.
    pub(crate) all_logits: bool,
    pub(crate) rounds: usize,
}

impl Spec {
    pub(crate) fn generate(&self, run: &Run<'_>) -> Result<Generation> {
        self.parse(&mut self.generate_command(run), Generation::parse)
    }

    pub(crate) fn generate_command(&self, run: &Run<'_>) -> Command {
        let mut command = self.command(&["generate"], &run.models.target);
        command.args(run.drafter.arguments);
        if let Some(draft) = &run.models.draft
            && run.drafter.draft_model != DraftModel::Without
        {
            command.arg("--draft-model").arg(draft);
        }
        command.args(run.sampling.arguments());
        command.args(["--max-tokens", &run.max_tokens.to_string(), "--json", "--file"]).arg(run.prompt);
        command
    }

    pub(crate) fn forward(&self, model: &Path, passes: &Passes) -> Result<Forward> {
        let rows: Vec<String> = passes.rows.iter().map(usize::to_string).collect();
        let mut command = self.command(&["bench", "forward"], model);
        command.args(["--rows", &rows.join(","), "--context", &passes.context.to_string()]);
        command.args(["--rounds", &passes.rounds.to_string(), "--json"]);
        command.args(["--logits", if passes.all_logits { "all" } else { "last" }]);
        self.parse(&mut command, Forward::parse)
    }

    /// One token behind a prompt of one: what starting costs.
    pub(crate) fn first_token_command(&self, model: &Path) -> Command {
        let mut command = self.command(&["generate"], model);
        command.args(["--draft", "none", "--ids", "1", "--max-tokens", "1", "--json"]);
        command
    }

    fn command(&self, subcommand: &[&str], model: &Path) -> Command {
        let mut command = self.launcher.command(&self.program);
        command.args(subcommand).arg("--model").arg(model).args(["--threads", &self.threads.to_string()]);
        command
    }

    fn parse<T>(&self, command: &mut Command, parse: impl Fn(&str) -> Result<T>) -> Result<T> {
        let printed = capture(command)?;
        parse(&printed.stdout).with_context(|| format!("`{}` answered something else than expected", describe(command)))
    }
}

/// One generation to run.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) models: &'a Models,
    pub(crate) drafter: &'a Drafter,
    pub(crate) prompt: &'a Path,
    pub(crate) sampling: Sampling,
    pub(crate) max_tokens: usize,
}

/// What `spec generate --json` answers, as far as it is used here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Generation {
    pub(crate) tokens: Vec<u32>,
    pub(crate) finish_reason: String,
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) timings: Timings,
    pub(crate) speculation: Speculation,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Timings {
    pub(crate) decode_ms: f64,
    pub(crate) draft_ms: f64,
    pub(crate) verify_ms: f64,
    pub(crate) decode_tokens_per_second: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Speculation {
    pub(crate) rounds: usize,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    pub(crate) accepted_by_position: Vec<Position>,
}

/// Nodes of one depth below the committed text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Position {
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
}

impl Generation {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let generation: Self = serde_json::from_str(text.trim())?;
        ensure!(
            generation.completion_tokens >= 2 && generation.timings.decode_tokens_per_second > 0.0,
            "{} tokens are too few to time; take a longer answer or another prompt",
            generation.completion_tokens
        );
        Ok(generation)
    }

    /// The share of the decoding time in which neither model computed: rules, emission, the settling of caches.
    pub(crate) fn overhead(&self) -> f64 {
        let timings = &self.timings;
        (timings.decode_ms - timings.draft_ms - timings.verify_ms).max(0.0) / timings.decode_ms
    }
}

/// What `spec bench forward --json` answers.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Forward {
    // Binaries of older commits do not name these three.
    #[serde(default)]
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) device: String,
    /// Positions that the model was trained for.
    #[serde(default = "unknown_length")]
    pub(crate) context_length: usize,
    pub(crate) rows: Vec<Pass>,
    /// Bytes per second that the machine reads at.
    pub(crate) bandwidth: f64,
    /// Multiply-adds of bytes per second with operands in registers.
    pub(crate) peak_int8_macs: f64,
}

fn unknown_length() -> usize {
    usize::MAX
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Pass {
    pub(crate) rows: usize,
    pub(crate) ms: f64,
    pub(crate) tokens_per_second: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) macs_per_second: f64,
}

impl Pass {
    /// Bytes of the file that a pass must read.
    pub(crate) fn bytes(&self) -> f64 {
        self.bytes_per_second * self.ms / 1e3
    }

    /// Multiply-adds of the pass, those of attention apart.
    pub(crate) fn macs(&self) -> f64 {
        self.macs_per_second * self.ms / 1e3
    }
}

impl Forward {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(serde_json::from_str(text.trim())?)
    }

    pub(crate) fn pass(&self, rows: usize) -> Result<Pass> {
        let pass = self.rows.iter().find(|pass| pass.rows == rows).copied();
        pass.with_context(|| format!("it timed no pass of {rows} rows"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Forward, Generation, Models, Run, Sampling, Spec};
    use crate::drafters::{DRAFTERS, PLAIN};
    use crate::launcher::{Launcher, describe};
    use std::path::Path;

    /// An answer of `tokens`, in the shape that `spec generate --json` prints.
    pub(crate) fn answer(tokens: &[u32], rate: f64, drafted: usize, accepted: usize) -> String {
        let count = tokens.len();
        format!(
            r#"{{"tokens": {tokens:?}, "text": "x", "finish_reason": "length", "prompt_tokens": 9, "seed": 1,
                "completion_tokens": {count},
                "timings": {{"load_ms": 900.0, "prefill_ms": 12.0, "decode_ms": 100.0, "draft_ms": 30.0,
                    "verify_ms": 67.5, "sample_ms": 2.0, "rollback_ms": 0.1, "decode_tokens_per_second": {rate}}},
                "speculation": {{"drafter": "n", "rule": "greedy", "rounds": 3, "drafted_rounds": 2,
                    "drafted": {drafted}, "accepted": {accepted}, "acceptance_rate": 0.5, "mean_accepted_length": 1,
                    "tokens_per_round": 2, "accepted_by_position": [{{"drafted": {drafted}, "accepted": {accepted}}}]}}}}"#
        )
    }

    #[test]
    fn a_generation_is_read_and_its_overhead_is_what_neither_model_took() {
        let generation = Generation::parse(&answer(&[5, 6, 7], 31.5, 4, 2)).unwrap();
        assert_eq!((generation.tokens.as_slice(), generation.prompt_tokens), ([5, 6, 7].as_slice(), 9));
        assert_eq!(generation.speculation.accepted_by_position[0].accepted, 2);
        assert!((generation.overhead() - 0.025).abs() < 1e-12);
    }

    #[test]
    fn an_answer_too_short_to_time_and_text_that_is_no_answer_are_refused() {
        let error = Generation::parse(&answer(&[5], 0.0, 0, 0)).unwrap_err().to_string();
        assert!(error.contains("too few to time"), "{error}");
        assert!(Generation::parse("spec: no model").is_err());
    }

    #[test]
    fn passes_are_found_by_their_rows() {
        let text = r#"{"model": "m", "device": "cpu", "context_length": 4096, "bandwidth": 3e10,
            "peak_int8_macs": 7e11, "rows": [{"rows": 8, "ms": 50.0, "p95_ms": 51.0, "tokens_per_second": 160.0,
            "bytes_per_second": 2e10, "macs_per_second": 2e11}]}"#;
        let forward = Forward::parse(text).unwrap();
        assert_eq!(forward.pass(8).unwrap().ms, 50.0);
        assert!(forward.pass(4).unwrap_err().to_string().contains("4 rows"));
    }

    #[test]
    fn a_draft_model_is_named_only_where_the_setting_uses_one() {
        let spec = Spec { program: "spec".into(), launcher: Launcher::default(), threads: 2 };
        let models = Models { target: "t.gguf".into(), draft: Some("d.gguf".into()) };
        let prompt = Path::new("p.txt");
        let line = |drafter, sampling| {
            describe(&spec.generate_command(&Run { models: &models, drafter, prompt, sampling, max_tokens: 8 }))
        };
        let auto = DRAFTERS.iter().find(|drafter| drafter.name == "auto").unwrap();
        assert_eq!(
            line(auto, Sampling::Seeded),
            "spec generate --model t.gguf --threads 2 --draft auto --draft-model d.gguf --temperature 0.8 --seed 1 \
             --max-tokens 8 --json --file p.txt"
        );
        assert!(!line(PLAIN, Sampling::Greedy).contains("d.gguf"));
    }
}
