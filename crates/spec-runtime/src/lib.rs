//! The speculative engine: device seam, KV bookkeeping, drafters, rounds, emission.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod error;
mod guard;
pub mod kv;
mod model;
mod stream;

pub use error::RuntimeError;
pub use guard::KvGuard;
pub use model::{Batch, Model, ModelConfig, Pass, Row, Rows, SeqId, Sequence, Want};
pub use stream::{Event, HostStream, Stream};
