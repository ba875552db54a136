//! Ascend devices: AscendCL, which a process starts once, and the thread's current context, which is the caller's.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use acl_sys::{Api, Loader};
use atb_rs::Runtime;
use spec_ascend::{AscendDevice, DeviceOptions};

use crate::error::Error;

/// What is to be loaded, and from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) simulator: bool,
    pub(crate) library: Option<String>,
}

/// AscendCL as this library uses it. Engines share it, since a process has one; the last one ends it, unless somebody else began it.
#[derive(Debug)]
pub(crate) struct Started {
    runtime: Runtime,
    simulator: bool,
}

/// The one that engines share. Held while it is started and while it ends, so that neither meets the other.
static STARTED: Mutex<Weak<Started>> = Mutex::new(Weak::new());

fn shared() -> MutexGuard<'static, Weak<Started>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Started {
    /// The running one, or a new one.
    pub(crate) fn get(wanted: &Wanted, name: &str) -> Result<Arc<Self>, Error> {
        let mut shared = shared();
        if let Some(started) = shared.upgrade() {
            if started.simulator != wanted.simulator {
                let reason = "this process has a device of the other kind in use: hardware and simulator do not mix";
                return Err(Error::device(name, reason));
            }
            return Ok(started);
        }
        let mut loader = Loader::new().simulator(wanted.simulator);
        if let Some(library) = &wanted.library {
            loader = loader.path(library);
        }
        // SAFETY: what lies where CANN is installed, where the simulator is built, or where the caller says, is taken to be that.
        let api = unsafe { loader.load() }.map_err(|error| Error::device(name, error))?;
        let runtime = Runtime::start(api).map_err(|error| Error::device(name, error))?;
        let started = Arc::new(Self { runtime, simulator: wanted.simulator });
        *shared = Arc::downgrade(&started);
        Ok(started)
    }

    pub(crate) fn open(&self, number: u16, name: &str) -> Result<AscendDevice, Error> {
        let mut options = DeviceOptions::default();
        options.name = Some(name.to_owned());
        AscendDevice::open(&self.runtime, i32::from(number), options).map_err(|error| Error::device(name, error))
    }

    /// Frees what used the device, and AscendCL with it where nobody else uses it.
    pub(crate) fn release(self: Arc<Self>, user: impl Sized) {
        let shared = shared();
        {
            let _caller = CallersContext::keep(&self);
            drop(user);
        }
        drop(self);
        drop(shared);
    }
}

/// Puts the context back that was current on this thread, so that a caller who uses AscendCL too finds it as it was.
pub(crate) struct CallersContext<'a> {
    api: &'a Api,
    context: *mut c_void,
}

impl<'a> CallersContext<'a> {
    pub(crate) fn keep(started: &'a Started) -> Self {
        let api = started.runtime.api();
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let found = unsafe { api.aclrtGetCurrentContext(&mut context) };
        // A thread without a context is told so by a status; there is nothing to put back then.
        let found = found.is_ok_and(|status| status.ok().is_ok());
        Self { api, context: if found { context } else { std::ptr::null_mut() } }
    }
}

impl Drop for CallersContext<'_> {
    fn drop(&mut self) {
        if !self.context.is_null() {
            // SAFETY: it was current when this call began, and ending it meanwhile is forbidden to other threads by AscendCL.
            // When it fails there is nobody to tell: the caller's next call says so.
            let _ = unsafe { self.api.aclrtSetCurrentContext(self.context) };
        }
    }
}
