use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use spec_core::Token;
use spec_model::Message;
use spec_runtime::{CancelToken, Constraint, DraftWith, Grammars, Request, RuntimeError};

use crate::args::{GenerateArgs, PromptArgs};
use crate::observers::Observers;
use crate::printer::Printer;
use crate::record::Run;
use crate::session::{Opened, Session};
use crate::{color, report, usage};

pub(crate) fn run(args: GenerateArgs) -> Result<ExitCode> {
    let draft_len = args.model.lengths().map_err(usage)?;
    let opened = Opened::open(&args.model.model, args.model.text.pre_tokenizer.as_deref())?;
    let vocab = opened.tokenizer().real_vocab_size();
    let sampling = args.sampling.params(vocab).map_err(usage)?;
    let prompt = prompt_tokens(&args, &opened)?;
    let stop = args.stop.rules(opened.tokenizer().end_ids(), vocab, args.max_tokens).map_err(usage)?;
    let context = context(&args, prompt.len(), opened.checkpoint.config().context_length)?;
    let constraint = constraint(&args, &opened)?;

    let observers = Observers::open(&args.records, &args.model, &opened)?.keeping(args.last_run);

    let mut session = Session::load(&args.model, &opened, context)?;
    let mut engine = session.engine();
    let drafter = engine.drafter().unwrap_or("none").to_owned();
    let run = Run::of("generate", &args.model, &opened, &session, (&drafter, context));
    let run = Run { prompt_tokens: Some(prompt.len()), ..run.sampling(args.sampling.rule, args.sampling.temperature) };
    observers.begin(&run);
    observers.watch(&run, session.notes.writer());
    let cancel = CancelToken::new();
    let (rule, draft_len) = args.sampling.rule(draft_len);
    let request = Request {
        prompt,
        sampling,
        seed: args.sampling.seed,
        choice: 0,
        stop,
        rule,
        loss_budget: args.sampling.loss_budget,
        draft_len,
        draft_width: args.model.draft_width.unwrap_or(usize::MAX),
        logprobs: args.logprobs,
        constraint,
        observers: observers.for_request(),
        cancel: cancel.clone(),
        tenant: crate::session::TENANT,
        draft_with: DraftWith::All,
    };

    let shown = args.show.on(&std::io::stdout());
    let mut printer = match args.json {
        true => None,
        false => {
            let mut printer = Printer::new(args.output, std::io::stdout(), cancel)?;
            if let Some(shown) = shown {
                printer.show(shown, Arc::clone(&session.vocabulary) as _);
            }
            Some(printer)
        }
    };
    let result = engine.generate(request, &mut |emitted| {
        if let Some(printer) = &mut printer {
            printer.print(emitted);
        }
    });
    // First what was said, whole, then what went wrong.
    let printed = printer.map_or(Ok(()), |printer| printer.finish(std::io::stdout().is_terminal()));
    let completion = result.map_err(|error| match error {
        RuntimeError::BadRequest { .. } => usage(error.to_string()),
        other => other.into(),
    })?;
    printed?;
    session.notes.print();
    if args.json {
        writeln!(std::io::stdout(), "{}", report::json(&completion, &drafter, session.load))?;
    } else {
        if let Some(shown) = shown {
            eprintln!("{}", color::legend(shown));
        }
        eprintln!("{}", report::footer(&completion, &drafter, session.device.warning()));
    }
    Ok(ExitCode::SUCCESS)
}

fn prompt_tokens(args: &GenerateArgs, opened: &Opened) -> Result<Vec<Token>> {
    if let Some(ids) = &args.ids {
        let vocab = opened.tokenizer().real_vocab_size();
        if let Some((index, id)) = ids.iter().enumerate().find(|&(_, &id)| id as usize >= vocab) {
            return Err(usage(format!(
                "--ids: id {id} (number {}) is not in the vocabulary of {vocab} tokens",
                index + 1
            )));
        }
        return Ok(ids.clone());
    }
    let text = read_prompt(&args.text)?.ok_or_else(|| usage("no prompt: give -p TEXT, -f FILE or --ids 1,2,3"))?;
    let text = if args.chat {
        let template = opened.checkpoint.chat_template()?.ok_or_else(|| {
            usage(format!("--chat: {} has no chat template; leave the flag out", args.model.model.display()))
        })?;
        template.render(&[Message::new("user", &text)])?
    } else {
        text
    };
    encode_prompt(&text, opened)
}

/// The tokens of a prompt; at least one.
pub(crate) fn encode_prompt(text: &str, opened: &Opened) -> Result<Vec<Token>> {
    let tokens = opened.tokenizer().encode(text, true)?;
    if tokens.is_empty() {
        return Err(usage("the prompt is empty; give some text"));
    }
    Ok(tokens)
}

/// What the answer has to be, where the flags say so.
fn constraint(args: &GenerateArgs, opened: &Opened) -> Result<Option<Box<dyn Constraint>>> {
    if args.json_schema.is_none() && !args.json_object {
        return Ok(None);
    }
    let grammars = Grammars::new(&*opened.vocabulary, opened.tokenizer().end_ids())?;
    let grammar = match &args.json_schema {
        Some(path) => {
            let schema = std::fs::read_to_string(path).with_context(|| format!("--json-schema {}", path.display()))?;
            grammars.json_schema(&schema).map_err(|error| match error {
                RuntimeError::BadRequest { reason, .. } => usage(format!("--json-schema {}: {reason}", path.display())),
                other => other.into(),
            })?
        }
        None => grammars.json_object()?,
    };
    Ok(Some(Box::new(grammar)))
}

/// The text of a prompt, where the flags name one.
pub(crate) fn read_prompt(args: &PromptArgs) -> Result<Option<String>> {
    match (&args.prompt, &args.file) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => read_file(path).map(Some),
        (None, None) => Ok(None),
    }
}

fn read_file(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).context("reading the prompt from standard input")?;
    } else {
        bytes = std::fs::read(path).with_context(|| format!("reading the prompt from {}", path.display()))?;
    }
    String::from_utf8(bytes).with_context(|| format!("the prompt in {} is not UTF-8", path.display()))
}

/// Positions to make room for, or why the request does not fit.
fn context(args: &GenerateArgs, prompt: usize, trained: usize) -> Result<usize> {
    let wanted = args.context.unwrap_or_else(|| trained.min(prompt.saturating_add(args.max_tokens.max(1))));
    if wanted > trained {
        return Err(usage(format!("--context {wanted}: the model was trained for {trained} positions")));
    }
    if args.max_tokens > 0 && prompt >= wanted {
        let limit = if args.context.is_some() { "--context" } else { "the model" };
        return Err(usage(format!(
            "the prompt has {prompt} tokens, {limit} allows {wanted} with the answer; shorten the prompt"
        )));
    }
    Ok(wanted.max(1))
}
