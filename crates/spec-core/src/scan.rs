//! Finding the winner of a row exactly, with a logarithm for few of its tokens.
//!
//! Against a best score S, a token of scaled logit z can win only if its Gumbel variable reaches d = S - z, that is only if
//! its code exceeds `2^32 exp(-e^-d) - 1/2`. A table over floor(d) turns that into an integer comparison; a [`NoiseScan`]
//! makes it for a whole row and offers what passes to the [`Race`], which alone decides, in f64.

use crate::noise::{NoiseKeys, gumbel_of_code};
use crate::{Noise, SmallTokens, Token};

/// Thresholds of [`Filter`] by `floor(d) + 4`: `2^32 exp(-e^-floor(d)) - 1/2`, rounded down and lessened by one.
///
/// A Gumbel variable is never below -3.1300, so entry 0 lets all pass; never above 22.8739, so that from entry 27 on none
/// can win, which the greatest code stands for.
const THRESHOLDS: [u32; 32] = [
    0,
    6,
    2_654_198,
    283_416_454,
    1_580_030_167,
    2_972_979_056,
    3_751_323_298,
    4_086_369_292,
    4_217_018_246,
    4_266_125_309,
    4_284_334_318,
    4_291_052_576,
    4_293_526_735,
    4_294_437_286,
    4_294_772_307,
    4_294_895_561,
    4_294_940_905,
    4_294_957_586,
    4_294_963_723,
    4_294_965_980,
    4_294_966_811,
    4_294_967_116,
    4_294_967_229,
    4_294_967_270,
    4_294_967_285,
    4_294_967_291,
    4_294_967_293,
    u32::MAX,
    u32::MAX,
    u32::MAX,
    u32::MAX,
    u32::MAX,
];

/// A conservative test of whether a token can still win, in f32 and 32-bit integers.
///
/// `index = trunc(clamp(level - logit * inverse_temperature, 0, 31))`, NaN clamping to 0; the token passes when its code is
/// at least `thresholds[index]`. A kernel that computes this with separately rounded f32 operations, in any order of tokens,
/// passes all that can win: the level carries slack for those roundings. Passing too many costs time only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// `1 / temperature`.
    pub inverse_temperature: f32,
    /// The score to beat, plus the table's offset of 4, less the slack.
    pub level: f32,
    /// Least code that may win, by index.
    pub thresholds: &'static [u32; 32],
}

impl Filter {
    /// From this index on, no code can win.
    pub const HOPELESS: f32 = 27.0;

    fn new(score: f64, inverse_temperature: f64) -> Self {
        // Roundings of the level, the scaled logit and their difference come to less than 2^-22 (|score| + 32).
        let slack = (score.abs() + 32.0) * (1.0 / 1_048_576.0);
        let level = score - slack + 4.0;
        // Beyond these f32 could overflow: then all pass.
        let tame = score.abs() < 1e30 && inverse_temperature < 1e30;
        Self {
            inverse_temperature: inverse_temperature as f32,
            level: if tame { level as f32 } else { f32::NEG_INFINITY },
            thresholds: &THRESHOLDS,
        }
    }

    /// Whether a token of this logit and code may win.
    #[inline(always)]
    pub fn passes(&self, logit: f32, code: u32) -> bool {
        code >= self.threshold(logit)
    }

    /// Least code with which a token of this logit may win.
    #[inline(always)]
    pub fn threshold(&self, logit: f32) -> u32 {
        let distance = self.level - logit * self.inverse_temperature;
        // The conversion sends NaN to 0, where all pass.
        self.thresholds[distance.clamp(0.0, 31.0) as usize & 31]
    }

    /// Whether no token of this logit or less can win, whatever its code.
    #[inline(always)]
    pub fn hopeless(&self, logit: f32) -> bool {
        self.level - logit * self.inverse_temperature >= Self::HOPELESS
    }
}

/// The race for the greatest `logit / temperature + gumbel`, decided in f64; the lowest id wins ties.
///
/// Scores are `f64(logit) * (1 / temperature) + gumbel(code)`, each operation rounded once. The outcome depends on neither the
/// order nor the number of offers, as long as the winner is among them.
#[derive(Clone, Debug)]
pub struct Race {
    keys: NoiseKeys,
    inverse_temperature: f64,
    score: f64,
    winner: Token,
    filter: Filter,
    excluded: SmallTokens,
}

impl Race {
    /// Starts with a first, unmasked token, best one of a great logit: the higher the score to beat, the fewer pass the filter.
    pub fn new(keys: NoiseKeys, inverse_temperature: f64, first: Token, logit: f32) -> Self {
        let score = f64::from(logit) * inverse_temperature + keys.gumbel(first);
        Self {
            keys,
            inverse_temperature,
            score,
            winner: first,
            filter: Filter::new(score, inverse_temperature),
            excluded: SmallTokens::new(),
        }
    }

    /// The same race without some tokens. The first token must not be among them.
    #[must_use]
    pub fn without(mut self, excluded: SmallTokens) -> Self {
        self.excluded = excluded;
        self
    }

    /// The keys of this position's codes.
    pub fn keys(&self) -> NoiseKeys {
        self.keys
    }

    /// The test to apply now. It tightens with every offer that takes the lead; an older copy passes more, never less.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Enters a token. Masked tokens (`-inf`) and excluded ones never win.
    pub fn offer(&mut self, token: Token, logit: f32) {
        if self.excluded.contains(&token) {
            return;
        }
        let score = f64::from(logit) * self.inverse_temperature + gumbel_of_code(self.keys.code(token));
        if score > self.score {
            self.score = score;
            self.winner = token;
            self.filter = Filter::new(score, self.inverse_temperature);
        } else if score == self.score && token < self.winner && logit > f32::NEG_INFINITY {
            self.winner = token;
        }
    }

    /// The leader.
    pub fn winner(&self) -> Token {
        self.winner
    }
}

/// The hash-and-compare scan over a row.
///
/// An implementation must offer every token that passes [`Race::filter`]; it may offer more. Exactness lives in [`Race`], so
/// all implementations name the same winner.
pub trait NoiseScan: Send + Sync {
    /// Offers the tokens that may win. `logits[i]` belongs to token `ids[i]`, or to token `i` without `ids`; there are no NaN
    /// and no plus infinity among them.
    fn scan(&self, logits: &[f32], ids: Option<&[Token]>, race: &mut Race);
}

/// The portable scan, and the reference of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScalarScan;

impl NoiseScan for ScalarScan {
    fn scan(&self, logits: &[f32], ids: Option<&[Token]>, race: &mut Race) {
        const BLOCK: usize = 64;
        let keys = race.keys();
        let mut codes = [0u32; BLOCK];
        for (block, logits) in logits.chunks(BLOCK).enumerate() {
            let start = block * BLOCK;
            let greatest = logits.iter().fold(f32::NEG_INFINITY, |max, &logit| if logit > max { logit } else { max });
            let filter = *race.filter();
            if filter.hopeless(greatest) {
                continue;
            }
            // The block's greatest logit has its lowest threshold, which far below the leader almost no code reaches: one
            // comparison per block instead of a look-up per token.
            let least = filter.threshold(greatest);
            match ids {
                None => codes.iter_mut().zip(start as Token..).for_each(|(code, token)| *code = keys.code(token)),
                Some(ids) => codes.iter_mut().zip(&ids[start..]).for_each(|(code, &token)| *code = keys.code(token)),
            }
            let codes = &codes[..logits.len()];
            if !codes.iter().fold(false, |any, &code| any | (code >= least)) {
                continue;
            }
            for (lane, (&logit, &code)) in logits.iter().zip(codes).enumerate() {
                if code >= least && race.filter().passes(logit, code) {
                    race.offer(ids.map_or((start + lane) as Token, |ids| ids[start + lane]), logit);
                }
            }
        }
    }
}

/// The noise, and how a row is searched with it.
#[derive(Clone, Copy)]
pub struct SharedNoise<'a> {
    /// The noise.
    pub noise: Noise,
    /// The scan; it changes the time, never the token.
    pub scan: &'a dyn NoiseScan,
}

impl core::fmt::Debug for SharedNoise<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedNoise").field("noise", &self.noise).finish_non_exhaustive()
    }
}
