//! A library of functions that do what AscendCL and the shim document, as late as they may: work on a stream is done
//! when somebody waits for it and not earlier, or (for all streams but one) as soon as it is queued, so that a wait that
//! is missing always shows in one of these schedules. Any call can be made to fail, and everything that is made is
//! counted until it is freed.
//!
//! One test at a time may use it; `start` waits for the others.
#![allow(dead_code, non_snake_case, unreachable_pub, clippy::mut_from_ref)]

mod acl;
mod atb;

use acl_sys::{Api, Status};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What fresh memory is filled with.
pub const POISON: u8 = 0xA5;

static TEST: Mutex<()> = Mutex::new(());
static STATE: Mutex<Option<State>> = Mutex::new(None);

thread_local! {
    static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// One piece of queued work.
type Task = Box<dyn FnOnce(&mut State) + Send>;

#[derive(Default)]
pub struct StreamState {
    queue: VecDeque<Task>,
    done: u64,
    issued: u64,
}

#[derive(Default)]
pub struct State {
    next: usize,
    /// Everything that was made and not yet freed, by address, with what it is.
    pub live: BTreeMap<usize, &'static str>,
    pub streams: BTreeMap<usize, StreamState>,
    /// Stream and tick of the last record of each event, and whether the stream has passed it, and when.
    events: BTreeMap<usize, Option<(usize, u64)>>,
    memory: BTreeMap<usize, Box<[u64]>>,
    freed: Vec<Box<[u64]>>,
    pub calls: BTreeMap<&'static str, u64>,
    /// The n-th call from now of a function returns a status.
    failures: Vec<(&'static str, u64, Status)>,
    /// Calls of these functions, by their number, succeed and do nothing.
    ignored: Option<(&'static str, u64)>,
    pub devices: i32,
    pub initialised: bool,
    pub chip: Option<&'static std::ffi::CStr>,
    pub atb_status: i32,
    pub abi_version: u32,
    pub messages: BTreeMap<&'static str, &'static std::ffi::CStr>,
    operations: BTreeMap<usize, atb::FakeOperation>,
    pub lengths_at_setup: Vec<Vec<i32>>,
    clock: u64,
    /// Work of every stream but this one (counted from 1) is done as soon as it is queued.
    pub lazy_stream: Option<usize>,
    ordinals: BTreeMap<usize, usize>,
    /// Device memory that was freed while queued work used it.
    pub faults: Vec<String>,
    used: BTreeSet<usize>,
}

// SAFETY: the addresses in it are of memory that the state owns, or that a test keeps while it runs.
unsafe impl Send for State {}

/// The library, until it is dropped.
pub struct Session(MutexGuard<'static, ()>);

pub fn start() -> Session {
    let guard = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    *STATE.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(State { next: 1, abi_version: acl_sys::SPEC_ATB_ABI_VERSION, ..State::default() });
    CURRENT.set(0);
    Session(guard)
}

impl Session {
    pub fn api(&self) -> Api {
        // SAFETY: each function of the fake has the C signature of the symbol it is named by.
        unsafe { Api::from_parts(|_, symbol| resolve(symbol)) }
    }

    pub fn with<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with_state(with)
    }

    pub fn fail(&self, function: &'static str, nth: u64, status: Status) {
        self.with(|state| state.failures.push((function, nth, status)));
    }

    pub fn ignore(&self, function: &'static str, nth: u64) {
        self.with(|state| state.ignored = Some((function, nth)));
    }

    pub fn live(&self) -> Vec<&'static str> {
        self.with(|state| state.live.values().copied().collect())
    }

    pub fn calls(&self, function: &str) -> u64 {
        self.with(|state| state.calls.get(function).copied().unwrap_or_default())
    }
}

fn resolve(symbol: &str) -> Option<NonNull<c_void>> {
    let address = acl::resolve(symbol).or_else(|| atb::resolve(symbol))?;
    NonNull::new(address.cast_mut().cast())
}

fn with_state<T>(with: impl FnOnce(&mut State) -> T) -> T {
    with(STATE.lock().unwrap_or_else(PoisonError::into_inner).as_mut().expect("a session is open"))
}

/// Runs a call, unless it was asked to fail or to do nothing.
fn call(name: &'static str, body: impl FnOnce(&mut State) -> Status) -> Status {
    with_state(|state| {
        let count = state.calls.entry(name).or_default();
        *count += 1;
        let count = *count;
        if let Some(at) = state.failures.iter().position(|(function, ..)| *function == name) {
            let left = &mut state.failures[at].1;
            *left -= 1;
            if *left == 0 {
                return state.failures.remove(at).2;
            }
        }
        if state.ignored == Some((name, count)) {
            return Status::SUCCESS;
        }
        body(state)
    })
}

impl State {
    fn make(&mut self, what: &'static str) -> *mut c_void {
        self.next += 1;
        let address = self.next << 32;
        self.live.insert(address, what);
        address as *mut c_void
    }

    fn unmake(&mut self, address: *mut c_void, what: &'static str) -> Status {
        match self.live.remove(&(address as usize)) {
            Some(kind) if kind == what => Status::SUCCESS,
            _ => Status::ACL_ERROR_RT_PARAM_INVALID,
        }
    }

    fn allocate(&mut self, bytes: usize, what: &'static str) -> *mut c_void {
        let mut memory = vec![u64::from_ne_bytes([POISON; 8]); bytes.div_ceil(8)].into_boxed_slice();
        let address = memory.as_mut_ptr().cast::<c_void>();
        self.memory.insert(address as usize, memory);
        self.live.insert(address as usize, what);
        address
    }

    fn free(&mut self, address: *mut c_void, what: &'static str) -> Status {
        if self.used.contains(&(address as usize)) && self.streams.values().any(|stream| !stream.queue.is_empty()) {
            self.faults.push(format!("{what} was freed while work was queued"));
        }
        // Kept, for tests in which work comes too late.
        self.freed.extend(self.memory.remove(&(address as usize)));
        self.unmake(address, what)
    }

    /// Queues work on a stream.
    fn queue(&mut self, stream: *mut c_void, uses: &[*const c_void], task: Task) -> Status {
        for &address in uses {
            if let Some((&start, _)) = self.memory.range(..=address as usize).next_back() {
                self.used.insert(start);
            }
        }
        let Some(state) = self.streams.get_mut(&(stream as usize)) else {
            return Status::ACL_ERROR_RT_STREAM_CONTEXT;
        };
        state.issued += 1;
        state.queue.push_back(task);
        if self.lazy_stream.is_some_and(|lazy| self.ordinals[&(stream as usize)] != lazy) {
            self.run(stream as usize, u64::MAX);
        }
        Status::SUCCESS
    }

    fn open_stream(&mut self) -> *mut c_void {
        let made = self.make("stream");
        self.streams.insert(made as usize, StreamState::default());
        self.ordinals.insert(made as usize, self.ordinals.len() + 1);
        made
    }

    /// Does a stream's work up to a tick.
    fn run(&mut self, stream: usize, until: u64) {
        loop {
            let Some(state) = self.streams.get_mut(&stream) else { return };
            if state.done >= until {
                return;
            }
            let Some(task) = state.queue.pop_front() else { return };
            // The task may run other streams, which may come back to this one: it is past this tick by then.
            state.done += 1;
            task(self);
        }
    }

    fn issued(&self, stream: usize) -> u64 {
        self.streams.get(&stream).map_or(0, |stream| stream.issued)
    }
}

/// The text of a failure, for one call.
fn message(state: &mut State, side: &'static str) -> *const c_char {
    state.messages.get(side).map_or(std::ptr::null(), |text| text.as_ptr())
}
