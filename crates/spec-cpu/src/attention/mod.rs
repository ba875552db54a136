//! Attention over the paged cache, reduced over logical positions.
//!
//! The numbers of a row depend on its own query and on the keys and values of its own positions, never on the rows
//! beside it, on slots, or on the split over threads:
//!
//! - a score is a chain of products over `head_dim`, in order, for the position's lane (`position % 16`);
//! - positions are cut into chunks of [`CHUNK`], counted from position 0. Within a chunk the sum of weights is kept per
//!   lane over the groups of 16 positions, in order, then over the lanes, in order; the output is a chain over the
//!   positions, in order; positions past the row's own are never multiplied;
//! - chunks are joined in order.
//!
//! In a layer with a sliding window a row sees the newest positions only. Chunks, groups and lanes stay where they are: what
//! lies before the window has weights of exactly zero, or is not looked at, which is the same, as every sum begins at zero.
//!
//! The queries of all rows and heads that read the same keys pass over a chunk together, while it is in the cache.
//!
//! A row whose ancestors lie where committed tokens would (a chain) reads the cache in place. Another row gathers
//! the positions from the last whole group of the committed text on into a panel of the cache's layout, so that the
//! arithmetic is that of a chain.

mod kernels;
mod plan;
#[cfg(test)]
mod tests;
mod unit;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use kernels::MAX_QUERIES;
pub(crate) use plan::AttentionPlan;
use plan::PlannedRow;
use unit::{Scratch, Unit};

use crate::kv::{KvArena, KvElement};
use crate::{Isa, Pool, SharedSlice};

/// Positions that share a vector.
pub(crate) const LANES: usize = 16;
/// Positions whose weights are relative to one greatest score. Keys and values of a head of 128 elements, 64 KiB each,
/// stay in the second-level cache while all queries of a unit pass over them.
pub(crate) const CHUNK: usize = 256;
/// Queries (row, head) of a unit, at most.
const UNIT_QUERIES: usize = 4 * MAX_QUERIES;
/// Multiply-adds below which a parallel region costs more than it saves.
const WORTH_A_REGION: usize = 40_000;
/// Parts of the work per thread, for balance.
const PARTS_PER_THREAD: usize = 4;

/// Scratch memory for as many threads as work at once, and for results that threads pass on.
#[derive(Debug)]
pub(crate) struct AttentionScratch<E> {
    threads: Vec<Mutex<Scratch<E>>>,
    /// Results of chunks, where threads split the chunks of a unit.
    chunks: Mutex<Vec<f32>>,
}

impl<E: KvElement> AttentionScratch<E> {
    pub(crate) fn new(threads: usize) -> Self {
        let threads = (0..threads.max(1)).map(|_| Mutex::new(Scratch::default())).collect();
        Self { threads, chunks: Mutex::default() }
    }

    /// Runs `work` with scratch that no other thread uses.
    fn with<R>(&self, work: impl FnOnce(&mut Scratch<E>) -> R) -> R {
        match self.threads.iter().find_map(Mutex::try_lock) {
            Some(mut scratch) => work(&mut scratch),
            // Only if more threads than announced work at once.
            None => work(&mut self.threads[0].lock()),
        }
    }
}

/// How products of queries and keys become scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scoring {
    /// What they are multiplied with.
    pub(crate) scale: f32,
    /// `Some(c)`: then become `c * tanh(score / c)`.
    pub(crate) softcap: Option<f32>,
}

/// One layer's attention for the rows of a pass.
pub(crate) struct Attention<'a, E: 'static> {
    pub(crate) isa: Isa,
    pub(crate) arena: &'a KvArena<E>,
    pub(crate) plan: &'a AttentionPlan,
    pub(crate) layer: usize,
    pub(crate) scoring: Scoring,
    /// Positions that a row sees, its own included; `None` means all.
    pub(crate) window: Option<usize>,
    /// Query heads; neighbours share a key head.
    pub(crate) heads: usize,
    /// Rotated queries, `[row][head][head_dim]`.
    pub(crate) queries: &'a [f32],
}

impl<E: KvElement> Attention<'_, E> {
    /// Writes `[row][head][head_dim]` for all rows.
    pub(crate) fn run(&self, pool: &Pool, scratch: &AttentionScratch<E>, out: &mut [f32]) {
        let units = self.units(pool.threads());
        let positions = match self.window {
            None => self.plan.positions,
            Some(_) => self.plan.rows.iter().map(|row| self.seen(row).len()).sum(),
        };
        let work = positions * self.heads * self.arena.shape().head_dim * 2;
        let out = SharedSlice::new(out);
        let whole = |unit: usize| scratch.with(|scratch| self.whole(&units[unit], scratch, &out));
        let chunks = units.iter().map(|unit| unit.chunks.len()).sum::<usize>();
        if work < WORTH_A_REGION || pool.threads() == 1 {
            (0..units.len()).for_each(whole);
        } else if units.len() >= PARTS_PER_THREAD * pool.threads() || chunks == units.len() {
            pool.run(units.len(), whole);
        } else {
            let at_once = chunks.div_ceil(PARTS_PER_THREAD * pool.threads());
            self.split(&units, at_once, pool, scratch, &out);
        }
    }

    /// Positions that a row sees.
    fn seen(&self, row: &PlannedRow) -> Range<usize> {
        let end = row.position + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// Cuts the queries of the pass into units.
    fn units(&self, threads: usize) -> Vec<Unit> {
        let shape = self.arena.shape();
        let per_head = self.heads / shape.kv_heads;
        let most = (self.plan.rows.len() * self.heads).div_ceil(threads).clamp(1, UNIT_QUERIES);
        let mut units = Vec::new();
        for (run, rows) in self.plan.runs.iter().map(|run| &run.rows).enumerate() {
            let queries = rows.len() * per_head;
            // Of one size, in whole tiles where there are several.
            let pieces = queries.div_ceil(most);
            let count = match pieces {
                1 => queries,
                _ if most >= MAX_QUERIES => queries.div_ceil(pieces).next_multiple_of(MAX_QUERIES).min(most),
                _ => queries.div_ceil(pieces),
            };
            for kv_head in 0..shape.kv_heads {
                for first in (0..queries).step_by(count) {
                    let count = count.min(queries - first);
                    let row = |query: usize| rows.start + query / per_head;
                    let rows = &self.plan.rows[row(first)..=row(first + count - 1)];
                    let seen = |row| self.seen(row);
                    let start = rows.iter().map(seen).map(|seen| seen.start).min().unwrap_or(0);
                    let end = rows.iter().map(seen).map(|seen| seen.end).max().unwrap_or(0);
                    let chunks = start / CHUNK..end.div_ceil(CHUNK);
                    units.push(Unit { run, kv_head, first, count, per_head, chunks });
                }
            }
        }
        units
    }

    /// All chunks of a unit, in order.
    fn whole(&self, unit: &Unit, scratch: &mut Scratch<E>, out: &SharedSlice<'_, f32>) {
        let (mut total, mut part) = (std::mem::take(&mut scratch.total), std::mem::take(&mut scratch.part));
        let length = unit.result_length(self.arena.shape().head_dim);
        total.resize(total.len().max(length), 0.0);
        part.resize(part.len().max(length), 0.0);
        self.prepare(unit, scratch);
        let Range { start, end } = unit.chunks;
        self.chunk(unit, start, start + 1 < end, scratch, &mut total[..length]);
        for chunk in start + 1..end {
            self.chunk(unit, chunk, chunk + 1 < end, scratch, &mut part[..length]);
            self.join(unit, &mut total[..length], &part[..length]);
        }
        self.finish(unit, &total[..length], out);
        (scratch.total, scratch.part) = (total, part);
    }

    /// Chunks `at_once` at a time, for threads to share those of a unit; whoever finishes a unit's last joins them.
    fn split(
        &self,
        units: &[Unit],
        at_once: usize,
        pool: &Pool,
        scratch: &AttentionScratch<E>,
        out: &SharedSlice<'_, f32>,
    ) {
        struct Piece {
            unit: usize,
            chunks: Range<usize>,
        }
        let head_dim = self.arena.shape().head_dim;
        let mut pieces = Vec::new();
        let mut starts = Vec::with_capacity(units.len());
        let mut total = 0;
        for (index, unit) in units.iter().enumerate() {
            starts.push(total);
            total += unit.chunks.len() * unit.result_length(head_dim);
            let range = |first: usize| first..unit.chunks.end.min(first + at_once);
            let firsts = unit.chunks.clone().step_by(at_once);
            pieces.extend(firsts.map(|first| Piece { unit: index, chunks: range(first) }));
        }
        let left: Vec<_> = units.iter().map(|unit| AtomicUsize::new(unit.chunks.len())).collect();
        let mut results = scratch.chunks.lock();
        if results.len() < total {
            results.resize(total, 0.0);
        }
        let results = SharedSlice::new(results.as_mut_slice());
        pool.run(pieces.len(), |piece| {
            let Piece { unit: index, ref chunks } = pieces[piece];
            let unit = &units[index];
            let length = unit.result_length(head_dim);
            let start = |chunk: usize| starts[index] + (chunk - unit.chunks.start) * length;
            scratch.with(|scratch| {
                self.prepare(unit, scratch);
                for chunk in chunks.clone() {
                    // SAFETY: each chunk of a unit belongs to one piece.
                    let result = unsafe { results.slice(start(chunk)..start(chunk + 1)) };
                    self.chunk(unit, chunk, chunk + 1 < chunks.end, scratch, result);
                }
            });
            // AcqRel: the last to come sees what all others have written.
            if left[index].fetch_sub(chunks.len(), Ordering::AcqRel) == chunks.len() {
                // SAFETY: the others are done with this unit.
                let results = unsafe { results.slice(start(unit.chunks.start)..start(unit.chunks.end)) };
                let (total, parts) = results.split_at_mut(length);
                parts.chunks_exact(length).for_each(|part| self.join(unit, total, part));
                self.finish(unit, total, out);
            }
        });
    }
}
