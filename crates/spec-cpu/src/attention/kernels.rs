//! The inner loops of attention.
//!
//! Each accumulator belongs to one query and one vector of positions (scores) or of `head_dim` (values), and takes
//! its terms in the same order whatever the number of queries and vectors beside it. Scales of keys multiply whole scores, those of
//! values each value.

use std::ops::Range;

use super::LANES;
use crate::Isa;
use crate::kernels::simd::{Kernel, Simd, Vectorize};
use crate::kernels::vector::{exp, soft_cap};
use crate::kv::KvElement;

/// Queries (row, head) that share a loaded key or value.
pub(super) const MAX_QUERIES: usize = 12;

/// Groups of positions whose weighted values are added before the next part of `head_dim` is turned to: their
/// values stay in the first-level cache.
const GROUPS_AT_ONCE: usize = 4;

/// The queries of a tile that a kernel is to treat: `first..first + count` of `stride` that lie side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) stride: usize,
    pub(super) first: usize,
    pub(super) count: usize,
}

/// Keys or values: `groups` are the offsets in `elements` of panels of `16 * head_dim` elements.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, E> {
    elements: &'a [E],
    groups: &'a [usize],
    /// Added to every offset.
    shift: usize,
    head_dim: usize,
    /// Panels to fetch meanwhile, one for each of the first groups: offsets, and what to add to them.
    ahead: (&'a [usize], usize),
}

impl<'a, E: KvElement> Panels<'a, E> {
    pub(super) fn new(
        head_dim: usize,
        elements: &'a [E],
        groups: &'a [usize],
        shift: usize,
        ahead: (&'a [usize], usize),
    ) -> Self {
        Self { elements, groups, shift, head_dim, ahead }
    }

    /// The elements of a group, and their scales.
    #[inline(always)]
    fn group(&self, group: usize) -> *const E {
        let at = self.groups[group] + self.shift;
        self.elements[at..at + LANES * (self.head_dim + E::SCALE_ELEMENTS)].as_ptr()
    }

    /// The scales of the group at `panel`, if its elements have them.
    #[inline(always)]
    fn scales(&self, panel: *const E) -> *const f32 {
        panel.wrapping_add(LANES * self.head_dim).cast()
    }

    /// What to fetch while a group is treated: itself, which is in the cache, if nothing else.
    #[inline(always)]
    fn ahead(&self, group: usize) -> *const E {
        let (offsets, shift) = self.ahead;
        let at = offsets.get(group).map_or(self.groups[group] + self.shift, |offset| offset + shift);
        self.elements.as_ptr().wrapping_add(at)
    }
}

/// Calls `$body` with `$queries` a constant for parts of `$window`, all of it in the end.
macro_rules! in_parts {
    ($window:ident, $queries:ident => $body:expr) => {
        let end = $window.first + $window.count;
        let mut first = $window.first;
        while first < end {
            let left = end - first;
            // Two halves of nine to eleven queries need no more instructions than one part and a small rest.
            let count = if left >= MAX_QUERIES { MAX_QUERIES } else if left > 8 { left / 2 } else { left };
            let $window = Window { first, count, ..$window };
            in_parts!(@arms count, $queries => $body; 1 2 3 4 5 6 7 8 12);
            first += count;
        }
    };
    (@arms $count:expr, $queries:ident => $body:expr; $($n:literal)*) => {
        match $count {
            $($n => { const $queries: usize = $n; $body })*
            count => unreachable!("a part of {count} queries"),
        }
    };
}

/// Writes the scores of all groups, `[group][stride][16]`, for queries `[head_dim][stride]`.
pub(super) fn scores<E: KvElement>(isa: Isa, keys: Panels<'_, E>, queries: &[f32], window: Window, out: &mut [f32]) {
    in_parts!(window, Q => isa.run(Scores::<E, Q> { keys, queries, window, scores: out }));
}

/// Adds the weighted values of the positions, counted from the first group, to rows of `out`, `[stride][head_dim]`;
/// weights are `[group][stride][16]`.
pub(super) fn accumulate<E: KvElement>(
    isa: Isa,
    values: Panels<'_, E>,
    positions: Range<usize>,
    weights: &[f32],
    window: Window,
    out: &mut [f32],
) {
    in_parts!(window, Q => {
        let positions = positions.clone();
        isa.run(Accumulate::<E, Q> { values, positions, weights, window, out });
    });
}

struct Scores<'a, E, const Q: usize> {
    keys: Panels<'a, E>,
    queries: &'a [f32],
    window: Window,
    scores: &'a mut [f32],
}

/// Groups whose scores are summed at once for `queries` queries.
const fn score_groups_at_once(registers: usize, queries: usize) -> usize {
    let mut groups = 4;
    while groups > 1 && (queries + 1) * groups + 1 > registers {
        groups /= 2;
    }
    groups
}

impl<E: KvElement, const Q: usize> Kernel for Scores<'_, E, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { keys, queries, window: Window { stride, first, count }, scores } = self;
        let groups = keys.groups.len();
        assert!(count == Q && first + count <= stride, "the window lies within the tile");
        assert!(queries.len() >= keys.head_dim * stride, "a query for every dimension");
        assert!(scores.len() >= groups * stride * LANES, "a vector of scores for every group and query");
        let queries = queries[first..].as_ptr();
        let mut group = 0;
        // SAFETY: the assertions are what the callees ask for; `Panels::group` checks the bounds of panels.
        unsafe {
            match const { score_groups_at_once(S::REGISTERS, Q) } {
                4 => score_groups::<S, E, Q, 4>(simd, &keys, &mut group, queries, (stride, first), scores),
                2 => score_groups::<S, E, Q, 2>(simd, &keys, &mut group, queries, (stride, first), scores),
                _ => {}
            }
            score_groups::<S, E, Q, 1>(simd, &keys, &mut group, queries, (stride, first), scores);
        }
    }
}

/// Scores groups from `group` on, `G` at a time, while as many are left.
///
/// # Safety
/// `queries` is readable at `d * stride + j` for all dimensions and `j < Q`, `scores` has `stride` vectors of sixteen for
/// each group, and `first + Q` is at most `stride`.
#[inline(always)]
unsafe fn score_groups<S: Simd, E: KvElement, const Q: usize, const G: usize>(
    simd: S,
    keys: &Panels<'_, E>,
    group: &mut usize,
    queries: *const f32,
    (stride, first): (usize, usize),
    scores: &mut [f32],
) {
    while *group + G <= keys.groups.len() {
        let panels: [*const E; G] = std::array::from_fn(|g| keys.group(*group + g));
        let ahead: [*const E; G] = std::array::from_fn(|g| keys.ahead(*group + g));
        let out = scores[(*group * stride + first) * LANES..].as_mut_ptr();
        for part in 0..S::PARTS {
            let mut sums = [[simd.floats(0.0); G]; Q];
            for d in 0..keys.head_dim {
                let at = d * LANES + part * S::WIDTH;
                // SAFETY: within the panels, which have `16 * head_dim` elements, and the queries.
                unsafe {
                    let mut vectors = [simd.floats(0.0); G];
                    for ((vector, panel), ahead) in vectors.iter_mut().zip(panels).zip(ahead) {
                        *vector = E::load(simd, panel.add(at));
                        simd.prefetch::<false>(ahead.wrapping_add(at).cast());
                    }
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let query = simd.floats(*queries.add(d * stride + j));
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = simd.mul_add(query, vector, *sum);
                        }
                    }
                }
            }
            if E::SCALE_ELEMENTS > 0 {
                for (g, (panel, ahead)) in panels.into_iter().zip(ahead).enumerate() {
                    simd.prefetch::<false>(keys.scales(ahead).cast());
                    // SAFETY: sixteen scales follow the panel's elements.
                    let scales = unsafe { simd.load(keys.scales(panel).add(part * S::WIDTH)) };
                    for sums in &mut sums {
                        sums[g] = simd.mul(sums[g], scales);
                    }
                }
            }
            for (j, sums) in sums.iter().enumerate() {
                for (g, &sum) in sums.iter().enumerate() {
                    // SAFETY: each group has `stride` vectors of scores, of which `first + j` is one.
                    unsafe { simd.store(out.add((g * stride + j) * LANES + part * S::WIDTH), sum) };
                }
            }
        }
        *group += G;
    }
}

/// Turns one query's scores of `positions`, of which there is one at least, into weights relative to the greatest, zero
/// behind them in their last group. Returns the greatest score and the sum of the weights.
///
/// Positions before the first count as weights of exactly zero would: sums are per lane, and begin at zero.
pub(super) struct Weights<'a> {
    /// `[group][stride][16]`.
    pub(super) scores: &'a mut [f32],
    pub(super) stride: usize,
    pub(super) query: usize,
    pub(super) positions: Range<usize>,
    /// What scores are soft-capped by.
    pub(super) cap: Option<f32>,
}

impl Vectorize for Weights<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run(self) -> (f32, f32) {
        let Self { scores, stride, query, positions: Range { start, end }, cap } = self;
        let group = |group: usize| (group * stride + query) * LANES..(group * stride + query + 1) * LANES;
        let greater = |a: f32, b: f32| if a > b { a } else { b };
        if let Some(cap) = cap {
            for index in start / LANES..end.div_ceil(LANES) {
                for score in &mut scores[group(index)] {
                    *score = soft_cap(*score, cap);
                }
            }
        }

        // The groups that are seen in part, and those that are seen whole between them.
        let whole = start.div_ceil(LANES)..end / LANES;
        let (first, last) = (start / LANES, end / LANES);
        let head = start % LANES..LANES.min(end - first * LANES);
        let has_head = !start.is_multiple_of(LANES);
        let tail = end % LANES;
        let has_tail = tail > 0 && last >= whole.start;

        let mut greatest = [f32::NEG_INFINITY; LANES];
        if has_head {
            for (greatest, &score) in greatest[head.clone()].iter_mut().zip(&scores[group(first)][head.clone()]) {
                *greatest = greater(score, *greatest);
            }
        }
        for index in whole.clone() {
            for (greatest, &score) in greatest.iter_mut().zip(&scores[group(index)]) {
                *greatest = greater(score, *greatest);
            }
        }
        if has_tail {
            for (greatest, &score) in greatest.iter_mut().zip(&scores[group(last)][..tail]) {
                *greatest = greater(score, *greatest);
            }
        }
        let greatest = greatest.into_iter().fold(f32::NEG_INFINITY, greater);

        let mut sums = [0.0_f32; LANES];
        if has_head {
            for (score, sum) in scores[group(first)][head.clone()].iter_mut().zip(&mut sums[head.clone()]) {
                *score = exp(*score - greatest);
                *sum += *score;
            }
            scores[group(first)][head.end..].fill(0.0);
        }
        for index in whole {
            for (score, sum) in scores[group(index)].iter_mut().zip(&mut sums) {
                *score = exp(*score - greatest);
                *sum += *score;
            }
        }
        if has_tail {
            let (seen, past) = scores[group(last)].split_at_mut(tail);
            for (score, sum) in seen.iter_mut().zip(&mut sums) {
                *score = exp(*score - greatest);
                *sum += *score;
            }
            past.fill(0.0);
        }
        (greatest, sums.into_iter().sum())
    }
}

/// What [`Weights`] would give for a query that sees no position.
pub(super) const UNSEEN: [f32; 2] = [f32::NEG_INFINITY, 0.0];

/// Joins a query's result over a chunk of positions to that over all positions before it: `(greatest score, sum of
/// weights)` and weighted values, each relative to its own greatest score. The first chunk that is seen is taken as it is.
pub(super) struct Join<'a> {
    pub(super) total: (&'a mut [f32; 2], &'a mut [f32]),
    pub(super) chunk: (&'a [f32; 2], &'a [f32]),
}

impl Vectorize for Join<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ((&mut [ref mut greatest, ref mut sum], values), (&[chunk_greatest, chunk_sum], chunk_values)) =
            (self.total, self.chunk);
        if [*greatest, *sum] == UNSEEN {
            (*greatest, *sum) = (chunk_greatest, chunk_sum);
            values.copy_from_slice(chunk_values);
            return;
        }
        let (old, new) = if chunk_greatest > *greatest {
            (exp(*greatest - chunk_greatest), 1.0)
        } else {
            (1.0, exp(chunk_greatest - *greatest))
        };
        *greatest = if chunk_greatest > *greatest { chunk_greatest } else { *greatest };
        *sum = *sum * old + chunk_sum * new;
        for (value, chunk_value) in values.iter_mut().zip(chunk_values) {
            *value = *value * old + chunk_value * new;
        }
    }
}

struct Accumulate<'a, E, const Q: usize> {
    values: Panels<'a, E>,
    positions: Range<usize>,
    weights: &'a [f32],
    window: Window,
    out: &'a mut [f32],
}

/// Vectors of a row of values that are summed at once for `queries` queries.
const fn vectors_at_once(registers: usize, queries: usize) -> usize {
    let mut vectors = 8;
    while vectors > 1 {
        let loaded = if vectors < queries { vectors } else { queries };
        if queries * vectors + loaded < registers {
            break;
        }
        vectors /= 2;
    }
    vectors
}

impl<E: KvElement, const Q: usize> Kernel for Accumulate<'_, E, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Window { stride, first, count } = self.window;
        let head_dim = self.values.head_dim;
        assert!(count == Q && first + count <= stride, "the window lies within the tile");
        assert!(head_dim.is_multiple_of(LANES), "whole vectors of values");
        assert!(self.out.len() >= stride * head_dim, "an output row for every query");
        let groups = self.positions.end.div_ceil(LANES);
        assert!(self.weights.len() >= groups * stride * LANES, "a vector of weights for every group and query");
        let parts = head_dim / S::WIDTH;
        let mut start = self.positions.start;
        while start < self.positions.end {
            let end = ((start / LANES + GROUPS_AT_ONCE) * LANES).min(self.positions.end);
            let mut part = 0;
            // SAFETY: the assertions are what the callees ask for.
            unsafe {
                if const { vectors_at_once(S::REGISTERS, Q) >= 8 } {
                    self.add::<S, 8>(simd, start..end, &mut part, parts);
                }
                if const { vectors_at_once(S::REGISTERS, Q) >= 4 } {
                    self.add::<S, 4>(simd, start..end, &mut part, parts);
                }
                if const { vectors_at_once(S::REGISTERS, Q) >= 2 } {
                    self.add::<S, 2>(simd, start..end, &mut part, parts);
                }
                self.add::<S, 1>(simd, start..end, &mut part, parts);
            }
            start = end;
        }
    }
}

impl<E: KvElement, const Q: usize> Accumulate<'_, E, Q> {
    /// Adds the weighted values at `positions`: the vectors from `part` on, `D` at a time, while as many are left.
    ///
    /// # Safety
    /// The window of `Q` queries lies within its stride, the weights have all groups up to the last position, `out` has
    /// all queries, and the `parts` vectors are within `head_dim`.
    #[inline(always)]
    unsafe fn add<S: Simd, const D: usize>(
        &mut self,
        simd: S,
        positions: Range<usize>,
        part: &mut usize,
        parts: usize,
    ) {
        let Self { values, weights, window, .. } = self;
        let head_dim = values.head_dim;
        while *part + D <= parts {
            let column = *part * S::WIDTH;
            let out = self.out[window.first * head_dim + column..].as_mut_ptr();
            let mut sums = [[simd.floats(0.0); D]; Q];
            for (j, sums) in sums.iter_mut().enumerate() {
                for (d, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: row `first + j` of the output, vectors within `head_dim`.
                    *sum = unsafe { simd.load(out.add(j * head_dim + d * S::WIDTH)) };
                }
            }
            let mut position = positions.start;
            while position < positions.end {
                let group = position / LANES;
                let panel = values.group(group);
                let scales = values.scales(panel);
                let panel = panel.wrapping_add(column);
                let ahead = values.ahead(group).wrapping_add(column);
                let weights = weights[(group * window.stride + window.first) * LANES..].as_ptr();
                let end = positions.end.min((group + 1) * LANES);
                for lane in position % LANES..=(end - 1) % LANES {
                    // SAFETY: lane < 16; the panel has 16 rows of `head_dim` elements and, where the type has them, as many
                    // scales, the weights 16 numbers per query.
                    unsafe {
                        let mut vectors = [simd.floats(0.0); D];
                        for (d, vector) in vectors.iter_mut().enumerate() {
                            let at = lane * head_dim + d * S::WIDTH;
                            *vector = E::load(simd, panel.add(at));
                            if E::SCALE_ELEMENTS > 0 {
                                *vector = simd.mul(*vector, simd.floats(scales.add(lane).read_unaligned()));
                            }
                            simd.prefetch::<false>(ahead.wrapping_add(at).cast());
                        }
                        for (j, sums) in sums.iter_mut().enumerate() {
                            let weight = simd.floats(*weights.add(j * LANES + lane));
                            for (sum, vector) in sums.iter_mut().zip(vectors) {
                                *sum = simd.mul_add(weight, vector, *sum);
                            }
                        }
                    }
                }
                position = end;
            }
            for (j, sums) in sums.iter().enumerate() {
                for (d, &sum) in sums.iter().enumerate() {
                    // SAFETY: as for the loads.
                    unsafe { simd.store(out.add(j * head_dim + d * S::WIDTH), sum) };
                }
            }
            *part += D;
        }
    }
}
