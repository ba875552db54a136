//! `spec bench sweep`.

use std::path::PathBuf;

use clap::Args;
use spec_core::{RuleName, SamplingParams};

use super::sampling::loss_budget;
use super::{DraftLen, ModelArgs};

#[derive(Debug, Args)]
pub(crate) struct BenchSweepArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Draft lengths, each tried with every rule
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "3,5,7",
        value_parser = length,
        help_heading = "Study"
    )]
    pub(crate) lengths: Vec<usize>,

    /// Rules; `greedy,epsilon:0.1` when not given, above temperature 0 `coupled,rejection,epsilon:0.1`
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', help_heading = "Study")]
    pub(crate) rules: Vec<RuleName>,

    /// A directory of prompts, one `.txt` file each
    #[arg(long, value_name = "DIR", help_heading = "Study")]
    pub(crate) prompts: PathBuf,

    /// Tokens to generate at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 200, help_heading = "Study")]
    pub(crate) max_tokens: usize,

    /// 0 always takes the likeliest token; higher is more varied
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Study")]
    pub(crate) temperature: f32,

    /// Answers to each prompt, of the seeds 1 to N; above temperature 0
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Study")]
    pub(crate) seeds: u64,

    /// How often everything is run, for the times; the other figures are of the first run
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Study")]
    pub(crate) repeats: usize,

    /// What a lossy rule may forgive in an answer, in nats
    #[arg(long, value_name = "X", value_parser = loss_budget, allow_negative_numbers = true, help_heading = "Study")]
    pub(crate) loss_budget: Option<f64>,

    /// Where sweep.json, sweep.csv and the plots go
    #[arg(long, value_name = "DIR", help_heading = "Study")]
    pub(crate) out: PathBuf,
}

impl BenchSweepArgs {
    /// The rules to try, or why the flags contradict each other.
    pub(crate) fn checked_rules(&self) -> Result<Vec<RuleName>, String> {
        SamplingParams { temperature: self.temperature, ..SamplingParams::default() }
            .validate(1)
            .map_err(|error| error.to_string())?;
        let fixed = self.model.draft_len != DraftLen::Auto || self.model.length_policy.is_some();
        if fixed || self.model.preset.is_some() {
            return Err(
                "--lengths says which lengths are tried; leave --draft-len, --length-policy and --preset out".into()
            );
        }
        if self.max_tokens < 2 {
            return Err(format!("--max-tokens {}: a rate needs two tokens", self.max_tokens));
        }
        if self.repeats == 0 || self.seeds == 0 {
            return Err("--repeats and --seeds: at least 1".into());
        }
        if self.seeds > 1 && self.temperature == 0.0 {
            return Err(format!("--seeds {}: at temperature 0 every seed gives the same answer", self.seeds));
        }
        let greedy = self.temperature == 0.0;
        if let (false, Some(rule)) = (greedy, self.rules.iter().find(|rule| rule.entry().name == "greedy")) {
            return Err(format!("--rules {rule}: it is for --temperature 0, and it is {}", self.temperature));
        }
        if !self.rules.is_empty() {
            return Ok(self.rules.clone());
        }
        let names: &[&str] = if greedy { &["greedy", "epsilon:0.1"] } else { &["coupled", "rejection", "epsilon:0.1"] };
        names.iter().map(|name| name.parse().map_err(|error| format!("{error}"))).collect()
    }
}

fn length(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(tokens) if (1..=64).contains(&tokens) => Ok(tokens),
        _ => Err("give numbers from 1 to 64".into()),
    }
}
