//! `spec serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::{ModelArgs, RecordArgs};
use crate::memory::Size;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The address to listen on; other machines reach it by 0.0.0.0, for which --api-keys is meant
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Service")]
    pub(crate) host: String,

    /// The port to listen on; 0 takes a free one and prints it
    #[arg(long, value_name = "N", default_value_t = 8080, help_heading = "Service")]
    pub(crate) port: u16,

    /// Let in only who has a key of this file: one a line, a name behind it where you like
    #[arg(long, value_name = "FILE", help_heading = "Service")]
    pub(crate) api_keys: Option<PathBuf>,

    /// The model's name in answers; that of its file when not given. Requests may name any
    #[arg(long, value_name = "NAME", help_heading = "Service")]
    pub(crate) served_model_name: Option<String>,

    /// Log the bodies of requests, prompts included
    #[arg(long, help_heading = "Service")]
    pub(crate) log_prompts: bool,

    /// Hold this share of the answers, from 0 to 1, against the target's law; what comes of it is at /health and /metrics
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, help_heading = "Service")]
    pub(crate) audit_share: f64,

    #[command(flatten)]
    pub(crate) answers: AnswersArgs,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    /// Answers that may wait beside; more are refused with 429
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Limits")]
    pub(crate) max_queue: usize,

    /// Connections at once; more are answered with 503
    #[arg(long, value_name = "N", default_value = "512", help_heading = "Limits")]
    pub(crate) max_connections: NonZeroUsize,

    /// Bytes of a request's body at most, such as 300kB or 4MiB
    #[arg(long, value_name = "SIZE", default_value = "4MiB", help_heading = "Limits")]
    pub(crate) max_body: Size,
}

/// What bounds answers: for every command that gives many at once.
#[derive(Debug, Args)]
pub(crate) struct AnswersArgs {
    /// Answers under way at once: the KV cache has room for the context of each
    #[arg(long, visible_alias = "parallel", value_name = "N", default_value_t = 8, value_parser = batch, help_heading = "Limits")]
    pub(crate) max_batch: usize,

    /// Positions of an answer with its prompt; 4096 when not given, or what the model was trained for if that is less
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) context: Option<usize>,

    /// Tokens that the KV cache holds of all answers; as many as their contexts when not given
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) kv_tokens: Option<usize>,

    /// Tokens of an answer at most, and for requests that do not say
    #[arg(long, value_name = "N", default_value_t = 2048, help_heading = "Limits")]
    pub(crate) max_tokens: usize,

    /// Tokens of a prompt at most; what the context holds when not given
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_prompt_tokens: Option<usize>,
}

/// Answers to a file of requests.
#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The requests: lines of OpenAI's batch files, {"custom_id", "method", "url", "body"}
    #[arg(long, short, value_name = "FILE", help_heading = "Batch")]
    pub(crate) input: PathBuf,

    /// Where the answers go, a line each; what an earlier run wrote there is kept and not asked again
    #[arg(long, short, value_name = "FILE", help_heading = "Batch")]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) answers: AnswersArgs,

    #[command(flatten)]
    pub(crate) records: RecordArgs,
}

fn share(text: &str) -> Result<f64, String> {
    let within = |share: &f64| (0.0..=1.0).contains(share);
    text.parse().ok().filter(within).ok_or_else(|| "give a number from 0 to 1, such as 0.01".into())
}

pub(super) fn batch(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=256).contains(&count) => Ok(count),
        _ => Err("give a number from 1 to 256".into()),
    }
}
