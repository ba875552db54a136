//! Streams and events.

use super::{Handle, timeout};
use crate::exports::{Out, exports};
use crate::failure::{Failure, Outcome, argument, invalid, require};
use crate::stream::{Action, Task};
use crate::world::world;
use acl_sys::{
    ACL_EVENT_CAPTURE_STREAM_PROGRESS, ACL_EVENT_EXTERNAL, ACL_EVENT_RECORDED_STATUS_COMPLETE,
    ACL_EVENT_RECORDED_STATUS_NOT_READY, ACL_EVENT_STATUS_COMPLETE, ACL_EVENT_STATUS_NOT_READY, ACL_EVENT_SYNC,
    ACL_EVENT_TIME_LINE, ACL_EVENT_WAIT_STATUS_COMPLETE, ACL_EVENT_WAIT_STATUS_NOT_READY, ACL_STREAM_CPU_SCHEDULE,
    ACL_STREAM_DEVICE_USE_ONLY, ACL_STREAM_PERSISTENT, ACL_STREAM_STATUS_COMPLETE, ACL_STREAM_STATUS_NOT_READY, Status,
    aclrtEventRecordedStatus, aclrtEventStatus, aclrtEventWaitStatus, aclrtStreamStatus,
};
use std::sync::Arc;
use std::time::Duration;

/// Streams of which nothing is waited for: the device drives them.
const NOT_WAITED_FOR: u32 = ACL_STREAM_PERSISTENT | ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY;
const STREAM_FLAGS: u32 = 0x3F;
const EVENT_FLAGS: u32 = 0x7B;

fn synchronize(stream: Handle, timeout: Option<Duration>) -> Outcome {
    let stream = world().stream(stream)?;
    if stream.flags & NOT_WAITED_FOR != 0 {
        return Ok(());
    }
    stream.synchronize(timeout)
}

/// A task of no work, that orders streams.
pub(crate) fn marker(name: &str, action: Action) -> Task {
    Task { name: name.to_owned(), accesses: Vec::new(), cost: 0.0, action }
}

fn wait(stream: Handle, event: Handle, limit: Option<Duration>) -> Outcome {
    require(event != 0, || argument("the event is null"))?;
    let stream = world().own_stream(stream)?;
    let action = world().event(event)?.wait(limit)?;
    stream.queue(marker("aclrtStreamWaitEvent", Arc::new(action)))
}

/// Queues a record.
pub(crate) fn record(event: Handle, stream: Handle) -> Outcome {
    require(event != 0, || argument("the event is null"))?;
    let stream = world().own_stream(stream)?;
    let action = world().event(event)?.record();
    stream.queue(marker("aclrtRecordEvent", Arc::new(action)))
}

/// Queues a wait and then a reset.
pub(crate) fn wait_and_reset(event: Handle, stream: Handle) -> Outcome {
    world().event(event)?.require_flag("resetting")?;
    wait(stream, event, None)?;
    reset(event, stream)
}

fn reset(event: Handle, stream: Handle) -> Outcome {
    require(event != 0, || argument("the event is null"))?;
    let stream = world().own_stream(stream)?;
    let event = world().event(event)?;
    event.require_flag("resetting")?;
    stream.queue(marker("aclrtResetEvent", Arc::new(event.reset())))
}

fn create_event(event: Out<Handle>, is_ex: bool, flags: u32) -> Outcome {
    event.required()?;
    let alone = flags & ACL_EVENT_EXTERNAL == 0 || flags == ACL_EVENT_EXTERNAL;
    require(flags != 0 && flags & !EVENT_FLAGS == 0 && alone, || invalid(format!("flags {flags:#x} of an event")))?;
    event.set(world().create_event(is_ex, flags)?)
}

fn synchronize_event(event: Handle, timeout: Option<Duration>) -> Outcome {
    require(event != 0, || argument("the event is null"))?;
    world().event(event)?.synchronize(timeout)
}

exports! {
    /// Makes a stream.
    fn aclrtCreateStream(stream: Out<Handle>) {
        stream.required()?;
        stream.set(world().create_stream(0)?)
    }

    /// Makes a stream; priorities make no difference here.
    fn aclrtCreateStreamWithConfig(stream: Out<Handle>, priority: u32, flags: u32) {
        stream.required()?;
        require(priority <= 7, || invalid(format!("priority {priority} of a stream is not 0 to 7")))?;
        require(flags & !STREAM_FLAGS == 0, || invalid(format!("flags {flags:#x} of a stream")))?;
        stream.set(world().create_stream(flags)?)
    }

    /// Destroys a stream after its work.
    fn aclrtDestroyStream(stream: Handle) {
        require(stream != 0, || argument("the stream is null"))?;
        world().destroy_stream(stream, false)
    }

    /// Destroys a stream and drops its work.
    fn aclrtDestroyStreamForce(stream: Handle) {
        require(stream != 0, || argument("the stream is null"))?;
        world().destroy_stream(stream, true)
    }

    /// Waits for a stream.
    fn aclrtSynchronizeStream(stream: Handle) {
        synchronize(stream, None)
    }

    /// Waits for a stream, not for ever.
    fn aclrtSynchronizeStreamWithTimeout(stream: Handle, milliseconds: i32) {
        synchronize(stream, timeout(milliseconds)?)
    }

    /// Whether a stream is done.
    fn aclrtStreamQuery(stream: Handle, status: Out<aclrtStreamStatus>) {
        status.required()?;
        let idle = world().stream(stream)?.is_idle();
        status.set(if idle { ACL_STREAM_STATUS_COMPLETE } else { ACL_STREAM_STATUS_NOT_READY })
    }

    /// Makes later work wait.
    fn aclrtStreamWaitEvent(stream: Handle, event: Handle) {
        wait(stream, event, None)
    }

    /// Makes later work wait, `milliseconds` at most.
    fn aclrtStreamWaitEventWithTimeout(stream: Handle, event: Handle, milliseconds: i32) {
        wait(stream, event, timeout(milliseconds)?)
    }

    /// Drops a stream's work.
    fn aclrtStreamAbort(stream: Handle) {
        require(stream != 0, || argument("the stream is null"))?;
        world().own_stream(stream)?.abort();
        Ok(())
    }

    /// A stream's number.
    fn aclrtStreamGetId(stream: Handle, id: Out<i32>) {
        id.required()?;
        id.set(world().stream(stream)?.id)
    }

    /// Whether later tasks run after a failure.
    fn aclrtSetStreamFailureMode(stream: Handle, mode: u64) {
        require(mode <= 1, || invalid(format!("failure mode {mode}")))?;
        require(stream != 0, || argument("the default stream has no failure mode"))?;
        world().own_stream(stream)?.set_stop_on_failure(mode == 1);
        Ok(())
    }

    /// Makes an event with everything that a flag in hardware has.
    fn aclrtCreateEvent(event: Out<Handle>) {
        create_event(event, false, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE | ACL_EVENT_CAPTURE_STREAM_PROGRESS)
    }

    /// Makes an event.
    fn aclrtCreateEventWithFlag(event: Out<Handle>, flags: u32) {
        create_event(event, false, flags)
    }

    /// Makes an event that stands for its last record.
    fn aclrtCreateEventExWithFlag(event: Out<Handle>, flags: u32) {
        create_event(event, true, flags)
    }

    /// Destroys an event at once.
    fn aclrtDestroyEvent(event: Handle) {
        require(event != 0, || argument("the event is null"))?;
        world().destroy_event(event)
    }

    /// Records an event.
    fn aclrtRecordEvent(event: Handle, stream: Handle) {
        record(event, stream)
    }

    /// Lowers an event.
    fn aclrtResetEvent(event: Handle, stream: Handle) {
        reset(event, stream)
    }

    /// Whether the last record is done. An event of the `Ex` kind that was never recorded is.
    fn aclrtQueryEventStatus(event: Handle, status: Out<aclrtEventRecordedStatus>) {
        require(event != 0, || argument("the event is null"))?;
        status.required()?;
        let event = world().event(event)?;
        let done = event.is_recorded().unwrap_or(event.is_ex);
        status.set(if done { ACL_EVENT_RECORDED_STATUS_COMPLETE } else { ACL_EVENT_RECORDED_STATUS_NOT_READY })
    }

    /// The same with other numbers, not for the `Ex` kind.
    fn aclrtQueryEvent(event: Handle, status: Out<aclrtEventStatus>) {
        require(event != 0, || argument("the event is null"))?;
        status.required()?;
        let event = world().event(event)?;
        event.require_not_ex("aclrtQueryEvent")?;
        let done = event.is_recorded().unwrap_or(false);
        status.set(if done { ACL_EVENT_STATUS_COMPLETE } else { ACL_EVENT_STATUS_NOT_READY })
    }

    /// Whether all waits are passed, not for the `Ex` kind.
    fn aclrtQueryEventWaitStatus(event: Handle, status: Out<aclrtEventWaitStatus>) {
        require(event != 0, || argument("the event is null"))?;
        status.required()?;
        let event = world().event(event)?;
        event.require_not_ex("aclrtQueryEventWaitStatus")?;
        let waiting = event.is_waited_for();
        status.set(if waiting { ACL_EVENT_WAIT_STATUS_NOT_READY } else { ACL_EVENT_WAIT_STATUS_COMPLETE })
    }

    /// Waits for an event on the host.
    fn aclrtSynchronizeEvent(event: Handle) {
        synchronize_event(event, None)
    }

    /// Waits for an event on the host, not for ever.
    fn aclrtSynchronizeEventWithTimeout(event: Handle, milliseconds: i32) {
        synchronize_event(event, timeout(milliseconds)?)
    }

    /// Milliseconds of the virtual clock between two events.
    fn aclrtEventElapsedTime(elapsed: Out<f32>, start: Handle, end: Handle) {
        elapsed.required()?;
        require(start != 0 && end != 0, || argument("an event is null"))?;
        let (start, end) = (world().event(start)?.time()?, world().event(end)?.time()?);
        require(start <= end, || {
            let text = "the end was recorded before the start";
            Failure::new(Status::ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, text)
        })?;
        elapsed.set(((end - start) / 1e6) as f32)
    }

    /// Microseconds of the virtual clock at an event.
    fn aclrtEventGetTimestamp(event: Handle, timestamp: Out<u64>) {
        require(event != 0, || argument("the event is null"))?;
        timestamp.required()?;
        let time = world().event(event)?.time()?;
        timestamp.set((time / 1e3) as u64)
    }
}
