//! Where things lie within a panel of sixteen outputs. All offsets in bytes.

use super::WeightType;

/// Outputs per panel: the 32-bit lanes of a 512-bit vector.
pub(crate) const LANES: usize = 16;

/// Blocks of 32 inputs come in pairs: the codes of both, then the scales of both, so that code vectors stay on
/// cache lines although a scale vector is half a line. A last single block stands alone.
pub(crate) const PAIR: usize = 2;

/// Super-blocks of 256 inputs of Q4_K: eight vectors' worth of scales, then codes.
pub(crate) mod q4_k {
    /// f16 x 16: scale of the scales.
    pub(crate) const SCALE: usize = 0;
    /// f16 x 16: scale of the minima.
    pub(crate) const MIN_SCALE: usize = 32;
    /// u8 x 16 for each of eight sub-blocks of 32 inputs.
    pub(crate) const SCALES: usize = 64;
    /// (u8, u8) x 16 for each of four pairs of sub-blocks: the minima of both.
    pub(crate) const MINS: usize = SCALES + 8 * 16;
    /// 64 bytes per eight inputs: low nibbles are the first four.
    pub(crate) const CODES: usize = MINS + 4 * 32;
    /// Bytes of a super-block: a multiple of 64.
    pub(crate) const BYTES: usize = CODES + 32 * 64;
}

/// Super-blocks of 256 inputs of Q5_K: as Q4_K up to the codes.
pub(crate) mod q5_k {
    /// Bytes of codes per sub-block: as of a block of Q5_0.
    pub(crate) const SUB_BLOCK: usize = 5 * 64;
    /// Bytes of a super-block: a multiple of 64.
    pub(crate) const BYTES: usize = super::q4_k::CODES + 8 * SUB_BLOCK;
}

/// Super-blocks of 256 inputs of Q2_K.
pub(crate) mod q2_k {
    /// f16 x 16: scale of the scales.
    pub(crate) const SCALE: usize = 0;
    /// f16 x 16: scale of the minima.
    pub(crate) const MIN_SCALE: usize = 32;
    /// u8 x 16 for each of eight pairs of sub-blocks of 16 inputs: the scale of the first in the low nibble.
    pub(crate) const SCALES: usize = 64;
    /// The minima, likewise.
    pub(crate) const MINS: usize = SCALES + 8 * 16;
    /// Per sub-block a vector of two-bit fields: field `k` of a byte belongs to the `k`-th four inputs.
    pub(crate) const CODES: usize = MINS + 8 * 16;
    /// Bytes of a super-block: a multiple of 64.
    pub(crate) const BYTES: usize = CODES + 16 * 64;
}

/// Super-blocks of 256 inputs of Q3_K.
pub(crate) mod q3_k {
    /// f32 x 16 (f16 in the file; widened to keep what follows on cache lines).
    pub(crate) const SCALE: usize = 0;
    /// i8 x 16 for each of sixteen sub-blocks of 16 inputs (six bits in the file).
    pub(crate) const SCALES: usize = 64;
    /// Per pair of sub-blocks a vector of two-bit fields each, as of Q2_K, then four u64 masks each, one per four inputs,
    /// with the third bits.
    pub(crate) const CODES: usize = SCALES + 16 * 16;
    /// Where the masks of a pair begin.
    pub(crate) const BITS: usize = 2 * 64;
    /// Bytes of codes per pair of sub-blocks.
    pub(crate) const PAIR: usize = BITS + 2 * 32;
    /// Bytes of a super-block: a multiple of 64.
    pub(crate) const BYTES: usize = CODES + 8 * PAIR;
}

/// Super-blocks of 256 inputs of IQ4_XS.
pub(crate) mod iq4_xs {
    /// f32 x 16, as of Q6_K.
    pub(crate) const SCALE: usize = 0;
    /// i8 x 16 for each of eight sub-blocks of 32 inputs.
    pub(crate) const SCALES: usize = 64;
    /// As of Q4_K.
    pub(crate) const CODES: usize = SCALES + 8 * 16;
    /// Bytes of a super-block: a multiple of 64.
    pub(crate) const BYTES: usize = CODES + 32 * 64;
}

/// Super-blocks of 256 inputs of Q6_K.
pub(crate) mod q6_k {
    /// f32 x 16 (f16 in the file; widened to keep what follows on cache lines).
    pub(crate) const SCALE: usize = 0;
    /// i8 x 16 for each of sixteen sub-blocks of 16 inputs.
    pub(crate) const SCALES: usize = 64;
    /// Per sub-block two vectors of low nibbles (eight inputs each, low nibbles are the first four) and one of
    /// two-bit fields: field `k` of a byte belongs to the `k`-th four inputs.
    pub(crate) const CODES: usize = SCALES + 16 * 16;
    /// Bytes of codes per sub-block.
    pub(crate) const SUB_BLOCK: usize = 3 * 64;
    /// Bytes of a super-block: a multiple of 64.
    pub(crate) const BYTES: usize = CODES + 16 * SUB_BLOCK;
}

/// Bytes of codes and of scales of one block of 32 inputs.
///
/// Codes are 64-byte vectors: of eight inputs for nibbles, of four for bytes; Q5_0 and Q5_1 add eight u64 masks, one per four inputs,
/// with the fifth bits (bit `4 * output + input`). Scales are f16 x 16, for Q4_1 and Q5_1 followed by the minima.
const fn block32(ty: WeightType) -> Option<(usize, usize)> {
    match ty {
        WeightType::Q4_0 | WeightType::IQ4_NL => Some((4 * 64, 32)),
        WeightType::Q4_1 => Some((4 * 64, 64)),
        WeightType::Q5_0 => Some((5 * 64, 32)),
        WeightType::Q5_1 => Some((5 * 64, 64)),
        WeightType::Q8_0 => Some((8 * 64, 32)),
        _ => None,
    }
}

/// Bytes of a panel, rounded up to whole cache lines.
pub(super) fn panel_bytes(ty: WeightType, inputs: usize) -> usize {
    let bytes = match (ty.block(), block32(ty)) {
        (1, _) => inputs * LANES * ty.block_bytes(),
        (_, Some((codes, scales))) => inputs / 32 * (codes + scales),
        _ => inputs / 256 * super_block_bytes(ty),
    };
    bytes.next_multiple_of(64)
}

/// Bytes of a super-block of sixteen outputs.
pub(crate) fn super_block_bytes(ty: WeightType) -> usize {
    match ty {
        WeightType::Q2_K => q2_k::BYTES,
        WeightType::Q3_K => q3_k::BYTES,
        WeightType::Q4_K => q4_k::BYTES,
        WeightType::Q5_K => q5_k::BYTES,
        WeightType::Q6_K => q6_k::BYTES,
        WeightType::IQ4_XS => iq4_xs::BYTES,
        other => unreachable!("{other:?} has no super-blocks"),
    }
}

/// Offsets of the codes and of the scales of block `block` of `blocks`, for the types of 32-input blocks.
#[inline(always)]
pub(crate) fn split_block(ty: WeightType, block: usize, blocks: usize) -> (usize, usize) {
    let (codes, scales) = block32(ty).expect("only called for types of 32-input blocks");
    let pair = block / PAIR * PAIR;
    let base = pair * (codes + scales);
    let paired = PAIR.min(blocks - pair);
    (base + (block - pair) * codes, base + paired * codes + (block - pair) * scales)
}
