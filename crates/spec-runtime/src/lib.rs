//! The speculative engine: device seam, KV bookkeeping, drafters, rounds, emission.
//!
//! A [`Model`] scores rows on some device; a [`Drafter`] proposes a tree of tokens; the [`Engine`] lets the
//! target score the tree in one pass, judges it by an acceptance rule of `spec-core`, emits the accepted
//! tokens one by one, and settles the KV cache to what was emitted. Under the lossless rules the output is
//! the one that the target gives alone.
//!
//! To run your own model, implement [`Model`]; [`kv::PagedKv`] does the bookkeeping of its cache. The
//! example `toy_model` does it in a page.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod clock;
mod constraint;
mod drafter;
mod emission;
mod engine;
mod error;
mod guard;
pub mod kv;
mod model;
mod request;
mod stats;
mod stream;
mod text;

pub use clock::Clock;
pub use constraint::{Constraint, TokenSet};
pub use drafter::{
    Chooser, Class, DraftContext, Drafter, GenerationId, ModelDrafter, NgramDrafter, Odds, ScriptedDrafter,
    SuffixDrafter, Work, Worth,
};
pub use emission::{Emitted, FinishReason, StopRules};
pub use engine::{Completion, Engine, Generation};
pub use error::RuntimeError;
pub use guard::KvGuard;
pub use model::{Batch, Model, ModelConfig, Pass, Row, Rows, SeqId, Sequence, Want};
pub use request::{CancelToken, Request, RequestRule};
pub use stats::{AheadStats, PositionStats, SpeculationStats, Timings};
pub use stream::{Event, HostStream, Stream, wait_on_host};
pub use text::{TokenText, check_vocabularies};
