//! The AscendCL functions, by the vendor's headers.

pub(crate) mod base;
pub(crate) mod callback;
pub(crate) mod capture;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod profiling;
pub(crate) mod stream;

use crate::failure::{Outcome, invalid, require};
use std::time::Duration;

/// A pointer that is a handle.
pub(crate) type Handle = usize;

/// Milliseconds of the `WithTimeout` calls: -1 is for ever, 0 and less than -1 are refused.
fn timeout(milliseconds: i32) -> Outcome<Option<Duration>> {
    require(milliseconds > 0 || milliseconds == -1, || invalid(format!("a timeout of {milliseconds} ms")))?;
    Ok(u64::try_from(milliseconds).ok().map(Duration::from_millis))
}
