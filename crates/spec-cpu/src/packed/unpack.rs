//! One output row back out of a panel, for embedding look-ups.

use super::WeightType;
use super::layout::{LANES, q4_k, q6_k, split_block};
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

/// Writes row `lane` of a panel of type `ty`; `values` has one item per input.
pub(super) fn row(ty: WeightType, panel: &[u8], lane: usize, values: &mut [f32]) {
    match ty {
        WeightType::F32 => {
            for (input, value) in values.iter_mut().enumerate() {
                *value = float_at(panel, input * LANES * 4, lane);
            }
        }
        WeightType::F16 => {
            for (input, value) in values.iter_mut().enumerate() {
                *value = half_at(panel, input * LANES * 2, lane);
            }
        }
        WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q8_0 => {
            let blocks = values.len() / 32;
            for (block, values) in values.chunks_exact_mut(32).enumerate() {
                let (codes, scales) = split_block(ty, block, blocks);
                block32(ty, panel, codes, scales, lane, values);
            }
        }
        WeightType::Q4_K => {
            for (values, block) in values.chunks_exact_mut(256).zip(panel.chunks(q4_k::BYTES)) {
                let scale = half_at(block, q4_k::SCALE, lane);
                let min_scale = half_at(block, q4_k::MIN_SCALE, lane);
                for (input, value) in values.iter_mut().enumerate() {
                    let sub = input / 32;
                    let factor = f32::from(block[q4_k::SCALES + sub * 16 + lane]);
                    let min = f32::from(block[q4_k::MINS + sub / 2 * 32 + lane * 2 + sub % 2]);
                    let code = f32::from(nibble(block, q4_k::CODES, lane, input));
                    *value = scale * factor * code - min_scale * min;
                }
            }
        }
        WeightType::Q6_K => {
            for (values, block) in values.chunks_exact_mut(256).zip(panel.chunks(q6_k::BYTES)) {
                let scale = float_at(block, q6_k::SCALE, lane);
                for (input, value) in values.iter_mut().enumerate() {
                    let (sub, within) = (input / 16, input % 16);
                    let codes = q6_k::CODES + sub * q6_k::SUB_BLOCK;
                    let low = nibble(block, codes, lane, within);
                    let high = block[codes + 128 + lane * 4 + within % 4] >> (within / 4 * 2) & 3;
                    let factor = f32::from(block[q6_k::SCALES + sub * 16 + lane].cast_signed());
                    *value = scale * factor * (f32::from(low | high << 4) - 32.0);
                }
            }
        }
    }
}

fn block32(ty: WeightType, panel: &[u8], codes: usize, scales: usize, lane: usize, values: &mut [f32]) {
    let scale = half_at(panel, scales, lane);
    for (input, value) in values.iter_mut().enumerate() {
        let low = || f32::from(nibble(panel, codes, lane, input));
        *value = match ty {
            WeightType::Q4_1 => scale * low() + half_at(panel, scales + 32, lane),
            WeightType::Q5_0 => {
                let bit = lane * 4 + input % 4;
                let fifth = panel[codes + 256 + input / 4 * 8 + bit / 8] >> (bit % 8) & 1;
                scale * (low() + f32::from(fifth) * 16.0 - 16.0)
            }
            _ => {
                let code = panel[codes + input / 4 * 64 + lane * 4 + input % 4];
                scale * (f32::from(code) - 128.0)
            }
        };
    }
}
