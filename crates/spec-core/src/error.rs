//! What can go wrong: each part of the crate has its own small enum, so that a caller matches only what can happen there.

use thiserror::Error;

use crate::{NodeId, Token};

/// A node that cannot be part of a draft tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The parent is not a node of this tree.
    #[error("draft tree: parent node {} does not exist in a tree of {nodes} nodes; push parents before their children", .parent.index())]
    UnknownParent {
        /// The parent asked for.
        parent: NodeId,
        /// Nodes in the tree.
        nodes: usize,
    },
    /// A sibling already carries this token. Two equal siblings would be one continuation scored twice.
    #[error("draft tree: token {token} is already a child of this parent (node {}); extend that node instead", .existing.index())]
    DuplicateSibling {
        /// The repeated token.
        token: Token,
        /// The sibling that carries it.
        existing: NodeId,
    },
    /// The tree holds as many nodes as a node id can name.
    #[error("draft tree: {nodes} nodes is as many as a node id can name; draft fewer")]
    TooLarge {
        /// Nodes in the tree.
        nodes: usize,
    },
}

/// A sampling parameter or a row of logits that has no defined law.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// A parameter is outside its range, or not a number.
    #[error("sampling: {field} is {value}; it must be {range}")]
    OutOfRange {
        /// Name of the field of [`SamplingParams`](crate::SamplingParams).
        field: &'static str,
        /// The value given.
        value: f32,
        /// The values allowed, in words.
        range: &'static str,
    },
    /// A bias is given for a token that the vocabulary does not have.
    #[error(
        "sampling: logit_bias names token {token}, but the vocabulary ends at {vocab}; remove it or use an id below {vocab}"
    )]
    BiasToken {
        /// The token named.
        token: Token,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// A bias is not a number, or plus infinity. Minus infinity is allowed and bans the token.
    #[error("sampling: logit_bias of token {token} is {value}; it must be a finite number, or -inf to ban the token")]
    BiasValue {
        /// The token named.
        token: Token,
        /// The bias given.
        value: f32,
    },
    /// The vocabulary is empty, or larger than a token id can name.
    #[error("sampling: a vocabulary of {vocab} tokens; it must have between 1 and 2^32 - 1")]
    Vocabulary {
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// The row has fewer logits than the vocabulary has tokens.
    #[error("sampling: a row of {found} logits for a vocabulary of {vocab} tokens; pass the whole row")]
    RowTooShort {
        /// Logits in the row.
        found: usize,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// A logit is NaN or plus infinity, in the row itself or after penalties and bias.
    #[error(
        "sampling: the logit of token {token} is {value}; logits must be finite, or -inf for a masked token: check the model's output"
    )]
    LogitValue {
        /// The token of that logit.
        token: Token,
        /// Its value.
        value: f32,
    },
    /// Every token of the row is masked.
    #[error("sampling: all {vocab} tokens are masked; the constraint, the bias or the model leaves nothing to sample")]
    NothingAllowed {
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// A log-probability was asked for a token that the vocabulary does not have.
    #[error("log-probability of token {token}: the vocabulary ends at {vocab}")]
    UnknownToken {
        /// The token asked for.
        token: Token,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
}

/// A draft that cannot be judged.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A target row has no law.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}
