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
    /// Children of one parent are drawn in one go, and after those that were not drawn: the law of each draw is fixed by the
    /// siblings before it.
    #[error(
        "draft tree: children were already drawn below {}; draw all children of a parent at once, and add fixed ones before",
        parent_name(.parent)
    )]
    AlreadyDrawn {
        /// The parent; `None` is the committed text.
        parent: Option<NodeId>,
    },
    /// A node that was drawn cannot be removed: choosing which draws are judged by what they came to biases the output.
    #[error(
        "draft tree: node {} was drawn and must be submitted; decide on the length before drawing", .node.index()
    )]
    Drawn {
        /// The node.
        node: NodeId,
    },
    /// The tree holds as many nodes as a node id can name.
    #[error("draft tree: {nodes} nodes is as many as a node id can name; draft fewer")]
    TooLarge {
        /// Nodes in the tree.
        nodes: usize,
    },
}

fn parent_name(parent: &Option<NodeId>) -> alloc::string::String {
    parent.map_or_else(|| "the committed text".into(), |parent| alloc::format!("node {}", parent.index()))
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
    /// The rule judges chains, and a node has two children or a second one follows the committed text.
    #[error("rule {rule}: node {} branches off, and the rule judges chains only; draft one child per node", .node.index())]
    Branching {
        /// The rule.
        rule: &'static str,
        /// The first node that does not continue the one before it.
        node: NodeId,
    },
    /// The rule compares with the drafter's probability, and a node was proposed without one.
    #[error(
        "rule {rule}: node {} carries no probability of the drafter's; draft with a model, or choose another rule",
        .node.index()
    )]
    NoConfidence {
        /// The rule.
        rule: &'static str,
        /// The node.
        node: NodeId,
    },
}

/// A name or a parameter that does not stand in the table of rules or of length policies.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// No entry has this name.
    #[error("no {table} is called `{name}`; there are: {known}")]
    Unknown {
        /// Which table.
        table: &'static str,
        /// The name given.
        name: alloc::string::String,
        /// All names, with a `:x` behind those that take a parameter.
        known: alloc::string::String,
    },
    /// The entry takes no parameter, or not this one.
    #[error("{table} {name}: `{value}` is not a value for it; it takes {takes}")]
    Parameter {
        /// Which table.
        table: &'static str,
        /// The entry.
        name: &'static str,
        /// The text behind the colon.
        value: alloc::string::String,
        /// What it takes, in words.
        takes: &'static str,
    },
}

impl NameError {
    /// With the known names, each with whether it takes a parameter.
    pub(crate) fn unknown<'a>(table: &'static str, name: &str, known: impl Iterator<Item = (&'a str, bool)>) -> Self {
        let mut list = alloc::string::String::new();
        for (name, parameter) in known {
            if !list.is_empty() {
                list.push_str(", ");
            }
            list.push_str(name);
            if parameter {
                list.push_str(":x");
            }
        }
        Self::Unknown { table, name: name.into(), known: list }
    }
}
