//! Events: marks in a stream that others, and the host, wait for.

use crate::call::Side;
use crate::context::{Context, Handle};
use crate::error::{Error, Result};
use crate::order::Clock;
use crate::stream::milliseconds;
use acl_sys::{ACL_EVENT_RECORDED_STATUS_COMPLETE, ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE, aclrtEventRecordedStatus};
use std::time::Duration;

/// A mark in a stream. Recording it again moves it; whoever waited already waits for where it was. Recording needs it
/// exclusively, so that nobody takes one record for another.
#[derive(Debug)]
pub struct Event {
    context: Context,
    raw: Handle,
    is_timed: bool,
    recorded: Option<Clock>,
}

impl Event {
    /// Makes an event for ordering.
    ///
    /// # Errors
    /// The failure of `aclrtCreateEventExWithFlag`; 207007 when there are 65,536 already (1,023 on 310P).
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_flags(context, ACL_EVENT_SYNC)
    }

    /// Makes an event that keeps the time too, for [`elapsed_since`](Self::elapsed_since).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn timed(context: &Context) -> Result<Self> {
        Self::with_flags(context, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE)
    }

    fn with_flags(context: &Context, flags: u32) -> Result<Self> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        context.library().acl(
            "aclrtCreateEventExWithFlag",
            || "making an event".to_owned(),
            |api| {
                // SAFETY: the pointer is valid for the call.
                unsafe { api.aclrtCreateEventExWithFlag(&mut raw, flags) }
            },
        )?;
        Ok(Self {
            context: context.clone(),
            raw: Handle(raw),
            is_timed: flags & ACL_EVENT_TIME_LINE != 0,
            recorded: None,
        })
    }

    /// Waits until the stream has passed the event.
    ///
    /// # Errors
    /// [`Error::EventNotRecorded`]; the failure of `aclrtSynchronizeEvent`.
    pub fn synchronize(&self) -> Result<()> {
        let clock = self.clock("waiting for an event")?;
        self.context.enter()?;
        let attempt = || "waiting for an event".to_owned();
        self.context.library().acl("aclrtSynchronizeEvent", attempt, |api| {
            // SAFETY: the event is alive.
            unsafe { api.aclrtSynchronizeEvent(self.raw.0) }
        })?;
        self.context.complete(&clock);
        Ok(())
    }

    /// As [`synchronize`](Self::synchronize), for a limited time, which is rounded up to milliseconds (CANN 8.5).
    ///
    /// # Errors
    /// Also 507047 when the time is over.
    pub fn synchronize_for(&self, timeout: Duration) -> Result<()> {
        let clock = self.clock("waiting for an event")?;
        let timeout = milliseconds(timeout);
        self.context.enter()?;
        let attempt = || format!("waiting {timeout} ms for an event");
        // SAFETY: the event is alive.
        self.context.library().acl("aclrtSynchronizeEventWithTimeout", attempt, |api| unsafe {
            api.aclrtSynchronizeEventWithTimeout(self.raw.0, timeout)
        })?;
        self.context.complete(&clock);
        Ok(())
    }

    /// Whether the stream has passed the event.
    ///
    /// # Errors
    /// [`Error::EventNotRecorded`]; the failure of `aclrtQueryEventStatus`.
    pub fn is_complete(&self) -> Result<bool> {
        let clock = self.clock("asking an event")?;
        self.context.enter()?;
        let mut status = aclrtEventRecordedStatus(u32::MAX);
        let attempt = || "asking whether an event is complete".to_owned();
        self.context.library().acl("aclrtQueryEventStatus", attempt, |api| {
            // SAFETY: the event is alive, and the pointer valid for the call.
            unsafe { api.aclrtQueryEventStatus(self.raw.0, &mut status) }
        })?;
        let is_complete = status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
        if is_complete {
            self.context.complete(&clock);
        }
        Ok(is_complete)
    }

    /// The time on the device from another event to this one. Both have to be complete.
    ///
    /// # Errors
    /// [`Error::EventNotTimed`], [`Error::EventNotRecorded`], [`Error::OtherContext`]; the failure of
    /// `aclrtEventElapsedTime`: 107006 before both are complete, 107007 when this one is the earlier.
    pub fn elapsed_since(&self, start: &Event) -> Result<Duration> {
        let attempt = "measuring the time between two events";
        if !self.is_timed || !start.is_timed {
            return Err(Error::EventNotTimed { attempt: attempt.to_owned() });
        }
        self.clock(attempt)?;
        start.clock(attempt)?;
        self.context.require_same(&start.context, "the first event", || attempt.to_owned())?;
        self.context.enter()?;
        let mut time = 0.0;
        self.context.library().acl(
            "aclrtEventElapsedTime",
            || attempt.to_owned(),
            |api| {
                // SAFETY: both events are alive, and the pointer is valid for the call.
                unsafe { api.aclrtEventElapsedTime(&mut time, start.raw.0, self.raw.0) }
            },
        )?;
        Ok(Duration::from_secs_f64(f64::from(time.max(0.0)) / 1e3))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn raw(&self) -> Handle {
        self.raw
    }

    pub(crate) fn clock(&self, attempt: &str) -> Result<Clock> {
        self.recorded.clone().ok_or_else(|| Error::EventNotRecorded { attempt: attempt.to_owned() })
    }

    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.recorded = Some(clock);
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let attempt = || "destroying an event".to_owned();
        // SAFETY: the event is ours. It may be unfinished: the runtime keeps what a stream still needs of it.
        self.context
            .library()
            .release(Side::AscendCl, "aclrtDestroyEvent", attempt, |api| unsafe { api.aclrtDestroyEvent(self.raw.0) });
    }
}
