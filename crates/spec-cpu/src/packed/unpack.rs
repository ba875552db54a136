//! One output row back out of a panel, for embedding look-ups.

use spec_model::IQ4_VALUES;

use super::WeightType;
use super::layout::{LANES, iq4_xs, q2_k, q3_k, q4_k, q5_k, q6_k, split_block, super_block_bytes};
use crate::vector::f16_to_f32;

fn half_at(panel: &[u8], at: usize, lane: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([panel[at + lane * 2], panel[at + lane * 2 + 1]]))
}

fn float_at(panel: &[u8], at: usize, lane: usize) -> f32 {
    let at = at + lane * 4;
    f32::from_le_bytes([panel[at], panel[at + 1], panel[at + 2], panel[at + 3]])
}

/// The nibble of input `input` in vectors of eight inputs that start at `codes`.
fn nibble(panel: &[u8], codes: usize, lane: usize, input: usize) -> u8 {
    panel[codes + input / 8 * 64 + lane * 4 + input % 4] >> (input % 8 / 4 * 4) & 15
}

/// The two-bit field of input `input` of sixteen in the vector at `fields`.
fn two_bits(panel: &[u8], fields: usize, lane: usize, input: usize) -> u8 {
    panel[fields + lane * 4 + input % 4] >> (input / 4 * 2) & 3
}

/// The bit of input `input` in masks of four inputs each that start at `masks`.
fn bit(panel: &[u8], masks: usize, lane: usize, input: usize) -> u8 {
    let bit = lane * 4 + input % 4;
    panel[masks + input / 4 * 8 + bit / 8] >> (bit % 8) & 1
}

/// What the nibble of an input stands for.
fn looked_up(panel: &[u8], codes: usize, lane: usize, input: usize) -> f32 {
    f32::from(IQ4_VALUES[usize::from(nibble(panel, codes, lane, input))])
}

/// Writes row `lane` of a panel of type `ty`; `values` has one item per input.
pub(super) fn row(ty: WeightType, panel: &[u8], lane: usize, values: &mut [f32]) {
    match ty.block() {
        1 => {
            let at = |input: usize| input * LANES * ty.block_bytes();
            for (input, value) in values.iter_mut().enumerate() {
                *value = match ty {
                    WeightType::F32 => float_at(panel, at(input), lane),
                    WeightType::F16 => half_at(panel, at(input), lane),
                    _ => {
                        let at = at(input) + lane * 2;
                        f32::from_bits(u32::from_le_bytes([0, 0, panel[at], panel[at + 1]]))
                    }
                };
            }
        }
        32 => {
            let blocks = values.len() / 32;
            for (block, values) in values.chunks_exact_mut(32).enumerate() {
                let (codes, scales) = split_block(ty, block, blocks);
                block32(ty, panel, codes, scales, lane, values);
            }
        }
        _ => {
            for (values, block) in values.chunks_exact_mut(256).zip(panel.chunks(super_block_bytes(ty))) {
                super_block(ty, block, lane, values);
            }
        }
    }
}

fn block32(ty: WeightType, panel: &[u8], codes: usize, scales: usize, lane: usize, values: &mut [f32]) {
    let scale = half_at(panel, scales, lane);
    for (input, value) in values.iter_mut().enumerate() {
        let low = || f32::from(nibble(panel, codes, lane, input));
        let five = || low() + f32::from(bit(panel, codes + 256, lane, input)) * 16.0;
        *value = match ty {
            WeightType::Q4_0 => scale * (low() - 8.0),
            WeightType::Q4_1 => scale * low() + half_at(panel, scales + 32, lane),
            WeightType::Q5_0 => scale * (five() - 16.0),
            WeightType::Q5_1 => scale * five() + half_at(panel, scales + 32, lane),
            WeightType::IQ4_NL => scale * looked_up(panel, codes, lane, input),
            _ => {
                let code = panel[codes + input / 4 * 64 + lane * 4 + input % 4];
                scale * (f32::from(code) - 128.0)
            }
        };
    }
}

fn super_block(ty: WeightType, block: &[u8], lane: usize, values: &mut [f32]) {
    let signed = |scales: usize, sub: usize| f32::from(block[scales + sub * 16 + lane].cast_signed());
    for (input, value) in values.iter_mut().enumerate() {
        // Of 32 inputs, and of 16.
        let (sub, sixteenth, within) = (input / 32, input / 16, input % 16);
        *value = match ty {
            WeightType::Q4_K | WeightType::Q5_K => {
                let factor = f32::from(block[q4_k::SCALES + sub * 16 + lane]);
                let min = f32::from(block[q4_k::MINS + sub / 2 * 32 + lane * 2 + sub % 2]);
                let code = if ty == WeightType::Q4_K {
                    nibble(block, q4_k::CODES, lane, input)
                } else {
                    let codes = q4_k::CODES + sub * q5_k::SUB_BLOCK;
                    nibble(block, codes, lane, input % 32) | bit(block, codes + 256, lane, input % 32) << 4
                };
                let (scale, min_scale) = (half_at(block, q4_k::SCALE, lane), half_at(block, q4_k::MIN_SCALE, lane));
                scale * factor * f32::from(code) - min_scale * min
            }
            WeightType::Q2_K => {
                let nibble_of = |at: usize| f32::from(block[at + sub * 16 + lane] >> (sixteenth % 2 * 4) & 15);
                let code = f32::from(two_bits(block, q2_k::CODES + sixteenth * 64, lane, within));
                let (scale, min_scale) = (half_at(block, q2_k::SCALE, lane), half_at(block, q2_k::MIN_SCALE, lane));
                scale * nibble_of(q2_k::SCALES) * code - min_scale * nibble_of(q2_k::MINS)
            }
            WeightType::Q3_K => {
                let pair = q3_k::CODES + sub * q3_k::PAIR;
                let low = two_bits(block, pair + sixteenth % 2 * 64, lane, within);
                let third = bit(block, pair + q3_k::BITS + sixteenth % 2 * 32, lane, within);
                let scale = float_at(block, q3_k::SCALE, lane) * signed(q3_k::SCALES, sixteenth);
                scale * (f32::from(low | third << 2) - 4.0)
            }
            WeightType::IQ4_XS => {
                let scale = float_at(block, iq4_xs::SCALE, lane) * signed(iq4_xs::SCALES, sub);
                scale * looked_up(block, iq4_xs::CODES, lane, input)
            }
            _ => {
                let codes = q6_k::CODES + sixteenth * q6_k::SUB_BLOCK;
                let low = nibble(block, codes, lane, within);
                let high = two_bits(block, codes + 128, lane, within);
                let scale = float_at(block, q6_k::SCALE, lane) * signed(q6_k::SCALES, sixteenth);
                scale * (f32::from(low | high << 4) - 32.0)
            }
        };
    }
}
