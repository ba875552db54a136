//! Rounds: draft, verify, emit, roll back; and while the target verifies, draft ahead.

mod ahead;
mod drafting;
mod generation;
mod observe;
mod round;
mod session;
mod terms;

pub use generation::Generation;
pub use observe::{RoundObserver, RoundReport, RoundTimes};
pub(crate) use round::panic_message;
pub use round::{RowShare, Turn};
pub use session::Session;
pub(crate) use terms::Terms;

use std::sync::Arc;
use std::time::Duration;

use spec_core::{DraftCost, Prices, RowKernels, ScalarScan, Start, Token, TokenLogProb};

use crate::clock::MachineClock;
use crate::{
    Clock, DraftCacheStats, DraftWith, Drafter, Emitted, FinishReason, GenerationId, HostStream, KvUsage, Model,
    Request, RuntimeError, Sequence, SpeculationStats, Stream, Timings, TokenText,
};
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
    /// What passes of the target have taken, for generations to come.
    prices: Prices,
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
    /// How often it had to give its place in the KV cache to others, and read its text anew.
    pub preempted: usize,
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
            prices: Prices::new(1),
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
        let mut generation = self.terms().generation(request)?;
        let (id, sequence) = match kept.take() {
            Some(kept) => self.resume(kept, &generation.request)?,
            None => (self.fresh_id(), Sequence::open(&self.target)?),
        };
        self.enrol(&mut generation, id);
        generation.enter(sequence)?;
        Ok(generation)
    }

    /// What requests are judged by before anything is computed.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            target: Arc::clone(&self.target),
            text: Arc::clone(&self.text),
            kernels: Arc::clone(&self.kernels),
            drafters: self.drafter.as_deref().map(Drafter::members).unwrap_or_default(),
        }
    }

    /// Makes a generation known to its policy and its drafter.
    fn enrol(&mut self, generation: &mut Generation, id: GenerationId) {
        generation.id = id;
        let cost = self.drafter.as_ref().map_or(DraftCost::Free, |drafter| drafter.cost());
        if self.prices.is_known() {
            generation.request.draft_len.learn(&self.prices);
        }
        generation.request.draft_len.start(Start { prompt_len: generation.request.prompt.len(), drafter: cost });
        if let Some(drafter) = &mut self.drafter {
            let only = match &generation.request.draft_with {
                DraftWith::Only(name) => Some(&**name),
                DraftWith::All | DraftWith::Nothing => None,
            };
            drafter.restrict(id, only);
        }
    }

    /// Begins with a generation that its terms have made.
    pub(crate) fn admit(&mut self, generation: &mut Generation) {
        let id = self.fresh_id();
        self.enrol(generation, id);
    }

    /// Frees what a generation holds of the caches; it reads its text anew when it goes on.
    pub(crate) fn suspend(&mut self, generation: &mut Generation) {
        generation.sequence = None;
        if let Some(drafter) = &mut self.drafter {
            drafter.suspend(generation.id);
        }
    }

    fn fresh_id(&mut self) -> GenerationId {
        self.started += 1;
        GenerationId(self.started)
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(crate) fn target(&self) -> &Arc<dyn Model> {
        &self.target
    }

    pub(crate) fn draft_cache(&self) -> Option<DraftCacheStats> {
        self.drafter.as_ref().and_then(|drafter| drafter.draft_cache())
    }

    pub(crate) fn draft_kv(&self) -> Option<KvUsage> {
        self.drafter.as_ref().and_then(|drafter| drafter.kv_usage())
    }

    /// One step: the prefill and the first token, or one round. Each emitted token goes to `sink`.
    /// Gives `false` once the generation has ended.
    ///
    /// # Errors
    /// What the devices, the sampling pipeline or the rule report; KV caches are rolled back then.
    pub fn step(&mut self, generation: &mut Generation, sink: &mut dyn FnMut(&Emitted)) -> Result<bool, RuntimeError> {
        loop {
            let read_prompt = generation.first_token.is_some();
            let most = self.target.config().max_rows;
            let turn = Turn { generation: &mut *generation, sink: &mut *sink };
            let goes_on = self.step_all(&mut [turn], &RowShare { most, beside: most, catches: false }).remove(0)?;
            if !goes_on || read_prompt || generation.first_token.is_some() {
                return Ok(goes_on);
            }
        }
    }

    /// Frees the drafter's state and gives the result so far.
    pub fn finish(&mut self, generation: Generation) -> Completion {
        self.finish_for(generation, false)
    }

    /// The same; with `catches` a drafter or an observer that panics meanwhile harms nobody.
    pub(crate) fn finish_for(&mut self, mut generation: Generation, catches: bool) -> Completion {
        let forgotten = round::guarded(catches, "the drafter", || {
            self.drafter.iter_mut().for_each(|drafter| drafter.forget(generation.id));
            Ok(())
        });
        let concluded = round::guarded(catches, "an observer of rounds", || {
            generation.conclude();
            Ok(())
        });
        for error in [forgotten, concluded].into_iter().filter_map(Result::err) {
            tracing::error!(%error, "behind the end of a generation");
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
