//! `spec tune`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ModelArgs;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    pub(crate) search: Option<Search>,

    /// Records that `--record FILE` has written
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// One JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is tuned by runs rather than by records.
#[derive(Debug, Subcommand)]
pub(crate) enum Search {
    /// Find the largest epsilon whose answers stay near enough to the target's own
    Epsilon(Box<TuneEpsilonArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct TuneEpsilonArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// A directory of prompts, one `.txt` file each
    #[arg(long, value_name = "DIR", help_heading = "Search")]
    pub(crate) prompts: PathBuf,

    /// The first epsilon that is tried: doubled while it is near enough, else halved
    #[arg(long, value_name = "X", default_value_t = 0.01, value_parser = epsilon, help_heading = "Search")]
    pub(crate) start: f64,

    /// By how much the corpus BLEU against plain answers may fall, of 100
    #[arg(long, value_name = "P%", default_value = "0.3%", value_parser = percent, help_heading = "Search")]
    pub(crate) max_bleu_drop: f64,

    /// Tokens to generate at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 200, help_heading = "Search")]
    pub(crate) max_tokens: usize,

    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

fn epsilon(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(epsilon) if (0.0001..=1.0).contains(&epsilon) => Ok(epsilon),
        _ => Err("give a tolerance from 0.0001 to 1, such as 0.01".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("give a share from 0% to 100%, such as 0.3%".into()),
    }
}
