//! Top-k, top-p and min-p over a row, without sorting the vocabulary.
//!
//! A kept token is a 64-bit key: the logit as an integer of the same order above, the complemented id below. Greater keys
//! come first, so ties go to the lowest id wherever keys are compared.

use alloc::vec::Vec;

use crate::math::{EXP_SUM_ERROR, exp_negative, exp_sum, exp_sum_exact, ln};
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
    let ordered = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    (u64::from(ordered) << 32) | u64::from(!(token as u32))
}

pub(crate) fn key_token(key: u64) -> Token {
    !(key as u32)
}

pub(crate) fn key_logit(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered >> 31 == 1 { ordered & 0x7FFF_FFFF } else { !ordered })
}

fn descending(a: &u64, b: &u64) -> core::cmp::Ordering {
    b.cmp(a)
}

/// Whether the parameters can drop a token of a row of `vocab`.
pub(crate) fn filters(params: &SamplingParams, vocab: usize) -> bool {
    (params.top_k > 0 && params.top_k < vocab) || params.top_p < 1.0 || params.min_p > 0.0
}

/// Leaves in `keys` the tokens that top-k, top-p and min-p keep, greatest first. The peak always stays.
pub(crate) fn select(params: &SamplingParams, scale: f64, row: &[f32], peak: Peak, keys: &mut Vec<u64>) {
    let weigh = |key: u64| exp_negative((f64::from(key_logit(key)) - f64::from(peak.logit)) * scale);
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
            let kept = keys.iter().position(reaches).map_or(keys.len(), |last| last + 1);
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
            gather(row, below(bound), usize::MAX, keys);
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
        if !logits.iter().fold(false, |any, &logit| any | (logit > floor)) {
            continue;
        }
        append(block, logits, |logit| logit > floor, keys);
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

/// Small enough that most blocks of a peaked row hold nothing wanted, large enough to test in a few vector comparisons.
const BLOCK: usize = 16;

/// Appends the keys of the logits of a block that are wanted. Without a branch: which ones are is hard to predict.
fn append(block: usize, logits: &[f32], wanted: impl Fn(f32) -> bool, keys: &mut Vec<u64>) {
    let mut chosen = [0u64; BLOCK];
    let mut count = 0;
    for (lane, &logit) in logits.iter().enumerate() {
        chosen[count % BLOCK] = key(block * BLOCK + lane, logit);
        count += usize::from(wanted(logit));
    }
    keys.extend_from_slice(&chosen[..count]);
}

/// The unmasked logits at or above `floor`, in row order; false, and an arbitrary part of them, when more than `limit`.
fn gather(row: &[f32], floor: f32, limit: usize, keys: &mut Vec<u64>) -> bool {
    let floor = floor.max(f32::MIN);
    keys.clear();
    for (block, logits) in row.chunks(BLOCK).enumerate() {
        if !logits.iter().fold(false, |any, &logit| any | (logit >= floor)) {
            continue;
        }
        if keys.len() > limit {
            return false;
        }
        append(block, logits, |logit| logit >= floor, keys);
    }
    keys.len() <= limit
}

/// An f32 safely below `bound`.
fn below(bound: f64) -> f32 {
    (bound - bound.abs() * 1e-6 - 1e-30) as f32
}

/// The shortest prefix of the sorted row whose weight reaches `share` of the total.
///
/// The total takes an exponential of every logit, which in f64 would cost more than all else. So it is first enclosed in an
/// interval: by the head of the row and a bound for its tail, or by a sum in f32. Almost always both ends of the interval cut
/// the row at the same token. When they do not, the total is formed in f64: the cut is always that of the f64 sums.
fn top_p(row: &[f32], share: f64, scale: f64, peak: Peak, keys: &mut Vec<u64>) {
    /// Distances below the peak, in units of the temperature, within which the cut is looked for.
    const REACHES: [f64; 8] = [6.0, 8.0, 10.0, 13.0, 16.0, 20.0, 30.0, f64::INFINITY];
    /// The tail beyond this distance is negligible even when it is the whole vocabulary.
    const HEAD: usize = 5;
    const LONGEST_HEAD: usize = 4096;

    let max = f64::from(peak.logit);
    let weigh = |key: u64| exp_negative((f64::from(key_logit(key)) - max) * scale);
    let floor = |reach: f64| below(max - reach / scale);
    let headed = gather(row, floor(REACHES[HEAD]), LONGEST_HEAD, keys);
    let mass_of = |keys: &[u64]| -> f64 { keys.iter().map(|&key| weigh(key)).sum() };
    let mut total = if headed {
        let head = mass_of(keys);
        let tail = (row.len() - keys.len()) as f64 * exp_negative(-REACHES[HEAD]);
        Total { least: head * (1.0 - SUM_ERROR), most: (head + tail) * (1.0 + SUM_ERROR) }
    } else {
        Total::in_f32(row, peak, scale)
    };

    for (index, reach) in REACHES.into_iter().enumerate() {
        if headed && index < HEAD {
            continue;
        }
        if !(headed && index == HEAD) {
            gather(row, floor(reach), usize::MAX, keys);
            if reach < f64::INFINITY && mass_of(keys) < share * total.least * (1.0 - SUM_ERROR) {
                continue;
            }
        }
        let mut sorted = 0;
        let mut piece = 128;
        let mut mass = 0.0;
        while sorted < keys.len() {
            // Sorted piecewise: the cut usually comes early.
            let rest = &mut keys[sorted..];
            if rest.len() > piece {
                rest.select_nth_unstable_by(piece, descending);
            } else {
                piece = rest.len();
            }
            rest[..piece].sort_unstable_by(descending);
            for index in sorted..sorted + piece {
                mass += weigh(keys[index]);
                while mass >= share * total.least && mass < share * total.most {
                    total = total.refine(row, peak, scale);
                }
                if mass >= share * total.most {
                    keys.truncate(index + 1);
                    return;
                }
            }
            sorted += piece;
            piece *= 8;
        }
    }
}

/// More than the rounding of a sum of 2^32 terms that mostly do not matter, in f64.
const SUM_ERROR: f64 = 1e-9;

/// An interval that holds the total weight of a row.
struct Total {
    least: f64,
    most: f64,
}

impl Total {
    /// In f32, unless that could not hold the scaled distances.
    fn in_f32(row: &[f32], peak: Peak, scale: f64) -> Self {
        if !(1e-30..1e30).contains(&scale) {
            return Self::in_f64(row, peak, scale);
        }
        let total = exp_sum(row, peak.logit, scale);
        Self { least: total * (1.0 - EXP_SUM_ERROR), most: total * (1.0 + EXP_SUM_ERROR) }
    }

    fn in_f64(row: &[f32], peak: Peak, scale: f64) -> Self {
        let total = exp_sum_exact(row, peak.logit, scale);
        Self { least: total, most: total }
    }

    fn refine(&self, row: &[f32], peak: Peak, scale: f64) -> Self {
        if self.most > self.least * (1.0 + 3.0 * EXP_SUM_ERROR) {
            Self::in_f32(row, peak, scale)
        } else {
            Self::in_f64(row, peak, scale)
        }
    }
}
