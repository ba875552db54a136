//! `/stats`: what answers took.

use std::time::Duration;

use spec_runtime::Completion;

use crate::report::millis;

/// Figures of the last answer and of all.
#[derive(Debug, Default)]
pub(super) struct Stats {
    last: Option<String>,
    answers: usize,
    tokens: usize,
    prefilled: usize,
    cached: usize,
    drafted: usize,
    accepted: usize,
    decode: Duration,
}

impl Stats {
    pub(super) fn add(&mut self, completion: &Completion, drafter: &str) {
        let Completion { prompt_tokens, cached_tokens, completion_tokens, timings, speculation, .. } = completion;
        let prefilled = prompt_tokens - cached_tokens;
        self.answers += 1;
        self.tokens += completion_tokens;
        self.prefilled += prefilled;
        self.cached += cached_tokens;
        self.drafted += speculation.drafted;
        self.accepted += speculation.accepted;
        self.decode += timings.decode;
        let mut last = format!(
            "last answer: {completion_tokens} tokens, {:.1} tokens/s; {}; seed {}\n\
             \x20 prompt of {prompt_tokens} tokens: {cached_tokens} kept from before, {prefilled} prefilled in {:.0} ms\n",
            timings.tokens_per_second(*completion_tokens),
            completion.finish.name(),
            completion.seed,
            millis(timings.prefill),
        );
        last += &match speculation.drafted {
            0 => format!("  {drafter}: nothing drafted\n"),
            drafted => format!(
                "  {drafter}: {:.0} % of {drafted} draft tokens accepted, {:.2} a round in {} rounds\n",
                100.0 * speculation.acceptance_rate(),
                speculation.mean_accepted_length(),
                speculation.rounds
            ),
        };
        self.last = Some(last);
    }

    /// Several lines; `used` positions of `context` hold the conversation.
    pub(super) fn text(&self, context: usize, used: usize) -> String {
        let Some(last) = &self.last else { return "nothing was answered yet\n".to_owned() };
        let seconds = self.decode.as_secs_f64();
        let rate = if seconds > 0.0 { self.tokens.saturating_sub(self.answers) as f64 / seconds } else { 0.0 };
        format!(
            "{last}all {} answers: {} tokens, {rate:.1} tokens/s; {} prompt tokens kept, {} prefilled; {} of {} draft tokens accepted\n\
             conversation: {used} of {context} positions\n",
            self.answers, self.tokens, self.cached, self.prefilled, self.accepted, self.drafted
        )
    }
}
