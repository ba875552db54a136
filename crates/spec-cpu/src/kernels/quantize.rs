//! Rounding rows of f32 to bytes.

use std::ops::Range;

use super::simd::Vectorize;
use super::vector::{Moments, Nonlinearity, Norm};
use crate::Isa;
use crate::activation::{ActivationForm, Codes, Target};

/// Where the values of a row come from.
pub(crate) enum Source<'a> {
    /// Rows as they are.
    Plain { values: &'a [f32] },
    /// Rows normed.
    Norm { values: &'a [f32], norm: Norm<'a> },
    /// A function of each value.
    Activated { function: Nonlinearity, values: &'a [f32] },
    /// The same of one matrix, times another.
    Gated { function: Nonlinearity, gate: &'a [f32], up: &'a [f32] },
}

impl Source<'_> {
    /// What is computed once per row.
    #[inline(always)]
    fn moments(&self, row: usize, inputs: usize) -> Moments {
        match self {
            Self::Norm { values, norm } => norm.moments(&values[row * inputs..(row + 1) * inputs]),
            Self::Plain { .. } | Self::Activated { .. } | Self::Gated { .. } => Moments::NONE,
        }
    }

    /// Fills `block` with columns `start..start + N` of a row.
    #[inline(always)]
    fn load<const N: usize>(&self, row: usize, inputs: usize, start: usize, moments: Moments, block: &mut [f32; N]) {
        let at = row * inputs + start;
        match self {
            Self::Plain { values } => block.copy_from_slice(&values[at..at + N]),
            Self::Norm { values, norm } => {
                block.copy_from_slice(&values[at..at + N]);
                norm.apply(moments, start, block);
            }
            Self::Activated { function, values } => function.apply(&values[at..at + N], block),
            Self::Gated { function, gate, up } => function.gate(&gate[at..at + N], &up[at..at + N], block),
        }
    }
}

/// Quantises columns `range` (whole blocks) of one row into `target`, in the given form.
pub(crate) fn run(
    isa: Isa,
    form: ActivationForm,
    source: &Source<'_>,
    row: usize,
    inputs: usize,
    range: Range<usize>,
    target: &Target<'_>,
) {
    isa.vectorize(Quantize { form, source, row, inputs, range, target });
}

struct Quantize<'a> {
    form: ActivationForm,
    source: &'a Source<'a>,
    row: usize,
    inputs: usize,
    range: Range<usize>,
    target: &'a Target<'a>,
}

impl Vectorize for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { form, source, row, inputs, range, target } = self;
        let moments = source.moments(row, inputs);
        let mut values = [0.0; 256];
        for block in range.start / form.block()..range.end / form.block() {
            let start = block * form.block();
            match form {
                ActivationForm::Float => {
                    let mut value = [0.0];
                    source.load(row, inputs, start, moments, &mut value);
                    let at = target.index(row, block, 1);
                    // SAFETY: entries of this row and block only.
                    unsafe { target.floats.set(at, value[0]) };
                }
                ActivationForm::Block32 => {
                    let values = values.first_chunk_mut().expect("256 are 32 or more");
                    source.load(row, inputs, start, moments, values);
                    block32(values, row, block, target);
                }
                ActivationForm::Block256 => {
                    source.load(row, inputs, start, moments, &mut values);
                    block256(&values, row, block, target);
                }
            }
        }
    }
}

/// Blocks whose largest magnitude is below this are zero: its inverse would not be finite.
const SMALLEST: f32 = 1e-30;

/// The scale of a block, of a multiple of 16 values, and its inverse: the largest magnitude becomes 127.
#[inline(always)]
pub(crate) fn scale(values: &[f32]) -> (f32, f32) {
    // As integers, magnitudes order like floats, and every NaN is above infinity.
    let mut lanes = [0_u32; 16];
    for values in values.chunks_exact(16) {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = (*lane).max(value.to_bits() & 0x7fff_ffff);
        }
    }
    let largest = f32::from_bits(lanes.iter().copied().fold(0, u32::max));
    if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest < SMALLEST {
        (0.0, 0.0)
    } else {
        (largest / 127.0, 127.0 / largest)
    }
}

/// Rounds to the nearest integer, ties to even: at 1.5 * 2^23 an f32 has no fraction bits left.
///
/// In a block that is not finite the inverse scale is zero and a product may be NaN; the code is then some number, which the NaN
/// scale makes irrelevant.
#[inline(always)]
pub(crate) fn code(value: f32, inverse: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    (value * inverse + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed()
}

/// The codes of 32 values, and the sums of the first and the second half.
///
/// Sums are formed from the integers in their registers: reading the bytes back would wait for their store.
#[inline(always)]
fn codes32(values: &[f32; 32], inverse: f32) -> (Codes, [i32; 2]) {
    let mut codes = Codes([0; 32]);
    let mut sums = [0_i32; 2];
    for ((codes, values), sum) in codes.0.chunks_exact_mut(16).zip(values.chunks_exact(16)).zip(&mut sums) {
        let mut numbers = [0_i32; 16];
        for (number, value) in numbers.iter_mut().zip(values) {
            *number = code(*value, inverse);
        }
        for (code, number) in codes.iter_mut().zip(numbers) {
            *code = number as i8;
        }
        *sum = numbers.iter().fold(0, |sum, number| sum.wrapping_add(*number));
    }
    (codes, sums)
}

#[inline(always)]
fn block32(values: &[f32; 32], row: usize, block: usize, target: &Target<'_>) {
    let (scale, inverse) = scale(values);
    let (codes, sums) = codes32(values, inverse);
    let sum = sums[0].wrapping_add(sums[1]);
    let at = target.index(row, block, 1);
    // SAFETY: entries of this row and block only, written by one task.
    unsafe {
        target.codes.set(at, codes);
        target.scales.set(at, scale);
        target.scaled_sums.set(at, scale * sum as f32);
        target.starts.set(at, sum.wrapping_mul(-16));
        target.sums.set(at, sum.wrapping_mul(-128));
    }
}

#[inline(always)]
fn block256(values: &[f32; 256], row: usize, block: usize, target: &Target<'_>) {
    let (scale, inverse) = scale(values);
    let mut sums = [0_i32; 16];
    for (sub, (values, sums)) in values.chunks_exact(32).zip(sums.chunks_exact_mut(2)).enumerate() {
        let (codes, halves) = codes32(values.first_chunk().expect("chunks of 32"), inverse);
        sums.copy_from_slice(&halves);
        let at = target.index(row, block * 8 + sub, 8);
        // SAFETY: an entry of this row and block only, written by one task.
        unsafe { target.codes.set(at, codes) };
    }
    let at = target.index(row, block, 1);
    // SAFETY: as above.
    unsafe { target.scales.set(at, scale) };
    for (sub, sum) in sums.iter().enumerate() {
        let at = target.index(row, block * 16 + sub, 16);
        // SAFETY: as above.
        unsafe { target.starts.set(at, sum.wrapping_mul(-32)) };
    }
    for (pair, sums) in sums.chunks_exact(4).enumerate() {
        let at = target.index(row, block * 4 + pair, 4);
        let (first, second) = (sums[0].wrapping_add(sums[1]), sums[2].wrapping_add(sums[3]));
        // SAFETY: as above.
        unsafe { target.sums.set(at, first & 0xffff | second << 16) };
    }
}
