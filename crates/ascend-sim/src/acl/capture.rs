//! Noting a stream's work down, and running it again.

use super::Handle;
use crate::exports::{Out, exports};
use crate::failure::{Failure, argument, invalid, require};
use crate::stream::Task;
use crate::world::{Kind, world};
use acl_sys::{
    ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, ACL_MODEL_RI_CAPTURE_STATUS_NONE,
    Status, aclmdlRICaptureMode, aclmdlRICaptureStatus,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

static CAPTURED: Mutex<BTreeMap<Handle, Arc<Vec<Task>>>> = Mutex::new(BTreeMap::new());

exports! {
    /// From here on a stream's work is noted down. Modes make no difference here.
    fn aclmdlRICaptureBegin(stream: Handle, mode: aclmdlRICaptureMode) {
        require(mode.0 <= 2, || invalid(format!("capture mode {}", mode.0)))?;
        require(stream != 0, || invalid("the default stream cannot be captured"))?;
        world().own_stream(stream)?.begin_capture(world().handle(Kind::Capture))
    }

    /// Whether a stream is being captured.
    fn aclmdlRICaptureGetInfo(stream: Handle, status: Out<aclmdlRICaptureStatus>, capture: Out<Handle>) {
        status.required()?;
        let (value, handle) = match world().stream(stream)?.capturing() {
            None => (ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0),
            Some((handle, false)) => (ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, handle),
            Some((handle, true)) => (ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, handle),
        };
        status.set(value)?;
        if capture.required().is_ok() { capture.set(handle) } else { Ok(()) }
    }

    /// Ends a capture.
    fn aclmdlRICaptureEnd(stream: Handle, capture: Out<Handle>) {
        capture.required()?;
        let captured = world().own_stream(stream)?.end_capture()?;
        if captured.invalidated {
            let text = "something that may not happen during a capture happened";
            return Err(Failure::new(Status::ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, text));
        }
        CAPTURED.lock().insert(captured.handle, Arc::new(captured.tasks));
        capture.set(captured.handle)
    }

    /// Runs captured work.
    fn aclmdlRIExecuteAsync(capture: Handle, stream: Handle) {
        require(capture != 0, || argument("the captured graph is null"))?;
        let stream = world().own_stream(stream)?;
        let unknown = || Failure::new(Status::ACL_ERROR_RT_INVALID_HANDLE, "the captured graph is unknown or destroyed");
        let tasks = CAPTURED.lock().get(&capture).cloned().ok_or_else(unknown)?;
        tasks.iter().try_for_each(|task| stream.queue(task.clone()))
    }

    /// Frees captured work.
    fn aclmdlRIDestroy(capture: Handle) {
        require(capture != 0, || argument("the captured graph is null"))?;
        let unknown = || Failure::new(Status::ACL_ERROR_RT_INVALID_HANDLE, "the captured graph is unknown or destroyed");
        CAPTURED.lock().remove(&capture).map(|_| ()).ok_or_else(unknown)
    }
}
