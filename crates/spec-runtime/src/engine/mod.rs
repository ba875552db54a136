//! Rounds: draft, verify, emit, roll back.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use spec_core::{
    AcceptanceRule, Coupled, DraftCost, DraftTree, Greedy, KeyedChoices, LogitRows, Noise, NoiseScan, Origin, PathLaws,
    PathMasks, Pipeline, Round, RowKernels, ScalarScan, Start, Token, TokenLogProb, TreeError, top_log_probabilities,
};

use crate::clock::MachineClock;
use crate::constraint::ConstraintMasks;
use crate::emission::Emission;
use crate::{
    Batch, Clock, DraftContext, Drafter, Emitted, FinishReason, GenerationId, HostStream, KvGuard, Model, Request,
    RequestRule, Row, Rows, RuntimeError, Sequence, SpeculationStats, Stream, Timings, TokenText, Want,
};

/// A target model, its vocabulary, and perhaps a drafter.
#[doc(alias = "SpecDecodeOp")]
pub struct Engine {
    target: Arc<dyn Model>,
    text: Arc<dyn TokenText>,
    stream: Box<dyn Stream>,
    drafter: Option<Box<dyn Drafter>>,
    kernels: Arc<dyn RowKernels>,
    clock: Arc<dyn Clock>,
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

/// A generation under way. Dropping it frees its KV blocks; its drafter state goes with [`Engine::finish`]
/// or when [`Engine::generate`] returns.
pub struct Generation {
    id: GenerationId,
    request: Request,
    rule: Box<dyn AcceptanceRule>,
    sequence: Sequence,
    pipeline: Pipeline,
    emission: Emission,
    /// Prompt and emitted tokens.
    tokens: Vec<Token>,
    first_token: Option<Duration>,
    completion: Completion,
    finished: bool,
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

    /// Runs the target's passes on a stream of its device.
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
        let vocab = self.text.vocab();
        let context = self.target.config().context;
        if vocab > self.target.config().vocab {
            return Err(RuntimeError::BadRequest {
                field: "vocabulary",
                reason: format!("the tokenizer has {vocab} tokens, the model's rows {}", self.target.config().vocab),
            });
        }
        request.check(vocab, context)?;
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
        self.started += 1;
        Ok(Generation {
            id: GenerationId(self.started),
            sequence: Sequence::open(&self.target)?,
            pipeline,
            emission: Emission::new(stop),
            tokens: request.prompt.clone(),
            first_token: None,
            completion: Completion {
                tokens: Vec::new(),
                text: String::new(),
                finish: FinishReason::Length,
                prompt_tokens: request.prompt.len(),
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
        })
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
            let rows = self.target.submit(&*self.stream, &batch)?.wait()?;
            guard.commit_chain(next - done)?;
            if next == end {
                break LogitsOf { rows, first: next - done - 1 };
            }
        };
        generation.completion.timings.prefill = self.clock.now() - begun;
        generation.judge(&*self.text, &DraftTree::new(), &rows.collect(1)?, sink)?;
        generation.first_token = Some(self.clock.now());
        Ok(())
    }

    fn round(&mut self, generation: &mut Generation, sink: &mut dyn FnMut(&Emitted)) -> Result<(), RuntimeError> {
        let begun = self.clock.now();
        let Draft { tree, forced, preparation } = self.draft(generation)?;
        let begun = begun + preparation;
        let drafted = self.clock.now();

        let root = generation.tokens.len() - 1;
        let guard = KvGuard::reserve(&generation.sequence, 1 + tree.len())?;
        let batch = verification_batch(&generation.sequence, &generation.tokens, &tree);
        let rows = self.target.submit(&*self.stream, &batch)?.wait()?;
        let verified = self.clock.now();

        let rows = LogitsOf { rows, first: 0 };
        let Judged { path, emitted, accepted } =
            generation.judge(&*self.text, &tree, &rows.collect(1 + tree.len())?, sink)?;
        let sampled = self.clock.now();

        // The last emitted token has no KV entry yet: the root row and those of the accepted nodes before it are kept.
        guard.commit(&path[..emitted])?;
        debug_assert_eq!(generation.sequence.kv_len().ok(), Some(root + emitted), "KV length is committed - 1");
        if let Some(drafter) = &mut self.drafter
            && !generation.finished
        {
            drafter.observe(generation.id, &generation.tokens, if forced { 0 } else { accepted })?;
        }
        // What a constraint forces says nothing about the drafter.
        if !forced {
            generation.request.draft_len.observe(&Round {
                drafted: tree.len(),
                accepted,
                emitted,
                draft: drafted - begun,
                verify: verified - drafted,
            });
        }
        generation.completion.speculation.forced += if forced { tree.len() } else { 0 };
        generation.completion.speculation.record(&nodes_by_depth(&tree), accepted, emitted);
        let timings = &mut generation.completion.timings;
        timings.preparation += preparation;
        timings.draft += drafted - begun;
        timings.verify += verified - drafted;
        timings.sample += sampled - verified;
        timings.rollback += self.clock.now() - sampled;
        if let Some(first) = generation.first_token {
            timings.decode = sampled - first - timings.preparation;
        }
        Ok(())
    }

    /// Drafts within what may still be emitted and what the context still holds.
    fn draft(&mut self, generation: &mut Generation) -> Result<Draft, RuntimeError> {
        let Some(drafter) = &mut self.drafter else { return Ok(Draft::default()) };
        let room = self.target.config().context - generation.tokens.len();
        let rows = self.target.config().max_rows - 1;
        let most = room.min(rows).min(generation.emission.remaining() - 1);
        if let Some(constraint) = &mut generation.request.constraint {
            let forced = constraint.forced(most, self.text.vocab(), generation.emission.end_ids())?;
            if !forced.is_empty() {
                let tree = DraftTree::chain(&forced, Origin::Fixed);
                return Ok(Draft { tree, forced: true, ..Draft::default() });
            }
        }
        let budget = generation.request.draft_len.next().min(most);
        if budget == 0 {
            return Ok(Draft::default());
        }
        let mut preparation = Duration::ZERO;
        if !self.is_prepared {
            let begun = self.clock.now();
            drafter.prepare()?;
            preparation = self.clock.now() - begun;
            self.is_prepared = true;
        }
        let mut choices = generation.choices();
        let mut tree = drafter.draft(DraftContext {
            generation: generation.id,
            tokens: &generation.tokens,
            end_ids: generation.emission.end_ids(),
            pipeline: &mut generation.pipeline,
            proposal: generation.rule.proposal(),
            choices: &mut choices,
            budget,
            context: generation.request.draft_len.context(),
            width: if generation.rule.chains_only() { 1 } else { generation.request.draft_width.max(1) },
            prices: generation.request.draft_len.prices(),
            worth: None,
        })?;
        debug_assert_eq!(generation.pipeline.len(), generation.tokens.len(), "the drafter restores the history");
        let drafter = |source: TreeError| RuntimeError::Draft { drafter: drafter.name().to_owned(), source };
        // Given nodes can go. A drawn one cannot, and is an error: dropping it would bias the output.
        tree.truncate(budget).map_err(&drafter)?;
        // A token that the target does not have cannot be scored; what was drafted before it can.
        let vocab = self.text.vocab();
        let known = tree.nodes().take_while(|(_, node)| (node.token as usize) < vocab).count();
        tree.truncate(known).map_err(&drafter)?;
        Ok(Draft { tree, forced: false, preparation })
    }
}

impl Generation {
    /// The text so far: prompt and emitted tokens.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The result so far.
    pub fn completion(&self) -> &Completion {
        &self.completion
    }

    /// The randomness of the round that begins now; drafting and judging ask it for different purposes.
    fn choices(&self) -> KeyedChoices {
        KeyedChoices::with_choice(self.completion.seed, self.request.choice, self.tokens.len())
    }

    /// Judges a tree and emits what stands.
    fn judge(
        &mut self,
        text: &dyn TokenText,
        tree: &DraftTree,
        rows: &[&[f32]],
        sink: &mut dyn FnMut(&Emitted),
    ) -> Result<Judged, RuntimeError> {
        let base = self.tokens.len();
        let outcome = {
            let logits = Borrowed(rows);
            let mut choices = self.choices();
            let end_ids = self.emission.end_ids();
            let constraint = self.request.constraint.as_deref_mut();
            let masks = constraint.map(|constraint| ConstraintMasks::new(tree, constraint, text.vocab(), end_ids));
            let path_masks = masks.as_ref().map(|masks| masks as &dyn PathMasks);
            let mut laws = PathLaws::new(tree, &logits, &mut self.pipeline, base, path_masks);
            let outcome = self.rule.verify(tree, &mut laws, &mut choices);
            drop(laws);
            masks.map_or(Ok(()), ConstraintMasks::finish)?;
            outcome?
        };
        debug_assert_eq!(self.pipeline.len(), base, "the rule restores the history");
        let accepted = outcome.accepted.iter().map(|&node| (node.index() as u32 + 1, tree.node(node).token));
        let mut row = 0;
        let mut path = vec![0];
        let mut emitted = 0;
        for (next_row, token) in accepted.chain([(0, outcome.next)]) {
            self.emit(text, token, rows[row as usize], sink)?;
            emitted += 1;
            if self.finished || emitted > outcome.accepted.len() {
                break;
            }
            path.push(next_row);
            row = next_row;
        }
        Ok(Judged { path, emitted, accepted: emitted.min(outcome.accepted.len()) })
    }

    fn emit(
        &mut self,
        text: &dyn TokenText,
        token: Token,
        logits: &[f32],
        sink: &mut dyn FnMut(&Emitted),
    ) -> Result<(), RuntimeError> {
        let emitted = self.emission.push(token, &text.bytes(token));
        self.tokens.push(token);
        self.pipeline.push(token);
        let completion = &mut self.completion;
        completion.completion_tokens = self.emission.count();
        completion.text.push_str(&emitted.text);
        if emitted.shown {
            completion.tokens.push(token);
            if let (Some(all), Some(n)) = (&mut completion.logprobs, self.request.logprobs) {
                all.push(top_log_probabilities(logits, text.vocab(), token, n)?);
            }
        }
        match emitted.finish {
            Some(reason) => self.end(reason),
            None => self.request.constraint.as_mut().map_or(Ok(()), |constraint| constraint.advance(token))?,
        }
        sink(&emitted);
        Ok(())
    }

    fn cancel(&mut self, sink: &mut dyn FnMut(&Emitted)) {
        let text = self.emission.flush();
        if !text.is_empty() {
            self.completion.text.push_str(&text);
            let token = self.tokens[self.tokens.len() - 1];
            sink(&Emitted { token, text, shown: false, finish: Some(FinishReason::Cancelled) });
        }
        self.end(FinishReason::Cancelled);
    }

    fn end(&mut self, reason: FinishReason) {
        self.completion.finish = reason;
        self.finished = true;
    }
}

/// What a round proposes.
#[derive(Default)]
struct Draft {
    tree: DraftTree,
    /// Whether a constraint left no choice, rather than a drafter guessing.
    forced: bool,
    /// What preparing the drafter took.
    preparation: Duration,
}

/// What a round came to.
struct Judged {
    /// Rows of the accepted path, the root row first; as many as tokens were emitted, at least.
    path: Vec<u32>,
    /// Tokens emitted.
    emitted: usize,
    /// Those of them that were drafted.
    accepted: usize,
}

/// Rows of a pass from row `first` on.
struct LogitsOf {
    rows: Box<dyn Rows>,
    first: usize,
}

impl LogitsOf {
    fn collect(&self, count: usize) -> Result<Vec<&[f32]>, RuntimeError> {
        (self.first..self.first + count).map(|row| self.rows.logits(row)).collect()
    }
}

struct Borrowed<'a>(&'a [&'a [f32]]);

impl LogitRows for Borrowed<'_> {
    fn row(&self, index: usize) -> &[f32] {
        self.0[index]
    }
}

/// The last committed token and the tree below it.
fn verification_batch(sequence: &Sequence, tokens: &[Token], tree: &DraftTree) -> Batch {
    let seq = sequence.id();
    let root = tokens.len() - 1;
    let first = Row { seq, token: tokens[root], position: root, parent: None, want: Want::Logits };
    let nodes = tree.nodes().map(|(id, node)| Row {
        seq,
        token: node.token,
        position: root + tree.depth(id),
        parent: Some(node.parent.map_or(0, |parent| parent.index() as u32 + 1)),
        want: Want::Logits,
    });
    Batch { rows: std::iter::once(first).chain(nodes).collect() }
}

fn nodes_by_depth(tree: &DraftTree) -> Vec<usize> {
    let mut counts = vec![0; tree.height()];
    for (id, _) in tree.nodes() {
        counts[tree.depth(id) - 1] += 1;
    }
    counts
}

/// Entropy of the operating system, by way of the standard library's hash keys.
fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    RandomState::new().hash_one(since.as_nanos())
}
