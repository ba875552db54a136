//! Plain and speculative answers to the same prompts, side by side.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::json;
use spec_core::Token;
use spec_runtime::{Completion, Engine, Request, StopRules};

use crate::args::DemoArgs;
use crate::observers::Observers;
use crate::record::Run;
use crate::session::{Opened, Session};
use crate::usage;

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let opened = Opened::open(&args.model.model, args.model.text.pre_tokenizer.as_deref())?;
    let prompts = prompts(&args.prompts, &opened)?;
    let longest = prompts.iter().map(|(_, tokens)| tokens.len()).max().unwrap_or(0);
    let context = longest.saturating_add(args.max_tokens).min(opened.checkpoint.config().context_length);
    let observers = Observers::open(&args.records, &args.model, &opened)?.keeping(args.last_run);
    let mut session = Session::load(&args.model, &opened, context)?;
    if let Some(warning) = session.device.warning() {
        eprintln!("spec: {warning}");
    }
    let mut plain = session.plain_engine();
    let mut speculative = session.engine();
    let drafter = speculative.drafter().unwrap_or("none").to_owned();
    // Plain rounds are told too: they are those that nobody may draft in.
    let run = Run::of("demo", &args.model, &opened, &session, (&drafter, context)).sampling(None, 0.0);
    observers.begin(&run);
    observers.watch(&run, session.notes.writer());
    if !args.json {
        println!("target {}, drafter {drafter}", spec_runtime::Model::config(&*session.target).name);
        println!("device {}", spec_runtime::Model::config(&*session.target).device);
        println!(
            "\n{:<12} {:>6} {:>7} {:>9} {:>9} {:>9} {:>11}",
            "prompt", "equal", "tokens", "plain", "spec", "speed-up", "acceptance"
        );
    }
    let (mut equal, mut drafted, mut ratios) = (true, 0, Vec::new());
    for (name, tokens) in prompts {
        let expected = answer(&mut plain, &opened, args, tokens.clone(), &observers)?;
        let got = answer(&mut speculative, &opened, args, tokens, &observers)?;
        let row = Row::new(&name, &expected, &got);
        equal &= row.equal;
        drafted += got.speculation.drafted;
        ratios.push(row.speedup);
        if args.json { row.print_json(&got) } else { row.print(&got) }
    }
    session.notes.print();
    if !args.json && !ratios.is_empty() {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!("{:<12} {:>42} {mean:>8.2}x", "geometric mean", "");
    }
    if !equal {
        bail!("an answer differs with speculation: that is a bug of ours, please report the table above");
    }
    if drafted == 0 && drafter != "none" {
        bail!("nothing was drafted, so equality shows nothing");
    }
    Ok(ExitCode::SUCCESS)
}

struct Row<'a> {
    name: &'a str,
    equal: bool,
    plain: f64,
    speculative: f64,
    speedup: f64,
}

impl<'a> Row<'a> {
    fn new(name: &'a str, expected: &Completion, got: &Completion) -> Self {
        let rate = |c: &Completion| c.timings.tokens_per_second(c.completion_tokens);
        let (plain, speculative) = (rate(expected), rate(got));
        let equal = expected.tokens == got.tokens && expected.finish == got.finish;
        let speedup = if plain > 0.0 { speculative / plain } else { 1.0 };
        Self { name, equal, plain, speculative, speedup }
    }

    fn print(&self, got: &Completion) {
        println!(
            "{:<12} {:>6} {:>7} {:>7.1}/s {:>7.1}/s {:>8.2}x {:>9.0} %",
            self.name,
            if self.equal { "yes" } else { "NO" },
            got.completion_tokens,
            self.plain,
            self.speculative,
            self.speedup,
            100.0 * got.speculation.acceptance_rate()
        );
    }

    fn print_json(&self, got: &Completion) {
        let line = json!({
            "prompt": self.name,
            "equal": self.equal,
            "completion_tokens": got.completion_tokens,
            "drafted": got.speculation.drafted,
            "accepted": got.speculation.accepted,
            "acceptance_rate": got.speculation.acceptance_rate(),
            "tokens_per_round": got.speculation.tokens_per_round(),
            "plain_tokens_per_second": self.plain,
            "tokens_per_second": self.speculative,
            "speedup": self.speedup,
        });
        println!("{line}");
    }
}

fn answer(
    engine: &mut Engine,
    opened: &Opened,
    args: &DemoArgs,
    prompt: Vec<Token>,
    observers: &Observers,
) -> Result<Completion> {
    let stop =
        StopRules { end_ids: opened.tokenizer().end_ids().to_vec(), texts: Vec::new(), max_tokens: args.max_tokens };
    let draft_len = args.model.lengths().map_err(usage)?;
    let draft_width = args.model.draft_width.unwrap_or(usize::MAX);
    let observers = observers.for_request();
    let request = Request { stop, draft_len, draft_width, observers, ..Request::new(prompt, args.max_tokens) };
    Ok(engine.generate(request, &mut |_| {})?)
}

/// The directory's `.txt` files by name, tokenized.
pub(crate) fn prompts(directory: &Path, opened: &Opened) -> Result<Vec<(String, Vec<Token>)>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("--prompts {}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    if files.is_empty() {
        bail!("--prompts {}: there is no .txt file in it", directory.display());
    }
    let tokens = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, opened.tokenizer().encode(&text, true)?))
    };
    files.into_iter().map(tokens).collect()
}
