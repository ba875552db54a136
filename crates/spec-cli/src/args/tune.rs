//! `spec tune`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// Records that `--record FILE` has written
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// One JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}
