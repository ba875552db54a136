//! An OpenAI-compatible HTTP service over the speculative engine.
//!
//! Over a [`Service`](spec_runtime::Service), which runs many generations at once, [`Server`] reads requests by tables of fields, composes generations of them,
//! and writes what the engine emits, whole or as a stream. What is not supported is refused by name: nothing is dropped in silence.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod answers;
mod audit;
pub mod batch;
mod compose;
#[cfg(test)]
mod dashboard;
mod error;
mod fields;
mod json;
mod keys;
mod language;
mod loading;
mod local;
mod metrics;
pub mod openapi;
pub mod page;
mod protocol;
mod routes;
mod server;
pub mod tools;
mod write;

pub use compose::RequestLimits;
pub use error::{ApiError, ServerError};
pub use keys::Keys;
pub use language::Language;
pub use loading::Loading;
pub use local::Local;
pub use server::{Listening, Observers, Server, ServerOptions};
