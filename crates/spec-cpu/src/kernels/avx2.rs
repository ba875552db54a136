//! Vectors of AVX2, with the dot products of AVX-VNNI or without: half a panel's outputs in one.

use std::arch::x86_64::*;

use half::f16;

use super::simd::{Kernel, ROUNDING, Simd};
use crate::{Avx2, Avx2Vnni};

/// Runs `kernel` compiled for AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run<K: Kernel>(_: Avx2, kernel: K) -> K::Output {
    kernel.run(Ymm::<false>(()))
}

/// Runs `kernel` compiled for AVX2 with AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) fn run_vnni<K: Kernel>(_: Avx2Vnni, kernel: K) -> K::Output {
    kernel.run(Ymm::<true>(()))
}

/// Made only by the entries above, whose tokens prove that the instructions are there.
#[derive(Clone, Copy)]
struct Ymm<const VNNI: bool>(());

impl<const VNNI: bool> Simd for Ymm<VNNI> {
    const WIDTH: usize = 8;
    const REGISTERS: usize = 16;
    type Bytes = __m256i;
    type Ints = __m256i;
    type Floats = __m256;

    #[inline(always)]
    unsafe fn load_bytes(self, at: *const u8) -> __m256i {
        // SAFETY: the token proves support, the caller that the bytes are there.
        unsafe { _mm256_loadu_si256(at.cast()) }
    }

    #[inline(always)]
    fn nibbles(self, codes: __m256i) -> (__m256i, __m256i) {
        // SAFETY: the token proves support.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            (_mm256_and_si256(codes, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask))
        }
    }

    #[inline(always)]
    unsafe fn add_bits(self, codes: __m256i, bits: *const u8, value: u8) -> __m256i {
        // SAFETY: the token proves support, the caller that 32 bits are there.
        unsafe {
            // Each byte of the vector gets the byte with its bit, then the bit alone.
            let all = _mm256_set1_epi32(bits.cast::<i32>().read_unaligned());
            let source = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            let single = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(all, source), single), single);
            _mm256_or_si256(codes, _mm256_and_si256(set, _mm256_set1_epi8(value.cast_signed())))
        }
    }

    #[inline(always)]
    fn two_bits(self, codes: __m256i, upper: bool) -> (__m256i, __m256i) {
        // SAFETY: the token proves support.
        unsafe {
            let (first, second) = if upper {
                (_mm256_srli_epi16::<4>(codes), _mm256_srli_epi16::<6>(codes))
            } else {
                (codes, _mm256_srli_epi16::<2>(codes))
            };
            let mask = _mm256_set1_epi8(3);
            (_mm256_and_si256(first, mask), _mm256_and_si256(second, mask))
        }
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: __m256i) -> __m256i {
        // SAFETY: the token proves support; the table has 16 bytes.
        unsafe { _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), codes) }
    }

    #[inline(always)]
    fn six_bits(self, low: __m256i, high: __m256i, upper: bool) -> (__m256i, __m256i) {
        // SAFETY: the token proves support.
        unsafe {
            let (first, second) = if upper {
                (high, _mm256_srli_epi16::<2>(high))
            } else {
                (_mm256_slli_epi16::<4>(high), _mm256_slli_epi16::<2>(high))
            };
            let mask = _mm256_set1_epi8(0x30);
            let (low, middle) = self.nibbles(low);
            (
                _mm256_or_si256(low, _mm256_and_si256(first, mask)),
                _mm256_or_si256(middle, _mm256_and_si256(second, mask)),
            )
        }
    }

    #[inline(always)]
    fn add_words(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves support.
        unsafe { _mm256_add_epi64(a, b) }
    }

    #[inline(always)]
    fn sum_words(self, words: __m256i) -> u64 {
        let mut parts = [0_u64; 4];
        // SAFETY: the token proves support; the array has 32 bytes.
        unsafe { _mm256_storeu_si256(parts.as_mut_ptr().cast(), words) };
        parts.into_iter().fold(0, u64::wrapping_add)
    }

    #[inline(always)]
    fn ints(self, value: i32) -> __m256i {
        // SAFETY: the token proves support.
        unsafe { _mm256_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn multiply<const R: usize, const G: usize>(
        self,
        sums: &mut [[__m256i; R]; G],
        codes: &[(__m256i, __m256i); G],
        activations: [*const i8; G],
        stride: usize,
        wide: bool,
    ) {
        for ((sums, &codes), activations) in sums.iter_mut().zip(codes).zip(activations) {
            // SAFETY: the token proves support, the caller that the activations are there.
            unsafe {
                if VNNI {
                    dot_products(sums, codes, activations, stride);
                } else if wide {
                    // Two products of eight bits do not fit the 16-bit sums: nibbles apart.
                    let ((low0, high0), (low1, high1)) = (self.nibbles(codes.0), self.nibbles(codes.1));
                    pair_products(sums, (low0, low1), activations, stride, 1);
                    pair_products(sums, (high0, high1), activations, stride, 16);
                } else {
                    pair_products(sums, codes, activations, stride, 1);
                }
            }
        }
    }

    #[inline(always)]
    fn mul_add_ints(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // SAFETY: the token proves support.
        unsafe { _mm256_add_epi32(_mm256_mullo_epi32(a, b), c) }
    }

    #[inline(always)]
    unsafe fn load_pairs(self, at: *const u8) -> __m256i {
        // SAFETY: the token proves support, the caller that the bytes are there.
        unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_nibble_pairs(self, at: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe {
            let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast()));
            let both = _mm256_or_si256(bytes, _mm256_slli_epi32::<12>(bytes));
            _mm256_and_si256(both, _mm256_set1_epi32(0x000f_000f))
        }
    }

    #[inline(always)]
    fn multiply_pairs(self, sums: __m256i, pairs: __m256i, factors: i32) -> __m256i {
        // SAFETY: the token proves support.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi32(factors))) }
    }

    #[inline(always)]
    fn to_floats(self, values: __m256i) -> __m256 {
        // SAFETY: the token proves support.
        unsafe { _mm256_cvtepi32_ps(values) }
    }

    #[inline(always)]
    fn sum_ints(self, values: __m256i) -> i32 {
        let mut parts = [0_i32; 8];
        // SAFETY: the token proves support; the array has 32 bytes.
        unsafe { _mm256_storeu_si256(parts.as_mut_ptr().cast(), values) };
        parts.into_iter().fold(0, i32::wrapping_add)
    }

    #[inline(always)]
    fn greater_magnitude(self, most: __m256i, values: __m256) -> __m256i {
        // SAFETY: the token proves support.
        unsafe {
            let magnitudes = _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(0x7fff_ffff));
            _mm256_max_epi32(most, magnitudes)
        }
    }

    #[inline(always)]
    fn greatest(self, values: __m256i) -> i32 {
        let mut lanes = [0_i32; 8];
        // SAFETY: the token proves support; the array has 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), values) };
        lanes.into_iter().fold(i32::MIN, i32::max)
    }

    #[inline(always)]
    fn round(self, values: __m256, factor: __m256) -> __m256i {
        // SAFETY: the token proves support.
        unsafe {
            let shifted = _mm256_add_ps(_mm256_mul_ps(values, factor), _mm256_set1_ps(ROUNDING));
            _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(ROUNDING.to_bits().cast_signed()))
        }
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, at: *mut i8, values: __m256i) {
        // SAFETY: the token proves support, the caller that there is room.
        unsafe {
            // The low bytes of each half come first in it.
            let bytes = _mm256_shuffle_epi8(values, _mm256_set1_epi32(0x0c08_0400));
            let (first, second) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            _mm_storel_epi64(at.cast(), _mm_unpacklo_epi32(first, second));
        }
    }

    #[inline(always)]
    fn floats(self, value: f32) -> __m256 {
        // SAFETY: the token proves support.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves support.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token proves support.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn neg_mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token proves support.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> __m256 {
        // SAFETY: the token proves support, the caller that the numbers are there.
        unsafe { _mm256_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn load_halves(self, at: *const f16) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_brain_floats(self, at: *const u16) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())))) }
    }

    #[inline(always)]
    unsafe fn load_unsigned(self, at: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_signed(self, at: *const i8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, values: __m256) {
        // SAFETY: the token proves support, the caller that there is room.
        unsafe { _mm256_storeu_ps(at, values) };
    }

    #[inline(always)]
    unsafe fn store_halves(self, at: *mut f16, values: __m256) {
        // SAFETY: as above; every bit pattern is an f16.
        unsafe { _mm_storeu_si128(at.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values)) };
    }

    #[inline(always)]
    fn prefetch<const FIRST_LEVEL: bool>(self, at: *const u8) {
        super::prefetch_x86::<FIRST_LEVEL>(at);
    }
}

/// Four activations in every lane.
///
/// # Safety
/// The processor has AVX2 and four bytes are readable at `at`.
#[inline(always)]
unsafe fn broadcast(at: *const i8) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe { _mm256_set1_epi32(at.cast::<i32>().read_unaligned()) }
}

/// Adds the products of eight codes with the activations of each row.
///
/// # Safety
/// The processor has AVX-VNNI; eight activations are readable at `activations + stride * r` for every row.
#[inline(always)]
unsafe fn dot_products<const R: usize>(
    sums: &mut [__m256i; R],
    codes: (__m256i, __m256i),
    activations: *const i8,
    stride: usize,
) {
    for (codes, at) in [(codes.0, 0), (codes.1, 4)] {
        for (row, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's contract.
            *sum = unsafe { _mm256_dpbusd_avx_epi32(*sum, codes, broadcast(activations.add(stride * row + at))) };
        }
    }
}

/// Adds `factor` times the products of eight codes below 64 with the activations of each row. Four products of 63 and
/// -127 stay within 16 bits.
///
/// # Safety
/// The processor has AVX2; eight activations are readable at `activations + stride * r` for every row.
#[inline(always)]
unsafe fn pair_products<const R: usize>(
    sums: &mut [__m256i; R],
    codes: (__m256i, __m256i),
    activations: *const i8,
    stride: usize,
    factor: i16,
) {
    for (row, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        unsafe {
            let activations = activations.add(stride * row);
            let first = _mm256_maddubs_epi16(codes.0, broadcast(activations));
            let second = _mm256_maddubs_epi16(codes.1, broadcast(activations.add(4)));
            let products = _mm256_madd_epi16(_mm256_add_epi16(first, second), _mm256_set1_epi16(factor));
            *sum = _mm256_add_epi32(*sum, products);
        }
    }
}
