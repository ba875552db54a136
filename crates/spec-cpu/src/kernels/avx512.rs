//! Matrix kernels for AVX-512 with VNNI.
//!
//! Shape of all integer kernels: a 64-byte vector of weights is loaded and expanded once, then multiplied for each of `R` rows with
//! four activations broadcast from memory (`vpdpbusd zmm, zmm, m32{1to16}`), into one accumulator per row that lives in a register.
//! At eight rows expansion is about a tenth of the instructions, and the loop still keeps up with memory.

use std::arch::x86_64::*;

use super::{Sums, Vectorize};
use crate::activation::{Codes, Tile};
use crate::packed::{LANES, PAIR, WeightType, q4_k, q6_k, split_block};

/// How far ahead of use weights are fetched. Hardware prefetchers stop at 4 KiB; memory latency times one core's bandwidth is less
/// than this.
const PREFETCH: usize = 4096;

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
                    WeightType::Q4_K => super_blocks_q4_k::<R>(panel.as_ptr(), tile, sums),
                    _ => super_blocks_q6_k::<R>(panel.as_ptr(), tile, sums),
                }
            }
        }
    }
}

/// Fetches `LINES` cache lines, `PREFETCH` bytes past `at`. Addresses past the mapping are harmless.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[allow(unused_unsafe, reason = "a safe function from Rust 1.95 on")]
fn prefetch<const LINES: usize>(at: *const u8) {
    for line in 0..LINES {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(PREFETCH + line * 64).cast()) };
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
    /// Where the accumulator of a row starts: minus the code of zero times the sum of its activations.
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]>;
}

struct Q4_1;
struct Q5_0;
struct Q8_0;

impl Block32 for Q4_1 {
    const TYPE: WeightType = WeightType::Q4_1;
    #[inline(always)]
    fn starts<'a>(_: &Tile<'a>) -> Option<&'a [i32]> {
        None
    }
}

impl Block32 for Q5_0 {
    const TYPE: WeightType = WeightType::Q5_0;
    #[inline(always)]
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
        Some(tile.starts)
    }
}

impl Block32 for Q8_0 {
    const TYPE: WeightType = WeightType::Q8_0;
    #[inline(always)]
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
        Some(tile.sums)
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
        let base = panel.wrapping_add(pair * pair_bytes);
        for half in 0..PAIR {
            let (codes, scales) = split_block(B::TYPE, half, PAIR);
            // SAFETY: whole pairs lie within the panel.
            unsafe {
                let block = pair * PAIR + half;
                block32::<R, B>(base.add(codes), base.add(scales), tile, block, &mut totals);
            }
        }
    }
    if tile.blocks % PAIR != 0 {
        let base = panel.wrapping_add(pairs * pair_bytes);
        let (codes, scales) = split_block(B::TYPE, 0, 1);
        // SAFETY: a last single block ends the panel.
        unsafe {
            let block = pairs * PAIR;
            block32::<R, B>(base.add(codes), base.add(scales), tile, block, &mut totals);
        }
    }
    store(&totals, sums);
}

/// # Safety
/// A block of type `B` has its codes and scales at these addresses; the tile's slices reach `(block + 1) * R` items.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn block32<const R: usize, B: Block32>(
    codes: *const u8,
    scales: *const u8,
    tile: &Tile<'_>,
    block: usize,
    totals: &mut [__m512; R],
) {
    let first = block * R;
    let activations: *const Codes = tile.codes.as_ptr().wrapping_add(first);
    let activations: *const i8 = activations.cast();
    let mut dots = [_mm512_setzero_si512(); R];
    // SAFETY: the caller's contract; eight vectors of four inputs cover the 32 codes of each row.
    unsafe {
        if let Some(starts) = B::starts(tile) {
            for (row, dot) in dots.iter_mut().enumerate() {
                *dot = _mm512_set1_epi32(*starts.get_unchecked(first + row));
            }
        }
        match B::TYPE {
            WeightType::Q8_0 => {
                prefetch::<8>(codes);
                for quad in 0..8 {
                    let weights = load(codes.add(quad * 64));
                    multiply(&mut dots, weights, activations.add(quad * 4));
                }
            }
            WeightType::Q5_0 => {
                prefetch::<5>(codes);
                let sixteen = _mm512_set1_epi8(16);
                for pair in 0..4 {
                    let (low, high) = nibbles(load(codes.add(pair * 64)));
                    let masks: *const u64 = codes.add(256 + pair * 16).cast();
                    let low = _mm512_mask_add_epi8(low, masks.read_unaligned(), low, sixteen);
                    let high_mask = masks.add(1).read_unaligned();
                    let high = _mm512_mask_add_epi8(high, high_mask, high, sixteen);
                    multiply(&mut dots, low, activations.add(pair * 8));
                    multiply(&mut dots, high, activations.add(pair * 8 + 4));
                }
            }
            _ => {
                prefetch::<5>(codes);
                for pair in 0..4 {
                    let (low, high) = nibbles(load(codes.add(pair * 64)));
                    multiply(&mut dots, low, activations.add(pair * 8));
                    multiply(&mut dots, high, activations.add(pair * 8 + 4));
                }
            }
        }
        let scale = load_halves(scales);
        for (row, (total, dot)) in totals.iter_mut().zip(dots).enumerate() {
            let activation_scale = _mm512_set1_ps(*tile.scales.get_unchecked(first + row));
            let value = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), activation_scale);
            *total = _mm512_fmadd_ps(value, scale, *total);
        }
        if B::TYPE == WeightType::Q4_1 {
            let min = load_halves(scales.add(32));
            for (row, total) in totals.iter_mut().enumerate() {
                let scaled_sum = _mm512_set1_ps(*tile.scaled_sums.get_unchecked(first + row));
                *total = _mm512_fmadd_ps(min, scaled_sum, *total);
            }
        }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` super-blocks; per super-block the tile has `8 * R` codes, `R` scales, `4 * R` sums.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn super_blocks_q4_k<const R: usize>(panel: *const u8, tile: &Tile<'_>, sums: &mut [[f32; LANES]; R]) {
    let mut totals = [_mm512_setzero_ps(); R];
    for block in 0..tile.blocks {
        // SAFETY: the caller's contract; offsets stay within the super-block and its entries in the tile.
        unsafe {
            let base = panel.add(block * q4_k::BYTES);
            prefetch::<{ q4_k::CODES / 64 }>(base);
            let mut values = [_mm512_setzero_ps(); R];
            for sub in 0..8 {
                let codes = base.add(q4_k::CODES + sub * 256);
                prefetch::<4>(codes);
                let activations: *const i8 = tile.codes.as_ptr().add((block * 8 + sub) * R).cast();
                let mut dots = [_mm512_setzero_si512(); R];
                for pair in 0..4 {
                    let (low, high) = nibbles(load(codes.add(pair * 64)));
                    multiply(&mut dots, low, activations.add(pair * 8));
                    multiply(&mut dots, high, activations.add(pair * 8 + 4));
                }
                let factors = _mm_loadu_si128(base.add(q4_k::SCALES + sub * LANES).cast());
                let factors = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(factors));
                for (value, dot) in values.iter_mut().zip(dots) {
                    *value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factors, *value);
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

/// # Safety
/// `panel` holds `tile.blocks` super-blocks; per super-block the tile has `8 * R` codes, `R` scales, `16 * R` starts.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn super_blocks_q6_k<const R: usize>(panel: *const u8, tile: &Tile<'_>, sums: &mut [[f32; LANES]; R]) {
    let low_mask = _mm512_set1_epi8(0x0f);
    let high_mask = _mm512_set1_epi8(0x30);
    let mut totals = [_mm512_setzero_ps(); R];
    for block in 0..tile.blocks {
        // SAFETY: the caller's contract; offsets stay within the super-block and its entries in the tile.
        unsafe {
            let base = panel.add(block * q6_k::BYTES);
            prefetch::<{ q6_k::CODES / 64 }>(base);
            let mut values = [_mm512_setzero_ps(); R];
            for sub in 0..16 {
                let codes = base.add(q6_k::CODES + sub * q6_k::SUB_BLOCK);
                prefetch::<3>(codes);
                let activations: *const i8 = tile.codes.as_ptr().add((block * 8 + sub / 2) * R).cast();
                let activations = activations.add(sub % 2 * 16);
                let starts = tile.starts.as_ptr().add((block * 16 + sub) * R);
                let mut dots = [_mm512_setzero_si512(); R];
                for (row, dot) in dots.iter_mut().enumerate() {
                    *dot = _mm512_set1_epi32(*starts.add(row));
                }
                let (first, second) = (load(codes), load(codes.add(64)));
                let high = load(codes.add(128));
                let quads = [
                    (first, _mm512_slli_epi16::<4>(high)),
                    (_mm512_srli_epi16::<4>(first), _mm512_slli_epi16::<2>(high)),
                    (second, high),
                    (_mm512_srli_epi16::<4>(second), _mm512_srli_epi16::<2>(high)),
                ];
                for (quad, (low, high)) in quads.into_iter().enumerate() {
                    // low & 0x0f | high & 0x30
                    let high = _mm512_and_si512(high, high_mask);
                    let weights = _mm512_ternarylogic_epi32::<0xea>(low, low_mask, high);
                    multiply(&mut dots, weights, activations.add(quad * 4));
                }
                let factors = _mm_loadu_si128(base.add(q6_k::SCALES + sub * LANES).cast());
                let factors = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(factors));
                for (value, dot) in values.iter_mut().zip(dots) {
                    *value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factors, *value);
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
