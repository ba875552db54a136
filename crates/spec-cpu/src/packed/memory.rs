//! Anonymous memory on huge pages.
//!
//! A forward pass streams the whole model once; with 4 KiB pages the address translation alone costs a
//! third of the bandwidth. Huge pages need 2 MiB alignment, which matrices of a few hundred kilobytes would waste one by one,
//! so they are cut from slabs.

use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;

use crate::CpuError;

const HUGE_PAGE: usize = 2 << 20;
/// Size of a shared slab: the tail of a slab that no matrix fits is the only loss.
const SLAB: usize = 64 << 20;
/// Alignment of regions: a cache line.
const ALIGNMENT: usize = 64;

/// Where packed matrices get their memory: slabs shared by many of them.
///
/// A slab is released when the last matrix in it is dropped.
#[derive(Debug, Default)]
pub struct WeightMemory {
    slab_bytes: usize,
    current: Mutex<Option<Cursor>>,
}

#[derive(Debug)]
struct Cursor {
    slab: Arc<Slab>,
    used: usize,
}

impl WeightMemory {
    /// Memory in slabs of 64 MiB (larger for a larger matrix).
    #[must_use]
    pub fn new() -> Self {
        Self { slab_bytes: SLAB, current: Mutex::new(None) }
    }

    /// Memory that gives each matrix a slab of its size.
    pub(super) fn exact() -> Self {
        Self::default()
    }

    /// Zeroed memory of `bytes` bytes, aligned to 64, that nothing else uses.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Region, CpuError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let cursor = match current.take() {
            Some(cursor) if cursor.slab.bytes - cursor.used >= bytes => cursor,
            _ => Cursor { slab: Arc::new(Slab::new(bytes.max(self.slab_bytes))?), used: 0 },
        };
        let region = Region { slab: Arc::clone(&cursor.slab), offset: cursor.used, bytes };
        let used = (cursor.used + bytes).next_multiple_of(ALIGNMENT).min(cursor.slab.bytes);
        *current = Some(Cursor { used, ..cursor });
        Ok(region)
    }
}

/// One mapping. Bytes are reached through [`Region`]s, which never overlap.
#[derive(Debug)]
struct Slab {
    /// Keeps the mapping alive.
    _map: MmapMut,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: `start` points into the mapping that the slab owns; access goes through non-overlapping regions, which
// follow the borrow rules.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    fn new(bytes: usize) -> Result<Self, CpuError> {
        let error = |source| CpuError::Memory { bytes, source };
        // Room to align the start by hand; pages never touched cost nothing.
        let length =
            bytes.checked_add(HUGE_PAGE).ok_or_else(|| error(std::io::Error::from(std::io::ErrorKind::OutOfMemory)))?;
        let mut map = MmapMut::map_anon(length).map_err(error)?;
        // A kernel without transparent huge pages refuses; weights then lie on small pages and are only slower to read.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let offset = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        let start = map[offset..].as_mut_ptr();
        Ok(Self { _map: map, start, bytes })
    }
}

/// A part of a slab that one matrix owns.
#[derive(Debug)]
pub(crate) struct Region {
    slab: Arc<Slab>,
    offset: usize,
    bytes: usize,
}

impl Region {
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: within the slab's mapping (initialised to zero by the system), and no other region overlaps it.
        unsafe { std::slice::from_raw_parts(self.slab.start.add(self.offset), self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.slab.start.add(self.offset), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_zeroed_and_disjoint() {
        let memory = WeightMemory::new();
        let sizes = [1, 64, 100, 3 << 20, SLAB + 1, 7];
        let mut regions: Vec<_> = sizes.iter().map(|&bytes| memory.reserve(bytes).expect("memory")).collect();
        for (index, region) in regions.iter_mut().enumerate() {
            assert_eq!(region.as_slice().as_ptr() as usize % ALIGNMENT, 0);
            assert!(region.as_slice().iter().all(|&byte| byte == 0), "region {index} is in use");
            region.as_mut_slice().fill(index as u8 + 1);
        }
        for (index, region) in regions.iter().enumerate() {
            assert!(region.as_slice().iter().all(|&byte| byte == index as u8 + 1));
        }
    }
}
