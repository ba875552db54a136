//! Profiling: the order of calls is checked, and nothing is collected but the names of ranges.

use crate::exports::{Out, exports};
use crate::failure::{Failure, Outcome, argument, require};
use acl_sys::{Status, aclprofAicoreEvents, aclprofAicoreMetrics, aclprofConfig, aclprofConfigType};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Off,
    Ready,
    Running,
}

static PHASE: Mutex<Phase> = Mutex::new(Phase::Off);
static NEXT_RANGE: AtomicU32 = AtomicU32::new(1);

/// Names of ranges that are over, in the order of their ends.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Ranges that are kept: a program that runs long ends more.
const KEPT: usize = 10_000;

thread_local! {
    /// Names of the ranges that this thread has open, the innermost last.
    static OPEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What `aclprofCreateStamp` makes.
#[derive(Default)]
struct Stamp {
    message: String,
}

/// Names of the ranges that have ended since this was asked last, the first ten thousand of them.
pub(crate) fn take_ranges() -> Vec<String> {
    std::mem::take(&mut *ENDED.lock())
}

/// The marker behind a pointer of `aclprofCreateStamp`.
fn stamp_at(stamp: *mut c_void) -> Result<*mut Stamp, Failure> {
    require(!stamp.is_null(), || argument("the marker is null"))?;
    Ok(stamp.cast())
}

fn step(from: Phase, to: Phase) -> Outcome {
    let mut phase = PHASE.lock();
    if *phase == from {
        *phase = to;
        return Ok(());
    }
    let (status, text) = match *phase {
        Phase::Off => (Status::ACL_ERROR_PROF_NOT_RUN, "profiling is not initialised"),
        Phase::Ready => (Status::ACL_ERROR_PROF_NOT_RUN, "profiling is not started"),
        Phase::Running => (Status::ACL_ERROR_PROF_ALREADY_RUN, "profiling runs already"),
    };
    // A second initialisation of what is ready is the one case that the state's own text does not tell.
    let repeated = from == Phase::Off && *phase == Phase::Ready;
    let status = if repeated { Status::ACL_ERROR_PROF_ALREADY_RUN } else { status };
    Err(Failure::new(status, text))
}

exports! {
    /// Prepares.
    fn aclprofInit(path: *const c_char, length: usize) {
        require(!path.is_null() && (1..=4096).contains(&length), || argument("a folder of 1 to 4096 bytes is needed"))?;
        step(Phase::Off, Phase::Ready)
    }

    /// Ends.
    fn aclprofFinalize() {
        let mut phase = PHASE.lock();
        require(*phase != Phase::Off, || Failure::new(Status::ACL_ERROR_PROF_NOT_RUN, "profiling is not initialised"))?;
        *phase = Phase::Off;
        Ok(())
    }

    /// Says what to profile.
    fn aclprofCreateConfig(devices: *mut u32, count: u32, _metrics: aclprofAicoreMetrics, _events: *const aclprofAicoreEvents, kinds: u64) -> *mut aclprofConfig, else std::ptr::null_mut(), {
        require(count == 0 || !devices.is_null(), || argument("the list of devices is null"))?;
        Ok(Box::into_raw(Box::new(kinds)).cast())
    }

    /// Frees that.
    fn aclprofDestroyConfig(config: *const aclprofConfig) {
        require(!config.is_null(), || argument("the configuration is null"))?;
        // SAFETY: it was made here from a box of this type, by the caller's contract, and is given back once.
        drop(unsafe { Box::from_raw(config.cast_mut().cast::<u64>()) });
        Ok(())
    }

    /// Accepts a wish.
    fn aclprofSetConfig(_kind: aclprofConfigType, config: *const c_char, length: usize) {
        require(!config.is_null() && length > 0, || argument("the value is empty"))
    }

    /// Starts.
    fn aclprofStart(config: *const aclprofConfig) {
        require(!config.is_null(), || argument("the configuration is null"))?;
        step(Phase::Ready, Phase::Running)
    }

    /// Stops.
    fn aclprofStop(config: *const aclprofConfig) {
        require(!config.is_null(), || argument("the configuration is null"))?;
        step(Phase::Running, Phase::Ready)
    }

    /// Makes a marker.
    fn aclprofCreateStamp() -> *mut c_void, else std::ptr::null_mut(), {
        Ok(Box::into_raw(Box::<Stamp>::default()).cast())
    }

    /// Frees a marker.
    fn aclprofDestroyStamp(stamp: *mut c_void) -> (), else (), {
        let stamp = stamp_at(stamp)?;
        // SAFETY: it was made here from a box of this type, by the caller's contract, and is given back once.
        drop(unsafe { Box::from_raw(stamp) });
        Ok(())
    }

    /// Labels a marker.
    fn aclprofSetStampTraceMessage(stamp: *mut c_void, message: *const c_char, length: u32) {
        let stamp = stamp_at(stamp)?;
        require(!message.is_null() && length > 0, || argument("a text is needed"))?;
        // SAFETY: the text has as many bytes, by the caller's contract.
        let text = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), length as usize) };
        // SAFETY: the marker is alive and used by one call at a time, by the caller's contract.
        unsafe { (*stamp).message = String::from_utf8_lossy(text).into_owned() };
        Ok(())
    }

    /// Marks a moment.
    fn aclprofMark(stamp: *mut c_void) {
        require(!stamp.is_null(), || argument("the marker is null"))
    }

    /// Opens a range on this thread.
    fn aclprofPush(stamp: *mut c_void) {
        let stamp = stamp_at(stamp)?;
        // SAFETY: the marker is alive and used by one call at a time, by the caller's contract.
        let name = unsafe { (*stamp).message.clone() };
        OPEN.with_borrow_mut(|open| open.push(name));
        Ok(())
    }

    /// Closes the innermost range.
    fn aclprofPop() {
        let name = OPEN.with_borrow_mut(Vec::pop).ok_or_else(|| argument("no range is open on this thread"))?;
        let mut ended = ENDED.lock();
        if ended.len() < KEPT {
            ended.push(name);
        }
        Ok(())
    }

    /// Opens a range that any thread may close.
    fn aclprofRangeStart(stamp: *mut c_void, range: Out<u32>) {
        require(!stamp.is_null(), || argument("the marker is null"))?;
        range.set(NEXT_RANGE.fetch_add(1, Ordering::Relaxed))
    }

    /// Closes one.
    fn aclprofRangeStop(range: u32) {
        require(range != 0 && range < NEXT_RANGE.load(Ordering::Relaxed), || argument(format!("no range {range}")))
    }
}
