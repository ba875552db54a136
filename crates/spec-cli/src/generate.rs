use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use spec_core::{SamplingParams, Token};
use spec_model::Message;
use spec_runtime::{CancelToken, Constraint, Grammars, Request, RuntimeError, StopRules};

use crate::args::GenerateArgs;
use crate::printer::Printer;
use crate::session::{Opened, Session};
use crate::{report, usage};

pub(crate) fn run(args: GenerateArgs) -> Result<ExitCode> {
    let draft_len = args.model.lengths().map_err(usage)?;
    let sampling = SamplingParams {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repeat_penalty: args.repeat_penalty,
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        penalty_window: args.penalty_window,
        logit_bias: args.logit_bias.clone(),
    };
    let opened = Opened::open(&args.model.model, args.model.text.pre_tokenizer.as_deref())?;
    let vocab = opened.tokenizer().real_vocab_size();
    sampling.validate(vocab).map_err(|error| usage(error.to_string()))?;
    if args.rule.is_some_and(|rule| rule.entry().name == "greedy") && !sampling.is_greedy() {
        return Err(usage(format!("--rule greedy is for --temperature 0, and it is {}", sampling.temperature)));
    }
    let prompt = prompt_tokens(&args, &opened)?;
    if let Some(id) = args.stop_id.iter().find(|&&id| id as usize >= vocab) {
        return Err(usage(format!("--stop-id {id} is not in the vocabulary of {vocab} tokens")));
    }
    if args.stop.iter().any(String::is_empty) {
        return Err(usage("--stop is empty; it would end every answer at once"));
    }
    let context = context(&args, prompt.len(), opened.checkpoint.config().context_length)?;
    let constraint = constraint(&args, &opened)?;

    let mut session = Session::load(&args.model, &opened, context)?;
    let mut engine = session.engine();
    let drafter = engine.drafter().unwrap_or("none").to_owned();
    let mut end_ids = opened.tokenizer().end_ids().to_vec();
    end_ids.extend(&args.stop_id);
    let cancel = CancelToken::new();
    let request = Request {
        prompt,
        sampling,
        seed: args.seed,
        choice: 0,
        stop: StopRules { end_ids, texts: args.stop.clone(), max_tokens: args.max_tokens },
        rule: args.rule.map(Into::into),
        draft_len,
        draft_width: args.model.draft_width.unwrap_or(usize::MAX),
        logprobs: args.logprobs,
        constraint,
        cancel: cancel.clone(),
    };

    let mut printer = if args.json { None } else { Some(Printer::new(args.output, std::io::stdout(), cancel)?) };
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
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read_prompt(path)?,
        (None, None) => return Err(usage("no prompt: give -p TEXT, -f FILE or --ids 1,2,3")),
    };
    let text = if args.chat {
        let template = opened.checkpoint.chat_template()?.ok_or_else(|| {
            usage(format!("--chat: {} has no chat template; leave the flag out", args.model.model.display()))
        })?;
        template.render(&[Message::new("user", &text)])?
    } else {
        text
    };
    let tokens = opened.tokenizer().encode(&text, true)?;
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

fn read_prompt(path: &Path) -> Result<String> {
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
    let wanted = args.context.unwrap_or_else(|| trained.min(prompt + args.max_tokens.max(1)));
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
