//! `spec audit`.

use std::path::PathBuf;

use clap::Args;

use super::{ModelArgs, PromptArgs, SamplingArgs};

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("audited").required(true).args(["prompt", "file", "prompts"]))]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    #[command(flatten)]
    pub(crate) text: PromptArgs,

    /// A directory of prompts, one `.txt` file each, taken in turn
    #[arg(long, value_name = "DIR", help_heading = "Prompt")]
    pub(crate) prompts: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Every rule with every drafter under several samplers, in a table; --rule and the sampling flags are not used then
    #[arg(long, help_heading = "Audit")]
    pub(crate) all: bool,

    /// Tokens to judge, of each rule, drafter and sampler; a deviation half as large takes four times as many
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = draws, help_heading = "Audit")]
    pub(crate) draws: usize,

    /// Tokens of each text at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 64, value_parser = draws, help_heading = "Audit")]
    pub(crate) max_tokens: usize,

    /// How often a sound build may be called unsound
    #[arg(long, value_name = "P", default_value_t = 0.01, value_parser = level, help_heading = "Audit")]
    pub(crate) alpha: f64,

    /// One JSON object instead of text; with --all, one a line
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

fn draws(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "give a number from 1 on".into())
}

fn level(text: &str) -> Result<f64, String> {
    let within = |level: &f64| (1e-9..=0.5).contains(level);
    text.parse().ok().filter(within).ok_or_else(|| "give a probability from 1e-9 to 0.5, such as 0.01".into())
}
