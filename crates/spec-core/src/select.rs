//! Top-k, top-p and min-p over a row, without sorting the vocabulary.
//!
//! A kept token is a 64-bit key: the logit as an integer of the same order above, the complemented id below. Greater keys
//! come first, so ties go to the lowest id wherever keys are compared.

use alloc::vec::Vec;

use crate::math::{EXP_SUM_ERROR, exp_negative, exp_sum, ln};
use crate::{SamplingParams, Token};

/// The greatest logit of a row and its lowest id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Peak {
    pub(crate) token: Token,
    pub(crate) logit: f32,
}

pub(crate) fn key(token: usize, logit: f32) -> u64 {
    // Adding 0 turns -0 into +0, which compares equal to it.
    let bits = (logit + 0.0).to_bits();
    let ordered = if bits >> 31 == 0 {
        bits | 0x8000_0000
    } else {
        !bits
    };
    (u64::from(ordered) << 32) | u64::from(!(token as u32))
}

pub(crate) fn key_token(key: u64) -> Token {
    !(key as u32)
}

pub(crate) fn key_logit(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered >> 31 == 1 {
        ordered & 0x7FFF_FFFF
    } else {
        !ordered
    })
}

fn descending(a: &u64, b: &u64) -> core::cmp::Ordering {
    b.cmp(a)
}

/// Whether the parameters can drop a token of a row of `vocab`.
pub(crate) fn filters(params: &SamplingParams, vocab: usize) -> bool {
    (params.top_k > 0 && params.top_k < vocab) || params.top_p < 1.0 || params.min_p > 0.0
}

/// Leaves in `keys` the tokens that top-k, top-p and min-p keep, greatest first. The peak always stays.
pub(crate) fn select(
    params: &SamplingParams,
    scale: f64,
    row: &[f32],
    peak: Peak,
    keys: &mut Vec<u64>,
) {
    let weigh =
        |key: u64| exp_negative((f64::from(key_logit(key)) - f64::from(peak.logit)) * scale);
    let mut narrowed = false;
    if params.top_k > 0 && params.top_k < row.len() {
        top_k(row, params.top_k, keys);
        narrowed = true;
    }
    if params.top_p < 1.0 {
        let share = f64::from(params.top_p);
        if narrowed {
            let total: f64 = keys.iter().map(|&key| weigh(key)).sum();
            let mut mass = 0.0;
            let reaches = |&key: &u64| {
                mass += weigh(key);
                mass >= share * total
            };
            let kept = keys
                .iter()
                .position(reaches)
                .map_or(keys.len(), |last| last + 1);
            keys.truncate(kept);
        } else {
            top_p(row, share, scale, peak, keys);
        }
        narrowed = true;
    }
    if params.min_p > 0.0 {
        let least = f64::from(params.min_p);
        if !narrowed {
            let bound = f64::from(peak.logit) + ln(least.max(f64::MIN_POSITIVE)) / scale;
            gather(row, below(bound), keys);
            keys.sort_unstable_by(descending);
        }
        let kept = keys.partition_point(|&key| weigh(key) >= least);
        keys.truncate(kept.max(1));
    }
}

/// The `k` greatest, in order. Blocks whose greatest logit cannot enter are passed over.
pub(crate) fn top_k(row: &[f32], k: usize, keys: &mut Vec<u64>) {
    keys.clear();
    let room = k.saturating_mul(2).saturating_add(64);
    let mut floor = f32::NEG_INFINITY;
    for (block, logits) in row.chunks(BLOCK).enumerate() {
        // Ids ascend, so a later logit equal to the floor loses its tie: only greater ones enter.
        if !logits
            .iter()
            .fold(false, |any, &logit| any | (logit > floor))
        {
            continue;
        }
        for (lane, &logit) in logits.iter().enumerate() {
            if logit > floor {
                keys.push(key(block * BLOCK + lane, logit));
            }
        }
        if keys.len() >= room {
            keys.select_nth_unstable_by(k - 1, descending);
            keys.truncate(k);
            floor = key_logit(keys[k - 1]);
        }
    }
    if keys.len() > k {
        keys.select_nth_unstable_by(k - 1, descending);
        keys.truncate(k);
    }
    keys.sort_unstable_by(descending);
}

const BLOCK: usize = 64;

/// The logits at or above `floor`, in row order.
fn gather(row: &[f32], floor: f32, keys: &mut Vec<u64>) {
    keys.clear();
    for (block, logits) in row.chunks(BLOCK).enumerate() {
        if !logits
            .iter()
            .fold(false, |any, &logit| any | (logit >= floor))
        {
            continue;
        }
        for (lane, &logit) in logits.iter().enumerate() {
            if logit >= floor && logit > f32::NEG_INFINITY {
                keys.push(key(block * BLOCK + lane, logit));
            }
        }
    }
}

/// An f32 safely below `bound`.
fn below(bound: f64) -> f32 {
    (bound - bound.abs() * 1e-6 - 1e-30) as f32
}

/// The shortest prefix of the sorted row whose weight reaches `share` of the total.
///
/// The total needs an exponential of every logit. In f32 it is cheap and known within [`EXP_SUM_ERROR`]; almost always both
/// ends of that interval cut the row at the same token. When they do not, the total is formed in f64, so the cut is always
/// that of the f64 sums.
fn top_p(row: &[f32], share: f64, scale: f64, peak: Peak, keys: &mut Vec<u64>) {
    let max = f64::from(peak.logit);
    let weigh = |key: u64| exp_negative((f64::from(key_logit(key)) - max) * scale);
    let exact = || {
        row.iter()
            .map(|&logit| exp_negative((f64::from(logit) - max) * scale))
            .sum::<f64>()
    };
    // Where f32 could not hold the scaled distances, only the exact sum will do.
    let (mut least, mut most) = if (1e-30..1e30).contains(&scale) {
        let total = exp_sum(row, peak.logit, scale);
        (total * (1.0 - EXP_SUM_ERROR), total * (1.0 + EXP_SUM_ERROR))
    } else {
        let total = exact();
        (total, total)
    };
    // Distances below the peak, in units of the temperature, within which the cut is looked for.
    for reach in [10.0, 25.0, f64::INFINITY] {
        gather(row, below(max - reach / scale), keys);
        let mut sorted = 0;
        let mut block = 256;
        let mut mass = 0.0;
        let mut shortest = None;
        while sorted < keys.len() {
            // Sorted piecewise: the cut usually comes early.
            let rest = &mut keys[sorted..];
            let piece = if rest.len() > block {
                rest.select_nth_unstable_by(block, descending);
                block
            } else {
                rest.len()
            };
            rest[..piece].sort_unstable_by(descending);
            for index in sorted..sorted + piece {
                let before = mass;
                mass += weigh(keys[index]);
                if shortest.is_none() && mass >= share * least {
                    if mass < share * most {
                        let total = exact();
                        (least, most) = (total, total);
                    }
                    if mass >= share * least {
                        shortest = Some(index);
                    }
                }
                debug_assert!(mass >= before);
                if let Some(last) = shortest {
                    keys.truncate(last + 1);
                    return;
                }
            }
            sorted += piece;
            block *= 2;
        }
    }
}
