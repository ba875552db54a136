//! What requests are judged by before anything is computed: on any thread, while the engine is at work.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use spec_core::{AcceptanceRule, Coupled, Greedy, LossBudget, Noise, NoiseScan, Pipeline, RowKernels};

use super::{Completion, Generation};
use crate::emission::Emission;
use crate::{
    DraftWith, FinishReason, GenerationId, Member, Model, Request, RequestRule, RuntimeError, SpeculationStats,
    Timings, TokenText,
};

/// What an engine can do.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(super) target: Arc<dyn Model>,
    pub(super) text: Arc<dyn TokenText>,
    pub(super) kernels: Arc<dyn RowKernels>,
    pub(super) drafters: Vec<Member>,
}

impl Terms {
    /// Checks a request. The generation has no sequence yet.
    pub(crate) fn generation(&self, request: Request) -> Result<Generation, RuntimeError> {
        let vocab = self.text.vocab();
        let context = self.target.config().context;
        if vocab > self.target.config().vocab {
            return Err(RuntimeError::BadRequest {
                field: "vocabulary",
                reason: format!("the tokenizer has {vocab} tokens, the model's rows {}", self.target.config().vocab),
            });
        }
        request.check(vocab, context)?;
        let reads_rows = request.observers.iter().any(|observer| observer.reads_rows());
        let verdicts = self.target.gives_verdicts() && request.is_judged_by_argmax() && !reads_rows;
        let seed = request.seed.unwrap_or_else(fresh_seed);
        let mut pipeline = Pipeline::new(request.sampling.clone(), vocab)?.with_kernels(Arc::clone(&self.kernels));
        pipeline.extend(&request.prompt);
        let mut request = request;
        let noise = Noise::with_choice(seed, request.choice);
        let scan: Arc<dyn NoiseScan> = Arc::clone(&self.kernels) as _;
        let rule = match request.rule.take() {
            Some(RequestRule::Own(rule)) => rule,
            Some(RequestRule::Named(name)) => name.build(noise, &scan),
            None if request.sampling.is_greedy() => Box::new(Greedy),
            None => Box::new(Coupled::new(noise, scan)),
        };
        self.check_rule(&*rule, &request.draft_with)?;
        if request.loss_budget.is_some() && !rule.keeps_budgets() {
            let reason = format!("rule {} is lossy and does not count what it forgives", rule.name());
            return Err(RuntimeError::BadRequest { field: "loss_budget", reason });
        }
        let mut stop = request.stop.clone();
        // The last position holds the last token that is fed; one more can be sampled from its row.
        stop.max_tokens = stop.max_tokens.min(context + 1 - request.prompt.len());
        Ok(Generation {
            id: GenerationId(0),
            pipeline,
            emission: Emission::new(stop),
            tokens: request.prompt.clone(),
            verdicts,
            begun: None,
            first_token: None,
            drafted_ahead: Duration::ZERO,
            completion: Completion {
                tokens: Vec::new(),
                text: String::new(),
                finish: FinishReason::Length,
                prompt_tokens: request.prompt.len(),
                cached_tokens: 0,
                completion_tokens: 0,
                seed,
                logprobs: request.logprobs.map(|_| Vec::new()),
                rule: rule.name(),
                speculation: SpeculationStats::default(),
                timings: Timings::default(),
                preempted: 0,
            },
            finished: false,
            loss: request.loss_budget.map_or(LossBudget::UNLIMITED, LossBudget::new),
            rule,
            request,
            sequence: None,
        })
    }

    /// Refuses what the rule cannot judge before anything is drafted, and drafters that there are not.
    fn check_rule(&self, rule: &dyn AcceptanceRule, with: &DraftWith) -> Result<(), RuntimeError> {
        let asked: Vec<&Member> = match with {
            DraftWith::All => self.drafters.iter().collect(),
            DraftWith::Nothing => return Ok(()),
            DraftWith::Only(name) => self.drafters.iter().filter(|member| member.is(name)).collect(),
        };
        if let (DraftWith::Only(name), true) = (with, asked.is_empty()) {
            let known: Vec<&str> = self.drafters.iter().map(Member::kind).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let reason = format!("there is no drafter {name:?}; there are: {known}");
            return Err(RuntimeError::BadRequest { field: "drafter", reason });
        }
        let bad = |reason: String| Err(RuntimeError::BadRequest { field: "rule", reason });
        let names = || asked.iter().map(|member| &*member.name).collect::<Vec<_>>().join(" + ");
        if rule.chains_only() && asked.iter().any(|member| member.branches) {
            return bad(format!(
                "{} judges chains, and drafter {} proposes trees; choose another of either",
                rule.name(),
                names()
            ));
        }
        if rule.needs_confidence() && !asked.is_empty() && !asked.iter().any(|member| member.has_laws) {
            return bad(format!(
                "{} compares with the drafter's probabilities, and drafter {} has none; draft with a model, or choose \
                 another rule",
                rule.name(),
                names()
            ));
        }
        Ok(())
    }
}

/// Entropy of the operating system, by way of the standard library's hash keys.
fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    RandomState::new().hash_one(since.as_nanos())
}
