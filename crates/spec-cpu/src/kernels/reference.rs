//! What kernels and packing are tested against: values read one at a time, products in f64, and random tensors to do it
//! with.

use half::{bf16, f16};

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
                WeightType::BF16 => bytes.extend(bf16::from_f32(self.float()).to_le_bytes()),
                _ => bytes.extend((0..ty.block_bytes()).map(|_| self.next() as u8)),
            }
            for &at in scales_at(ty) {
                let scale = self.half();
                bytes[start + at..start + at + 2].copy_from_slice(&scale);
            }
        }
        bytes
    }
}

/// Where the f16 scale of a block is, and its minimum.
pub(crate) fn scales_at(ty: WeightType) -> &'static [usize] {
    match ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => &[],
        WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0 | WeightType::IQ4_NL | WeightType::IQ4_XS => &[0],
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => &[0, 2],
        WeightType::Q2_K => &[80, 82],
        WeightType::Q3_K => &[108],
        WeightType::Q6_K => &[208],
    }
}

/// All values of a tensor, as spec-model reads them: its answers are held against another implementation's, bit for bit.
pub(crate) fn dequantize(ty: WeightType, bytes: &[u8]) -> Vec<f64> {
    let mut values = vec![0.0; bytes.len() / ty.block_bytes() * ty.block()];
    spec_model::dequantize(ty.tensor_type(), bytes, &mut values).expect("whole blocks");
    values.into_iter().map(f64::from).collect()
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
