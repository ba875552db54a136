//! Vectors in plain Rust.

use half::f16;

use super::simd::{Kernel, ROUNDING, Simd};
use crate::packed::LANES;
use crate::vector::{f16_to_f32, f32_to_f16};

/// Runs `kernel` as it is.
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Arrays)
}

#[derive(Clone, Copy)]
struct Arrays;

type Bytes = [u8; 4 * LANES];
type Ints = [i32; LANES];
type Floats = [f32; LANES];

/// Adds the products of four inputs to the sixteen sums.
#[inline(always)]
fn multiply_four(sums: &mut Ints, codes: &Bytes, activations: [i8; 4]) {
    let activations = activations.map(i32::from);
    for (sum, codes) in sums.iter_mut().zip(codes.chunks_exact(4)) {
        for input in 0..4 {
            *sum += i32::from(codes[input]) * activations[input];
        }
    }
}

impl Simd for Arrays {
    const WIDTH: usize = LANES;
    /// A vector takes several of the processor's registers.
    const REGISTERS: usize = 4;
    type Bytes = Bytes;
    type Ints = Ints;
    type Floats = Floats;

    #[inline(always)]
    unsafe fn load_bytes(self, at: *const u8) -> Bytes {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<Bytes>().read() }
    }

    #[inline(always)]
    fn nibbles(self, codes: Bytes) -> (Bytes, Bytes) {
        (codes.map(|code| code & 15), codes.map(|code| code >> 4))
    }

    #[inline(always)]
    unsafe fn add_bits(self, mut codes: Bytes, bits: *const u8, value: u8) -> Bytes {
        // SAFETY: the caller's contract.
        let bits = u64::from_le(unsafe { bits.cast::<u64>().read_unaligned() });
        for (byte, code) in codes.iter_mut().enumerate() {
            *code += (bits >> byte & 1) as u8 * value;
        }
        codes
    }

    #[inline(always)]
    fn two_bits(self, codes: Bytes, upper: bool) -> (Bytes, Bytes) {
        let shift = if upper { 4 } else { 0 };
        (codes.map(|code| code >> shift & 3), codes.map(|code| code >> (shift + 2) & 3))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: Bytes) -> Bytes {
        codes.map(|code| table[usize::from(code & 15)])
    }

    #[inline(always)]
    fn six_bits(self, low: Bytes, high: Bytes, upper: bool) -> (Bytes, Bytes) {
        let shift = if upper { 4 } else { 0 };
        let (mut first, mut second) = self.nibbles(low);
        for ((first, second), high) in first.iter_mut().zip(&mut second).zip(high) {
            *first |= (high >> shift & 3) << 4;
            *second |= (high >> (shift + 2) & 3) << 4;
        }
        (first, second)
    }

    #[inline(always)]
    fn add_words(self, mut a: Bytes, b: Bytes) -> Bytes {
        for (a, b) in a.as_chunks_mut().0.iter_mut().zip(b.as_chunks().0) {
            *a = u64::from_le_bytes(*a).wrapping_add(u64::from_le_bytes(*b)).to_le_bytes();
        }
        a
    }

    #[inline(always)]
    fn sum_words(self, words: Bytes) -> u64 {
        words.as_chunks().0.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)))
    }

    #[inline(always)]
    fn ints(self, value: i32) -> Ints {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn multiply<const R: usize, const G: usize>(
        self,
        sums: &mut [[Ints; R]; G],
        codes: &[(Bytes, Bytes); G],
        activations: [*const i8; G],
        stride: usize,
        _: bool,
    ) {
        for ((sums, codes), activations) in sums.iter_mut().zip(codes).zip(activations) {
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the caller's contract.
                let eight = unsafe { activations.add(stride * row).cast::<[[i8; 4]; 2]>().read() };
                multiply_four(sums, &codes.0, eight[0]);
                multiply_four(sums, &codes.1, eight[1]);
            }
        }
    }

    #[inline(always)]
    fn mul_add_ints(self, a: Ints, b: Ints, c: Ints) -> Ints {
        std::array::from_fn(|lane| a[lane].wrapping_mul(b[lane]).wrapping_add(c[lane]))
    }

    #[inline(always)]
    unsafe fn load_pairs(self, at: *const u8) -> Ints {
        // SAFETY: the caller's contract.
        let pairs = unsafe { at.cast::<[[u8; 2]; LANES]>().read() };
        pairs.map(|[first, second]| i32::from(first) | i32::from(second) << 16)
    }

    #[inline(always)]
    unsafe fn load_nibble_pairs(self, at: *const u8) -> Ints {
        // SAFETY: the caller's contract.
        let bytes = unsafe { at.cast::<[u8; LANES]>().read() };
        bytes.map(|byte| i32::from(byte & 15) | i32::from(byte >> 4) << 16)
    }

    #[inline(always)]
    fn multiply_pairs(self, mut sums: Ints, pairs: Ints, factors: i32) -> Ints {
        let (low, high) = (i32::from(factors as i16), factors >> 16);
        for (sum, pair) in sums.iter_mut().zip(pairs) {
            *sum += (pair & 0xffff) * low + (pair >> 16) * high;
        }
        sums
    }

    #[inline(always)]
    fn to_floats(self, values: Ints) -> Floats {
        values.map(|value| value as f32)
    }

    #[inline(always)]
    fn sum_ints(self, values: Ints) -> i32 {
        values.into_iter().fold(0, i32::wrapping_add)
    }

    #[inline(always)]
    fn greater_magnitude(self, most: Ints, values: Floats) -> Ints {
        std::array::from_fn(|lane| most[lane].max((values[lane].to_bits() & 0x7fff_ffff).cast_signed()))
    }

    #[inline(always)]
    fn greatest(self, values: Ints) -> i32 {
        values.into_iter().fold(i32::MIN, i32::max)
    }

    #[inline(always)]
    fn round(self, values: Floats, factor: Floats) -> Ints {
        let shifted = |lane: usize| (values[lane] * factor[lane] + ROUNDING).to_bits();
        std::array::from_fn(|lane| shifted(lane).wrapping_sub(ROUNDING.to_bits()).cast_signed())
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, at: *mut i8, values: Ints) {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<[i8; LANES]>().write_unaligned(values.map(|value| value as i8)) };
    }

    #[inline(always)]
    fn floats(self, value: f32) -> Floats {
        [value; LANES]
    }

    #[inline(always)]
    fn mul(self, a: Floats, b: Floats) -> Floats {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    fn mul_add(self, a: Floats, b: Floats, c: Floats) -> Floats {
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    fn neg_mul_add(self, a: Floats, b: Floats, c: Floats) -> Floats {
        std::array::from_fn(|lane| c[lane] - a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> Floats {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<Floats>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_halves(self, at: *const f16) -> Floats {
        // SAFETY: the caller's contract.
        let halves = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        halves.map(f16_to_f32)
    }

    #[inline(always)]
    unsafe fn load_brain_floats(self, at: *const u16) -> Floats {
        // SAFETY: the caller's contract.
        let uppers = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        uppers.map(|upper| f32::from_bits(u32::from(upper) << 16))
    }

    #[inline(always)]
    unsafe fn load_unsigned(self, at: *const u8) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<[u8; LANES]>().read() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn load_signed(self, at: *const i8) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<[i8; LANES]>().read() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, values: Floats) {
        // SAFETY: the caller's contract.
        unsafe { at.cast::<Floats>().write_unaligned(values) };
    }

    #[inline(always)]
    unsafe fn store_halves(self, at: *mut f16, values: Floats) {
        // SAFETY: the caller's contract; every bit pattern is an f16.
        unsafe { at.cast::<[u16; LANES]>().write_unaligned(values.map(f32_to_f16)) };
    }

    #[inline(always)]
    fn prefetch<const FIRST_LEVEL: bool>(self, _: *const u8) {}
}
