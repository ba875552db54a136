//! The device seam: what the engine asks of a model, on any device.

use std::fmt;
use std::sync::Arc;

use spec_core::Token;

use crate::{RuntimeError, Stream};

/// A sequence of one model: a slot and the generation that tells reuse of the slot apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SeqId {
    /// Index of the slot.
    pub slot: u32,
    /// How often the slot had been used before.
    pub generation: u32,
}

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// What a model is, as far as the engine must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// Name shown to people.
    pub name: String,
    /// Device and kernels shown to people, such as `cpu (avx512-vnni, 2 threads)`.
    pub device: String,
    /// Width of a row of logits; at least the number of real tokens.
    pub vocab: usize,
    /// Positions a sequence can have.
    pub context: usize,
    /// Rows that one pass may carry.
    pub max_rows: usize,
}

impl ModelConfig {
    /// Refuses a pass of more rows than one may carry, or with a token that the model does not have.
    ///
    /// # Errors
    /// [`RuntimeError::BadRow`] or [`RuntimeError::BadToken`].
    pub fn check(&self, rows: &[Row]) -> Result<(), RuntimeError> {
        let &Self { vocab, max_rows, .. } = self;
        if rows.len() > max_rows {
            let reason = format!("a pass carries {max_rows} rows, {} were given", rows.len());
            return Err(RuntimeError::BadRow { row: max_rows, reason });
        }
        match rows.iter().find(|row| row.token as usize >= vocab) {
            Some(row) => Err(RuntimeError::BadToken { token: row.token, vocab }),
            None => Ok(()),
        }
    }
}

/// What a model's KV cache is used for, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KvUsage {
    /// Tokens that a block holds.
    pub block_tokens: usize,
    /// Blocks of the pool.
    pub total: usize,
    /// Blocks that no sequence holds.
    pub free: usize,
    /// Those of them that hold a prefix which [`Model::adopt`] would find.
    pub cached: usize,
    /// Blocks that more than one sequence holds.
    pub shared: usize,
}

/// What a pass must deliver for a row.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Only the keys and values are stored.
    Nothing,
    /// The row's logits, `f32` per token id.
    Logits,
    /// The logits of the tokens on the model's shortlist ([`Model::shortlist`]) at least; those not computed are `-inf`.
    /// For drafts, where a token that is missing costs an acceptance and nothing else.
    Shortlist,
    /// The row's most probable token, and its logits only where that needs them ([`Rows::verdict`]). Asked only of models
    /// that [give verdicts](Model::gives_verdicts).
    Verdict,
}

/// One row of a pass: a token to be stored and, if wanted, scored.
///
/// Rows of a sequence are numbered within its open reservation in the order of submission,
/// over all passes of that reservation; `parent` speaks of those numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The sequence that the row belongs to; it must hold an open reservation.
    pub seq: SeqId,
    /// The token at this row.
    pub token: Token,
    /// Its logical position: the committed length plus its depth below the committed text.
    pub position: usize,
    /// The row it follows, by number within the reservation; `None` follows the committed text.
    /// The row sees the committed text, its ancestors, and itself.
    pub parent: Option<u32>,
    /// What is to be delivered for it.
    pub want: Want,
}

/// The rows of one pass, of any number of sequences.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Rows in the order in which results are indexed.
    pub rows: Vec<Row>,
}

impl Batch {
    /// A chain of `tokens` that continues `seq` at `position`, following row `parent`.
    /// `want_last` is what the last row delivers; the others deliver nothing.
    pub fn chain(seq: SeqId, tokens: &[Token], position: usize, parent: Option<u32>, want_last: Want) -> Self {
        let first = parent.map_or(0, |p| p + 1);
        let rows = tokens
            .iter()
            .enumerate()
            .map(|(i, &token)| Row {
                seq,
                token,
                position: position + i,
                parent: if i == 0 { parent } else { Some(first + i as u32 - 1) },
                want: if i + 1 == tokens.len() { want_last } else { Want::Nothing },
            })
            .collect();
        Self { rows }
    }
}

/// Results of a pass, indexed like its batch.
pub trait Rows: Send {
    /// The logits of a row that was submitted with [`Want::Logits`] or [`Want::Shortlist`]: `f32`, [`ModelConfig::vocab`] wide.
    /// Of a row submitted with [`Want::Verdict`] they may have to be brought from the device first.
    ///
    /// # Errors
    /// [`RuntimeError::NotWanted`] for a row that asked for nothing.
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError>;

    /// The most probable token of a row that was submitted with [`Want::Verdict`], over all [`ModelConfig::vocab`] tokens.
    ///
    /// `None`: the logits have to say. A device may leave to them whatever it is not sure of, and has to where the lowest id
    /// of several equals is asked for, or where there is NaN or plus infinity. A token that is given is the only greatest one
    /// of the logits that [`logits`](Self::logits) would give.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn verdict(&self, row: usize) -> Result<Option<Token>, RuntimeError> {
        let _ = row;
        Ok(None)
    }
}

/// A pass under way. Dropping it abandons the results; the stored rows stay until their guard settles.
pub trait Pass: Send {
    /// Waits for the pass and gives its results.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError>;
}

/// A model on some device. Object-safe; methods take `&self`, state is behind the model's own locks.
///
/// The KV cache is speculated: [`reserve`](Model::reserve) opens room, passes fill it, and
/// [`settle`](Model::settle) keeps one root-first path of it and forgets the rest. Callers hold
/// reservations through [`KvGuard`](crate::KvGuard), which settles when it is dropped.
pub trait Model: Send + Sync {
    /// What the model is.
    fn config(&self) -> &ModelConfig;

    /// Does what was put off until the model is used, such as loading its weights.
    ///
    /// # Errors
    /// Whatever that reports.
    fn prepare(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Opens an empty sequence.
    ///
    /// # Errors
    /// When the device has no room for another one.
    fn open(&self) -> Result<SeqId, RuntimeError>;

    /// Closes a sequence and frees what it holds, an open reservation included. Unknown ids are ignored.
    fn close(&self, seq: SeqId);

    /// Tokens of the sequence that are committed to the KV cache.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownSequence`].
    fn kv_len(&self, seq: SeqId) -> Result<usize, RuntimeError>;

    /// Opens room for `rows` rows beyond the committed ones.
    ///
    /// # Errors
    /// [`RuntimeError::ReservationOpen`], [`RuntimeError::KvExhausted`], [`RuntimeError::ContextExceeded`]
    /// (when not even a chain of one row fits) or [`RuntimeError::UnknownSequence`]; nothing is held then.
    fn reserve(&self, seq: SeqId, rows: usize) -> Result<(), RuntimeError>;

    /// Ends the open reservation, keeping `path`: numbers of submitted rows, root first, each the
    /// parent of the next. An empty path rolls everything back.
    ///
    /// # Errors
    /// [`RuntimeError::BadPath`] (the reservation is rolled back then) or [`RuntimeError::UnknownSequence`].
    fn settle(&self, seq: SeqId, path: &[u32]) -> Result<(), RuntimeError>;

    /// Forgets the committed tokens of a sequence behind the first `length`. `false`: the model cannot, and the sequence is as it
    /// was; whoever asked opens another one.
    ///
    /// # Errors
    /// [`RuntimeError::ReservationOpen`] or [`RuntimeError::UnknownSequence`].
    fn truncate(&self, seq: SeqId, length: usize) -> Result<bool, RuntimeError> {
        let _ = (seq, length);
        Ok(false)
    }

    /// Fills an empty sequence with the longest beginning of `tokens` that the cache has from other sequences of `scope`, and gives its
    /// length, which [`kv_len`](Model::kv_len) is then. From then on the blocks that the sequence fills can be found by others of
    /// that scope, after it is closed too, for as long as the device has no other use for them. A sequence that never adopts shares
    /// nothing.
    ///
    /// The rows adopted are those that a prefill would compute, so nothing but time may depend on the length. A model that
    /// shares nothing gives 0.
    ///
    /// # Errors
    /// [`RuntimeError::SequenceNotEmpty`], [`RuntimeError::ReservationOpen`], [`RuntimeError::UnknownSequence`], or what copying rows
    /// on the device reports.
    fn adopt(&self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        let _ = (seq, scope, tokens);
        Ok(0)
    }

    /// What the KV cache is used for; `None` where the model does not tell.
    fn kv_usage(&self) -> Option<KvUsage> {
        None
    }

    /// Whether the device finds the most probable token of a row by itself, and so cheaply that [`Want::Verdict`] is worth
    /// asking for. `false`: it is never asked for.
    fn gives_verdicts(&self) -> bool {
        false
    }

    /// Adds tokens to the model's shortlist, which all its sequences share. `false`: the model keeps none, and
    /// [`Want::Shortlist`] is [`Want::Logits`].
    ///
    /// # Errors
    /// When the device has no memory for it.
    fn shortlist(&self, tokens: &[Token]) -> Result<bool, RuntimeError> {
        let _ = tokens;
        Ok(false)
    }

    /// Starts a pass on `stream`.
    ///
    /// # Errors
    /// [`RuntimeError::BadRow`] when a row contradicts the state of its sequence; no row is stored then.
    #[doc(alias = "target_forward")]
    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError>;
}

/// A sequence that closes itself.
pub struct Sequence {
    model: Arc<dyn Model>,
    id: SeqId,
}

impl Sequence {
    /// Opens an empty sequence of `model`.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open(model: &Arc<dyn Model>) -> Result<Self, RuntimeError> {
        Ok(Self { model: Arc::clone(model), id: model.open()? })
    }

    /// Its id within the model.
    pub fn id(&self) -> SeqId {
        self.id
    }

    /// The model that holds it.
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// Tokens committed to the KV cache.
    ///
    /// # Errors
    /// As [`Model::kv_len`].
    pub fn kv_len(&self) -> Result<usize, RuntimeError> {
        self.model.kv_len(self.id)
    }

    /// Begins with what the cache has of `tokens` from other sequences of `scope`; gives its length.
    ///
    /// # Errors
    /// As [`Model::adopt`].
    pub fn adopt(&self, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        self.model.adopt(self.id, scope, tokens)
    }

    /// Forgets the committed tokens behind the first `length`; `false` when the model cannot, and there are more.
    ///
    /// # Errors
    /// As [`Model::truncate`].
    pub fn truncate(&self, length: usize) -> Result<bool, RuntimeError> {
        Ok(self.kv_len()? <= length || self.model.truncate(self.id, length)?)
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.model.close(self.id);
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sequence({} of {})", self.id, self.model.config().name)
    }
}
