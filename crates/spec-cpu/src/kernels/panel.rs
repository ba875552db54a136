//! A tile of rows times a panel of weights.
//!
//! Shape of all integer kernels: a vector of codes is loaded and expanded once, then multiplied for each of `R` rows with four
//! activations broadcast from memory, into one accumulator per row that lives in a register. At eight rows expansion is about
//! a tenth of the instructions, and the loop still keeps up with memory.
//!
//! A dot product has a latency of several cycles, so about a dozen chains must be in flight. Eight rows have eight: kernels
//! interleave the accumulators of several sub-blocks, whose sums are separate anyway, as far as registers go. Instruction sets
//! with narrower vectors go over a block once per part of the panel.

mod block32;
mod float;
mod super_block;
#[cfg(target_arch = "x86_64")]
pub(super) mod tiles;

use super::Sums;
use super::simd::{Kernel, Simd};
use crate::activation::Tile;
use crate::packed::{LANES, WeightType, split_block, super_block_bytes};
use block32::blocks32;
use float::floats;
use super_block::super_blocks;

/// How far ahead of use, in bytes, weights are fetched into the second-level cache: hardware prefetchers stop at 4 KiB, and that cache
/// tracks three times as many misses as the first.
const PREFETCH_FAR: usize = 16384;
/// How far ahead weights move on into the first-level cache, so that the loop waits for neither. One row passes over a kilobyte
/// sooner than memory answers: at that distance it read a tenth less per second.
const PREFETCH_NEAR: usize = 4096;

/// Multiplies a tile of `R` rows with one panel of weights.
pub(super) struct Panel<'a, const R: usize> {
    pub(super) ty: WeightType,
    pub(super) panel: &'a [u8],
    pub(super) tile: &'a Tile<'a>,
    pub(super) sums: &'a mut Sums,
}

impl<const R: usize> Kernel for Panel<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { ty, panel, tile, sums } = self;
        let blocks = tile.blocks;
        let sums: &mut [[f32; LANES]; R] = sums.first_chunk_mut().expect("R is at most a tile");
        // Every kernel below walks pointers over these slices; their lengths are all it relies on.
        let (bytes, per_row) = (panel.len(), blocks * R);
        /// Calls `$kernel` for the marker type of `ty` in the module of the same name.
        macro_rules! of_type {
            ($kernel:ident, $family:ident: $($ty:ident $marker:ident),*) => {
                // SAFETY: the lengths were just checked.
                unsafe {
                    match ty {
                        $(WeightType::$ty => $kernel::<S, R, $family::$marker>(simd, panel.as_ptr(), tile, sums),)*
                        _ => unreachable!("{ty:?} has blocks of another size"),
                    }
                }
            };
        }
        match ty.block() {
            1 => {
                assert!(bytes >= blocks * LANES * ty.block_bytes() && tile.floats.len() == per_row);
                of_type!(floats, float: F32 F32, F16 F16, BF16 BF16);
            }
            32 => {
                let last_end = split_block(ty, blocks, blocks).0;
                assert!(bytes >= last_end && tile.codes.len() == per_row);
                assert!(tile.scales.len() == per_row && tile.scaled_sums.len() == per_row);
                assert!(tile.starts.len() == per_row && tile.sums.len() == per_row);
                of_type!(blocks32, block32: Q4_0 Q4_0, Q4_1 Q4_1, Q5_0 Q5_0, Q5_1 Q5_1, Q8_0 Q8_0, IQ4_NL IQ4NL);
            }
            _ => {
                assert!(bytes >= blocks * super_block_bytes(ty) && tile.has_super_blocks(R));
                if S::EXACT {
                    // Asked for only where tiles multiply more rows.
                    return of_type!(super_blocks, super_block: Q4_K Q4K, Q5_K Q5K, Q6_K Q6K);
                }
                of_type!(super_blocks, super_block: Q2_K Q2K, Q3_K Q3K, Q4_K Q4K, Q5_K Q5K, Q6_K Q6K, IQ4_XS IQ4XS);
            }
        }
    }
}

/// Fetches the cache lines at both distances past `at`. Addresses past the mapping are harmless.
#[inline(always)]
pub(super) fn prefetch<S: Simd>(simd: S, at: *const u8) {
    simd.prefetch::<false>(at.wrapping_add(PREFETCH_FAR));
    simd.prefetch::<true>(at.wrapping_add(PREFETCH_NEAR));
}

/// Sums of a tile of rows: `[part of the panel][row]`. Parts past `S::PARTS` are not used.
type Totals<S, const R: usize> = [[<S as Simd>::Floats; R]; 2];

#[inline(always)]
fn store<S: Simd, const R: usize>(simd: S, totals: &Totals<S, R>, sums: &mut [[f32; LANES]; R]) {
    for (part, totals) in totals[..S::PARTS].iter().enumerate() {
        for (sums, &total) in sums.iter_mut().zip(totals) {
            // SAFETY: the row has sixteen sums, of which a part holds `WIDTH`.
            unsafe { simd.store(sums.as_mut_ptr().add(part * S::WIDTH), total) };
        }
    }
}
