//! `spec bench sweep`: what draft lengths and rules gain in speed and cost in quality, against plain decoding in the same run.
//!
//! A lossless rule costs nothing, and that is checked and not believed: an answer that differs from the plain one ends the study.

mod bootstrap;
mod figures;
mod plots;
mod quality;
mod report;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use spec_core::{Fixed, RuleName, SamplingParams, Token};
use spec_runtime::{Completion, Engine, Request, RuntimeError, SpeculationStats, StopRules};

use crate::args::BenchSweepArgs;
use crate::session::{Opened, Session};
use crate::{demo, usage};
use figures::Study;
use quality::Teacher;

pub(crate) use quality::bleu;

/// Tokens of the runs before the first that counts: they load the draft model, fill caches, and show what a drafter cannot do.
const WARM_UP: usize = 8;

pub(crate) fn sweep(args: &BenchSweepArgs) -> Result<ExitCode> {
    let rules = args.checked_rules().map_err(usage)?;
    let opened = Opened::open(&args.model.model, args.model.text.pre_tokenizer.as_deref())?;
    let prompts = demo::prompts(&args.prompts, &opened)?;
    let longest = prompts.iter().map(|(_, tokens)| tokens.len()).max().unwrap_or(0);
    let trained = opened.checkpoint.config().context_length;
    if longest.saturating_add(args.max_tokens) > trained {
        return Err(usage(format!(
            "--max-tokens {} behind a prompt of {longest} is past the model's {trained} positions",
            args.max_tokens
        )));
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    let mut session = Session::load(&args.model, &opened, longest + args.max_tokens)?;
    if let Some(warning) = session.device.warning() {
        eprintln!("spec: {warning}");
    }
    let (plain, speculative) = (session.plain_engine(), session.engine());
    let Some(drafter) = speculative.drafter().map(str::to_owned) else {
        return Err(usage("--draft none: there is nothing to try"));
    };
    let settings = rules.iter().flat_map(|&rule| args.lengths.iter().map(move |&length| Setting { rule, length }));
    let bench = Bench { args, settings: settings.collect(), ends: opened.tokenizer().end_ids().to_vec() };
    let runs = bench.run(plain, speculative, &prompts)?;
    session.notes.print();
    let teacher = Teacher::new(&session, opened.tokenizer().real_vocab_size());
    let cases = bench.judged(runs, &prompts, &teacher)?;
    let config = session.target.config();
    let names = prompts.into_iter().map(|(name, _)| name).collect();
    let study = Study::new(args, (config.name.clone(), config.device.clone(), drafter), names, &bench.settings, &cases);
    report::write(&study, &args.out)?;
    plots::write(&study, &args.out)?;
    write!(std::io::stdout(), "{}", report::table(&study))?;
    eprintln!("sweep.json, sweep.csv and the plots are in {}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// A rule and a draft length.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Setting {
    pub(super) rule: RuleName,
    pub(super) length: usize,
}

impl Setting {
    /// Whether its answers are the plain ones, token for token.
    fn repeats_plain(&self, temperature: f32) -> bool {
        let entry = self.rule.entry();
        entry.lossless && (temperature == 0.0 || entry.name == "coupled")
    }

    /// Whether its answers can be compared with the plain ones as texts: with those of another sample there is nothing to compare.
    fn compares_texts(&self, temperature: f32) -> bool {
        temperature == 0.0 || self.rule.entry().name == "coupled"
    }
}

/// An answer to a prompt under a setting.
pub(super) struct Answer {
    pub(super) tokens: Vec<Token>,
    pub(super) text: String,
    pub(super) speculation: SpeculationStats,
    /// Tokens per second, a number for each repeat.
    pub(super) rates: Vec<f64>,
}

impl Answer {
    fn new(completion: Completion) -> Self {
        let rate = rate(&completion);
        let Completion { tokens, text, speculation, .. } = completion;
        Self { tokens, text, speculation, rates: vec![rate] }
    }
}

/// A prompt with a seed: its plain answer, and one for each setting.
pub(super) struct Run {
    prompt: usize,
    seed: u64,
    plain: Option<Answer>,
    answers: Vec<Option<Answer>>,
}

/// An answer beside the plain one.
pub(super) struct Judged {
    pub(super) answer: Answer,
    /// Sum of the target's log-probabilities of its tokens.
    pub(super) logprob: f64,
}

/// A run with what the target thinks of its answers.
pub(super) struct Case {
    /// Number of its prompt.
    pub(super) prompt: usize,
    pub(super) plain: Judged,
    /// By setting.
    pub(super) answers: Vec<Judged>,
}

struct Bench<'a> {
    args: &'a BenchSweepArgs,
    settings: Vec<Setting>,
    ends: Vec<Token>,
}

impl Bench<'_> {
    /// Runs everything as often as is asked for: plain decoding and all settings in turn on each prompt, every other time backwards.
    fn run(&self, mut plain: Engine, mut speculative: Engine, prompts: &[(String, Vec<Token>)]) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        for prompt in 0..prompts.len() {
            for seed in 1..=self.args.seeds {
                let answers = self.settings.iter().map(|_| None).collect();
                runs.push(Run { prompt, seed, plain: None, answers });
            }
        }
        let bar = ProgressBar::new((self.args.repeats * runs.len() * (1 + self.settings.len())) as u64);
        bar.set_style(
            ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        if let Some((_, prompt)) = prompts.first() {
            plain.generate(self.request(prompt, 1, None, WARM_UP), &mut |_| {}).map_err(refused)?;
            for setting in &self.settings {
                let request = self.request(prompt, 1, Some(setting), WARM_UP);
                speculative.generate(request, &mut |_| {}).map_err(refused)?;
            }
        }
        for repeat in 0..self.args.repeats {
            for run in &mut runs {
                let (name, prompt) = &prompts[run.prompt];
                bar.set_message(name.clone());
                let mut order: Vec<Option<usize>> =
                    std::iter::once(None).chain((0..self.settings.len()).map(Some)).collect();
                if repeat % 2 == 1 {
                    order.reverse();
                }
                for at in order {
                    let setting = at.map(|at| &self.settings[at]);
                    let engine = if setting.is_some() { &mut speculative } else { &mut plain };
                    let request = self.request(prompt, run.seed, setting, self.args.max_tokens);
                    let completion = engine.generate(request, &mut |_| {})?;
                    let place = match at {
                        Some(at) => &mut run.answers[at],
                        None => &mut run.plain,
                    };
                    match place {
                        Some(answer) => answer.rates.push(rate(&completion)),
                        None => *place = Some(Answer::new(completion)),
                    }
                    bar.inc(1);
                }
                if repeat == 0 {
                    self.check(name, run)?;
                }
            }
        }
        bar.finish_and_clear();
        Ok(runs)
    }

    /// Plain decoding, or a setting.
    fn request(&self, prompt: &[Token], seed: u64, setting: Option<&Setting>, max_tokens: usize) -> Request {
        let mut request = Request::new(prompt.to_vec(), max_tokens);
        request.stop = StopRules { end_ids: self.ends.clone(), texts: Vec::new(), max_tokens };
        request.sampling = SamplingParams { temperature: self.args.temperature, ..SamplingParams::default() };
        request.seed = Some(seed);
        if let Some(setting) = setting {
            request.rule = Some(setting.rule.into());
            request.loss_budget = self.args.loss_budget;
            request.draft_len = Box::new(Fixed(setting.length));
            request.draft_width = self.args.model.draft_width.unwrap_or(usize::MAX);
        }
        request
    }

    /// Refuses to go on where a lossless rule has changed an answer.
    fn check(&self, prompt: &str, run: &Run) -> Result<()> {
        let Some(plain) = &run.plain else { return Ok(()) };
        for (setting, answer) in self.settings.iter().zip(&run.answers) {
            let Some(answer) = answer else { continue };
            if !setting.repeats_plain(self.args.temperature) || answer.tokens == plain.tokens {
                continue;
            }
            let same = answer.tokens.iter().zip(&plain.tokens).take_while(|(a, b)| a == b).count();
            bail!(
                "{prompt}, seed {}: {} with drafts of {} answers otherwise than plain decoding from token {same} on; a lossless \
                 rule never does: this is a bug, please report it",
                run.seed,
                setting.rule,
                setting.length
            );
        }
        Ok(())
    }

    /// Asks the target what it thinks of each answer; equal ones are asked about once.
    fn judged(&self, runs: Vec<Run>, prompts: &[(String, Vec<Token>)], teacher: &Teacher<'_>) -> Result<Vec<Case>> {
        let bar = ProgressBar::new(runs.len() as u64);
        bar.set_style(
            ProgressStyle::with_template("scoring {bar:30} {pos}/{len}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let mut cases = Vec::with_capacity(runs.len());
        for Run { prompt, plain, answers, .. } in runs {
            let Some(plain) = plain else { continue };
            let mut known: Vec<(Vec<Token>, f64)> = Vec::new();
            let mut judge = |answer: Answer| -> Result<Judged> {
                let before = known.iter().find(|(tokens, _)| *tokens == answer.tokens);
                let logprob = match before {
                    Some(&(_, logprob)) => logprob,
                    None => teacher.score(&prompts[prompt].1, &answer.tokens)?,
                };
                known.push((answer.tokens.clone(), logprob));
                Ok(Judged { answer, logprob })
            };
            let plain = judge(plain)?;
            let answers = answers.into_iter().flatten().map(&mut judge).collect::<Result<_>>()?;
            cases.push(Case { prompt, plain, answers });
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(cases)
    }
}

/// What the flags have asked for and cannot be had.
fn refused(error: RuntimeError) -> anyhow::Error {
    match error {
        RuntimeError::BadRequest { .. } => usage(error.to_string()),
        other => other.into(),
    }
}

fn rate(completion: &Completion) -> f64 {
    completion.timings.tokens_per_second(completion.completion_tokens)
}
