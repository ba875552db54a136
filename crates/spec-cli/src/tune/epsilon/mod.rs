//! `spec tune epsilon`: the largest tolerance whose answers stay near enough to the target's own.

mod search;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use spec_core::{Epsilon, Fixed, Greedy, LengthPolicy, Token};
use spec_runtime::{Completion, Engine, Request, RequestRule, SpeculationStats, StopRules};

use crate::args::{DraftLen, TuneEpsilonArgs};
use crate::bench::bleu;
use crate::session::{Opened, Session};
use crate::{demo, usage};
use search::{Found, search};

/// Tokens drafted a round unless the flags say so: under a lossy rule what is drafted decides what is forgiven, and a length that
/// follows the clock would make each run another.
const LENGTH: usize = 5;

/// What an epsilon came to.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Tried {
    /// 100 less the corpus BLEU against the plain answers.
    bleu_drop: f64,
    /// Share of answers with the plain one's token ids.
    same: f64,
    acceptance_rate: f64,
    drafted: usize,
    /// Tokens per second over those of plain decoding.
    speedup: f64,
    /// Tokens that the exact rule would not have kept.
    forgiven: usize,
}

pub(crate) fn run(args: &TuneEpsilonArgs) -> Result<ExitCode> {
    args.model.lengths().map_err(usage)?;
    let opened = Opened::open(&args.model.model, args.model.text.pre_tokenizer.as_deref())?;
    let prompts = demo::prompts(&args.prompts, &opened)?;
    let longest = prompts.iter().map(|(_, tokens)| tokens.len()).max().unwrap_or(0);
    let context = longest.saturating_add(args.max_tokens).min(opened.checkpoint.config().context_length);
    let mut session = Session::load(&args.model, &opened, context)?;
    let (mut plain, mut speculative) = (session.plain_engine(), session.engine());
    if speculative.drafter().is_none() {
        return Err(usage("--draft none: without drafts there is nothing to tolerate"));
    }
    let bar = ProgressBar::new_spinner();
    let answers = |engine: &mut Engine, what: String, rule: &dyn Fn() -> RequestRule| -> Result<Vec<Completion>> {
        let answer = |(name, tokens): &(String, Vec<Token>)| {
            bar.set_message(format!("{what}: {name}"));
            bar.tick();
            Ok(engine.generate(request(args, &opened, tokens, rule()), &mut |_| {})?)
        };
        prompts.iter().map(answer).collect()
    };
    let greedy = || RequestRule::Own(Box::new(Greedy));
    let expected = answers(&mut plain, "plain".to_owned(), &greedy)?;
    // The draft model is loaded by the first of these.
    let exact = compared(&expected, &answers(&mut speculative, "greedy".to_owned(), &greedy)?);
    let found = search(args.start, |epsilon| {
        let rule = move || RequestRule::Own(Box::new(Epsilon(epsilon)));
        let tried = compared(&expected, &answers(&mut speculative, format!("epsilon {epsilon}"), &rule)?);
        // Whatever is tolerated costs nothing where nothing is drafted.
        ensure!(
            tried.drafted > 0,
            "nothing was drafted with epsilon {epsilon}, which shows nothing: it judges drafts of a draft model (--draft-model FILE) \
             in answers of more than one token"
        );
        Ok((tried.bleu_drop <= args.max_bleu_drop, tried))
    })?;
    bar.finish_and_clear();
    session.notes.print();
    let text = if args.json { object(args, exact, &found) + "\n" } else { table(args, exact, &found)? };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn request(args: &TuneEpsilonArgs, opened: &Opened, prompt: &[Token], rule: RequestRule) -> Request {
    let end_ids = opened.tokenizer().end_ids().to_vec();
    let model = &args.model;
    let is_chosen = model.draft_len != DraftLen::Auto || model.length_policy.is_some() || model.preset.is_some();
    // The flags have been checked.
    let lengths = is_chosen.then(|| model.lengths().ok()).flatten();
    Request {
        stop: StopRules { end_ids, texts: Vec::new(), max_tokens: args.max_tokens },
        draft_len: lengths.unwrap_or_else(|| Box::new(Fixed(LENGTH)) as Box<dyn LengthPolicy>),
        draft_width: model.draft_width.unwrap_or(usize::MAX),
        rule: Some(rule),
        ..Request::new(prompt.to_vec(), args.max_tokens)
    }
}

/// Answers beside those of plain decoding.
fn compared(expected: &[Completion], got: &[Completion]) -> Tried {
    let pairs = expected.iter().zip(got).map(|(one, other)| (one.text.as_str(), other.text.as_str()));
    let (references, texts): (Vec<&str>, Vec<&str>) = pairs.unzip();
    let same = expected.iter().zip(got).filter(|(one, other)| one.tokens == other.tokens).count();
    let mut speculation = SpeculationStats::default();
    got.iter().for_each(|answer| speculation += &answer.speculation);
    let rate = |answers: &[Completion]| {
        let tokens: usize = answers.iter().map(|answer| answer.completion_tokens.saturating_sub(1)).sum();
        tokens as f64
            / answers.iter().map(|answer| answer.timings.decode.as_secs_f64()).sum::<f64>().max(f64::MIN_POSITIVE)
    };
    Tried {
        bleu_drop: 100.0 - bleu(&references, &texts),
        same: same as f64 / got.len().max(1) as f64,
        acceptance_rate: speculation.acceptance_rate(),
        drafted: speculation.drafted,
        speedup: rate(got) / rate(expected).max(f64::MIN_POSITIVE),
        forgiven: speculation.forgiven.count,
    }
}

/// The flags that were found, and what is expected of them.
fn recommended(found: &Found<Tried>) -> Option<(f64, &Tried)> {
    let epsilon = found.epsilon?;
    found.tried.iter().find(|(tried, _)| *tried == epsilon).map(|(epsilon, tried)| (*epsilon, tried))
}

fn object(args: &TuneEpsilonArgs, exact: Tried, found: &Found<Tried>) -> String {
    let tried: Vec<_> =
        found.tried.iter().map(|(epsilon, tried)| json!({ "epsilon": epsilon, "figures": tried })).collect();
    let best = recommended(found);
    json!({
        "max_bleu_drop": args.max_bleu_drop,
        "greedy": exact,
        "tried": tried,
        "recommended": best.map(|(epsilon, tried)| json!({ "epsilon": epsilon, "flags": flags(epsilon), "figures": tried })),
    })
    .to_string()
}

fn flags(epsilon: f64) -> String {
    format!("--rule epsilon:{epsilon}")
}

fn table(args: &TuneEpsilonArgs, exact: Tried, found: &Found<Tried>) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "{:<9} {:>11} {:>6} {:>11} {:>9} {:>9}",
        "epsilon", "BLEU drop", "same", "acceptance", "speed-up", "forgiven"
    )?;
    let exact = std::iter::once(("greedy".to_owned(), &exact));
    let tried = found.tried.iter().map(|(epsilon, tried)| (epsilon.to_string(), tried));
    for (name, tried) in exact.chain(tried) {
        writeln!(
            out,
            "{name:<9} {:>9.2} % {:>4.0} % {:>9.0} % {:>8.2}x {:>9}",
            tried.bleu_drop,
            100.0 * tried.same,
            100.0 * tried.acceptance_rate,
            tried.speedup,
            tried.forgiven
        )?;
    }
    let limit = args.max_bleu_drop;
    match recommended(found) {
        Some((epsilon, tried)) => writeln!(
            out,
            "\nrecommended: {}  (BLEU falls by {:.2} %, {limit} % are allowed)",
            flags(epsilon),
            tried.bleu_drop
        )?,
        None => writeln!(
            out,
            "\nrecommended: no epsilon; even 0 costs more than {limit} % of BLEU, and lossless rules cost none"
        )?,
    }
    Ok(out)
}
