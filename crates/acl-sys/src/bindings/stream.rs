//! Made from `headers/acl/stream.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use super::base::*;
use crate::Status;
use crate::table::functions;
use core::ffi::{c_uint, c_void};

pub const ACL_STREAM_FAST_LAUNCH: u32 = 1;
pub const ACL_STREAM_FAST_SYNC: u32 = 2;
pub const ACL_STREAM_PERSISTENT: u32 = 4;
pub const ACL_STREAM_HUGE: u32 = 8;
pub const ACL_STREAM_CPU_SCHEDULE: u32 = 16;
pub const ACL_STREAM_DEVICE_USE_ONLY: u32 = 32;
/// Mode of `aclrtSetStreamFailureMode`: later tasks run after one failed. The default.
pub const ACL_CONTINUE_ON_FAILURE: u32 = 0;
/// Mode of `aclrtSetStreamFailureMode`: later tasks are skipped after one failed.
pub const ACL_STOP_ON_FAILURE: u32 = 1;
/// Event flag: a hardware flag that streams wait for, and that stays set until reset.
pub const ACL_EVENT_SYNC: u32 = 1;
/// Event flag: progress of a stream can be queried.
pub const ACL_EVENT_CAPTURE_STREAM_PROGRESS: u32 = 2;
/// Event flag: it has a time, for `aclrtEventElapsedTime`.
pub const ACL_EVENT_TIME_LINE: u32 = 8;
pub const ACL_EVENT_DEVICE_USE_ONLY: u32 = 16;
pub const ACL_EVENT_EXTERNAL: u32 = 32;
pub const ACL_EVENT_IPC: u32 = 64;
pub const ACL_STREAM_STATUS_COMPLETE: aclrtStreamStatus = aclrtStreamStatus(0);
pub const ACL_STREAM_STATUS_NOT_READY: aclrtStreamStatus = aclrtStreamStatus(1);
pub const ACL_STREAM_STATUS_RESERVED: aclrtStreamStatus = aclrtStreamStatus(65535);
/// What `aclrtStreamQuery` found.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtStreamStatus(pub c_uint);
pub const ACL_EVENT_RECORDED_STATUS_NOT_READY: aclrtEventRecordedStatus = aclrtEventRecordedStatus(0);
pub const ACL_EVENT_RECORDED_STATUS_COMPLETE: aclrtEventRecordedStatus = aclrtEventRecordedStatus(1);
/// What `aclrtQueryEventStatus` found. Its numbers are the other way round than those of `aclrtEventStatus`.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtEventRecordedStatus(pub c_uint);
pub const ACL_EVENT_STATUS_COMPLETE: aclrtEventStatus = aclrtEventStatus(0);
pub const ACL_EVENT_STATUS_NOT_READY: aclrtEventStatus = aclrtEventStatus(1);
pub const ACL_EVENT_STATUS_RESERVED: aclrtEventStatus = aclrtEventStatus(2);
/// What the deprecated `aclrtQueryEvent` found.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtEventStatus(pub c_uint);
pub const ACL_EVENT_WAIT_STATUS_COMPLETE: aclrtEventWaitStatus = aclrtEventWaitStatus(0);
pub const ACL_EVENT_WAIT_STATUS_NOT_READY: aclrtEventWaitStatus = aclrtEventWaitStatus(1);
pub const ACL_EVENT_WAIT_STATUS_RESERVED: aclrtEventWaitStatus = aclrtEventWaitStatus(65535);
/// What `aclrtQueryEventWaitStatus` found.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtEventWaitStatus(pub c_uint);
pub const ACL_CALLBACK_NO_BLOCK: aclrtCallbackBlockType = aclrtCallbackBlockType(0);
pub const ACL_CALLBACK_BLOCK: aclrtCallbackBlockType = aclrtCallbackBlockType(1);
/// Whether a stream stands still until a callback returned.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtCallbackBlockType(pub c_uint);
/// A callback of `aclrtLaunchCallback`.
pub type aclrtCallback = Option<unsafe extern "C" fn(userData: *mut c_void)>;
/// A callback of `aclrtLaunchHostFunc`.
pub type aclrtHostFunc = Option<unsafe extern "C" fn(args: *mut c_void)>;

functions! {
    stream:
    /// Makes a stream in the current context.
    fn aclrtCreateStream(stream: *mut aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Makes a stream with a priority and `ACL_STREAM_*` flags.
    fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, priority: u32, flag: u32) -> Status = Runtime, Cann(8, 0);
    /// Destroys a stream after its queued work.
    fn aclrtDestroyStream(stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Destroys a stream without waiting.
    fn aclrtDestroyStreamForce(stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Waits for a stream's queued work, and returns its failure if it had one.
    fn aclrtSynchronizeStream(stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtSynchronizeStream`, `timeout` milliseconds at most; -1 is for ever, 0 is refused.
    fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32) -> Status = Runtime, Cann(8, 0);
    /// Whether a stream's queued work is done, without waiting.
    fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> Status = Runtime, Cann(8, 0);
    /// Makes a stream's later work wait for an event.
    fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtStreamWaitEvent`, with a time limit, after which the stream fails.
    fn aclrtStreamWaitEventWithTimeout(stream: aclrtStream, event: aclrtEvent, timeout: i32) -> Status = Runtime, Cann(8, 5);
    /// Drops a stream's queued work.
    fn aclrtStreamAbort(stream: aclrtStream) -> Status = Runtime, Cann(8, 5);
    /// The number by which logs and profiles name a stream.
    fn aclrtStreamGetId(stream: aclrtStream, streamId: *mut i32) -> Status = Runtime, Cann(8, 5);
    /// What happens to a stream's later tasks after one failed: `ACL_CONTINUE_ON_FAILURE` or `ACL_STOP_ON_FAILURE`.
    fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> Status = Runtime, Cann(8, 0);
    /// Makes an event.
    fn aclrtCreateEvent(event: *mut aclrtEvent) -> Status = Runtime, Cann(8, 0);
    /// Makes an event with `ACL_EVENT_*` flags.
    fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> Status = Runtime, Cann(8, 0);
    /// Makes an event that can be recorded again without a reset.
    fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> Status = Runtime, Cann(8, 0);
    /// Destroys an event, finished or not.
    fn aclrtDestroyEvent(event: aclrtEvent) -> Status = Runtime, Cann(8, 0);
    /// Records an event after the work queued so far on a stream.
    fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Clears an event by a task on a stream. Refused for events of `aclrtCreateEventExWithFlag`.
    fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Whether what an event was recorded after is done.
    fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtQueryEventStatus`, with other numbers. Deprecated by the vendor.
    fn aclrtQueryEvent(event: aclrtEvent, status: *mut aclrtEventStatus) -> Status = Runtime, Cann(8, 0);
    /// Whether every stream that waits for an event has passed it.
    fn aclrtQueryEventWaitStatus(event: aclrtEvent, status: *mut aclrtEventWaitStatus) -> Status = Runtime, Cann(8, 0);
    /// Waits on the host for an event.
    fn aclrtSynchronizeEvent(event: aclrtEvent) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtSynchronizeEvent`, `timeout` milliseconds at most; -1 is for ever, 0 is refused.
    fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, timeout: i32) -> Status = Runtime, Cann(8, 5);
    /// Milliseconds between two completed events that were made with `ACL_EVENT_TIME_LINE`.
    fn aclrtEventElapsedTime(ms: *mut f32, startEvent: aclrtEvent, endEvent: aclrtEvent) -> Status = Runtime, Cann(8, 0);
    /// When an event completed, in microseconds of the device's clock.
    fn aclrtEventGetTimestamp(event: aclrtEvent, timestamp: *mut u64) -> Status = Runtime, Cann(8, 5);
    /// Names the thread that runs a stream's callbacks by `aclrtProcessReport`.
    fn aclrtSubscribeReport(threadId: u64, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Takes that back.
    fn aclrtUnSubscribeReport(threadId: u64, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Runs this thread's due callbacks, waiting `timeout` milliseconds at most for the first.
    fn aclrtProcessReport(timeout: i32) -> Status = Runtime, Cann(8, 0);
    /// Queues a callback; a thread has to have subscribed to the stream.
    fn aclrtLaunchCallback(fn_: aclrtCallback, userData: *mut c_void, blockType: aclrtCallbackBlockType, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Queues a callback that a thread of the runtime runs. The stream comes first here.
    fn aclrtLaunchHostFunc(stream: aclrtStream, fn_: aclrtHostFunc, args: *mut c_void) -> Status = Runtime, Cann(8, 5);
}
