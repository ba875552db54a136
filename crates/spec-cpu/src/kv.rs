//! Storage of keys and values: one arena for all layers, cut into blocks of [`BLOCK_TOKENS`] tokens.
//!
//! Which token lives in which slot is decided by [`spec_runtime::kv::PagedKv`]; this module knows where the
//! numbers of a slot are. A block of a layer holds, in elements:
//!
//! - keys `[kv_head][group of 16 tokens][head_dim][16]`: the 16 tokens of a group are the lanes of a vector, so a
//!   score needs no horizontal sum;
//! - values `[kv_head][token][head_dim]`.
//!
//! Both halves put group `g` of head `h` at `(h * groups + g) * 16 * head_dim`.

use std::marker::PhantomData;

use half::f16;
use memmap2::MmapMut;
use spec_runtime::kv::Move;

use crate::attention::LANES;
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
}

impl KvType {
    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// A number as the cache stores it. All-zero bytes must be a valid zero.
pub(crate) trait KvElement: Copy + Default + Send + Sync + 'static {
    fn encode(value: f32) -> Self;
    #[cfg(test)]
    fn decode(self) -> f32;

    /// # Safety
    /// `S::WIDTH` elements are readable at `at`.
    unsafe fn load<S: Simd>(simd: S, at: *const Self) -> S::Floats;

    /// # Safety
    /// `S::WIDTH` elements are writable at `at`.
    unsafe fn store<S: Simd>(simd: S, at: *mut Self, values: S::Floats);
}

impl KvElement for f16 {
    fn encode(value: f32) -> Self {
        Self::from_f32(value)
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

    #[inline(always)]
    unsafe fn store<S: Simd>(simd: S, at: *mut Self, values: S::Floats) {
        // SAFETY: the caller's contract.
        unsafe { simd.store_halves(at, values) };
    }
}

impl KvElement for f32 {
    fn encode(value: f32) -> Self {
        value
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

    #[inline(always)]
    unsafe fn store<S: Simd>(simd: S, at: *mut Self, values: S::Floats) {
        // SAFETY: the caller's contract.
        unsafe { simd.store(at, values) };
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
    pub(crate) fn values_at(&self) -> usize {
        self.kv_heads * BLOCK_TOKENS * self.head_dim
    }

    /// Elements of one group of one head, keys or values.
    pub(crate) fn group_elements(&self) -> usize {
        LANES * self.head_dim
    }

    /// Where the keys of a head begin, for the group that starts at offset `group * 16` of a block. The values
    /// of the same tokens lie [`values_at`](Self::values_at) further on.
    pub(crate) fn group_at(&self, layer: usize, block: usize, head: usize, group: usize) -> usize {
        (layer * self.blocks + block) * 2 * self.values_at() + (head * GROUPS + group) * self.group_elements()
    }

    /// Group offset and lane of a slot.
    pub(crate) fn slot_at(&self, layer: usize, slot: usize, head: usize) -> (usize, usize) {
        let (block, offset) = (slot / BLOCK_TOKENS, slot % BLOCK_TOKENS);
        (self.group_at(layer, block, head, offset / LANES), offset % LANES)
    }

    /// Elements of one token over all layers.
    pub(crate) fn token_elements(&self) -> usize {
        2 * self.layers * self.kv_heads * self.head_dim
    }

    fn elements(&self) -> Option<usize> {
        self.token_elements().checked_mul(self.blocks)?.checked_mul(BLOCK_TOKENS)
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
        let bytes = shape.elements().and_then(|n| n.checked_mul(size_of::<E>())).filter(|&n| n > 0);
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
                    let (from, from_lane) = shape.slot_at(layer, step.from, head);
                    let (to, to_lane) = shape.slot_at(layer, step.to, head);
                    for d in 0..shape.head_dim {
                        elements[to + d * LANES + to_lane] = elements[from + d * LANES + from_lane];
                    }
                    let row = |group: usize, lane: usize| group + shape.values_at() + lane * shape.head_dim;
                    let source = row(from, from_lane);
                    elements.copy_within(source..source + shape.head_dim, row(to, to_lane));
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
        let (group, lane) = shape.slot_at(layer, slot, head);
        for (index, part) in key.chunks(CHUNK).enumerate() {
            isa.run(Encode { values: part, out: &mut encoded[..part.len()] });
            for (d, &element) in encoded[..part.len()].iter().enumerate() {
                // SAFETY: this element belongs to this slot; the caller keeps others away from it.
                unsafe { elements.set(group + (index * CHUNK + d) * LANES + lane, element) };
            }
        }
        let row = group + shape.values_at() + lane * shape.head_dim;
        // SAFETY: as above.
        let out = unsafe { elements.slice(row..row + shape.head_dim) };
        isa.run(Encode { values: value, out });
    }
}

/// Converts a row to what the cache stores.
struct Encode<'a, E> {
    values: &'a [f32],
    out: &'a mut [E],
}

impl<E: KvElement> Kernel for Encode<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut targets = self.out.chunks_exact_mut(S::WIDTH);
        let mut sources = self.values.chunks_exact(S::WIDTH);
        for (target, source) in (&mut targets).zip(&mut sources) {
            // SAFETY: both hold a vector of items.
            unsafe { E::store(simd, target.as_mut_ptr(), simd.load(source.as_ptr())) };
        }
        for (target, &source) in targets.into_remainder().iter_mut().zip(sources.remainder()) {
            *target = E::encode(source);
        }
    }
}

#[cfg(test)]
#[path = "kv_tests.rs"]
mod tests;
