//! Rows of three blocks with different scales, written element by element: for each element the tests place its code
//! by its own bit address, independently of the loops under test, and compute the value in f64 from the definition.

use super::*;

/// Blocks and values that `oracles/tensor_types.py` in spec-testing wrote.
macro_rules! oracle {
    ($($tensor_type:ident $name:literal)*) => {
        [$((
            TensorType::$tensor_type,
            &include_bytes!(concat!("../../../spec-testing/data/tensor_types/", $name, ".blocks"))[..],
            &include_bytes!(concat!("../../../spec-testing/data/tensor_types/", $name, ".values"))[..],
        )),*]
    };
}

#[test]
fn every_type_is_bit_for_bit_what_the_oracle_reads() {
    let cases = oracle! {
        F32 "F32" F16 "F16" BF16 "BF16" Q4_0 "Q4_0" Q4_1 "Q4_1" Q5_0 "Q5_0" Q5_1 "Q5_1" Q8_0 "Q8_0" Q2K "Q2_K"
        Q3K "Q3_K" Q4K "Q4_K" Q5K "Q5_K" Q6K "Q6_K" IQ4NL "IQ4_NL" IQ4XS "IQ4_XS"
    };
    assert!(TensorType::ALL.iter().all(|ty| cases.iter().any(|case| case.0 == *ty)), "a case for every type");
    for (tensor_type, blocks, values) in cases {
        let expected: Vec<u32> = values.as_chunks().0.iter().map(|bits| u32::from_le_bytes(*bits)).collect();
        let mut out = vec![f32::NAN; expected.len()];
        // Rows of several blocks.
        let (row, row_bytes) = (out.len() / 3, blocks.len() / 3);
        for (out, row) in out.chunks_exact_mut(row).zip(blocks.chunks_exact(row_bytes)) {
            dequantize(tensor_type, row, out).unwrap();
        }
        let wrong: Vec<_> = (0..out.len()).filter(|&i| out[i].to_bits() != expected[i]).take(5).collect();
        assert!(wrong.is_empty(), "{tensor_type}: elements {wrong:?} differ");
    }
}

const BLOCKS: usize = 3;

/// Deterministic codes that reach every value of the range.
fn code(element: usize, codes: usize) -> usize {
    (element * 37 + element / 16 * 11 + 5) % codes
}

/// A different, exactly representable f16 for every block.
fn block_scale(block: usize) -> f16 {
    f16::from_f32([0.25, -1.5, 3.0 / 1024.0][block % 3])
}

fn put_half(row: &mut [u8], at: usize, value: f16) {
    row[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Ors the low `width` bits of `value` into the bit address.
fn put_bits(row: &mut [u8], byte: usize, bit: usize, width: usize, value: usize) {
    row[byte] |= ((value & ((1 << width) - 1)) << bit) as u8;
}

fn check(tensor_type: TensorType, row: &[u8], expected: &[f64]) {
    let mut out = vec![f32::NAN; expected.len()];
    dequantize(tensor_type, row, &mut out).unwrap();
    let wrong: Vec<_> =
        out.iter().zip(expected).enumerate().filter(|(_, (got, want))| **got != **want as f32).take(5).collect();
    assert!(wrong.is_empty(), "{tensor_type}: (element, (got, want)): {wrong:?}");
}

#[test]
fn q4_1_of_several_blocks_is_scale_times_code_plus_minimum() {
    let (mut row, mut expected) = (vec![0; BLOCKS * 20], Vec::new());
    for block in 0..BLOCKS {
        let (scale, minimum) = (block_scale(block), f16::from_f32(block as f32 - 0.5));
        put_half(&mut row, block * 20, scale);
        put_half(&mut row, block * 20 + 2, minimum);
        for i in 0..32 {
            let q = code(block * 32 + i, 16);
            put_bits(&mut row, block * 20 + 4 + i % 16, 4 * (i / 16), 4, q);
            expected.push(scale.to_f64() * q as f64 + minimum.to_f64());
        }
    }
    check(TensorType::Q4_1, &row, &expected);
}

#[test]
fn q5_0_of_several_blocks_takes_the_fifth_bit_of_each_element() {
    let (mut row, mut expected) = (vec![0; BLOCKS * 22], Vec::new());
    for block in 0..BLOCKS {
        let scale = block_scale(block);
        put_half(&mut row, block * 22, scale);
        for i in 0..32 {
            let q = code(block * 32 + i, 32);
            put_bits(&mut row, block * 22 + 2 + i / 8, i % 8, 1, q >> 4);
            put_bits(&mut row, block * 22 + 6 + i % 16, 4 * (i / 16), 4, q);
            expected.push(scale.to_f64() * (q as f64 - 16.0));
        }
    }
    check(TensorType::Q5_0, &row, &expected);
}

#[test]
fn q8_0_of_several_blocks_is_scale_times_signed_code() {
    let (mut row, mut expected) = (vec![0; BLOCKS * 34], Vec::new());
    for block in 0..BLOCKS {
        let scale = block_scale(block);
        put_half(&mut row, block * 34, scale);
        for i in 0..32 {
            let q = code(block * 32 + i, 256) as i64 - 128;
            row[block * 34 + 2 + i] = q as i8 as u8;
            expected.push(scale.to_f64() * q as f64);
        }
    }
    check(TensorType::Q8_0, &row, &expected);
}

#[test]
fn q4_k_of_several_blocks_uses_each_sub_blocks_own_scale_and_minimum() {
    let (mut row, mut expected) = (vec![0; BLOCKS * 144], Vec::new());
    for block in 0..BLOCKS {
        let base = block * 144;
        let (scale, minimum) = (block_scale(block), f16::from_f32(0.125));
        put_half(&mut row, base, scale);
        put_half(&mut row, base + 2, minimum);
        for sub in 0..8 {
            let (s, m) = (code(block * 8 + sub, 64), code(block * 8 + sub + 100, 64));
            // Bytes 0-3 and 4-7: six bits of the first four; bytes 8-11: low nibbles of the last four, whose two
            // top bits live above the first four's.
            if sub < 4 {
                put_bits(&mut row, base + 4 + sub, 0, 6, s);
                put_bits(&mut row, base + 8 + sub, 0, 6, m);
            } else {
                put_bits(&mut row, base + 12 + sub - 4, 0, 4, s);
                put_bits(&mut row, base + 12 + sub - 4, 4, 4, m);
                put_bits(&mut row, base + 4 + sub - 4, 6, 2, s >> 4);
                put_bits(&mut row, base + 8 + sub - 4, 6, 2, m >> 4);
            }
            for l in 0..32 {
                let q = code(block * 256 + sub * 32 + l, 16);
                put_bits(&mut row, base + 16 + sub / 2 * 32 + l, 4 * (sub % 2), 4, q);
                expected.push(scale.to_f64() * (s * q) as f64 - minimum.to_f64() * m as f64);
            }
        }
    }
    check(TensorType::Q4K, &row, &expected);
}

#[test]
fn q6_k_of_several_blocks_uses_the_scale_of_each_sixteen() {
    let (mut row, mut expected) = (vec![0; BLOCKS * 210], Vec::new());
    for block in 0..BLOCKS {
        let base = block * 210;
        let scale = block_scale(block);
        put_half(&mut row, base + 208, scale);
        for sub in 0..16 {
            let s = code(block * 16 + sub, 256) as i64 - 128;
            row[base + 192 + sub] = s as i8 as u8;
            for l in 0..16 {
                let i = sub * 16 + l;
                let q = code(block * 256 + i, 64);
                let (half, quarter, lane) = (i / 128, i % 128 / 32, i % 32);
                // Quarters 0 and 2 share the first 32 low bytes, 1 and 3 the second.
                let low = base + 64 * half + 32 * (quarter & 1) + lane;
                put_bits(&mut row, low, 4 * (quarter >> 1), 4, q);
                put_bits(&mut row, base + 128 + 32 * half + lane, 2 * quarter, 2, q >> 4);
                expected.push(scale.to_f64() * s as f64 * (q as f64 - 32.0));
            }
        }
    }
    check(TensorType::Q6K, &row, &expected);
}

#[test]
fn floats_pass_through_unchanged() {
    let values = [0.0, -1.5, 65504.0, 6.103_515_6e-5];
    let singles: Vec<u8> = values.iter().flat_map(|v: &f32| v.to_le_bytes()).collect();
    let halves: Vec<u8> = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
    let expected = values.map(f64::from);
    check(TensorType::F32, &singles, &expected);
    check(TensorType::F16, &halves, &expected);
}

#[test]
fn a_row_that_is_not_whole_blocks_is_refused() {
    for tensor_type in TensorType::ALL {
        let (bytes, elements) = (tensor_type.block_bytes(), tensor_type.block_size());
        let row = vec![0; 2 * bytes];
        let mut out = vec![0.0; 2 * elements];
        assert!(dequantize(tensor_type, &row, &mut out).is_ok());
        assert!(dequantize(tensor_type, &row[1..], &mut out).is_err());
        assert!(dequantize(tensor_type, &row, &mut out[1..]).is_err());
        assert!(dequantize(tensor_type, &row[bytes..], &mut out).is_err());
    }
}
