//! The algorithms of speculative decoding, apart from any model or device.
//!
//! A cheap *drafter* proposes a [`DraftTree`] of tokens, a *target* model scores all of them in one pass, and an
//! [`AcceptanceRule`] decides which path of the tree stands and which token follows it. This crate holds the three parts
//! that have to be right for the output to stay what the target alone would have written:
//!
//! - [`Pipeline`]: logits (`f32`, one per token id) to a [`Law`], by penalties, bias, mask, temperature, top-k, top-p and
//!   min-p, in that order; one function for target rows and drafter rows.
//! - [`Noise`]: the Gumbel noise that target and drafter share, a pure function of (seed, position, token id).
//! - The rules: [`Greedy`] and [`Coupled`]. Under both, the emitted tokens are those that plain decoding emits, token for
//!   token, whatever the drafter proposes.
//!
//! Nothing here needs the standard library, a clock, a thread or a source of entropy: equal inputs give equal outputs on
//! every platform, because probabilities and noise are formed in `f64` from IEEE basic operations only.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod choices;
mod error;
mod history;
mod law;
mod length;
mod logprob;
mod math;
mod noise;
mod params;
mod path;
mod pipeline;
mod rule;
mod scan;
mod select;
mod tree;

pub use choices::{ChoiceKey, Choices, KeyedChoices, Purpose};
pub use error::{SamplingError, TreeError, VerifyError};
pub use law::Law;
pub use length::{Fixed, LengthPolicy};
pub use logprob::{TokenLogProb, log_probabilities, top_log_probabilities};
pub use noise::{Noise, NoiseKeys};
pub use params::SamplingParams;
pub use path::{FlatRows, LogitRows, PathLaws, PathMasks, TargetLaws};
pub use pipeline::{Pipeline, Scratch, TokenMask};
pub use rule::{AcceptanceRule, Coupled, Greedy, Outcome, Proposal, Rejection, RejectionReason};
pub use scan::{Filter, NoiseScan, Race, ScalarScan, SharedNoise};
pub use tree::{DraftTree, Node, NodeId, Origin, SmallPath};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A token id, an index into a row of logits.
pub type Token = u32;
