//! Attention kernels in plain Rust.

use std::ops::Range;

use super::{LANES, Panels, Window};
use crate::kernels::vector::exp;
use crate::kv::KvElement;

pub(super) fn encode<E: KvElement>(values: &[f32], out: &mut [E]) {
    for (out, &value) in out.iter_mut().zip(values) {
        *out = E::encode(value);
    }
}

pub(super) fn scores<E: KvElement>(keys: Panels<'_, E>, queries: &[f32], window: Window, scores: &mut [f32]) {
    let Window { stride, first, count } = window;
    for (group, scores) in (0..keys.groups.len()).zip(scores.chunks_exact_mut(stride * LANES)) {
        let scores = &mut scores[first * LANES..(first + count) * LANES];
        scores.fill(0.0);
        for (key, queries) in keys.group(group).chunks_exact(LANES).zip(queries.chunks_exact(stride)) {
            let key: [f32; LANES] = std::array::from_fn(|lane| key[lane].decode());
            for (scores, query) in scores.chunks_exact_mut(LANES).zip(&queries[first..first + count]) {
                for (score, key) in scores.iter_mut().zip(&key) {
                    *score += query * key;
                }
            }
        }
    }
}

/// Written over lanes, for other instruction sets to compile it as their own.
#[inline(always)]
pub(super) fn weights(scores: &mut [f32], stride: usize, query: usize, positions: usize) -> f32 {
    let (whole, rest) = (positions / LANES, positions % LANES);
    let group = |group: usize| (group * stride + query) * LANES..(group * stride + query + 1) * LANES;
    let greater = |a: f32, b: f32| if a > b { a } else { b };

    let mut greatest = [f32::NEG_INFINITY; LANES];
    for index in 0..whole {
        for (greatest, &score) in greatest.iter_mut().zip(&scores[group(index)]) {
            *greatest = greater(score, *greatest);
        }
    }
    if rest > 0 {
        for (greatest, &score) in greatest.iter_mut().zip(&scores[group(whole)][..rest]) {
            *greatest = greater(score, *greatest);
        }
    }
    let greatest = greatest.into_iter().fold(f32::NEG_INFINITY, greater);

    let mut sums = [0.0_f32; LANES];
    for index in 0..whole {
        for (score, sum) in scores[group(index)].iter_mut().zip(&mut sums) {
            *score = exp(*score - greatest);
            *sum += *score;
        }
    }
    if rest > 0 {
        let (seen, past) = scores[group(whole)].split_at_mut(rest);
        for (score, sum) in seen.iter_mut().zip(&mut sums) {
            *score = exp(*score - greatest);
            *sum += *score;
        }
        past.fill(0.0);
    }
    sums.into_iter().sum()
}

pub(super) fn accumulate<E: KvElement>(
    values: Panels<'_, E>,
    positions: Range<usize>,
    weights: &[f32],
    window: Window,
    out: &mut [f32],
) {
    let Window { stride, first, count } = window;
    let head_dim = values.head_dim;
    for position in positions {
        let (group, lane) = (position / LANES, position % LANES);
        let row = &values.group(group)[lane * head_dim..(lane + 1) * head_dim];
        for query in first..first + count {
            let weight = weights[(group * stride + query) * LANES + lane];
            for (out, value) in out[query * head_dim..(query + 1) * head_dim].iter_mut().zip(row) {
                *out += weight * value.decode();
            }
        }
    }
}
