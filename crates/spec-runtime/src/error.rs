use spec_core::{SamplingError, Token, TreeError, VerifyError};

/// What can go wrong between a request and its tokens.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The sequence was never opened, or has been closed.
    #[error("sequence {0} is not open: it was closed, or belongs to another model")]
    UnknownSequence(crate::SeqId),
    /// The KV pool has no room for the rows asked for.
    #[error(
        "KV cache is full: {needed} more blocks of {block_tokens} tokens are needed, {free} are free; \
         shorten the context, lower the number of sequences, or give the cache more memory"
    )]
    KvExhausted {
        /// Blocks that the reservation needs beyond those it has.
        needed: usize,
        /// Blocks that are free.
        free: usize,
        /// Tokens a block holds.
        block_tokens: usize,
    },
    /// A sequence would grow past the positions that the model knows.
    #[error("position {position} is past the context of {context} tokens; shorten the prompt or raise the context")]
    ContextExceeded {
        /// First position that does not fit.
        position: usize,
        /// Positions that the model was opened with.
        context: usize,
    },
    /// A reservation is already open for the sequence; it must be settled first.
    #[error("sequence {0} already has an open reservation; commit or roll it back first")]
    ReservationOpen(crate::SeqId),
    /// A sequence that holds tokens cannot begin with others.
    #[error("sequence {seq} holds {length} tokens already; only an empty one can adopt a prefix")]
    SequenceNotEmpty {
        /// The sequence.
        seq: crate::SeqId,
        /// Tokens that it holds.
        length: usize,
    },
    /// A batch row that contradicts the state of its sequence.
    #[error("row {row} of the batch: {reason}")]
    BadRow {
        /// Index of the row in its batch.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A commit path that is not a root-first path of submitted rows.
    #[error("commit path {path:?} is not a path of submitted rows: {reason}")]
    BadPath {
        /// The reservation-relative rows given.
        path: Vec<u32>,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Logits of a row were read that the batch did not ask for.
    #[error("row {row} was submitted without `Want::Logits`")]
    NotWanted {
        /// Index of the row in its batch.
        row: usize,
    },
    /// A request field outside its range.
    #[error("{field}: {reason}")]
    BadRequest {
        /// Name of the field.
        field: &'static str,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// Drafter and target do not share a vocabulary.
    #[error(
        "the draft model's vocabulary differs from the target's at id {id}: {draft} against {target}; \
         use a draft model of the same family, or let it draft with the tokens that both have"
    )]
    VocabularyDiffers {
        /// First id that differs.
        id: Token,
        /// The target's token.
        target: String,
        /// The drafter's token.
        draft: String,
    },
    /// A token id that the target's vocabulary does not have.
    #[error("token id {token} is out of range: the vocabulary has {vocab} tokens")]
    BadToken {
        /// The id.
        token: Token,
        /// Real tokens in the vocabulary.
        vocab: usize,
    },
    /// Processing a row of logits failed.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The acceptance rule refused what it was given.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A drafter built a malformed tree.
    #[error("drafter {drafter}: {source}")]
    Draft {
        /// The drafter's name.
        drafter: String,
        /// What was wrong with its tree.
        source: TreeError,
    },
    /// A constraint gave up, on a limit for instance.
    #[error("constraint: {reason}")]
    Constraint {
        /// Its own words.
        reason: String,
    },
    /// The device failed.
    #[error("{device}: {reason}")]
    Device {
        /// Which device.
        device: String,
        /// Its own words.
        reason: String,
    },
    /// A request's deadline passed before it had a place.
    #[error(
        "the deadline of {deadline:?} passed while the request waited for a place; allow more time, or ask again later"
    )]
    DeadlinePassed {
        /// The time that the request was given.
        deadline: std::time::Duration,
    },
    /// Code of the caller's (a drafter, a rule, a constraint, a sink) or a device's panicked in the middle of a generation.
    #[error("{during} panicked: {message}")]
    Panicked {
        /// What was under way.
        during: &'static str,
        /// What the panic said.
        message: String,
    },
}

impl RuntimeError {
    /// The same failure for each of several: the first of them gets it as it is, the others its words.
    pub(crate) fn for_all(self) -> impl FnMut() -> Self {
        let reason = self.to_string();
        let mut first = Some(self);
        move || first.take().unwrap_or_else(|| Self::Device { device: "streams".into(), reason: reason.clone() })
    }
}
