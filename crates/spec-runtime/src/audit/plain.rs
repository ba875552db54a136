//! The laws of plain decoding, and a drafter's guesses, along texts that are there already.

use std::sync::Arc;

use spec_core::{KeyedChoices, Law, Pipeline, RowKernels, SamplingError, SamplingParams, ScalarScan, Scratch, Token};

use crate::{
    Batch, DraftContext, Drafter, GenerationId, HostStream, KvGuard, Model, Rows, RuntimeError, Sequence, Stream, Want,
};

/// Reads texts as plain decoding would have: a pass for every token, of one row, no draft beside it and nothing rolled back.
///
/// It shares the model with the engine that it is to check, and nothing of its rounds: not the rows of a verification, not their
/// places in the cache, not its history of penalties.
pub struct PlainLaws {
    target: Arc<dyn Model>,
    vocab: usize,
    stream: Box<dyn Stream>,
    kernels: Arc<dyn RowKernels>,
    text: Option<Text>,
    scratch: Scratch,
}

/// The text that is read.
struct Text {
    sequence: Sequence,
    /// Tokens of the text; the sequence holds all but the last.
    tokens: Vec<Token>,
    pipeline: Pipeline,
    /// Behind the last token, once that was fed.
    rows: Option<Box<dyn Rows>>,
}

impl PlainLaws {
    /// A reader of `target`, of whose rows the first `vocab` logits are tokens.
    pub fn new(target: Arc<dyn Model>, vocab: usize) -> Self {
        Self {
            target,
            vocab,
            stream: Box::new(HostStream),
            kernels: Arc::new(ScalarScan),
            text: None,
            scratch: Scratch::default(),
        }
    }

    /// Runs passes on a stream of the model's device.
    #[must_use]
    pub fn on_stream(mut self, stream: Box<dyn Stream>) -> Self {
        self.stream = stream;
        self
    }

    /// Runs passes over rows of logits with the device's kernels.
    #[must_use]
    pub fn with_row_kernels(mut self, kernels: Arc<dyn RowKernels>) -> Self {
        self.kernels = kernels;
        self
    }

    /// Tokens that the laws are over.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Begins a text. What the text before shares with the prompt is not read again.
    ///
    /// # Errors
    /// [`RuntimeError::BadRequest`] for an empty prompt, else what the device or the sampling pipeline report.
    pub fn begin(&mut self, prompt: &[Token], sampling: &SamplingParams) -> Result<(), RuntimeError> {
        let Some((_, before)) = prompt.split_last() else {
            let reason = "it is empty; give at least one token".into();
            return Err(RuntimeError::BadRequest { field: "prompt", reason });
        };
        let mut pipeline = Pipeline::new(sampling.clone(), self.vocab)?.with_kernels(Arc::clone(&self.kernels));
        pipeline.extend(prompt);
        self.target.prepare()?;
        let sequence = self.sequence_behind(before)?;
        self.text = Some(Text { sequence, tokens: prompt.to_vec(), pipeline, rows: None });
        Ok(())
    }

    /// The law of the next token.
    ///
    /// # Errors
    /// What the device or the sampling pipeline report, and [`RuntimeError::BadRequest`] before a text was begun.
    pub fn law(&mut self) -> Result<Law<'_>, RuntimeError> {
        let unbegun = || RuntimeError::BadRequest { field: "prompt", reason: "no text was begun".into() };
        let mut text = self.text.take().ok_or_else(unbegun)?;
        if text.rows.is_none() {
            let (last, before) = (text.tokens.len() - 1, text.tokens[text.tokens.len() - 1]);
            text.rows = Some(self.pass(&text.sequence, &[before], last, Want::Logits)?);
        }
        let Text { rows, pipeline, .. } = self.text.insert(text);
        let rows = rows.as_ref().ok_or_else(unbegun)?;
        Ok(pipeline.law(rows.logits(0)?, None, &mut self.scratch)?)
    }

    /// Goes on with `token`, whatever its law was. Its place must have been read by [`law`](Self::law).
    pub fn push(&mut self, token: Token) {
        if let Some(text) = &mut self.text {
            text.tokens.push(token);
            text.pipeline.push(token);
            text.rows = None;
        }
    }

    /// A sequence that holds `tokens`: what it has of them already stays.
    fn sequence_behind(&mut self, tokens: &[Token]) -> Result<Sequence, RuntimeError> {
        let kept = match self.text.take() {
            Some(Text { sequence, tokens: held, .. }) => {
                let shared = held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
                sequence.truncate(shared)?.then_some(sequence)
            }
            None => None,
        };
        let sequence = match kept {
            Some(sequence) => sequence,
            None => Sequence::open(&self.target)?,
        };
        let mut done = sequence.kv_len()?;
        for part in tokens[done..].chunks(self.target.config().max_rows) {
            self.pass(&sequence, part, done, Want::Nothing)?;
            done += part.len();
        }
        Ok(sequence)
    }

    fn pass(
        &self,
        sequence: &Sequence,
        tokens: &[Token],
        position: usize,
        want: Want,
    ) -> Result<Box<dyn Rows>, RuntimeError> {
        let guard = KvGuard::reserve(sequence, tokens.len())?;
        let batch = Batch::chain(sequence.id(), tokens, position, None, want);
        let rows = self.target.submit(&*self.stream, &batch)?.wait()?;
        guard.commit_chain(tokens.len())?;
        Ok(rows)
    }
}

/// What a drafter guesses of each next token, given the text before it and nothing else.
///
/// It needs a drafter of its own: one that has drafted for the text already may remember how it goes on, and a guess that knows the
/// token proves nothing.
pub struct Guesses {
    drafter: Box<dyn Drafter>,
    texts: u64,
}

impl Guesses {
    /// Guesses of `drafter`, which nobody else has asked.
    pub fn new(drafter: Box<dyn Drafter>) -> Self {
        Self { drafter, texts: 0 }
    }

    /// Its name.
    pub fn drafter(&self) -> &str {
        self.drafter.name()
    }

    /// The likeliest token in front of each of `emitted`, which follows `prompt`; `None` where the drafter guesses nothing.
    ///
    /// # Errors
    /// What the drafter's device or the sampling pipeline report.
    pub fn read(
        &mut self,
        prompt: &[Token],
        emitted: &[Token],
        sampling: &SamplingParams,
        vocab: usize,
    ) -> Result<Vec<Option<Token>>, RuntimeError> {
        if self.texts == 0 {
            self.drafter.prepare()?;
        }
        self.texts += 1;
        let generation = GenerationId(self.texts);
        let mut guesses = Vec::with_capacity(emitted.len());
        let read = self.guess_each(generation, prompt, emitted, Pipeline::new(sampling.clone(), vocab), &mut guesses);
        self.drafter.forget(generation);
        read.map(|()| guesses)
    }

    fn guess_each(
        &mut self,
        generation: GenerationId,
        prompt: &[Token],
        emitted: &[Token],
        pipeline: Result<Pipeline, SamplingError>,
        guesses: &mut Vec<Option<Token>>,
    ) -> Result<(), RuntimeError> {
        let mut pipeline = pipeline?;
        pipeline.extend(prompt);
        let text = [prompt, emitted].concat();
        for (length, &token) in (prompt.len()..).zip(emitted) {
            let mut choices = KeyedChoices::new(0, length);
            let context = DraftContext::new(generation, &text[..length], &mut pipeline, &mut choices, 1);
            let tree = self.drafter.draft(context)?;
            let guess =
                tree.nodes().next().map(|(_, node)| node.token).filter(|&guess| (guess as usize) < pipeline.vocab());
            guesses.push(guess);
            pipeline.push(token);
            self.drafter.observe(generation, &text[..=length], usize::from(guess == Some(token)))?;
        }
        Ok(())
    }
}
