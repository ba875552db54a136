//! Operations on rows of f32, with a fixed order of every sum.
//!
//! All are written over sixteen lanes (lane = index % 16), without fused multiply-adds, and compiled per instruction set: their
//! results agree bit for bit on all of them.

use super::simd::{ROUNDING, Vectorize};
use crate::Isa;

const LANES: usize = 16;

/// Adds up the lanes pairwise: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
#[inline(always)]
fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Sums `term(x)` over `values` in lane order.
#[inline(always)]
fn lane_sum(values: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += term(*value);
    }
    fold(lanes)
}

/// e^x for f32, within 2 ULP for results that are normal numbers: a Taylor polynomial of degree 7 on |r| <= ln 2 / 2, whose
/// truncation error is below 6e-9 relative.
///
/// Below -87.33 (where the result would be subnormal) it is zero, above 88.72 infinity; NaN stays NaN.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    /// ln 2 in two parts; the first has trailing zeros, so that its product with an exponent is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x < -87.5 { -87.5 } else { x };
    let clamped = if clamped > 89.0 { 89.0 } else { clamped };
    let shifted = clamped * LOG2_E + ROUNDING;
    let exponent = shifted - ROUNDING;
    let r = clamped - exponent * LN2_HIGH - exponent * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    // Two factors, as 2^128 alone is not a number.
    let power = shifted.to_bits().wrapping_sub(ROUNDING.to_bits()).cast_signed();
    let half = power >> 1;
    let factor = |power: i32| f32::from_bits((power.wrapping_add(127) as u32) << 23);
    let result = p * factor(half) * factor(power.wrapping_sub(half));
    let result = if x < -87.336_54 { 0.0 } else { result };
    if x > 88.722_83 { f32::INFINITY } else { result }
}

/// The f32 with the value of the half-precision number with these bits.
#[inline(always)]
#[must_use]
pub fn f16_to_f32(bits: u16) -> f32 {
    let bits = u32::from(bits);
    // Exponent and fraction in f32 position are the value times 2^-112; the product is exact, subnormals included.
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits((bits & 0x8000) << 16 | magnitude.to_bits() | special)
}

/// The bits of the half-precision number nearest to `value`, ties to even. Values from 65520 on become infinite, NaN stays NaN.
#[inline(always)]
#[must_use]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_add(0xfff + odd).wrapping_sub(112 << 23) >> 13;
    // Adding 0.5, whose last bit weighs 2^-24 like that of a subnormal half, rounds at the right place.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let finite = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite };
    let result = if magnitude > 0x7f80_0000 { 0x7e00 } else { finite };
    (bits >> 16 & 0x8000 | result) as u16
}

/// Defines a public function whose body is compiled for, and run on, the instruction set given first.
macro_rules! vectorized {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $ty:ty),*) -> $output:ty $body:block) => {
        $(#[$doc])*
        pub fn $name<'a>(isa: Isa, $($argument: $ty),*) -> $output {
            struct Operation<'a> { $($argument: $ty),* }
            impl<'a> Vectorize for Operation<'a> {
                type Output = $output;
                #[inline(always)]
                fn run(self) -> $output {
                    let Self { $($argument),* } = self;
                    $body
                }
            }
            isa.vectorize(Operation { $($argument),* })
        }
    };
}

mod nonlinearity;
mod norm;
#[cfg(test)]
mod tests;

pub(crate) use nonlinearity::soft_cap;
pub use nonlinearity::{Nonlinearity, activated, gated, soft_cap_all};
pub(super) use norm::Moments;
pub use norm::{Norm, add_norm, norm};

vectorized! {
    /// `output[i] += x[i]`.
    ///
    /// # Panics
    /// When the lengths differ.
    fn add(output: &'a mut [f32], x: &'a [f32]) -> () {
        assert!(output.len() == x.len(), "add: lengths differ");
        for (output, x) in output.iter_mut().zip(x) {
            *output += x;
        }
    }
}

vectorized! {
    /// `values[i] *= factor`.
    fn scale(values: &'a mut [f32], factor: f32) -> () {
        for value in values {
            *value *= factor;
        }
    }
}

vectorized! {
    /// Rotates the pairs `(x[2i], x[2i + 1])` by the angles whose cosines and sines are given (rotary embedding, arXiv 2104.09864).
    ///
    /// # Panics
    /// When `x` is not twice as long as `cos` and `sin`.
    fn rope_interleaved(x: &'a mut [f32], cos: &'a [f32], sin: &'a [f32]) -> () {
        assert!(x.len() == 2 * cos.len() && cos.len() == sin.len(), "rope: lengths differ");
        for ((pair, cos), sin) in x.chunks_exact_mut(2).zip(cos).zip(sin) {
            let (first, second) = (pair[0], pair[1]);
            pair[0] = first * cos - second * sin;
            pair[1] = first * sin + second * cos;
        }
    }
}

vectorized! {
    /// Rotates the pairs `(x[i], x[n + i])`, n being the length of `cos`: the order of NeoX-style models.
    ///
    /// # Panics
    /// When `x` is not twice as long as `cos` and `sin`.
    fn rope_halves(x: &'a mut [f32], cos: &'a [f32], sin: &'a [f32]) -> () {
        assert!(x.len() == 2 * cos.len() && cos.len() == sin.len(), "rope: lengths differ");
        let (low, high) = x.split_at_mut(cos.len());
        for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
            let (first, second) = (*low, *high);
            *low = first * cos - second * sin;
            *high = first * sin + second * cos;
        }
    }
}

vectorized! {
    /// The largest value; negative infinity when empty. NaN are passed over: [`argmax`] reports them.
    fn max(values: &'a [f32]) -> f32 {
        largest(values).0
    }
}

vectorized! {
    /// The index of the largest value, the lowest on ties. Nothing when `values` is empty or has a NaN.
    fn argmax(values: &'a [f32]) -> Option<usize> {
        match largest(values) {
            (_, true) => None,
            (largest, false) => values.iter().position(|&value| value == largest),
        }
    }
}

vectorized! {
    /// Replaces each value by `exp(value - shift)` and returns their sum in lane order: softmax without its division.
    fn exp_sum(values: &'a mut [f32], shift: f32) -> f32 {
        for value in values.iter_mut() {
            *value = exp(*value - shift);
        }
        lane_sum(values, |value| value)
    }
}

vectorized! {
    /// The sum of `values` in lane order.
    fn sum(values: &'a [f32]) -> f32 {
        lane_sum(values, |value| value)
    }
}

vectorized! {
    /// Rounds `values` to half precision, as [`f32_to_f16`] does.
    ///
    /// # Panics
    /// When the lengths differ.
    fn to_f16(values: &'a [f32], output: &'a mut [u16]) -> () {
        assert!(values.len() == output.len(), "to_f16: lengths differ");
        for (output, value) in output.iter_mut().zip(values) {
            *output = f32_to_f16(*value);
        }
    }
}

vectorized! {
    /// Widens half-precision `values`.
    ///
    /// # Panics
    /// When the lengths differ.
    fn from_f16(values: &'a [u16], output: &'a mut [f32]) -> () {
        assert!(values.len() == output.len(), "from_f16: lengths differ");
        for (output, value) in output.iter_mut().zip(values) {
            *output = f16_to_f32(*value);
        }
    }
}

/// The largest value that is not NaN, and whether there is a NaN.
#[inline(always)]
fn largest(values: &[f32]) -> (f32, bool) {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut nan = [false; LANES];
    let mut chunks = values.chunks_exact(LANES);
    let mut take = |chunk: &[f32]| {
        for ((lane, nan), &value) in lanes.iter_mut().zip(&mut nan).zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
            *nan |= value.is_nan();
        }
    };
    for chunk in &mut chunks {
        take(chunk);
    }
    take(chunks.remainder());
    let largest = lanes.iter().fold(f32::NEG_INFINITY, |most, &lane| if lane > most { lane } else { most });
    (largest, nan.contains(&true))
}
