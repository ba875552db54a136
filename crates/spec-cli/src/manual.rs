//! What the command line knows of itself: completions for shells, and manual pages.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory as _;

use crate::args::{Cli, CompletionsArgs, ManArgs};

/// `spec completions SHELL`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "spec", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// `spec man`: the page of `spec` itself, or all pages as files.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        std::io::stdout().write_all(&page)?;
        return Ok(ExitCode::SUCCESS);
    };
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.with_context(|| format!("writing manual pages to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Text for standard output.
pub(crate) fn print(text: &str) -> Result<ExitCode> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
