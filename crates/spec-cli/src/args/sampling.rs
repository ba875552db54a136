//! How tokens are chosen, judged and ended.

use std::time::Duration;

use clap::Args;
use spec_core::{AdaptiveEpsilon, LatencyTolerance, LengthPolicy, RULES, RuleName, SamplingParams, Token};
use spec_runtime::{RequestRule, StopRules};

fn logit_bias(text: &str) -> Result<(Token, f32), String> {
    let parse = |(id, bias): (&str, &str)| Some((id.parse().ok()?, bias.parse().ok()?));
    text.split_once('=')
        .and_then(parse)
        .ok_or_else(|| "give a token id and a number, such as 42=-1.5 or 42=-inf".into())
}

fn latency(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(milliseconds) if milliseconds > 0.0 && milliseconds <= 1e6 => {
            Ok(Duration::from_secs_f64(milliseconds / 1e3))
        }
        _ => Err("give milliseconds a token, more than 0, such as 25".into()),
    }
}

pub(super) fn loss_budget(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(nats) if nats >= 0.0 => Ok(nats),
        _ => Err("give a number of nats from 0 on; 0 makes every rule exact".into()),
    }
}

fn rules() -> String {
    let mut help = String::from("Which guesses are kept. Lossless rules leave the law of the answer as it is:\n");
    for entry in &RULES {
        let parameter = entry.parameter.map_or(String::new(), |x| format!("; x is {x} when not given"));
        let name = if entry.parameter.is_some() { format!("{}[:x]", entry.name) } else { entry.name.to_owned() };
        help += &format!("  {name}: {}{}{parameter}\n", if entry.lossless { "" } else { "LOSSY, " }, entry.summary);
    }
    help + "When not given, greedy at temperature 0, else coupled."
}

/// How tokens are chosen and drafts judged: what `generate` and `chat` share.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Which guesses are kept; by default those that leave the answer token for token the same
    #[arg(long, value_name = "NAME[:x]", long_help = rules(), help_heading = "Speculation")]
    pub(crate) rule: Option<RuleName>,

    /// Let the x of `--rule epsilon:x` be a maximum: raised towards it while tokens take longer than MS milliseconds, lowered to 0 while
    /// they do not
    #[arg(long, value_name = "MS", value_parser = latency, help_heading = "Speculation")]
    pub(crate) epsilon_latency: Option<Duration>,

    /// What a lossy rule may forgive in an answer, in nats; it is exact from the guess on that would pass this
    #[arg(
        long,
        value_name = "X",
        value_parser = loss_budget,
        allow_negative_numbers = true,
        help_heading = "Speculation"
    )]
    pub(crate) loss_budget: Option<f64>,

    /// 0 always takes the likeliest token; higher is more varied
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) temperature: f32,

    /// Sample from the K likeliest tokens; 0 is off
    #[arg(long, value_name = "K", default_value_t = 0, help_heading = "Sampling")]
    pub(crate) top_k: usize,

    /// Sample from the likeliest tokens that together have probability P; 1 is off
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) top_p: f32,

    /// Drop tokens less likely than P times the likeliest; 0 is off
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) min_p: f32,

    /// Weaken tokens that the text already has; 1 is off
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) repeat_penalty: f32,

    /// Weaken tokens that the text already has, by this much; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) presence_penalty: f32,

    /// Weaken tokens that the text already has, by this much for each time; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) frequency_penalty: f32,

    /// Tokens at the end of the text that penalties look at; 0 is all, the prompt included
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) penalty_window: usize,

    /// Add to a token's logit; `-inf` bans the token; may be given several times
    #[arg(long, value_name = "ID=X", value_parser = logit_bias, help_heading = "Sampling")]
    pub(crate) logit_bias: Vec<(Token, f32)>,

    /// The same seed gives the same answer; a fresh one is drawn and reported when not given
    #[arg(long, value_name = "S", help_heading = "Sampling")]
    pub(crate) seed: Option<u64>,
}

impl SamplingArgs {
    /// The rule, and the draft lengths of `lengths`, which turn its tolerance where `--epsilon-latency` says so.
    pub(crate) fn rule(&self, lengths: Box<dyn LengthPolicy>) -> (Option<RequestRule>, Box<dyn LengthPolicy>) {
        match (self.epsilon_latency, self.rule.and_then(AdaptiveEpsilon::new)) {
            (Some(target), Some(rule)) => {
                let lengths = LatencyTolerance::new(lengths, rule.tolerance().clone(), target);
                (Some(RequestRule::Own(Box::new(rule))), Box::new(lengths))
            }
            _ => (self.rule.map(Into::into), lengths),
        }
    }

    /// The sampling parameters, if they and the rule go together.
    pub(crate) fn params(&self, vocab: usize) -> Result<SamplingParams, String> {
        let params = SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_window: self.penalty_window,
            logit_bias: self.logit_bias.clone(),
        };
        params.validate(vocab).map_err(|error| error.to_string())?;
        if self.epsilon_latency.is_some() && self.rule.and_then(AdaptiveEpsilon::new).is_none() {
            let rule = self.rule.map_or_else(|| "a lossless one".to_owned(), |rule| rule.to_string());
            return Err(format!(
                "--epsilon-latency turns the x of --rule epsilon:x or epsilon-published:x; the rule is {rule}"
            ));
        }
        match self.rule {
            Some(rule) if rule.entry().name == "greedy" && !params.is_greedy() => {
                Err(format!("--rule greedy is for --temperature 0, and it is {}", params.temperature))
            }
            _ => Ok(params),
        }
    }
}

/// Where an answer ends.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) stop: Vec<String>,

    /// End the answer at this token id, beside the model's own end tokens; may be given several times
    #[arg(long, value_name = "ID", help_heading = "Limits")]
    pub(crate) stop_id: Vec<Token>,
}

impl StopArgs {
    /// What ends an answer of a model with these end tokens, or what is wrong with the flags.
    pub(crate) fn rules(&self, ends: &[Token], vocab: usize, max_tokens: usize) -> Result<StopRules, String> {
        if let Some(id) = self.stop_id.iter().find(|&&id| id as usize >= vocab) {
            return Err(format!("--stop-id {id} is not in the vocabulary of {vocab} tokens"));
        }
        if self.stop.iter().any(String::is_empty) {
            return Err("--stop is empty; it would end every answer at once".into());
        }
        let end_ids = ends.iter().chain(&self.stop_id).copied().collect();
        Ok(StopRules { end_ids, texts: self.stop.clone(), max_tokens })
    }
}
