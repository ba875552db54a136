//! The queries that pass over keys and values together.

use std::ops::Range;

use super::kernels::{Join, MAX_QUERIES, Panels, UNSEEN, Weights, Window, accumulate, scores};
use super::{Attention, CHUNK, LANES};
use crate::SharedSlice;
use crate::kv::{BLOCK_TOKENS, KvElement};

/// Groups of positions in a chunk.
const CHUNK_GROUPS: usize = CHUNK / LANES;

/// Neighbouring queries of one run and key head. They are numbered by row of the run, then head of the key head.
#[derive(Debug)]
pub(super) struct Unit {
    /// Number of the run.
    pub(super) run: usize,
    pub(super) kv_head: usize,
    pub(super) first: usize,
    pub(super) count: usize,
    /// Query heads of the key head.
    pub(super) per_head: usize,
    /// Chunks that its rows see, all taken together.
    pub(super) chunks: Range<usize>,
}

impl Unit {
    /// Numbers in the result of a unit over a chunk: a greatest score and a sum of weights for each query, then weighted
    /// values `[query][head_dim]`.
    pub(super) fn result_length(&self, head_dim: usize) -> usize {
        self.count * (2 + head_dim)
    }

    /// The queries of tile `tile`.
    fn tile(&self, tile: usize) -> Range<usize> {
        tile * MAX_QUERIES..self.count.min((tile + 1) * MAX_QUERIES)
    }
}

/// The queries of one row within a tile.
#[derive(Clone, Debug)]
struct TileRow {
    tile: usize,
    row: usize,
    /// Positions that the row sees, its own included.
    positions: Range<usize>,
    window: Window,
    /// Whether some of them must be gathered.
    gathers: bool,
}

/// What is gathered.
#[derive(Clone, Copy)]
enum Side {
    Keys,
    Values,
}

/// What one thread needs besides its output.
#[derive(Debug, Default)]
pub(super) struct Scratch<E> {
    rows: Vec<TileRow>,
    /// Per tile `[head_dim][query]`, scaled.
    queries: Vec<f32>,
    /// Of a chunk, `[group][query][16]`.
    scores: Vec<f32>,
    /// Keys, then values, that a row gathered.
    panel: Vec<E>,
    /// Room for the results of a unit.
    pub(super) total: Vec<f32>,
    pub(super) part: Vec<f32>,
}

impl<E: KvElement> Attention<'_, E> {
    /// Row of the pass and head of query `j` of a unit.
    fn query(&self, unit: &Unit, j: usize) -> (usize, usize) {
        let at = unit.first + j;
        let row = self.plan.runs[unit.run].rows.start + at / unit.per_head;
        (row, unit.kv_head * unit.per_head + at % unit.per_head)
    }

    /// Packs the queries of a unit and finds out what their rows see.
    pub(super) fn prepare(&self, unit: &Unit, scratch: &mut Scratch<E>) {
        let head_dim = self.arena.shape().head_dim;
        let scale = self.scoring.scale;
        scratch.rows.clear();
        scratch.queries.resize(scratch.queries.len().max(unit.count * head_dim), 0.0);
        scratch.scores.resize(CHUNK * MAX_QUERIES, 0.0);
        for tile in 0..unit.count.div_ceil(MAX_QUERIES) {
            let range = unit.tile(tile);
            let packed = &mut scratch.queries[range.start * head_dim..range.end * head_dim];
            let mut last_row = None;
            for (j, query) in range.clone().enumerate() {
                let (row, head) = self.query(unit, query);
                let at = (row * self.heads + head) * head_dim;
                let values = &self.queries[at..at + head_dim];
                for (packed, value) in packed.chunks_exact_mut(range.len()).zip(values) {
                    packed[j] = value * scale;
                }
                if last_row == Some(row) {
                    if let Some(tile_row) = scratch.rows.last_mut() {
                        tile_row.window.count += 1;
                    }
                    continue;
                }
                last_row = Some(row);
                let planned = &self.plan.rows[row];
                scratch.rows.push(TileRow {
                    tile,
                    row,
                    positions: self.seen(planned),
                    window: Window { stride: range.len(), first: j, count: 1 },
                    gathers: planned.ancestors.is_some(),
                });
            }
        }
    }

    /// Attends to the positions of `chunk` and writes the unit's result over them; `next` says that the chunk behind
    /// follows at once. [`prepare`](Self::prepare) was called.
    pub(super) fn chunk(&self, unit: &Unit, chunk: usize, next: bool, scratch: &mut Scratch<E>, result: &mut [f32]) {
        let shape = self.arena.shape();
        let head_dim = shape.head_dim;
        let run = &self.plan.runs[unit.run];
        let blocks = &self.plan.blocks[run.blocks.clone()];
        let start = chunk * CHUNK;
        // Offsets of the keys of this chunk's groups, and of the next one's.
        let mut groups = [0; 2 * CHUNK_GROUPS];
        let mut known = 0;
        for (offset, first) in groups.iter_mut().zip((start..).step_by(LANES)) {
            let Some(&block) = blocks.get(first / BLOCK_TOKENS) else { break };
            *offset = shape.group_at::<E>(self.layer, block as usize, unit.kv_head, first % BLOCK_TOKENS / LANES);
            known += 1;
        }
        let (groups, next_groups) = groups[..known].split_at(known.min(CHUNK_GROUPS));
        let next_groups = if next { next_groups } else { &[] };
        // Where groups lie in a panel.
        let own: [usize; CHUNK_GROUPS] = std::array::from_fn(|group| group * shape.group_elements::<E>());
        let elements = self.arena.elements();
        // Groups, counted from the chunk's first, of committed tokens only.
        let committed = (run.committed / LANES).saturating_sub(start / LANES).min(CHUNK_GROUPS);

        let Scratch { rows, queries, scores: room, panel, .. } = scratch;
        let (statistics, values) = result.split_at_mut(2 * unit.count);
        values.fill(0.0);
        for rows in rows.chunk_by(|a, b| a.tile == b.tile) {
            let tile = rows[0].tile;
            let range = unit.tile(tile);
            let queries = &queries[range.start * head_dim..range.end * head_dim];
            let statistics = statistics.as_chunks_mut::<2>().0;
            let (statistics, values) =
                (&mut statistics[range.clone()], &mut values[range.start * head_dim..range.end * head_dim]);
            // Positions of the chunk that a row sees; none where the end is not above the start.
            let within = |position: usize| position.saturating_sub(start).min(CHUNK);
            let seen = |row: &TileRow| within(row.positions.start)..within(row.positions.end);
            let (mut earliest, mut latest, mut least, mut most) = (CHUNK, 0, CHUNK, 0);
            for Range { start, end } in rows.iter().map(seen) {
                (earliest, latest) = (earliest.min(start), latest.max(start));
                (least, most) = (least.min(end), most.max(end));
            }

            // Groups scored, and positions weighed, for all queries at once. Lanes before and past those that a row sees
            // are scored in vain and then dropped.
            let (shared_groups, shared) = if rows.iter().any(|row| row.gathers) {
                (committed, committed * LANES)
            } else {
                (most.div_ceil(LANES), least)
            };
            let (shared_groups, shared) =
                ((earliest / LANES).min(shared_groups)..shared_groups, latest.min(shared)..shared);
            let all = Window { stride: range.len(), first: 0, count: range.len() };
            let group_scores = range.len() * LANES;
            // While keys are read, the values of the same positions are fetched, and then the keys of the next chunk.
            let (values_ahead, keys_ahead) = if tile == 0 { (groups, next_groups) } else { (&[][..], &[][..]) };
            let values_ahead = (values_ahead.get(shared_groups.clone()).unwrap_or_default(), shape.values_at::<E>());
            let keys = Panels::new(head_dim, elements, &groups[shared_groups.clone()], 0, values_ahead);
            scores(self.isa, keys, queries, all, &mut room[shared_groups.start * group_scores..]);
            for row in rows {
                let positions = seen(row);
                let tail = (positions.start / LANES).max(shared_groups.end)..positions.end.div_ceil(LANES);
                if !tail.is_empty() {
                    let keys = if row.gathers {
                        self.gather(unit, row, start / LANES + tail.start, (tail.len(), Side::Keys), panel);
                        Panels::new(head_dim, panel, &own[..tail.len()], 0, (&[], 0))
                    } else {
                        Panels::new(head_dim, elements, &groups[tail.clone()], 0, (&[], 0))
                    };
                    scores(self.isa, keys, queries, row.window, &mut room[tail.start * group_scores..]);
                }
                let queries = row.window.first..row.window.first + row.window.count;
                for (statistics, query) in statistics[queries.clone()].iter_mut().zip(queries) {
                    *statistics = UNSEEN;
                    if !positions.is_empty() {
                        let positions = positions.clone();
                        let cap = self.scoring.softcap;
                        let weights = Weights { scores: room, stride: range.len(), query, positions, cap };
                        *statistics = self.isa.vectorize(weights).into();
                    }
                }
            }

            let in_place = |ahead| Panels::new(head_dim, elements, groups, shape.values_at::<E>(), ahead);
            for row in rows.iter().filter(|row| seen(row).start < shared.start) {
                let positions = seen(row).start..shared.start;
                accumulate(self.isa, in_place((&[], 0)), positions, room, row.window, values);
            }
            accumulate(self.isa, in_place((keys_ahead, 0)), shared.clone(), room, all, values);
            for row in rows {
                let positions = seen(row).start.max(shared.end)..seen(row).end;
                if positions.is_empty() {
                    continue;
                }
                let tail = positions.start / LANES..positions.end.div_ceil(LANES);
                let tail_values = if row.gathers {
                    self.gather(unit, row, start / LANES + tail.start, (tail.len(), Side::Values), panel);
                    Panels::new(head_dim, panel, &own[..tail.len()], 0, (&[], 0))
                } else {
                    Panels::new(head_dim, elements, &groups[tail.clone()], shape.values_at::<E>(), (&[], 0))
                };
                let (first, room) = (tail.start * LANES, &room[tail.start * group_scores..]);
                accumulate(
                    self.isa,
                    tail_values,
                    positions.start - first..positions.end - first,
                    room,
                    row.window,
                    values,
                );
            }
        }
    }

    /// Copies the keys or values of `count` groups of positions that `row` sees, from group `first` on, to `panel`; all
    /// positions behind the last whole group of the committed text may come from anywhere.
    fn gather(&self, unit: &Unit, row: &TileRow, first: usize, (count, side): (usize, Side), panel: &mut Vec<E>) {
        let shape = self.arena.shape();
        let head_dim = shape.head_dim;
        let elements = self.arena.elements();
        let run = &self.plan.runs[unit.run];
        let blocks = &self.plan.blocks[run.blocks.clone()];
        let ancestors = self.plan.ancestors(row.row);
        panel.resize(panel.len().max(count * shape.group_elements::<E>()), E::default());
        for position in first * LANES..row.positions.end.min((first + count) * LANES) {
            let slot = match position.checked_sub(run.committed) {
                Some(depth) => ancestors[depth] as usize,
                None => blocks[position / BLOCK_TOKENS] as usize * BLOCK_TOKENS + position % BLOCK_TOKENS,
            };
            let (from, from_lane) = shape.slot_at::<E>(self.layer, slot, unit.kv_head);
            let (to, to_lane) = ((position / LANES - first) * shape.group_elements::<E>(), position % LANES);
            let from = match side {
                Side::Keys => {
                    for d in 0..head_dim {
                        panel[to + d * LANES + to_lane] = elements[from + d * LANES + from_lane];
                    }
                    from
                }
                Side::Values => {
                    let group = from + shape.values_at::<E>();
                    let (from, to) = (group + from_lane * head_dim, to + to_lane * head_dim);
                    panel[to..to + head_dim].copy_from_slice(&elements[from..from + head_dim]);
                    group
                }
            };
            let (from, to) = (from + shape.scale_at::<E>(from_lane), to + shape.scale_at::<E>(to_lane));
            panel[to..to + E::SCALE_ELEMENTS].copy_from_slice(&elements[from..from + E::SCALE_ELEMENTS]);
        }
    }

    /// Joins the result of the next chunk to that of all before it.
    pub(super) fn join(&self, unit: &Unit, total: &mut [f32], part: &[f32]) {
        let head_dim = self.arena.shape().head_dim;
        let (statistics, values) = total.split_at_mut(2 * unit.count);
        let (part_statistics, part_values) = part.split_at(2 * unit.count);
        let total = statistics.as_chunks_mut::<2>().0.iter_mut().zip(values.chunks_exact_mut(head_dim));
        let part = part_statistics.as_chunks::<2>().0.iter().zip(part_values.chunks_exact(head_dim));
        for (total, chunk) in total.zip(part).filter(|(_, (statistics, _))| **statistics != UNSEEN) {
            self.isa.vectorize(Join { total, chunk });
        }
    }

    /// Writes what a unit's queries attended to.
    pub(super) fn finish(&self, unit: &Unit, total: &[f32], out: &SharedSlice<'_, f32>) {
        let head_dim = self.arena.shape().head_dim;
        let (statistics, values) = total.split_at(2 * unit.count);
        let sums = statistics.as_chunks::<2>().0.iter().map(|[_, sum]| sum);
        for (j, (sum, values)) in sums.zip(values.chunks_exact(head_dim)).enumerate() {
            let (row, head) = self.query(unit, j);
            let at = (row * self.heads + head) * head_dim;
            // SAFETY: each (row, head) belongs to one unit.
            let target = unsafe { out.slice(at..at + head_dim) };
            for (target, value) in target.iter_mut().zip(values) {
                *target = value / sum;
            }
        }
    }
}
