//! Norms of rows.

use super::lane_sum;
use crate::Isa;
use crate::kernels::simd::Vectorize;

/// A norm of rows as wide as its weight.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Norm<'a> {
    /// `x / sqrt(mean(x^2) + epsilon) * weight` (arXiv 1910.07467).
    Rms {
        /// Factor of each column.
        weight: &'a [f32],
        /// Added to the mean square.
        epsilon: f32,
    },
    /// `(x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias` (arXiv 1607.06450).
    Layer {
        /// Factor of each column.
        weight: &'a [f32],
        /// Summand of each column, as many.
        bias: &'a [f32],
        /// Added to the variance.
        epsilon: f32,
    },
}

/// What a norm finds out about a row.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Moments {
    mean: f32,
    /// The inverse of the root of the mean square, or of the standard deviation.
    factor: f32,
}

impl Moments {
    /// Those of rows that are taken as they are.
    pub(in crate::kernels) const NONE: Self = Self { mean: 0.0, factor: 1.0 };
}

impl Norm<'_> {
    /// Columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Rms { weight, .. } | Self::Layer { weight, .. } => weight.len(),
        }
    }

    /// All sums are in lane order.
    #[inline(always)]
    pub(in crate::kernels) fn moments(&self, row: &[f32]) -> Moments {
        let count = row.len() as f32;
        match self {
            Self::Rms { epsilon, .. } => {
                let square = lane_sum(row, |value| value * value) / count;
                Moments { mean: 0.0, factor: 1.0 / (square + epsilon).sqrt() }
            }
            Self::Layer { epsilon, .. } => {
                let mean = lane_sum(row, |value| value) / count;
                let variance = lane_sum(row, |value| (value - mean) * (value - mean)) / count;
                Moments { mean, factor: 1.0 / (variance + epsilon).sqrt() }
            }
        }
    }

    /// Norms the columns from `start` on of a row with these moments.
    #[inline(always)]
    pub(in crate::kernels) fn apply(&self, moments: Moments, start: usize, values: &mut [f32]) {
        let Moments { mean, factor } = moments;
        let range = start..start + values.len();
        match self {
            Self::Rms { weight, .. } => {
                for (value, weight) in values.iter_mut().zip(&weight[range]) {
                    *value = *value * factor * weight;
                }
            }
            Self::Layer { weight, bias, .. } => {
                for ((value, weight), bias) in values.iter_mut().zip(&weight[range.clone()]).zip(&bias[range]) {
                    *value = (*value - mean) * factor * weight + bias;
                }
            }
        }
    }
}

vectorized! {
    /// Norms each of the rows that `values` holds one after the other.
    ///
    /// # Panics
    /// When `values` is no whole number of rows.
    fn norm(norm: Norm<'a>, values: &'a mut [f32]) -> () {
        assert!(values.len().is_multiple_of(norm.width()), "norm: no whole number of rows");
        for row in values.chunks_exact_mut(norm.width()) {
            norm.apply(norm.moments(row), 0, row);
        }
    }
}

vectorized! {
    /// Norms the row `x` and adds it to `output`.
    ///
    /// # Panics
    /// When the lengths differ.
    fn add_norm(norm: Norm<'a>, x: &'a mut [f32], output: &'a mut [f32]) -> () {
        assert!(x.len() == norm.width() && x.len() == output.len(), "add_norm: lengths differ");
        norm.apply(norm.moments(x), 0, x);
        for (output, x) in output.iter_mut().zip(x) {
            *output += *x;
        }
    }
}
