//! Memory of the devices, and what is known of the host's.
//!
//! Addresses of device memory come from a range of the address space that is reserved without any rights: the host
//! faults when it follows one, and every use here goes through [`Memory::view`], which knows each allocation's bounds
//! and whether it still lives. The bytes themselves lie elsewhere. Addresses are used once, until the range is through.

use crate::failure::{Failure, Outcome};
use crate::order::History;
use acl_sys::Status;
use parking_lot::Mutex;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of address space that stand for the memory of all devices.
const RANGE: usize = 4 << 40;
/// Unused addresses behind each allocation, so that a small overrun meets nothing.
const GAP: usize = 4096;
/// What every allocation is aligned to; the vendor promises 64.
const ALIGNMENT: usize = 512;
/// What fresh memory and workspaces are filled with: a NaN in every floating-point type, and -1.
pub(crate) const POISON: u8 = 0xFF;
/// How many freed allocations are remembered, to name them when they are used again.
const REMEMBERED: usize = 4096;

/// Bytes of one allocation.
struct Bytes {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes belong to this value alone, and are reached through raw pointers only.
unsafe impl Send for Bytes {}
// SAFETY: as above. Programs under test may race on the bytes, as they may on a device; every bit pattern is valid.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn new(size: usize, poison: bool) -> Option<Self> {
        // At most what every allocation has: more would make the allocator write zeros instead of mapping them.
        let layout = Layout::from_size_align(size.max(1), 16).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { if poison { alloc(layout) } else { alloc_zeroed(layout) } })?;
        if poison {
            // SAFETY: the bytes were just allocated, this many of them.
            unsafe { start.as_ptr().write_bytes(POISON, size) };
        }
        Some(Self { start, layout })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// One allocation on a device.
pub(crate) struct Allocation {
    pub(crate) address: usize,
    pub(crate) size: usize,
    /// What it takes from the device's capacity.
    reserved: u64,
    pub(crate) device: u32,
    bytes: Bytes,
    pub(crate) history: Mutex<History>,
}

/// Part of an allocation, which keeps the bytes even when the allocation is freed meanwhile.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl View {
    /// Where the bytes are on the host.
    pub(crate) fn pointer(&self) -> *mut u8 {
        // SAFETY: `Memory::view` checked that the offset lies in the allocation.
        unsafe { self.allocation.bytes.start.as_ptr().add(self.offset) }
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the view lies in an allocation that it keeps alive.
        unsafe { self.pointer().write_bytes(byte, self.len) };
    }
}

/// Pinned memory of the host.
struct Pinned {
    layout: Layout,
}

#[derive(Default)]
struct Inner {
    /// First address of the range; 0 before the first allocation.
    base: usize,
    /// First address that was never used.
    next: usize,
    live: BTreeMap<usize, Arc<Allocation>>,
    freed: BTreeMap<usize, usize>,
    used: BTreeMap<u32, u64>,
    pinned: BTreeMap<usize, Pinned>,
}

/// All memory that the simulator knows of.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Inner>);

/// Where a pointer points to.
pub(crate) enum Place {
    /// Into an allocation of this device.
    Device(u32),
    /// Into the devices' range, but to nothing that lives.
    Nothing,
    /// Into pinned memory of the host.
    Pinned,
    /// Anywhere else on the host.
    Pageable,
}

impl Inner {
    fn reserve_range(&mut self) -> Outcome {
        if self.base == 0 {
            // SAFETY: an anonymous mapping without rights, wherever the kernel likes; it is kept until the process ends.
            let base = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                libc::mmap(std::ptr::null_mut(), RANGE, libc::PROT_NONE, flags, -1, 0)
            };
            if base == libc::MAP_FAILED {
                let text = "this host refuses to reserve 4 TiB of addresses for device memory: raise `ulimit -v`";
                return Err(Failure::new(Status::ACL_ERROR_RT_DEV_SETUP_ERROR, text));
            }
            self.base = base as usize;
            self.next = self.base;
        }
        Ok(())
    }

    /// An address with `size` bytes and a gap behind.
    fn address(&mut self, size: usize) -> Option<usize> {
        let needed = size.checked_add(GAP)?.checked_next_multiple_of(ALIGNMENT)?;
        if self.next + needed <= self.base + RANGE {
            self.next += needed;
            return Some(self.next - needed);
        }
        // The range is through: the first hole between what lives.
        self.freed.clear();
        let mut from = self.base;
        for allocation in self.live.values() {
            if allocation.address - from >= needed {
                break;
            }
            from = (allocation.address + allocation.size + GAP).next_multiple_of(ALIGNMENT);
        }
        (from + needed <= self.base + RANGE).then_some(from)
    }

    fn contains(&self, address: usize) -> bool {
        self.base != 0 && (self.base..self.base + RANGE).contains(&address)
    }

    fn find(&self, address: usize) -> Option<&Arc<Allocation>> {
        let (_, allocation) = self.live.range(..=address).next_back()?;
        (address < allocation.address + allocation.size).then_some(allocation)
    }
}

impl Memory {
    /// Allocates; `spare` more bytes count against the capacity.
    pub(crate) fn allocate(&self, device: u32, size: usize, spare: u64, capacity: u64, poison: bool) -> Outcome<usize> {
        let out_of_memory = |text: String| Failure::new(Status::ACL_ERROR_RT_MEMORY_ALLOCATION, text);
        let mut inner = self.0.lock();
        inner.reserve_range()?;
        let reserved = (size as u64).checked_next_multiple_of(32).and_then(|size| size.checked_add(spare));
        let used = inner.used.get(&device).copied().unwrap_or(0);
        let reserved = reserved.filter(|reserved| used.checked_add(*reserved).is_some_and(|sum| sum <= capacity));
        let Some(reserved) = reserved else {
            let left = capacity.saturating_sub(used);
            return Err(out_of_memory(format!("{size} bytes are wanted, and {left} of {capacity} are free")));
        };
        let address = inner.address(size).ok_or_else(|| out_of_memory("no range of addresses is left".to_owned()))?;
        let bytes = Bytes::new(size, poison)
            .ok_or_else(|| out_of_memory(format!("the host has no {size} bytes for the simulated device")))?;
        *inner.used.entry(device).or_default() += reserved;
        let allocation = Allocation { address, size, reserved, device, bytes, history: Mutex::default() };
        inner.live.insert(address, Arc::new(allocation));
        Ok(address)
    }

    /// Frees what starts at an address.
    pub(crate) fn free(&self, address: usize) -> Outcome<Arc<Allocation>> {
        let mut inner = self.0.lock();
        let Some(allocation) = inner.live.remove(&address) else {
            let text = match inner.freed.get(&address) {
                Some(size) => format!("{address:#x} ({size} bytes) was freed before"),
                None => format!("no allocation starts at {address:#x}"),
            };
            return Err(Failure::new(Status::ACL_ERROR_RT_PARAM_INVALID, text));
        };
        *inner.used.entry(allocation.device).or_default() -= allocation.reserved;
        inner.freed.insert(address, allocation.size);
        if inner.freed.len() > REMEMBERED {
            inner.freed.pop_first();
        }
        Ok(allocation)
    }

    /// Frees everything of a device, and says what it was.
    pub(crate) fn release(&self, device: u32) -> Vec<(usize, usize)> {
        let owned: Vec<_> = self.leaks().into_iter().filter(|leak| leak.0 == device).collect();
        for (_, address, _) in &owned {
            // It is live: it was just listed, and nobody else frees on a device that is being reset.
            let _ = self.free(*address);
        }
        owned.into_iter().map(|(_, address, size)| (address, size)).collect()
    }

    /// Device, address and size of everything that lives.
    pub(crate) fn leaks(&self) -> Vec<(u32, usize, usize)> {
        self.0.lock().live.values().map(|allocation| (allocation.device, allocation.address, allocation.size)).collect()
    }

    /// `len` bytes of device memory, when they are all in one allocation that lives.
    pub(crate) fn view(&self, address: usize, len: usize) -> Result<View, String> {
        let inner = self.0.lock();
        if !inner.contains(address) {
            let kind = if pinned_in(&inner, address, len) { "pinned host memory" } else { "host memory" };
            return Err(format!("{address:#x} is {kind}, not device memory"));
        }
        let Some(allocation) = inner.find(address) else {
            let freed = inner.freed.range(..=address).next_back().filter(|(start, size)| address < *start + *size);
            return Err(match freed {
                Some((start, size)) => format!("{address:#x} is in memory that was freed ({size} bytes at {start:#x})"),
                None => format!("{address:#x} is in no allocation"),
            });
        };
        let offset = address - allocation.address;
        if len > allocation.size - offset {
            let size = allocation.size;
            return Err(format!("{len} bytes at offset {offset} leave their allocation of {size} bytes"));
        }
        Ok(View { allocation: allocation.clone(), offset, len })
    }

    /// Where a pointer points to.
    pub(crate) fn place(&self, address: usize) -> Place {
        let inner = self.0.lock();
        match inner.find(address) {
            Some(allocation) => Place::Device(allocation.device),
            None if inner.contains(address) => Place::Nothing,
            None if pinned_in(&inner, address, 1) => Place::Pinned,
            None => Place::Pageable,
        }
    }

    /// Whether bytes of the host are all pinned.
    pub(crate) fn is_pinned(&self, address: usize, len: usize) -> bool {
        pinned_in(&self.0.lock(), address, len)
    }

    /// Bytes that a device has in use.
    pub(crate) fn used(&self, device: u32) -> u64 {
        self.0.lock().used.get(&device).copied().unwrap_or(0)
    }

    /// Allocates pinned memory of the host.
    pub(crate) fn allocate_host(&self, size: usize, poison: bool) -> Outcome<usize> {
        let failure = || Failure::new(Status::ACL_ERROR_RT_MEMORY_ALLOCATION, format!("the host has no {size} bytes"));
        let layout = Layout::from_size_align(size, 4096).map_err(|_| failure())?;
        // SAFETY: the caller checked that the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or_else(failure)?;
        // SAFETY: just allocated, this many bytes; Rust callers may make slices of them, which have to be initialised.
        unsafe { start.as_ptr().write_bytes(if poison { POISON } else { 0 }, size) };
        let address = start.as_ptr() as usize;
        self.0.lock().pinned.insert(address, Pinned { layout });
        Ok(address)
    }

    /// Frees pinned memory of the host.
    pub(crate) fn free_host(&self, address: usize) -> Outcome {
        let pinned = self.0.lock().pinned.remove(&address);
        let text = || format!("no pinned memory starts at {address:#x}");
        let pinned = pinned.ok_or_else(|| Failure::new(Status::ACL_ERROR_RT_PARAM_INVALID, text()))?;
        // SAFETY: allocated with this layout by `allocate_host`, and taken out of the map, so that it is freed once.
        unsafe { dealloc(address as *mut u8, pinned.layout) };
        Ok(())
    }

    /// Address and size of pinned memory that lives.
    pub(crate) fn pinned_leaks(&self) -> Vec<(usize, usize)> {
        self.0.lock().pinned.iter().map(|(address, pinned)| (*address, pinned.layout.size())).collect()
    }
}

fn pinned_in(inner: &Inner, address: usize, len: usize) -> bool {
    let Some((start, pinned)) = inner.pinned.range(..=address).next_back() else { return false };
    address - start <= pinned.layout.size() && len <= pinned.layout.size() - (address - start)
}
