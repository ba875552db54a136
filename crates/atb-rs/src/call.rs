//! Calls into the library: every status becomes an error that says what was attempted.

use crate::error::{Error, Result};
use acl_sys::{Api, Status};
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even after a panic elsewhere: what is guarded here is never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table of functions, and the failure of a drop that nobody has heard of yet.
#[derive(Debug)]
pub(crate) struct Library {
    api: Api,
    dropped: Mutex<Option<Error>>,
}

/// Whose words explain a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    AscendCl,
    Shim,
}

impl Library {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, dropped: Mutex::new(None) }
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Calls AscendCL, after reporting what an earlier drop left.
    pub(crate) fn acl(
        &self,
        function: &'static str,
        attempt: impl Fn() -> String,
        call: impl FnOnce(&Api) -> std::result::Result<Status, acl_sys::Error>,
    ) -> Result<()> {
        self.report()?;
        self.outcome(Side::AscendCl, function, &attempt, call(&self.api))
    }

    /// Calls the shim, after reporting what an earlier drop left.
    pub(crate) fn shim(
        &self,
        function: &'static str,
        attempt: impl Fn() -> String,
        call: impl FnOnce(&Api) -> std::result::Result<Status, acl_sys::Error>,
    ) -> Result<()> {
        self.report()?;
        self.outcome(Side::Shim, function, &attempt, call(&self.api))
    }

    /// Calls from a drop: the failure is kept for the next call.
    pub(crate) fn release(
        &self,
        side: Side,
        function: &'static str,
        attempt: impl Fn() -> String,
        call: impl FnOnce(&Api) -> std::result::Result<Status, acl_sys::Error>,
    ) -> bool {
        let outcome = self.outcome(side, function, &attempt, call(&self.api));
        let succeeded = outcome.is_ok();
        if let Err(error) = outcome {
            self.keep(error);
        }
        succeeded
    }

    /// Keeps a failure for the next call. The first is the one that explains the others.
    pub(crate) fn keep(&self, error: Error) {
        lock(&self.dropped).get_or_insert(error);
    }

    fn report(&self) -> Result<()> {
        match self.take_dropped() {
            Some(error) => Err(Error::Dropped(Box::new(error))),
            None => Ok(()),
        }
    }

    pub(crate) fn take_dropped(&self) -> Option<Error> {
        lock(&self.dropped).take()
    }

    fn outcome(
        &self,
        side: Side,
        function: &'static str,
        attempt: &dyn Fn() -> String,
        result: std::result::Result<Status, acl_sys::Error>,
    ) -> Result<()> {
        tracing::trace!(function, "called");
        match result {
            Ok(Status::SUCCESS) => Ok(()),
            Ok(status) => {
                let attempt = attempt();
                tracing::debug!(function, %status, "failed: {attempt}");
                Err(Error::Call { function, attempt, status, detail: self.detail(side) })
            }
            Err(source) => {
                let attempt = attempt();
                tracing::debug!(function, reason = %source, "cannot be called: {attempt}");
                Err(Error::Unavailable { attempt, source })
            }
        }
    }

    fn detail(&self, side: Side) -> String {
        let text = match side {
            // SAFETY: takes nothing; the text stays valid until this thread's next call.
            Side::AscendCl => unsafe { self.api.aclGetRecentErrMsg() },
            // SAFETY: as above.
            Side::Shim => unsafe { self.api.spec_atb_last_error() },
        };
        // A library too old to explain itself has failed all the same.
        let text = text.map_or(String::new(), owned);
        if text.is_empty() { text } else { format!("\n  {}", text.trim_end().replace('\n', "\n  ")) }
    }
}

fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so that it is a C string, which is valid until this thread calls the library again.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
