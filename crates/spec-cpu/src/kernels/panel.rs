//! A tile of rows times a panel of weights.
//!
//! Shape of all integer kernels: a vector of codes is loaded and expanded once, then multiplied for each of `R` rows with four
//! activations broadcast from memory, into one accumulator per row that lives in a register. At eight rows expansion is about
//! a tenth of the instructions, and the loop still keeps up with memory.
//!
//! A dot product has a latency of several cycles, so about a dozen chains must be in flight. Eight rows have eight: kernels
//! interleave the accumulators of several sub-blocks, whose sums are separate anyway, as far as registers go. Instruction sets
//! with narrower vectors go over a block once per part of the panel.

use super::Sums;
use super::simd::{Kernel, Simd, together};
use crate::activation::Tile;
use crate::packed::{LANES, PAIR, WeightType, q4_k, q6_k, split_block};

/// How far ahead of use, in bytes, weights are fetched into the second-level cache: hardware prefetchers stop at 4 KiB, and that cache
/// tracks three times as many misses as the first.
const PREFETCH_FAR: usize = 8192;
/// How far ahead weights move on into the first-level cache, so that the loop waits for neither.
const PREFETCH_NEAR: usize = 1024;

/// Multiplies a tile of `R` rows with one panel of weights.
pub(super) struct Panel<'a, const R: usize> {
    pub(super) ty: WeightType,
    pub(super) panel: &'a [u8],
    pub(super) tile: &'a Tile<'a>,
    pub(super) sums: &'a mut Sums,
}

impl<const R: usize> Kernel for Panel<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { ty, panel, tile, sums } = self;
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
                        WeightType::F32 => float::<S, R, false>(simd, panel.as_ptr(), tile, sums),
                        _ => float::<S, R, true>(simd, panel.as_ptr(), tile, sums),
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
                        WeightType::Q4_1 => blocks32::<S, R, Q4_1>(simd, panel.as_ptr(), tile, sums),
                        WeightType::Q5_0 => blocks32::<S, R, Q5_0>(simd, panel.as_ptr(), tile, sums),
                        _ => blocks32::<S, R, Q8_0>(simd, panel.as_ptr(), tile, sums),
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
                        WeightType::Q4_K => super_blocks::<S, R, Q4K>(simd, panel.as_ptr(), tile, sums),
                        _ => super_blocks::<S, R, Q6K>(simd, panel.as_ptr(), tile, sums),
                    }
                }
            }
        }
    }
}

/// Fetches the cache lines at both distances past `at`. Addresses past the mapping are harmless.
#[inline(always)]
pub(super) fn prefetch<S: Simd>(simd: S, at: *const u8) {
    simd.prefetch::<false>(at.wrapping_add(PREFETCH_FAR));
    simd.prefetch::<true>(at.wrapping_add(PREFETCH_NEAR));
}

/// Sums of a tile of rows: `[part of the panel][row]`. Parts past `S::PARTS` are not used.
type Totals<S, const R: usize> = [[<S as Simd>::Floats; R]; 2];

#[inline(always)]
fn store<S: Simd, const R: usize>(simd: S, totals: &Totals<S, R>, sums: &mut [[f32; LANES]; R]) {
    for (part, totals) in totals[..S::PARTS].iter().enumerate() {
        for (sums, &total) in sums.iter_mut().zip(totals) {
            // SAFETY: the row has sixteen sums, of which a part holds `WIDTH`.
            unsafe { simd.store(sums.as_mut_ptr().add(part * S::WIDTH), total) };
        }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` x 16 floats of the size that `HALF` says, `tile.floats` has `tile.blocks * R` items.
#[inline(always)]
unsafe fn float<S: Simd, const R: usize, const HALF: bool>(
    simd: S,
    panel: *const u8,
    tile: &Tile<'_>,
    sums: &mut [[f32; LANES]; R],
) {
    let mut totals: Totals<S, R> = [[simd.floats(0.0); R]; 2];
    let activations = tile.floats.as_ptr();
    for input in 0..tile.blocks {
        for (part, totals) in totals[..S::PARTS].iter_mut().enumerate() {
            let at = input * LANES + part * S::WIDTH;
            // SAFETY: the caller's contract bounds `input` and `row`.
            unsafe {
                let weights =
                    if HALF { simd.load_halves(panel.add(at * 2).cast()) } else { simd.load(panel.add(at * 4).cast()) };
                for (row, total) in totals.iter_mut().enumerate() {
                    let activation = simd.floats(*activations.add(input * R + row));
                    *total = simd.mul_add(weights, activation, *total);
                }
            }
        }
    }
    store(simd, &totals, sums);
}

/// A type with blocks of 32 inputs.
trait Block32 {
    const TYPE: WeightType;
    /// Whether minima follow the scales.
    const HAS_MIN: bool = false;
    /// Whether codes have more than six bits.
    const WIDE: bool = false;

    /// Where the accumulators of the rows start: minus the code of zero times the sum of the activations.
    #[inline(always)]
    fn starts<'a>(_tile: &Tile<'a>) -> Option<&'a [i32]> {
        None
    }

    /// The codes of inputs `8 * eight ..`, in two vectors of four inputs.
    ///
    /// # Safety
    /// The codes of a block lie at `codes`, `eight` is below four, `part` below `S::PARTS`.
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes);
}

struct Q4_1;
struct Q5_0;
struct Q8_0;

impl Block32 for Q4_1 {
    const TYPE: WeightType = WeightType::Q4_1;
    const HAS_MIN: bool = true;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract.
        simd.nibbles(unsafe { simd.load_bytes(codes.add(eight * 64 + part * S::WIDTH * 4)) })
    }
}

impl Block32 for Q5_0 {
    const TYPE: WeightType = WeightType::Q5_0;

    #[inline(always)]
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
        Some(tile.starts)
    }

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract; eight masks of 64 bits follow the four vectors.
        unsafe {
            let (low, high) = simd.nibbles(simd.load_bytes(codes.add(eight * 64 + part * S::WIDTH * 4)));
            let bits = codes.add(256 + eight * 16 + part * S::WIDTH / 2);
            (simd.fifth_bits(low, bits), simd.fifth_bits(high, bits.add(8)))
        }
    }
}

impl Block32 for Q8_0 {
    const TYPE: WeightType = WeightType::Q8_0;
    const WIDE: bool = true;

    #[inline(always)]
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
        Some(tile.sums)
    }

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract.
        unsafe {
            let codes = codes.add(eight * 128 + part * S::WIDTH * 4);
            (simd.load_bytes(codes), simd.load_bytes(codes.add(64)))
        }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` blocks of type `B`, the tile's slices have `tile.blocks * R` items.
#[inline(always)]
unsafe fn blocks32<S: Simd, const R: usize, B: Block32>(
    simd: S,
    panel: *const u8,
    tile: &Tile<'_>,
    sums: &mut [[f32; LANES]; R],
) {
    let mut totals: Totals<S, R> = [[simd.floats(0.0); R]; 2];
    let pair_bytes = split_block(B::TYPE, PAIR, 2 * PAIR).0;
    let pairs = tile.blocks / PAIR;
    for pair in 0..pairs {
        let base = panel.wrapping_add(pair * pair_bytes);
        for (part, totals) in totals[..S::PARTS].iter_mut().enumerate() {
            // SAFETY: whole pairs lie within the panel and the tile.
            unsafe {
                if const { together(S::REGISTERS, R + 2) >= PAIR } {
                    group32::<S, R, PAIR, PAIR, B>(simd, base, tile, pair * PAIR, 0, part, totals);
                } else {
                    group32::<S, R, 1, PAIR, B>(simd, base, tile, pair * PAIR, 0, part, totals);
                    group32::<S, R, 1, PAIR, B>(simd, base, tile, pair * PAIR, 1, part, totals);
                }
            }
        }
    }
    if !tile.blocks.is_multiple_of(PAIR) {
        let base = panel.wrapping_add(pairs * pair_bytes);
        for (part, totals) in totals[..S::PARTS].iter_mut().enumerate() {
            // SAFETY: a last single block ends the panel and the tile.
            unsafe { group32::<S, R, 1, 1, B>(simd, base, tile, pairs * PAIR, 0, part, totals) };
        }
    }
    store(simd, &totals, sums);
}

/// `G` blocks, interleaved: of the `N` that share a layout group, those from `offset` on.
///
/// # Safety
/// A group of `N` blocks of type `B` lies at `base`, `offset + G` is at most `N`; the tile's slices reach
/// `(first + N) * R` items; `part` is below `S::PARTS`.
#[inline(always)]
unsafe fn group32<S: Simd, const R: usize, const G: usize, const N: usize, B: Block32>(
    simd: S,
    base: *const u8,
    tile: &Tile<'_>,
    first: usize,
    offset: usize,
    part: usize,
    totals: &mut [S::Floats; R],
) {
    let mut dots = [[simd.ints(0); R]; G];
    let first = first + offset;
    // SAFETY: the caller's contract; four times eight inputs cover the 32 codes of each row.
    unsafe {
        if let Some(starts) = B::starts(tile) {
            let starts = starts.as_ptr().add(first * R);
            for (block, dots) in dots.iter_mut().enumerate() {
                for (row, dot) in dots.iter_mut().enumerate() {
                    *dot = simd.ints(*starts.add(block * R + row));
                }
            }
        }
        let activations: *const i8 = tile.codes.as_ptr().add(first * R).cast();
        // The steps of all calls for a layout group share the fetching of its lines.
        let (lines, steps) = (split_block(B::TYPE, N, 2 * N).0.div_ceil(64), 4 * N / G);
        for eight in 0..4 {
            if part == 0 {
                let step = offset / G * 4 + eight;
                for line in step * lines / steps..(step + 1) * lines / steps {
                    prefetch(simd, base.wrapping_add(line * 64));
                }
            }
            let codes_of = |block| base.add(split_block(B::TYPE, offset + block, N).0);
            let mut codes = [B::expand(simd, codes_of(0), eight, part); G];
            for (block, codes) in codes.iter_mut().enumerate().skip(1) {
                *codes = B::expand(simd, codes_of(block), eight, part);
            }
            let activations = std::array::from_fn(|block| activations.add(block * R * 32 + eight * 8));
            simd.multiply::<R, G>(&mut dots, &codes, activations, B::WIDE);
        }
        for (block, dots) in dots.iter().enumerate() {
            let at = (first + block) * R;
            let scales = base.add(split_block(B::TYPE, offset + block, N).1 + part * S::WIDTH * 2);
            let scale = simd.load_halves(scales.cast());
            let activation_scales = tile.scales.as_ptr().add(at);
            for (row, (total, &dot)) in totals.iter_mut().zip(dots).enumerate() {
                let value = simd.mul(simd.to_floats(dot), simd.floats(*activation_scales.add(row)));
                *total = simd.mul_add(value, scale, *total);
            }
            if B::HAS_MIN {
                let min = simd.load_halves(scales.add(2 * LANES).cast());
                let scaled_sums = tile.scaled_sums.as_ptr().add(at);
                for (row, total) in totals.iter_mut().enumerate() {
                    *total = simd.mul_add(min, simd.floats(*scaled_sums.add(row)), *total);
                }
            }
        }
    }
}

/// A type with super-blocks of 256 inputs, whose sub-blocks have integer scales.
trait SuperBlock {
    /// Bytes of a super-block.
    const BYTES: usize;
    /// Where the sub-blocks' scales, of a byte per output, begin.
    const SCALES: usize;
    /// Where the codes begin.
    const CODES: usize;
    const SUB_BLOCKS: usize;
    /// Bytes of the codes of a sub-block.
    const SUB_BLOCK: usize;

    /// Where the accumulators of the rows start, per sub-block: minus the code of zero times the sum of the activations.
    #[inline(always)]
    fn starts<'a>(_tile: &Tile<'a>) -> Option<&'a [i32]> {
        None
    }

    /// The codes of inputs `8 * eight ..` of a sub-block, in two vectors of four inputs.
    ///
    /// # Safety
    /// The codes of a sub-block lie at `codes`, `8 * eight` is an input of it, `part` is below `S::PARTS`.
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes);

    /// Integer scales of a sub-block.
    ///
    /// # Safety
    /// `S::WIDTH` of them are readable at `at`.
    unsafe fn factors<S: Simd>(simd: S, at: *const u8) -> S::Floats;

    /// Scales the sums over the sub-blocks, and subtracts the minima, if the type has them.
    ///
    /// # Safety
    /// The super-block lies at `base` and is number `block` of the tile; `part` is below `S::PARTS`.
    unsafe fn finish<S: Simd, const R: usize>(
        simd: S,
        base: *const u8,
        tile: &Tile<'_>,
        block: usize,
        part: usize,
        values: &mut [S::Floats; R],
    );
}

struct Q4K;
struct Q6K;

impl SuperBlock for Q4K {
    const BYTES: usize = q4_k::BYTES;
    const SCALES: usize = q4_k::SCALES;
    const CODES: usize = q4_k::CODES;
    const SUB_BLOCKS: usize = 8;
    const SUB_BLOCK: usize = 256;

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract.
        simd.nibbles(unsafe { simd.load_bytes(codes.add(eight * 64 + part * S::WIDTH * 4)) })
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(simd: S, at: *const u8) -> S::Floats {
        // SAFETY: the caller's contract.
        unsafe { simd.load_unsigned(at) }
    }

    #[inline(always)]
    unsafe fn finish<S: Simd, const R: usize>(
        simd: S,
        base: *const u8,
        tile: &Tile<'_>,
        block: usize,
        part: usize,
        values: &mut [S::Floats; R],
    ) {
        let mut mins = [simd.ints(0); R];
        let at = part * S::WIDTH * 2;
        // SAFETY: the caller's contract.
        unsafe {
            for pair in 0..4 {
                let pair_sums = tile.sums.as_ptr().add((block * 4 + pair) * R);
                for (row, min) in mins.iter_mut().enumerate() {
                    let pairs = base.add(q4_k::MINS + pair * 32 + at);
                    *min = simd.multiply_pairs(*min, pairs, *pair_sums.add(row));
                }
            }
            let scale = simd.load_halves(base.add(q4_k::SCALE + at).cast());
            let min_scale = simd.load_halves(base.add(q4_k::MIN_SCALE + at).cast());
            for (value, min) in values.iter_mut().zip(mins) {
                *value = simd.neg_mul_add(min_scale, simd.to_floats(min), simd.mul(*value, scale));
            }
        }
    }
}

impl SuperBlock for Q6K {
    const BYTES: usize = q6_k::BYTES;
    const SCALES: usize = q6_k::SCALES;
    const CODES: usize = q6_k::CODES;
    const SUB_BLOCKS: usize = 16;
    const SUB_BLOCK: usize = q6_k::SUB_BLOCK;

    #[inline(always)]
    fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
        Some(tile.starts)
    }

    #[inline(always)]
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
        let codes = codes.wrapping_add(part * S::WIDTH * 4);
        // SAFETY: the caller's contract; two vectors of nibbles, then one of two-bit fields.
        unsafe { simd.six_bits(simd.load_bytes(codes.add(eight * 64)), simd.load_bytes(codes.add(128)), eight == 1) }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(simd: S, at: *const u8) -> S::Floats {
        // SAFETY: the caller's contract.
        unsafe { simd.load_signed(at.cast()) }
    }

    #[inline(always)]
    unsafe fn finish<S: Simd, const R: usize>(
        simd: S,
        base: *const u8,
        _: &Tile<'_>,
        _: usize,
        part: usize,
        values: &mut [S::Floats; R],
    ) {
        // SAFETY: the caller's contract.
        let scale = unsafe { simd.load(base.add(q6_k::SCALE + part * S::WIDTH * 4).cast()) };
        for value in values {
            *value = simd.mul(*value, scale);
        }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` super-blocks of type `B`; per super-block the tile has `8 * R` codes, `R` scales, `16 * R`
/// starts, `4 * R` sums.
#[inline(always)]
unsafe fn super_blocks<S: Simd, const R: usize, B: SuperBlock>(
    simd: S,
    panel: *const u8,
    tile: &Tile<'_>,
    sums: &mut [[f32; LANES]; R],
) {
    let mut totals: Totals<S, R> = [[simd.floats(0.0); R]; 2];
    for block in 0..tile.blocks {
        for (part, totals) in totals[..S::PARTS].iter_mut().enumerate() {
            // SAFETY: the caller's contract; offsets stay within the super-block and its entries in the tile.
            unsafe {
                let base = panel.add(block * B::BYTES);
                let mut values = match const { together(S::REGISTERS, R + 2) } {
                    4 => sub_blocks::<S, R, 4, B>(simd, base, tile, block, part),
                    2 => sub_blocks::<S, R, 2, B>(simd, base, tile, block, part),
                    _ => sub_blocks::<S, R, 1, B>(simd, base, tile, block, part),
                };
                B::finish(simd, base, tile, block, part, &mut values);
                let scales = tile.scales.as_ptr().add(block * R);
                for (row, (total, value)) in totals.iter_mut().zip(values).enumerate() {
                    *total = simd.mul_add(value, simd.floats(*scales.add(row)), *total);
                }
            }
        }
    }
    store(simd, &totals, sums);
}

/// The sums of a super-block, times the sub-blocks' integer scales, `G` sub-blocks at a time.
///
/// # Safety
/// As [`SuperBlock::finish`], and the tile's slices as in [`super_blocks`]. `G` divides the number of sub-blocks.
#[inline(always)]
unsafe fn sub_blocks<S: Simd, const R: usize, const G: usize, B: SuperBlock>(
    simd: S,
    base: *const u8,
    tile: &Tile<'_>,
    block: usize,
    part: usize,
) -> [S::Floats; R] {
    let inputs = 256 / B::SUB_BLOCKS;
    let (eights, lines) = (inputs / 8, B::SUB_BLOCK / 64);
    let mut values = [simd.floats(0.0); R];
    // SAFETY: the caller's contract.
    unsafe {
        let codes = base.add(B::CODES);
        let activations: *const i8 = tile.codes.as_ptr().add(block * 8 * R).cast();
        if part == 0 {
            for line in 0..B::CODES / 64 {
                prefetch(simd, base.add(line * 64));
            }
        }
        for first in (0..B::SUB_BLOCKS).step_by(G) {
            let mut dots = [[simd.ints(0); R]; G];
            if let Some(starts) = B::starts(tile) {
                let starts = starts.as_ptr().add((block * B::SUB_BLOCKS + first) * R);
                for (sub, dots) in dots.iter_mut().enumerate() {
                    for (row, dot) in dots.iter_mut().enumerate() {
                        *dot = simd.ints(*starts.add(sub * R + row));
                    }
                }
            }
            for eight in 0..eights {
                let codes_of = |sub: usize| codes.add((first + sub) * B::SUB_BLOCK);
                let mut weights = [B::expand(simd, codes_of(0), eight, part); G];
                for (sub, weights) in weights.iter_mut().enumerate().skip(1) {
                    *weights = B::expand(simd, codes_of(sub), eight, part);
                }
                if part == 0 {
                    for sub in 0..G {
                        for line in eight * lines / eights..(eight + 1) * lines / eights {
                            prefetch(simd, codes_of(sub).add(line * 64));
                        }
                    }
                }
                let activations = std::array::from_fn(|sub| {
                    let input = (first + sub) * inputs + eight * 8;
                    activations.add(input / 32 * R * 32 + input % 32)
                });
                simd.multiply::<R, G>(&mut dots, &weights, activations, false);
            }
            for (sub, dots) in dots.iter().enumerate() {
                let factors = B::factors(simd, base.add(B::SCALES + (first + sub) * LANES + part * S::WIDTH));
                for (value, &dot) in values.iter_mut().zip(dots) {
                    *value = simd.mul_add(simd.to_floats(dot), factors, *value);
                }
            }
        }
    }
    values
}
