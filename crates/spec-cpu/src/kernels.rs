//! Kernels, and the one place that chooses among instruction sets.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod matmul;
mod panel;
mod portable;
pub mod probe;
pub(crate) mod quantize;
#[cfg(test)]
pub(crate) mod reference;
pub(crate) mod simd;
#[cfg(test)]
mod tests;
pub mod vector;

pub use matmul::{Product, matmul};

use crate::Isa;
use crate::activation::{MAX_ROW_TILE, ROW_TILE, Tile};
use crate::packed::{LANES, WeightType};
use panel::Panel;
#[cfg(target_arch = "x86_64")]
use panel::tiles;
use simd::{Kernel, Plain, Vectorize};

/// The sums of a tile of rows with a panel: `[row][output]`.
type Sums = [[f32; LANES]; MAX_ROW_TILE];

/// Rows that portable kernels take at a time: each further size would be compiled for every type.
const PORTABLE_TILE: usize = 4;

impl Isa {
    /// Runs `kernel` compiled for this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Portable => portable::run(kernel),
            #[cfg(target_arch = "x86_64")]
            _ => self.run_wide(kernel),
        }
    }

    /// The same for kernels that portable code is never asked for, and need not be compiled to.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn run_wide<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Portable => unreachable!("portable code takes {PORTABLE_TILE} rows at most"),
            // SAFETY: the token proves support.
            Self::Avx2(token) => unsafe { avx2::run(token, kernel) },
            // SAFETY: the token proves support.
            Self::Avx2Vnni(token) => unsafe { avx2::run_vnni(token, kernel) },
            // SAFETY: the token proves support.
            Self::Avx512Vnni(token) => unsafe { avx512::run(token, kernel) },
            // SAFETY: the token proves support.
            Self::Amx(token) => unsafe { avx512::run(token.vectors(), kernel) },
        }
    }

    /// Runs `operation` compiled for this instruction set.
    #[inline]
    pub(crate) fn vectorize<V: Vectorize>(self, operation: V) -> V::Output {
        self.run(Plain(operation))
    }

    /// Rows that kernels take at a time, where there are as many: their accumulators fit the register file.
    pub(crate) fn row_tile(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) | Self::Amx(_) => 16,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) | Self::Avx2Vnni(_) => 8,
            Self::Portable => PORTABLE_TILE,
        }
    }

    /// Whether the last of so many rows cost no more as a whole tile, filled up, than for themselves: where they would be cut in two, and where
    /// tiles are multiplied in pairs and one would be without its second.
    pub(crate) fn fills_tile(self, rows: usize) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => {
                let (whole, left) = (rows / MAX_ROW_TILE, rows % MAX_ROW_TILE);
                left > ROW_TILE || !whole.is_multiple_of(tiles::TOGETHER)
            }
            _ => false,
        }
    }

    /// Panels that kernels are given at a time at least, where there are as many.
    fn panels_together(self, ty: WeightType, rows: usize) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) if tiles::multiplies(ty, rows) => tiles::PANELS,
            _ => 1,
        }
    }

    /// Multiplies a tile of rows with one panel of weights; rows past the tile's are left alone.
    fn panel(self, ty: WeightType, panel: &[u8], tile: &Tile<'_>, sums: &mut Sums) {
        #[cfg(target_arch = "x86_64")]
        if let Self::Amx(token) = self {
            return if tiles::multiplies(ty, MAX_ROW_TILE) {
                tiles::few_rows(token, ty, panel, tile, sums)
            } else {
                Self::Avx512Vnni(token.vectors()).panel(ty, panel, tile, sums)
            };
        }
        match (tile.rows, self) {
            (1, _) => self.run(Panel::<1> { ty, panel, tile, sums }),
            (2, _) => self.run(Panel::<2> { ty, panel, tile, sums }),
            (3, _) => self.run(Panel::<3> { ty, panel, tile, sums }),
            (4, _) => self.run(Panel::<4> { ty, panel, tile, sums }),
            #[cfg(target_arch = "x86_64")]
            (5, _) => self.run_wide(Panel::<5> { ty, panel, tile, sums }),
            #[cfg(target_arch = "x86_64")]
            (6, _) => self.run_wide(Panel::<6> { ty, panel, tile, sums }),
            #[cfg(target_arch = "x86_64")]
            (7, _) => self.run_wide(Panel::<7> { ty, panel, tile, sums }),
            #[cfg(target_arch = "x86_64")]
            (8, _) => self.run_wide(Panel::<8> { ty, panel, tile, sums }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves support.
            (16, Self::Avx512Vnni(token)) => unsafe { avx512::run(token, Panel::<16> { ty, panel, tile, sums }) },
            (rows, _) => unreachable!("a tile of {rows} rows"),
        }
    }
}

/// Fetches the cache line at `at`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unused_unsafe, reason = "a safe function from Rust 1.95 on")]
fn prefetch_x86<const FIRST_LEVEL: bool>(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
    // SAFETY: a prefetch never faults.
    unsafe {
        if FIRST_LEVEL {
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
        } else {
            _mm_prefetch::<_MM_HINT_T1>(at.cast());
        }
    }
}
