//! `spec chat`.

use std::path::PathBuf;

use clap::Args;

use super::{LastRunArgs, ModelArgs, RecordArgs, SamplingArgs, ShowArgs, StopArgs};

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// What the assistant is told before the conversation
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Conversation")]
    pub(crate) system: Option<String>,

    /// Go on with a conversation that `/save` has written
    #[arg(long, value_name = "FILE", help_heading = "Conversation")]
    pub(crate) load: Option<PathBuf>,

    /// Where typed lines are remembered, or `none`; in the user's state folder when not given
    #[arg(long, value_name = "FILE", help_heading = "Conversation")]
    pub(crate) history: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Tokens that an answer may have
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1024, help_heading = "Limits")]
    pub(crate) max_tokens: usize,

    /// Positions to make room for, all turns together; by default 8192, or what the model was trained for if that is less
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) context: Option<usize>,

    #[command(flatten)]
    pub(crate) stop: StopArgs,

    #[command(flatten)]
    pub(crate) show: ShowArgs,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    #[command(flatten)]
    pub(crate) last_run: LastRunArgs,

    /// One JSON object an answer, with all figures, instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}
