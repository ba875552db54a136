//! Kernels, and the one place that chooses among their implementations.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod matmul;
mod portable;
pub mod probe;
pub(crate) mod quantize;
#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;
pub mod vector;

pub use matmul::{Product, matmul};

use crate::Isa;
use crate::activation::{ROW_TILE, Tile};
use crate::packed::{LANES, WeightType};

/// The sums of a tile of rows with a panel: `[row][output]`.
type Sums = [[f32; LANES]; ROW_TILE];

/// An operation written in plain Rust over fixed lanes, for the compiler to vectorise.
///
/// `run` must be `#[inline(always)]` and call only such functions: it is compiled once per instruction set.
pub(crate) trait Vectorize {
    /// What the operation returns.
    type Output;
    /// Carries it out.
    fn run(self) -> Self::Output;
}

impl Isa {
    /// Runs `operation` compiled for this instruction set. Multiplications and additions are not fused, so results agree
    /// bit for bit across instruction sets.
    #[inline]
    pub(crate) fn vectorize<V: Vectorize>(self, operation: V) -> V::Output {
        match self {
            Self::Portable => operation.run(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves support.
            Self::Avx512Vnni(_) => unsafe { avx512::vectorize(operation) },
        }
    }

    /// Multiplies a tile of rows with one panel of weights; rows past the tile's are left alone.
    fn panel(self, ty: WeightType, panel: &[u8], tile: &Tile<'_>, sums: &mut Sums) {
        match self {
            Self::Portable => portable::panel(ty, panel, tile, sums),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves support.
            Self::Avx512Vnni(_) => unsafe { avx512::panel(ty, panel, tile, sums) },
        }
    }

    /// Adds up the 64-bit words of `bytes` (a multiple of 512 bytes), as fast as they can be read.
    fn read(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Portable => portable::read(bytes),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves support.
            Self::Avx512Vnni(_) => unsafe { avx512::read(bytes) },
        }
    }

    /// Multiply-adds of bytes from registers, `rounds` rounds of them; returns how many and a value that depends on all.
    fn spin_int8(self, rounds: usize) -> (u64, i32) {
        match self {
            Self::Portable => portable::spin_int8(rounds),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves support.
            Self::Avx512Vnni(_) => unsafe { avx512::spin_int8(rounds) },
        }
    }
}
