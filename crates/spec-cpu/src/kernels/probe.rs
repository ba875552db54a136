//! What the machine could do at best: the yardsticks for kernel figures.

use std::time::Instant;

use super::panel::prefetch;
use super::simd::{Kernel, Simd};
use crate::packed::WeightMemory;
use crate::{CpuError, Isa, Pool};

/// Memory read by [`Bandwidth::measure`]: larger than any cache that a model's weights would not also fit.
const BYTES: usize = 768 << 20;
/// Bytes per task of the read: the size of a matrix's.
const TASK: usize = 256 << 10;

/// A read-bandwidth probe; holds its memory, so that it can be measured repeatedly among other things.
#[derive(Debug)]
pub struct Bandwidth {
    memory: crate::packed::Region,
}

impl Bandwidth {
    /// Reserves and touches 768 MiB on huge pages.
    ///
    /// # Errors
    /// [`CpuError::Memory`] when the system refuses.
    pub fn new(pool: &Pool) -> Result<Self, CpuError> {
        let mut memory = WeightMemory::new().reserve(BYTES)?;
        pool.run_chunks(memory.as_mut_slice(), 2 << 20, |_, chunk| chunk.fill(1));
        Ok(Self { memory })
    }

    /// Reads all of it once on all threads. Bytes per second.
    #[must_use]
    pub fn measure(&self, isa: Isa, pool: &Pool) -> f64 {
        let bytes = self.memory.as_slice();
        let start = Instant::now();
        pool.run(bytes.len().div_ceil(TASK), |task| {
            let first = task * TASK;
            std::hint::black_box(isa.run(Read(&bytes[first..bytes.len().min(first + TASK)])));
        });
        bytes.len() as f64 / start.elapsed().as_secs_f64()
    }
}

/// The best of several reads of a large array on all threads, in bytes per second.
///
/// # Errors
/// [`CpuError::Memory`] when the system refuses the memory for it.
pub fn read_bandwidth(isa: Isa, pool: &Pool) -> Result<f64, CpuError> {
    let probe = Bandwidth::new(pool)?;
    Ok((0..5).map(|_| probe.measure(isa, pool)).fold(0.0, f64::max))
}

/// 8-bit multiply-adds per second of all threads together, operands in registers. Takes some milliseconds.
#[must_use]
pub fn peak_int8_macs(isa: Isa, pool: &Pool) -> f64 {
    let rounds = match isa {
        Isa::Portable => 20_000,
        #[cfg(target_arch = "x86_64")]
        _ => 400_000,
    };
    peak_int8_macs_for(isa, pool, rounds)
}

/// As [`peak_int8_macs`], over `rounds` rounds per task: short ones find the peak of a machine that other processes use too.
#[must_use]
pub fn peak_int8_macs_for(isa: Isa, pool: &Pool, rounds: usize) -> f64 {
    // Equal parts, a few per thread: a thread that loses its core for a moment takes fewer.
    let tasks = pool.threads() * 4;
    let macs = std::sync::atomic::AtomicU64::new(0);
    let start = Instant::now();
    pool.run(tasks, |_| {
        let done = match isa {
            #[cfg(target_arch = "x86_64")]
            // A round of tiles takes several times as long as one of vectors.
            Isa::Amx(token) => super::panel::tiles::spin(token, rounds / 10),
            _ => {
                let (done, value) = isa.run(Spin(rounds));
                std::hint::black_box(value);
                done
            }
        };
        macs.fetch_add(done, std::sync::atomic::Ordering::Relaxed);
    });
    macs.into_inner() as f64 / start.elapsed().as_secs_f64()
}

/// Adds up the 64-bit words of the bytes (a multiple of 512), as fast as they can be read.
pub(super) struct Read<'a>(pub(super) &'a [u8]);

impl Kernel for Read<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> u64 {
        const AT_ONCE: usize = 512;
        let vector = 4 * S::WIDTH;
        // SAFETY: the array has 64 bytes, which are at least a vector.
        let mut sums = [unsafe { simd.load_bytes([0; 64].as_ptr()) }; 8];
        for chunk in self.0.chunks_exact(AT_ONCE) {
            for line in chunk.chunks_exact(64) {
                prefetch(simd, line.as_ptr());
            }
            for (index, bytes) in chunk.chunks_exact(vector).enumerate() {
                let sum = &mut sums[index % 8];
                // SAFETY: a vector of bytes.
                *sum = simd.add_words(*sum, unsafe { simd.load_bytes(bytes.as_ptr()) });
            }
        }
        let mut total = 0_u64;
        for sum in sums {
            total = total.wrapping_add(simd.sum_words(sum));
        }
        total
    }
}

/// Multiply-adds of bytes, from registers as far as they go, this many rounds of them; returns how many and a value that
/// depends on all.
struct Spin(usize);

impl Kernel for Spin {
    type Output = (u64, i32);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (u64, i32) {
        /// As many independent chains as hide the latency of a dot product.
        const CHAINS: usize = 12;
        let activations: [i8; 32 * CHAINS] = std::hint::black_box([-5; 32 * CHAINS]);
        let codes = std::hint::black_box([3_u8; 64]);
        let mut sums = [[simd.ints(0); CHAINS]; 1];
        // SAFETY: 64 bytes are at least a vector, and each row has its 32 activations.
        unsafe {
            let codes = simd.load_bytes(codes.as_ptr());
            for _ in 0..self.0 {
                // Products of the same numbers would be computed once.
                let codes = std::hint::black_box(codes);
                simd.multiply::<CHAINS, 1>(&mut sums, &[(codes, codes)], [activations.as_ptr()], 32, false);
            }
        }
        let mut value = 0_i32;
        for sum in sums[0] {
            value = value.wrapping_add(simd.sum_ints(sum));
        }
        (self.0 as u64 * (CHAINS * 8 * S::WIDTH) as u64, value)
    }
}
