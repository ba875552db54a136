//! The scan for the winner of a row under shared noise, compiled for an instruction set.

use spec_core::{Race, Token};

use crate::Isa;
use crate::kernels::simd::Vectorize;

/// Offers what may win, as [`NoiseScan`](spec_core::NoiseScan) asks. All instruction sets name the same winner: they only select what the
/// race then decides.
pub(crate) fn scan(isa: Isa, logits: &[f32], ids: Option<&[Token]>, race: &mut Race) {
    assert!(ids.is_none_or(|ids| ids.len() >= logits.len()), "an id for every logit");
    isa.vectorize(Scan { logits, ids, race });
}

struct Scan<'a> {
    logits: &'a [f32],
    ids: Option<&'a [Token]>,
    race: &'a mut Race,
}

/// Tokens that one test of their greatest logit, and one of their greatest code, may rule out.
const BLOCK: usize = 64;

impl Vectorize for Scan<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { logits, ids, race } = self;
        let keys = race.keys();
        let (blocks, rest) = logits.as_chunks::<BLOCK>();
        for (index, block) in blocks.iter().enumerate() {
            let start = index * BLOCK;
            let mut lanes = [f32::NEG_INFINITY; 16];
            for logits in block.chunks_exact(16) {
                for (lane, &logit) in lanes.iter_mut().zip(logits) {
                    *lane = if logit > *lane { logit } else { *lane };
                }
            }
            let greatest =
                lanes.into_iter().fold(f32::NEG_INFINITY, |most, lane| if lane > most { lane } else { most });
            if race.filter().hopeless(greatest) {
                continue;
            }
            // The least threshold of the block.
            let least = race.filter().threshold(greatest);
            let mut codes = [0_u32; BLOCK];
            match ids {
                None => {
                    for (lane, code) in codes.iter_mut().enumerate() {
                        *code = keys.code((start + lane) as Token);
                    }
                }
                Some(ids) => {
                    for (code, &token) in codes.iter_mut().zip(&ids[start..start + BLOCK]) {
                        *code = keys.code(token);
                    }
                }
            }
            if codes.iter().fold(0, |most, &code| most.max(code)) < least {
                continue;
            }
            for (lane, (&logit, &code)) in block.iter().zip(&codes).enumerate() {
                if code >= least && race.filter().passes(logit, code) {
                    race.offer(ids.map_or((start + lane) as Token, |ids| ids[start + lane]), logit);
                }
            }
        }
        let first = blocks.len() * BLOCK;
        for (lane, &logit) in rest.iter().enumerate() {
            let token = ids.map_or((first + lane) as Token, |ids| ids[first + lane]);
            if race.filter().passes(logit, keys.code(token)) {
                race.offer(token, logit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spec_core::{Noise, Race, Token};

    use super::*;

    /// Logits with a few peaks, some masked tokens and many ties.
    fn row(seed: u64, len: usize) -> Vec<f32> {
        let noise = Noise::new(seed);
        (0..len as Token)
            .map(|token| match noise.code(1, token) % 97 {
                0 => f32::NEG_INFINITY,
                1 => 12.0,
                _ => noise.gumbel(2, token) as f32 * 2.0,
            })
            .collect()
    }

    #[test]
    fn every_scan_names_the_winner_of_all_tokens() {
        for isa in Isa::available() {
            let scan = crate::row_kernels(isa);
            for (seed, len) in (0..60).flat_map(|seed| [1, 15, 16, 17, 64, 333, 5000].map(|len| (seed, len))) {
                let logits = row(seed, len);
                let keys = Noise::new(seed).keys(len);
                let first = (seed as usize * 7 % len) as Token;
                let start = |ids: Option<&[Token]>| {
                    let token = ids.map_or(first, |ids| ids[first as usize]);
                    Race::new(keys, 1.0 / 0.8, token, logits[first as usize].max(-100.0))
                };
                let ids: Vec<Token> = (0..len as Token).map(|i| i * 3 + 1).collect();
                for ids in [None, Some(&ids[..])] {
                    let (mut all, mut scanned) = (start(ids), start(ids));
                    for (i, &logit) in logits.iter().enumerate() {
                        all.offer(ids.map_or(i as Token, |ids| ids[i]), logit);
                    }
                    scan.scan(&logits, ids, &mut scanned);
                    assert_eq!(scanned.winner(), all.winner(), "{isa:?}, seed {seed}, {len} tokens");
                }
            }
        }
    }
}
