//! Log-probabilities for reports: log-softmax of a row as the model gave it, before penalties, temperature and filters.

use alloc::vec::Vec;

use crate::math::{exp_sum, ln};
use crate::select::{key_logit, key_token, top_k};
use crate::summary::peak;
use crate::{SamplingError, ScalarScan, Token};

/// The log-probability of an emitted token, and the most probable alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogProb {
    /// The token.
    pub id: Token,
    /// Its natural log-probability; `-inf` when the row masks it.
    pub logprob: f64,
    /// The most probable tokens with theirs, most probable first, ties by lowest id.
    pub top: Vec<(Token, f64)>,
}

/// Log-probability of `token` and of the `n` most probable tokens among the first `vocab` logits, within 3e-5.
///
/// # Errors
/// When the token or the row does not fit the vocabulary, or the row has no law.
pub fn top_log_probabilities(
    logits: &[f32],
    vocab: usize,
    token: Token,
    n: usize,
) -> Result<TokenLogProb, SamplingError> {
    let row = logits.get(..vocab).ok_or(SamplingError::RowTooShort { found: logits.len(), vocab })?;
    let own = *row.get(token as usize).ok_or(SamplingError::UnknownToken { token, vocab })?;
    let shift = log_sum(row)?;
    let mut top = Vec::new();
    if n > 0 {
        let mut keys = Vec::new();
        top_k(row, n.min(vocab), &mut keys);
        top.extend(keys.iter().map(|&key| (key_token(key), f64::from(key_logit(key)) - shift)));
    }
    Ok(TokenLogProb { id: token, logprob: f64::from(own) - shift, top })
}

/// Writes the log-probability of each of the first `vocab` tokens, within 3e-5; `-inf` for masked ones.
///
/// # Errors
/// When the row is shorter than the vocabulary or has no law.
pub fn log_probabilities(logits: &[f32], vocab: usize, out: &mut Vec<f64>) -> Result<(), SamplingError> {
    let row = logits.get(..vocab).ok_or(SamplingError::RowTooShort { found: logits.len(), vocab })?;
    let shift = log_sum(row)?;
    out.clear();
    out.extend(row.iter().map(|&logit| f64::from(logit) - shift));
    Ok(())
}

/// Log of the sum of the exponentials.
fn log_sum(row: &[f32]) -> Result<f64, SamplingError> {
    let peak = peak(&ScalarScan, row)?;
    Ok(f64::from(peak.logit) + ln(exp_sum(row, peak.logit, 1.0)))
}
