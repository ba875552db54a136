//! The tasks of one thread in a region.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A range of task indices that its owner takes from the front, and others from the back.
///
/// All orderings are relaxed: the word hands out indices; the data of tasks is ordered by the pool's state.
#[derive(Debug, Default)]
pub(super) struct TaskRange(AtomicU64);

impl TaskRange {
    /// Replaces the range, whose bounds are 32-bit numbers.
    pub(super) fn set(&self, range: Range<usize>) {
        self.0.store((range.end as u64) << 32 | range.start as u64, Ordering::Relaxed);
    }

    pub(super) fn take_first(&self) -> Option<usize> {
        self.take(|first, end| (first, first + 1, end))
    }

    pub(super) fn take_last(&self) -> Option<usize> {
        self.take(|first, end| (end - 1, first, end - 1))
    }

    /// `step` maps the bounds to the index taken and the new bounds.
    fn take(&self, step: impl Fn(u32, u32) -> (u32, u32, u32)) -> Option<usize> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (first, end) = (word as u32, (word >> 32) as u32);
            if first >= end {
                return None;
            }
            let (taken, first, end) = step(first, end);
            let next = u64::from(end) << 32 | u64::from(first);
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken as usize),
                Err(now) => word = now,
            }
        }
    }
}
