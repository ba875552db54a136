//! Storage of keys and values: one arena for all layers, cut into blocks of [`BLOCK_TOKENS`] tokens.
//!
//! Which token lives in which slot is decided by [`spec_runtime::kv::PagedKv`]; this module knows where the
//! numbers of a slot are. A block of a layer holds, in elements:
//!
//! - keys `[kv_head][group of 16 tokens][head_dim][16]`: the 16 tokens of a group are the lanes of a vector, so a
//!   score needs no horizontal sum;
//! - values `[kv_head][token][head_dim]`.
//!
//! Behind the numbers of each group lie the scales of its 16 tokens, where the element type has them. Both halves put group
//! `g` of head `h` at `(h * groups + g)` times the elements of a group.

use std::marker::PhantomData;

use half::f16;
use memmap2::MmapMut;
use spec_runtime::kv::Move;

use crate::attention::LANES;
use crate::kernels::quantize;
use crate::kernels::simd::{Kernel, Simd};
use crate::{CpuError, Isa, SharedSlice};

/// Tokens that a block holds.
pub(crate) const BLOCK_TOKENS: usize = 32;
const GROUPS: usize = BLOCK_TOKENS / LANES;

/// How keys and values are stored.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KvType {
    /// IEEE half precision, rounded to nearest even.
    #[default]
    F16,
    /// Single precision.
    F32,
    /// Signed bytes, and for each token and head a scale of its keys and one of its values, both f32.
    Q8,
}

impl KvType {
    /// Bytes of the keys, or of the values, of one token in one head of `head_dim` elements.
    #[must_use]
    pub fn head_bytes(self, head_dim: usize) -> usize {
        match self {
            Self::F16 => 2 * head_dim,
            Self::F32 => 4 * head_dim,
            Self::Q8 => head_dim + size_of::<f32>(),
        }
    }
}

/// A number as the cache stores it. All-zero bytes must be a valid zero.
pub(crate) trait KvElement: Copy + Default + Send + Sync + 'static {
    /// Elements that the scale of a row takes: the keys, or the values, of one token in one head. Zero where none is stored.
    const SCALE_ELEMENTS: usize = 0;

    /// The scale of a row and its inverse.
    fn scale(_isa: Isa, _row: &[f32]) -> (f32, f32) {
        (1.0, 1.0)
    }

    /// Rounds a part of a row.
    fn encode(isa: Isa, values: &[f32], inverse: f32, out: &mut [Self]);

    #[cfg(test)]
    fn decode(self) -> f32;

    /// Elements, without their scales.
    ///
    /// # Safety
    /// `S::WIDTH` elements are readable at `at`.
    unsafe fn load<S: Simd>(simd: S, at: *const Self) -> S::Floats;
}

impl KvElement for f16 {
    fn encode(isa: Isa, values: &[f32], _: f32, out: &mut [Self]) {
        isa.run(Round { values, out });
    }

    #[cfg(test)]
    fn decode(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, at: *const Self) -> S::Floats {
        // SAFETY: the caller's contract.
        unsafe { simd.load_halves(at) }
    }
}

impl KvElement for f32 {
    fn encode(_: Isa, values: &[f32], _: f32, out: &mut [Self]) {
        out.copy_from_slice(values);
    }

    #[cfg(test)]
    fn decode(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, at: *const Self) -> S::Floats {
        // SAFETY: the caller's contract.
        unsafe { simd.load(at) }
    }
}

impl KvElement for i8 {
    const SCALE_ELEMENTS: usize = size_of::<f32>();

    fn scale(isa: Isa, row: &[f32]) -> (f32, f32) {
        isa.run(Scale(row))
    }

    fn encode(isa: Isa, values: &[f32], inverse: f32, out: &mut [Self]) {
        isa.run(Quantize { values, inverse, out });
    }

    #[cfg(test)]
    fn decode(self) -> f32 {
        f32::from(self)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, at: *const Self) -> S::Floats {
        // SAFETY: the caller's contract.
        simd.to_floats(unsafe { simd.load_signed(at) })
    }
}

/// Sizes of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KvShape {
    pub(crate) layers: usize,
    pub(crate) blocks: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
}

impl KvShape {
    /// Elements between the keys and the values of a block.
    pub(crate) fn values_at<E: KvElement>(&self) -> usize {
        self.kv_heads * GROUPS * self.group_elements::<E>()
    }

    /// Elements of one group of one head, keys or values, with their scales.
    pub(crate) fn group_elements<E: KvElement>(&self) -> usize {
        LANES * (self.head_dim + E::SCALE_ELEMENTS)
    }

    /// Where the keys of a head begin, for the group that starts at offset `group * 16` of a block. The values
    /// of the same tokens lie [`values_at`](Self::values_at) further on.
    pub(crate) fn group_at<E: KvElement>(&self, layer: usize, block: usize, head: usize, group: usize) -> usize {
        (layer * self.blocks + block) * 2 * self.values_at::<E>() + (head * GROUPS + group) * self.group_elements::<E>()
    }

    /// Group offset and lane of a slot.
    pub(crate) fn slot_at<E: KvElement>(&self, layer: usize, slot: usize, head: usize) -> (usize, usize) {
        let (block, offset) = (slot / BLOCK_TOKENS, slot % BLOCK_TOKENS);
        (self.group_at::<E>(layer, block, head, offset / LANES), offset % LANES)
    }

    /// Elements from the start of a group to the scale of a lane.
    pub(crate) fn scale_at<E: KvElement>(&self, lane: usize) -> usize {
        LANES * self.head_dim + lane * E::SCALE_ELEMENTS
    }

    /// Rows of `head_dim` elements that one token has over all layers.
    pub(crate) fn token_rows(&self) -> usize {
        2 * self.layers * self.kv_heads
    }

    fn elements<E: KvElement>(&self) -> Option<usize> {
        let row = self.head_dim + E::SCALE_ELEMENTS;
        (self.token_rows() * row).checked_mul(self.blocks)?.checked_mul(BLOCK_TOKENS)
    }
}

/// The keys and values of all sequences of one model. Memory is touched, and so taken, when first written.
#[derive(Debug)]
pub(crate) struct KvArena<E> {
    map: MmapMut,
    shape: KvShape,
    element: PhantomData<E>,
}

impl<E: KvElement> KvArena<E> {
    pub(crate) fn new(shape: KvShape) -> Result<Self, CpuError> {
        let bytes = shape.elements::<E>().and_then(|n| n.checked_mul(size_of::<E>())).filter(|&n| n > 0);
        let bytes = bytes.ok_or(CpuError::KvSize { blocks: shape.blocks })?;
        let map = MmapMut::map_anon(bytes).map_err(|source| CpuError::Memory { bytes, source })?;
        // A kernel without huge pages still works, more slowly.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, shape, element: PhantomData })
    }

    pub(crate) fn shape(&self) -> &KvShape {
        &self.shape
    }

    pub(crate) fn elements(&self) -> &[E] {
        let length = self.map.len() / size_of::<E>();
        // SAFETY: the mapping is page-aligned, `length` elements long, initialised (zeroes or written as `E`), and
        // every bit pattern written through `elements_mut` is a valid `E`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), length) }
    }

    pub(crate) fn elements_mut(&mut self) -> &mut [E] {
        let length = self.map.len() / size_of::<E>();
        // SAFETY: as in `elements`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), length) }
    }

    /// Moves tokens in all layers, in order.
    pub(crate) fn move_tokens(&mut self, moves: &[Move]) {
        let shape = self.shape;
        let elements = self.elements_mut();
        for layer in 0..shape.layers {
            for step in moves {
                for head in 0..shape.kv_heads {
                    let (from, from_lane) = shape.slot_at::<E>(layer, step.from, head);
                    let (to, to_lane) = shape.slot_at::<E>(layer, step.to, head);
                    for d in 0..shape.head_dim {
                        elements[to + d * LANES + to_lane] = elements[from + d * LANES + from_lane];
                    }
                    let (from_values, to_values) = (from + shape.values_at::<E>(), to + shape.values_at::<E>());
                    let source = from_values + from_lane * shape.head_dim;
                    elements.copy_within(source..source + shape.head_dim, to_values + to_lane * shape.head_dim);
                    for (from, to) in [(from, to), (from_values, to_values)] {
                        let source = from + shape.scale_at::<E>(from_lane);
                        elements.copy_within(source..source + E::SCALE_ELEMENTS, to + shape.scale_at::<E>(to_lane));
                    }
                }
            }
        }
    }
}

/// Writes the keys and values (`[kv_head][head_dim]` each) of one token.
///
/// # Safety
/// No other thread may touch the numbers of this slot in this layer meanwhile.
pub(crate) unsafe fn store_token<E: KvElement>(
    isa: Isa,
    elements: &SharedSlice<'_, E>,
    shape: &KvShape,
    (layer, slot): (usize, usize),
    (keys, values): (&[f32], &[f32]),
) {
    const CHUNK: usize = 64;
    let mut encoded = [E::default(); CHUNK];
    let heads = keys.chunks_exact(shape.head_dim).zip(values.chunks_exact(shape.head_dim));
    for (head, (key, value)) in heads.enumerate() {
        let (group, lane) = shape.slot_at::<E>(layer, slot, head);
        let (key_scale, inverse) = E::scale(isa, key);
        for (index, part) in key.chunks(CHUNK).enumerate() {
            E::encode(isa, part, inverse, &mut encoded[..part.len()]);
            for (d, &element) in encoded[..part.len()].iter().enumerate() {
                // SAFETY: this element belongs to this slot; the caller keeps others away from it.
                unsafe { elements.set(group + (index * CHUNK + d) * LANES + lane, element) };
            }
        }
        let value_group = group + shape.values_at::<E>();
        let row = value_group + lane * shape.head_dim;
        let (value_scale, inverse) = E::scale(isa, value);
        // SAFETY: as above.
        E::encode(isa, value, inverse, unsafe { elements.slice(row..row + shape.head_dim) });
        if E::SCALE_ELEMENTS > 0 {
            for (group, scale) in [(group, key_scale), (value_group, value_scale)] {
                let at = group + shape.scale_at::<E>(lane);
                // SAFETY: as above; the elements of a scale are the bytes of an f32.
                unsafe {
                    let target = elements.slice(at..at + E::SCALE_ELEMENTS);
                    target.as_mut_ptr().cast::<f32>().write_unaligned(scale);
                }
            }
        }
    }
}

/// Rounds to half precision.
struct Round<'a> {
    values: &'a [f32],
    out: &'a mut [f16],
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut targets = self.out.chunks_exact_mut(S::WIDTH);
        let mut sources = self.values.chunks_exact(S::WIDTH);
        for (target, source) in (&mut targets).zip(&mut sources) {
            // SAFETY: both hold a vector of items.
            unsafe { simd.store_halves(target.as_mut_ptr(), simd.load(source.as_ptr())) };
        }
        for (target, &source) in targets.into_remainder().iter_mut().zip(sources.remainder()) {
            *target = f16::from_f32(source);
        }
    }
}

/// The scale of a row of bytes, and its inverse: NaN if an element is not finite.
struct Scale<'a>(&'a [f32]);

impl Kernel for Scale<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (f32, f32) {
        quantize::scale(simd, self.0)
    }
}

/// Rounds to bytes.
struct Quantize<'a> {
    values: &'a [f32],
    inverse: f32,
    out: &'a mut [i8],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        quantize::round(simd, self.values, self.inverse, self.out);
    }
}

#[cfg(test)]
#[path = "kv_tests.rs"]
pub(crate) mod tests;
