//! What the machine could do at best: the yardsticks for kernel figures.

use std::time::Instant;

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
            std::hint::black_box(isa.read(&bytes[first..bytes.len().min(first + TASK)]));
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
        Isa::Avx512Vnni(_) => 400_000,
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
        let (done, value) = isa.spin_int8(rounds);
        std::hint::black_box(value);
        macs.fetch_add(done, std::sync::atomic::Ordering::Relaxed);
    });
    macs.into_inner() as f64 / start.elapsed().as_secs_f64()
}
