//! The noise that target and drafter share.
//!
//! Gumbel-max: the token that maximises `logit / temperature + g` is distributed as the softmax, when the `g` are independent
//! Gumbel variables. With `g` a function of (seed, position, token id) only, target and drafter race the same noise, the
//! target's sample does not depend on what was drafted, and both agree with probability at least (1 - TV) / (1 + TV)
//! (Daliri, Musco, Suresh, arXiv 2408.07978).

use crate::Token;
use crate::math::{GOLDEN, ln, mix64};

/// The noise of one generated text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Noise {
    state: u64,
}

impl Noise {
    /// The noise of a request's only, or first, choice.
    pub fn new(seed: u64) -> Self {
        Self::with_choice(seed, 0)
    }

    /// The noise of choice `choice` of a request that asks for several.
    pub fn with_choice(seed: u64, choice: u32) -> Self {
        let counter = u64::from(choice).wrapping_add(1).wrapping_mul(GOLDEN);
        Self { state: mix64(mix64(seed).wrapping_add(counter)) }
    }

    /// The keys of `position`, the absolute position of the token being sampled.
    pub fn keys(&self, position: usize) -> NoiseKeys {
        let counter = (position as u64).wrapping_add(1).wrapping_mul(GOLDEN);
        let mixed = mix64(self.state.wrapping_add(counter));
        NoiseKeys { first: mixed as u32, second: (mixed >> 32) as u32 }
    }

    /// The 32-bit code of `token` at `position`.
    pub fn code(&self, position: usize, token: Token) -> u32 {
        self.keys(position).code(token)
    }

    /// The Gumbel variable of `token` at `position`, in [-3.1300, 22.8739].
    pub fn gumbel(&self, position: usize, token: Token) -> f64 {
        gumbel_of_code(self.code(position, token))
    }
}

/// The noise of one position: two 32-bit keys, and the hash that turns a token id into a code.
///
/// The hash is spelled out because vector kernels repeat it: `code = mix(mix(token ^ first) ^ second)`, where `mix(x)` is
/// `x ^= x >> 16; x *= 0x21F0AAAD; x ^= x >> 15; x *= 0x735A2D97; x ^= x >> 15` on 32 bits, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoiseKeys {
    /// Exclusive-or'd into the token id.
    pub first: u32,
    /// Exclusive-or'd between the two rounds.
    pub second: u32,
}

impl NoiseKeys {
    /// The code of `token`. A bijection of the ids: no two tokens of a position share a code.
    #[inline(always)]
    pub fn code(self, token: Token) -> u32 {
        mix32(mix32(token ^ self.first) ^ self.second)
    }

    /// The Gumbel variable of `token`.
    pub fn gumbel(self, token: Token) -> f64 {
        gumbel_of_code(self.code(token))
    }
}

#[inline(always)]
fn mix32(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x21F0_AAAD);
    let x = (x ^ (x >> 15)).wrapping_mul(0x735A_2D97);
    x ^ (x >> 15)
}

/// `-ln(-ln u)` of `u = (code + 1/2) / 2^32`, finite for every code.
///
/// u has 33 bits, so it and `1 - u` are exact in f64; in f32 the top code would round to 1 and give infinity.
pub(crate) fn gumbel_of_code(code: u32) -> f64 {
    let u = (f64::from(code) + 0.5) * (1.0 / 4_294_967_296.0);
    -ln(-ln(u))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_end_codes_are_finite_and_where_they_should_be() {
        // u = 2^-33 and u = 1 - 2^-33.
        assert!((gumbel_of_code(0) + libm::log(33.0 * core::f64::consts::LN_2)).abs() < 1e-14);
        assert!((gumbel_of_code(u32::MAX) - 33.0 * core::f64::consts::LN_2).abs() < 1e-9);
        assert!(gumbel_of_code(0) > -3.1301 && gumbel_of_code(u32::MAX) < 22.8740);
    }

    #[test]
    fn gumbel_variables_agree_with_libm_and_rise_with_the_code() {
        let near_ends = (0..5_000u32).flat_map(|code| [code, u32::MAX - code]);
        let between = (0..u32::MAX).step_by(40_009);
        let mut codes: alloc::vec::Vec<u32> = near_ends.chain(between).collect();
        codes.sort_unstable();
        codes.dedup();
        let mut below = f64::NEG_INFINITY;
        for code in codes {
            let ours = gumbel_of_code(code);
            // 1 - u is exact, and log1p keeps libm's side accurate where u is near 1.
            let rest = (4_294_967_295.0 - f64::from(code) + 0.5) / 4_294_967_296.0;
            let theirs = -libm::log(-libm::log1p(-rest));
            assert!((ours - theirs).abs() <= 1e-14 * theirs.abs().max(0.1), "code {code}: {ours} against {theirs}");
            assert!(ours > below, "code {code} does not exceed the one before it");
            below = ours;
        }
    }

    /// How many codes lose against `score`: binary search, as the variable rises with the code.
    fn codes_below(score: f64) -> u64 {
        let (mut low, mut high) = (0u64, 1 << 32);
        while low < high {
            let middle = (low + high) / 2;
            if gumbel_of_code(middle as u32) < score { low = middle + 1 } else { high = middle }
        }
        low
    }

    #[test]
    fn two_tokens_win_as_the_logistic_says_over_all_codes() {
        const ALL: u64 = 1 << 32;
        for lead in [-15.0, -9.0, -3.0, -1.0, 0.0, 0.5, 2.0, 5.0, 12.0] {
            // The other token's codes are counted exactly for a code of this one. Of this one's codes, 4096 at either end
            // are taken singly; between them, in strata of a five-hundredth of the distance from the nearer end, by their middle code.
            let mut wins = 0.0;
            let mut low = 0u64;
            while low < ALL {
                let from_end = low.min(ALL - 1 - low);
                let singly = from_end < 4096;
                let width = if singly { 1 } else { ((from_end / 512) | 1).min(ALL - low) };
                let middle = low + width / 2;
                wins += codes_below(gumbel_of_code(middle as u32) + lead) as f64 * width as f64;
                low += width;
            }
            let ours = wins / (ALL as f64 * ALL as f64);
            let logistic = 1.0 / (1.0 + libm::exp(-lead));
            let error = (ours - logistic).abs() / logistic.min(1.0 - logistic);
            assert!(error < 2e-6, "lead {lead}: {ours} for {logistic}, off by {error:e} of the rarer side");
        }
    }

    /// Chi-square of pairs of 4-bit digits over 16 x 16 cells, 255 degrees of freedom.
    fn pair_statistic(pairs: impl Iterator<Item = (u32, u32)>) -> f64 {
        let mut cells = [0u32; 256];
        let mut count = 0.0;
        for (a, b) in pairs {
            cells[((a & 15) << 4 | (b & 15)) as usize] += 1;
            count += 1.0;
        }
        let expected = count / 256.0;
        cells.iter().map(|&cell| (f64::from(cell) - expected) * (f64::from(cell) - expected) / expected).sum()
    }

    #[test]
    fn neighbouring_positions_tokens_seeds_and_choices_are_independent() {
        // The upper limit is passed by chance once in about 10^7, the lower one less often still.
        let independent = |statistic: f64| (150.0..390.0).contains(&statistic);
        let noise = Noise::new(7);
        for shift in [0, 12, 28] {
            let code = |noise: Noise, position: u32, token: u32| noise.code(position as usize, token) >> shift;
            let grid = || (0..512u32).flat_map(|position| (0..512u32).map(move |token| (position, token)));
            let tests = [
                ("position", pair_statistic(grid().map(|(p, t)| (code(noise, p, t), code(noise, p + 1, t))))),
                ("token", pair_statistic(grid().map(|(p, t)| (code(noise, p, t), code(noise, p, t ^ 1))))),
                ("seed", pair_statistic(grid().map(|(p, t)| (code(noise, p, t), code(Noise::new(8), p, t))))),
                (
                    "choice",
                    pair_statistic(grid().map(|(p, t)| (code(noise, p, t), code(Noise::with_choice(7, 1), p, t)))),
                ),
                (
                    "seed, position",
                    pair_statistic(grid().map(|(p, t)| (code(Noise::new(8), p, t), code(noise, p + 1, t)))),
                ),
            ];
            for (name, statistic) in tests {
                assert!(independent(statistic), "{name}, bits from {shift}: {statistic}");
            }
        }
        let same = (0..100_000u32).map(|token| (noise.code(1, token), noise.code(1, token)));
        assert!(!independent(pair_statistic(same)), "the statistic does not see full dependence");
    }

    #[test]
    fn tokens_of_a_position_never_share_a_code() {
        let keys = Noise::new(3).keys(17);
        let mut codes: alloc::vec::Vec<u32> = (0..300_000).map(|token| keys.code(token)).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), 300_000);
    }
}
