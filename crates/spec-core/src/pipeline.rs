//! From logits to a law: one function for target rows and drafter rows.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::history::History;
use crate::select::{filters, key_logit, key_token, select};
use crate::summary::{RowSummary, peak};
use crate::{Law, RowKernels, SamplingError, SamplingParams, ScalarScan, Token};

/// Which tokens a constraint allows next.
pub trait TokenMask {
    /// Whether `token` may be emitted.
    fn allows(&self, token: Token) -> bool;

    /// Sets the logits of forbidden tokens to `-inf`. A mask kept as a bit set can do better than asking token by token.
    fn apply(&self, logits: &mut [f32]) {
        for (token, logit) in (0..).zip(logits) {
            if !self.allows(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// Buffers that [`Pipeline::law`] reuses from row to row.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    row: Vec<f32>,
    keys: Vec<u64>,
    ids: Vec<Token>,
    logits: Vec<f32>,
}

/// The processing state of one sequence: its parameters, and the history that penalties look back on.
///
/// The steps, in order: repeat, presence and frequency penalties; bias; mask; temperature; top-k; top-p; min-p. Ties are cut
/// in favour of the lowest id, and the most probable token always stays.
///
/// The history is what the caller pushes: the prompt first, if its tokens are to count as seen (as in llama.cpp and in
/// Hugging Face transformers), then every emitted token. Tokens at or above the vocabulary are counted in the length and
/// penalise nothing.
///
/// ```
/// use spec_core::{Pipeline, SamplingParams, Scratch};
///
/// let params = SamplingParams { temperature: 1.0, top_k: 2, ..SamplingParams::default() };
/// let pipeline = Pipeline::new(params, 3)?;
/// let mut scratch = Scratch::default();
/// let law = pipeline.law(&[1.0, 3.0, 3.0], None, &mut scratch)?;
/// assert_eq!(law.argmax(), 1);
/// assert_eq!([law.probability(0), law.probability(1)], [0.0, 0.5]);
/// # Ok::<(), spec_core::SamplingError>(())
/// ```
#[derive(Clone)]
pub struct Pipeline {
    params: SamplingParams,
    vocab: usize,
    history: History,
    kernels: Arc<dyn RowKernels>,
    /// Lent to [`PathLaws`](crate::PathLaws), so that rounds reuse it.
    pub(crate) spare: Scratch,
}

impl Pipeline {
    /// A pipeline with an empty history. `vocab` counts the real tokens: ids at or above it are padding of the model's output,
    /// masked and never emitted.
    ///
    /// # Errors
    /// When a parameter is out of range, or the vocabulary is empty or larger than token ids reach.
    pub fn new(params: SamplingParams, vocab: usize) -> Result<Self, SamplingError> {
        if vocab == 0 || u32::try_from(vocab).is_err() {
            return Err(SamplingError::Vocabulary { vocab });
        }
        params.validate(vocab)?;
        let history = History::new(&params);
        Ok(Self { params, vocab, history, kernels: Arc::new(ScalarScan), spare: Scratch::default() })
    }

    /// Runs the passes over rows with the kernels of a device; the laws stay the same to the last bit.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Arc<dyn RowKernels>) -> Self {
        self.kernels = kernels;
        self
    }

    /// The parameters.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Number of real tokens.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Adds a token to the history.
    pub fn push(&mut self, token: Token) {
        self.history.push(token);
    }

    /// Adds tokens to the history.
    pub fn extend(&mut self, tokens: &[Token]) {
        for &token in tokens {
            self.push(token);
        }
    }

    /// Length of the history.
    pub fn len(&self) -> usize {
        self.history.len()
    }

    /// Whether the history is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the history back to its first `len` tokens, as if the others had never been pushed. A greater `len` does nothing.
    pub fn truncate(&mut self, len: usize) {
        self.history.truncate(len);
    }

    /// The law of the next token, given its row of logits (f32, index = token id, at least [`vocab`](Self::vocab) long; what
    /// lies beyond is ignored). `-inf` marks a masked token. The row is copied only when penalties, bias or a mask change it.
    ///
    /// # Errors
    /// When the row is too short, holds NaN or plus infinity, or has every token masked.
    pub fn law<'a>(
        &'a self,
        logits: &'a [f32],
        mask: Option<&dyn TokenMask>,
        scratch: &'a mut Scratch,
    ) -> Result<Law<'a>, SamplingError> {
        self.form(logits, mask, scratch, false)
    }

    /// The same law, for a caller who will ask for probabilities: their total is taken in the pass that finds the maximum
    /// ([`RowSummary`]), rather than in a second one.
    ///
    /// # Errors
    /// As [`law`](Self::law).
    pub fn summarized_law<'a>(
        &'a self,
        logits: &'a [f32],
        mask: Option<&dyn TokenMask>,
        scratch: &'a mut Scratch,
    ) -> Result<Law<'a>, SamplingError> {
        self.form(logits, mask, scratch, true)
    }

    /// The probability of a row's likeliest token as the model has it: before penalties, temperature and filters.
    ///
    /// # Errors
    /// When the row is too short or has no law.
    pub fn greatest_probability(&self, logits: &[f32]) -> Result<f64, SamplingError> {
        let vocab = self.vocab;
        let row = logits.get(..vocab).ok_or(SamplingError::RowTooShort { found: logits.len(), vocab })?;
        let summary = RowSummary::with_kernels(&*self.kernels, row, 1.0)?;
        Ok(summary.probability(summary.max))
    }

    fn form<'a>(
        &'a self,
        logits: &'a [f32],
        mask: Option<&dyn TokenMask>,
        scratch: &'a mut Scratch,
        summarize: bool,
    ) -> Result<Law<'a>, SamplingError> {
        let (vocab, kernels) = (self.vocab, &*self.kernels);
        let mut row = logits.get(..vocab).ok_or(SamplingError::RowTooShort { found: logits.len(), vocab })?;
        if !self.history.is_blank() || !self.params.logit_bias.is_empty() || mask.is_some() {
            scratch.row.clear();
            scratch.row.extend_from_slice(row);
            self.edit(&mut scratch.row, mask);
            row = &scratch.row;
        }
        let inverse_temperature = self.params.inverse_temperature();
        if let Some(scale) = inverse_temperature.filter(|_| summarize && !filters(&self.params, vocab)) {
            let summary = RowSummary::with_kernels(kernels, row, scale)?;
            return Ok(Law::summarized(kernels, row, &summary, scale, vocab));
        }
        let peak = peak(kernels, row)?;
        let Some(scale) = inverse_temperature.filter(|_| filters(&self.params, vocab)) else {
            return Ok(Law::new(kernels, row, None, peak, inverse_temperature, vocab));
        };
        select(&self.params, scale, row, peak, &mut scratch.keys);
        scratch.ids.clear();
        scratch.ids.extend(scratch.keys.iter().map(|&key| key_token(key)));
        scratch.logits.clear();
        scratch.logits.extend(scratch.keys.iter().map(|&key| key_logit(key)));
        #[allow(unused_mut)]
        let mut law = Law::new(kernels, &scratch.logits, Some(&scratch.ids), peak, inverse_temperature, vocab);
        #[cfg(any(test, feature = "mutants"))]
        {
            law.unfiltered = row;
        }
        Ok(law)
    }

    fn edit(&self, row: &mut [f32], mask: Option<&dyn TokenMask>) {
        let params = &self.params;
        for (token, count) in self.history.counts() {
            if let Some(logit) = row.get_mut(token as usize) {
                let repeated =
                    if *logit > 0.0 { *logit / params.repeat_penalty } else { *logit * params.repeat_penalty };
                *logit = repeated - params.presence_penalty - count as f32 * params.frequency_penalty;
            }
        }
        for &(token, bias) in &params.logit_bias {
            if let Some(logit) = row.get_mut(token as usize) {
                *logit += bias;
            }
        }
        if let Some(mask) = mask {
            mask.apply(row);
        }
    }
}

impl core::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pipeline").field("params", &self.params).field("vocab", &self.vocab).finish_non_exhaustive()
    }
}
