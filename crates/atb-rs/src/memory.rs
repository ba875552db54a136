//! Memory of the device, and pinned memory of the host.

use crate::call::lock;
use crate::context::{Context, Remains};
use crate::error::{Error, Result};
use crate::order::{Access, Uses};
use acl_sys::{ACL_MEM_MALLOC_HUGE_FIRST, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE};
use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

mod sealed {
    pub trait Sealed {}
}

/// Types whose every bit pattern is a value, as elements of copies.
pub trait Element: Copy + sealed::Sealed + 'static {}

macro_rules! elements {
    ($($type:ty)*) => { $(impl sealed::Sealed for $type {} impl Element for $type {})* };
}
elements!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 half::f16 half::bf16);

/// Where an allocation lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Device,
    Host,
}

/// An allocation with its last uses. Freed once no stream uses it.
#[derive(Debug)]
pub(crate) struct Memory {
    context: Context,
    place: Place,
    pointer: NonNull<c_void>,
    length: usize,
    uses: Mutex<Uses>,
}

// SAFETY: the memory belongs to no thread; what touches it is ordered by `uses` and by borrows of its owner.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn uses(&self) -> &Mutex<Uses> {
        &self.uses
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.pointer.as_ptr()
    }

    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        self.pointer == other.pointer
    }

    fn require_idle(&self, access: Access, attempt: &str) -> Result<()> {
        self.context.require_idle(&self.uses, access, || self.to_string(), attempt)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Device => "device memory",
            Place::Host => "pinned memory",
        };
        write!(formatter, "{place} of {} bytes at {:p}", self.length, self.pointer)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let remains = match self.place {
            Place::Device => Remains::Device(self.pointer),
            Place::Host => Remains::Host(self.pointer),
        };
        self.context.discard(remains, std::mem::take(&mut *lock(&self.uses)));
    }
}

/// The address of a range's first byte.
pub(crate) fn require_range(
    memory: &Memory,
    bytes: &Range<usize>,
    attempt: impl FnOnce() -> String,
) -> Result<*mut c_void> {
    if bytes.start > bytes.end || bytes.end > memory.length {
        return Err(Error::OutOfRange {
            attempt: attempt(),
            what: memory.to_string(),
            start: bytes.start,
            end: bytes.end,
            length: memory.length,
        });
    }
    Ok(memory.pointer().wrapping_byte_add(bytes.start))
}

/// Memory of the device. Clones share it. Fresh memory holds anything.
///
/// It is freed when the last clone, and the last tensor in it, is gone and no stream uses it any more: until then it
/// waits in its context.
#[doc(alias = "aclrtFree")]
#[derive(Clone, Debug)]
pub struct DeviceBuffer(Arc<Memory>);

impl DeviceBuffer {
    /// Allocates; in huge pages when it is large and there are any.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for no bytes at all; the failure of `aclrtMalloc`: 207001 when the device has no more.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        let attempt = || format!("allocating {bytes} bytes on device {}", context.device().id());
        require_some(bytes, attempt)?;
        context.enter()?;
        let mut pointer = std::ptr::null_mut();
        context.library().acl("aclrtMalloc", attempt, |api| {
            // SAFETY: the pointer is valid for the call.
            unsafe { api.aclrtMalloc(&mut pointer, bytes, ACL_MEM_MALLOC_HUGE_FIRST) }
        })?;
        Ok(Self(Arc::new(memory(context, Place::Device, pointer, bytes, attempt)?)))
    }

    /// Allocates, and copies elements there, before it returns.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`write`](Self::write).
    pub fn from_slice<T: Element>(context: &Context, elements: &[T]) -> Result<Self> {
        let buffer = Self::new(context, size_of_val(elements))?;
        buffer.write(0, elements)?;
        Ok(buffer)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether there are none. There always are some.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// The context.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// Copies elements to the memory from byte `offset` on, and waits for the copy.
    ///
    /// # Errors
    /// [`Error::InUse`] when a stream may still be using the memory: the copy would not wait for it;
    /// [`Error::OutOfRange`]; the failure of `aclrtMemcpy`.
    #[doc(alias = "aclrtMemcpy")]
    pub fn write<T: Element>(&self, offset: usize, elements: &[T]) -> Result<()> {
        let bytes = size_of_val(elements);
        let attempt = || format!("copying {bytes} bytes to the device");
        let destination = require_range(&self.0, &(offset..offset.saturating_add(bytes)), attempt)?;
        self.0.require_idle(Access::Write, &attempt())?;
        if bytes == 0 {
            return Ok(());
        }
        self.0.context.enter()?;
        self.0.context.library().acl("aclrtMemcpy", attempt, |api| {
            let source = elements.as_ptr().cast();
            // SAFETY: both ranges are live and as long as is said, and no stream uses the device's.
            unsafe { api.aclrtMemcpy(destination, bytes, source, bytes, ACL_MEMCPY_HOST_TO_DEVICE) }
        })
    }

    /// Copies elements from byte `offset` on to the host, and waits for the copy.
    ///
    /// # Errors
    /// [`Error::InUse`] when a stream may still be writing there; [`Error::OutOfRange`]; the failure of `aclrtMemcpy`.
    #[doc(alias = "aclrtMemcpy")]
    pub fn read<T: Element>(&self, offset: usize, elements: &mut [T]) -> Result<()> {
        let bytes = size_of_val(elements);
        let attempt = || format!("copying {bytes} bytes from the device");
        let source = require_range(&self.0, &(offset..offset.saturating_add(bytes)), attempt)?;
        self.0.require_idle(Access::Read, &attempt())?;
        if bytes == 0 {
            return Ok(());
        }
        self.0.context.enter()?;
        self.0.context.library().acl("aclrtMemcpy", attempt, |api| {
            let destination = elements.as_mut_ptr().cast();
            // SAFETY: both ranges are live and as long as is said, every bit pattern is an element, and no stream is
            // writing to the device's.
            unsafe { api.aclrtMemcpy(destination, bytes, source, bytes, ACL_MEMCPY_DEVICE_TO_HOST) }
        })
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0
    }
}

/// Pinned memory of the host: the only kind that asynchronous copies take, since others make them wait.
///
/// ```compile_fail,E0308
/// fn upload(stream: &atb_rs::Stream, from: &Vec<u8>, to: &atb_rs::DeviceBuffer) -> atb_rs::Result<()> {
///     stream.upload(from, to)
/// }
/// ```
///
/// What a copy is going to overwrite cannot be looked at meanwhile:
///
/// ```compile_fail,E0502
/// # use atb_rs::{DeviceBuffer, HostBuffer, Result, Stream};
/// # fn download(stream: &Stream, from: &DeviceBuffer, to: &mut HostBuffer) -> Result<()> {
/// let old: &[u8] = to.read()?;
/// stream.download(from, to)?;
/// assert_eq!(old[0], 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HostBuffer(Memory);

impl HostBuffer {
    /// Allocates, zeroed.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for no bytes at all; the failure of `aclrtMallocHost`.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        let attempt = || format!("allocating {bytes} bytes of pinned memory");
        require_some(bytes, attempt)?;
        context.enter()?;
        let mut pointer = std::ptr::null_mut();
        context.library().acl("aclrtMallocHost", attempt, |api| {
            // SAFETY: the pointer is valid for the call.
            unsafe { api.aclrtMallocHost(&mut pointer, bytes) }
        })?;
        let memory = memory(context, Place::Host, pointer, bytes, attempt)?;
        // SAFETY: the allocation is ours and has this many bytes.
        unsafe { memory.pointer().cast::<u8>().write_bytes(0, bytes) };
        Ok(Self(memory))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether there are none. There always are some.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// The elements.
    ///
    /// # Errors
    /// [`Error::InUse`] when a stream may still be writing there; [`Error::OutOfRange`] when the bytes are no whole
    /// number of elements.
    pub fn read<T: Element>(&self) -> Result<&[T]> {
        self.0.require_idle(Access::Read, "reading pinned memory")?;
        let count = self.elements::<T>()?;
        // SAFETY: the memory is initialised, aligned and long enough, every bit pattern is an element, no stream is
        // writing to it, and queueing a copy to it needs it borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts(self.0.pointer().cast(), count) })
    }

    /// The elements, to be changed.
    ///
    /// # Errors
    /// [`Error::InUse`] when a stream may still be using the memory; [`Error::OutOfRange`] as [`read`](Self::read).
    pub fn write<T: Element>(&mut self) -> Result<&mut [T]> {
        self.0.require_idle(Access::Write, "writing pinned memory")?;
        let count = self.elements::<T>()?;
        // SAFETY: as for `read`; no stream is reading it either, and queueing a copy from it needs it borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.pointer().cast(), count) })
    }

    fn elements<T: Element>(&self) -> Result<usize> {
        let is_aligned = self.0.pointer.cast::<T>().is_aligned();
        if !is_aligned || !self.0.length.is_multiple_of(size_of::<T>()) {
            return Err(Error::OutOfRange {
                attempt: format!("seeing pinned memory as elements of {} bytes", size_of::<T>()),
                what: self.0.to_string(),
                start: 0,
                end: self.0.length.next_multiple_of(size_of::<T>()),
                length: self.0.length,
            });
        }
        Ok(self.0.length / size_of::<T>())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.require_idle(Access::Write, "").is_ok()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0
    }
}

fn require_some(bytes: usize, attempt: impl FnOnce() -> String) -> Result<()> {
    match bytes {
        0 => Err(Error::OutOfRange { attempt: attempt(), what: "nothing".to_owned(), start: 0, end: 0, length: 0 }),
        _ => Ok(()),
    }
}

fn memory(
    context: &Context,
    place: Place,
    pointer: *mut c_void,
    length: usize,
    attempt: impl FnOnce() -> String,
) -> Result<Memory> {
    match NonNull::new(pointer) {
        Some(pointer) => Ok(Memory { context: context.clone(), place, pointer, length, uses: Mutex::default() }),
        // A success that gave nothing; no library is known to do so.
        None => Err(Error::Call {
            function: "aclrtMalloc",
            attempt: attempt(),
            status: acl_sys::Status::ACL_ERROR_BAD_ALLOC,
            detail: String::new(),
        }),
    }
}
