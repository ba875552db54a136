//! The non-linearities of feed-forward blocks, and soft caps.

use super::exp;
use crate::Isa;
use crate::kernels::simd::Vectorize;

/// A feed-forward block's non-linearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nonlinearity {
    /// `x / (1 + e^-x)`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (arXiv 1606.08415).
    GeluTanh,
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    /// -2 sqrt(2 / pi): as `(1 + tanh u) / 2 = 1 / (1 + e^-2u)`, one exponential makes the whole.
    const FACTOR: f32 = -1.595_769_2;
    x / (1.0 + exp(FACTOR * (x + 0.044_715 * x * x * x)))
}

/// `cap * tanh(x / cap)`, within `cap * 2^-22` of it.
#[inline(always)]
pub(crate) fn soft_cap(x: f32, cap: f32) -> f32 {
    cap - 2.0 * cap / (1.0 + exp(2.0 * x / cap))
}

impl Nonlinearity {
    /// `output[i] = f(x[i])`, for slices of one length.
    #[inline(always)]
    pub(in crate::kernels) fn apply(self, x: &[f32], output: &mut [f32]) {
        let pairs = output.iter_mut().zip(x);
        match self {
            Self::Silu => {
                for (output, x) in pairs {
                    *output = silu(*x);
                }
            }
            Self::GeluTanh => {
                for (output, x) in pairs {
                    *output = gelu_tanh(*x);
                }
            }
        }
    }

    /// `output[i] = f(gate[i]) * up[i]`, for slices of one length.
    #[inline(always)]
    pub(in crate::kernels) fn gate(self, gate: &[f32], up: &[f32], output: &mut [f32]) {
        let triples = output.iter_mut().zip(gate).zip(up);
        match self {
            Self::Silu => {
                for ((output, gate), up) in triples {
                    *output = silu(*gate) * up;
                }
            }
            Self::GeluTanh => {
                for ((output, gate), up) in triples {
                    *output = gelu_tanh(*gate) * up;
                }
            }
        }
    }
}

vectorized! {
    /// `output[i] = f(x[i])`, the activation of feed-forward layers without a gate.
    ///
    /// # Panics
    /// When the lengths differ.
    fn activated(function: Nonlinearity, x: &'a [f32], output: &'a mut [f32]) -> () {
        assert!(x.len() == output.len(), "activated: lengths differ");
        function.apply(x, output);
    }
}

vectorized! {
    /// `output[i] = f(gate[i]) * up[i]`, the activation of gated feed-forward layers (arXiv 2002.05202).
    ///
    /// # Panics
    /// When the lengths differ.
    fn gated(function: Nonlinearity, gate: &'a [f32], up: &'a [f32], output: &'a mut [f32]) -> () {
        assert!(gate.len() == up.len() && up.len() == output.len(), "gated: lengths differ");
        function.gate(gate, up, output);
    }
}

vectorized! {
    /// Replaces each value by `cap * tanh(value / cap)`, within `cap * 2^-22` of it.
    fn soft_cap_all(values: &'a mut [f32], cap: f32) -> () {
        for value in values {
            *value = soft_cap(*value, cap);
        }
    }
}
