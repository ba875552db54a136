//! A fork-join thread pool for parallel regions that last microseconds.
//!
//! A forward pass opens some two hundred regions, so opening one must not cost a system call while
//! the pool is busy. Workers spin for a bounded time after each region, then yield, then sleep.
//!
//! # Protocol
//! One word, `state`, holds `epoch << 32 | OPEN | participants`.
//! - The caller, alone (`busy`), writes the job, then publishes it by storing a new epoch with `OPEN`
//!   set and no participants.
//! - A worker that sees an open epoch it has not joined yet adds itself to `participants` by
//!   compare-exchange. Success is the only way to the job, and is impossible once `OPEN` is cleared.
//! - Everybody claims tasks until none is left: from the front of the range of indices that is theirs, then from the
//!   back of the others'. The caller then clears `OPEN` and waits for `participants` to reach zero. A worker that never
//!   woke up is not waited for, which keeps regions short on an oversubscribed machine.
//!
//! Hence the job is written only while no worker can read it, and borrowed data outlives every use.

mod disjoint;
mod range;
#[cfg(test)]
mod tests;

pub use disjoint::SharedSlice;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::CpuError;
use range::TaskRange;

const OPEN: u64 = 1 << 31;
const PARTICIPANTS: u64 = OPEN - 1;
const EPOCH: u64 = 1 << 32;

/// How long an idle worker spins before it starts to yield: longer than the serial stretches of
/// a forward pass, shorter than anything that shows up as idle load.
const SPIN: Duration = Duration::from_micros(200);
/// How long it yields before it sleeps.
const YIELD: Duration = Duration::from_micros(300);

/// Keeps words written by different threads out of each other's cache lines (and of the pair that
/// adjacent-line prefetch moves together).
#[repr(align(128))]
struct Padded<T>(T);

/// The region being run: a borrowed closure with its type erased.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize),
    closure: *const (),
}

struct Shared {
    state: Padded<AtomicU64>,
    /// The tasks of each thread, the caller's first.
    ranges: Box<[Padded<TaskRange>]>,
    job: UnsafeCell<Job>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    shutdown: AtomicBool,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is the only field that is not already `Sync`. The protocol above gives the caller exclusive access
// while it writes (`busy` held, not open, no participants) and shared access to participants otherwise.
unsafe impl Sync for Shared {}
// SAFETY: the raw pointer in `job` is dereferenced only during the region whose caller keeps its target alive.
unsafe impl Send for Shared {}

thread_local! {
    /// Set while this thread executes tasks, so that a nested region runs inline.
    static IN_REGION: Cell<bool> = const { Cell::new(false) };
}

/// A fixed set of threads that run parallel regions together with the caller.
///
/// Dropping the pool joins its workers.
pub struct Pool {
    shared: Arc<Shared>,
    busy: AtomicBool,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller of [`Pool::run`] counted. Zero is taken as one.
    ///
    /// # Errors
    /// [`CpuError::Thread`] when the operating system refuses a thread.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        /// Stands where no job is.
        ///
        /// # Safety
        /// None is needed: it does nothing.
        unsafe fn nothing(_: *const (), _: usize) {}
        let shared = Arc::new(Shared {
            state: Padded(AtomicU64::new(0)),
            ranges: (0..threads.max(1)).map(|_| Padded(TaskRange::default())).collect(),
            job: UnsafeCell::new(Job { call: nothing, closure: std::ptr::null() }),
            panic: Mutex::new(None),
            shutdown: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut pool = Self { shared, busy: AtomicBool::new(false), workers: Vec::new() };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new()
                .name(format!("spec-cpu-{index}"))
                .spawn(move || work(&shared, index))
                .map_err(|source| CpuError::Thread { index, threads, source })?;
            pool.workers.push(worker);
        }
        tracing::debug!(threads = pool.workers.len() + 1, "threads started");
        Ok(pool)
    }

    /// Threads that take part in a region, the caller counted.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(index)` once for every index below `tasks`, on all threads, and returns when the last call has.
    ///
    /// Each thread has a share of neighbouring indices, the same in every region of as many tasks, and goes through it in
    /// order, so that it may read memory ahead and finds it where it left it. Who is done takes from the ends of the
    /// others' shares, one task at a time, so tasks may differ in length. With one thread or one task, from within a task, or
    /// while another thread runs a region on this pool, the calls happen in order on the calling thread.
    ///
    /// # Panics
    /// Continues the panic of the first task that panicked; tasks not begun by then are dropped.
    pub fn run<F: Fn(usize) + Sync>(&self, tasks: usize, task: F) {
        let inline = self.workers.is_empty()
            || tasks <= 1
            || u32::try_from(tasks).is_err()
            || IN_REGION.get()
            || self.busy.swap(true, Ordering::Acquire);
        if inline {
            (0..tasks).for_each(task);
            return;
        }

        /// # Safety
        /// `closure` points to a live `F`.
        unsafe fn call<F: Fn(usize)>(closure: *const (), index: usize) {
            // SAFETY: `run` erased this very `F` and keeps it alive until every participant has left.
            unsafe { (*closure.cast::<F>())(index) }
        }
        let shared = &*self.shared;
        let job = Job { call: call::<F>, closure: (&raw const task).cast() };
        // SAFETY: `busy` excludes other callers; the last region was closed and left by all participants.
        unsafe { *shared.job.get() = job };
        // Ordered before the claims of workers by the publication of `state`.
        let threads = shared.ranges.len();
        for (thread, range) in shared.ranges.iter().enumerate() {
            range.0.set(tasks * thread / threads..tasks * (thread + 1) / threads);
        }
        let epoch = shared.state.0.load(Ordering::Relaxed) & !(OPEN | PARTICIPANTS);
        // SeqCst, with the counterpart in `sleep`: either this thread sees the sleeper, or the sleeper sees the new epoch.
        shared.state.0.store(epoch.wrapping_add(EPOCH) | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) != 0 {
            let _held = lock(&shared.sleep);
            shared.wake.notify_all();
        }

        shared.claim(job, 0);

        // AcqRel: closing after the claims; a worker's compare-exchange fails from here on.
        shared.state.0.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0_u32;
        // Acquire, paired with the Release in `work`: the tasks' writes are visible after this loop.
        while shared.state.0.load(Ordering::Acquire) & PARTICIPANTS != 0 {
            // A participant may have lost its core to another process: give it ours after a while.
            spins = spins.saturating_add(1);
            if spins < 4096 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let panic = lock(&shared.panic).take();
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Cuts `data` into chunks of `chunk` items (the last may be shorter) and calls `task(index, chunk)` on each, in parallel.
    ///
    /// # Panics
    /// When `chunk` is zero, and with the panic of a task as [`Pool::run`] does.
    pub fn run_chunks<T: Send, F: Fn(usize, &mut [T]) + Sync>(&self, data: &mut [T], chunk: usize, task: F) {
        assert!(chunk > 0, "chunks must hold at least one item");
        let length = data.len();
        let shared = SharedSlice::new(data);
        self.run(length.div_ceil(chunk), |index| {
            let start = index * chunk;
            // SAFETY: each index runs once, and the ranges of different indices do not overlap.
            task(index, unsafe { shared.slice(start..length.min(start + chunk)) });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.sleep));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of tasks and has no others.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Runs the tasks of `thread`, then what is left of the others'. Only for the caller and for participants.
    fn claim(&self, job: Job, thread: usize) {
        IN_REGION.set(true);
        let (before, own) = self.ranges.split_at(thread);
        for (index, range) in own.iter().chain(before).enumerate() {
            while let Some(task) = if index == 0 { range.0.take_first() } else { range.0.take_last() } {
                // SAFETY: the closure is alive: the caller of `run` waits for every participant.
                let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (job.call)(job.closure, task) }));
                if let Err(payload) = outcome {
                    lock(&self.panic).get_or_insert(payload);
                    self.ranges.iter().for_each(|range| range.0.set(0..0));
                }
            }
        }
        IN_REGION.set(false);
    }

    /// Sleeps until an epoch other than `seen` is open, or the pool goes away.
    fn sleep(&self, seen: u64) {
        let mut held = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !self.shutdown.load(Ordering::SeqCst) && !joinable(self.state.0.load(Ordering::SeqCst), seen) {
            held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Locks, whatever happened to an earlier holder: the data behind these locks has no invariant to break.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn joinable(state: u64, seen: u64) -> bool {
    state & OPEN != 0 && state & !(OPEN | PARTICIPANTS) != seen
}

/// The life of worker `thread`.
fn work(shared: &Shared, thread: usize) {
    let mut seen = 0;
    let mut idle: Option<Instant> = None;
    let mut polls = 0_u32;
    while !shared.shutdown.load(Ordering::Relaxed) {
        let state = shared.state.0.load(Ordering::Relaxed);
        if joinable(state, seen) {
            // Acquire: the job is visible. On failure the state changed: look again.
            let joined =
                shared.state.0.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if joined {
                // SAFETY: as a participant of an open region, this thread may read the job until it leaves.
                let job = unsafe { *shared.job.get() };
                shared.claim(job, thread);
                seen = state & !(OPEN | PARTICIPANTS);
                // Release: the caller's wait sees this thread's writes.
                shared.state.0.fetch_sub(1, Ordering::Release);
                idle = None;
                polls = 0;
            }
            continue;
        }
        std::hint::spin_loop();
        polls = polls.wrapping_add(1);
        // The clock is read rarely: it costs as much as several polls.
        if !polls.is_multiple_of(32) {
            continue;
        }
        let waited = idle.get_or_insert_with(Instant::now).elapsed();
        if waited > SPIN + YIELD {
            shared.sleep(seen);
            idle = None;
        } else if waited > SPIN {
            std::thread::yield_now();
            polls = polls.wrapping_sub(1);
        }
    }
}
