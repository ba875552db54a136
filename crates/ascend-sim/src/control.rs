//! The control plane: what tests and doctors ask of the simulator that no device has.

use crate::exports::{Address, Out, Text, exports};
use crate::failure::{Failure, Outcome, argument};
use crate::world::world;
use acl_sys::{Status, aclrtStream};
use parking_lot::Mutex;
use std::ffi::{c_char, c_void};

static LAST_LEAKS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// AscendCL ends: what is still alive is kept for `ascend_sim_leaks`.
pub(crate) fn note_leaks() {
    *LAST_LEAKS.lock() = world().leaks();
}

/// Every exported function.
fn all() -> impl Iterator<Item = (&'static str, Address)> {
    use crate::{acl, atb};
    [
        acl::base::addresses(),
        acl::device::addresses(),
        acl::stream::addresses(),
        acl::callback::addresses(),
        acl::memory::addresses(),
        acl::copy::addresses(),
        acl::model::addresses(),
        acl::capture::addresses(),
        acl::profiling::addresses(),
        atb::library::addresses(),
        atb::create::addresses(),
        atb::execute::addresses(),
        addresses(),
        vec![
            ("ascend_sim_version", ascend_sim_version as Address),
            ("ascend_sim_resolve", ascend_sim_resolve as Address),
        ],
    ]
    .into_iter()
    .flatten()
}

/// Writes lines into a buffer, and returns the bytes that all of them take, without the NUL.
fn write_lines(lines: &[String], buffer: *mut c_char, size: u64) -> u64 {
    let text = lines.join("\n");
    let room = usize::try_from(size).unwrap_or(usize::MAX);
    if !buffer.is_null() && room > 0 {
        let count = text.len().min(room - 1);
        // SAFETY: the caller says that the buffer has `size` bytes, and count + 1 are at most that.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), count);
            buffer.add(count).write(0);
        }
    }
    text.len() as u64
}

/// Version of the simulator. No library of the vendor's exports it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ascend_sim_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The address of an exported function, as `dlsym` would say; null for one that the configuration declares absent.
///
/// # Safety
/// The name is null or NUL-terminated.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ascend_sim_resolve(name: *const c_char) -> *const c_void {
    if name.is_null() {
        return std::ptr::null();
    }
    // SAFETY: not null, so that it is NUL-terminated by the caller's promise.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy();
    resolve(&name).map_or(std::ptr::null(), |address| address.as_ptr().cast_const())
}

/// The address of an exported function by its name; `None` for one that the configuration declares absent.
///
/// It suits `acl_sys::Api::from_parts`, for programs that link the simulator instead of loading it.
pub fn resolve(name: &str) -> Option<std::ptr::NonNull<c_void>> {
    if world().config().absent.iter().any(|absent| absent == name) {
        return None;
    }
    let (_, address) = all().find(|(exported, _)| *exported == name)?;
    std::ptr::NonNull::new(address.cast_mut().cast())
}

/// Replaces the configuration, and with it all faults; see the README for its keys. For programs that link the
/// simulator: a loaded one has state of its own, and exports `ascend_sim_configure`.
///
/// # Errors
/// What is not understood, and what was expected. Nothing changes then.
pub fn configure(text: &str) -> Result<(), String> {
    world().configure(text)
}

/// Takes everything down: streams stop, handles become invalid, memory is freed, violations are forgotten.
pub fn reset() {
    world().reset();
    LAST_LEAKS.lock().clear();
}

/// Misuse so far that hardware would tolerate, a line each.
pub fn violations() -> Vec<String> {
    world().violations()
}

/// Handles and memory that are alive, a line each.
pub fn alive() -> Vec<String> {
    world().leaks()
}

/// What was alive when AscendCL ended last, a line each.
pub fn leaks() -> Vec<String> {
    LAST_LEAKS.lock().clone()
}

/// Names of the profiler's ranges that have ended since this was asked last, in the order of their ends.
pub fn ranges() -> Vec<String> {
    crate::acl::profiling::take_ranges()
}

exports! {
    /// Replaces the configuration (see the README for its keys), and with it all faults. Streams that run keep their
    /// seed. 100000 for a text that is not understood, with `aclGetRecentErrMsg` saying why.
    fn ascend_sim_configure(config: Text) {
        let config = config.get().ok_or_else(|| argument("the configuration is null"))?;
        world().configure(&config).map_err(argument)
    }

    /// Takes everything down: streams stop, handles become invalid, memory is freed, violations are forgotten. The
    /// configuration stays.
    fn ascend_sim_reset() {
        reset();
        Ok(())
    }

    /// Nanoseconds of the virtual clock of a stream, after what it has done.
    fn ascend_sim_virtual_time(stream: aclrtStream, nanoseconds: Out<u64>) {
        nanoseconds.set(world().stream(stream as usize)?.clock() as u64)
    }

    /// Adds to the calling thread's virtual clock, as work of the host would, and returns it in nanoseconds.
    fn ascend_sim_host_time(add: u64) -> u64, else 0, {
        Ok(crate::host::clock(add as f64) as u64)
    }

    /// Violations so far, a line each, into a buffer of `size` bytes. Returns the bytes that all of them take.
    fn ascend_sim_violations(buffer: *mut c_char, size: u64) -> u64, else 0, {
        Ok(write_lines(&world().violations(), buffer, size))
    }

    /// Forgets violations.
    fn ascend_sim_clear_violations() {
        world().clear_violations();
        Ok(())
    }

    /// What was alive when AscendCL ended last, a line each; as [`ascend_sim_violations`].
    fn ascend_sim_leaks(buffer: *mut c_char, size: u64) -> u64, else 0, {
        Ok(write_lines(&LAST_LEAKS.lock(), buffer, size))
    }

    /// What is alive now, a line each; as [`ascend_sim_violations`].
    fn ascend_sim_alive(buffer: *mut c_char, size: u64) -> u64, else 0, {
        Ok(write_lines(&world().leaks(), buffer, size))
    }

    /// Copies bytes of device memory to the host, at once and outside the order of anything, to see what a program that
    /// does not wait would see. No violation.
    fn ascend_sim_peek(to: *mut c_void, from: *const c_void, count: u64) {
        let count = usize::try_from(count).map_err(|_| argument("more bytes than there are addresses"))?;
        let view = world()
            .memory
            .view(from as usize, count)
            .map_err(|text| Failure::new(Status::ACL_ERROR_RT_PARAM_INVALID, text))?;
        peek(&view, to)
    }
}

fn peek(view: &crate::memory::View, to: *mut c_void) -> Outcome {
    if to.is_null() {
        return Err(argument("the target is null"));
    }
    // SAFETY: the view keeps its bytes alive; the target has as many by the caller's contract.
    unsafe { std::ptr::copy(view.pointer(), to.cast::<u8>(), view.len) };
    Ok(())
}
