//! Passes over whole rows, which a device may run with its own instructions.

use crate::math::{exp_each, exp_sum_exact};
use crate::summary::block_max;
use crate::{NoiseScan, ScalarScan};

/// The passes over a row of logits that acceptance rules and sampling spend their time in.
///
/// The provided methods are the definition. They use IEEE operations in a fixed order and never a fused multiply-add, so an
/// implementation that compiles the same loops for wider vectors gives the same bits, and must: outputs depend on them.
///
/// ```
/// use spec_core::{RowKernels, ScalarScan};
///
/// let row = [0.0, f32::NEG_INFINITY, 0.0];
/// let (max, proper) = ScalarScan.greatest(&row);
/// let total = ScalarScan.exp_sum(&row, max, 1.0);
/// let mut probabilities = [0.0; 3];
/// ScalarScan.exp_each(&row, max, 1.0, total, &mut probabilities);
/// assert_eq!((proper, probabilities), (true, [0.5, 0.0, 0.5]));
/// ```
pub trait RowKernels: NoiseScan {
    /// The greatest logit, `-inf` for none, and whether all are proper: not NaN and below plus infinity.
    #[inline(always)]
    fn greatest(&self, logits: &[f32]) -> (f32, bool) {
        block_max(logits)
    }

    /// Sum of `exp((logit - max) * inverse_temperature)` in f64; `-inf` counts as nothing. `max` is the greatest logit and finite.
    #[inline(always)]
    fn exp_sum(&self, logits: &[f32], max: f32, inverse_temperature: f64) -> f64 {
        exp_sum_exact(logits, max, inverse_temperature)
    }

    /// Writes `exp((logit - max) * inverse_temperature) / total` for each logit, as far as both slices go.
    #[inline(always)]
    fn exp_each(&self, logits: &[f32], max: f32, inverse_temperature: f64, total: f64, out: &mut [f64]) {
        exp_each(logits, max, inverse_temperature, total, out);
    }
}

impl RowKernels for ScalarScan {}
