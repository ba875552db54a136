//! Rounding rows of f32 to bytes.

use std::ops::Range;

use super::simd::{Kernel, Simd};
use super::vector::{Moments, Nonlinearity, Norm};
use crate::Isa;
use crate::activation::{ActivationForm, Codes, RowEntries, Target};

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

    /// Columns `start..start + N` of a row, in `block` where they have to be computed.
    #[inline(always)]
    fn load<'b, const N: usize>(
        &'b self,
        row: usize,
        inputs: usize,
        start: usize,
        moments: Moments,
        block: &'b mut [f32; N],
    ) -> &'b [f32; N] {
        let at = row * inputs + start;
        match self {
            Self::Plain { values } => return values[at..].first_chunk().expect("whole blocks"),
            Self::Norm { values, norm } => {
                *block = *values[at..].first_chunk().expect("whole blocks");
                norm.apply(moments, start, block);
            }
            Self::Activated { function, values } => function.apply(&values[at..at + N], block),
            Self::Gated { function, gate, up } => function.gate(&gate[at..at + N], &up[at..at + N], block),
        }
        block
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
    isa.run(Quantize { form, source, row, inputs, range, target });
}

struct Quantize<'a> {
    form: ActivationForm,
    source: &'a Source<'a>,
    row: usize,
    inputs: usize,
    range: Range<usize>,
    target: &'a Target<'a>,
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { form, source, row, inputs, range, target } = self;
        let moments = source.moments(row, inputs);
        let entries = target.row(row);
        let mut values = [0.0; 256];
        for block in range.start / form.block()..range.end / form.block() {
            let start = block * form.block();
            match form {
                ActivationForm::Float => {
                    let mut value = [0.0];
                    let value = source.load(row, inputs, start, moments, &mut value);
                    // SAFETY: entries of this row and block only.
                    unsafe { target.floats.set(entries.index(block, 1), value[0]) };
                }
                ActivationForm::Block32 => {
                    let values = values.first_chunk_mut().expect("256 are 32 or more");
                    block32(simd, source.load(row, inputs, start, moments, values), entries, block, target);
                }
                ActivationForm::Block256 => {
                    block256(simd, source.load(row, inputs, start, moments, &mut values), entries, block, target);
                }
            }
        }
    }
}

/// Blocks whose largest magnitude is below this are zero: its inverse would not be finite.
const SMALLEST: f32 = 1e-30;

/// The scale of a block, of a multiple of 16 values, and its inverse: the largest magnitude becomes 127.
#[inline(always)]
pub(crate) fn scale<S: Simd>(simd: S, values: &[f32]) -> (f32, f32) {
    let mut largest = simd.ints(0);
    for values in values.chunks_exact(S::WIDTH) {
        // SAFETY: the chunk is a vector.
        largest = simd.greater_magnitude(largest, unsafe { simd.load(values.as_ptr()) });
    }
    let largest = f32::from_bits(simd.greatest(largest).cast_unsigned());
    if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest < SMALLEST {
        (0.0, 0.0)
    } else {
        (largest / 127.0, 127.0 / largest)
    }
}

/// Rounds a multiple of 16 values, times `inverse`, to the nearest integers, ties to even; returns their sum.
///
/// In a block that is not finite the inverse scale is zero and a product may be NaN; the code is then some number, which the NaN
/// scale makes irrelevant.
#[inline(always)]
pub(crate) fn round<S: Simd>(simd: S, values: &[f32], inverse: f32, codes: &mut [i8]) -> i32 {
    let inverse = simd.floats(inverse);
    let mut sum = 0_i32;
    for (values, codes) in values.chunks_exact(S::WIDTH).zip(codes.chunks_exact_mut(S::WIDTH)) {
        // SAFETY: the chunks are a vector each. The sum is formed from the integers: reading the bytes back would wait for their store.
        unsafe {
            let numbers = simd.round(simd.load(values.as_ptr()), inverse);
            simd.store_low_bytes(codes.as_mut_ptr(), numbers);
            sum = sum.wrapping_add(simd.sum_ints(numbers));
        }
    }
    sum
}

/// The codes of 32 values, and the sums of the first and the second half.
#[inline(always)]
fn codes32<S: Simd>(simd: S, values: &[f32; 32], inverse: f32) -> (Codes, [i32; 2]) {
    let mut codes = Codes([0; 32]);
    let (first, second) = codes.0.split_at_mut(16);
    let sums = [round(simd, &values[..16], inverse, first), round(simd, &values[16..], inverse, second)];
    (codes, sums)
}

#[inline(always)]
fn block32<S: Simd>(simd: S, values: &[f32; 32], entries: RowEntries, block: usize, target: &Target<'_>) {
    let (scale, inverse) = scale(simd, values);
    let (codes, sums) = codes32(simd, values, inverse);
    let sum = sums[0].wrapping_add(sums[1]);
    let at = entries.index(block, 1);
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
fn block256<S: Simd>(simd: S, values: &[f32; 256], entries: RowEntries, block: usize, target: &Target<'_>) {
    let (scale, inverse) = scale(simd, values);
    let mut sums = [0_i32; 16];
    for (sub, (values, sums)) in values.chunks_exact(32).zip(sums.chunks_exact_mut(2)).enumerate() {
        let (codes, halves) = codes32(simd, values.first_chunk().expect("chunks of 32"), inverse);
        sums.copy_from_slice(&halves);
        // SAFETY: an entry of this row and block only, written by one task.
        unsafe { target.codes.set(entries.codes_of_256(block * 8 + sub), codes) };
    }
    // SAFETY: as above.
    unsafe { target.scales.set(entries.index(block, 1), scale) };
    for (sub, sum) in sums.iter().enumerate() {
        // SAFETY: as above.
        unsafe { target.starts.set(entries.index(block * 16 + sub, 16), sum.wrapping_mul(-32)) };
    }
    for (pair, sums) in sums.chunks_exact(4).enumerate() {
        let (first, second) = (sums[0].wrapping_add(sums[1]), sums[2].wrapping_add(sums[3]));
        // SAFETY: as above.
        unsafe { target.sums.set(entries.index(block * 4 + pair, 4), first & 0xffff | second << 16) };
    }
}
