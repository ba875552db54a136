//! Vectors of AVX-512 with VNNI: a panel's sixteen outputs in one.

use std::arch::x86_64::*;

use half::f16;

use super::simd::{Kernel, ROUNDING, Simd};
use crate::{Amx, Avx512Vnni};

/// Runs `kernel` compiled for this instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn run<K: Kernel>(token: Avx512Vnni, kernel: K) -> K::Output {
    kernel.run(Zmm::<false>::new(token))
}

/// The same, with the sums of super-blocks as tiles form them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn run_exact<K: Kernel>(token: Amx, kernel: K) -> K::Output {
    kernel.run(Zmm::<true>::new(token.vectors()))
}

/// Made with a token, which proves that the instructions are there.
#[derive(Clone, Copy)]
pub(super) struct Zmm<const EXACT: bool>(());

impl<const EXACT: bool> Zmm<EXACT> {
    #[inline(always)]
    pub(super) fn new(_: Avx512Vnni) -> Self {
        Self(())
    }
}

impl<const EXACT: bool> Simd for Zmm<EXACT> {
    const WIDTH: usize = 16;
    const EXACT: bool = EXACT;
    const REGISTERS: usize = 32;
    type Bytes = __m512i;
    type Ints = __m512i;
    type Floats = __m512;

    #[inline(always)]
    unsafe fn load_bytes(self, at: *const u8) -> __m512i {
        // SAFETY: the token proves support, the caller that the bytes are there.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    #[inline(always)]
    fn nibbles(self, codes: __m512i) -> (__m512i, __m512i) {
        // SAFETY: the token proves support.
        unsafe {
            let mask = _mm512_set1_epi8(15);
            (_mm512_and_si512(codes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask))
        }
    }

    #[inline(always)]
    unsafe fn add_bits(self, codes: __m512i, bits: *const u8, value: u8) -> __m512i {
        // SAFETY: the token proves support, the caller that 64 bits are there.
        unsafe {
            let mask = bits.cast::<u64>().read_unaligned();
            _mm512_mask_add_epi8(codes, mask, codes, _mm512_set1_epi8(value.cast_signed()))
        }
    }

    #[inline(always)]
    fn two_bits(self, codes: __m512i, upper: bool) -> (__m512i, __m512i) {
        // SAFETY: the token proves support.
        unsafe {
            let (first, second) = if upper {
                (_mm512_srli_epi16::<4>(codes), _mm512_srli_epi16::<6>(codes))
            } else {
                (codes, _mm512_srli_epi16::<2>(codes))
            };
            let mask = _mm512_set1_epi8(3);
            (_mm512_and_si512(first, mask), _mm512_and_si512(second, mask))
        }
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: __m512i) -> __m512i {
        // SAFETY: the token proves support; the table has 16 bytes.
        unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), codes) }
    }

    #[inline(always)]
    fn six_bits(self, low: __m512i, high: __m512i, upper: bool) -> (__m512i, __m512i) {
        // SAFETY: the token proves support.
        unsafe {
            let (low_mask, high_mask) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
            let (first, second) = if upper {
                (high, _mm512_srli_epi16::<2>(high))
            } else {
                (_mm512_slli_epi16::<4>(high), _mm512_slli_epi16::<2>(high))
            };
            let first = _mm512_and_si512(first, high_mask);
            let second = _mm512_and_si512(second, high_mask);
            // (nibble & 0x0f) | field
            let upper = _mm512_srli_epi16::<4>(low);
            (
                _mm512_ternarylogic_epi32::<0xea>(low, low_mask, first),
                _mm512_ternarylogic_epi32::<0xea>(upper, low_mask, second),
            )
        }
    }

    #[inline(always)]
    fn add_words(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves support.
        unsafe { _mm512_add_epi64(a, b) }
    }

    #[inline(always)]
    fn sum_words(self, words: __m512i) -> u64 {
        // SAFETY: the token proves support.
        unsafe { _mm512_reduce_add_epi64(words).cast_unsigned() }
    }

    #[inline(always)]
    fn ints(self, value: i32) -> __m512i {
        // SAFETY: the token proves support.
        unsafe { _mm512_set1_epi32(value) }
    }

    /// First the first four codes of all rows and sub-blocks, so that neighbouring instructions do not wait for each
    /// other: the dot product has a latency of five cycles and starts twice per cycle.
    #[inline(always)]
    unsafe fn multiply<const R: usize, const G: usize>(
        self,
        sums: &mut [[__m512i; R]; G],
        codes: &[(__m512i, __m512i); G],
        activations: [*const i8; G],
        stride: usize,
        _: bool,
    ) {
        for second in [false, true] {
            for ((sums, codes), activations) in sums.iter_mut().zip(codes).zip(activations) {
                let (codes, at) = if second { (codes.1, 4) } else { (codes.0, 0) };
                for (row, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the token proves support, the caller that the activations are there.
                    unsafe {
                        let four = activations.add(stride * row + at).cast::<i32>().read_unaligned();
                        *sum = _mm512_dpbusd_epi32(*sum, codes, _mm512_set1_epi32(four));
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn mul_add_ints(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: the token proves support.
        unsafe { _mm512_add_epi32(_mm512_mullo_epi32(a, b), c) }
    }

    #[inline(always)]
    unsafe fn load_pairs(self, at: *const u8) -> __m512i {
        // SAFETY: the token proves support, the caller that the bytes are there.
        unsafe { _mm512_cvtepu8_epi16(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_nibble_pairs(self, at: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast()));
            let both = _mm512_or_si512(bytes, _mm512_slli_epi32::<12>(bytes));
            _mm512_and_si512(both, _mm512_set1_epi32(0x000f_000f))
        }
    }

    #[inline(always)]
    fn multiply_pairs(self, sums: __m512i, pairs: __m512i, factors: i32) -> __m512i {
        // SAFETY: the token proves support.
        unsafe { _mm512_dpwssd_epi32(sums, pairs, _mm512_set1_epi32(factors)) }
    }

    #[inline(always)]
    fn to_floats(self, values: __m512i) -> __m512 {
        // SAFETY: the token proves support.
        unsafe { _mm512_cvtepi32_ps(values) }
    }

    #[inline(always)]
    fn sum_ints(self, values: __m512i) -> i32 {
        // SAFETY: the token proves support.
        unsafe { _mm512_reduce_add_epi32(values) }
    }

    #[inline(always)]
    fn greater_magnitude(self, most: __m512i, values: __m512) -> __m512i {
        // SAFETY: the token proves support.
        unsafe { _mm512_max_epi32(most, _mm512_castps_si512(_mm512_abs_ps(values))) }
    }

    #[inline(always)]
    fn greatest(self, values: __m512i) -> i32 {
        // SAFETY: the token proves support.
        unsafe { _mm512_reduce_max_epi32(values) }
    }

    #[inline(always)]
    fn round(self, values: __m512, factor: __m512) -> __m512i {
        // SAFETY: the token proves support.
        unsafe {
            let shifted = _mm512_add_ps(_mm512_mul_ps(values, factor), _mm512_set1_ps(ROUNDING));
            _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(ROUNDING.to_bits().cast_signed()))
        }
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, at: *mut i8, values: __m512i) {
        // SAFETY: the token proves support, the caller that there is room.
        unsafe { _mm_storeu_si128(at.cast(), _mm512_cvtepi32_epi8(values)) };
    }

    #[inline(always)]
    fn floats(self, value: f32) -> __m512 {
        // SAFETY: the token proves support.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves support.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves support.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn neg_mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves support.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> __m512 {
        // SAFETY: the token proves support, the caller that the numbers are there.
        unsafe { _mm512_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn load_halves(self, at: *const f16) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_brain_floats(self, at: *const u16) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())))) }
    }

    #[inline(always)]
    unsafe fn load_unsigned(self, at: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_signed(self, at: *const i8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, values: __m512) {
        // SAFETY: the token proves support, the caller that there is room.
        unsafe { _mm512_storeu_ps(at, values) };
    }

    #[inline(always)]
    unsafe fn store_halves(self, at: *mut f16, values: __m512) {
        // SAFETY: as above; every bit pattern is an f16.
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values)) };
    }

    #[inline(always)]
    fn prefetch<const FIRST_LEVEL: bool>(self, at: *const u8) {
        super::prefetch_x86::<FIRST_LEVEL>(at);
    }
}
