//! Helpers for the tests of the other crates; never a normal dependency.
#![deny(missing_docs)]

pub mod conformance;
pub mod data;
mod hash_model;
pub mod logits;
pub mod models;
pub mod tiny;
mod words;

pub use hash_model::{HashModel, HashSpec};
pub use words::Letters;
