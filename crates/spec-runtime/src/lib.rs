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

pub mod audit;
mod clock;
mod constraint;
mod decisions;
mod draft_cache;
mod drafter;
mod emission;
mod engine;
mod error;
#[cfg(feature = "grammar")]
mod grammar;
mod guard;
pub mod kv;
mod lazy;
mod model;
mod request;
mod scheduler;
mod stats;
mod stream;
mod text;
mod vocabulary;
mod watch;

pub use clock::Clock;
pub use constraint::{Constraint, TokenSet};
pub use decisions::{DECISIONS, DecisionDetail, DecisionLog};
pub use draft_cache::{CachedDraft, DraftCache, DraftCacheStats, DraftKey};
pub use drafter::{
    CachedDrafter, Chooser, Class, DraftContext, Drafted, Drafter, GenerationId, Member, ModelDrafter, NgramDrafter,
    Odds, ScriptedDrafter, SuffixDrafter, Work, Worth,
};
pub use emission::{Emitted, FinishReason, StopRules, TokenSource};
pub use engine::{Completion, Engine, Generation, RoundObserver, RoundReport, RoundTimes, RowShare, Session, Turn};
pub use error::RuntimeError;
#[cfg(feature = "grammar")]
pub use grammar::{Form, Grammar, Grammars};
pub use guard::KvGuard;
pub use lazy::LazyModel;
pub use model::{Batch, KvUsage, Model, ModelConfig, Pass, Row, Rows, SeqId, Sequence, Want};
pub use request::{CancelToken, DraftWith, Request, RequestRule};
pub use scheduler::{Finished, Job, JobEvent, JobId, Refused, Scheduler, SchedulerOptions, Service, Status, Totals};
pub use stats::{AheadStats, ForgivenStats, PositionStats, SpeculationStats, Timings};
pub use stream::{Event, HostStream, Stream, wait_on_host};
pub use text::{TokenRole, TokenText};
pub use vocabulary::VocabularyMap;
pub use watch::{MemoryUse, MemoryWatch, peak_resident_memory, resident_memory};
