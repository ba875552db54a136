//! What the simulator keeps of the host: for each thread its virtual clock and its context, and for all of them together
//! what is known to be done.
//!
//! Threads hand buffers to each other by means that the simulator does not see. What one of them waited for is therefore
//! known to all: a race between two threads of the host goes unseen, and none is reported that is none.

use crate::failure::Outcome;
use crate::order::{Actor, Moment};
use crate::world::world;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The host as an actor beside streams, whose numbers begin at 1.
const HOST: Actor = 0;

static KNOWN: Mutex<Moment> = Mutex::new(Moment::new());
/// Counts resets of the world: clocks of threads from before one are void.
static EPOCH: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CLOCK: Cell<(usize, f64)> = const { Cell::new((0, 0.0)) };
    static CONTEXT: Cell<usize> = const { Cell::new(0) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Everything begins anew.
pub(crate) fn reset() {
    EPOCH.fetch_add(1, Ordering::SeqCst);
    *KNOWN.lock() = Moment::new();
    set_context(0);
}

fn set_clock(change: impl FnOnce(f64) -> f64) -> f64 {
    let now = EPOCH.load(Ordering::SeqCst);
    let (epoch, clock) = CLOCK.get();
    let clock = change(if epoch == now { clock } else { 0.0 });
    CLOCK.set((now, clock));
    clock
}

/// A call that queues something: it takes its time, and what is known goes with what it queues.
pub(crate) fn queue_call(nanoseconds: f64) -> (f64, Moment) {
    (clock(nanoseconds), KNOWN.lock().clone())
}

/// The thread waited for something that ended at `clock`, and knows what that knew.
pub(crate) fn learn(clock: f64, moment: &Moment) {
    set_clock(|own| own.max(clock));
    KNOWN.lock().merge(moment);
}

/// A step of the host's own that accesses device memory: its actor, step and moment.
pub(crate) fn step() -> ((Actor, u64), Moment) {
    let mut known = KNOWN.lock();
    let step = known.advance(HOST);
    ((HOST, step), known.clone())
}

/// The thread's virtual clock in nanoseconds, after `more` of them.
pub(crate) fn clock(more: f64) -> f64 {
    set_clock(|clock| clock + more)
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
