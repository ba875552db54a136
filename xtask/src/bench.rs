//! `cargo xtask bench`: builds the binary, brings the models, and starts the crate that measures.

use crate::UsageError;
use crate::arguments::Arguments;
use crate::binary;
use crate::fetch;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

pub(crate) struct Options {
    mode: Mode,
    /// The Qwen pair, instead of what the mode takes by default.
    pair: bool,
    model: Option<PathBuf>,
    draft_model: Option<PathBuf>,
    /// What the measuring crate reads: it knows its own options.
    rest: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Measure,
    Peers,
    Serve,
    Compare,
}

impl Options {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<Self> {
        let (pair, model, draft_model) = (
            arguments.take_switch("--pair"),
            arguments.take_value("--model")?.map(PathBuf::from),
            arguments.take_value("--draft-model")?.map(PathBuf::from),
        );
        let mut rest = arguments.rest();
        let mode = match rest.first().map(String::as_str) {
            Some("peers") => Mode::Peers,
            Some("serve") => Mode::Serve,
            Some("compare") => Mode::Compare,
            Some(word) if !word.starts_with('-') => {
                return Err(UsageError(format!(
                    "there is no `bench {word}`, but `bench peers`, `bench serve` and `bench compare`"
                ))
                .into());
            }
            _ => Mode::Measure,
        };
        if mode != Mode::Measure {
            rest.remove(0);
        }
        if pair && model.is_some() {
            return Err(UsageError("--pair brings its own model; give either it or --model".into()).into());
        }
        if mode == Mode::Compare && draft_model.is_some() {
            return Err(UsageError("bench compare times one model; --draft-model is none of its options".into()).into());
        }
        Ok(Self { mode, pair, model, draft_model, rest })
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (model, draft_model, also) = models(options)?;
    for file in std::iter::once(&model).chain(&draft_model) {
        if !file.is_file() {
            bail!("no model at {}; give the path of a GGUF file", file.display());
        }
    }
    // Not by `cargo run`, which would start it in another folder than the one that the user's paths are relative to.
    let mut bench = Command::new(binary::build("spec-bench", "spec-bench")?);
    bench.arg(match options.mode {
        Mode::Measure => "measure",
        Mode::Peers => "peers",
        Mode::Serve => "serve",
        Mode::Compare => "compare",
    });
    bench.arg("--model").arg(&model).arg("--out").arg(binary::target_folder()?.join("bench"));
    if options.mode == Mode::Compare {
        bench.arg("--repository").arg(workspace::root());
    } else {
        bench.arg("--spec").arg(binary::build("spec-cli", "spec")?);
        bench.arg("--prompts-folder").arg(workspace::root().join("crates/spec-testing/data/prompts"));
        if let Some(file) = &draft_model {
            bench.arg("--draft-model").arg(file);
        }
    }
    if matches!(options.mode, Mode::Peers | Mode::Serve) {
        bench.arg("--cache").arg(fetch::user_cache()?);
        for file in &also {
            bench.arg("--also").arg(file);
        }
    }
    binary::run(bench.args(&options.rest))
}

/// The target, its draft model, and what is compared by its decoding alone.
fn models(options: &Options) -> Result<(PathBuf, Option<PathBuf>, Vec<PathBuf>)> {
    if let Some(model) = &options.model {
        return Ok((model.clone(), options.draft_model.clone(), Vec::new()));
    }
    let pair = options.pair || matches!(options.mode, Mode::Peers | Mode::Serve);
    let mut files = fetch::models(pair)?.into_iter();
    let target = files.next().context("the table of models is empty")?;
    let draft = options.draft_model.clone().or(files.next());
    let also = if options.mode == Mode::Peers { fetch::models(false)? } else { Vec::new() };
    Ok((target, draft, also))
}

#[cfg(test)]
mod tests {
    use super::{Mode, Options};
    use crate::arguments::Arguments;

    fn parse(line: &str) -> anyhow::Result<Options> {
        Options::parse(Arguments::from_words(line))
    }

    #[test]
    fn the_mode_comes_first_and_what_is_not_understood_here_is_passed_on() {
        let options = parse("peers --quick --model a.gguf --setting plain").unwrap();
        assert_eq!((options.mode, options.pair), (Mode::Peers, false));
        assert_eq!(options.rest, ["--quick", "--setting", "plain"]);
        let options = parse("--pair -n 32").unwrap();
        assert_eq!((options.mode, options.pair), (Mode::Measure, true));
        assert_eq!(options.rest, ["-n", "32"]);
        let options = parse("serve --find-peak").unwrap();
        assert_eq!((options.mode, options.rest.as_slice()), (Mode::Serve, &["--find-peak".to_owned()][..]));
        assert_eq!(parse("compare main HEAD").unwrap().rest, ["main", "HEAD"]);
    }

    #[test]
    fn contradictions_and_unknown_modes_are_refused() {
        for line in ["--pair --model a.gguf", "compare A B --draft-model d.gguf", "faster"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
