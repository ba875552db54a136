//! Bookkeeping of a paged, speculated KV cache, for those who implement a [`Model`](crate::Model).
//!
//! It decides where each row lives and which rows survive a round; it holds no keys and no values.
//! A *slot* is a place for one token: `block * block_tokens + offset`. The committed token at position
//! `i` lies at offset `i % block_tokens` of the sequence's block `i / block_tokens`; row `r` of the open
//! reservation lies where position `committed + r` would, whatever its own position is. Committing a
//! path moves its rows down to their positions.

#[cfg(test)]
mod tests;

use crate::{Row, RuntimeError, SeqId};

/// Where a submitted row lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Slot in the pool.
    pub slot: usize,
    /// Number of the row within its reservation.
    pub row: u32,
}

/// A token that a commit moves from one slot to another. Moves are to be done in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Slot to read.
    pub from: usize,
    /// Slot to write.
    pub to: usize,
}

#[derive(Debug)]
struct Reservation {
    capacity: usize,
    parents: Vec<Option<u32>>,
    /// Depth below the committed text, 0 for a row that follows it.
    depths: Vec<u32>,
}

#[derive(Debug)]
struct SeqState {
    blocks: Vec<u32>,
    committed: usize,
    reservation: Option<Reservation>,
}

#[derive(Debug)]
struct SeqSlot {
    generation: u32,
    state: Option<SeqState>,
}

/// Block tables of all sequences of one pool.
#[derive(Debug)]
pub struct PagedKv {
    block_tokens: usize,
    context: usize,
    total_blocks: usize,
    free: Vec<u32>,
    slots: Vec<SeqSlot>,
}

impl PagedKv {
    /// A pool of `blocks` blocks of `block_tokens` tokens, for sequences of at most `context` positions.
    ///
    /// # Panics
    /// When a block holds no token, or the pool has more blocks than a `u32` counts.
    pub fn new(blocks: usize, block_tokens: usize, context: usize) -> Self {
        assert!(block_tokens > 0, "a block holds at least one token");
        let last = u32::try_from(blocks).expect("block numbers are u32");
        Self { block_tokens, context, total_blocks: blocks, free: (0..last).rev().collect(), slots: Vec::new() }
    }

    /// Tokens a block holds.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// Blocks in the pool.
    pub fn total_blocks(&self) -> usize {
        self.total_blocks
    }

    /// Blocks that no sequence holds.
    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Opens an empty sequence.
    pub fn open(&mut self) -> SeqId {
        let state = Some(SeqState { blocks: Vec::new(), committed: 0, reservation: None });
        match self.slots.iter_mut().enumerate().find(|(_, s)| s.state.is_none()) {
            Some((slot, entry)) => {
                entry.generation = entry.generation.wrapping_add(1);
                entry.state = state;
                SeqId { slot: slot as u32, generation: entry.generation }
            }
            None => {
                self.slots.push(SeqSlot { generation: 0, state });
                SeqId { slot: self.slots.len() as u32 - 1, generation: 0 }
            }
        }
    }

    /// Closes a sequence and frees its blocks; an id that is not open is ignored.
    pub fn close(&mut self, seq: SeqId) {
        if let Some(entry) = self.slots.get_mut(seq.slot as usize)
            && entry.generation == seq.generation
            && let Some(state) = entry.state.take()
        {
            self.free.extend(state.blocks);
        }
    }

    /// Tokens of the sequence that are committed.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownSequence`].
    pub fn committed(&self, seq: SeqId) -> Result<usize, RuntimeError> {
        Ok(self.state(seq)?.committed)
    }

    /// The sequence's blocks, in position order, those of the open reservation included.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownSequence`].
    pub fn blocks(&self, seq: SeqId) -> Result<&[u32], RuntimeError> {
        Ok(&self.state(seq)?.blocks)
    }

    /// Opens a reservation of `rows` rows.
    ///
    /// # Errors
    /// As [`Model::reserve`](crate::Model::reserve); nothing is held then.
    pub fn reserve(&mut self, seq: SeqId, rows: usize) -> Result<(), RuntimeError> {
        let (block_tokens, context) = (self.block_tokens, self.context);
        let free = self.free.len();
        let state = self.state_mut(seq)?;
        if state.reservation.is_some() {
            return Err(RuntimeError::ReservationOpen(seq));
        }
        if rows > 0 && state.committed >= context {
            return Err(RuntimeError::ContextExceeded { position: state.committed, context });
        }
        let wanted = (state.committed + rows).div_ceil(block_tokens);
        let needed = wanted.saturating_sub(state.blocks.len());
        if needed > free {
            return Err(RuntimeError::KvExhausted { needed, free, block_tokens });
        }
        state.reservation = Some(Reservation { capacity: rows, parents: Vec::new(), depths: Vec::new() });
        let fresh = self.free.split_off(free - needed);
        self.state_mut(seq)?.blocks.extend(fresh.into_iter().rev());
        Ok(())
    }

    /// Places the rows of a batch, in order, checking each against its sequence.
    ///
    /// # Errors
    /// [`RuntimeError::BadRow`]; no row of the batch is placed then.
    pub fn append(&mut self, rows: &[Row]) -> Result<Vec<Place>, RuntimeError> {
        let mut places = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            match self.append_one(row) {
                Ok(place) => places.push(place),
                Err(reason) => {
                    for placed in rows[..index].iter().rev() {
                        if let Ok(state) = self.state_mut(placed.seq)
                            && let Some(reservation) = &mut state.reservation
                        {
                            reservation.parents.pop();
                            reservation.depths.pop();
                        }
                    }
                    return Err(RuntimeError::BadRow { row: index, reason });
                }
            }
        }
        Ok(places)
    }

    fn append_one(&mut self, row: &Row) -> Result<Place, String> {
        let (block_tokens, context) = (self.block_tokens, self.context);
        let state = self.state_mut(row.seq).map_err(|e| e.to_string())?;
        let committed = state.committed;
        let Some(reservation) = &mut state.reservation else {
            return Err(format!("sequence {} has no open reservation", row.seq));
        };
        let number = reservation.parents.len();
        if number >= reservation.capacity {
            return Err(format!("the reservation of sequence {} holds {} rows", row.seq, reservation.capacity));
        }
        let depth = match row.parent {
            None => 0,
            Some(parent) => match reservation.depths.get(parent as usize) {
                Some(depth) => depth + 1,
                None => return Err(format!("parent {parent} has not been submitted; {number} rows have")),
            },
        };
        let position = committed + depth as usize;
        if row.position != position {
            return Err(format!("position {} given, {position} follows from its parent", row.position));
        }
        if position >= context {
            return Err(format!("position {position} is past the context of {context}"));
        }
        reservation.parents.push(row.parent);
        reservation.depths.push(depth);
        let linear = committed + number;
        let block = state.blocks[linear / block_tokens] as usize;
        Ok(Place { slot: block * block_tokens + linear % block_tokens, row: number as u32 })
    }

    /// The row and its ancestors within the reservation, root first, as row numbers.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownSequence`]; a row that was not submitted gives an empty path.
    pub fn path(&self, seq: SeqId, row: u32) -> Result<Vec<u32>, RuntimeError> {
        let state = self.state(seq)?;
        let mut path = Vec::new();
        if let Some(reservation) = &state.reservation {
            let mut next = Some(row);
            while let Some(number) = next {
                let Some(parent) = reservation.parents.get(number as usize) else { return Ok(Vec::new()) };
                path.push(number);
                next = *parent;
            }
            path.reverse();
        }
        Ok(path)
    }

    /// Slot of row `row` of the open reservation.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownSequence`].
    ///
    /// # Panics
    /// When the row lies outside the reservation.
    pub fn row_slot(&self, seq: SeqId, row: u32) -> Result<usize, RuntimeError> {
        let state = self.state(seq)?;
        let linear = state.committed + row as usize;
        Ok(state.blocks[linear / self.block_tokens] as usize * self.block_tokens + linear % self.block_tokens)
    }

    /// Ends the open reservation and keeps `path`. The moves returned must be done before anything else
    /// is reserved: they read blocks that are free already.
    ///
    /// # Errors
    /// [`RuntimeError::BadPath`], the reservation being rolled back; [`RuntimeError::UnknownSequence`].
    pub fn settle(&mut self, seq: SeqId, path: &[u32]) -> Result<Vec<Move>, RuntimeError> {
        let block_tokens = self.block_tokens;
        let state = self.state_mut(seq)?;
        let committed = state.committed;
        let reservation = state.reservation.take();
        let checked = check_path(reservation.as_ref(), path);
        let mut moves = Vec::new();
        if checked.is_ok() {
            let slot =
                |linear: usize| state.blocks[linear / block_tokens] as usize * block_tokens + linear % block_tokens;
            for (depth, &row) in path.iter().enumerate() {
                if row as usize != depth {
                    moves.push(Move { from: slot(committed + row as usize), to: slot(committed + depth) });
                }
            }
            state.committed += path.len();
        }
        let kept = state.committed.div_ceil(block_tokens);
        let released = state.blocks.split_off(kept.min(state.blocks.len()));
        self.free.extend(released.into_iter().rev());
        match checked {
            Ok(()) => Ok(moves),
            Err(reason) => Err(RuntimeError::BadPath { path: path.to_vec(), reason }),
        }
    }

    /// Forgets the committed tokens behind the first `length` and frees the blocks that only they were in. Where there are no
    /// more than `length`, nothing changes.
    ///
    /// # Errors
    /// As [`Model::truncate`](crate::Model::truncate); nothing is forgotten then.
    pub fn truncate(&mut self, seq: SeqId, length: usize) -> Result<(), RuntimeError> {
        let block_tokens = self.block_tokens;
        let state = self.state_mut(seq)?;
        if state.reservation.is_some() {
            return Err(RuntimeError::ReservationOpen(seq));
        }
        if length < state.committed {
            state.committed = length;
            let released = state.blocks.split_off(length.div_ceil(block_tokens));
            self.free.extend(released.into_iter().rev());
        }
        Ok(())
    }

    fn state(&self, seq: SeqId) -> Result<&SeqState, RuntimeError> {
        self.slots
            .get(seq.slot as usize)
            .filter(|entry| entry.generation == seq.generation)
            .and_then(|entry| entry.state.as_ref())
            .ok_or(RuntimeError::UnknownSequence(seq))
    }

    fn state_mut(&mut self, seq: SeqId) -> Result<&mut SeqState, RuntimeError> {
        self.slots
            .get_mut(seq.slot as usize)
            .filter(|entry| entry.generation == seq.generation)
            .and_then(|entry| entry.state.as_mut())
            .ok_or(RuntimeError::UnknownSequence(seq))
    }
}

fn check_path(reservation: Option<&Reservation>, path: &[u32]) -> Result<(), &'static str> {
    if path.is_empty() {
        return Ok(());
    }
    let Some(reservation) = reservation else { return Err("no reservation is open") };
    let mut parent = None;
    for &row in path {
        match reservation.parents.get(row as usize) {
            None => return Err("a row was not submitted"),
            Some(&given) if given != parent => return Err("a row does not follow the one before it"),
            Some(_) => parent = Some(row),
        }
    }
    Ok(())
}
