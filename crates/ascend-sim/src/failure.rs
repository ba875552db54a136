//! Failures: a status with a text, and the two places where a thread keeps its last ones.

use acl_sys::Status;
use std::cell::RefCell;
use std::ffi::CString;

/// What went wrong, as the caller gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// A failed check of the acl layer: null pointers, sizes of zero, numbers that no enumeration has.
pub(crate) fn argument(text: impl Into<String>) -> Failure {
    Failure::new(Status::ACL_ERROR_INVALID_PARAM, text)
}

/// A failed check deeper in the runtime.
pub(crate) fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(Status::ACL_ERROR_RT_PARAM_INVALID, text)
}

/// A failed check of ATB.
pub(crate) fn parameter(text: impl Into<String>) -> Failure {
    Failure::new(Status::ATB_ERROR_INVALID_PARAM, text)
}

/// What a check says when its condition does not hold.
pub(crate) fn require(holds: bool, failure: impl FnOnce() -> Failure) -> Outcome {
    if holds { Ok(()) } else { Err(failure()) }
}

/// The prefix by which the vendor's texts tell their origin.
fn class(status: Status) -> &'static str {
    match status.0 {
        100_000..=100_999 => "EH0001",
        107_001 => "EE1001",
        507_046 | 507_047 => "EE1002",
        107_003 => "EE1010",
        207_000 | 207_019 => "EE1015",
        207_005 | 207_007 | 207_008 => "EE1023",
        107_000..=107_999 => "EE1004",
        _ => "EE9999",
    }
}

#[derive(Default)]
struct Last {
    status: i32,
    /// For `aclGetRecentErrMsg`, which takes it.
    message: Option<CString>,
    /// What the last `aclGetRecentErrMsg` handed out.
    handed: Option<CString>,
    /// For `spec_atb_last_error`, which leaves it.
    shim: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Notes a failed call down for the calling thread.
pub(crate) fn note(function: &str, failure: &Failure) {
    LAST.with_borrow_mut(|last| {
        let text = format!("{}: {function}: {}", class(failure.status), failure.text);
        if function.starts_with("spec_atb_") {
            last.shim = c_string(&text);
        }
        last.message = Some(c_string(&text));
        last.status = failure.status.0;
    });
}

/// The text of `aclGetRecentErrMsg`; null when there is none.
pub(crate) fn take_message() -> *const std::ffi::c_char {
    LAST.with_borrow_mut(|last| {
        last.handed = last.message.take();
        last.handed.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
    })
}

/// The text of `spec_atb_last_error`.
pub(crate) fn shim_message() -> *const std::ffi::c_char {
    LAST.with_borrow(|last| last.shim.as_ptr())
}

/// The status of the thread's last failed call, which `clear` forgets.
pub(crate) fn last_status(clear: bool) -> Status {
    LAST.with_borrow_mut(|last| {
        let status = Status(last.status);
        if clear {
            last.status = 0;
        }
        status
    })
}
