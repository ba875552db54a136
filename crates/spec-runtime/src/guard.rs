//! The reservation of KV rows that a round speculates in.

use std::sync::Arc;

use crate::{Model, RuntimeError, SeqId, Sequence};

/// An open reservation: committed to a path, rolled back, or rolled back by being dropped.
#[doc(alias = "rollback_and_resample")]
#[must_use = "dropping the guard rolls the reservation back"]
pub struct KvGuard {
    model: Arc<dyn Model>,
    seq: SeqId,
    open: bool,
}

impl KvGuard {
    /// Opens room for `rows` rows behind the committed ones.
    ///
    /// # Errors
    /// As [`Model::reserve`].
    pub fn reserve(sequence: &Sequence, rows: usize) -> Result<Self, RuntimeError> {
        let model = Arc::clone(sequence.model());
        model.reserve(sequence.id(), rows)?;
        Ok(Self { model, seq: sequence.id(), open: true })
    }

    /// Keeps `path` (row numbers within the reservation, root first) and forgets the other rows.
    ///
    /// # Errors
    /// As [`Model::settle`].
    pub fn commit(mut self, path: &[u32]) -> Result<(), RuntimeError> {
        self.open = false;
        self.model.settle(self.seq, path)
    }

    /// Keeps the first `rows` rows of a chain.
    ///
    /// # Errors
    /// As [`Model::settle`].
    pub fn commit_chain(self, rows: usize) -> Result<(), RuntimeError> {
        let path: Vec<u32> = (0..rows as u32).collect();
        self.commit(&path)
    }

    /// Forgets all rows of the reservation.
    ///
    /// # Errors
    /// As [`Model::settle`].
    pub fn rollback(mut self) -> Result<(), RuntimeError> {
        self.open = false;
        self.model.settle(self.seq, &[])
    }
}

impl Drop for KvGuard {
    fn drop(&mut self) {
        if self.open {
            // An unknown sequence has nothing left to roll back, and no other error is possible here.
            let _ = self.model.settle(self.seq, &[]);
        }
    }
}
