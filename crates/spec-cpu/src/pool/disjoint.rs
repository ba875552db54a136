//! A mutable slice that the tasks of one region share.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice from which several threads take non-overlapping parts.
///
/// The borrow checker cannot see that tasks write disjoint rows or columns; this type keeps bounds checks and lifetimes,
/// and leaves only the disjointness to the caller.
#[derive(Debug)]
pub struct SharedSlice<'a, T> {
    start: *mut T,
    length: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a `&mut [T]` whose parts go to threads; sending parts of it is sending `T`s.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}
// SAFETY: as above; shared access hands out parts only under the contract of `slice`.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    /// Shares `slice` for as long as it is borrowed.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len(), lifetime: PhantomData }
    }

    /// Items in the slice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it holds no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The items of `range`.
    ///
    /// # Safety
    /// No two parts that are alive at the same time may overlap.
    ///
    /// # Panics
    /// When `range` is not within the slice.
    #[must_use]
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's contract")]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "range {range:?} is outside a slice of {} items",
            self.length
        );
        // SAFETY: in bounds by the assertion, alive for 'a, unaliased by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// Overwrites item `index`.
    ///
    /// # Safety
    /// No part alive holds the item, and no other thread sets it at the same time.
    ///
    /// # Panics
    /// When `index` is not within the slice.
    #[inline]
    pub unsafe fn set(&self, index: usize, value: T) {
        assert!(index < self.length, "index {index} is outside a slice of {} items", self.length);
        // SAFETY: in bounds by the assertion, alive for 'a, unaliased by the contract.
        unsafe { *self.start.add(index) = value };
    }
}
