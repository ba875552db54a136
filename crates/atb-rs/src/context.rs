//! Contexts: a device's state, current on every thread that uses it, and the memory that waits to be freed.

use crate::call::{Library, Side, lock};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::order::{Access, Clock, Ledger, Point, Uses};
use acl_sys::{ACL_HBM_MEM, aclrtContext, spec_atb_operation};
use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A context of a device. Clones share it. What is made in it keeps it alive.
///
/// Every call makes it current on the calling thread first, so that its streams and buffers may be used from any.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    raw: Handle,
    ledger: Mutex<Ledger>,
    parked: Mutex<Vec<Parked>>,
}

/// An opaque pointer of the library's, which any thread may hand back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) *mut c_void);

// SAFETY: the library's handles belong to no thread; which calls need a current context is this crate's care.
unsafe impl Send for Handle {}
// SAFETY: as above, and a handle is never changed.
unsafe impl Sync for Handle {}

/// Something that was dropped while a stream may still have been using it.
#[derive(Debug)]
struct Parked {
    what: Remains,
    uses: Uses,
}

/// What is left to free.
pub(crate) enum Remains {
    Device(NonNull<c_void>),
    Host(NonNull<c_void>),
    /// With what its callbacks use.
    Operation(NonNull<spec_atb_operation>, Box<dyn Any + Send + Sync>),
}

// SAFETY: pointers that the library gave and takes back; see `Handle`.
unsafe impl Send for Remains {}
// SAFETY: as above.
unsafe impl Sync for Remains {}

impl std::fmt::Debug for Remains {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Remains::Device(_) => "device memory",
            Remains::Host(_) => "pinned memory",
            Remains::Operation(..) => "an operation",
        })
    }
}

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Not in use by anybody.
    pub free: usize,
    /// All there is.
    pub total: usize,
}

impl Context {
    /// Makes a context.
    ///
    /// # Errors
    /// The failure of `aclrtCreateContext`.
    pub fn new(device: &Device) -> Result<Self> {
        let mut raw = std::ptr::null_mut::<c_void>() as aclrtContext;
        let attempt = || format!("making a context on device {}", device.id());
        device.runtime().library().acl("aclrtCreateContext", attempt, |api| {
            // SAFETY: the pointer is valid for the call.
            unsafe { api.aclrtCreateContext(&mut raw, device.id()) }
        })?;
        let (ledger, parked) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { device: device.clone(), raw: Handle(raw), ledger, parked })))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// How long a kernel may run before it is taken for hung (507014), in whole seconds, 1 at least. Without this it is
    /// about 18 minutes on A2.
    ///
    /// # Errors
    /// The failure of `aclrtSetOpExecuteTimeOut`.
    pub fn set_op_timeout(&self, timeout: Duration) -> Result<()> {
        let seconds = whole_seconds(timeout);
        let attempt = || format!("limiting kernels to {seconds} s");
        self.enter()?;
        // SAFETY: takes a number.
        self.library().acl("aclrtSetOpExecuteTimeOut", attempt, |api| unsafe { api.aclrtSetOpExecuteTimeOut(seconds) })
    }

    /// How long a stream may wait for an event, in whole seconds, 1 at least. A wait that takes longer fails, as the
    /// stream's next synchronisation says.
    ///
    /// # Errors
    /// The failure of `aclrtSetOpWaitTimeout`.
    pub fn set_wait_timeout(&self, timeout: Duration) -> Result<()> {
        let seconds = whole_seconds(timeout);
        let attempt = || format!("limiting waits for events to {seconds} s");
        self.enter()?;
        // SAFETY: takes a number.
        self.library().acl("aclrtSetOpWaitTimeout", attempt, |api| unsafe { api.aclrtSetOpWaitTimeout(seconds) })
    }

    /// The device's memory.
    ///
    /// # Errors
    /// The failure of `aclrtGetMemInfo`.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        let attempt = || "asking how much memory is free".to_owned();
        self.library().acl("aclrtGetMemInfo", attempt, |api| {
            // SAFETY: both pointers are valid for the call.
            unsafe { api.aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total) }
        })?;
        Ok(MemoryInfo { free, total })
    }

    pub(crate) fn library(&self) -> &Library {
        self.0.library()
    }

    /// Makes this context the thread's current one. Other code on the thread may have chosen another since, so that
    /// this is not remembered.
    pub(crate) fn enter(&self) -> Result<()> {
        let attempt = || format!("making the context of device {} current", self.device().id());
        // SAFETY: the context is alive.
        self.library().acl("aclrtSetCurrentContext", attempt, |api| unsafe { api.aclrtSetCurrentContext(self.0.raw.0) })
    }

    pub(crate) fn is_same(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn require_same(&self, other: &Context, what: &str, attempt: impl FnOnce() -> String) -> Result<()> {
        match self.is_same(other) {
            true => Ok(()),
            false => Err(Error::OtherContext { attempt: attempt(), what: what.to_owned() }),
        }
    }

    /// Looks at or changes what is known of the order of work.
    pub(crate) fn ledger<T>(&self, with: impl FnOnce(&mut Ledger) -> T) -> T {
        with(&mut lock(&self.0.ledger))
    }

    /// Notes that the host has waited for everything up to `clock`, and frees what waited for that.
    pub(crate) fn complete(&self, clock: &Clock) {
        self.ledger(|ledger| ledger.complete(clock));
        self.0.sweep(false);
    }

    /// Fails when a stream may still be using what the host is about to touch.
    pub(crate) fn require_idle(
        &self,
        uses: &Mutex<Uses>,
        access: Access,
        what: impl Fn() -> String,
        attempt: &str,
    ) -> Result<()> {
        let conflict = self.ledger(|ledger| lock(uses).conflict(access, |point| ledger.is_complete(point)));
        conflict.map_or(Ok(()), |conflict| {
            Err(Error::InUse {
                attempt: attempt.to_owned(),
                what: what(),
                using: conflict.using,
                stream: conflict.stream,
            })
        })
    }

    /// Frees something now, or once no stream uses it any more.
    pub(crate) fn discard(&self, what: Remains, uses: Uses) {
        lock(&self.0.parked).push(Parked { what, uses });
        self.0.sweep(false);
    }
}

fn whole_seconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX).max(1)
}

impl Inner {
    fn library(&self) -> &Library {
        self.device.runtime().library()
    }

    fn enter_to_release(&self) {
        let attempt = || format!("making the context of device {} current", self.device.id());
        // SAFETY: the context is alive.
        self.library().release(Side::AscendCl, "aclrtSetCurrentContext", attempt, |api| unsafe {
            api.aclrtSetCurrentContext(self.raw.0)
        });
    }

    /// Frees what nobody uses any more; everything when the device is known to be idle, or lost.
    fn sweep(&self, everything: bool) {
        let free: Vec<Parked> = {
            let ledger = lock(&self.ledger);
            let is_over = |point: Point| everything || ledger.is_complete(point);
            lock(&self.parked).extract_if(.., |parked| parked.uses.conflict(Access::Write, is_over).is_none()).collect()
        };
        if free.is_empty() {
            return;
        }
        self.enter_to_release();
        let library = self.library();
        for Parked { what, .. } in free {
            match what {
                Remains::Device(pointer) => {
                    let attempt = || "freeing device memory".to_owned();
                    // SAFETY: the pointer came from aclrtMalloc, and no work that uses it is left.
                    library.release(Side::AscendCl, "aclrtFree", attempt, |api| unsafe {
                        api.aclrtFree(pointer.as_ptr())
                    });
                }
                Remains::Host(pointer) => {
                    let attempt = || "freeing pinned memory".to_owned();
                    // SAFETY: the pointer came from aclrtMallocHost, and no work that uses it is left.
                    library.release(Side::AscendCl, "aclrtFreeHost", attempt, |api| unsafe {
                        api.aclrtFreeHost(pointer.as_ptr())
                    });
                }
                Remains::Operation(operation, callbacks) => {
                    let attempt = || "destroying an operation".to_owned();
                    // SAFETY: the operation is ours, no graph has it, and no work of it is left.
                    library.release(Side::Shim, "spec_atb_destroy_operation", attempt, |api| unsafe {
                        api.spec_atb_destroy_operation(operation.as_ptr())
                    });
                    drop(callbacks);
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !lock(&self.parked).is_empty() {
            self.enter_to_release();
            let attempt = || "waiting for the device before freeing what it used".to_owned();
            // SAFETY: takes nothing.
            self.library().release(Side::AscendCl, "aclrtSynchronizeDevice", attempt, |api| unsafe {
                api.aclrtSynchronizeDevice()
            });
            // When waiting failed, the device has lost the work, and the context goes anyway.
            self.sweep(true);
        }
        let attempt = || "destroying a context".to_owned();
        // SAFETY: nothing of the context is left.
        self.library().release(Side::AscendCl, "aclrtDestroyContext", attempt, |api| unsafe {
            api.aclrtDestroyContext(self.raw.0)
        });
    }
}
