//! What is kept of a run: for every command that generates.

use std::path::PathBuf;

use clap::Args;

use crate::memory::Size;

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Write what every round did into this file, a line of JSON each, without text or token ids: what `spec tune` reads
    #[arg(long, value_name = "FILE", help_heading = "Records")]
    pub(crate) record: Option<PathBuf>,

    /// Write what a draft model can be trained on into this file: token ids of prompts and answers, of drafts, and the 16 likeliest by
    /// the target in the place of each
    #[arg(long, value_name = "FILE", help_heading = "Records")]
    pub(crate) record_training: Option<PathBuf>,

    /// Bytes of the training file at most; nothing is written behind it
    #[arg(long, value_name = "SIZE", default_value = "256MiB", help_heading = "Records")]
    pub(crate) record_limit: Size,
}
