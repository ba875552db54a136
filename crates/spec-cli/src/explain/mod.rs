//! `spec explain`: what limits the speed of a run, by what its record says, and the change most likely to help.

mod acceptance;
mod circumstances;
mod costs;
mod diagnosis;
mod figures;
mod report;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};

use crate::args::ExplainArgs;
use crate::config::CommandLine;
use crate::record::{self, Record};
use crate::refusal::refuse;
use crate::{last_run, usage};
use figures::Figures;
pub(crate) use figures::is_by_model;

pub(crate) fn run(args: &ExplainArgs, line: &CommandLine) -> Result<ExitCode> {
    if let Some(path) = &args.log {
        return explain(&record::read(path)?, &path.display().to_string(), args.json, ExitCode::SUCCESS);
    }
    if args.command.is_empty() {
        let path = last_run::path().context(NO_LAST_RUN)?;
        if !path.exists() {
            bail!("{NO_LAST_RUN}");
        }
        return explain(&record::read(&path)?, "the last run", args.json, ExitCode::SUCCESS);
    }
    let inner = match line.of_command(args.command.clone()) {
        Ok(inner) => inner,
        Err(refusal) => return Ok(refuse(&refusal)),
    };
    if !inner.has("record") {
        return Err(usage(
            "`spec explain --` runs what generates: generate, chat, demo, batch or serve, with its flags",
        ));
    }
    // One that is asked for is kept; else it is gone with this folder.
    let folder = tempfile::tempdir().context("no folder for the record of the run")?;
    let (inner, path) = match inner.value("record") {
        Some(path) => (inner, PathBuf::from(path)),
        None => {
            let path = folder.path().join("record.jsonl");
            let words = ["--record".to_owned(), path.display().to_string()];
            match inner.with(&words) {
                Ok(inner) => (inner, path),
                Err(refusal) => return Ok(refuse(&refusal)),
            }
        }
    };
    if inner.prints() {
        return crate::manual::print(&inner.print());
    }
    let parsed = match inner.parsed() {
        Ok(parsed) => parsed,
        Err(refusal) => return Ok(refuse(&refusal)),
    };
    let code = crate::run(parsed.command, &inner)?;
    println!();
    explain(&record::read(&path)?, "the run", args.json, code)
}

const NO_LAST_RUN: &str = "there is no last run to explain: `spec generate`, `chat` and `demo` keep one, unless --no-last-run says not \
                           to; or give --log FILE, or a command behind `--`";

/// Prints what there is to say of a record.
fn explain(record: &Record, which: &str, json: bool, code: ExitCode) -> Result<ExitCode> {
    let figures = Figures::of(record).ok_or_else(|| {
        anyhow!("{which} has no round behind a first token, so there is nothing to explain; let it generate more")
    })?;
    let findings = diagnosis::diagnose(&figures);
    if json {
        println!("{}", report::json(&figures, &findings));
    } else {
        print!("{}", report::text(&figures, &findings, record.is_cut));
    }
    Ok(code)
}
