//! From GGUF blocks to panels. Works on 32-bit words of four codes, so it runs at memory speed.

use super::WeightType;
use super::layout::{LANES, q4_k, q6_k, split_block};

const NIBBLES: u32 = 0x0f0f_0f0f;
const TWO_BITS: u32 = 0x0303_0303;

/// The rows of one panel as they lie in the file.
struct Source<'a> {
    bytes: &'a [u8],
    blocks: usize,
    block_bytes: usize,
}

impl<'a> Source<'a> {
    /// Block `block` of row `lane`, or nothing for a padding row.
    fn block(&self, lane: usize, block: usize) -> Option<&'a [u8]> {
        let start = (lane * self.blocks + block) * self.block_bytes;
        self.bytes.get(start..start + self.block_bytes)
    }
}

/// Packs up to sixteen rows into `target`, which is zeroed: padding rows keep zero scales.
pub(super) fn panel(ty: WeightType, inputs: usize, bytes: &[u8], target: &mut [u8]) {
    let source = Source { bytes, blocks: inputs / ty.block(), block_bytes: ty.block_bytes() };
    for block in 0..source.blocks {
        for lane in 0..LANES {
            let Some(from) = source.block(lane, block) else { break };
            match ty {
                WeightType::F32 => copy(target, (block * LANES + lane) * 4, from),
                WeightType::F16 => copy(target, (block * LANES + lane) * 2, from),
                WeightType::Q4_1 => q4_1(from, target, split_block(ty, block, source.blocks), lane),
                WeightType::Q5_0 => q5_0(from, target, split_block(ty, block, source.blocks), lane),
                WeightType::Q8_0 => q8_0(from, target, split_block(ty, block, source.blocks), lane),
                WeightType::Q4_K => pack_q4_k(from, &mut target[block * q4_k::BYTES..], lane),
                WeightType::Q6_K => pack_q6_k(from, &mut target[block * q6_k::BYTES..], lane),
            }
        }
    }
}

fn copy(target: &mut [u8], at: usize, from: &[u8]) {
    target[at..at + from.len()].copy_from_slice(from);
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Stores four bytes in `lane` of the 64-byte vector at `at`.
fn put(target: &mut [u8], at: usize, lane: usize, value: u32) {
    copy(target, at + lane * 4, &value.to_le_bytes());
}

/// Sixteen bytes of nibbles as Q4_1 and Q5_0 have them: inputs 0..16 low, 16..32 high.
fn nibbles32(nibbles: &[u8], target: &mut [u8], codes: usize, lane: usize) {
    for pair in 0..2 {
        let (first, second) = (word(nibbles, pair * 8), word(nibbles, pair * 8 + 4));
        let low = first & NIBBLES | (second & NIBBLES) << 4;
        let high = first >> 4 & NIBBLES | second & !NIBBLES;
        put(target, codes + pair * 64, lane, low);
        put(target, codes + (pair + 2) * 64, lane, high);
    }
}

fn q4_1(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    copy(target, scales + 32 + lane * 2, &from[2..4]);
    nibbles32(&from[4..20], target, codes, lane);
}

fn q5_0(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    nibbles32(&from[6..22], target, codes, lane);
    let fifth = word(from, 2);
    for quad in 0..8 {
        let bits = (fifth >> (4 * quad) & 15) as u8;
        target[codes + 256 + quad * 8 + lane / 2] |= bits << (lane % 2 * 4);
    }
}

fn q8_0(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    for quad in 0..8 {
        // Adding 128 modulo 256 flips the top bit.
        put(target, codes + quad * 64, lane, word(from, 2 + quad * 4) ^ 0x8080_8080);
    }
}

fn pack_q4_k(from: &[u8], target: &mut [u8], lane: usize) {
    copy(target, q4_k::SCALE + lane * 2, &from[0..2]);
    copy(target, q4_k::MIN_SCALE + lane * 2, &from[2..4]);
    let packed = &from[4..16];
    for sub in 0..8 {
        // Six-bit scales and minima share twelve bytes: the first four of each whole, the rest in pieces.
        let (scale, min) = if sub < 4 {
            (packed[sub] & 63, packed[sub + 4] & 63)
        } else {
            let both = packed[sub + 4];
            (both & 15 | packed[sub - 4] >> 6 << 4, both >> 4 | packed[sub] >> 6 << 4)
        };
        target[q4_k::SCALES + sub * 16 + lane] = scale;
        target[q4_k::MINS + sub / 2 * 32 + lane * 2 + sub % 2] = min;
    }
    // Each 32 bytes hold two sub-blocks: low nibbles the first, high nibbles the second.
    for (chunk, nibbles) in from[16..144].chunks_exact(32).enumerate() {
        let codes = q4_k::CODES + chunk * 2 * 256;
        for eight in 0..4 {
            let (first, second) = (word(nibbles, eight * 8), word(nibbles, eight * 8 + 4));
            put(target, codes + eight * 64, lane, first & NIBBLES | (second & NIBBLES) << 4);
            let high = first >> 4 & NIBBLES | second & !NIBBLES;
            put(target, codes + 256 + eight * 64, lane, high);
        }
    }
}

fn pack_q6_k(from: &[u8], target: &mut [u8], lane: usize) {
    let (low, high, scales) = (&from[0..128], &from[128..192], &from[192..208]);
    let scale = crate::vector::f16_to_f32(u16::from_le_bytes([from[208], from[209]]));
    copy(target, q6_k::SCALE + lane * 4, &scale.to_le_bytes());
    for (sub, &scale) in scales.iter().enumerate() {
        target[q6_k::SCALES + sub * 16 + lane] = scale;
        // In each half of 128 inputs, quarter `q` (32 inputs) has its low nibbles in bytes 32 (q % 2).. (high nibbles for q >= 2)
        // and its high bits in bits 2q of bytes 0..32.
        let (half, quarter, within) = (sub / 8, sub % 8 / 2, sub % 2 * 16);
        let low_at = half * 64 + quarter % 2 * 32 + within;
        let high_at = half * 32 + within;
        let nibble = |quad: usize| word(low, low_at + quad * 4) >> (quarter / 2 * 4) & NIBBLES;
        let bits = |quad: usize| word(high, high_at + quad * 4) >> (quarter * 2) & TWO_BITS;
        let codes = q6_k::CODES + sub * q6_k::SUB_BLOCK;
        put(target, codes, lane, nibble(0) | nibble(1) << 4);
        put(target, codes + 64, lane, nibble(2) | nibble(3) << 4);
        put(target, codes + 128, lane, bits(0) | bits(1) << 2 | bits(2) << 4 | bits(3) << 6);
    }
}
