//! Ranges with a name in the timeline of CANN's profiler.

use crate::call::Library;
use crate::context::Context;
use acl_sys::Status;
use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Bytes of a name that the profiler takes.
const LONGEST: usize = 127;

/// A stretch of this thread's work, named in the timeline of `msprof --msproftx=on`: from its making to its drop. Ranges nest.
///
/// Where the library has no markers, or makes none, it is nothing: a program does without it what it does with it.
#[derive(Debug)]
#[must_use = "a range ends where it is dropped"]
pub struct Range<'a> {
    open: Option<(&'a Library, NonNull<c_void>)>,
    /// It ends on the thread that it began on.
    thread: PhantomData<*const ()>,
}

impl Context {
    /// Begins a range. Of a longer name the first 127 bytes are taken.
    pub fn range(&self, name: &str) -> Range<'_> {
        Range { open: begin(self.library(), name), thread: PhantomData }
    }
}

fn begin<'a>(library: &'a Library, name: &str) -> Option<(&'a Library, NonNull<c_void>)> {
    let end = (0..=LONGEST.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    let name = &name[..end];
    let api = library.api();
    // SAFETY: takes nothing.
    let stamp = NonNull::new(unsafe { api.aclprofCreateStamp() }.ok()?)?;
    let (text, length) = (name.as_ptr().cast::<c_char>(), name.len() as u32);
    // SAFETY: the stamp was just made, and the text has as many bytes.
    let named = unsafe { api.aclprofSetStampTraceMessage(stamp.as_ptr(), text, length) };
    // SAFETY: as above.
    let is_open = matches!(named, Ok(Status::SUCCESS))
        && matches!(unsafe { api.aclprofPush(stamp.as_ptr()) }, Ok(Status::SUCCESS));
    if !is_open {
        // SAFETY: as above; nothing else has it.
        let _ = unsafe { api.aclprofDestroyStamp(stamp.as_ptr()) };
    }
    is_open.then_some((library, stamp))
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        let Some((library, stamp)) = self.open.take() else { return };
        let api = library.api();
        // SAFETY: takes nothing; this thread has opened the range. A profiler that fails to end it has nobody to tell.
        let _ = unsafe { api.aclprofPop() };
        // SAFETY: made by `begin`, and not used any more.
        let _ = unsafe { api.aclprofDestroyStamp(stamp.as_ptr()) };
    }
}
