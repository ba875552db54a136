//! The algorithms of speculative decoding, apart from any model or device.
//!
//! A cheap *drafter* proposes a [`DraftTree`] of tokens, a *target* model scores all of them in one pass, and an
//! [`AcceptanceRule`] decides which path of the tree stands and which token follows it. This crate holds the three parts
//! that have to be right for the output to stay what the target alone would have written:
//!
//! - [`Pipeline`]: logits (`f32`, one per token id) to a [`Law`], by penalties, bias, mask, temperature, top-k, top-p and
//!   min-p, in that order; one function for target rows and drafter rows.
//! - [`Noise`]: the Gumbel noise that target and drafter share, a pure function of (seed, position, token id).
//! - The rules, by name in [`RULES`]. Under [`Greedy`] and [`Coupled`] the emitted tokens are those that plain decoding emits, token
//!   for token, whatever the drafter proposes. Under [`RejectionRule`] and [`Block`] their law is the target's. The others are
//!   lossy and say so.
//! - [`LengthPolicy`]: how many tokens to draft next.
//!
//! Nothing here needs the standard library, a clock, a thread or a source of entropy: equal inputs give equal outputs on
//! every platform, because probabilities and noise are formed in `f64` from IEEE basic operations only.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(test, feature = "mutants"))]
extern crate std;

mod choices;
mod drawn;
mod error;
mod history;
mod law;
mod length;
mod logprob;
mod math;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutant;
#[cfg(not(feature = "mutants"))]
mod mutant;
mod noise;
mod params;
mod path;
mod pipeline;
#[cfg(test)]
mod proof;
mod proposal;
mod rows;
mod rule;
mod scan;
mod select;
mod summary;
mod tree;

pub use choices::{ChoiceKey, Choices, KeyedChoices, Purpose};
pub use drawn::Siblings;
pub use error::{NameError, SamplingError, TreeError, VerifyError};
pub use law::Law;
pub use length::{
    Additive, Ask, Average, ByPromptLength, Company, DraftCost, Fixed, Gate, Goodput, LENGTH_POLICIES,
    LatencyTolerance, LengthPolicy, LengthPolicyEntry, LengthPolicyName, Prices, Round, Start, Survey,
};
pub use logprob::{TokenLogProb, log_probabilities, top_log_probabilities};
pub use noise::{Noise, NoiseKeys};
pub use params::SamplingParams;
pub use path::{FlatRows, KnownLaws, LogitRows, PathLaws, PathMasks, TargetLaws};
pub use pipeline::{Pipeline, Scratch, TokenMask};
pub use proposal::Proposal;
pub use rows::RowKernels;
pub use rule::{
    AcceptanceRule, AdaptiveEpsilon, Block, Comparison, Coupled, Entropy, Epsilon, EpsilonPublished, Forgiven,
    Forgiveness, Greedy, LossBudget, Outcome, RULES, Rejection, RejectionReason, RejectionRule, RuleEntry, RuleName,
    Tolerance, Typical,
};
pub use scan::{Filter, NoiseScan, Race, ScalarScan, SharedNoise};
pub use summary::{BLOCK as SUMMARY_BLOCK, BlockSummary, RowSummary};
pub use tree::{DraftTree, Node, NodeId, NodeKind, Origin, Sampled, SmallPath, SmallTokens};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A token id, an index into a row of logits.
pub type Token = u32;
