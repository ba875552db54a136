//! The edge itself: pointers from outside, panics from inside, the last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use spec_runtime::{Emitted, TokenSource};

use crate::SPEC_ABI_VERSION;
use crate::error::Error;
use crate::types::{spec_status, spec_token, spec_token_callback, spec_token_source};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// The thread's last error.
pub(crate) fn last_error() -> *const c_char {
    // A thread that is ending has no error to tell of any more.
    LAST_ERROR.try_with(|error| error.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs a function of the interface: its error, or its panic, becomes a status and the thread's last error.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Error>) -> spec_status {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let result = outcome.unwrap_or_else(|panic| Err(Error::Panic(panic_text(&*panic))));
    let (status, text) = match result {
        Ok(()) => (spec_status::Ok, String::new()),
        Err(error) => (error.status(), error.to_string()),
    };
    // A C text ends at its first NUL; none of ours has one, but a file's name may.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let _ = LAST_ERROR.try_with(|error| error.replace(text));
    status
}

/// Runs what has nobody to tell of a failure.
pub(crate) fn quietly(body: impl FnOnce()) {
    // The panic's own message went to standard error.
    let _ = catch_unwind(AssertUnwindSafe(body));
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// A structure of the caller's.
///
/// # Safety
/// The pointer is null or valid for reads while the result lives.
pub(crate) unsafe fn reference<'a, T>(name: &'static str, pointer: *const T) -> Result<&'a T, Error> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Error::null(name))
}

/// A place of the caller's to write to.
pub(crate) struct Output<T>(*mut T);

impl<T> Output<T> {
    /// # Safety
    /// The pointer is null or valid for writes while this lives. What it points to may be uninitialised, and is not dropped.
    pub(crate) unsafe fn new(name: &'static str, pointer: *mut T) -> Result<Self, Error> {
        if pointer.is_null() { Err(Error::null(name)) } else { Ok(Self(pointer)) }
    }

    pub(crate) fn set(self, value: T) {
        self.preset(value);
    }

    /// What stays there unless it is set again.
    pub(crate) fn preset(self, value: T) -> Self {
        // SAFETY: not null, so that it is valid for a write by the promise of `new`.
        unsafe { self.0.write(value) };
        self
    }
}

/// Text of the caller's; null is `None`.
///
/// # Safety
/// The pointer is null or leads to a NUL, and what it leads to stays as it is while the result lives.
pub(crate) unsafe fn optional_text<'a>(name: &'static str, text: *const c_char) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so that it leads to a NUL by the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    let text = bytes.to_str().map_err(|error| Error::argument(name, format!("is not UTF-8: {error}")))?;
    Ok(Some(text))
}

/// An array of token ids of the caller's; null is `None`.
///
/// # Safety
/// The pointer is null or valid for reads of `count` ids while the result lives.
pub(crate) unsafe fn tokens<'a>(
    name: &'static str,
    start: *const u32,
    count: usize,
) -> Result<Option<&'a [u32]>, Error> {
    match (start.is_null(), count) {
        (true, 0) => Ok(None),
        (true, count) => Err(Error::argument(name, format!("is null, and {count} ids are said to be there"))),
        (false, 0) => Ok(Some(&[])),
        // SAFETY: not null, so that it has `count` ids by the caller's promise.
        (false, count) => Ok(Some(unsafe { std::slice::from_raw_parts(start, count) })),
    }
}

/// Refuses structures that were not filled in, or by a header of another version.
pub(crate) fn require_version(name: &'static str, found: u32) -> Result<(), Error> {
    if found == SPEC_ABI_VERSION {
        return Ok(());
    }
    Err(Error::argument(
        name,
        format!(
            "is of version {found} of the interface, and this library of {SPEC_ABI_VERSION}: fill it in with its _init function, \
             and compile with the spec.h that came with the library"
        ),
    ))
}

/// Tells a callback of a token. Gives whether to go on.
///
/// # Safety
/// The callback is null, or may be called with `user_data`.
pub(crate) unsafe fn tell(callback: spec_token_callback, user_data: *mut c_void, emitted: &Emitted) -> bool {
    let Some(callback) = callback else { return true };
    let mut text = emitted.text.clone().into_bytes();
    text.push(0);
    let token = spec_token {
        id: emitted.token,
        shown: emitted.shown,
        source: match emitted.source {
            TokenSource::Target => spec_token_source::Target,
            TokenSource::Accepted => spec_token_source::Accepted,
            TokenSource::Corrected => spec_token_source::Corrected,
            TokenSource::Bonus => spec_token_source::Bonus,
        },
        text: text.as_ptr().cast(),
        text_bytes: text.len() - 1,
    };
    // SAFETY: the caller's promise; the token lives during the call.
    unsafe { callback(user_data, &token) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status_with_its_words() {
        assert_eq!(call(|| panic!("words of {}", "its own")), spec_status::Internal);
        // SAFETY: the library's texts end with a NUL.
        let text = unsafe { CStr::from_ptr(last_error()) }.to_string_lossy().into_owned();
        assert!(text.contains("words of its own") && text.contains("report it"), "{text}");
        assert_eq!(call(|| Ok(())), spec_status::Ok);
        // SAFETY: as above.
        assert!(unsafe { CStr::from_ptr(last_error()) }.is_empty());
    }
}
