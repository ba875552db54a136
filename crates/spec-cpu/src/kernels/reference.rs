//! What kernels and packing are tested against: GGUF blocks read one value at a time, products in f64, and random
//! tensors to do it with.

use half::f16;

use crate::{ActivationForm, WeightType};

/// A small generator (splitmix64): tests need spread, not quality.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Uniform in [-1, 1).
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    fn half(&mut self) -> [u8; 2] {
        f16::from_f32(self.float() * 0.1).to_le_bytes()
    }

    /// A tensor of this type: every code random, every scale a moderate number of either sign.
    pub(crate) fn tensor(&mut self, ty: WeightType, outputs: usize, inputs: usize) -> Vec<u8> {
        let blocks = outputs * (inputs / ty.block());
        let mut bytes = Vec::with_capacity(blocks * ty.block_bytes());
        for _ in 0..blocks {
            let start = bytes.len();
            match ty {
                WeightType::F32 => bytes.extend(self.float().to_le_bytes()),
                WeightType::F16 => bytes.extend(f16::from_f32(self.float()).to_le_bytes()),
                _ => bytes.extend((0..ty.block_bytes()).map(|_| self.next() as u8)),
            }
            let block = &mut bytes[start..];
            match ty {
                WeightType::F32 | WeightType::F16 => {}
                WeightType::Q5_0 | WeightType::Q8_0 => block[..2].copy_from_slice(&self.half()),
                WeightType::Q4_1 | WeightType::Q4_K => {
                    block[..2].copy_from_slice(&self.half());
                    block[2..4].copy_from_slice(&self.half());
                }
                WeightType::Q6_K => block[208..].copy_from_slice(&self.half()),
            }
        }
        bytes
    }
}

fn half_at(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f64()
}

/// Value `index` of a GGUF block.
pub(crate) fn value(ty: WeightType, block: &[u8], index: usize) -> f64 {
    let nibble = |bytes: &[u8], half: usize| f64::from(bytes[index % half] >> (index / half * 4) & 15);
    match ty {
        WeightType::F32 => f64::from(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
        WeightType::F16 => half_at(block, 0),
        WeightType::Q4_1 => half_at(block, 0) * nibble(&block[4..], 16) + half_at(block, 2),
        WeightType::Q5_0 => {
            let fifth = f64::from(block[2 + index / 8] >> (index % 8) & 1);
            half_at(block, 0) * (nibble(&block[6..], 16) + 16.0 * fifth - 16.0)
        }
        WeightType::Q8_0 => half_at(block, 0) * f64::from(block[2 + index].cast_signed()),
        WeightType::Q4_K => {
            let packed = &block[4..16];
            let sub = index / 32;
            let (scale, min) = if sub < 4 {
                (packed[sub] % 64, packed[sub + 4] % 64)
            } else {
                let high = |byte: u8| byte / 64 * 16;
                (packed[sub + 4] % 16 + high(packed[sub - 4]), packed[sub + 4] / 16 + high(packed[sub]))
            };
            let byte = block[16 + index / 64 * 32 + index % 32];
            let code = if sub & 1 == 0 { byte % 16 } else { byte / 16 };
            half_at(block, 0) * f64::from(scale) * f64::from(code) - half_at(block, 2) * f64::from(min)
        }
        WeightType::Q6_K => {
            let (half, within) = (index / 128, index % 128);
            let low = block[half * 64 + within % 64] >> (within / 64 * 4) & 15;
            let high = block[128 + half * 32 + within % 32] >> (within / 32 * 2) & 3;
            let scale = f64::from(block[192 + index / 16].cast_signed());
            half_at(block, 208) * scale * (f64::from(low + high * 16) - 32.0)
        }
    }
}

/// All values of a tensor.
pub(crate) fn dequantize(ty: WeightType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(ty.block_bytes())
        .flat_map(|block| (0..ty.block()).map(move |index| value(ty, block, index)))
        .collect()
}

/// A row of activations as its form represents it.
pub(crate) fn activations(form: ActivationForm, row: &[f32]) -> Vec<f64> {
    if form == ActivationForm::Float {
        return row.iter().map(|&value| f64::from(value)).collect();
    }
    row.chunks_exact(form.block())
        .flat_map(|block| {
            let largest = block.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            let (scale, inverse) = (largest / 127.0, 127.0 / largest);
            let rounded = move |value: &f32| f64::from((value * inverse).round_ties_even());
            block.iter().map(rounded).map(move |code| code * f64::from(scale)).collect::<Vec<_>>()
        })
        .collect()
}

/// A dot product and the sum of the magnitudes of its terms, which bounds rounding errors.
pub(crate) fn dot(weights: &[f64], activations: &[f64]) -> (f64, f64) {
    weights.iter().zip(activations).fold((0.0, 0.0), |(sum, magnitude), (weight, activation)| {
        let term = weight * activation;
        (sum + term, magnitude + term.abs())
    })
}
