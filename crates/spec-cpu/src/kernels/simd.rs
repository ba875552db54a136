//! What kernels are written in: vectors over the sixteen outputs of a panel, implemented once per instruction set.

use half::f16;

use crate::packed::LANES;

/// Vectors of an instruction set. A value proves that the processor has the instructions.
///
/// All functions are `#[inline(always)]` and without target features of their own: they become instructions only when
/// inlined into the entry of their instruction set, which [`crate::Isa::run`] calls. Kernels must be inlined as well, and
/// call these functions from loops rather than closures, which nothing forces the compiler to inline.
///
/// Per lane, every implementation does the same operations in the same order; those with fused multiply-adds agree bit
/// for bit, as far as [`EXACT`](Self::EXACT) is the same.
pub(crate) trait Simd: Copy {
    /// Lanes of 32 bits; divides [`LANES`].
    const WIDTH: usize;
    /// Vectors that a panel is wide.
    const PARTS: usize = LANES / Self::WIDTH;
    /// Whether the scaled sums of a super-block's sub-blocks are added as integers, as tiles add them, rather than rounded to f32 one
    /// after the other.
    const EXACT: bool = false;
    /// Vector registers. Kernels choose by it how many sums they keep in flight.
    const REGISTERS: usize;
    /// Four unsigned bytes per lane: the codes of four inputs.
    type Bytes: Copy;
    /// A 32-bit integer per lane.
    type Ints: Copy;
    /// An f32 per lane.
    type Floats: Copy;

    /// # Safety
    /// `4 * WIDTH` bytes are readable at `at`.
    unsafe fn load_bytes(self, at: *const u8) -> Self::Bytes;
    /// The low and the high nibbles of each byte.
    fn nibbles(self, codes: Self::Bytes) -> (Self::Bytes, Self::Bytes);
    /// Adds `value`, a power of two above all codes, to the codes whose bits are set.
    ///
    /// # Safety
    /// `4 * WIDTH` bits are readable at `bits`, the bit of byte `i` of the vector being number `i`.
    unsafe fn add_bits(self, codes: Self::Bytes, bits: *const u8, value: u8) -> Self::Bytes;
    /// Fields 0 and 1 of two bits each of every byte, or 2 and 3 if `upper`.
    fn two_bits(self, codes: Self::Bytes, upper: bool) -> (Self::Bytes, Self::Bytes);
    /// The entries of `table` that the codes, below 16, number.
    fn look_up(self, table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes;
    /// Codes of which `low` has the low nibbles, in its low and its high ones, and `high` bits 4 and 5: in its fields 0
    /// and 1 of two bits each, or 2 and 3 if `upper`.
    fn six_bits(self, low: Self::Bytes, high: Self::Bytes, upper: bool) -> (Self::Bytes, Self::Bytes);
    /// Adds 64-bit words.
    fn add_words(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// The sum of the 64-bit words.
    fn sum_words(self, words: Self::Bytes) -> u64;

    /// `value` in all lanes.
    fn ints(self, value: i32) -> Self::Ints;
    /// For `G` sub-blocks, adds to the sums of `R` rows the products of eight codes and eight signed activations, those of
    /// row `r` being at `activations + stride * r`. Codes are below 64, or below 256 if `wide`.
    ///
    /// # Safety
    /// The activations are readable.
    unsafe fn multiply<const R: usize, const G: usize>(
        self,
        sums: &mut [[Self::Ints; R]; G],
        codes: &[(Self::Bytes, Self::Bytes); G],
        activations: [*const i8; G],
        stride: usize,
        wide: bool,
    );
    /// `a * b + c`, modulo 2^32.
    fn mul_add_ints(self, a: Self::Ints, b: Self::Ints, c: Self::Ints) -> Self::Ints;
    /// Pairs of unsigned bytes as pairs of 16 bits, the first in the lower half.
    ///
    /// # Safety
    /// `2 * WIDTH` bytes are readable at `at`.
    unsafe fn load_pairs(self, at: *const u8) -> Self::Ints;
    /// The two nibbles of each byte as pairs of 16 bits, the low one in the lower half.
    ///
    /// # Safety
    /// `WIDTH` bytes are readable at `at`.
    unsafe fn load_nibble_pairs(self, at: *const u8) -> Self::Ints;
    /// Adds `first * low + second * high`, where `(first, second)` are the pair of each lane, both below 256, and `low`,
    /// `high` the signed halves of `factors`.
    fn multiply_pairs(self, sums: Self::Ints, pairs: Self::Ints, factors: i32) -> Self::Ints;
    /// Rounded to the nearest f32.
    fn to_floats(self, values: Self::Ints) -> Self::Floats;
    /// The sum of the lanes, modulo 2^32.
    fn sum_ints(self, values: Self::Ints) -> i32;
    /// The greater of `most`, not negative, and the bits of the magnitudes of `values`: as integers, magnitudes order like
    /// floats, and every NaN is above infinity.
    fn greater_magnitude(self, most: Self::Ints, values: Self::Floats) -> Self::Ints;
    /// The greatest lane.
    fn greatest(self, values: Self::Ints) -> i32;
    /// `values * factor`, rounded, then rounded to the nearest integer, ties to even, if below 2^22.
    fn round(self, values: Self::Floats, factor: Self::Floats) -> Self::Ints;
    /// # Safety
    /// `WIDTH` bytes are writable at `at`.
    unsafe fn store_low_bytes(self, at: *mut i8, values: Self::Ints);

    /// `value` in all lanes.
    fn floats(self, value: f32) -> Self::Floats;
    /// `a * b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once where the instruction set can.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once where the instruction set can.
    fn neg_mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// # Safety
    /// `WIDTH` numbers are readable at `at`.
    unsafe fn load(self, at: *const f32) -> Self::Floats;
    /// # Safety
    /// `WIDTH` numbers are readable at `at`, which need not be aligned.
    unsafe fn load_halves(self, at: *const f16) -> Self::Floats;
    /// Numbers of which the upper halves are stored.
    ///
    /// # Safety
    /// `WIDTH` numbers are readable at `at`, which need not be aligned.
    unsafe fn load_brain_floats(self, at: *const u16) -> Self::Floats;
    /// # Safety
    /// `WIDTH` bytes are readable at `at`.
    unsafe fn load_unsigned(self, at: *const u8) -> Self::Ints;
    /// # Safety
    /// `WIDTH` bytes are readable at `at`.
    unsafe fn load_signed(self, at: *const i8) -> Self::Ints;
    /// # Safety
    /// `WIDTH` numbers are writable at `at`.
    unsafe fn store(self, at: *mut f32, values: Self::Floats);
    /// Rounds to nearest even.
    ///
    /// # Safety
    /// `WIDTH` numbers are writable at `at`.
    unsafe fn store_halves(self, at: *mut f16, values: Self::Floats);

    /// Fetches the cache line at `at`, which may be any address, for use soon: into the first-level cache, or the second.
    fn prefetch<const FIRST_LEVEL: bool>(self, at: *const u8);
}

/// At 1.5 * 2^23 an f32 has no fraction bits left: adding it rounds to an integer.
pub(super) const ROUNDING: f32 = 12_582_912.0;

/// An operation over the vectors of any instruction set, carried out by [`crate::Isa::run`].
///
/// `run` must be `#[inline(always)]` and call only such functions: it is compiled once per instruction set.
pub(crate) trait Kernel {
    /// What the operation returns.
    type Output;
    /// Carries it out.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// An operation written in plain Rust over fixed lanes, for the compiler to vectorise. Multiplications and additions are
/// not fused, so results agree bit for bit across instruction sets.
///
/// As for [`Kernel`], `run` must be `#[inline(always)]`.
pub(crate) trait Vectorize {
    /// What the operation returns.
    type Output;
    /// Carries it out.
    fn run(self) -> Self::Output;
}

/// A [`Vectorize`] as a [`Kernel`].
pub(super) struct Plain<V>(pub(super) V);

impl<V: Vectorize> Kernel for Plain<V> {
    type Output = V::Output;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> V::Output {
        self.0.run()
    }
}

/// How many of four, two or one things to treat together, so that `each` registers per thing leave some to spare.
pub(crate) const fn together(registers: usize, each: usize) -> usize {
    match registers * 3 / 4 / each {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}
