//! Matrix kernels for AVX-512 with VNNI.
//!
//! Shape of all integer kernels: a 64-byte vector of weights is loaded and expanded once, then multiplied for each of `R` rows with
//! four activations broadcast from memory (`vpdpbusd zmm, zmm, m32{1to16}`), into one accumulator per row that lives in a register.
//! At eight rows expansion is about a tenth of the instructions, and the loop still keeps up with memory.
//!
//! `vpdpbusd` has a latency of five cycles and two of them start per cycle, so a dozen chains must be in flight. Eight rows have eight:
//! kernels interleave the accumulators of several sub-blocks, whose sums are separate anyway.

use std::arch::x86_64::*;

use super::{Sums, Vectorize};
use crate::activation::Tile;
use crate::packed::{LANES, PAIR, WeightType, q4_k, q6_k, split_block};

/// How far ahead of use, in bytes, weights are fetched into the second-level cache: hardware prefetchers stop at 4 KiB, and that cache
/// tracks three times as many misses as the first.
const PREFETCH_FAR: usize = 8192;
/// How far ahead weights move on into the first-level cache, so that the loop waits for neither.
const PREFETCH_NEAR: usize = 1024;

/// Compiles `operation` for this instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn vectorize<V: Vectorize>(operation: V) -> V::Output {
    operation.run()
}

/// As [`crate::Isa::panel`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn panel(ty: WeightType, panel: &[u8], tile: &Tile<'_>, sums: &mut Sums) {
    match tile.rows {
        1 => rows::<1>(ty, panel, tile, sums),
        2 => rows::<2>(ty, panel, tile, sums),
        3 => rows::<3>(ty, panel, tile, sums),
        4 => rows::<4>(ty, panel, tile, sums),
        5 => rows::<5>(ty, panel, tile, sums),
        6 => rows::<6>(ty, panel, tile, sums),
        7 => rows::<7>(ty, panel, tile, sums),
        8 => rows::<8>(ty, panel, tile, sums),
        rows => unreachable!("a tile of {rows} rows"),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn rows<const R: usize>(ty: WeightType, panel: &[u8], tile: &Tile<'_>, sums: &mut Sums) {
    let blocks = tile.blocks;
    let sums: &mut [[f32; LANES]; R] = sums.first_chunk_mut().expect("R is at most a tile");
    // Every kernel below walks pointers over these slices; their lengths are all it relies on.
    let (bytes, per_row) = (panel.len(), blocks * R);
    match ty {
        WeightType::F32 | WeightType::F16 => {
            let size = if ty == WeightType::F32 { 4 } else { 2 };
            assert!(bytes >= blocks * LANES * size && tile.floats.len() == per_row);
            // SAFETY: the lengths were just checked.
            unsafe {
                match ty {
                    WeightType::F32 => float::<R, false>(panel.as_ptr(), tile, sums),
                    _ => float::<R, true>(panel.as_ptr(), tile, sums),
                }
            }
        }
        WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q8_0 => {
            let last_end = split_block(ty, blocks, blocks).0;
            assert!(bytes >= last_end && tile.codes.len() == per_row);
            assert!(tile.scales.len() == per_row && tile.scaled_sums.len() == per_row);
            assert!(tile.starts.len() == per_row && tile.sums.len() == per_row);
            // SAFETY: the lengths were just checked.
            unsafe {
                match ty {
                    WeightType::Q4_1 => blocks32::<R, Q4_1>(panel.as_ptr(), tile, sums),
                    WeightType::Q5_0 => blocks32::<R, Q5_0>(panel.as_ptr(), tile, sums),
                    _ => blocks32::<R, Q8_0>(panel.as_ptr(), tile, sums),
                }
            }
        }
        WeightType::Q4_K | WeightType::Q6_K => {
            let size = if ty == WeightType::Q4_K { q4_k::BYTES } else { q6_k::BYTES };
            assert!(bytes >= blocks * size && tile.codes.len() == per_row * 8);
            assert!(tile.scales.len() == per_row);
            assert!(tile.starts.len() == per_row * 16 && tile.sums.len() == per_row * 4);
            // SAFETY: the lengths were just checked.
            unsafe {
                match ty {
                    WeightType::Q4_K if R <= 4 => {
                        super_blocks_q4_k::<R, 4>(panel.as_ptr(), tile, sums);
                    }
                    WeightType::Q4_K => super_blocks_q4_k::<R, 2>(panel.as_ptr(), tile, sums),
                    _ if R <= 4 => super_blocks_q6_k::<R, 4>(panel.as_ptr(), tile, sums),
                    _ => super_blocks_q6_k::<R, 2>(panel.as_ptr(), tile, sums),
                }
            }
        }
    }
}

/// Fetches `LINES` cache lines at both distances past `at`. Addresses past the mapping are harmless.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[allow(unused_unsafe, reason = "a safe function from Rust 1.95 on")]
fn prefetch<const LINES: usize>(at: *const u8) {
    for line in 0..LINES {
        let (far, near) = (PREFETCH_FAR + line * 64, PREFETCH_NEAR + line * 64);
        // SAFETY: a prefetch never faults.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(far).cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(near).cast());
        }
    }
}

/// # Safety
/// 64 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn load(at: *const u8) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// Sixteen f16 as f32.
///
/// # Safety
/// 32 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn load_halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's contract.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
}

/// The low and the high nibbles of each byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn nibbles(codes: __m512i) -> (__m512i, __m512i) {
    let mask = _mm512_set1_epi8(15);
    (_mm512_and_si512(codes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask))
}

/// Adds the products of four inputs to the accumulators of `R` rows whose codes lie 32 bytes apart.
///
/// # Safety
/// Four bytes are readable at `activations + 32 * r` for every `r < R`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn multiply<const R: usize>(dots: &mut [__m512i; R], weights: __m512i, activations: *const i8) {
    for (row, dot) in dots.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        let four = unsafe { activations.add(32 * row).cast::<i32>().read_unaligned() };
        *dot = _mm512_dpbusd_epi32(*dot, weights, _mm512_set1_epi32(four));
    }
}

/// Multiplies sub-blocks, whose activations lie `$stride` bytes apart, with eight inputs each: first the first four of all, so that
/// consecutive instructions do not wait for each other. A macro, because as a function it is too large to be inlined
/// dependably, and accumulators would go through memory. To be used where [`multiply`] may be called with these addresses.
macro_rules! multiply_group {
    ($dots:expr, $weights:expr, $activations:expr, $stride:expr) => {
        for (sub, (dots, weights)) in $dots.iter_mut().zip(&$weights).enumerate() {
            multiply(dots, weights.0, $activations.add(sub * $stride));
        }
        for (sub, (dots, weights)) in $dots.iter_mut().zip(&$weights).enumerate() {
            multiply(dots, weights.1, $activations.add(sub * $stride + 4));
        }
    };
}

/// # Safety
/// `panel` holds `tile.blocks` x 16 floats of the size that `HALF` says, `tile.floats` has `tile.blocks * R` items.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn float<const R: usize, const HALF: bool>(panel: *const u8, tile: &Tile<'_>, sums: &mut [[f32; LANES]; R]) {
    let mut totals = [_mm512_setzero_ps(); R];
    let activations = tile.floats.as_ptr();
    for input in 0..tile.blocks {
        // SAFETY: the caller's contract bounds `input` and `row`.
        unsafe {
            let weights = if HALF {
                load_halves(panel.add(input * LANES * 2))
            } else {
                _mm512_loadu_ps(panel.add(input * LANES * 4).cast())
            };
            for (row, total) in totals.iter_mut().enumerate() {
                let activation = _mm512_set1_ps(*activations.add(input * R + row));
                *total = _mm512_fmadd_ps(weights, activation, *total);
            }
        }
    }
    store(&totals, sums);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn store<const R: usize>(totals: &[__m512; R], sums: &mut [[f32; LANES]; R]) {
    for (sums, total) in sums.iter_mut().zip(totals) {
        // SAFETY: the target has sixteen floats.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), *total) };
    }
}

/// A type with blocks of 32 inputs.
trait Block32 {
    const TYPE: WeightType;
    /// Whether minima follow the scales.
    const HAS_MIN: bool = false;

    /// Where the accumulators of the rows start: minus the code of zero times the sum of the activations.
    fn starts<'a>(_tile: &Tile<'a>) -> Option<&'a [i32]> {
        None
    }

    /// The codes of inputs `8 * pair ..`, in two vectors of four inputs.
    ///
    /// # Safety
    /// The codes of a block lie at `codes`, `pair` is below four, the processor has AVX-512 BW.
    unsafe fn expand(codes: *const u8, pair: usize) -> (__m512i, __m512i);
}

struct Q4_1;
struct Q5_0;
struct Q8_0;

impl Block32 for Q4_1 {
    const TYPE: WeightType = WeightType::Q4_1;
    const HAS_MIN: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn expand(codes: *const u8, pair: usize) -> (__m512i, __m512i) {
        // SAFETY: the caller's contract.
        nibbles(unsafe { load(codes.add(pair * 64)) })
    }
}

impl Block32 for Q5_0 {
    const TYPE: WeightType = WeightType::Q5_0;

    #[inline]
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
        Some(tile.starts)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn expand(codes: *const u8, pair: usize) -> (__m512i, __m512i) {
        let sixteen = _mm512_set1_epi8(16);
        // SAFETY: the caller's contract; eight masks follow the four vectors.
        unsafe {
            let (low, high) = nibbles(load(codes.add(pair * 64)));
            let masks: *const u64 = codes.add(256 + pair * 16).cast();
            let (low_mask, high_mask) = (masks.read_unaligned(), masks.add(1).read_unaligned());
            let low = _mm512_mask_add_epi8(low, low_mask, low, sixteen);
            (low, _mm512_mask_add_epi8(high, high_mask, high, sixteen))
        }
    }
}

impl Block32 for Q8_0 {
    const TYPE: WeightType = WeightType::Q8_0;

    #[inline]
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
        Some(tile.sums)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn expand(codes: *const u8, pair: usize) -> (__m512i, __m512i) {
        // SAFETY: the caller's contract.
        unsafe { (load(codes.add(pair * 128)), load(codes.add(pair * 128 + 64))) }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` blocks of type `B`, the tile's slices have `tile.blocks * R` items.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn blocks32<const R: usize, B: Block32>(panel: *const u8, tile: &Tile<'_>, sums: &mut [[f32; LANES]; R]) {
    let mut totals = [_mm512_setzero_ps(); R];
    let pair_bytes = split_block(B::TYPE, PAIR, 2 * PAIR).0;
    let pairs = tile.blocks / PAIR;
    for pair in 0..pairs {
        // SAFETY: whole pairs lie within the panel and the tile.
        unsafe {
            let base = panel.add(pair * pair_bytes);
            group32::<R, PAIR, B>(base, tile, pair * PAIR, &mut totals);
        }
    }
    if !tile.blocks.is_multiple_of(PAIR) {
        // SAFETY: a last single block ends the panel and the tile.
        unsafe {
            let base = panel.add(pairs * pair_bytes);
            group32::<R, 1, B>(base, tile, pairs * PAIR, &mut totals);
        }
    }
    store(&totals, sums);
}

/// `G` blocks that share a layout group, interleaved.
///
/// # Safety
/// A group of `G` blocks of type `B` lies at `base`; the tile's slices reach `(first + G) * R` items.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn group32<const R: usize, const G: usize, B: Block32>(
    base: *const u8,
    tile: &Tile<'_>,
    first: usize,
    totals: &mut [__m512; R],
) {
    let mut dots = [[_mm512_setzero_si512(); R]; G];
    // SAFETY: the caller's contract; eight vectors of four inputs cover the 32 codes of each row.
    unsafe {
        if let Some(starts) = B::starts(tile) {
            let starts = starts.as_ptr().add(first * R);
            for (block, dots) in dots.iter_mut().enumerate() {
                for (row, dot) in dots.iter_mut().enumerate() {
                    *dot = _mm512_set1_epi32(*starts.add(block * R + row));
                }
            }
        }
        let activations: *const i8 = tile.codes.as_ptr().add(first * R).cast();
        let lines = split_block(B::TYPE, G, 2 * G).0.div_ceil(4 * 64);
        for pair in 0..4 {
            for line in 0..lines {
                prefetch::<1>(base.wrapping_add((pair * lines + line) * 64));
            }
            let mut codes = [(_mm512_setzero_si512(), _mm512_setzero_si512()); G];
            for (block, codes) in codes.iter_mut().enumerate() {
                *codes = B::expand(base.add(split_block(B::TYPE, block, G).0), pair);
            }
            let activations = activations.add(pair * 8);
            multiply_group!(dots, codes, activations, R * 32);
        }
        for (block, dots) in dots.iter().enumerate() {
            let at = (first + block) * R;
            let scales = base.add(split_block(B::TYPE, block, G).1);
            let scale = load_halves(scales);
            let activation_scales = tile.scales.as_ptr().add(at);
            for (row, (total, dot)) in totals.iter_mut().zip(dots).enumerate() {
                let activation_scale = _mm512_set1_ps(*activation_scales.add(row));
                let value = _mm512_mul_ps(_mm512_cvtepi32_ps(*dot), activation_scale);
                *total = _mm512_fmadd_ps(value, scale, *total);
            }
            if B::HAS_MIN {
                let min = load_halves(scales.add(32));
                let scaled_sums = tile.scaled_sums.as_ptr().add(at);
                for (row, total) in totals.iter_mut().enumerate() {
                    *total = _mm512_fmadd_ps(min, _mm512_set1_ps(*scaled_sums.add(row)), *total);
                }
            }
        }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` super-blocks; per super-block the tile has `8 * R` codes, `R` scales, `4 * R` sums. `G` divides 8.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn super_blocks_q4_k<const R: usize, const G: usize>(
    panel: *const u8,
    tile: &Tile<'_>,
    sums: &mut [[f32; LANES]; R],
) {
    let mut totals = [_mm512_setzero_ps(); R];
    for block in 0..tile.blocks {
        // SAFETY: the caller's contract; offsets stay within the super-block and its entries in the tile.
        unsafe {
            let base = panel.add(block * q4_k::BYTES);
            prefetch::<{ q4_k::CODES / 64 }>(base);
            let mut values = [_mm512_setzero_ps(); R];
            for group in 0..8 / G {
                let first = group * G;
                let codes = base.add(q4_k::CODES + first * 256);
                let activations: *const i8 = tile.codes.as_ptr().add((block * 8 + first) * R).cast();
                let mut dots = [[_mm512_setzero_si512(); R]; G];
                for pair in 0..4 {
                    let mut weights = [(_mm512_setzero_si512(), _mm512_setzero_si512()); G];
                    for (sub, weights) in weights.iter_mut().enumerate() {
                        let codes = codes.add(sub * 256 + pair * 64);
                        prefetch::<1>(codes);
                        *weights = nibbles(load(codes));
                    }
                    let activations = activations.add(pair * 8);
                    multiply_group!(dots, weights, activations, R * 32);
                }
                for (sub, dots) in dots.iter().enumerate() {
                    let factors = base.add(q4_k::SCALES + (first + sub) * LANES);
                    let factors = _mm512_cvtepu8_epi32(_mm_loadu_si128(factors.cast()));
                    add_scaled(&mut values, dots, factors);
                }
            }

            let mut mins = [_mm512_setzero_si512(); R];
            for pair in 0..4 {
                let both = _mm256_loadu_si256(base.add(q4_k::MINS + pair * 32).cast());
                let both = _mm512_cvtepu8_epi16(both);
                let pair_sums = tile.sums.as_ptr().add((block * 4 + pair) * R);
                for (row, min) in mins.iter_mut().enumerate() {
                    let sums = _mm512_set1_epi32(*pair_sums.add(row));
                    *min = _mm512_dpwssd_epi32(*min, both, sums);
                }
            }
            let scale = load_halves(base.add(q4_k::SCALE));
            let min_scale = load_halves(base.add(q4_k::MIN_SCALE));
            let scales = tile.scales.as_ptr().add(block * R);
            for (row, total) in totals.iter_mut().enumerate() {
                let value = _mm512_mul_ps(values[row], scale);
                let value = _mm512_fnmadd_ps(min_scale, _mm512_cvtepi32_ps(mins[row]), value);
                *total = _mm512_fmadd_ps(value, _mm512_set1_ps(*scales.add(row)), *total);
            }
        }
    }
    store(&totals, sums);
}

/// Adds integer sums times their sub-block's integer scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn add_scaled<const R: usize>(values: &mut [__m512; R], dots: &[__m512i; R], factors: __m512i) {
    let factors = _mm512_cvtepi32_ps(factors);
    for (value, dot) in values.iter_mut().zip(dots) {
        *value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(*dot), factors, *value);
    }
}

/// # Safety
/// `panel` holds `tile.blocks` super-blocks; per super-block the tile has `8 * R` codes, `R` scales, `16 * R` starts. `G` is 2 or 4.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn super_blocks_q6_k<const R: usize, const G: usize>(
    panel: *const u8,
    tile: &Tile<'_>,
    sums: &mut [[f32; LANES]; R],
) {
    let mut totals = [_mm512_setzero_ps(); R];
    for block in 0..tile.blocks {
        // SAFETY: the caller's contract; offsets stay within the super-block and its entries in the tile.
        unsafe {
            let base = panel.add(block * q6_k::BYTES);
            prefetch::<{ q6_k::CODES / 64 }>(base);
            let mut values = [_mm512_setzero_ps(); R];
            for group in 0..16 / G {
                let first = group * G;
                let codes = base.add(q6_k::CODES + first * q6_k::SUB_BLOCK);
                let activations: *const i8 = tile.codes.as_ptr().add((block * 8 + first / 2) * R).cast();
                let starts = tile.starts.as_ptr().add((block * 16 + first) * R);
                let mut dots = [[_mm512_setzero_si512(); R]; G];
                for (sub, dots) in dots.iter_mut().enumerate() {
                    for (row, dot) in dots.iter_mut().enumerate() {
                        *dot = _mm512_set1_epi32(*starts.add(sub * R + row));
                    }
                }
                for half in 0..2 {
                    for (couple, dots) in dots.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                        let codes = codes.add(couple * 2 * q6_k::SUB_BLOCK);
                        let mut weights = [(_mm512_setzero_si512(), _mm512_setzero_si512()); 2];
                        for (sub, weights) in weights.iter_mut().enumerate() {
                            let codes = codes.add(sub * q6_k::SUB_BLOCK);
                            prefetch::<1>(codes.wrapping_add(half * 64));
                            let (low, high) = (load(codes.add(half * 64)), load(codes.add(128)));
                            *weights = six_bits(low, high, half);
                        }
                        let activations = activations.add(couple * R * 32 + half * 8);
                        multiply_group!(dots, weights, activations, 16);
                    }
                }
                for (sub, dots) in dots.iter().enumerate() {
                    prefetch::<1>(codes.wrapping_add(sub * q6_k::SUB_BLOCK + 128));
                    let factors = base.add(q6_k::SCALES + (first + sub) * LANES);
                    let factors = _mm512_cvtepi8_epi32(_mm_loadu_si128(factors.cast()));
                    add_scaled(&mut values, dots, factors);
                }
            }
            let scale = _mm512_loadu_ps(base.add(q6_k::SCALE).cast());
            let scales = tile.scales.as_ptr().add(block * R);
            for (row, total) in totals.iter_mut().enumerate() {
                let value = _mm512_mul_ps(values[row], scale);
                *total = _mm512_fmadd_ps(value, _mm512_set1_ps(*scales.add(row)), *total);
            }
        }
    }
    store(&totals, sums);
}

/// Six-bit codes of eight inputs from their nibbles and the two-bit fields `2 * half` and `2 * half + 1` of `high`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn six_bits(low: __m512i, high: __m512i, half: usize) -> (__m512i, __m512i) {
    let (low_mask, high_mask) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
    let (first, second) = if half == 0 {
        (_mm512_slli_epi16::<4>(high), _mm512_slli_epi16::<2>(high))
    } else {
        (high, _mm512_srli_epi16::<2>(high))
    };
    // nibble & 0x0f | field & 0x30
    let join = |nibble, field| {
        let field = _mm512_and_si512(field, high_mask);
        _mm512_ternarylogic_epi32::<0xea>(nibble, low_mask, field)
    };
    (join(low, first), join(_mm512_srli_epi16::<4>(low), second))
}

/// As [`crate::Isa::read`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn read(bytes: &[u8]) -> u64 {
    let mut sums = [_mm512_setzero_si512(); 8];
    for chunk in bytes.chunks_exact(512) {
        prefetch::<8>(chunk.as_ptr());
        for (sum, line) in sums.iter_mut().zip(chunk.chunks_exact(64)) {
            // SAFETY: the line has 64 bytes.
            *sum = _mm512_add_epi64(*sum, unsafe { load(line.as_ptr()) });
        }
    }
    let total = sums.into_iter().fold(_mm512_setzero_si512(), |a, b| _mm512_add_epi64(a, b));
    _mm512_reduce_add_epi64(total).cast_unsigned()
}

/// As [`crate::Isa::spin_int8`]: sixteen independent chains hide the latency of five cycles.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn spin_int8(rounds: usize) -> (u64, i32) {
    let weights = std::hint::black_box(_mm512_set1_epi8(3));
    let activations = std::hint::black_box(_mm512_set1_epi8(-5));
    let mut dots = [_mm512_setzero_si512(); 16];
    for _ in 0..rounds {
        for dot in &mut dots {
            *dot = _mm512_dpbusd_epi32(*dot, weights, activations);
        }
    }
    let total = dots.into_iter().fold(_mm512_setzero_si512(), |a, b| _mm512_add_epi32(a, b));
    (rounds as u64 * 16 * 64, _mm512_reduce_add_epi32(total))
}
