//! `cargo xtask demo`: builds the binary, brings the model, and lets `spec demo` show that drafting changes nothing
//! but time.

use crate::UsageError;
use crate::arguments::Arguments;
use crate::binary;
use crate::fetch;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The Qwen pair instead of SmolLM2.
    pair: bool,
    json: bool,
    model: Option<PathBuf>,
    draft_model: Option<PathBuf>,
    max_tokens: Option<u32>,
}

impl Options {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<Self> {
        let max_tokens = arguments.take_value("--max-tokens")?;
        let options = Self {
            pair: arguments.take_switch("--pair"),
            json: arguments.take_switch("--json"),
            model: arguments.take_value("--model")?.map(PathBuf::from),
            draft_model: arguments.take_value("--draft-model")?.map(PathBuf::from),
            max_tokens: match &max_tokens {
                None => None,
                Some(text) => Some(text.parse().ok().filter(|&tokens| tokens > 0).ok_or_else(|| {
                    UsageError(format!("--max-tokens takes a whole number of at least 1, not `{text}`"))
                })?),
            },
        };
        arguments.finish()?;
        if options.pair && options.model.is_some() {
            return Err(UsageError("--pair brings its own model; give either it or --model".into()).into());
        }
        Ok(options)
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut draft_model = options.draft_model.clone();
    let model = match &options.model {
        Some(file) => file.clone(),
        None => {
            let mut models = fetch::models(options.pair)?.into_iter();
            let target = models.next().context("the table of models is empty")?;
            draft_model = draft_model.or(models.next());
            target
        }
    };
    for file in [Some(&model), draft_model.as_ref()].into_iter().flatten() {
        if !file.is_file() {
            bail!("no model at {}; give the path of a GGUF file", file.display());
        }
    }

    let binary = binary::build("spec-cli", "spec")?;

    let mut demo = Command::new(&binary);
    demo.env("SPEC_CONFIG", "none").arg("demo").arg("--model").arg(&model);
    match &draft_model {
        Some(file) => demo.args(["--draft", "auto", "--draft-model"]).arg(file),
        None => demo.args(["--draft", "ngram"]),
    };
    demo.arg("--prompts").arg(workspace::root().join("crates/spec-testing/data/prompts"));
    if let Some(tokens) = options.max_tokens {
        demo.args(["--max-tokens", &tokens.to_string()]);
    }
    if options.json {
        demo.arg("--json");
    }
    let code = binary::run(&mut demo)?;
    if code != ExitCode::SUCCESS {
        // `spec demo` has said what was unequal.
        return Ok(code);
    }

    let mut line = format!("{} generate --chat --model {}", binary.display(), model.display());
    if let Some(file) = &draft_model {
        line.push_str(&format!(" --draft-model {}", file.display()));
    }
    line.push_str(" -p \"Explain speculative decoding in two sentences.\"");
    if options.json {
        // Standard output holds JSON lines and nothing else.
        eprintln!("\nTry it yourself:\n  {line}");
    } else {
        println!("\nTry it yourself:\n  {line}");
    }
    Ok(ExitCode::SUCCESS)
}
