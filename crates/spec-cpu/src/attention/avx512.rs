//! Attention kernels for AVX-512.
//!
//! Each accumulator belongs to one query and one vector of positions (scores) or of `head_dim` (values), and takes
//! its terms in the same order whatever the number of queries and vectors beside it.

use std::arch::x86_64::{
    __m256i, __m512, _MM_FROUND_TO_NEAREST_INT, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_cvtph_ps,
    _mm512_cvtps_ph, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};
use std::ops::Range;

use half::f16;

use super::{AttentionKernels, LANES, MAX_QUERIES, Panels, Window, portable};
use crate::Avx512Vnni;
use crate::kv::KvElement;

/// Groups of positions whose weighted values are added before the next part of `head_dim` is turned to: their
/// values stay in the first-level cache.
const GROUPS_AT_ONCE: usize = 4;

/// Sixteen elements at a time, as f32.
pub(super) trait Vector: KvElement {
    /// # Safety
    /// AVX-512 F must be supported and 16 elements readable at `from`.
    unsafe fn load(from: *const Self) -> __m512;
    /// # Safety
    /// AVX-512 F must be supported and 16 elements writable at `to`.
    unsafe fn store(to: *mut Self, value: __m512);
}

impl Vector for f16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(from: *const Self) -> __m512 {
        // SAFETY: 32 bytes are readable; f16 is two bytes without padding.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store(to: *mut Self, value: __m512) {
        let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
        // SAFETY: 32 bytes are writable, and every bit pattern is an f16.
        unsafe { _mm256_storeu_si256(to.cast::<__m256i>(), halves) };
    }
}

impl Vector for f32 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(from: *const Self) -> __m512 {
        // SAFETY: 64 bytes are readable.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store(to: *mut Self, value: __m512) {
        // SAFETY: 64 bytes are writable.
        unsafe { _mm512_storeu_ps(to, value) };
    }
}

/// The kernels; the token proves that they run here.
pub(super) fn kernels<E: Vector>(_: Avx512Vnni) -> AttentionKernels<E> {
    AttentionKernels {
        // SAFETY: reachable only through this table, made under the token.
        encode: |values, out| unsafe { encode(values, out) },
        // SAFETY: as above.
        scores: |keys, queries, window, out| unsafe { scores(keys, queries, window, out) },
        // SAFETY: as above.
        weights: |scores, stride, query, positions| unsafe { weights(scores, stride, query, positions) },
        // SAFETY: as above.
        accumulate: |values, positions, weights, window, out| unsafe {
            accumulate(values, positions, weights, window, out)
        },
    }
}

/// # Safety
/// AVX-512 F must be supported.
#[target_feature(enable = "avx512f")]
unsafe fn encode<E: Vector>(values: &[f32], out: &mut [E]) {
    let mut targets = out.chunks_exact_mut(LANES);
    let mut sources = values.chunks_exact(LANES);
    for (target, source) in (&mut targets).zip(&mut sources) {
        // SAFETY: both hold 16 items.
        unsafe { E::store(target.as_mut_ptr(), _mm512_loadu_ps(source.as_ptr())) };
    }
    portable::encode(sources.remainder(), targets.into_remainder());
}

/// # Safety
/// The instructions of the feature list must be supported.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn weights(scores: &mut [f32], stride: usize, query: usize, positions: usize) -> f32 {
    portable::weights(scores, stride, query, positions)
}

/// Calls `$body` with `$queries` the constant that equals `$count`.
macro_rules! for_count {
    ($count:expr, $queries:ident => $body:expr) => {
        for_count!(@arms $count, $queries => $body; 1 2 3 4 5 6 7 8 9 10 11 12)
    };
    (@arms $count:expr, $queries:ident => $body:expr; $($n:literal)*) => {
        match $count {
            $($n => { const $queries: usize = $n; $body })*
            _ => unreachable!("a tile has 1 to {MAX_QUERIES} queries"),
        }
    };
}

/// # Safety
/// AVX-512 F must be supported.
#[target_feature(enable = "avx512f")]
unsafe fn scores<E: Vector>(keys: Panels<'_, E>, queries: &[f32], window: Window, scores: &mut [f32]) {
    let Window { stride, first, count } = window;
    assert!(first + count <= stride, "the window lies within the tile");
    assert!(queries.len() >= keys.head_dim * stride, "a query for every dimension");
    assert!(scores.len() >= keys.groups.len() * stride * LANES, "a vector of scores for every group and query");
    // SAFETY: the assertions are what the callee asks for; 24 accumulators leave registers for keys and query.
    for_count!(count, Q => unsafe {
        if Q <= 5 {
            scores_of::<E, Q, 4>(keys, queries, stride, first, scores);
        } else {
            scores_of::<E, Q, 2>(keys, queries, stride, first, scores);
        }
    });
}

/// # Safety
/// AVX-512 F must be supported, the window of `Q` queries from `first` lie within `stride`, and `queries` and
/// `scores` hold all dimensions and groups.
#[target_feature(enable = "avx512f")]
unsafe fn scores_of<E: Vector, const Q: usize, const G: usize>(
    keys: Panels<'_, E>,
    queries: &[f32],
    stride: usize,
    first: usize,
    scores: &mut [f32],
) {
    let queries = queries[first..].as_ptr();
    let groups = keys.groups.len();
    let mut group = 0;
    while group < groups {
        let many = groups - group >= G;
        let out = scores[(group * stride + first) * LANES..].as_mut_ptr();
        let next = if many { G } else { 1 };
        // SAFETY: `Panels::group` checks that a panel is in bounds; the caller has checked the rest.
        unsafe {
            if many {
                let panels: [*const E; G] = std::array::from_fn(|g| keys.group(group + g).as_ptr());
                score_groups::<E, Q, G>(panels, keys.head_dim, queries, stride, out);
            } else {
                score_groups::<E, Q, 1>([keys.group(group).as_ptr()], keys.head_dim, queries, stride, out);
            }
        }
        group += next;
    }
}

/// # Safety
/// AVX-512 F must be supported; each panel holds `16 * head_dim` elements, `queries` is readable at `d * stride + j`
/// for all dimensions and `j < Q`, `out` writable for 16 numbers at `(g * stride + j) * 16`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn score_groups<E: Vector, const Q: usize, const G: usize>(
    panels: [*const E; G],
    head_dim: usize,
    queries: *const f32,
    stride: usize,
    out: *mut f32,
) {
    let mut sums = [[_mm512_setzero_ps(); G]; Q];
    for d in 0..head_dim {
        // SAFETY: within the panels and the queries by this function's contract.
        unsafe {
            let mut keys = [_mm512_setzero_ps(); G];
            for (key, panel) in keys.iter_mut().zip(panels) {
                *key = E::load(panel.add(d * LANES));
            }
            for (j, sums) in sums.iter_mut().enumerate() {
                let query = _mm512_set1_ps(*queries.add(d * stride + j));
                for (sum, key) in sums.iter_mut().zip(keys) {
                    *sum = _mm512_fmadd_ps(query, key, *sum);
                }
            }
        }
    }
    for (j, sums) in sums.iter().enumerate() {
        for (g, sum) in sums.iter().enumerate() {
            // SAFETY: writable by this function's contract.
            unsafe { _mm512_storeu_ps(out.add((g * stride + j) * LANES), *sum) };
        }
    }
}

/// # Safety
/// AVX-512 F must be supported.
#[target_feature(enable = "avx512f")]
unsafe fn accumulate<E: Vector>(
    values: Panels<'_, E>,
    positions: Range<usize>,
    weights: &[f32],
    window: Window,
    out: &mut [f32],
) {
    let Window { stride, first, count } = window;
    assert!(first + count <= stride, "the window lies within the tile");
    assert!(values.head_dim.is_multiple_of(LANES), "whole vectors of values");
    assert!(out.len() >= stride * values.head_dim, "an output row for every query");
    let groups = positions.end.div_ceil(LANES);
    assert!(weights.len() >= groups * stride * LANES, "a vector of weights for every group and query");
    let mut start = positions.start;
    while start < positions.end {
        let end = ((start / LANES + GROUPS_AT_ONCE) * LANES).min(positions.end);
        // SAFETY: the assertions are what the callee asks for; the accumulators fit the registers.
        for_count!(count, Q => unsafe {
            let mut part = 0;
            let parts = values.head_dim / LANES;
            if Q <= 3 {
                while part + 8 <= parts {
                    accumulate_part::<E, Q, 8>(values, start..end, weights, window, part, out);
                    part += 8;
                }
            }
            if Q <= 6 {
                while part + 4 <= parts {
                    accumulate_part::<E, Q, 4>(values, start..end, weights, window, part, out);
                    part += 4;
                }
            }
            while part + 2 <= parts {
                accumulate_part::<E, Q, 2>(values, start..end, weights, window, part, out);
                part += 2;
            }
            if part < parts {
                accumulate_part::<E, Q, 1>(values, start..end, weights, window, part, out);
            }
        });
        start = end;
    }
}

/// Adds the weighted vectors `part..part + D` of the values at `positions`.
///
/// # Safety
/// AVX-512 F must be supported; the window of `Q` queries lies within its stride, `weights` has all groups up to the
/// last position, `out` all queries, and the vectors lie within `head_dim`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn accumulate_part<E: Vector, const Q: usize, const D: usize>(
    values: Panels<'_, E>,
    positions: Range<usize>,
    weights: &[f32],
    window: Window,
    part: usize,
    out: &mut [f32],
) {
    let head_dim = values.head_dim;
    let out = out[window.first * head_dim + part * LANES..].as_mut_ptr();
    let mut sums = [[_mm512_setzero_ps(); D]; Q];
    for (j, sums) in sums.iter_mut().enumerate() {
        for (d, sum) in sums.iter_mut().enumerate() {
            // SAFETY: row `first + j` of the output, vectors within `head_dim`.
            *sum = unsafe { _mm512_loadu_ps(out.add(j * head_dim + d * LANES)) };
        }
    }
    let mut position = positions.start;
    while position < positions.end {
        let group = position / LANES;
        let panel = values.group(group)[part * LANES..].as_ptr();
        let weights = weights[(group * window.stride + window.first) * LANES..].as_ptr();
        let end = positions.end.min((group + 1) * LANES);
        for lane in position % LANES..=(end - 1) % LANES {
            // SAFETY: lane < 16; the panel has 16 rows of `head_dim` elements, the weights 16 numbers per query.
            unsafe {
                let row = panel.add(lane * head_dim);
                let mut vectors = [_mm512_setzero_ps(); D];
                for (d, vector) in vectors.iter_mut().enumerate() {
                    *vector = E::load(row.add(d * LANES));
                }
                for (j, sums) in sums.iter_mut().enumerate() {
                    let weight = _mm512_set1_ps(*weights.add(j * LANES + lane));
                    for (sum, vector) in sums.iter_mut().zip(vectors) {
                        *sum = _mm512_fmadd_ps(weight, vector, *sum);
                    }
                }
            }
        }
        position = end;
    }
    for (j, sums) in sums.iter().enumerate() {
        for (d, sum) in sums.iter().enumerate() {
            // SAFETY: as for the loads.
            unsafe { _mm512_storeu_ps(out.add(j * head_dim + d * LANES), *sum) };
        }
    }
}
