//! Blocks of 32 inputs with a scale of their own.

use super::{Totals, prefetch, store};
use crate::activation::Tile;
use crate::kernels::simd::{Simd, together};
use crate::packed::{LANES, PAIR, WeightType, split_block};

/// A type with blocks of 32 inputs.
pub(super) trait Block32 {
    const TYPE: WeightType;
    /// Whether minima follow the scales.
    const HAS_MIN: bool = false;
    /// Whether codes have more than six bits.
    const WIDE: bool = false;
    /// By how many bits the starts below are too large.
    const START_SHIFT: u32 = 0;

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

/// The nibbles of inputs `8 * eight ..`.
///
/// # Safety
/// As [`Block32::expand`], of codes that begin with four vectors of nibbles.
#[inline(always)]
pub(super) unsafe fn nibbles<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
    // SAFETY: the caller's contract.
    simd.nibbles(unsafe { simd.load_bytes(codes.add(eight * 64 + part * S::WIDTH * 4)) })
}

/// The five-bit codes of inputs `8 * eight ..`.
///
/// # Safety
/// As [`Block32::expand`], of four vectors of nibbles and eight masks of 64 bits.
#[inline(always)]
pub(super) unsafe fn five_bits<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
    // SAFETY: the caller's contract.
    unsafe {
        let (low, high) = nibbles(simd, codes, eight, part);
        let bits = codes.add(256 + eight * 16 + part * S::WIDTH / 2);
        (simd.add_bits(low, bits, 16), simd.add_bits(high, bits.add(8), 16))
    }
}

/// What [`IQ4_VALUES`](spec_model::IQ4_VALUES) are when 128 is the code of zero.
const IQ4_CODES: [u8; 16] = {
    let mut codes = [0; 16];
    let mut index = 0;
    while index < 16 {
        codes[index] = spec_model::IQ4_VALUES[index].cast_unsigned() ^ 0x80;
        index += 1;
    }
    codes
};

/// The values that the nibbles of inputs `8 * eight ..` stand for, plus 128.
///
/// # Safety
/// As [`nibbles`].
#[inline(always)]
pub(super) unsafe fn looked_up<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
    // SAFETY: the caller's contract.
    let (low, high) = unsafe { nibbles(simd, codes, eight, part) };
    (simd.look_up(&IQ4_CODES, low), simd.look_up(&IQ4_CODES, high))
}

/// Implements [`Block32`] for a marker type: how codes expand, what zero is, and the constants that are not the default.
macro_rules! block32 {
    ($name:ident, $ty:ident, $expand:ident $(, $start:ident)? $(; $constant:ident: $kind:ty = $value:expr)*) => {
        pub(super) struct $name;

        impl Block32 for $name {
            const TYPE: WeightType = WeightType::$ty;
            $(const $constant: $kind = $value;)*

            $(#[inline(always)]
            fn starts<'a>(tile: &Tile<'a>) -> Option<&'a [i32]> {
                Some(tile.$start)
            })?

            #[inline(always)]
            unsafe fn expand<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
                // SAFETY: the caller's contract, and the layout of the type.
                unsafe { $expand(simd, codes, eight, part) }
            }
        }
    };
}

// The code of zero is 8: half of the 16 that `starts` are for.
block32!(Q4_0, Q4_0, nibbles, starts; START_SHIFT: u32 = 1);
block32!(Q4_1, Q4_1, nibbles; HAS_MIN: bool = true);
block32!(Q5_0, Q5_0, five_bits, starts);
block32!(Q5_1, Q5_1, five_bits; HAS_MIN: bool = true);
block32!(Q8_0, Q8_0, bytes, sums; WIDE: bool = true);
block32!(IQ4NL, IQ4_NL, looked_up, sums; WIDE: bool = true);

/// The bytes of inputs `8 * eight ..`.
///
/// # Safety
/// As [`Block32::expand`], of eight vectors of bytes.
#[inline(always)]
unsafe fn bytes<S: Simd>(simd: S, codes: *const u8, eight: usize, part: usize) -> (S::Bytes, S::Bytes) {
    // SAFETY: the caller's contract.
    unsafe {
        let codes = codes.add(eight * 128 + part * S::WIDTH * 4);
        (simd.load_bytes(codes), simd.load_bytes(codes.add(64)))
    }
}

/// # Safety
/// `panel` holds `tile.blocks` blocks of type `B`, the tile's slices have `tile.blocks * R` items.
#[inline(always)]
pub(super) unsafe fn blocks32<S: Simd, const R: usize, B: Block32>(
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
                    *dot = simd.ints(*starts.add(block * R + row) >> B::START_SHIFT);
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
            simd.multiply::<R, G>(&mut dots, &codes, activations, 32, B::WIDE);
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
