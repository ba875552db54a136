//! Helpers for the tests of the other crates; never a normal dependency.
#![deny(missing_docs)]

mod hash_model;
mod words;

pub use hash_model::{HashModel, HashSpec};
pub use words::Letters;
