//! Floats as they are.

use super::{Totals, store};
use crate::activation::Tile;
use crate::kernels::simd::Simd;
use crate::packed::LANES;

/// A floating-point type.
pub(super) trait Float {
    const BYTES: usize;

    /// # Safety
    /// `S::WIDTH` numbers are readable at `at`.
    unsafe fn load<S: Simd>(simd: S, at: *const u8) -> S::Floats;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;

impl Float for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, at: *const u8) -> S::Floats {
        // SAFETY: the caller's contract.
        unsafe { simd.load(at.cast()) }
    }
}

impl Float for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, at: *const u8) -> S::Floats {
        // SAFETY: the caller's contract.
        unsafe { simd.load_halves(at.cast()) }
    }
}

impl Float for BF16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, at: *const u8) -> S::Floats {
        // SAFETY: the caller's contract.
        unsafe { simd.load_brain_floats(at.cast()) }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` x 16 floats of type `F`, `tile.floats` has `tile.blocks * R` items.
#[inline(always)]
pub(super) unsafe fn floats<S: Simd, const R: usize, F: Float>(
    simd: S,
    panel: *const u8,
    tile: &Tile<'_>,
    sums: &mut [[f32; LANES]; R],
) {
    let mut totals: Totals<S, R> = [[simd.floats(0.0); R]; 2];
    let activations = tile.floats.as_ptr();
    for input in 0..tile.blocks {
        for (part, totals) in totals[..S::PARTS].iter_mut().enumerate() {
            let at = input * LANES + part * S::WIDTH;
            // SAFETY: the caller's contract bounds `input` and `row`.
            unsafe {
                let weights = F::load(simd, panel.add(at * F::BYTES));
                for (row, total) in totals.iter_mut().enumerate() {
                    let activation = simd.floats(*activations.add(input * R + row));
                    *total = simd.mul_add(weights, activation, *total);
                }
            }
        }
    }
    store(simd, &totals, sums);
}
