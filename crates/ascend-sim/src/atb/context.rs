//! Contexts: streams, memory for tiling data, modes.

use crate::failure::{Failure, Outcome, parameter, require};
use crate::world::world;
use acl_sys::{
    SPEC_ATB_EXECUTE_NORMAL, SPEC_ATB_LAUNCH_KERNELS, Status, spec_atb_context_param, spec_atb_deallocate,
    spec_atb_execute_type, spec_atb_launch_mode,
};
use parking_lot::Mutex;
use std::cell::Cell;
use std::ffi::c_void;

/// Bytes of one block of tiling data.
const BLOCK: u64 = 3 << 20;
/// Blocks on the device, unless told otherwise: 96 MiB.
const DEVICE_BLOCKS: u32 = 32;

thread_local! {
    static EXECUTE_TYPE: Cell<spec_atb_execute_type> = const { Cell::new(SPEC_ATB_EXECUTE_NORMAL) };
}

/// What executing does on this thread.
pub(crate) fn execute_type() -> spec_atb_execute_type {
    EXECUTE_TYPE.get()
}

pub(crate) fn set_execute_type(value: spec_atb_execute_type) {
    EXECUTE_TYPE.set(value);
}

/// An `atb::Context`.
pub(crate) struct Context {
    pub(crate) streams: Mutex<Vec<usize>>,
    pub(crate) launch_mode: Mutex<spec_atb_launch_mode>,
    tiling: usize,
    deallocate: spec_atb_deallocate,
    user_data: *mut c_void,
}

// SAFETY: the user's data is handed to the user's own function only, once, as the interface promises them.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(param: &spec_atb_context_param) -> Outcome<Self> {
        let own = matches!((param.allocate, param.deallocate), (Some(_), Some(_)));
        require(own || matches!((param.allocate, param.deallocate), (None, None)), || {
            parameter("allocate and deallocate are given both or not at all")
        })?;
        let (host, device) = (param.host_tiling_blocks, param.device_tiling_blocks);
        let fits = (128..=1024).contains(&host) && (32..=1024).contains(&device);
        require((host, device) == (0, 0) || fits && !own, || {
            parameter(format!("{host} blocks on the host (128 to 1024) and {device} on the device (32 to 1024)"))
        })?;
        let bytes = BLOCK * u64::from(if device == 0 { DEVICE_BLOCKS } else { device });
        let full = |text: String| Failure::new(Status::ATB_ERROR_OUT_OF_DEVICE_MEMORY, text);
        let tiling = match param.allocate {
            Some(allocate) => Self::allocate(allocate, param.user_data, bytes),
            None => {
                let device = world().current().map_err(|failure| full(failure.text))?.device;
                let size = usize::try_from(bytes).map_err(|_| full("more than the address space".to_owned()))?;
                // Nobody reads it before the context writes it, so that poison would only cost time.
                world().memory.allocate(device, size, 32, world().config().memory, false).map_err(|f| full(f.text))?
            }
        };
        require(tiling != 0, || full(format!("{bytes} bytes for tiling data were refused")))?;
        Ok(Self {
            streams: Mutex::new(Vec::new()),
            launch_mode: Mutex::new(SPEC_ATB_LAUNCH_KERNELS),
            tiling,
            deallocate: param.deallocate,
            user_data: param.user_data,
        })
    }

    fn allocate(
        allocate: unsafe extern "C" fn(*mut c_void, u64) -> *mut c_void,
        user_data: *mut c_void,
        bytes: u64,
    ) -> usize {
        // SAFETY: the caller gave the function with its data, to be called like this.
        unsafe { allocate(user_data, bytes) as usize }
    }

    /// Gives the memory for tiling data back.
    pub(crate) fn release(&self) -> Outcome {
        match self.deallocate {
            Some(deallocate) => {
                // SAFETY: the caller gave the function with its data, for what its partner allocated.
                unsafe { deallocate(self.user_data, self.tiling as *mut c_void) };
                Ok(())
            }
            None => world().memory.free(self.tiling).map(|_| ()),
        }
    }

    /// The handle of the stream for operations with this id.
    pub(crate) fn stream(&self, id: u32) -> Outcome<usize> {
        let streams = self.streams.lock();
        let stream = streams.get(id as usize).copied().filter(|stream| *stream != 0);
        stream.ok_or_else(|| parameter(format!("the context has no execute stream {id}")))
    }
}
