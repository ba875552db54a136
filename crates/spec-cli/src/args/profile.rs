//! `spec profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// A command to be traced, or a trace to be looked at.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) task: Option<ProfileTask>,

    /// Where the trace goes: NAME.json, for ui.perfetto.dev, chrome://tracing and `spec profile stats`
    #[arg(long, short, value_name = "NAME", required = true)]
    pub(crate) out: Option<PathBuf>,

    /// The command to trace, with its flags: generate, chat, serve, batch or demo
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileTask {
    /// List what took the time in a trace, and what would change it
    Stats(ProfileStatsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProfileStatsArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}
