//! Reference dequantisation: one row of any supported type to `f32`.
//!
//! Scalar and written from the block layouts; it serves embedding look-ups and is the oracle that kernels are tested
//! against. Each element is `scale * code (+ minimum)` with products that are exact in `f32` up to the last rounding; all
//! bits equal those of the Python package `gguf`.

use half::{bf16, f16};

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
        TensorType::BF16 => |b, y| y[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        TensorType::Q4_0 => q4_0,
        TensorType::Q4_1 => q4_1,
        TensorType::Q5_0 => q5_0,
        TensorType::Q5_1 => q5_1,
        TensorType::Q8_0 => q8_0,
        TensorType::Q2K => q2_k,
        TensorType::Q3K => q3_k,
        TensorType::Q4K => q4_k,
        TensorType::Q5K => q5_k,
        TensorType::Q6K => q6_k,
        TensorType::IQ4NL => iq4_nl,
        TensorType::IQ4XS => iq4_xs,
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

/// The 4-bit code of element `i` of 32: the first sixteen lie in the low nibbles.
fn nibble(codes: &[u8], i: usize) -> u8 {
    codes[i % 16] >> (i / 16 * 4) & 0xf
}

/// The 5-bit code of element `i` of 32, whose fifth bit is bit `i` of the first four bytes.
fn five_bits(fifth_and_codes: &[u8], i: usize) -> u8 {
    nibble(&fifth_and_codes[4..], i) | (fifth_and_codes[i / 8] >> (i % 8) & 1) << 4
}

fn q4_0(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 0);
    for (i, value) in y.iter_mut().enumerate() {
        *value = scale * f32::from(nibble(&b[2..], i) as i8 - 8);
    }
}

fn q4_1(b: &[u8], y: &mut [f32]) {
    let (scale, minimum) = (half_at(b, 0), half_at(b, 2));
    for (i, value) in y.iter_mut().enumerate() {
        *value = scale * f32::from(nibble(&b[4..], i)) + minimum;
    }
}

fn q5_0(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 0);
    for (i, value) in y.iter_mut().enumerate() {
        *value = scale * f32::from(five_bits(&b[2..], i) as i8 - 16);
    }
}

fn q5_1(b: &[u8], y: &mut [f32]) {
    let (scale, minimum) = (half_at(b, 0), half_at(b, 2));
    for (i, value) in y.iter_mut().enumerate() {
        *value = scale * f32::from(five_bits(&b[4..], i)) + minimum;
    }
}

fn q8_0(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 0);
    for (value, &code) in y.iter_mut().zip(&b[2..34]) {
        *value = scale * f32::from(code as i8);
    }
}

/// The 2-bit code of element `l` of 32 in shift `quarter` of a run of 128.
fn two_bits(codes: &[u8], half: usize, quarter: usize, l: usize) -> u8 {
    codes[half * 32 + l] >> (2 * quarter) & 3
}

fn q2_k(b: &[u8], y: &mut [f32]) {
    let (scale, minimum) = (half_at(b, 80), half_at(b, 82));
    for (j, values) in y.chunks_exact_mut(16).enumerate() {
        let d = scale * f32::from(b[j] & 0xf);
        let m = minimum * f32::from(b[j] >> 4);
        for (l, value) in values.iter_mut().enumerate() {
            *value = d * f32::from(two_bits(&b[16..80], j / 8, j % 8 / 2, j % 2 * 16 + l)) - m;
        }
    }
}

/// 6-bit scale, less 32, of the sub-block `j` of 16, from the 12 packed bytes of a Q3_K block: low nibbles in eight bytes,
/// then two high bits in four.
fn signed_scale(packed: &[u8], j: usize) -> i8 {
    let low = packed[j % 8] >> (j / 8 * 4) & 0xf;
    let high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
    (low | high << 4) as i8 - 32
}

fn q3_k(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 108);
    for (j, values) in y.chunks_exact_mut(16).enumerate() {
        let d = scale * f32::from(signed_scale(&b[96..108], j));
        for (l, value) in values.iter_mut().enumerate() {
            let lane = j % 2 * 16 + l;
            let low = two_bits(&b[32..96], j / 8, j % 8 / 2, lane);
            // Bit `k` of a byte belongs to the `k`-th run of 32.
            let third = b[lane] >> (j / 2) & 1;
            *value = d * f32::from((low | third << 2) as i8 - 4);
        }
    }
}

/// 6-bit scale and minimum of the sub-block `j` of 8, from the 12 packed bytes of a Q4_K or Q5_K block.
fn scale_and_minimum(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (packed[j + 4] & 0xf | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    }
}

fn q4_k(b: &[u8], y: &mut [f32]) {
    four_bits_with_minima(b, &b[16..144], |_, _| 0, y);
}

fn q5_k(b: &[u8], y: &mut [f32]) {
    // Bit `j` of a byte belongs to the `j`-th sub-block.
    four_bits_with_minima(b, &b[48..176], |j, l| (b[16 + l] >> j & 1) << 4, y);
}

/// `high(sub-block, element)` gives the bits of a code above its nibble.
fn four_bits_with_minima(b: &[u8], codes: &[u8], high: impl Fn(usize, usize) -> u8, y: &mut [f32]) {
    let (scale, minimum) = (half_at(b, 0), half_at(b, 2));
    for (j, values) in y.chunks_exact_mut(32).enumerate() {
        let (sub_scale, sub_minimum) = scale_and_minimum(&b[4..16], j);
        let d = scale * f32::from(sub_scale);
        let m = minimum * f32::from(sub_minimum);
        // 32 bytes hold two sub-blocks: the even one in the low nibbles, the odd one in the high.
        let (codes, shift) = (&codes[j / 2 * 32..][..32], 4 * (j % 2));
        for (l, (value, &code)) in values.iter_mut().zip(codes).enumerate() {
            *value = d * f32::from(code >> shift & 0xf | high(j, l)) - m;
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

/// What the indices of IQ4_NL and IQ4_XS stand for.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

fn iq4_nl(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 0);
    for (i, value) in y.iter_mut().enumerate() {
        *value = scale * f32::from(IQ4_VALUES[usize::from(nibble(&b[2..], i))]);
    }
}

fn iq4_xs(b: &[u8], y: &mut [f32]) {
    let scale = half_at(b, 0);
    let high_bits = u16::from_le_bytes([b[2], b[3]]);
    for (j, values) in y.chunks_exact_mut(32).enumerate() {
        let low = b[4 + j / 2] >> (j % 2 * 4) & 0xf;
        let high = (high_bits >> (2 * j) & 3) as u8;
        let d = scale * f32::from((low | high << 4) as i8 - 32);
        for (i, value) in values.iter_mut().enumerate() {
            *value = d * f32::from(IQ4_VALUES[usize::from(nibble(&b[8 + j * 16..][..16], i))]);
        }
    }
}
