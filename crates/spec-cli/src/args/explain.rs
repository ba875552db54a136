//! `spec explain`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::help;

#[derive(Debug, Args)]
#[command(after_help = help::EXPLAIN)]
pub(crate) struct ExplainArgs {
    /// Explain this record, which `--record` has written, in the place of the last run
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub(crate) log: Option<PathBuf>,

    /// One JSON object instead of text; behind a command that runs it is the last line
    #[arg(long)]
    pub(crate) json: bool,

    /// A command to run and explain, behind `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What the commands that people start keep of their runs.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LastRunArgs {
    /// Keep no record of this run for `spec explain`; it has figures alone, no text
    #[arg(long, help_heading = "Records")]
    pub(crate) no_last_run: bool,
}
