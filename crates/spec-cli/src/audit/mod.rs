//! `spec audit`: whether the tokens of this build, on these models, have the law that they should.

mod case;
mod report;

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use spec_core::{Fixed, LengthPolicy, Token};
use spec_runtime::audit::{Audit, Guesses};
use spec_runtime::{Request, RuntimeError, StopRules};

use crate::args::{AuditArgs, DraftLen};
use crate::memory::Room;
use crate::session::{Opened, Session};
use crate::{demo, generate, usage};
use case::Case;
use report::{Found, Judgement};

/// What is run, whatever the case.
struct Bench {
    args: AuditArgs,
    opened: Opened,
    session: Session,
    prompts: Vec<Vec<Token>>,
    context: usize,
    seed: u64,
}

pub(crate) fn run(args: AuditArgs) -> Result<ExitCode> {
    args.model.lengths().map_err(usage)?;
    let opened = Opened::open(&args.model.model, args.model.text.pre_tokenizer.as_deref())?;
    let vocab = opened.tokenizer().real_vocab_size();
    let single = Case::asked(&args, args.sampling.params(vocab).map_err(usage)?)?;
    let prompts = prompts(&args, &opened)?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let (context, trained) = (longest.saturating_add(args.max_tokens), opened.checkpoint.config().context_length);
    if context > trained {
        return Err(usage(format!(
            "a prompt of {longest} tokens and --max-tokens {} are more than the {trained} positions of the model",
            args.max_tokens
        )));
    }
    let cases = if args.all { case::all(&args.model) } else { vec![single] };
    // One text is written while the one before it may still be held by who reads the laws.
    let session = Session::load(&args.model, &opened, Room { context, parallel: 2, kv_tokens: None })?;
    let seed = args.sampling.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    // A level for all cases together.
    let alpha = args.alpha / cases.len() as f64;
    let mut bench = Bench { args, opened, session, prompts, context, seed };
    let is_table = bench.args.all && !bench.args.json;
    if is_table {
        println!("target {}, {} tokens each, seed {seed}", bench.session.target.config().name, bench.args.draws);
        println!("{}", report::HEAD);
    }
    let mut failed = Vec::new();
    for case in &cases {
        let found = bench.audit(case, alpha)?;
        match (bench.args.json, is_table) {
            (true, _) => println!("{}", found.json()),
            (false, true) => println!("{}", found.row()),
            (false, false) => println!("{}", found.text()),
        }
        failed.extend(found.failure(bench.args.all));
    }
    bench.session.notes.print();
    match failed.len() {
        0 => Ok(ExitCode::SUCCESS),
        _ if is_table => bail!("{} of {} cases failed: {}", failed.len(), cases.len(), failed.join("; ")),
        _ => bail!("{}", failed.join("; ")),
    }
}

impl Bench {
    fn audit<'a>(&mut self, case: &'a Case, alpha: f64) -> Result<Found<'a>> {
        self.args.model.draft = case.draft;
        let mut drafting = self.session.redraft(&self.args.model, &self.opened, self.context)?;
        let mut engine = drafting.engine();
        let vocab = self.opened.tokenizer().real_vocab_size();
        let drafter = engine.drafter().map(str::to_owned);
        let progress = ProgressBar::new(self.args.draws as u64).with_style(style());
        progress.set_message(case.to_string());
        let mut audit = Audit::new(&mut engine, self.session.plain_laws(vocab), self.seed);
        if drafter.is_some() {
            // Another copy: what has drafted for a text knows how it goes on.
            let mut guessing = self.session.redraft(&self.args.model, &self.opened, self.context)?;
            let guesses = guessing.drafter.take().ok_or_else(|| anyhow!("the drafter was there a moment ago"))?;
            audit = audit.with_guesses(Guesses::new(guesses));
            if let Some(laws) = guessing.draft_laws(vocab) {
                audit = audit.against_draft(laws);
            }
        }
        if case.draws_afresh() {
            audit = audit.with_places();
        }
        if case.equals_plain() {
            audit = audit.equal_to(self.session.plain_engine());
        }
        let (mut left, mut texts) = (self.args.draws, 0);
        while left > 0 {
            let prompt = &self.prompts[texts % self.prompts.len()];
            let seed = self.seed.wrapping_add(texts as u64);
            match audit.text(&|| self.request(case, prompt, seed), left) {
                Ok(tokens) => left -= tokens,
                Err(RuntimeError::BadRequest { reason, .. }) if self.args.all => {
                    progress.finish_and_clear();
                    return Ok(Found::new(case, drafter, Err(reason), self.seed));
                }
                Err(error @ RuntimeError::BadRequest { .. }) => return Err(usage(error.to_string())),
                Err(error) => return Err(error.into()),
            }
            texts += 1;
            progress.set_position((self.args.draws - left) as u64);
        }
        progress.finish_and_clear();
        let judgement = Judgement { verdict: audit.verdict(alpha), speculation: audit.speculation().clone(), texts };
        Ok(Found::new(case, drafter, Ok(judgement), self.seed))
    }

    fn request(&self, case: &Case, prompt: &[Token], seed: u64) -> Request {
        let max_tokens = self.args.max_tokens;
        let (sampling, lengths) = (&self.args.sampling, self.lengths());
        // The flags speak of the one case that they name.
        let (rule, draft_len) = if self.args.all { (None, lengths) } else { sampling.rule(lengths) };
        Request {
            sampling: case.sampling.clone(),
            seed: Some(seed),
            stop: StopRules { end_ids: self.opened.tokenizer().end_ids().to_vec(), max_tokens, ..StopRules::default() },
            rule: Some(rule.unwrap_or_else(|| case.rule.into())),
            loss_budget: sampling.loss_budget.filter(|_| !self.args.all),
            draft_len,
            draft_width: self.args.model.draft_width.unwrap_or(usize::MAX),
            ..Request::new(prompt.to_vec(), max_tokens)
        }
    }

    /// As the flags say; where they leave it to the engine a fixed length, since one that stops drafting where it does not pay leaves
    /// nothing to be audited.
    fn lengths(&self) -> Box<dyn LengthPolicy> {
        let model = &self.args.model;
        match (model.draft_len, model.length_policy) {
            (DraftLen::Auto, None) if model.preset.is_none() => Box::new(Fixed(5)),
            // The flags have been checked.
            _ => model.lengths().unwrap_or_else(|_| Box::new(Fixed(5))),
        }
    }
}

fn prompts(args: &AuditArgs, opened: &Opened) -> Result<Vec<Vec<Token>>> {
    if let Some(folder) = &args.prompts {
        let prompts: Vec<Vec<Token>> = demo::prompts(folder, opened)?.into_iter().map(|(_, tokens)| tokens).collect();
        return match prompts.iter().any(Vec::is_empty) {
            true => Err(usage(format!("--prompts {}: a file is empty", folder.display()))),
            false => Ok(prompts),
        };
    }
    let text = generate::read_prompt(&args.text)?;
    let text = text.ok_or_else(|| usage("no prompt: give -p TEXT, -f FILE or --prompts DIR"))?;
    Ok(vec![generate::encode_prompt(&text, opened)?])
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} tokens").unwrap_or_else(|_| ProgressStyle::default_bar())
}
