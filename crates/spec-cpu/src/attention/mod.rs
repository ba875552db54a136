//! Attention over the paged cache, reduced over logical positions.
//!
//! The numbers of a row depend on its own query and on the keys and values of its own positions, never on the rows
//! beside it, on slots, or on the split over threads:
//!
//! - a score is a chain of products over `head_dim`, in order, for the position's lane (`position % 16`);
//! - the sum of weights is kept per lane over the groups of 16 positions, in order, then over the lanes, in order;
//! - the output is a chain over the positions, in order; positions past the row's own are never multiplied.
//!
//! A row whose ancestors lie where committed tokens would (a chain) reads the cache in place. Another row gathers
//! the positions from the last whole group of the committed text on into a panel of the cache's layout, so that the
//! arithmetic is that of a chain.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod plan;
mod portable;
#[cfg(test)]
mod tests;

use std::ops::Range;

use parking_lot::Mutex;

pub(crate) use plan::AttentionPlan;
use plan::Run;

use crate::kv::{BLOCK_TOKENS, KvArena, KvElement};
use crate::{Isa, Pool, SharedSlice};

/// Positions that share a vector.
pub(crate) const LANES: usize = 16;
/// Queries (row, head) that share a converted key or value.
const MAX_QUERIES: usize = 12;
/// Multiply-adds below which a parallel region costs more than it saves.
const WORTH_A_REGION: usize = 40_000;

/// The queries of a tile that a kernel is to treat: `first..first + count` of `stride` that lie side by side.
#[derive(Clone, Copy, Debug)]
struct Window {
    stride: usize,
    first: usize,
    count: usize,
}

/// Keys or values: `groups` are the offsets in `elements` of panels of `16 * head_dim` elements.
#[derive(Clone, Copy)]
struct Panels<'a, E> {
    elements: &'a [E],
    groups: &'a [usize],
    /// Added to every offset.
    shift: usize,
    head_dim: usize,
}

impl<E> Panels<'_, E> {
    /// The first `groups` groups.
    fn first(self, groups: usize) -> Self {
        Self { groups: &self.groups[..groups], ..self }
    }

    /// The elements of a group.
    fn group(&self, group: usize) -> &[E] {
        let at = self.groups[group] + self.shift;
        &self.elements[at..at + LANES * self.head_dim]
    }
}

/// The kernels of one instruction set, for one element type.
#[derive(Clone, Copy)]
pub(crate) struct AttentionKernels<E: 'static> {
    /// Converts a row to what the cache stores.
    pub(crate) encode: fn(&[f32], &mut [E]),
    /// `(keys, queries [head_dim][stride], window, scores [group][stride][16])`: writes the scores of all groups.
    scores: fn(Panels<'_, E>, &[f32], Window, &mut [f32]),
    /// `(scores, stride, query, positions)`: turns one query's scores into weights relative to the greatest, zero
    /// past `positions`, and returns their sum.
    weights: fn(&mut [f32], usize, usize, usize) -> f32,
    /// `(values, positions, weights [group][stride][16], window, out [stride][head_dim])`: adds the weighted values
    /// of the positions, counted from the first group.
    accumulate: Accumulate<E>,
}

type Accumulate<E> = fn(Panels<'_, E>, Range<usize>, &[f32], Window, &mut [f32]);

impl<E: KvElement> AttentionKernels<E> {
    fn portable() -> Self {
        Self {
            encode: portable::encode,
            scores: portable::scores,
            weights: portable::weights,
            accumulate: portable::accumulate,
        }
    }
}

/// An element type that has kernels for every instruction set.
pub(crate) trait AttentionElement: KvElement {
    fn kernels(isa: Isa) -> AttentionKernels<Self>;
}

impl AttentionElement for half::f16 {
    fn kernels(isa: Isa) -> AttentionKernels<Self> {
        match isa {
            Isa::Portable => AttentionKernels::portable(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni(token) => avx512::kernels(token),
        }
    }
}

impl AttentionElement for f32 {
    fn kernels(isa: Isa) -> AttentionKernels<Self> {
        match isa {
            Isa::Portable => AttentionKernels::portable(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni(token) => avx512::kernels(token),
        }
    }
}

/// The queries of one row within a tile.
#[derive(Clone, Copy, Debug)]
struct TileRow {
    /// Positions that the row sees, its own included.
    positions: usize,
    window: Window,
    /// Number of its panel, if it needs one.
    panel: Option<usize>,
}

/// What one thread needs besides its output.
#[derive(Debug, Default)]
struct Scratch<E> {
    rows: Vec<TileRow>,
    queries: Vec<f32>,
    scores: Vec<f32>,
    out: Vec<f32>,
    /// Offsets of the sequence's key groups in the arena.
    groups: Vec<usize>,
    /// Per panel: gathered keys, then values.
    panels: Vec<E>,
    /// Offsets of the key groups in `panels`.
    panel_groups: Vec<usize>,
}

/// Scratch memory for as many threads as work at once.
#[derive(Debug)]
pub(crate) struct AttentionScratch<E>(Vec<Mutex<Scratch<E>>>);

impl<E: KvElement> AttentionScratch<E> {
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads.max(1)).map(|_| Mutex::new(Scratch::default())).collect())
    }

    /// Runs `work` with scratch that no other thread uses.
    fn with<R>(&self, work: impl FnOnce(&mut Scratch<E>) -> R) -> R {
        match self.0.iter().find_map(Mutex::try_lock) {
            Some(mut scratch) => work(&mut scratch),
            // Only if more threads than announced work at once.
            None => work(&mut self.0[0].lock()),
        }
    }
}

/// One layer's attention for the rows of a pass.
pub(crate) struct Attention<'a, E: 'static> {
    pub(crate) kernels: &'a AttentionKernels<E>,
    pub(crate) arena: &'a KvArena<E>,
    pub(crate) plan: &'a AttentionPlan,
    pub(crate) layer: usize,
    /// Query heads; neighbours share a key head.
    pub(crate) heads: usize,
    /// Rotated queries, `[row][head][head_dim]`.
    pub(crate) queries: &'a [f32],
}

/// The queries that one call of the kernels treats together: of one run and one key head.
struct Tile<'a> {
    run: &'a Run,
    kv_head: usize,
    /// First query, numbered by row of the run, then head of the key head.
    first: usize,
    count: usize,
    per_head: usize,
}

impl Tile<'_> {
    /// Row of the pass and head of query `j`.
    fn query(&self, j: usize) -> (usize, usize) {
        let at = self.first + j;
        (self.run.rows.start + at / self.per_head, self.kv_head * self.per_head + at % self.per_head)
    }
}

impl<E: KvElement> Attention<'_, E> {
    /// Writes `[row][head][head_dim]` for all rows.
    pub(crate) fn run(&self, pool: &Pool, scratch: &AttentionScratch<E>, out: &mut [f32]) {
        let queries = self.plan.rows.len() * self.heads;
        let work = self.plan.positions * self.heads * self.arena.shape().head_dim * 2;
        let tasks =
            if work < WORTH_A_REGION { 1 } else { pool.threads().max(queries.div_ceil(2 * MAX_QUERIES)).min(queries) };
        let out = SharedSlice::new(out);
        let chunk = queries.div_ceil(tasks);
        pool.run(tasks, |task| {
            scratch.with(|scratch| {
                let end = queries.min((task + 1) * chunk);
                let mut next = task * chunk;
                while next < end {
                    let tile = self.tile(next..end);
                    self.attend(&tile, scratch, &out);
                    next += tile.count;
                }
            });
        });
    }

    /// The queries at the front of `range` that can share keys. Queries are numbered by run, then key head, then
    /// row, then head.
    fn tile(&self, range: Range<usize>) -> Tile<'_> {
        let per_head = self.heads / self.arena.shape().kv_heads;
        let run = self.plan.run_of(range.start / self.heads);
        let within = range.start - run.rows.start * self.heads;
        let span = run.rows.len() * per_head;
        let (kv_head, first) = (within / span, within % span);
        let count = range.len().min(MAX_QUERIES).min(span - first);
        Tile { run, kv_head, first, count, per_head }
    }

    fn attend(&self, tile: &Tile<'_>, scratch: &mut Scratch<E>, out: &SharedSlice<'_, f32>) {
        let shape = self.arena.shape();
        let head_dim = shape.head_dim;
        let committed_groups = tile.run.committed / LANES;
        self.prepare(tile, scratch);
        let Scratch { rows, queries, scores, out: sums_of_values, groups, panels, panel_groups } = scratch;

        let least = rows.iter().map(|row| row.positions).min().unwrap_or(0);
        // Groups scored, and positions weighed, for all queries at once. Lanes past a row's own position are
        // scored in vain and then dropped.
        let (shared_groups, shared_positions) = if rows.iter().all(|row| row.panel.is_none()) {
            (groups.len(), least)
        } else {
            (committed_groups, committed_groups * LANES)
        };
        let tail_groups = groups.len() - committed_groups;
        let cached =
            |from: usize, shift| Panels { elements: self.arena.elements(), groups: &groups[from..], shift, head_dim };
        let gathered = |panel: usize, shift| Panels {
            elements: &panels[..],
            groups: &panel_groups[panel * tail_groups..(panel + 1) * tail_groups],
            shift,
            head_dim,
        };

        let all = Window { stride: tile.count, first: 0, count: tile.count };
        let group_scores = tile.count * LANES;
        (self.kernels.scores)(cached(0, 0).first(shared_groups), queries, all, scores);
        let mut sums = [0.0; MAX_QUERIES];
        for row in rows.iter() {
            let tail = row.positions.div_ceil(LANES).saturating_sub(shared_groups);
            if tail > 0 {
                let keys = row.panel.map_or_else(|| cached(shared_groups, 0), |panel| gathered(panel, 0));
                (self.kernels.scores)(
                    keys.first(tail),
                    queries,
                    row.window,
                    &mut scores[shared_groups * group_scores..],
                );
            }
            for (j, sum) in sums.iter_mut().enumerate().skip(row.window.first).take(row.window.count) {
                *sum = (self.kernels.weights)(scores, tile.count, j, row.positions);
            }
        }

        let values = cached(0, shape.values_at());
        (self.kernels.accumulate)(values, 0..shared_positions, scores, all, sums_of_values);
        for row in rows.iter().filter(|row| row.positions > shared_positions) {
            let group = shared_positions / LANES;
            let values = match row.panel {
                Some(panel) => gathered(panel, tail_groups * shape.group_elements()),
                None => cached(group, shape.values_at()),
            };
            let positions = shared_positions - group * LANES..row.positions - group * LANES;
            (self.kernels.accumulate)(values, positions, &scores[group * group_scores..], row.window, sums_of_values);
        }

        for (j, sum) in sums[..tile.count].iter().enumerate() {
            let (row, head) = tile.query(j);
            let at = (row * self.heads + head) * head_dim;
            // SAFETY: each (row, head) belongs to one tile of one task.
            let target = unsafe { out.slice(at..at + head_dim) };
            for (target, value) in target.iter_mut().zip(&sums_of_values[j * head_dim..]) {
                *target = value / sum;
            }
        }
    }

    /// Packs the queries, locates the keys, and gathers the panels of a tile.
    fn prepare(&self, tile: &Tile<'_>, scratch: &mut Scratch<E>) {
        let shape = self.arena.shape();
        let head_dim = shape.head_dim;
        let count = tile.count;
        let scale = 1.0 / (head_dim as f32).sqrt();
        scratch.queries.resize(head_dim * MAX_QUERIES, 0.0);
        scratch.rows.clear();
        let mut last_row = None;
        let mut panels = 0;
        for j in 0..count {
            let (row, head) = tile.query(j);
            let at = (row * self.heads + head) * head_dim;
            for (d, value) in self.queries[at..at + head_dim].iter().enumerate() {
                scratch.queries[d * count + j] = value * scale;
            }
            if last_row == Some(row) {
                if let Some(tile_row) = scratch.rows.last_mut() {
                    tile_row.window.count += 1;
                }
                continue;
            }
            last_row = Some(row);
            let planned = &self.plan.rows[row];
            let panel = planned.ancestors.is_some().then_some(panels);
            panels += usize::from(panel.is_some());
            let window = Window { stride: count, first: j, count: 1 };
            scratch.rows.push(TileRow { positions: planned.position + 1, window, panel });
        }

        let positions = scratch.rows.iter().map(|row| row.positions).max().unwrap_or(0);
        let groups = positions.div_ceil(LANES);
        let blocks = &self.plan.blocks[tile.run.blocks.clone()];
        scratch.groups.clear();
        scratch.groups.extend((0..groups).map(|group| {
            let first = group * LANES;
            let block = blocks[first / BLOCK_TOKENS] as usize;
            shape.group_at(self.layer, block, tile.kv_head, first % BLOCK_TOKENS / LANES)
        }));
        if scratch.scores.len() < groups * count * LANES {
            scratch.scores.resize(groups * count * LANES, 0.0);
        }
        scratch.out.clear();
        scratch.out.resize(count * head_dim, 0.0);

        let tail_groups = groups - tile.run.committed / LANES;
        let panel_elements = 2 * tail_groups * shape.group_elements();
        if scratch.panels.len() < panels * panel_elements {
            scratch.panels.resize(panels * panel_elements, E::default());
        }
        scratch.panel_groups.clear();
        let mut j = 0;
        for (panel, chunk) in (0..panels).zip(scratch.panels.chunks_exact_mut(panel_elements.max(1))) {
            let base = panel * panel_elements;
            scratch.panel_groups.extend((0..tail_groups).map(|group| base + group * shape.group_elements()));
            while scratch.rows[j].panel != Some(panel) {
                j += 1;
            }
            let (row, _) = tile.query(scratch.rows[j].window.first);
            self.gather(tile, row, &scratch.groups, chunk);
        }
    }

    /// Copies the keys and values that `row` sees, from the last whole group of the committed text on, to a panel.
    fn gather(&self, tile: &Tile<'_>, row: usize, groups: &[usize], panel: &mut [E]) {
        let shape = self.arena.shape();
        let head_dim = shape.head_dim;
        let elements = self.arena.elements();
        let committed = tile.run.committed;
        let first = committed / LANES * LANES;
        let (keys, values) = panel.split_at_mut(panel.len() / 2);
        let mut copy = |position: usize, (group, lane): (usize, usize)| {
            let (to_group, to_lane) = ((position - first) / LANES * shape.group_elements(), position % LANES);
            for d in 0..head_dim {
                keys[to_group + d * LANES + to_lane] = elements[group + d * LANES + lane];
            }
            let (from, to) = (group + shape.values_at() + lane * head_dim, to_group + to_lane * head_dim);
            values[to..to + head_dim].copy_from_slice(&elements[from..from + head_dim]);
        };
        for position in first..committed {
            copy(position, (groups[position / LANES], position % LANES));
        }
        for (depth, &slot) in self.plan.ancestors(row).iter().enumerate() {
            copy(committed + depth, shape.slot_at(self.layer, slot as usize, tile.kv_head));
        }
    }
}
