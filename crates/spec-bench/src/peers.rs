//! `cargo xtask bench peers`: llama.cpp on the same files and prompts, in the same rounds.

pub(crate) mod build;
mod outputs;
mod report;
mod rivals;
mod settings;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::contention::{Contention, Ticks};
use crate::drafters::{self, Drafter};
use crate::engine::{Generation, Models, Passes, Run, Sampling, Spec};
use crate::generations::{Case, Generations};
use crate::launcher::{Launcher, capture, describe};
use crate::options::{Common, file_name, write};
use crate::progress::Progress;
use crate::prompts::Prompt;
use outputs::Decoded;
use rivals::Rivals;
use settings::Setting;

/// The prompts that something is expected of beside a peer.
const PROMPTS: [&str; 2] = ["code-write", "code-edit"];
/// Rounds that every setting of the peer takes part in.
const TRIAL_ROUNDS: usize = 2;
const PREFILL: usize = 512;
/// Tokens that llama-bench decodes; ours decodes behind half of them, the mean of its contexts.
const DECODED: usize = 64;
const SEQUENCES: usize = 8;
/// Its prompt and its tokens of each sequence in llama-batched-bench: the mean context is again half of DECODED.
const BATCHED: (usize, usize) = (8, 48);
/// Positions that llama.cpp makes room for.
const CONTEXT: &str = "4096";
const PASS_ROUNDS: usize = 9;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// More models whose decoding is compared; may be given several times
    #[arg(long, value_name = "FILE")]
    also: Vec<PathBuf>,

    /// Only these settings of ours, and plain decoding: ngram, free, model, auto, off
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    drafters: Vec<String>,

    /// Only this setting of llama.cpp's, and plain decoding; may be given several times
    #[arg(long, value_name = "NAME")]
    setting: Vec<String>,

    /// Leave out the generations, and compare passes alone
    #[arg(long)]
    passes_only: bool,

    /// Leave out the passes, and compare generations alone
    #[arg(long, conflicts_with = "passes_only")]
    generations_only: bool,

    /// Where llama.cpp is built and kept
    #[arg(long, value_name = "DIR")]
    cache: PathBuf,

    /// A folder of llama.cpp's programs to use instead of building them
    #[arg(long, value_name = "DIR")]
    llama_programs: Option<PathBuf>,
}

/// One model's passes, ours and theirs, by round; tokens per second.
#[derive(Clone, Default)]
pub(crate) struct PassRates {
    pub(crate) model: String,
    pub(crate) decode: Sides,
    pub(crate) prefill: Sides,
    /// Eight rows of one sequence with all logits, and eight sequences.
    pub(crate) eight: Sides,
}

#[derive(Clone, Default)]
pub(crate) struct Sides {
    pub(crate) ours: Vec<f64>,
    pub(crate) theirs: Vec<f64>,
}

/// All that is measured.
pub(crate) struct Measured {
    pub(crate) passes: Vec<PassRates>,
    pub(crate) generations: Generations,
    /// By prompt.
    pub(crate) rivals: Vec<(String, Rivals)>,
    pub(crate) contention: Option<Contention>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let models = common.models()?;
    for file in &options.also {
        ensure!(file.is_file(), "no model at {}; give the path of a GGUF file", file.display());
    }
    let ours = drafters::select(&options.drafters, models.draft.is_some()).map_err(anyhow::Error::msg)?;
    let theirs = settings::select(&options.setting, models.draft.is_some()).map_err(anyhow::Error::msg)?;
    let mut prompts = common.prompts()?;
    if common.prompts.is_empty() && PROMPTS.iter().all(|name| prompts.iter().any(|prompt| prompt.name == *name)) {
        prompts.retain(|prompt| PROMPTS.contains(&prompt.name.as_str()));
    }
    if options.passes_only {
        prompts.clear();
    }
    let programs = match &options.llama_programs {
        None => build::programs(&options.cache, &settings::PROGRAMS)?,
        Some(folder) => {
            if let Some(program) = build::missing_in(folder, &settings::PROGRAMS) {
                bail!("{} has no {program}; leave --llama-programs out to have them built", folder.display());
            }
            folder.clone()
        }
    };
    let out = common.out()?;
    // In its order: their reader drops one newline at the end, so that the copies have one more.
    let copies = prompts.iter().map(|prompt| copy_for_them(prompt, out)).collect::<Result<Vec<_>>>()?;

    let repeats = common.repeats();
    let mut files: Vec<&Path> =
        std::iter::once(&models.target).chain(&models.draft).chain(&options.also).map(PathBuf::as_path).collect();
    if options.generations_only {
        files.clear();
    }
    let trial = TRIAL_ROUNDS.min(repeats.div_ceil(2));
    let passes = repeats * (files.len() * 3 + usize::from(!files.is_empty()));
    let total = passes + prompts.len() * (repeats * ours.len() + trial * theirs.len());
    let spec = common.spec();
    let mut bench = Bench {
        spec: &spec,
        peer: Peer { programs, launcher: common.launcher(), threads: common.threads().to_string() },
        models: &models,
        ours: &ours,
        max_tokens: common.max_tokens(),
        measured: Measured {
            passes: files.iter().map(|file| PassRates { model: file_name(file), ..PassRates::default() }).collect(),
            generations: Generations::new(ours.iter().map(|drafter| drafter.name).collect()),
            rivals: prompts.iter().map(|prompt| (prompt.name.clone(), Rivals::new(theirs.clone()))).collect(),
            contention: None,
        },
        progress: Progress::new(total),
    };
    let begun = Ticks::now();
    for round in 0..repeats {
        for (at, file) in files.iter().enumerate() {
            bench.passes(at, file)?;
        }
        for (at, prompt) in prompts.iter().enumerate() {
            bench.prompt(round, at, prompt, &copies[at])?;
        }
        if round + 1 == trial {
            for (prompt, rivals) in &mut bench.measured.rivals {
                let left = rivals.drop_slow();
                eprintln!("{prompt}: llama.cpp goes on with {}", left.join("; "));
            }
        }
    }
    bench.measured.contention = Contention::since(begun);
    report::write(&bench.measured, common, &models, out)
}

struct Bench<'a> {
    spec: &'a Spec,
    peer: Peer,
    models: &'a Models,
    ours: &'a [&'static Drafter],
    max_tokens: usize,
    measured: Measured,
    progress: Progress,
}

impl Bench<'_> {
    /// Decoding and prefill of one model, and of the target eight rows, theirs and ours in turn.
    fn passes(&mut self, at: usize, file: &Path) -> Result<()> {
        let name = file_name(file);
        let theirs = self.peer.bench(file)?;
        self.progress.done(&format!("{name}, llama.cpp: {:.1} and {:.0} tokens/s", theirs.decode, theirs.prefill));
        let rows = Passes { rows: vec![1, SEQUENCES], context: DECODED / 2, all_logits: true, rounds: PASS_ROUNDS };
        let forward = self.spec.forward(file, &rows)?;
        let (one, eight) = (forward.pass(1)?, forward.pass(SEQUENCES)?);
        self.progress.done(&format!("{name}, ours: {:.1} tokens/s", one.tokens_per_second));
        let prefill = Passes { rows: vec![PREFILL], context: 0, all_logits: false, rounds: 3 };
        let prefill = self.spec.forward(file, &prefill)?.pass(PREFILL)?;
        self.progress.done(&format!("{name}, ours, prefill: {:.0} tokens/s", prefill.tokens_per_second));
        let rates = &mut self.measured.passes[at];
        rates.decode.push(one.tokens_per_second, theirs.decode);
        rates.prefill.push(prefill.tokens_per_second, theirs.prefill);
        if at == 0 {
            let theirs = self.peer.batched(file)?;
            rates.eight.push(eight.tokens_per_second, theirs);
            self.progress.done(&format!(
                "{name}, {SEQUENCES} at once: {:.0} tokens/s, theirs {theirs:.0}",
                eight.tokens_per_second
            ));
        }
        Ok(())
    }

    /// Every setting of both sides that is still in, once, in an order that begins elsewhere in each round.
    fn prompt(&mut self, round: usize, at: usize, prompt: &Prompt, copy: &Path) -> Result<()> {
        let mut settings: Vec<Side> = (0..self.ours.len()).map(Side::Ours).collect();
        settings.extend(self.measured.rivals[at].1.running().map(Side::Theirs));
        let first = round % settings.len();
        settings.rotate_left(first);
        for side in settings {
            match side {
                Side::Ours(drafter) => {
                    let generation = self.generate(drafter, prompt)?;
                    let case = Case { prompt: prompt.name.clone(), sampling: Sampling::Greedy };
                    let prompt_tokens = generation.prompt_tokens;
                    self.measured.generations.record(&case, drafter, generation)?;
                    self.measured.rivals[at].1.expect_prompt(prompt_tokens)?;
                }
                Side::Theirs(index) => self.answer(at, index, prompt, copy)?,
            }
        }
        Ok(())
    }

    fn generate(&mut self, drafter: usize, prompt: &Prompt) -> Result<Generation> {
        let generation = self.spec.generate(&Run {
            models: self.models,
            drafter: self.ours[drafter],
            prompt: &prompt.file,
            sampling: Sampling::Greedy,
            max_tokens: self.max_tokens,
        })?;
        let rate = generation.timings.decode_tokens_per_second;
        self.progress.done(&format!("{}, ours, {}: {rate:.1} tokens/s", prompt.name, self.ours[drafter].name));
        Ok(generation)
    }

    fn answer(&mut self, at: usize, index: usize, prompt: &Prompt, copy: &Path) -> Result<()> {
        let rivals = &mut self.measured.rivals[at].1;
        let setting = rivals.setting(index);
        let said = match self.peer.generate(setting, self.models, copy, self.max_tokens) {
            Ok(decoded) => {
                rivals.record(index, &decoded).with_context(|| prompt.name.clone())?;
                format!("{:.1} tokens/s", decoded.tokens_per_second)
            }
            // Plain decoding has to run; a setting that does not is shown as such.
            Err(error) if setting.name == settings::PLAIN.name => return Err(error),
            Err(error) => {
                rivals.fail(index, format!("{error:#}"));
                format!("failed: {error:#}")
            }
        };
        self.progress.done(&format!("{}, llama.cpp, {}: {said}", prompt.name, setting.name));
        Ok(())
    }
}

enum Side {
    Ours(usize),
    Theirs(usize),
}

impl Sides {
    fn push(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
    }
}

/// llama.cpp's programs, and what all their runs have in common.
struct Peer {
    programs: PathBuf,
    launcher: Launcher,
    threads: String,
}

impl Peer {
    fn generate(&self, setting: &Setting, models: &Models, prompt: &Path, max_tokens: usize) -> Result<Decoded> {
        let mut command = self.launcher.command(&self.programs.join(setting.program));
        command.arg("--model").arg(&models.target).arg("--file").arg(prompt);
        if let Some(draft) = models.draft.as_ref().filter(|_| setting.needs_draft) {
            command.arg("--spec-draft-model").arg(draft).args(["--spec-draft-threads", &self.threads]);
        }
        // One candidate is the quickest form of taking the likeliest token.
        command.args(["--temp", "0", "--samplers", "top_k", "--top-k", "1", "--no-escape", "--ctx-size", CONTEXT]);
        command.args(["--threads", &self.threads, "--predict", &max_tokens.to_string()]).args(setting.arguments);
        let printed = capture(&mut command)?;
        outputs::decoded(&printed.stderr).with_context(|| format!("`{}`", describe(&command)))
    }

    fn bench(&self, model: &Path) -> Result<outputs::Bench> {
        let mut command = self.launcher.command(&self.programs.join("llama-bench"));
        command.arg("-m").arg(model).args(["-p", &PREFILL.to_string(), "-n", &DECODED.to_string()]);
        command.args(["-t", &self.threads, "-r", "1", "-o", "json"]);
        let printed = capture(&mut command)?;
        outputs::bench(&printed.stdout).with_context(|| format!("`{}`", describe(&command)))
    }

    fn batched(&self, model: &Path) -> Result<f64> {
        let [prompt, tokens, sequences] = [BATCHED.0, BATCHED.1, SEQUENCES].map(|number| number.to_string());
        let mut command = self.launcher.command(&self.programs.join("llama-batched-bench"));
        command.arg("-m").arg(model).args(["-c", CONTEXT, "-npp", &prompt, "-ntg", &tokens, "-npl", &sequences]);
        command.args(["-t", &self.threads, "--output-format", "jsonl"]);
        let printed = capture(&mut command)?;
        outputs::batched(&printed.stdout, SEQUENCES).with_context(|| format!("`{}`", describe(&command)))
    }
}

fn copy_for_them(prompt: &Prompt, out: &Path) -> Result<PathBuf> {
    let folder = out.join("prompts");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let text = std::fs::read_to_string(&prompt.file).with_context(|| prompt.file.display().to_string())?;
    let path = folder.join(format!("{}.txt", prompt.name));
    write(&path, &format!("{text}\n"))?;
    Ok(path)
}
