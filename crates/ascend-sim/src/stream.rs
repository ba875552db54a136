//! Streams: a queue and a thread each.

use crate::config::{Cost, Strict};
use crate::failure::{Failure, Outcome};
use crate::faults::Action as Fault;
use crate::host;
use crate::order::{Access, Moment, Usage};
use crate::world::world;
use acl_sys::Status;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a thread that waits for something looks whether it should give up.
pub(crate) const POLL: Duration = Duration::from_millis(2);

/// What a task does, on its stream's thread. It may run several times when it was captured.
pub(crate) type Action = Arc<dyn Fn(&mut Progress<'_>) -> Outcome + Send + Sync>;

/// One entry of a queue.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) accesses: Vec<Access>,
    /// Nanoseconds of the virtual clock.
    pub(crate) cost: f64,
    pub(crate) action: Action,
}

/// Where a stream is while it runs a task; the task may move it.
pub(crate) struct Progress<'a> {
    pub(crate) clock: f64,
    pub(crate) moment: Moment,
    pub(crate) stream: &'a Stream,
}

struct Queued {
    task: Task,
    /// The host's virtual clock and moment when it queued the task.
    clock: f64,
    moment: Moment,
}

#[derive(Default)]
struct Shared {
    queue: VecDeque<Queued>,
    /// The task that runs: its name and accesses.
    running: Option<(String, Vec<Access>)>,
    submitted: u64,
    finished: u64,
    failure: Option<Failure>,
    stop_on_failure: bool,
    aborted: bool,
    clock: f64,
    moment: Moment,
    capture: Option<Capture>,
    subscriber: Option<u64>,
}

/// Work that is noted down instead of run.
#[derive(Default)]
pub(crate) struct Capture {
    pub(crate) tasks: Vec<Task>,
    pub(crate) invalidated: bool,
    pub(crate) handle: usize,
}

/// An `aclrtStream`.
pub(crate) struct Stream {
    pub(crate) handle: usize,
    /// A small number, for logs and as an actor.
    pub(crate) id: i32,
    pub(crate) context: usize,
    pub(crate) flags: u32,
    shared: Mutex<Shared>,
    /// Something was queued, or the stream closes.
    queued: Condvar,
    /// Something is finished.
    finished: Condvar,
    closing: AtomicBool,
    /// Whatever the thread is doing, it is to stop.
    pub(crate) cancelled: AtomicBool,
}

impl Stream {
    /// Makes a stream with its thread.
    pub(crate) fn start(handle: usize, id: i32, context: usize, flags: u32) -> Outcome<Arc<Self>> {
        let stream = Arc::new(Self {
            handle,
            id,
            context,
            flags,
            shared: Mutex::default(),
            queued: Condvar::new(),
            finished: Condvar::new(),
            closing: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        });
        let worker = stream.clone();
        let thread = std::thread::Builder::new().name(format!("ascend-sim-{id}"));
        thread.spawn(move || worker.run()).map_err(|error| {
            Failure::new(Status::ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, format!("no thread for a stream: {error}"))
        })?;
        Ok(stream)
    }

    /// Puts a task at the end. The calling thread's clock and knowledge go with it.
    pub(crate) fn queue(&self, task: Task) -> Outcome {
        let cost = world().config().cost;
        let mut shared = self.shared.lock();
        if shared.aborted {
            return Err(Failure::new(Status::ACL_ERROR_RT_STREAM_ABORT, "the stream was aborted"));
        }
        if let Some(capture) = &mut shared.capture {
            capture.tasks.push(task);
            return Ok(());
        }
        let (clock, moment) = host::queue_call(cost.call);
        shared.queue.push_back(Queued { task, clock, moment });
        shared.submitted += 1;
        self.queued.notify_one();
        Ok(())
    }

    /// Waits for what is queued now; `None` is for ever. Fails with the first failure since the last time.
    pub(crate) fn synchronize(&self, timeout: Option<Duration>) -> Outcome {
        host::forbid_in_callback("synchronising")?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut shared = self.shared.lock();
        if shared.capture.is_some() {
            return Err(self.invalidate(&mut shared, "synchronising"));
        }
        let target = shared.submitted;
        while shared.finished < target && !shared.aborted {
            match deadline {
                None => self.finished.wait(&mut shared),
                Some(deadline) => {
                    if self.finished.wait_until(&mut shared, deadline).timed_out() && shared.finished < target {
                        let left = target - shared.finished;
                        let text = format!("{left} tasks of stream {} are not done in time", self.id);
                        return Err(Failure::new(Status::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, text));
                    }
                }
            }
        }
        if shared.aborted {
            return Err(Failure::new(Status::ACL_ERROR_RT_STREAM_ABORT, "the stream was aborted"));
        }
        host::learn(shared.clock, &shared.moment);
        world().faults.alive()?;
        match shared.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn invalidate(&self, shared: &mut MutexGuard<'_, Shared>, what: &str) -> Failure {
        if let Some(capture) = &mut shared.capture {
            capture.invalidated = true;
        }
        Failure::new(Status::ACL_ERROR_RT_STREAM_CAPTURED, format!("{what} is not allowed while a stream is captured"))
    }

    /// Whether everything queued is done. Who sees that it is need not wait any more.
    pub(crate) fn is_idle(&self) -> bool {
        let shared = self.shared.lock();
        let idle = shared.finished == shared.submitted;
        if idle {
            host::learn(shared.clock, &shared.moment);
        }
        idle
    }

    /// The name of a queued or running task that uses bytes in a range.
    pub(crate) fn pending(&self, address: usize, len: usize) -> Option<String> {
        let shared = self.shared.lock();
        let queued = shared.queue.iter().map(|queued| (&queued.task.name, &queued.task.accesses));
        let running = shared.running.iter().map(|(name, accesses)| (name, accesses));
        let uses =
            |accesses: &[Access]| accesses.iter().any(|a| a.address < address + len && address < a.address + a.len);
        running.chain(queued).find(|(_, accesses)| uses(accesses)).map(|(name, _)| name.clone())
    }

    /// The virtual clock, after what is done.
    pub(crate) fn clock(&self) -> f64 {
        self.shared.lock().clock
    }

    pub(crate) fn set_stop_on_failure(&self, stop: bool) {
        self.shared.lock().stop_on_failure = stop;
    }

    /// Drops what is queued, and stops what runs where it can be stopped.
    pub(crate) fn abort(&self) {
        let mut shared = self.shared.lock();
        shared.aborted = true;
        shared.queue.clear();
        self.cancelled.store(true, Ordering::SeqCst);
        self.finished.notify_all();
    }

    /// Ends the thread: after the queue's work, or without it.
    pub(crate) fn close(&self, force: bool) {
        let mut shared = self.shared.lock();
        self.closing.store(true, Ordering::SeqCst);
        if force {
            shared.queue.clear();
            // Whoever still waits for what was queued is told.
            shared.aborted = true;
            self.cancelled.store(true, Ordering::SeqCst);
            self.finished.notify_all();
        }
        self.queued.notify_all();
        while !force && (shared.running.is_some() || !shared.queue.is_empty()) {
            self.finished.wait_for(&mut shared, POLL);
        }
        host::learn(shared.clock, &shared.moment);
    }

    pub(crate) fn subscriber(&self) -> Option<u64> {
        self.shared.lock().subscriber
    }

    pub(crate) fn subscribe(&self, thread: Option<u64>) {
        self.shared.lock().subscriber = thread;
    }

    /// From here on tasks are noted down.
    pub(crate) fn begin_capture(&self, handle: usize) -> Outcome {
        let mut shared = self.shared.lock();
        if shared.capture.is_some() {
            return Err(Failure::new(Status::ACL_ERROR_RT_STREAM_CAPTURED, "the stream is being captured already"));
        }
        shared.capture = Some(Capture { handle, ..Capture::default() });
        Ok(())
    }

    /// Handle and health of the capture that goes on.
    pub(crate) fn capturing(&self) -> Option<(usize, bool)> {
        self.shared.lock().capture.as_ref().map(|capture| (capture.handle, capture.invalidated))
    }

    /// Ends a capture.
    pub(crate) fn end_capture(&self) -> Outcome<Capture> {
        let text = "the stream is not being captured";
        let capture = self.shared.lock().capture.take();
        capture.ok_or_else(|| Failure::new(Status::ACL_ERROR_RT_STREAM_NOT_CAPTURED, text))
    }

    fn run(&self) {
        let mut random = Random::new(world().config().seed ^ (self.id as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        loop {
            let mut shared = self.shared.lock();
            while shared.queue.is_empty() && !self.closing.load(Ordering::SeqCst) {
                self.queued.wait(&mut shared);
            }
            let Some(mut queued) = shared.queue.pop_front() else { return };
            shared.running = Some((queued.task.name.clone(), queued.task.accesses.clone()));
            let skip = shared.stop_on_failure && shared.failure.is_some();
            let mut moment = shared.moment.clone();
            moment.merge(&queued.moment);
            let clock = shared.clock.max(queued.clock);
            drop(shared);

            let mut progress = Progress { clock, moment, stream: self };
            let outcome = if skip { Ok(()) } else { progress.run(&queued.task, random.delay(world().config().delay)) };
            // What it kept alive is free before anybody can know that it is over.
            let name = std::mem::take(&mut queued.task.name);
            drop(queued);

            let mut shared = self.shared.lock();
            shared.running = None;
            shared.finished += 1;
            shared.clock = progress.clock;
            shared.moment = progress.moment;
            if let Err(failure) = outcome {
                let text = format!("{name} on stream {}: {}", self.id, failure.text);
                shared.failure.get_or_insert(Failure::new(failure.status, text));
            }
            self.finished.notify_all();
        }
    }
}

impl Progress<'_> {
    fn run(&mut self, task: &Task, delay: Duration) -> Outcome {
        if delay > Duration::from_micros(20) {
            self.sleep(delay);
        }
        match world().faults.task(&task.name) {
            Some(Fault::Fail(status)) => return Err(Failure::new(status, "a fault that was asked for")),
            Some(Fault::Lost) => world().faults.lose(),
            Some(Fault::Hang) => return self.hang(),
            None => {}
        }
        world().faults.alive()?;
        let step = self.moment.advance(self.stream.id as usize);
        for access in &task.accesses {
            note_access(*access, (self.stream.id as usize, step), &self.moment, &task.name)?;
        }
        // A wait moves the clock before the work's own time is added.
        let outcome = catch_unwind(AssertUnwindSafe(|| (task.action)(self)));
        self.clock += task.cost;
        match outcome {
            Ok(outcome) => outcome,
            Err(panic) => Err(Failure::new(Status::ACL_ERROR_RT_AICORE_EXCEPTION, crate::exports::panic_text(&*panic))),
        }
    }

    fn sleep(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while !self.stream.cancelled.load(Ordering::SeqCst) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(POLL * 5));
        }
    }

    /// A task that does not end, until its time is up or somebody stops it.
    fn hang(&self) -> Outcome {
        let end = Instant::now() + world().op_execute_timeout();
        while Instant::now() < end {
            if self.stream.cancelled.load(Ordering::SeqCst) {
                return Err(Failure::new(Status::ACL_ERROR_RT_STREAM_ABORT, "stopped while it hung"));
            }
            std::thread::sleep(POLL);
        }
        Err(Failure::new(Status::ACL_ERROR_RT_AICORE_TIMEOUT, "the kernel did not end within its time"))
    }
}

/// Looks an access up in its allocation's history. Addresses that lead nowhere are for the access itself to find.
pub(crate) fn note_access(access: Access, at: (usize, u64), moment: &Moment, name: &str) -> Outcome {
    if world().config().strict == Strict::Off {
        return Ok(());
    }
    let Ok(view) = world().memory.view(access.address, access.len) else { return Ok(()) };
    let bytes = view.offset..view.offset + view.len;
    let races = view.allocation.history.lock().add(bytes, access.usage, at, moment, name);
    for other in races {
        let how = if access.usage == Usage::Read { "reads" } else { "writes" };
        let text = format!(
            "{name} {how} {} bytes at {:#x} that {other} uses, and no event or synchronisation puts them in order",
            access.len, access.address
        );
        world().violation(text)?;
    }
    Ok(())
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Mostly near the lower bound, now and then near the upper.
    fn delay(&mut self, (low, high): (Duration, Duration)) -> Duration {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        low + (high - low).mul_f64(unit.powi(8))
    }
}

impl Cost {
    /// A kernel that moves so many bytes and does so many multiply-adds.
    pub(crate) fn kernel(&self, bytes: f64, multiply_adds: f64) -> f64 {
        self.launch + (bytes / self.memory_bandwidth).max(multiply_adds / self.multiply_adds)
    }

    /// A copy between host and device, or within a device, which reads and writes.
    pub(crate) fn copy(&self, bytes: usize, within_device: bool) -> f64 {
        let bytes = bytes as f64;
        self.launch + if within_device { 2.0 * bytes / self.memory_bandwidth } else { bytes / self.link_bandwidth }
    }
}
