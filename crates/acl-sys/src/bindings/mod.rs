//! Types, constants and prototypes, made by `cargo xtask bindings` from `headers/`: change those, not these.
//!
//! Everything is exported at the crate's root too. Functions are methods of [`Api`](crate::Api).

pub mod base;
pub mod device;
pub mod memory;
pub mod model;
pub mod profiling;
pub mod spec_atb;
pub mod spec_atb_operations;
pub mod spec_decode;
pub mod stream;
