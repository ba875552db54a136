//! Callbacks of the caller's in a stream's order.

use super::Handle;
use super::stream::marker;
use crate::exports::exports;
use crate::failure::{Failure, argument, invalid, require};
use crate::host;
use crate::stream::{POLL, Progress};
use crate::world::world;
use acl_sys::{Status, aclrtCallback, aclrtCallbackBlockType, aclrtHostFunc};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MAX_SUBSCRIBERS: usize = 1024;

/// A callback with its argument.
#[derive(Clone, Copy)]
struct Call {
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
}

// SAFETY: by the vendor's contract a callback and its argument are for another thread to run.
unsafe impl Send for Call {}
// SAFETY: as above; running it is all that is done with it.
unsafe impl Sync for Call {}

impl Call {
    fn run(&self) {
        // SAFETY: the caller who queued it promised that it may be called with this argument.
        host::in_callback(|| unsafe { (self.function)(self.argument) });
    }
}

struct Due {
    call: Call,
    done: Arc<AtomicBool>,
}

/// A thread that runs callbacks, and how many streams it serves.
#[derive(Default)]
struct Subscriber {
    streams: usize,
    due: VecDeque<Due>,
}

static SUBSCRIBERS: Mutex<BTreeMap<u64, Subscriber>> = Mutex::new(BTreeMap::new());
static CHANGED: Condvar = Condvar::new();

fn this_thread() -> u64 {
    // SAFETY: it has no preconditions.
    unsafe { libc::pthread_self() as u64 }
}

exports! {
    /// Names the thread that runs a stream's callbacks.
    fn aclrtSubscribeReport(thread: u64, stream: Handle) {
        let stream = world().own_stream(stream)?;
        let taken = |status, text: &str| Err(Failure::new(status, text));
        match stream.subscriber() {
            Some(other) if other == thread => taken(Status::ACL_ERROR_RT_THREAD_SUBSCRIBE, "subscribed already"),
            Some(_) => taken(Status::ACL_ERROR_RT_STREAM_SUBSCRIBE, "another thread subscribed to the stream"),
            None => {
                let mut subscribers = SUBSCRIBERS.lock();
                require(subscribers.len() < MAX_SUBSCRIBERS || subscribers.contains_key(&thread), || {
                    Failure::new(Status::ACL_ERROR_RT_OVER_LIMIT, format!("more than {MAX_SUBSCRIBERS} threads"))
                })?;
                subscribers.entry(thread).or_default().streams += 1;
                stream.subscribe(Some(thread));
                Ok(())
            }
        }
    }

    /// Takes that back.
    fn aclrtUnSubscribeReport(thread: u64, stream: Handle) {
        let stream = world().own_stream(stream)?;
        require(stream.subscriber() == Some(thread), || {
            Failure::new(Status::ACL_ERROR_RT_THREAD_SUBSCRIBE, "the thread has not subscribed to the stream")
        })?;
        stream.subscribe(None);
        let mut subscribers = SUBSCRIBERS.lock();
        if let Some(subscriber) = subscribers.get_mut(&thread) {
            subscriber.streams -= 1;
            if subscriber.streams == 0 {
                subscribers.remove(&thread);
            }
        }
        Ok(())
    }

    /// Runs this thread's due callbacks.
    fn aclrtProcessReport(milliseconds: i32) {
        require(milliseconds > 0 || milliseconds == -1, || invalid(format!("a timeout of {milliseconds} ms")))?;
        let deadline = u64::try_from(milliseconds).ok().map(|limit| Instant::now() + Duration::from_millis(limit));
        let mut subscribers = SUBSCRIBERS.lock();
        loop {
            let subscriber = subscribers.get_mut(&this_thread()).ok_or_else(|| {
                Failure::new(Status::ACL_ERROR_RT_THREAD_SUBSCRIBE, "this thread has subscribed to no stream")
            })?;
            if !subscriber.due.is_empty() {
                break;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Failure::new(Status::ACL_ERROR_RT_REPORT_TIMEOUT, "no callback came due in time"));
            }
            CHANGED.wait_for(&mut subscribers, POLL);
        }
        while let Some(due) = subscribers.get_mut(&this_thread()).and_then(|subscriber| subscriber.due.pop_front()) {
            drop(subscribers);
            due.call.run();
            due.done.store(true, Ordering::SeqCst);
            subscribers = SUBSCRIBERS.lock();
        }
        Ok(())
    }

    /// Queues a callback for the thread that subscribed to the stream.
    fn aclrtLaunchCallback(function: aclrtCallback, argument_: *mut c_void, block: aclrtCallbackBlockType, stream: Handle) {
        let function = function.ok_or_else(|| argument("the callback is null"))?;
        require(block.0 <= 1, || argument(format!("block type {}", block.0)))?;
        let stream = world().own_stream(stream)?;
        let thread = stream.subscriber().ok_or_else(|| {
            Failure::new(Status::ACL_ERROR_RT_STREAM_NO_CB_REG, "no thread subscribed to the stream")
        })?;
        let call = Call { function, argument: argument_ };
        let action = move |progress: &mut Progress<'_>| {
            let done = Arc::new(AtomicBool::new(false));
            if let Some(subscriber) = SUBSCRIBERS.lock().get_mut(&thread) {
                subscriber.due.push_back(Due { call, done: done.clone() });
            }
            CHANGED.notify_all();
            while block.0 == 1 && !done.load(Ordering::SeqCst) && !progress.stream.cancelled.load(Ordering::SeqCst) {
                std::thread::sleep(POLL);
            }
            Ok(())
        };
        stream.queue(marker("aclrtLaunchCallback", Arc::new(action)))
    }

    /// Queues a callback that the stream's own thread runs.
    fn aclrtLaunchHostFunc(stream: Handle, function: aclrtHostFunc, argument_: *mut c_void) {
        let function = function.ok_or_else(|| argument("the callback is null"))?;
        let stream = world().own_stream(stream)?;
        let call = Call { function, argument: argument_ };
        let action = move |progress: &mut Progress<'_>| {
            host::learn(progress.clock, &progress.moment);
            call.run();
            Ok(())
        };
        stream.queue(marker("aclrtLaunchHostFunc", Arc::new(action)))
    }
}
