//! What a caller asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spec_core::{AcceptanceRule, Fixed, LengthPolicy, RuleName, SamplingParams, Token};

use crate::{Constraint, RoundObserver, RuntimeError, StopRules};

/// Ends a generation from another thread; looked at before every pass.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that has not been cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the generation to end; it does before its next pass.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A flag of the caller's own, such as one that a signal sets.
impl From<Arc<AtomicBool>> for CancelToken {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

/// The acceptance rule of a request.
pub enum RequestRule {
    /// One of the table.
    Named(RuleName),
    /// The caller's own.
    Own(Box<dyn AcceptanceRule>),
}

impl From<RuleName> for RequestRule {
    fn from(name: RuleName) -> Self {
        Self::Named(name)
    }
}

impl From<Box<dyn AcceptanceRule>> for RequestRule {
    fn from(rule: Box<dyn AcceptanceRule>) -> Self {
        Self::Own(rule)
    }
}

/// Who drafts for a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DraftWith {
    /// Whatever the engine drafts with.
    #[default]
    All,
    /// Nobody: plain decoding.
    Nothing,
    /// One of several drafters, by its name or the first word of it: `suffix`, `model`.
    Only(String),
}

/// One generation.
#[doc(alias = "SpecDecodeParam")]
pub struct Request {
    /// Token ids to continue; at least one.
    pub prompt: Vec<Token>,
    /// How the next token is chosen.
    pub sampling: SamplingParams,
    /// Seed of all randomness; `None` draws a fresh one, which the completion reports.
    pub seed: Option<u64>,
    /// Which of several completions of one prompt this is; it enters the seed.
    pub choice: u32,
    /// What ends it.
    pub stop: StopRules,
    /// The acceptance rule; `None` is the lossless one that fits the sampling: greedy at temperature 0, else coupled.
    pub rule: Option<RequestRule>,
    /// What a lossy rule may forgive in the whole answer, in nats of [log ratio](spec_core::Forgiven::log_ratio): the sum is never
    /// passed, and the rule is exact from the token on that would pass it. `None` is no limit.
    pub loss_budget: Option<f64>,
    /// Who drafts.
    pub draft_with: DraftWith,
    /// How many tokens are drafted a round.
    #[doc(alias = "max_spec_length")]
    pub draft_len: Box<dyn LengthPolicy>,
    /// Children that a draft's node may have at most: 1 keeps drafts to chains.
    pub draft_width: usize,
    /// Alternatives to report with each token's log-probability; `None` reports nothing.
    pub logprobs: Option<usize>,
    /// What may be generated; `None` allows everything.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Who is told what its rounds do.
    pub observers: Vec<Box<dyn RoundObserver>>,
    /// Lets another thread end it.
    pub cancel: CancelToken,
    /// For whom it is: requests of one tenant share what the KV caches hold of their texts, the target's and the draft model's, and
    /// what was drafted for them. `None` shares nothing. The output does not depend on it, but the time to it does: who may learn from
    /// that what others have asked should have a tenant of their own.
    pub tenant: Option<u64>,
}

impl Request {
    /// Greedy generation of up to `max_tokens` tokens, five drafted a round.
    pub fn new(prompt: Vec<Token>, max_tokens: usize) -> Self {
        Self {
            prompt,
            sampling: SamplingParams::default(),
            seed: None,
            choice: 0,
            stop: StopRules { max_tokens, ..StopRules::default() },
            rule: None,
            loss_budget: None,
            draft_with: DraftWith::All,
            draft_len: Box::new(Fixed(5)),
            draft_width: usize::MAX,
            logprobs: None,
            constraint: None,
            observers: Vec::new(),
            cancel: CancelToken::new(),
            tenant: None,
        }
    }

    /// Whether its tokens depend on nothing but the most probable token of each of the target's rows, as the model gave them.
    pub(crate) fn is_judged_by_argmax(&self) -> bool {
        let takes_argmax = match &self.rule {
            // Of the temperature 0, which is demanded below.
            None => true,
            Some(RequestRule::Named(name)) => name.entry().name == "greedy",
            // One of the caller's may look at anything.
            Some(RequestRule::Own(_)) => false,
        };
        let sampling = &self.sampling;
        let reads_rows = self.logprobs.is_some() || self.constraint.is_some();
        takes_argmax && sampling.is_greedy() && sampling.keeps_argmax() && !reads_rows
    }

    pub(crate) fn check(&self, vocab: usize, context: usize) -> Result<(), RuntimeError> {
        let bad = |field, reason: String| Err(RuntimeError::BadRequest { field, reason });
        if self.prompt.is_empty() {
            return bad("prompt", "it is empty; give at least one token".into());
        }
        if let Some(&token) = self.prompt.iter().find(|&&token| token as usize >= vocab) {
            return Err(RuntimeError::BadToken { token, vocab });
        }
        if self.prompt.len() >= context {
            return bad(
                "prompt",
                format!(
                    "it has {} tokens and the context holds {context}, which leaves no room for an answer; \
                     shorten the prompt or raise the context",
                    self.prompt.len()
                ),
            );
        }
        if let Some(RequestRule::Named(name)) = &self.rule
            && name.entry().name == "greedy"
            && !self.sampling.is_greedy()
        {
            return bad(
                "rule",
                format!(
                    "greedy takes the most probable token, and the temperature is {}; set it to 0 or choose another rule",
                    self.sampling.temperature
                ),
            );
        }
        if let Some(budget) = self.loss_budget
            && (budget.is_nan() || budget < 0.0)
        {
            return bad("loss_budget", format!("it is {budget}; give a number of nats from 0 on"));
        }
        if self.stop.texts.iter().any(String::is_empty) {
            return bad("stop", "a stop text is empty; it would end every answer at once".into());
        }
        Ok(())
    }
}
