//! The library as a whole, and contexts.

use super::context::{Context, set_execute_type};
use super::{CONTEXTS, context};
use crate::exports::{In, Out, exports};
use crate::failure::{Failure, argument, parameter, require, shim_message};
use crate::operators::tensor::Desc;
use crate::world::{Kind, world};
use acl_sys::{
    SPEC_ATB_ABI_VERSION, Status, spec_atb_context_param, spec_atb_execute_type, spec_atb_launch_mode,
    spec_atb_probe_result, spec_atb_tensor_desc,
};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

type Handle = usize;

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (to, from) in chars.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from as c_char;
    }
    chars
}

exports! {
    /// Version of the interface.
    fn spec_atb_abi_version() -> u32, else 0, {
        Ok(SPEC_ATB_ABI_VERSION)
    }

    /// There is no C++ here, so that it always fits.
    fn spec_atb_probe(result: Out<spec_atb_probe_result>) {
        let (atb_path, atb_version) = (chars("ascend-sim"), chars("simulated"));
        result.set(spec_atb_probe_result { shim_cxx11_abi: 1, atb_cxx11_abi: 1, atb_path, atb_version })
    }

    /// Text of the thread's last failure.
    fn spec_atb_last_error() -> *const c_char, else c"".as_ptr(), {
        Ok(shim_message())
    }

    /// The default ceiling of workspaces, 2 GiB as a shim that nobody told otherwise.
    fn spec_atb_workspace_ceiling() -> u64, else 0, {
        Ok(2 << 30)
    }

    /// Bytes of a tensor.
    fn spec_atb_tensor_size(desc: In<spec_atb_tensor_desc>) -> u64, else 0, {
        Ok(Desc::from_abi(&desc.get()?, "the tensor", true)?.bytes() as u64)
    }

    /// Scales as a Linear of int8 takes them.
    fn spec_atb_quant_param_convert(source: *const f32, destination: *mut u64, count: u64) {
        require(!source.is_null() && !destination.is_null(), || argument("the source or the destination is null"))?;
        for at in 0..usize::try_from(count).map_err(|_| argument("more elements than there are addresses"))? {
            // SAFETY: both have `count` elements by the caller's contract.
            unsafe { destination.add(at).write(u64::from(source.add(at).read().to_bits())) };
        }
        Ok(())
    }

    /// Makes a context on the current device.
    fn spec_atb_create_context(param: In<spec_atb_context_param>, made: Out<Handle>) {
        made.required()?;
        let none = spec_atb_context_param {
            host_tiling_blocks: 0,
            device_tiling_blocks: 0,
            allocate: None,
            deallocate: None,
            user_data: std::ptr::null_mut(),
        };
        let handle = world().handle(Kind::AtbContext);
        let context = Context::new(&param.get_optional().unwrap_or(none))?;
        CONTEXTS.lock().insert(handle, Arc::new(context));
        made.set(handle)
    }

    /// Destroys a context.
    fn spec_atb_destroy_context(handle: Handle) {
        require(handle != 0, || argument("the context is null"))?;
        let gone = || Failure::new(Status::ATB_ERROR_INVALID_CONTEXT_ADDR, "the context is unknown or destroyed");
        let removed = CONTEXTS.lock().remove(&handle).ok_or_else(gone)?;
        removed.release()
    }

    /// The stream that operations are put on.
    fn spec_atb_set_execute_stream(handle: Handle, stream: *mut c_void) {
        require(handle != 0, || argument("the context is null"))?;
        *context(handle)?.streams.lock() = vec![stream as usize];
        Ok(())
    }

    /// Several streams.
    fn spec_atb_set_execute_streams(handle: Handle, streams: *const *mut c_void, count: u64) {
        require(handle != 0, || argument("the context is null"))?;
        let count = usize::try_from(count).map_err(|_| argument("more streams than there are addresses"))?;
        require(count > 0 && !streams.is_null(), || parameter("a context needs at least one stream"))?;
        // SAFETY: there are `count` of them by the caller's contract.
        let streams = (0..count).map(|at| unsafe { streams.add(at).read() } as usize).collect();
        *context(handle)?.streams.lock() = streams;
        Ok(())
    }

    /// Tiling data is not simulated, so that both ways are the same.
    fn spec_atb_set_async_tiling_copy(handle: Handle, enable: u32) {
        require(handle != 0, || argument("the context is null"))?;
        require(enable <= 1, || parameter(format!("{enable} is not 0 or 1")))?;
        context(handle).map(|_| ())
    }

    /// What executing does on this thread.
    fn spec_atb_set_execute_type(handle: Handle, type_: spec_atb_execute_type) {
        require(handle != 0, || argument("the context is null"))?;
        require(type_.0 <= 2, || parameter(format!("execute type {}", type_.0)))?;
        context(handle)?;
        set_execute_type(type_);
        Ok(())
    }

    /// How graphs are launched.
    fn spec_atb_set_launch_mode(handle: Handle, mode: spec_atb_launch_mode) {
        require(handle != 0, || argument("the context is null"))?;
        require(mode.0 <= 1, || parameter(format!("launch mode {}", mode.0)))?;
        *context(handle)?.launch_mode.lock() = mode;
        Ok(())
    }
}
