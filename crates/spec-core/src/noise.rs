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
        Self {
            state: mix64(mix64(seed).wrapping_add(counter)),
        }
    }

    /// The keys of `position`, the absolute position of the token being sampled.
    pub fn keys(&self, position: usize) -> NoiseKeys {
        let counter = (position as u64).wrapping_add(1).wrapping_mul(GOLDEN);
        let mixed = mix64(self.state.wrapping_add(counter));
        NoiseKeys {
            first: mixed as u32,
            second: (mixed >> 32) as u32,
        }
    }

    /// The 32-bit code of `token` at `position`.
    pub fn code(&self, position: usize, token: Token) -> u32 {
        self.keys(position).code(token)
    }

    /// The Gumbel variable of `token` at `position`, in [-3.1301, 22.8739].
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
