//! A processed distribution over token ids.

use alloc::vec::Vec;
use core::cell::OnceCell;

use crate::math::{exp_negative, exp_sum_exact};
use crate::scan::Race;
use crate::select::Peak;
use crate::{SamplingError, SharedNoise, Token};

/// What a row of logits means after penalties, bias, mask, temperature and filters.
///
/// It borrows the row where nothing had to change. Probabilities are formed only when asked for.
#[derive(Debug)]
pub struct Law<'a> {
    /// By token id, or by index into `ids`; before the temperature; `-inf` is masked.
    logits: &'a [f32],
    /// The kept tokens, most probable first; `None`: all of them.
    ids: Option<&'a [Token]>,
    peak: Peak,
    /// `None`: one-hot at the peak.
    inverse_temperature: Option<f64>,
    vocab: usize,
    total: OnceCell<f64>,
}

impl<'a> Law<'a> {
    pub(crate) fn new(
        logits: &'a [f32],
        ids: Option<&'a [Token]>,
        peak: Peak,
        inverse_temperature: Option<f64>,
        vocab: usize,
    ) -> Self {
        Self { logits, ids, peak, inverse_temperature, vocab, total: OnceCell::new() }
    }

    /// The most probable token; the lowest id among equals.
    pub fn argmax(&self) -> Token {
        self.peak.token
    }

    /// The tokens that top-k, top-p and min-p kept, most probable first; `None` when no such filter was on.
    pub fn kept(&self) -> Option<&[Token]> {
        self.ids
    }

    /// The token at `position` under the given noise: a sample of this law over the seeds. At temperature 0 the argmax.
    ///
    /// `position` is the absolute position of the sampled token.
    pub fn sample(&self, noise: &SharedNoise<'_>, position: usize) -> Token {
        let Some(inverse_temperature) = self.inverse_temperature else {
            return self.argmax();
        };
        let keys = noise.noise.keys(position);
        let mut race = Race::new(keys, inverse_temperature, self.peak.token, self.peak.logit);
        noise.scan.scan(self.logits, self.ids, &mut race);
        race.winner()
    }

    /// Probability of `token`; 0 for masked, filtered and unknown ids.
    pub fn probability(&self, token: Token) -> f64 {
        let Some(scale) = self.inverse_temperature else {
            return if token == self.peak.token { 1.0 } else { 0.0 };
        };
        let index = match self.ids {
            Some(ids) => ids.iter().position(|&id| id == token),
            None => Some(token as usize),
        };
        let logit = index.and_then(|index| self.logits.get(index));
        logit.map_or(0.0, |&logit| self.weight(logit, scale) / self.total(scale))
    }

    /// Writes the probability of every token id of the vocabulary.
    pub fn probabilities(&self, out: &mut Vec<f64>) {
        out.clear();
        out.resize(self.vocab, 0.0);
        let Some(scale) = self.inverse_temperature else {
            out[self.peak.token as usize] = 1.0;
            return;
        };
        let total = self.total(scale);
        for (index, &logit) in self.logits.iter().enumerate() {
            let token = self.ids.map_or(index, |ids| ids[index] as usize);
            out[token] = self.weight(logit, scale) / total;
        }
    }

    fn weight(&self, logit: f32, scale: f64) -> f64 {
        exp_negative((f64::from(logit) - f64::from(self.peak.logit)) * scale)
    }

    fn total(&self, scale: f64) -> f64 {
        *self.total.get_or_init(|| exp_sum_exact(self.logits, self.peak.logit, scale))
    }
}

/// Finds the peak of a row and refuses what has no law.
///
/// # Errors
/// NaN, plus infinity, or nothing but `-inf`.
pub(crate) fn peak(row: &[f32]) -> Result<Peak, SamplingError> {
    const LANES: usize = 16;
    // Long enough to make folding the lanes cheap, short enough to search again for the id.
    const BLOCK: usize = LANES * 128;
    let mut best = f32::NEG_INFINITY;
    let mut best_block = 0;
    let mut proper = true;
    for (block, logits) in row.chunks(BLOCK).enumerate() {
        let mut maxima = [f32::NEG_INFINITY; LANES];
        // NaN is below nothing, so this one comparison finds all that is improper.
        let below_infinity = logits.iter().fold(0u32, |count, &logit| count + u32::from(logit < f32::INFINITY));
        proper &= below_infinity as usize == logits.len();
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
        if greatest > best {
            best = greatest;
            best_block = block;
        }
    }
    if !proper && let Some(index) = row.iter().position(|&logit| logit.is_nan() || logit == f32::INFINITY) {
        return Err(SamplingError::LogitValue { token: index as Token, value: row[index] });
    }
    let start = best_block * BLOCK;
    match row.iter().skip(start).position(|&logit| logit == best) {
        Some(offset) if best > f32::NEG_INFINITY => Ok(Peak { token: (start + offset) as Token, logit: best }),
        _ => Err(SamplingError::NothingAllowed { vocab: row.len() }),
    }
}
