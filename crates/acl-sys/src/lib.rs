//! Raw access to Huawei Ascend NPUs: AscendCL, and ATB through a shim with a C interface, as one table of function
//! pointers that is loaded at run time.
//!
//! Depending on this crate loads nothing, links nothing and needs no CANN. [`Api::load`] looks for the libraries;
//! each function is looked up when it is first called, so that a library without one of them serves everybody who does
//! not call it. What is missing is an [`Error`], which names the symbol, the libraries that were tried, and the line to
//! paste into the shell.
//!
//! ```no_run
//! use acl_sys::Api;
//!
//! # fn main() -> Result<(), acl_sys::Error> {
//! // SAFETY: what lies where CANN is installed is taken to be CANN.
//! let api = unsafe { Api::load()? };
//! // SAFETY: null is allowed for the path, and the second pointer is valid for the call.
//! let count = unsafe {
//!     api.aclInit(std::ptr::null())?.ok()?;
//!     let mut count = 0;
//!     api.aclrtGetDeviceCount(&mut count)?.ok()?;
//!     count
//! };
//! println!("{count} devices");
//! # Ok(())
//! # }
//! ```
//!
//! Types, constants and prototypes are made from small headers of this crate's own (`headers/`) by the unpublished
//! `acl-bindings`, which also compares them with the vendor's headers. Names are those of C, so that the vendor's
//! documentation can be searched for them. Enumerations are integers with constants, because newer libraries return
//! values that no header here knows.
//!
//! Nothing here has run on an NPU yet: signatures, values and layouts are checked against headers only.
#![deny(missing_docs)]

mod api;
pub mod bindings;
mod error;
mod host;
mod library;
mod loader;
mod status;
mod table;
mod version;

pub use api::Api;
pub use error::{Attempt, Error, Tried};
pub use host::Host;
pub use loader::Loader;
pub use status::{Status, StatusCode};
pub use table::{Family, Function, Since};
pub use version::Version;

pub use bindings::{
    base::*, device::*, memory::*, model::*, profiling::*, spec_atb::*, spec_atb_operations::*, spec_decode::*,
    stream::*,
};
