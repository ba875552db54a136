//! Events, of the two kinds that AscendCL has.
//!
//! Those of `aclrtCreateEventExWithFlag` stand for the last record: recording again makes a new mark, and a wait takes
//! the mark that is current when it is queued. The others are flags in hardware: a wait that is queued before the record
//! still waits for it, and the flag stays up until it is reset.

use crate::failure::{Failure, Outcome};
use crate::order::Moment;
use crate::stream::{POLL, Progress};
use crate::world::world;
use acl_sys::{ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE, Status};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// When something was done, and what was known then.
#[derive(Clone)]
struct Point {
    clock: f64,
    moment: Moment,
}

/// One record: pending, then done.
#[derive(Default)]
struct Mark {
    point: Mutex<Option<Point>>,
    done: Condvar,
}

impl Mark {
    fn complete(&self, point: Point) {
        *self.point.lock() = Some(point);
        self.done.notify_all();
    }
}

#[derive(Default)]
struct State {
    /// The last record.
    mark: Option<Arc<Mark>>,
    /// Raised by a record, lowered by a reset; for flags in hardware.
    raised: Option<Point>,
    /// Waits that are queued and not passed.
    waiting: u64,
}

/// An `aclrtEvent`.
pub(crate) struct Event {
    pub(crate) is_ex: bool,
    flags: u32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Event {
    pub(crate) fn new(is_ex: bool, flags: u32) -> Self {
        Self { is_ex, flags, state: Mutex::default(), changed: Condvar::new() }
    }

    fn unsupported(&self, what: &str) -> Failure {
        let why = if self.is_ex { "one of aclrtCreateEventExWithFlag" } else { "made without ACL_EVENT_SYNC" };
        let text = format!("{what} is not supported for this event, which is {why}");
        Failure::new(Status::ACL_ERROR_RT_FEATURE_NOT_SUPPORT, text)
    }

    /// Whether streams may wait for it, and whether it may be reset.
    fn is_flag(&self) -> bool {
        !self.is_ex && self.flags & ACL_EVENT_SYNC != 0
    }

    /// Refuses what only flags in hardware have.
    pub(crate) fn require_flag(&self, what: &str) -> Outcome {
        if self.is_flag() { Ok(()) } else { Err(self.unsupported(what)) }
    }

    pub(crate) fn require_not_ex(&self, what: &str) -> Outcome {
        if self.is_ex { Err(self.unsupported(what)) } else { Ok(()) }
    }

    /// A record is queued now; the closure is what the stream does when it gets there.
    pub(crate) fn record(self: &Arc<Self>) -> impl Fn(&mut Progress<'_>) -> Outcome + Send + Sync + use<> {
        let (event, mark) = (self.clone(), Arc::new(Mark::default()));
        self.state.lock().mark = Some(mark.clone());
        move |progress| {
            let point = Point { clock: progress.clock, moment: progress.moment.clone() };
            event.state.lock().raised = Some(point.clone());
            event.changed.notify_all();
            mark.complete(point);
            Ok(())
        }
    }

    /// A wait is queued now; the closure is what the stream does when it gets there. `limit` is that of the call.
    pub(crate) fn wait(
        self: &Arc<Self>,
        limit: Option<Duration>,
    ) -> Outcome<impl Fn(&mut Progress<'_>) -> Outcome + Send + Sync + use<>> {
        if !self.is_ex && !self.is_flag() {
            return Err(self.unsupported("waiting"));
        }
        let event = self.clone();
        let mut state = self.state.lock();
        state.waiting += 1;
        let mark = state.mark.clone();
        Ok(move |progress: &mut Progress<'_>| {
            let limit = limit.or_else(|| world().op_wait_timeout());
            let point = match (&mark, event.is_ex) {
                (None, true) => Ok(None),
                (Some(mark), true) => await_point(&mark.point, &mark.done, |point| point.clone(), progress, limit),
                (_, false) => await_point(&event.state, &event.changed, |state| state.raised.clone(), progress, limit),
            };
            event.state.lock().waiting -= 1;
            if let Some(point) = point? {
                progress.clock = progress.clock.max(point.clock);
                progress.moment.merge(&point.moment);
            }
            Ok(())
        })
    }

    /// What a stream does when it comes to a reset.
    pub(crate) fn reset(self: &Arc<Self>) -> impl Fn(&mut Progress<'_>) -> Outcome + Send + Sync + use<> {
        let event = self.clone();
        move |_| {
            event.state.lock().raised = None;
            Ok(())
        }
    }

    /// Whether the last record is done; `None` when there was none. Who sees that it is need not wait any more.
    pub(crate) fn is_recorded(&self) -> Option<bool> {
        let mark = self.state.lock().mark.clone()?;
        let point = mark.point.lock();
        if let Some(point) = &*point {
            crate::host::learn(point.clock, &point.moment);
        }
        Some(point.is_some())
    }

    /// Whether every stream that waits has passed it.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.state.lock().waiting > 0
    }

    /// Waits on the host for the last record; `None` is for ever.
    pub(crate) fn synchronize(&self, timeout: Option<Duration>) -> Outcome {
        crate::host::forbid_in_callback("synchronising")?;
        let Some(mark) = self.state.lock().mark.clone() else { return Ok(()) };
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut point = mark.point.lock();
        while point.is_none() {
            // A record that is dropped with its stream never comes; a lost device says so.
            world().faults.alive()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let text = "the event was not recorded in time";
                return Err(Failure::new(Status::ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, text));
            }
            mark.done.wait_for(&mut point, POLL);
        }
        if let Some(point) = &*point {
            crate::host::learn(point.clock, &point.moment);
        }
        Ok(())
    }

    /// Nanoseconds of the virtual clock at the last record.
    pub(crate) fn time(&self) -> Outcome<f64> {
        let Some(mark) = self.state.lock().mark.clone() else {
            return Err(Failure::new(Status::ACL_ERROR_RT_INTERNAL_ERROR, "the event was never recorded"));
        };
        let no_time = |text: &str| Failure::new(Status::ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, text);
        if self.flags & ACL_EVENT_TIME_LINE == 0 {
            return Err(no_time("the event was made without ACL_EVENT_TIME_LINE"));
        }
        let clock = mark.point.lock().as_ref().map(|point| point.clock);
        clock.ok_or_else(|| no_time("the event is not complete"))
    }
}

/// Blocks a stream until there is a point, it is stopped, or its time is up.
fn await_point<T>(
    state: &Mutex<T>,
    changed: &Condvar,
    point: impl Fn(&T) -> Option<Point>,
    progress: &Progress<'_>,
    limit: Option<Duration>,
) -> Outcome<Option<Point>> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut state = state.lock();
    loop {
        if let Some(point) = point(&state) {
            return Ok(Some(point));
        }
        if progress.stream.cancelled.load(Ordering::SeqCst) {
            return Err(Failure::new(Status::ACL_ERROR_RT_STREAM_ABORT, "stopped while it waited for an event"));
        }
        world().faults.alive()?;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Failure::new(Status::ACL_ERROR_RT_WAIT_TIMEOUT, "the event waited for did not come in time"));
        }
        changed.wait_for(&mut state, POLL);
    }
}
