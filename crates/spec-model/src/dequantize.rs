//! Reference dequantisation: one row of any supported type to `f32`.
//!
//! Scalar and written from the block layouts; it serves embedding look-ups and is the oracle that kernels are tested
//! against. Each element is `scale * code (+ minimum)` with products that are exact in `f32` up to the last rounding.

use half::f16;

use crate::{Error, Result, TensorType};

#[cfg(test)]
mod tests;

/// Converts `out.len()` elements stored as `tensor_type` in `bytes`.
///
/// # Errors
/// [`Error::RowLength`] unless `bytes` is exactly `out.len()` elements in whole blocks.
pub fn dequantize(tensor_type: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    if tensor_type.row_bytes(out.len()) != Some(bytes.len()) {
        return Err(Error::RowLength { tensor_type, bytes: bytes.len(), elements: out.len() });
    }
    let block: fn(&[u8], &mut [f32]) = match tensor_type {
        TensorType::F32 => |b, y| y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        TensorType::F16 => |b, y| y[0] = half_at(b, 0),
        TensorType::Q4_1 => q4_1,
        TensorType::Q5_0 => q5_0,
        TensorType::Q8_0 => q8_0,
        TensorType::Q4K => q4_k,
        TensorType::Q6K => q6_k,
    };
    let blocks = bytes.chunks_exact(tensor_type.block_bytes());
    for (b, y) in blocks.zip(out.chunks_exact_mut(tensor_type.block_size())) {
        block(b, y);
    }
    Ok(())
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn q4_1(b: &[u8], y: &mut [f32]) {
    let (scale, minimum) = (half_at(b, 0), half_at(b, 2));
    let (low, high) = y.split_at_mut(16);
    for (j, &codes) in b[4..20].iter().enumerate() {
        low[j] = scale * f32::from(codes & 0xf) + minimum;
        high[j] = scale * f32::from(codes >> 4) + minimum;
    }
}

fn q5_0(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 0);
    let fifth = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
    let (low, high) = y.split_at_mut(16);
    for (j, &codes) in b[6..22].iter().enumerate() {
        let fifth_bit = |element: usize| ((fifth >> element & 1) << 4) as u8;
        low[j] = scale * f32::from((codes & 0xf | fifth_bit(j)) as i8 - 16);
        high[j] = scale * f32::from((codes >> 4 | fifth_bit(j + 16)) as i8 - 16);
    }
}

fn q8_0(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 0);
    for (value, &code) in y.iter_mut().zip(&b[2..34]) {
        *value = scale * f32::from(code as i8);
    }
}

/// 6-bit scale and minimum of the sub-block `j` of 8, from the 12 packed bytes of a Q4_K block.
fn scale_and_minimum(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (packed[j + 4] & 0xf | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    }
}

fn q4_k(b: &[u8], y: &mut [f32]) {
    let (scale, minimum) = (half_at(b, 0), half_at(b, 2));
    let packed = &b[4..16];
    for (j, values) in y.chunks_exact_mut(32).enumerate() {
        let (sub_scale, sub_minimum) = scale_and_minimum(packed, j);
        let d = scale * f32::from(sub_scale);
        let m = minimum * f32::from(sub_minimum);
        // 32 bytes hold two sub-blocks: the even one in the low nibbles, the odd one in the high.
        let codes = &b[16 + j / 2 * 32..][..32];
        let shift = 4 * (j % 2);
        for (value, &code) in values.iter_mut().zip(codes) {
            *value = d * f32::from(code >> shift & 0xf) - m;
        }
    }
}

fn q6_k(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 208);
    for (half, values) in y.chunks_exact_mut(128).enumerate() {
        let low = &b[half * 64..][..64];
        let high = &b[128 + half * 32..][..32];
        let scales = &b[192 + half * 8..][..8];
        for (quarter, values) in values.chunks_exact_mut(32).enumerate() {
            for (l, value) in values.iter_mut().enumerate() {
                let low_bits = low[l + 32 * (quarter % 2)] >> (4 * (quarter / 2)) & 0xf;
                let high_bits = high[l] >> (2 * quarter) & 3;
                let code = (low_bits | high_bits << 4) as i8 - 32;
                let sub_scale = scales[2 * quarter + l / 16] as i8;
                *value = scale * f32::from(sub_scale) * f32::from(code);
            }
        }
    }
}
