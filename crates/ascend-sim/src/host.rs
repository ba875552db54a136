//! What the simulator keeps for each thread of the host: its virtual clock, what it knows to be done, its context.

use crate::failure::Outcome;
use crate::order::{Actor, Moment};
use crate::world::world;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads are actors beside streams, whose numbers are small.
static NEXT_THREAD: AtomicUsize = AtomicUsize::new(1 << 32);
/// Counts resets of the world: what a thread kept from before one is void.
static EPOCH: AtomicUsize = AtomicUsize::new(0);

struct Thread {
    epoch: usize,
    actor: Actor,
    clock: f64,
    moment: Moment,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread::new());
    static CONTEXT: Cell<usize> = const { Cell::new(0) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

impl Thread {
    fn new() -> Self {
        let actor = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
        Self { epoch: EPOCH.load(Ordering::SeqCst), actor, clock: 0.0, moment: Moment::default() }
    }
}

fn with_thread<T>(run: impl FnOnce(&mut Thread) -> T) -> T {
    THREAD.with_borrow_mut(|thread| {
        if thread.epoch != EPOCH.load(Ordering::SeqCst) {
            *thread = Thread::new();
        }
        run(thread)
    })
}

/// Every thread begins anew.
pub(crate) fn reset() {
    EPOCH.fetch_add(1, Ordering::SeqCst);
    set_context(0);
}

/// A call that queues something: it takes its time, and what the thread did before goes with what it queues.
pub(crate) fn queue_call(nanoseconds: f64) -> (f64, Moment) {
    with_thread(|thread| {
        thread.clock += nanoseconds;
        (thread.clock, thread.moment.clone())
    })
}

/// The thread waited for something that ended at `clock`, and knows what that knew.
pub(crate) fn learn(clock: f64, moment: &Moment) {
    with_thread(|thread| {
        thread.clock = thread.clock.max(clock);
        thread.moment.merge(moment);
    });
}

/// A step of the thread's own that accesses device memory: its actor, step and moment.
pub(crate) fn step() -> ((Actor, u64), Moment) {
    with_thread(|thread| {
        let step = thread.moment.advance(thread.actor);
        ((thread.actor, step), thread.moment.clone())
    })
}

/// The thread's virtual clock in nanoseconds, after `more` of them.
pub(crate) fn clock(more: f64) -> f64 {
    with_thread(|thread| {
        thread.clock += more;
        thread.clock
    })
}

/// The handle of the thread's context; 0 is none.
pub(crate) fn context() -> usize {
    CONTEXT.get()
}

pub(crate) fn set_context(handle: usize) {
    CONTEXT.set(handle);
}

/// Runs a callback of the caller's; allocating and synchronising are forbidden in it.
pub(crate) fn in_callback<T>(run: impl FnOnce() -> T) -> T {
    let before = IN_CALLBACK.replace(true);
    let result = run();
    IN_CALLBACK.set(before);
    result
}

/// Notes a violation when a callback does what it may not.
pub(crate) fn forbid_in_callback(what: &str) -> Outcome {
    if IN_CALLBACK.get() { world().violation(format!("{what} in a callback, which may deadlock")) } else { Ok(()) }
}
