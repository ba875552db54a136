//! The scan for the winner of a row under shared noise, sixteen tokens at a time.

use std::sync::Arc;

use spec_core::{NoiseScan, ScalarScan};

use crate::Isa;

/// The fastest scan of an instruction set. All name the same winner: they only select what the race then decides.
#[must_use]
pub fn noise_scan(isa: Isa) -> Arc<dyn NoiseScan> {
    match isa {
        Isa::Portable => Arc::new(ScalarScan),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni(token) => Arc::new(avx512::Scan(token)),
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use spec_core::{Filter, NoiseKeys, NoiseScan, Race, ScalarScan, Token};

    use crate::Avx512Vnni;

    const LANES: usize = 16;

    /// The token proves that the scan runs here.
    pub(super) struct Scan(pub(super) Avx512Vnni);

    impl NoiseScan for Scan {
        fn scan(&self, logits: &[f32], ids: Option<&[Token]>, race: &mut Race) {
            assert!(ids.is_none_or(|ids| ids.len() >= logits.len()), "an id for every logit");
            let whole = logits.len() / LANES * LANES;
            // SAFETY: the token proves support.
            unsafe { scan(&logits[..whole], ids, race) };
            let rest: [Token; LANES];
            let tail = match ids {
                Some(ids) => &ids[whole..],
                None => {
                    rest = std::array::from_fn(|lane| (whole + lane) as Token);
                    &rest[..logits.len() - whole]
                }
            };
            ScalarScan.scan(&logits[whole..], Some(tail), race);
        }
    }

    /// What is constant until the lead changes.
    #[derive(Clone, Copy)]
    struct Constants {
        inverse_temperature: __m512,
        level: __m512,
        low: __m512i,
        high: __m512i,
    }

    impl Constants {
        #[target_feature(enable = "avx512f")]
        fn new(filter: &Filter) -> Self {
            let (low, high) = filter.thresholds.split_at(LANES);
            // SAFETY: both halves hold 16 numbers.
            let (low, high) =
                unsafe { (_mm512_loadu_si512(low.as_ptr().cast()), _mm512_loadu_si512(high.as_ptr().cast())) };
            let inverse_temperature = _mm512_set1_ps(filter.inverse_temperature);
            Self { inverse_temperature, level: _mm512_set1_ps(filter.level), low, high }
        }

        /// The tokens that may still win, as [`Filter::passes`] defines it.
        #[target_feature(enable = "avx512f")]
        fn passing(&self, logits: __m512, codes: __m512i) -> __mmask16 {
            // Not fused: the filter's slack is for separately rounded operations. A NaN becomes zero: `max` gives its
            // second operand then.
            let distance = _mm512_sub_ps(self.level, _mm512_mul_ps(logits, self.inverse_temperature));
            let distance = _mm512_min_ps(_mm512_max_ps(distance, _mm512_setzero_ps()), _mm512_set1_ps(31.0));
            let thresholds = _mm512_permutex2var_epi32(self.low, _mm512_cvttps_epi32(distance), self.high);
            _mm512_cmpge_epu32_mask(codes, thresholds)
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mix(x: __m512i) -> __m512i {
        let x = _mm512_xor_si512(x, _mm512_srli_epi32::<16>(x));
        let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(0x21F0_AAAD));
        let x = _mm512_xor_si512(x, _mm512_srli_epi32::<15>(x));
        let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(0x735A_2D97));
        _mm512_xor_si512(x, _mm512_srli_epi32::<15>(x))
    }

    /// The codes of sixteen tokens, as [`NoiseKeys::code`] defines them.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn codes(keys: NoiseKeys, tokens: __m512i) -> __m512i {
        let first = _mm512_set1_epi32(keys.first.cast_signed());
        let second = _mm512_set1_epi32(keys.second.cast_signed());
        mix(_mm512_xor_si512(mix(_mm512_xor_si512(tokens, first)), second))
    }

    /// Scans whole vectors of logits; `ids`, if any, has at least as many items.
    #[target_feature(enable = "avx512f")]
    fn scan(logits: &[f32], ids: Option<&[Token]>, race: &mut Race) {
        let keys = race.keys();
        let mut constants = Constants::new(race.filter());
        let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        for (index, logits) in logits.chunks_exact(LANES).enumerate() {
            let start = index * LANES;
            let tokens = match ids {
                // SAFETY: sixteen ids are in bounds of the slice taken.
                Some(ids) => unsafe { _mm512_loadu_si512(ids[start..start + LANES].as_ptr().cast()) },
                None => _mm512_add_epi32(_mm512_set1_epi32((start as u32).cast_signed()), lanes),
            };
            // SAFETY: a chunk holds sixteen logits.
            let values = unsafe { _mm512_loadu_ps(logits.as_ptr()) };
            let mut passing = constants.passing(values, codes(keys, tokens));
            if passing == 0 {
                continue;
            }
            while passing != 0 {
                let lane = passing.trailing_zeros() as usize;
                passing &= passing - 1;
                race.offer(ids.map_or((start + lane) as Token, |ids| ids[start + lane]), logits[lane]);
            }
            constants = Constants::new(race.filter());
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn codes_are_those_of_the_scalar_hash() {
            let Some(_) = Avx512Vnni::new() else { return };
            for (first, second) in [(0, 0), (1, u32::MAX), (0x8000_0000, 0x1234_5678)] {
                let keys = NoiseKeys { first, second };
                for start in [0_u32, 151_000, u32::MAX - 15] {
                    let tokens: [u32; LANES] = std::array::from_fn(|lane| start + lane as u32);
                    let mut found = [0_u32; LANES];
                    // SAFETY: support was just checked; both arrays hold 16 numbers.
                    unsafe {
                        let vector = codes(keys, _mm512_loadu_si512(tokens.as_ptr().cast()));
                        _mm512_storeu_si512(found.as_mut_ptr().cast(), vector);
                    }
                    assert_eq!(found, tokens.map(|token| keys.code(token)));
                }
            }
        }

        #[test]
        fn the_filter_passes_what_the_scalar_filter_passes() {
            let Some(_) = Avx512Vnni::new() else { return };
            let keys = NoiseKeys { first: 3, second: 4 };
            for (temperature, best) in [(1.0, 20.0), (0.1, 300.0), (2.0, -5.0), (1e-35, 1.0)] {
                let race = Race::new(keys, 1.0 / temperature, 7, best);
                let filter = *race.filter();
                for start in 0..200_u32 {
                    let logits: [f32; LANES] = std::array::from_fn(|lane| match lane {
                        0 => f32::NEG_INFINITY,
                        _ => best - (start * 16 + lane as u32) as f32 * 0.01 * temperature as f32,
                    });
                    let codes: [u32; LANES] = std::array::from_fn(|lane| keys.code(start * 16 + lane as u32));
                    // SAFETY: support was just checked; both arrays hold 16 numbers.
                    let passing = unsafe {
                        Constants::new(&filter)
                            .passing(_mm512_loadu_ps(logits.as_ptr()), _mm512_loadu_si512(codes.as_ptr().cast()))
                    };
                    for lane in 0..LANES {
                        let expected = filter.passes(logits[lane], codes[lane]);
                        assert_eq!(passing >> lane & 1 == 1, expected, "logit {}, code {}", logits[lane], codes[lane]);
                    }
                }
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
            let scan = noise_scan(isa);
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
