//! Bookkeeping of a paged, speculated KV cache, for those who implement a [`Model`](crate::Model).
//!
//! It decides where each row lives and which rows survive a round; it holds no keys and no values.
//! A *slot* is a place for one token: `block * block_tokens + offset`. The committed token at position
//! `i` lies at offset `i % block_tokens` of the sequence's block `i / block_tokens`; row `r` of the open
//! reservation lies where position `committed + r` would, whatever its own position is. Committing a
//! path moves its rows down to their positions.
//!
//! Sequences that [adopt](PagedKv::adopt) share blocks within a scope: what stands at the beginning of several texts is stored once. A
//! full block that any of them has committed can be found by its text, also after the sequence is closed, for as long as its
//! place is not needed. No block that can be found, or that two sequences hold, is written to: whoever was cut within one
//! copies it before it goes on.

mod blocks;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod tests;

use spec_core::Token;

use crate::{KvUsage, Row, RuntimeError, SeqId};
use blocks::Blocks;

/// Where a submitted row lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Slot in the pool.
    pub slot: usize,
    /// Number of the row within its reservation.
    pub row: u32,
}

/// A token that is copied from one slot to another. Moves are to be done in order, and before anything else is asked of the
/// [`PagedKv`]: they read blocks, and write to some, that are free already.
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
    tokens: Vec<Token>,
    /// Depth below the committed text, 0 for a row that follows it.
    depths: Vec<u32>,
}

#[derive(Debug)]
struct SeqState {
    blocks: Vec<u32>,
    committed: usize,
    reservation: Option<Reservation>,
    /// Whose texts it may share; `None` until it adopts.
    scope: Option<u64>,
    /// The committed tokens of a sequence that has a scope.
    text: Vec<Token>,
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
    blocks: Blocks,
    slots: Vec<SeqSlot>,
}

/// What a sequence begins with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Adopted {
    /// Committed tokens.
    pub length: usize,
    /// What is to be copied for them.
    pub moves: Vec<Move>,
}

impl PagedKv {
    /// A pool of `blocks` blocks of `block_tokens` tokens, for sequences of at most `context` positions.
    ///
    /// # Panics
    /// When a block holds no token, or the pool has more blocks than a `u32` counts.
    pub fn new(blocks: usize, block_tokens: usize, context: usize) -> Self {
        assert!(block_tokens > 0, "a block holds at least one token");
        let last = u32::try_from(blocks).expect("block numbers are u32");
        Self { block_tokens, context, blocks: Blocks::new(last), slots: Vec::new() }
    }

    /// Tokens a block holds.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// Blocks in the pool.
    pub fn total_blocks(&self) -> usize {
        self.usage().total
    }

    /// Blocks that no sequence holds.
    pub fn free_blocks(&self) -> usize {
        self.blocks.free()
    }

    /// What the pool is used for.
    pub fn usage(&self) -> KvUsage {
        self.blocks.usage(self.block_tokens)
    }

    /// Opens an empty sequence.
    pub fn open(&mut self) -> SeqId {
        let empty = SeqState { blocks: Vec::new(), committed: 0, reservation: None, scope: None, text: Vec::new() };
        let state = Some(empty);
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

    /// Closes a sequence and frees its blocks, of which a later sequence may find those that it committed in a scope. An id that is
    /// not open is ignored.
    pub fn close(&mut self, seq: SeqId) {
        if let Some(entry) = self.slots.get_mut(seq.slot as usize)
            && entry.generation == seq.generation
            && let Some(state) = entry.state.take()
        {
            self.release(state.blocks);
        }
    }

    /// Fills an empty sequence with the longest beginning of `tokens` that can be found in `scope`, and lets what it will commit be found
    /// there. Whole blocks are shared; of one that goes on otherwise the beginning is copied.
    ///
    /// # Errors
    /// As [`Model::adopt`](crate::Model::adopt); the sequence is as it was then.
    pub fn adopt(&mut self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<Adopted, RuntimeError> {
        let (block_tokens, context) = (self.block_tokens, self.context);
        let state = self.state(seq)?;
        if state.reservation.is_some() {
            return Err(RuntimeError::ReservationOpen(seq));
        }
        if state.committed > 0 {
            return Err(RuntimeError::SequenceNotEmpty { seq, length: state.committed });
        }
        let tokens = &tokens[..tokens.len().min(context)];
        let mut held: Vec<u32> = Vec::new();
        let mut parts = tokens.chunks_exact(block_tokens);
        let mut length = 0;
        while let Some(block) = parts.next().and_then(|part| self.blocks.find(scope, held.last().copied(), part)) {
            self.blocks.hold(block);
            held.push(block);
            length += block_tokens;
        }
        let mut moves = Vec::new();
        let rest = &tokens[length..];
        if let Some((source, equal)) = self.blocks.nearest(scope, held.last().copied(), rest) {
            // Held while a block is taken, which must be another one.
            self.blocks.hold(source);
            if let Some(own) = self.blocks.take() {
                moves = self.copies(source, own, equal);
                held.push(own);
                length += equal;
            }
            self.blocks.release(source);
        }
        let state = self.state_mut(seq)?;
        (state.blocks, state.committed, state.scope) = (held, length, Some(scope));
        state.text = tokens[..length].to_vec();
        Ok(Adopted { length, moves })
    }

    /// Lets no later sequence find what was committed so far, for a device that does not know any more whether it is right.
    pub fn forget_prefixes(&mut self) {
        self.blocks.forget_all();
    }

    /// The first `count` tokens of a block into another one.
    fn copies(&self, from: u32, to: u32, count: usize) -> Vec<Move> {
        let slot = |block: u32, offset: usize| block as usize * self.block_tokens + offset;
        (0..count).map(|offset| Move { from: slot(from, offset), to: slot(to, offset) }).collect()
    }

    /// Gives back the end of a sequence's blocks.
    fn release(&mut self, blocks: Vec<u32>) {
        blocks.into_iter().rev().for_each(|block| self.blocks.release(block));
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

    /// Whether a reservation will have to copy, and so to touch the cache: the sequence was cut within a block that others may read.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownSequence`].
    pub fn copies_on_reserve(&self, seq: SeqId) -> Result<bool, RuntimeError> {
        Ok(self.cut_block(self.state(seq)?).is_some())
    }

    /// The block that the next row will be written to, where others may read it.
    fn cut_block(&self, state: &SeqState) -> Option<u32> {
        let block = *state.blocks.get(state.committed / self.block_tokens)?;
        (self.blocks.is_named(block) || self.blocks.holders(block) > 1).then_some(block)
    }

    /// Opens a reservation of `rows` rows, once the moves are done.
    ///
    /// # Errors
    /// As [`Model::reserve`](crate::Model::reserve); nothing is held then.
    pub fn reserve(&mut self, seq: SeqId, rows: usize) -> Result<Vec<Move>, RuntimeError> {
        let (block_tokens, context) = (self.block_tokens, self.context);
        let free = self.free_blocks();
        let state = self.state(seq)?;
        if state.reservation.is_some() {
            return Err(RuntimeError::ReservationOpen(seq));
        }
        let committed = state.committed;
        if rows > 0 && committed >= context {
            return Err(RuntimeError::ContextExceeded { position: committed, context });
        }
        let grown = (committed + rows).div_ceil(block_tokens).saturating_sub(state.blocks.len());
        let mut cut = self.cut_block(state).filter(|_| rows > 0);
        if let Some(block) = cut
            && grown + 1 > free
            && grown <= free
            && self.blocks.holders(block) == 1
        {
            // It would be kept for others at the cost of its only holder.
            self.blocks.forget(block);
            cut = None;
        }
        let needed = grown + usize::from(cut.is_some());
        if needed > free {
            return Err(RuntimeError::KvExhausted { needed, free, block_tokens });
        }
        let mut fresh: Vec<u32> = (0..needed).filter_map(|_| self.blocks.take()).collect();
        debug_assert_eq!(fresh.len(), needed, "free blocks can be taken");
        let mut moves = Vec::new();
        if let Some(shared) = cut {
            let own = fresh.remove(0);
            moves = self.copies(shared, own, committed % block_tokens);
            self.blocks.release(shared);
            self.state_mut(seq)?.blocks[committed / block_tokens] = own;
        }
        let state = self.state_mut(seq)?;
        state.blocks.extend(fresh);
        state.reservation =
            Some(Reservation { capacity: rows, parents: Vec::new(), tokens: Vec::new(), depths: Vec::new() });
        Ok(moves)
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
                            reservation.tokens.pop();
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
        reservation.tokens.push(row.token);
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

    /// Ends the open reservation and keeps `path`, once the moves are done.
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
            if let (Some(_), Some(reservation)) = (state.scope, &reservation) {
                state.text.extend(path.iter().map(|&row| reservation.tokens[row as usize]));
            }
        }
        let kept = state.committed.div_ceil(block_tokens);
        let released = state.blocks.split_off(kept.min(state.blocks.len()));
        self.release(released);
        if checked.is_ok() {
            self.name_full_blocks(seq, committed / block_tokens)?;
        }
        match checked {
            Ok(()) => Ok(moves),
            Err(reason) => Err(RuntimeError::BadPath { path: path.to_vec(), reason }),
        }
    }

    /// Lets the sequence's full blocks from number `first` on be found. One that another sequence has committed already is shared instead.
    fn name_full_blocks(&mut self, seq: SeqId, first: usize) -> Result<(), RuntimeError> {
        let block_tokens = self.block_tokens;
        let state = self
            .slots
            .get_mut(seq.slot as usize)
            .and_then(|entry| entry.state.as_mut())
            .ok_or(RuntimeError::UnknownSequence(seq))?;
        let Some(scope) = state.scope else { return Ok(()) };
        for number in first..state.committed / block_tokens {
            let parent = number.checked_sub(1).map(|before| state.blocks[before]);
            // A text whose beginning was forgotten cannot be found by its end.
            if parent.is_some_and(|parent| !self.blocks.is_named(parent)) {
                break;
            }
            let tokens = &state.text[number * block_tokens..(number + 1) * block_tokens];
            let own = state.blocks[number];
            match self.blocks.find(scope, parent, tokens) {
                None => self.blocks.name(own, scope, parent, tokens),
                Some(known) => {
                    self.blocks.hold(known);
                    self.blocks.release(own);
                    state.blocks[number] = known;
                }
            }
        }
        Ok(())
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
            state.text.truncate(length);
            let released = state.blocks.split_off(length.div_ceil(block_tokens));
            self.release(released);
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
