//! Rounds: draft, verify, emit, roll back; and while the target verifies, draft ahead.

mod ahead;
mod generation;
mod round;
mod session;

pub use generation::Generation;
pub use session::Session;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use spec_core::{
    AcceptanceRule, Coupled, DraftCost, DraftTree, Greedy, Noise, NoiseScan, Pipeline, RowKernels, ScalarScan, Start,
    Token, TokenLogProb,
};

use crate::clock::MachineClock;
use crate::emission::Emission;
use crate::{
    Batch, Clock, Drafter, Emitted, FinishReason, GenerationId, HostStream, KvGuard, Model, Request, RequestRule,
    RuntimeError, Sequence, SpeculationStats, Stream, Timings, TokenText, Want,
};
use generation::LogitsOf;
use session::Kept;

/// A target model, its vocabulary, and perhaps a drafter.
#[doc(alias = "SpecDecodeOp")]
pub struct Engine {
    target: Arc<dyn Model>,
    text: Arc<dyn TokenText>,
    stream: Box<dyn Stream>,
    drafter: Option<Box<dyn Drafter>>,
    kernels: Arc<dyn RowKernels>,
    clock: Arc<dyn Clock>,
    /// Generations are numbered within an engine; this tells engines apart.
    identity: Arc<()>,
    started: u64,
    is_prepared: bool,
}

/// The result of a generation.
#[derive(Clone, PartialEq, Debug)]
pub struct Completion {
    /// Generated ids; an end token is not among them.
    pub tokens: Vec<Token>,
    /// Their text, cut before a stop text.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them whose keys and values were in the cache already: a [`Session`] had kept them, or another request of the
    /// same tenant.
    pub cached_tokens: usize,
    /// Tokens generated, an end token included.
    pub completion_tokens: usize,
    /// The seed used.
    pub seed: u64,
    /// Per generated token, if asked for: log-softmax of the unprocessed target row.
    pub logprobs: Option<Vec<TokenLogProb>>,
    /// Name of the acceptance rule.
    pub rule: &'static str,
    /// What speculation did.
    pub speculation: SpeculationStats,
    /// Where the time went.
    pub timings: Timings,
}

impl Engine {
    /// Plain decoding of `target`.
    pub fn new(target: Arc<dyn Model>, text: Arc<dyn TokenText>) -> Self {
        Self {
            target,
            text,
            stream: Box::new(HostStream),
            drafter: None,
            kernels: Arc::new(ScalarScan),
            clock: Arc::new(MachineClock::new()),
            identity: Arc::default(),
            started: 0,
            is_prepared: false,
        }
    }

    /// Takes timings, which some length policies decide by, from another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Speculates with `drafter`.
    #[must_use]
    pub fn with_drafter(mut self, drafter: Box<dyn Drafter>) -> Self {
        self.drafter = Some(drafter);
        self
    }

    /// Runs passes over rows of logits with the device's kernels.
    #[must_use]
    pub fn with_row_kernels(mut self, kernels: Arc<dyn RowKernels>) -> Self {
        self.kernels = kernels;
        self
    }

    /// Runs the target's passes on a stream of its device. Where that goes on by itself once a pass is submitted, the next block is
    /// drafted meanwhile.
    #[must_use]
    pub fn on_stream(mut self, stream: Box<dyn Stream>) -> Self {
        self.stream = stream;
        self
    }

    /// The drafter's name, if there is one.
    pub fn drafter(&self) -> Option<&str> {
        self.drafter.as_deref().map(Drafter::name)
    }

    /// Checks a request and opens its sequence. Nothing is computed yet.
    ///
    /// # Errors
    /// [`RuntimeError::BadRequest`], [`RuntimeError::BadToken`], or what opening a sequence reports.
    pub fn start(&mut self, request: Request) -> Result<Generation, RuntimeError> {
        self.start_from(request, &mut None)
    }

    /// [`start`](Self::start), on what is kept of a text before: it is taken once the request has passed its checks.
    fn start_from(&mut self, request: Request, kept: &mut Option<Kept>) -> Result<Generation, RuntimeError> {
        let vocab = self.text.vocab();
        let context = self.target.config().context;
        if vocab > self.target.config().vocab {
            return Err(RuntimeError::BadRequest {
                field: "vocabulary",
                reason: format!("the tokenizer has {vocab} tokens, the model's rows {}", self.target.config().vocab),
            });
        }
        request.check(vocab, context)?;
        let verdicts = self.target.gives_verdicts() && request.is_judged_by_argmax();
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
        self.check_rule(&*rule)?;
        let drafter = self.drafter.as_ref().map_or(DraftCost::Free, |drafter| drafter.cost());
        request.draft_len.start(Start { prompt_len: request.prompt.len(), drafter });
        let mut stop = request.stop.clone();
        // The last position holds the last token that is fed; one more can be sampled from its row.
        stop.max_tokens = stop.max_tokens.min(context + 1 - request.prompt.len());
        let (id, sequence) = match kept.take() {
            Some(kept) => self.resume(kept, &request)?,
            None => (self.fresh_id(), Sequence::open(&self.target)?),
        };
        if let (Some(tenant), 0, [before @ .., _]) = (request.tenant, sequence.kv_len()?, &request.prompt[..]) {
            sequence.adopt(tenant, before)?;
        }
        Ok(Generation {
            id,
            pipeline,
            emission: Emission::new(stop),
            tokens: request.prompt.clone(),
            verdicts,
            first_token: None,
            drafted_ahead: Duration::ZERO,
            completion: Completion {
                tokens: Vec::new(),
                text: String::new(),
                finish: FinishReason::Length,
                prompt_tokens: request.prompt.len(),
                cached_tokens: sequence.kv_len()?,
                completion_tokens: 0,
                seed,
                logprobs: request.logprobs.map(|_| Vec::new()),
                rule: rule.name(),
                speculation: SpeculationStats::default(),
                timings: Timings::default(),
            },
            finished: false,
            rule,
            request,
            sequence,
        })
    }

    fn fresh_id(&mut self) -> GenerationId {
        self.started += 1;
        GenerationId(self.started)
    }

    /// Refuses what the rule cannot judge before anything is drafted.
    fn check_rule(&self, rule: &dyn AcceptanceRule) -> Result<(), RuntimeError> {
        let Some(drafter) = &self.drafter else { return Ok(()) };
        let bad = |reason: String| Err(RuntimeError::BadRequest { field: "rule", reason });
        let (rule_name, name) = (rule.name(), drafter.name());
        if rule.chains_only() && drafter.branches() {
            return bad(format!(
                "{rule_name} judges chains, and drafter {name} proposes trees; choose another of either"
            ));
        }
        if rule.needs_confidence() && !drafter.has_laws() {
            return bad(format!(
                "{rule_name} compares with the drafter's probabilities, and drafter {name} has none; draft with a model, \
                 or choose another rule"
            ));
        }
        Ok(())
    }

    /// One step: the prefill and the first token, or one round. Each emitted token goes to `sink`.
    /// Gives `false` once the generation has ended.
    ///
    /// # Errors
    /// What the devices, the sampling pipeline or the rule report; KV caches are rolled back then.
    pub fn step(&mut self, generation: &mut Generation, sink: &mut dyn FnMut(&Emitted)) -> Result<bool, RuntimeError> {
        if generation.finished {
            return Ok(false);
        }
        if generation.emission.remaining() == 0 {
            generation.end(FinishReason::Length);
        } else if generation.first_token.is_none() {
            self.prefill(generation, sink)?;
        } else if generation.request.cancel.is_cancelled() {
            generation.cancel(sink);
        } else {
            self.round(generation, sink)?;
        }
        Ok(!generation.finished)
    }

    /// Frees the drafter's state and gives the result so far.
    pub fn finish(&mut self, generation: Generation) -> Completion {
        if let Some(drafter) = &mut self.drafter {
            drafter.forget(generation.id);
        }
        generation.completion
    }

    /// Runs a request to its end.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`step`](Self::step); no state stays behind.
    pub fn generate(&mut self, request: Request, sink: &mut dyn FnMut(&Emitted)) -> Result<Completion, RuntimeError> {
        let mut generation = self.start(request)?;
        loop {
            match self.step(&mut generation, sink) {
                Ok(true) => {}
                Ok(false) => return Ok(self.finish(generation)),
                Err(error) => {
                    self.finish(generation);
                    return Err(error);
                }
            }
        }
    }

    fn prefill(&mut self, generation: &mut Generation, sink: &mut dyn FnMut(&Emitted)) -> Result<(), RuntimeError> {
        let begun = self.clock.now();
        self.put_target_behind_drafter()?;
        let end = generation.tokens.len();
        let rows = loop {
            if generation.request.cancel.is_cancelled() {
                generation.cancel(sink);
                return Ok(());
            }
            let done = generation.sequence.kv_len()?;
            let next = end.min(done + self.target.config().max_rows);
            let want = if next == end { Want::Logits } else { Want::Nothing };
            let batch = Batch::chain(generation.sequence.id(), &generation.tokens[done..next], done, None, want);
            let guard = KvGuard::reserve(&generation.sequence, next - done)?;
            let pass = self.target.submit(&*self.stream, &batch)?;
            if done == 0 {
                self.read_prompt(generation)?;
            }
            let rows = pass.wait()?;
            guard.commit_chain(next - done)?;
            if next == end {
                break LogitsOf { rows, first: next - done - 1 };
            }
        };
        generation.completion.timings.prefill = self.clock.now() - begun;
        generation.judge(&*self.text, &DraftTree::new(), &rows.collect(1, None)?, sink)?;
        generation.first_token = Some(self.clock.now());
        Ok(())
    }

    /// Lets passes of the drafter begin behind all that the target's stream was given. Models may share a pool of KV blocks, and
    /// tokens that a commit moves are read from blocks that are free already.
    fn put_drafter_behind_target(&self) -> Result<(), RuntimeError> {
        match &self.drafter {
            Some(drafter) => drafter.follow(&*self.stream.record()?),
            None => Ok(()),
        }
    }

    /// The other way round.
    fn put_target_behind_drafter(&self) -> Result<(), RuntimeError> {
        self.drafter.as_ref().map_or(Ok(()), |drafter| drafter.precede(&*self.stream))
    }
}

/// Entropy of the operating system, by way of the standard library's hash keys.
fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    RandomState::new().hash_one(since.as_nanos())
}
