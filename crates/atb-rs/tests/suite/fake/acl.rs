//! AscendCL.

use super::{CURRENT, Status, call, message, with_state};
use acl_sys::*;
use std::ffi::{c_char, c_void};

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) |$state:ident| $body:expr;)*) => {
        $(extern "C" fn $name($($argument: $type),*) -> Status {
            call(stringify!($name), |$state| $body)
        })*

        pub fn resolve(symbol: &str) -> Option<*const ()> {
            match symbol {
                $(stringify!($name) => Some($name as *const ()),)*
                "aclGetRecentErrMsg" => Some(recent as *const ()),
                "aclrtGetSocName" => Some(chip as *const ()),
                _ => None,
            }
        }
    };
}

extern "C" fn recent() -> *const c_char {
    with_state(|state| message(state, "acl"))
}

extern "C" fn chip() -> *const c_char {
    with_state(|state| state.chip.map_or(std::ptr::null(), |name| name.as_ptr()))
}

/// Writes through a pointer of the caller's.
fn put<T>(to: *mut T, value: T) -> Status {
    // SAFETY: the library under test passes valid pointers, or the test has found something.
    unsafe { to.write(value) };
    Status::SUCCESS
}

const OK: Status = Status::SUCCESS;

/// A call that needs a context on its thread.
fn current() -> Status {
    if CURRENT.get() == 0 { Status::ACL_ERROR_RT_CONTEXT_NULL } else { OK }
}

macro_rules! needs_context {
    ($body:expr) => {
        match current() {
            Status::SUCCESS => $body,
            status => status,
        }
    };
}

functions! {
    aclInit(_path: *const c_char) |state| {
        if state.initialised { Status::ACL_ERROR_REPEAT_INITIALIZE } else { state.initialised = true; OK }
    };
    aclFinalize() |state| {
        if state.initialised { state.initialised = false; OK } else { Status::ACL_ERROR_REPEAT_FINALIZE }
    };
    aclrtGetDeviceCount(count: *mut u32) |_state| put(count, 1);
    aclrtSetDevice(id: i32) |state| {
        if id == 0 { state.devices += 1; OK } else { Status::ACL_ERROR_RT_INVALID_DEVICEID }
    };
    aclrtResetDevice(_id: i32) |state| { state.devices -= 1; OK };
    aclrtCreateContext(context: *mut aclrtContext, _id: i32) |state| {
        let made = state.make("context");
        CURRENT.set(made as usize);
        put(context, made)
    };
    aclrtDestroyContext(context: aclrtContext) |state| state.unmake(context, "context");
    aclrtSetCurrentContext(context: aclrtContext) |_state| { CURRENT.set(context as usize); OK };
    aclrtSetOpExecuteTimeOut(_seconds: u32) |_state| needs_context!(OK);
    aclrtSetOpWaitTimeout(_seconds: u32) |_state| needs_context!(OK);
    aclrtGetMemInfo(_kind: aclrtMemAttr, free: *mut usize, total: *mut usize) |_state| {
        let _ = put(free, 1 << 30);
        put(total, 2 << 30)
    };
    aclrtSynchronizeDevice() |state| needs_context!({
        let streams: Vec<usize> = state.streams.keys().copied().collect();
        for stream in streams {
            state.run(stream, u64::MAX);
        }
        OK
    });
    aclrtCreateStream(stream: *mut aclrtStream) |state| needs_context!({
        let made = state.open_stream();
        put(stream, made)
    });
    aclrtDestroyStream(stream: aclrtStream) |state| {
        state.run(stream as usize, u64::MAX);
        state.streams.remove(&(stream as usize));
        state.unmake(stream, "stream")
    };
    aclrtSynchronizeStream(stream: aclrtStream) |state| { state.run(stream as usize, u64::MAX); OK };
    aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32) |state| {
        if timeout == 0 { return Status::ACL_ERROR_RT_PARAM_INVALID; }
        state.run(stream as usize, u64::MAX);
        OK
    };
    aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) |state| {
        let is_idle = state.streams[&(stream as usize)].queue.is_empty();
        put(status, if is_idle { ACL_STREAM_STATUS_COMPLETE } else { ACL_STREAM_STATUS_NOT_READY })
    };
    aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) |state| {
        let Some(Some((other, tick))) = state.events.get(&(event as usize)).copied() else {
            return Status::ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
        };
        state.queue(stream, &[], Box::new(move |state| state.run(other, tick)))
    };
    aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flags: u32) |state| needs_context!({
        if flags == 0 { return Status::ACL_ERROR_RT_PARAM_INVALID; }
        let made = state.make("event");
        state.events.insert(made as usize, None);
        put(event, made)
    });
    aclrtDestroyEvent(event: aclrtEvent) |state| {
        state.events.remove(&(event as usize));
        state.unmake(event, "event")
    };
    aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) |state| {
        let status = state.queue(stream, &[], Box::new(|_| {}));
        let tick = state.issued(stream as usize);
        state.events.insert(event as usize, Some((stream as usize, tick)));
        status
    };
    aclrtSynchronizeEvent(event: aclrtEvent) |state| {
        if let Some((stream, tick)) = state.events[&(event as usize)] { state.run(stream, tick); }
        OK
    };
    aclrtSynchronizeEventWithTimeout(event: aclrtEvent, timeout: i32) |state| {
        if timeout == 0 { return Status::ACL_ERROR_RT_PARAM_INVALID; }
        if let Some((stream, tick)) = state.events[&(event as usize)] { state.run(stream, tick); }
        OK
    };
    aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) |state| {
        let is_done = state.events[&(event as usize)].is_none_or(|(stream, tick)| {
            state.streams.get(&stream).is_none_or(|stream| stream.done >= tick)
        });
        put(status, if is_done { ACL_EVENT_RECORDED_STATUS_COMPLETE } else { ACL_EVENT_RECORDED_STATUS_NOT_READY })
    };
    aclrtEventElapsedTime(time: *mut f32, start: aclrtEvent, end: aclrtEvent) |state| {
        let tick = |event: aclrtEvent| state.events[&(event as usize)].map_or(0, |(_, tick)| tick);
        put(time, (tick(end) as f32 - tick(start) as f32) * 0.5)
    };
    aclrtMalloc(pointer: *mut *mut c_void, bytes: usize, _policy: aclrtMemMallocPolicy) |state| needs_context!({
        let made = state.allocate(bytes, "device memory");
        put(pointer, made)
    });
    aclrtFree(pointer: *mut c_void) |state| needs_context!(state.free(pointer, "device memory"));
    aclrtMallocHost(pointer: *mut *mut c_void, bytes: usize) |state| needs_context!({
        let made = state.allocate(bytes, "pinned memory");
        put(pointer, made)
    });
    aclrtFreeHost(pointer: *mut c_void) |state| needs_context!(state.free(pointer, "pinned memory"));
    aclrtMemcpy(to: *mut c_void, room: usize, from: *const c_void, bytes: usize, _kind: aclrtMemcpyKind) |_state| {
        if bytes > room || bytes == 0 { return Status::ACL_ERROR_RT_PARAM_INVALID; }
        // SAFETY: both ranges are the test's, and as long as is said.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
        OK
    };
    aclrtMemcpyAsync(to: *mut c_void, room: usize, from: *const c_void, bytes: usize, _kind: aclrtMemcpyKind,
                     stream: aclrtStream) |state| {
        if bytes > room || bytes == 0 { return Status::ACL_ERROR_RT_PARAM_INVALID; }
        let (to_address, from_address) = (to as usize, from as usize);
        state.queue(stream, &[to, from], Box::new(move |_| {
            // SAFETY: what work uses lives until the stream has passed it; the test is about just that.
            unsafe { std::ptr::copy(from_address as *const u8, to_address as *mut u8, bytes) };
        }))
    };
    aclrtMemsetAsync(to: *mut c_void, room: usize, value: i32, bytes: usize, stream: aclrtStream) |state| {
        if bytes > room { return Status::ACL_ERROR_RT_PARAM_INVALID; }
        let address = to as usize;
        state.queue(stream, &[to], Box::new(move |_| {
            // SAFETY: as for copies.
            unsafe { (address as *mut u8).write_bytes(value as u8, bytes) };
        }))
    };
}
