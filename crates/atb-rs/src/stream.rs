//! Streams: queues of work on a device, and the copies that go through them.

use crate::call::{Side, lock};
use crate::context::{Context, Handle};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::{DeviceBuffer, HostBuffer, Memory, require_range};
use crate::order::{Access, Point};
use acl_sys::{
    ACL_MEMCPY_DEVICE_TO_DEVICE, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE, ACL_STREAM_STATUS_COMPLETE, Api,
    Status, aclrtMemcpyKind, aclrtStream, aclrtStreamStatus,
};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A queue of work. Calls return before the work is done. Work of one stream is done in order, that of several in any,
/// unless one waits for an event of another. Clones share the stream.
#[doc(alias = "aclrtStream")]
#[doc(alias = "aclrtDestroyStream")]
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    raw: Handle,
    id: u64,
    /// Held while work is noted and queued, so that an event covers what was noted before it and nothing else.
    queue: Mutex<()>,
}

impl Stream {
    /// Makes a stream.
    ///
    /// # Errors
    /// The failure of `aclrtCreateStream`; 207008 or 207005 when there are too many (1,984 on A2).
    #[doc(alias = "aclrtCreateStream")]
    pub fn new(context: &Context) -> Result<Self> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        context.library().acl(
            "aclrtCreateStream",
            || "making a stream".to_owned(),
            |api| {
                // SAFETY: the pointer is valid for the call.
                unsafe { api.aclrtCreateStream(&mut raw) }
            },
        )?;
        let id = context.ledger(|ledger| ledger.open());
        Ok(Self(Arc::new(Inner { context: context.clone(), raw: Handle(raw), id, queue: Mutex::new(()) })))
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Its number within the context, by which errors name it.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Waits for all work that is queued now, and returns its failure if it had one: faults of kernels (507014,
    /// 507015) appear here, not at the call that queued them.
    ///
    /// # Errors
    /// The failure of `aclrtSynchronizeStream`.
    #[doc(alias = "aclrtSynchronizeStream")]
    pub fn synchronize(&self) -> Result<()> {
        self.wait_on_host(
            "aclrtSynchronizeStream",
            || format!("waiting for stream {}", self.id()),
            |api, raw| {
                // SAFETY: the stream is alive.
                unsafe { api.aclrtSynchronizeStream(raw) }
            },
        )
    }

    /// As [`synchronize`](Self::synchronize), for a limited time, which is rounded up to milliseconds.
    ///
    /// # Errors
    /// Also 507046 when the time is over; the work goes on, and its memory stays in use.
    pub fn synchronize_for(&self, timeout: Duration) -> Result<()> {
        let timeout = milliseconds(timeout);
        let attempt = || format!("waiting {timeout} ms for stream {}", self.id());
        self.wait_on_host("aclrtSynchronizeStreamWithTimeout", attempt, |api, raw| {
            // SAFETY: the stream is alive.
            unsafe { api.aclrtSynchronizeStreamWithTimeout(raw, timeout) }
        })
    }

    fn wait_on_host(
        &self,
        function: &'static str,
        attempt: impl Fn() -> String,
        call: impl FnOnce(&Api, aclrtStream) -> Result<Status, acl_sys::Error>,
    ) -> Result<()> {
        let context = &self.0.context;
        let clock = {
            let _queue = lock(&self.0.queue);
            context.ledger(|ledger| ledger.now(self.id()))
        };
        context.enter()?;
        let waited = context.library().acl(function, attempt, |api| call(api, self.0.raw.0));
        match &waited {
            Ok(()) => context.complete(&clock),
            Err(Error::Call { status: Status::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, .. }) => {}
            // The stream may have gone on after a wait for another one failed, and the next synchronisation will not
            // say so any more.
            Err(_) => context.ledger(|ledger| ledger.doubt(self.id())),
        }
        waited
    }

    /// Whether all queued work is done.
    ///
    /// # Errors
    /// The failure of `aclrtStreamQuery`.
    pub fn is_idle(&self) -> Result<bool> {
        let context = &self.0.context;
        let _queue = lock(&self.0.queue);
        context.enter()?;
        let mut status = aclrtStreamStatus(u32::MAX);
        context.library().acl(
            "aclrtStreamQuery",
            || format!("asking stream {}", self.id()),
            |api| {
                // SAFETY: the stream is alive, and the pointer valid for the call.
                unsafe { api.aclrtStreamQuery(self.0.raw.0, &mut status) }
            },
        )?;
        let is_idle = status == ACL_STREAM_STATUS_COMPLETE;
        if is_idle {
            let clock = context.ledger(|ledger| ledger.now(self.id()));
            context.complete(&clock);
        }
        Ok(is_idle)
    }

    /// Puts an event behind the work that is queued now.
    ///
    /// # Errors
    /// [`Error::OtherContext`]; the failure of `aclrtRecordEvent`.
    pub fn record(&self, event: &mut Event) -> Result<()> {
        let context = &self.0.context;
        let attempt = || format!("recording an event on stream {}", self.id());
        context.require_same(event.context(), "the event", attempt)?;
        let _queue = lock(&self.0.queue);
        context.enter()?;
        context.library().acl("aclrtRecordEvent", attempt, |api| {
            // SAFETY: both are alive and of this context.
            unsafe { api.aclrtRecordEvent(event.raw().0, self.0.raw.0) }
        })?;
        event.set_clock(context.ledger(|ledger| ledger.now(self.id())));
        Ok(())
    }

    /// Lets work that is queued from now on begin after an event. The host does not wait.
    ///
    /// # Errors
    /// [`Error::EventNotRecorded`]: there would be nothing to wait for; [`Error::OtherContext`]; the failure of
    /// `aclrtStreamWaitEvent`.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let context = &self.0.context;
        let attempt = || format!("letting stream {} wait for an event", self.id());
        context.require_same(event.context(), "the event", attempt)?;
        let clock = event.clock(&attempt())?;
        let _queue = lock(&self.0.queue);
        context.enter()?;
        // SAFETY: both are alive and of this context.
        context.library().acl("aclrtStreamWaitEvent", attempt, |api| unsafe {
            api.aclrtStreamWaitEvent(self.0.raw.0, event.raw().0)
        })?;
        context.ledger(|ledger| ledger.wait(self.id(), &clock));
        Ok(())
    }

    /// Copies pinned memory to the device. The host may not change it before the copy is known to be over.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] unless both have the same length; [`Error::Unordered`], [`Error::OtherContext`]; the
    /// failure of `aclrtMemcpyAsync`.
    pub fn upload(&self, from: &HostBuffer, to: &DeviceBuffer) -> Result<()> {
        self.upload_part(from, 0..from.len(), to, 0..to.len())
    }

    /// Copies a part of pinned memory to a part of device memory.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn upload_part(
        &self,
        from: &HostBuffer,
        from_bytes: Range<usize>,
        to: &DeviceBuffer,
        to_bytes: Range<usize>,
    ) -> Result<()> {
        self.copy_between(ACL_MEMCPY_HOST_TO_DEVICE, from.memory(), from_bytes, to.memory(), to_bytes)
    }

    /// Copies device memory to pinned memory. The host may not read it before the copy is known to be over.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn download(&self, from: &DeviceBuffer, to: &mut HostBuffer) -> Result<()> {
        let to_bytes = 0..to.len();
        self.download_part(from, 0..from.len(), to, to_bytes)
    }

    /// Copies a part of device memory to a part of pinned memory.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn download_part(
        &self,
        from: &DeviceBuffer,
        from_bytes: Range<usize>,
        to: &mut HostBuffer,
        to_bytes: Range<usize>,
    ) -> Result<()> {
        self.copy_between(ACL_MEMCPY_DEVICE_TO_HOST, from.memory(), from_bytes, to.memory(), to_bytes)
    }

    /// Copies a part of device memory to a part of other device memory.
    ///
    /// # Errors
    /// As [`upload`](Self::upload); [`Error::OutOfRange`] also when both are parts of one buffer that overlap.
    pub fn copy(
        &self,
        from: &DeviceBuffer,
        from_bytes: Range<usize>,
        to: &DeviceBuffer,
        to_bytes: Range<usize>,
    ) -> Result<()> {
        let overlap = from_bytes.start < to_bytes.end && to_bytes.start < from_bytes.end;
        if overlap && from.memory().is_same(to.memory()) {
            return Err(Error::OutOfRange {
                attempt: format!("copying on stream {} within one buffer", self.id()),
                what: "what lies beside the source".to_owned(),
                start: to_bytes.start,
                end: to_bytes.end,
                length: from.len(),
            });
        }
        self.copy_between(ACL_MEMCPY_DEVICE_TO_DEVICE, from.memory(), from_bytes, to.memory(), to_bytes)
    }

    fn copy_between(
        &self,
        kind: aclrtMemcpyKind,
        from: &Memory,
        from_bytes: Range<usize>,
        to: &Memory,
        to_bytes: Range<usize>,
    ) -> Result<()> {
        let attempt = || format!("copying {} bytes from {from} to {to} on stream {}", from_bytes.len(), self.id());
        let source = require_range(from, &from_bytes, attempt)?;
        let destination = require_range(to, &to_bytes, attempt)?;
        if from_bytes.len() != to_bytes.len() {
            return Err(Error::OutOfRange {
                attempt: attempt(),
                what: to.to_string(),
                start: to_bytes.start,
                end: to_bytes.start.saturating_add(from_bytes.len()),
                length: to_bytes.end,
            });
        }
        if from_bytes.is_empty() {
            return Ok(());
        }
        let (room, count) = (to_bytes.len(), from_bytes.len());
        self.enqueue(&[(from, Access::Read), (to, Access::Write)], attempt, || {
            self.0.context.library().acl("aclrtMemcpyAsync", attempt, |api| {
                // SAFETY: both ranges lie within live memory of the stated kinds, host memory is pinned, and neither
                // is freed or touched by the host before the stream has passed this, which the noted uses assure.
                unsafe { api.aclrtMemcpyAsync(destination, room, source, count, kind, self.0.raw.0) }
            })
        })
    }

    /// Sets every byte of device memory.
    ///
    /// # Errors
    /// [`Error::Unordered`], [`Error::OtherContext`]; the failure of `aclrtMemsetAsync`.
    pub fn fill(&self, buffer: &DeviceBuffer, value: u8) -> Result<()> {
        let (memory, length) = (buffer.memory(), buffer.len());
        let attempt = || format!("filling {memory} on stream {}", self.id());
        self.enqueue(&[(memory, Access::Write)], attempt, || {
            self.0.context.library().acl("aclrtMemsetAsync", attempt, |api| {
                let (pointer, value) = (memory.pointer(), i32::from(value));
                // SAFETY: the range is the whole of live device memory, which is not freed before the stream has
                // passed this.
                unsafe { api.aclrtMemsetAsync(pointer, length, value, length, self.0.raw.0) }
            })
        })
    }

    /// Queues work that uses memory, when the uses are ordered after the earlier ones.
    pub(crate) fn enqueue(
        &self,
        uses: &[(&Memory, Access)],
        attempt: impl Fn() -> String,
        queue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.enqueue_noted(uses, attempt, |_| queue())
    }

    /// The same, for work that wants to know its place.
    pub(crate) fn enqueue_noted(
        &self,
        uses: &[(&Memory, Access)],
        attempt: impl Fn() -> String,
        queue: impl FnOnce(Point) -> Result<()>,
    ) -> Result<()> {
        let context = &self.0.context;
        for (memory, _) in uses {
            context.require_same(memory.context(), &memory.to_string(), &attempt)?;
        }
        let _queue = lock(&self.0.queue);
        context.enter()?;
        let point = context.ledger(|ledger| {
            for (memory, access) in uses {
                let is_over = |point| ledger.is_before(point, self.id());
                if let Some(conflict) = lock(memory.uses()).conflict(*access, is_over) {
                    return Err(Error::Unordered {
                        attempt: attempt(),
                        what: memory.to_string(),
                        using: conflict.using,
                        stream: self.id(),
                        other: conflict.stream,
                    });
                }
            }
            // Noted before the call, and kept when it fails: a part of an operation may have been queued.
            let point = ledger.issue(self.id());
            for (memory, access) in uses {
                lock(memory.uses()).note(*access, point);
            }
            Ok(point)
        })?;
        queue(point)
    }

    pub(crate) fn raw(&self) -> aclrtStream {
        self.0.raw.0
    }
}

/// Milliseconds as AscendCL takes them: 0 is refused and -1 is for ever.
pub(crate) fn milliseconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX).max(1)
}

impl Drop for Inner {
    fn drop(&mut self) {
        let library = self.context.library();
        if let Err(error) = self.context.enter() {
            library.keep(error);
        }
        let attempt = || format!("destroying stream {}", self.id);
        // SAFETY: the stream is ours; it is destroyed after its queued work.
        let is_over = library.release(Side::AscendCl, "aclrtDestroyStream", attempt, |api| unsafe {
            api.aclrtDestroyStream(self.raw.0)
        });
        if is_over {
            self.context.ledger(|ledger| ledger.close(self.id));
            self.context.complete(&Default::default());
        }
    }
}
