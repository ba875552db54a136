//! The verification kernel: one pass over a row of logits.
//!
//! To judge a draft token, a rule needs the probabilities of a few ids and not the softmax of the row. Those follow from the
//! maximum and the sum of the exponentials, which one pass gives: each block of [`BLOCK`] logits is read from memory once,
//! summed against its own maximum, and the blocks are put together in order. A device that holds a row in pieces, such as
//! the last matrix product of a model, makes the [`BlockSummary`]s where the logits are and combines them here.

use crate::math::{exp_negative, ln};
use crate::select::Peak;
use crate::{RowKernels, SamplingError, ScalarScan, Token};

/// Logits per block: long enough that the finding of a maximum hides behind the exponentials, short enough for the first
/// level cache. Blocks are part of the definition of a total, so that equal rows have equal totals to the last bit.
///
/// In this crate's own tests they are tiny, so that the enumeration of small vocabularies meets several.
pub const BLOCK: usize = if cfg!(test) { 2 } else { 2048 };

/// One block of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockSummary {
    /// Its greatest logit; `-inf` when all are masked.
    pub max: f32,
    /// Sum of `exp((logit - max) / temperature)`; 0 when all are masked.
    pub total: f64,
}

impl BlockSummary {
    pub(crate) fn of(kernels: &dyn RowKernels, logits: &[f32], inverse_temperature: f64) -> Self {
        let max = kernels.greatest(logits).0;
        Self { max, total: block_total(kernels, logits, max, inverse_temperature) }
    }
}

/// What a row says, without its softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowSummary {
    /// The greatest logit, before the temperature.
    pub max: f32,
    /// Its token, the lowest id among equals.
    pub argmax: Token,
    /// Sum over the row of `exp((logit - max) / temperature)`; at least 1.
    pub total: f64,
    /// `1 / temperature`.
    pub inverse_temperature: f64,
}

impl RowSummary {
    /// Summarises a row: f32 logits, index = token id, `-inf` for masked tokens.
    ///
    /// # Errors
    /// [`SamplingError::LogitValue`] for NaN or plus infinity, [`SamplingError::NothingAllowed`] when all tokens are masked.
    pub fn of(row: &[f32], inverse_temperature: f64) -> Result<Self, SamplingError> {
        Self::with_kernels(&ScalarScan, row, inverse_temperature)
    }

    /// As [`of`](Self::of), to the same bits, with the kernels of a device.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn with_kernels(
        kernels: &dyn RowKernels,
        row: &[f32],
        inverse_temperature: f64,
    ) -> Result<Self, SamplingError> {
        let mut best = Best::new();
        let mut combined = Combined::default();
        for (index, logits) in row.chunks(BLOCK).enumerate() {
            let max = best.enter(kernels, index, logits);
            let total = block_total(kernels, logits, max, inverse_temperature);
            combined.add(BlockSummary { max, total }, inverse_temperature);
        }
        let peak = best.finish(row)?;
        Ok(Self { max: peak.logit, argmax: peak.token, total: combined.total, inverse_temperature })
    }

    /// Puts blocks of [`BLOCK`] logits together, in the row's order. `argmax` is the row's, found by the caller.
    ///
    /// The result equals that of [`of`](Self::of) to the last bit when the blocks' sums do.
    pub fn combine(blocks: impl IntoIterator<Item = BlockSummary>, argmax: Token, inverse_temperature: f64) -> Self {
        let mut combined = Combined::default();
        for block in blocks {
            combined.add(block, inverse_temperature);
        }
        Self { max: combined.max, argmax, total: combined.total, inverse_temperature }
    }

    /// The total alone, for rows whose maximum is known already; the same bits.
    pub(crate) fn total_of(kernels: &dyn RowKernels, row: &[f32], max: f32, inverse_temperature: f64) -> f64 {
        if row.len() <= BLOCK {
            // The maximum of the only block.
            return block_total(kernels, row, max, inverse_temperature);
        }
        let mut combined = Combined::default();
        for logits in row.chunks(BLOCK) {
            combined.add(BlockSummary::of(kernels, logits, inverse_temperature), inverse_temperature);
        }
        combined.total
    }

    /// Logarithm of the sum of `exp(logit / temperature)`.
    pub fn log_sum_exp(&self) -> f64 {
        f64::from(self.max) * self.inverse_temperature + ln(self.total)
    }

    /// Probability of a token of the row, given its logit.
    pub fn probability(&self, logit: f32) -> f64 {
        exp_negative(self.distance(logit)) / self.total
    }

    /// Natural log-probability of a token of the row, given its logit.
    pub fn log_probability(&self, logit: f32) -> f64 {
        self.distance(logit) - ln(self.total)
    }

    /// The probabilities of a few ids; 0 for ids that the row does not have.
    pub fn probabilities<'a>(&'a self, row: &'a [f32], ids: &'a [Token]) -> impl Iterator<Item = f64> + 'a {
        ids.iter().map(|&id| row.get(id as usize).map_or(0.0, |&logit| self.probability(logit)))
    }

    pub(crate) fn peak(&self) -> Peak {
        Peak { token: self.argmax, logit: self.max }
    }

    fn distance(&self, logit: f32) -> f64 {
        (f64::from(logit) - f64::from(self.max)) * self.inverse_temperature
    }
}

/// The running total, relative to the running maximum.
struct Combined {
    max: f32,
    total: f64,
}

impl Default for Combined {
    fn default() -> Self {
        Self { max: f32::NEG_INFINITY, total: 0.0 }
    }
}

impl Combined {
    fn add(&mut self, block: BlockSummary, inverse_temperature: f64) {
        let distance = |low: f32, high: f32| (f64::from(low) - f64::from(high)) * inverse_temperature;
        if block.max > self.max {
            // Also the first block: nothing times zero is added.
            self.total *= exp_negative(distance(self.max, block.max));
            self.max = block.max;
            self.total += block.total;
        } else if block.total > 0.0 {
            self.total += block.total * exp_negative(distance(block.max, self.max));
        }
    }
}

fn block_total(kernels: &dyn RowKernels, logits: &[f32], max: f32, inverse_temperature: f64) -> f64 {
    if max == f32::NEG_INFINITY { 0.0 } else { kernels.exp_sum(logits, max, inverse_temperature) }
}

/// The greatest logit of a block, and whether all of its logits are proper: not NaN and below plus infinity.
#[inline(always)]
pub(crate) fn block_max(logits: &[f32]) -> (f32, bool) {
    const LANES: usize = 16;
    let mut maxima = [f32::NEG_INFINITY; LANES];
    // NaN is below nothing, so this one comparison finds all that is improper.
    let below_infinity = logits.iter().fold(0u32, |count, &logit| count + u32::from(logit < f32::INFINITY));
    let (rows, rest) = logits.as_chunks::<LANES>();
    for row in rows {
        for lane in 0..LANES {
            maxima[lane] = if row[lane] > maxima[lane] { row[lane] } else { maxima[lane] };
        }
    }
    for (lane, &logit) in rest.iter().enumerate() {
        maxima[lane] = if logit > maxima[lane] { logit } else { maxima[lane] };
    }
    let greatest = maxima.iter().fold(f32::NEG_INFINITY, |max, &value| if value > max { value } else { max });
    (greatest, below_infinity as usize == logits.len())
}

/// The search for the peak, block by block.
struct Best {
    logit: f32,
    block: usize,
    proper: bool,
}

impl Best {
    fn new() -> Self {
        Self { logit: f32::NEG_INFINITY, block: 0, proper: true }
    }

    /// Looks at the next block and gives its maximum.
    fn enter(&mut self, kernels: &dyn RowKernels, block: usize, logits: &[f32]) -> f32 {
        let (greatest, proper) = kernels.greatest(logits);
        self.proper &= proper;
        if greatest > self.logit {
            self.logit = greatest;
            self.block = block;
        }
        greatest
    }

    fn finish(self, row: &[f32]) -> Result<Peak, SamplingError> {
        if !self.proper
            && let Some(index) = row.iter().position(|&logit| logit.is_nan() || logit == f32::INFINITY)
        {
            return Err(SamplingError::LogitValue { token: index as Token, value: row[index] });
        }
        let start = self.block * BLOCK;
        match row.iter().skip(start).position(|&logit| logit == self.logit) {
            Some(offset) if self.logit > f32::NEG_INFINITY => {
                Ok(Peak { token: (start + offset) as Token, logit: self.logit })
            }
            _ => Err(SamplingError::NothingAllowed { vocab: row.len() }),
        }
    }
}

/// Finds the peak of a row and refuses what has no law.
///
/// # Errors
/// NaN, plus infinity, or nothing but `-inf`.
pub(crate) fn peak(kernels: &dyn RowKernels, row: &[f32]) -> Result<Peak, SamplingError> {
    let mut best = Best::new();
    for (block, logits) in row.chunks(BLOCK).enumerate() {
        best.enter(kernels, block, logits);
    }
    best.finish(row)
}
