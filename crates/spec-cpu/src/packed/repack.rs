//! From GGUF blocks to panels. Works on 32-bit words of four codes, so it runs at memory speed.

use super::WeightType;
use super::layout::{LANES, iq4_xs, q2_k, q3_k, q4_k, q5_k, q6_k, split_block, super_block_bytes};
use crate::vector::f16_to_f32;

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
            let pack: fn(&[u8], &mut [u8], usize) = match ty {
                WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
                    copy(target, (block * LANES + lane) * from.len(), from);
                    continue;
                }
                WeightType::Q2_K => pack_q2_k,
                WeightType::Q3_K => pack_q3_k,
                WeightType::Q4_K => pack_q4_k,
                WeightType::Q5_K => pack_q5_k,
                WeightType::Q6_K => pack_q6_k,
                WeightType::IQ4_XS => pack_iq4_xs,
                _ => {
                    let at = split_block(ty, block, source.blocks);
                    match ty {
                        WeightType::Q4_0 | WeightType::IQ4_NL => q4_0(from, target, at, lane),
                        WeightType::Q4_1 => q4_1(from, target, at, lane),
                        WeightType::Q5_0 => q5_0(from, target, at, lane),
                        WeightType::Q5_1 => q5_1(from, target, at, lane),
                        _ => q8_0(from, target, at, lane),
                    }
                    continue;
                }
            };
            pack(from, &mut target[block * super_block_bytes(ty)..], lane);
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

/// Stores four bits, one per input, in `lane` of the masks of 64 bits at `at`, which are zero there.
fn put_bits(target: &mut [u8], at: usize, lane: usize, bits: u8) {
    target[at + lane / 2] |= bits << (lane % 2 * 4);
}

/// Bit `bit` of each byte of `word`, side by side.
fn gather(word: u32, bit: usize) -> u8 {
    // Moves bit 8 i to bit 24 + i.
    ((word >> bit & 0x0101_0101).wrapping_mul(0x0102_0408) >> 24) as u8 & 15
}

/// The f16 at `at`, widened.
fn put_wide(target: &mut [u8], to: usize, lane: usize, from: &[u8], at: usize) {
    let scale = f16_to_f32(u16::from_le_bytes([from[at], from[at + 1]]));
    copy(target, to + lane * 4, &scale.to_le_bytes());
}

/// Sixteen bytes of nibbles as blocks of 32 have them: inputs 0..16 low, 16..32 high.
fn nibbles32(nibbles: &[u8], target: &mut [u8], codes: usize, lane: usize) {
    for pair in 0..2 {
        let (first, second) = (word(nibbles, pair * 8), word(nibbles, pair * 8 + 4));
        let low = first & NIBBLES | (second & NIBBLES) << 4;
        let high = first >> 4 & NIBBLES | second & !NIBBLES;
        put(target, codes + pair * 64, lane, low);
        put(target, codes + (pair + 2) * 64, lane, high);
    }
}

/// Four bytes of fifth bits and sixteen of nibbles.
fn five_bits32(from: &[u8], target: &mut [u8], codes: usize, lane: usize) {
    nibbles32(&from[4..20], target, codes, lane);
    let fifth = word(from, 0);
    for quad in 0..8 {
        put_bits(target, codes + 256 + quad * 8, lane, (fifth >> (4 * quad) & 15) as u8);
    }
}

fn q4_0(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    nibbles32(&from[2..18], target, codes, lane);
}

fn q4_1(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    copy(target, scales + 32 + lane * 2, &from[2..4]);
    nibbles32(&from[4..20], target, codes, lane);
}

fn q5_0(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    five_bits32(&from[2..22], target, codes, lane);
}

fn q5_1(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    copy(target, scales + 32 + lane * 2, &from[2..4]);
    five_bits32(&from[4..24], target, codes, lane);
}

fn q8_0(from: &[u8], target: &mut [u8], (codes, scales): (usize, usize), lane: usize) {
    copy(target, scales + lane * 2, &from[0..2]);
    for quad in 0..8 {
        // Adding 128 modulo 256 flips the top bit.
        put(target, codes + quad * 64, lane, word(from, 2 + quad * 4) ^ 0x8080_8080);
    }
}

/// What Q4_K and Q5_K begin with.
fn scales_and_minima(from: &[u8], target: &mut [u8], lane: usize) {
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
}

/// Nibbles of eight sub-blocks: each 32 bytes hold two, low nibbles the first, high nibbles the second.
fn nibbles256(nibbles: &[u8], target: &mut [u8], sub_block: usize, lane: usize) {
    for (chunk, nibbles) in nibbles.chunks_exact(32).enumerate() {
        let codes = q4_k::CODES + chunk * 2 * sub_block;
        for eight in 0..4 {
            let (first, second) = (word(nibbles, eight * 8), word(nibbles, eight * 8 + 4));
            put(target, codes + eight * 64, lane, first & NIBBLES | (second & NIBBLES) << 4);
            let high = first >> 4 & NIBBLES | second & !NIBBLES;
            put(target, codes + sub_block + eight * 64, lane, high);
        }
    }
}

fn pack_q4_k(from: &[u8], target: &mut [u8], lane: usize) {
    scales_and_minima(from, target, lane);
    nibbles256(&from[16..144], target, 256, lane);
}

fn pack_q5_k(from: &[u8], target: &mut [u8], lane: usize) {
    scales_and_minima(from, target, lane);
    nibbles256(&from[48..176], target, q5_k::SUB_BLOCK, lane);
    for sub in 0..8 {
        let masks = q4_k::CODES + sub * q5_k::SUB_BLOCK + 256;
        for quad in 0..8 {
            // Bit `sub` of each byte belongs to sub-block `sub`.
            put_bits(target, masks + quad * 8, lane, gather(word(&from[16..48], quad * 4), sub));
        }
    }
}

/// The two-bit codes of four inputs of sub-block `sub` of 16: in each half of 128 inputs, quarter `q` (32 inputs) is in bits 2q of 32
/// bytes.
fn fields(from: &[u8], sub: usize, quad: usize) -> u32 {
    word(from, sub / 8 * 32 + sub % 2 * 16 + quad * 4) >> (sub % 8 / 2 * 2) & TWO_BITS
}

/// Those of sixteen inputs, one field of each byte for every four.
fn put_fields(target: &mut [u8], at: usize, lane: usize, from: &[u8], sub: usize) {
    put(target, at, lane, (0..4).fold(0, |all, quad| all | fields(from, sub, quad) << (2 * quad)));
}

fn pack_q2_k(from: &[u8], target: &mut [u8], lane: usize) {
    copy(target, q2_k::SCALE + lane * 2, &from[80..82]);
    copy(target, q2_k::MIN_SCALE + lane * 2, &from[82..84]);
    for (pair, both) in from[..16].chunks_exact(2).enumerate() {
        target[q2_k::SCALES + pair * 16 + lane] = both[0] & 15 | both[1] << 4;
        target[q2_k::MINS + pair * 16 + lane] = both[0] >> 4 | both[1] & 0xf0;
    }
    for sub in 0..16 {
        put_fields(target, q2_k::CODES + sub * 64, lane, &from[16..80], sub);
    }
}

fn pack_q3_k(from: &[u8], target: &mut [u8], lane: usize) {
    let (third, low, packed) = (&from[0..32], &from[32..96], &from[96..108]);
    put_wide(target, q3_k::SCALE, lane, from, 108);
    for sub in 0..16 {
        // Low nibbles in eight bytes, two high bits in four; 32 is the code of zero.
        let nibble = packed[sub % 8] >> (sub / 8 * 4) & 15;
        let high = packed[8 + sub % 4] >> (sub / 4 * 2) & 3;
        target[q3_k::SCALES + sub * 16 + lane] = (nibble | high << 4).wrapping_sub(32);
        let pair = q3_k::CODES + sub / 2 * q3_k::PAIR;
        put_fields(target, pair + sub % 2 * 64, lane, low, sub);
        for quad in 0..4 {
            // Bit `k` of a byte belongs to the `k`-th 32 inputs.
            let bits = gather(word(third, sub % 2 * 16 + quad * 4), sub / 2);
            put_bits(target, pair + q3_k::BITS + sub % 2 * 32 + quad * 8, lane, bits);
        }
    }
}

fn pack_iq4_xs(from: &[u8], target: &mut [u8], lane: usize) {
    put_wide(target, iq4_xs::SCALE, lane, from, 0);
    let high = u16::from_le_bytes([from[2], from[3]]);
    for (sub, nibbles) in from[8..136].chunks_exact(16).enumerate() {
        let scale = from[4 + sub / 2] >> (sub % 2 * 4) & 15 | ((high >> (2 * sub) & 3) as u8) << 4;
        target[iq4_xs::SCALES + sub * 16 + lane] = scale.wrapping_sub(32);
        nibbles32(nibbles, target, iq4_xs::CODES + sub * 256, lane);
    }
}

fn pack_q6_k(from: &[u8], target: &mut [u8], lane: usize) {
    let (low, high, scales) = (&from[0..128], &from[128..192], &from[192..208]);
    put_wide(target, q6_k::SCALE, lane, from, 208);
    for (sub, &scale) in scales.iter().enumerate() {
        target[q6_k::SCALES + sub * 16 + lane] = scale;
        // In each half of 128 inputs, quarter `q` (32 inputs) has its low nibbles in bytes 32 (q % 2).. (high nibbles for q >= 2).
        let (half, quarter, within) = (sub / 8, sub % 8 / 2, sub % 2 * 16);
        let low_at = half * 64 + quarter % 2 * 32 + within;
        let nibble = |quad: usize| word(low, low_at + quad * 4) >> (quarter / 2 * 4) & NIBBLES;
        let codes = q6_k::CODES + sub * q6_k::SUB_BLOCK;
        put(target, codes, lane, nibble(0) | nibble(1) << 4);
        put(target, codes + 64, lane, nibble(2) | nibble(3) << 4);
        put_fields(target, codes + 128, lane, high, sub);
    }
}
