//! Super-blocks of 256 inputs, whose sub-blocks have integer scales.

use super::block32::{five_bits, looked_up, nibbles};
use super::{Totals, prefetch, store};
use crate::activation::Tile;
use crate::kernels::simd::{Simd, together};
use crate::packed::{LANES, iq4_xs, q2_k, q3_k, q4_k, q5_k, q6_k};

/// A type with super-blocks.
pub(super) trait SuperBlock {
    /// Bytes of a super-block.
    const BYTES: usize;
    /// Where the codes begin.
    const CODES: usize;
    const SUB_BLOCKS: usize;
    /// Bytes of the codes of a sub-block.
    const SUB_BLOCK: usize;
    /// Whether codes have more than six bits.
    const WIDE: bool = false;
    /// Whether the code of zero is not zero.
    const STARTS: bool = false;
    /// What lies before the codes.
    type Scales: Scales;

    /// Where the accumulator of row `row` starts in sub-block `sub`: minus the code of zero times the sum of the activations.
    ///
    /// # Safety
    /// `sums` are the super-block's sums of 16 inputs, times -32: `[sixteen][rows]`.
    #[inline(always)]
    unsafe fn start(_sums: *const i32, _sub: usize, _row: usize, _rows: usize) -> i32 {
        0
    }

    /// The codes of inputs `8 * eight ..` of a sub-block, in two vectors of four inputs.
    ///
    /// # Safety
    /// The codes of a super-block lie at `codes`, `8 * eight` is an input of the sub-block, `part` is below `S::PARTS`.
    unsafe fn expand<S: Simd>(simd: S, codes: *const u8, sub: usize, eight: usize, part: usize)
    -> (S::Bytes, S::Bytes);
}

/// The sums of the activations of a super-block, from some row on.
#[derive(Clone, Copy)]
pub(super) struct ActivationSums {
    /// Times -32: `[sixteen][rows]`.
    of_16: *const i32,
    /// Two of 32 inputs each: `[sixty-four][rows]`.
    of_64: *const i32,
    /// Rows of the tile.
    rows: usize,
}

impl ActivationSums {
    /// # Safety
    /// The tile has `rows` rows, of which `row` is one, and a super-block number `block`.
    #[inline(always)]
    pub(super) unsafe fn new(tile: &Tile<'_>, rows: usize, block: usize, row: usize) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let of_16 = tile.starts.as_ptr().add(block * 16 * rows + row);
            Self { of_16, of_64: tile.sums.as_ptr().add(block * 4 * rows + row), rows }
        }
    }
}

/// How sub-blocks are scaled, and what is subtracted.
pub(super) trait Scales {
    /// Integer scales of a sub-block.
    ///
    /// # Safety
    /// The super-block lies at `base`, `part` is below `S::PARTS`.
    unsafe fn factors<S: Simd>(simd: S, base: *const u8, sub: usize, part: usize) -> S::Ints;

    /// Scales the sums over the sub-blocks for `R` rows, and subtracts the minima, if the type has them.
    ///
    /// # Safety
    /// The super-block lies at `base`, `sums` are of its first row; `part` is below `S::PARTS`.
    unsafe fn finish<S: Simd, const R: usize>(
        simd: S,
        base: *const u8,
        sums: ActivationSums,
        part: usize,
        values: &mut [S::Floats; R],
    );
}

pub(super) struct Q2K;
pub(super) struct Q3K;
pub(super) struct Q4K;
pub(super) struct Q5K;
pub(super) struct Q6K;
pub(super) struct IQ4XS;

/// An f16 scale and an f16 minimum; for each 32 inputs an unsigned byte for either, as of Q4_K.
pub(super) struct Minima;

impl Scales for Minima {
    #[inline(always)]
    unsafe fn factors<S: Simd>(simd: S, base: *const u8, sub: usize, part: usize) -> S::Ints {
        // SAFETY: the caller's contract.
        unsafe { simd.load_unsigned(base.add(q4_k::SCALES + sub * LANES + part * S::WIDTH)) }
    }

    #[inline(always)]
    unsafe fn finish<S: Simd, const R: usize>(
        simd: S,
        base: *const u8,
        sums: ActivationSums,
        part: usize,
        values: &mut [S::Floats; R],
    ) {
        let mut mins = [simd.ints(0); R];
        let at = part * S::WIDTH * 2;
        // SAFETY: the caller's contract.
        unsafe {
            for pair in 0..4 {
                let pair_sums = sums.of_64.add(pair * sums.rows);
                let pairs = simd.load_pairs(base.add(q4_k::MINS + pair * 32 + at));
                for (row, min) in mins.iter_mut().enumerate() {
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

/// The same for each 16 inputs, as nibbles.
pub(super) struct NibbleMinima;

impl Scales for NibbleMinima {
    #[inline(always)]
    unsafe fn factors<S: Simd>(simd: S, base: *const u8, sub: usize, part: usize) -> S::Ints {
        // SAFETY: the caller's contract.
        let pairs = unsafe { simd.load_nibble_pairs(base.add(q2_k::SCALES + sub / 2 * LANES + part * S::WIDTH)) };
        // One times the sub-block's own.
        simd.multiply_pairs(simd.ints(0), pairs, 1 << (sub % 2 * 16))
    }

    #[inline(always)]
    unsafe fn finish<S: Simd, const R: usize>(
        simd: S,
        base: *const u8,
        sums: ActivationSums,
        part: usize,
        values: &mut [S::Floats; R],
    ) {
        let mut mins = [simd.ints(0); R];
        // SAFETY: the caller's contract.
        unsafe {
            for pair in 0..8 {
                let of_16 = sums.of_16.add(pair * 2 * sums.rows);
                let pairs = simd.load_nibble_pairs(base.add(q2_k::MINS + pair * LANES + part * S::WIDTH));
                for (row, min) in mins.iter_mut().enumerate() {
                    // Sixteen activations sum to no more than twelve bits: minus the sums of two sub-blocks, side by side.
                    let (first, second) = (*of_16.add(row) >> 5, *of_16.add(sums.rows + row) >> 5);
                    *min = simd.multiply_pairs(*min, pairs, first & 0xffff | second << 16);
                }
            }
            let scale = simd.load_halves(base.add(q2_k::SCALE + part * S::WIDTH * 2).cast());
            let min_scale = simd.load_halves(base.add(q2_k::MIN_SCALE + part * S::WIDTH * 2).cast());
            for (value, min) in values.iter_mut().zip(mins) {
                *value = simd.mul_add(min_scale, simd.to_floats(min), simd.mul(*value, scale));
            }
        }
    }
}

/// An f32 scale, then signed bytes, as of Q6_K.
pub(super) struct Signed;

const _: () = assert!(q3_k::SCALE == q6_k::SCALE && q3_k::SCALES == q6_k::SCALES);
const _: () = assert!(iq4_xs::SCALE == q6_k::SCALE && iq4_xs::SCALES == q6_k::SCALES);

impl Scales for Signed {
    #[inline(always)]
    unsafe fn factors<S: Simd>(simd: S, base: *const u8, sub: usize, part: usize) -> S::Ints {
        // SAFETY: the caller's contract.
        unsafe { simd.load_signed(base.add(q6_k::SCALES + sub * LANES + part * S::WIDTH).cast()) }
    }

    #[inline(always)]
    unsafe fn finish<S: Simd, const R: usize>(
        simd: S,
        base: *const u8,
        _: ActivationSums,
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

impl SuperBlock for Q4K {
    const BYTES: usize = q4_k::BYTES;
    const CODES: usize = q4_k::CODES;
    const SUB_BLOCKS: usize = 8;
    const SUB_BLOCK: usize = 256;
    type Scales = Minima;

    #[inline(always)]
    unsafe fn expand<S: Simd>(
        simd: S,
        codes: *const u8,
        sub: usize,
        eight: usize,
        part: usize,
    ) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract.
        unsafe { nibbles(simd, codes.add(sub * 256), eight, part) }
    }
}

impl SuperBlock for Q5K {
    const BYTES: usize = q5_k::BYTES;
    const CODES: usize = q4_k::CODES;
    const SUB_BLOCKS: usize = 8;
    const SUB_BLOCK: usize = q5_k::SUB_BLOCK;
    type Scales = Minima;

    #[inline(always)]
    unsafe fn expand<S: Simd>(
        simd: S,
        codes: *const u8,
        sub: usize,
        eight: usize,
        part: usize,
    ) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract.
        unsafe { five_bits(simd, codes.add(sub * q5_k::SUB_BLOCK), eight, part) }
    }
}

impl SuperBlock for Q2K {
    const BYTES: usize = q2_k::BYTES;
    const CODES: usize = q2_k::CODES;
    const SUB_BLOCKS: usize = 16;
    const SUB_BLOCK: usize = 64;
    type Scales = NibbleMinima;

    #[inline(always)]
    unsafe fn expand<S: Simd>(
        simd: S,
        codes: *const u8,
        sub: usize,
        eight: usize,
        part: usize,
    ) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract.
        simd.two_bits(unsafe { simd.load_bytes(codes.add(sub * 64 + part * S::WIDTH * 4)) }, eight == 1)
    }
}

impl SuperBlock for Q3K {
    const BYTES: usize = q3_k::BYTES;
    const CODES: usize = q3_k::CODES;
    const SUB_BLOCKS: usize = 16;
    const SUB_BLOCK: usize = q3_k::PAIR / 2;
    const STARTS: bool = true;
    type Scales = Signed;

    #[inline(always)]
    unsafe fn start(sums: *const i32, sub: usize, row: usize, rows: usize) -> i32 {
        // SAFETY: the caller's contract. The code of zero is 4.
        unsafe { *sums.add(sub * rows + row) >> 3 }
    }

    #[inline(always)]
    unsafe fn expand<S: Simd>(
        simd: S,
        codes: *const u8,
        sub: usize,
        eight: usize,
        part: usize,
    ) -> (S::Bytes, S::Bytes) {
        let pair = codes.wrapping_add(sub / 2 * q3_k::PAIR);
        // SAFETY: the caller's contract.
        unsafe {
            let fields = simd.load_bytes(pair.add(sub % 2 * 64 + part * S::WIDTH * 4));
            let (first, second) = simd.two_bits(fields, eight == 1);
            let bits = pair.add(q3_k::BITS + sub % 2 * 32 + eight * 16 + part * S::WIDTH / 2);
            (simd.add_bits(first, bits, 4), simd.add_bits(second, bits.add(8), 4))
        }
    }
}

impl SuperBlock for Q6K {
    const BYTES: usize = q6_k::BYTES;
    const CODES: usize = q6_k::CODES;
    const SUB_BLOCKS: usize = 16;
    const SUB_BLOCK: usize = q6_k::SUB_BLOCK;
    const STARTS: bool = true;
    type Scales = Signed;

    #[inline(always)]
    unsafe fn start(sums: *const i32, sub: usize, row: usize, rows: usize) -> i32 {
        // SAFETY: the caller's contract. The code of zero is 32.
        unsafe { *sums.add(sub * rows + row) }
    }

    #[inline(always)]
    unsafe fn expand<S: Simd>(
        simd: S,
        codes: *const u8,
        sub: usize,
        eight: usize,
        part: usize,
    ) -> (S::Bytes, S::Bytes) {
        let codes = codes.wrapping_add(sub * q6_k::SUB_BLOCK + part * S::WIDTH * 4);
        // SAFETY: the caller's contract; two vectors of nibbles, then one of two-bit fields.
        unsafe { simd.six_bits(simd.load_bytes(codes.add(eight * 64)), simd.load_bytes(codes.add(128)), eight == 1) }
    }
}

impl SuperBlock for IQ4XS {
    const BYTES: usize = iq4_xs::BYTES;
    const CODES: usize = iq4_xs::CODES;
    const SUB_BLOCKS: usize = 8;
    const SUB_BLOCK: usize = 256;
    const WIDE: bool = true;
    const STARTS: bool = true;
    type Scales = Signed;

    #[inline(always)]
    unsafe fn start(sums: *const i32, sub: usize, row: usize, rows: usize) -> i32 {
        let sums = sums.wrapping_add(sub * 2 * rows + row);
        // SAFETY: the caller's contract. The code of zero is 128.
        unsafe { (*sums + *sums.add(rows)) << 2 }
    }

    #[inline(always)]
    unsafe fn expand<S: Simd>(
        simd: S,
        codes: *const u8,
        sub: usize,
        eight: usize,
        part: usize,
    ) -> (S::Bytes, S::Bytes) {
        // SAFETY: the caller's contract.
        unsafe { looked_up(simd, codes.add(sub * 256), eight, part) }
    }
}

/// # Safety
/// `panel` holds `tile.blocks` super-blocks of type `B`; per super-block the tile has `8 * R` codes, `R` scales, `16 * R`
/// starts, `4 * R` sums.
#[inline(always)]
pub(super) unsafe fn super_blocks<S: Simd, const R: usize, B: SuperBlock>(
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
                B::Scales::finish(simd, base, ActivationSums::new(tile, R, block, 0), part, &mut values);
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
/// As [`Scales::finish`], and the tile's slices as in [`super_blocks`]. `G` divides the number of sub-blocks.
#[inline(always)]
unsafe fn sub_blocks<S: Simd, const R: usize, const G: usize, B: SuperBlock>(
    simd: S,
    base: *const u8,
    tile: &Tile<'_>,
    block: usize,
    part: usize,
) -> [S::Floats; R] {
    let inputs = 256 / B::SUB_BLOCKS;
    let (eights, lines) = (inputs / 8, B::SUB_BLOCK.div_ceil(64));
    let mut values = [simd.floats(0.0); R];
    let mut exact = [simd.ints(0); R];
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
            if B::STARTS {
                let sums = tile.starts.as_ptr().add(block * 16 * R);
                for (sub, dots) in dots.iter_mut().enumerate() {
                    for (row, dot) in dots.iter_mut().enumerate() {
                        *dot = simd.ints(B::start(sums, first + sub, row, R));
                    }
                }
            }
            for eight in 0..eights {
                let mut weights = [B::expand(simd, codes, first, eight, part); G];
                for (sub, weights) in weights.iter_mut().enumerate().skip(1) {
                    *weights = B::expand(simd, codes, first + sub, eight, part);
                }
                if part == 0 {
                    for sub in 0..G {
                        for line in eight * lines / eights..(eight + 1) * lines / eights {
                            prefetch(simd, codes.add((first + sub) * B::SUB_BLOCK + line * 64));
                        }
                    }
                }
                let activations = std::array::from_fn(|sub| {
                    let input = (first + sub) * inputs + eight * 8;
                    activations.add(input / 64 * R * 64 + input % 64)
                });
                simd.multiply::<R, G>(&mut dots, &weights, activations, 64, B::WIDE);
            }
            for (sub, dots) in dots.iter().enumerate() {
                let factors = B::Scales::factors(simd, base, first + sub, part);
                if S::EXACT {
                    for (exact, &dot) in exact.iter_mut().zip(dots) {
                        *exact = simd.mul_add_ints(dot, factors, *exact);
                    }
                } else {
                    let factors = simd.to_floats(factors);
                    for (value, &dot) in values.iter_mut().zip(dots) {
                        *value = simd.mul_add(simd.to_floats(dot), factors, *value);
                    }
                }
            }
        }
    }
    if S::EXACT {
        for (value, exact) in values.iter_mut().zip(exact) {
            *value = simd.to_floats(exact);
        }
    }
    values
}
