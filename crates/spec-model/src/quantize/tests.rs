use super::*;
use crate::dequantize;

/// The rows of the oracle, 512 elements each.
fn rows() -> Vec<Vec<f32>> {
    let bytes = include_bytes!("../../../spec-testing/data/tensor_types/quantize.values");
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    values.chunks_exact(512).map(<[f32]>::to_vec).collect()
}

fn quantized(quantizer: Quantizer, row: &[f32]) -> Vec<u8> {
    let mut out = vec![0xaa; quantizer.tensor_type().row_bytes(row.len()).expect("whole blocks")];
    quantizer.quantize(row, &mut out).expect("the row's size");
    out
}

fn restored(quantizer: Quantizer, row: &[f32]) -> Vec<f32> {
    let mut values = vec![0.0; row.len()];
    dequantize(quantizer.tensor_type(), &quantized(quantizer, row), &mut values).expect("the row's size");
    values
}

#[test]
fn blocks_of_32_are_byte_for_byte_those_of_the_oracle() {
    let q8_0 = include_bytes!("../../../spec-testing/data/tensor_types/Q8_0.quantized");
    let q4_0 = include_bytes!("../../../spec-testing/data/tensor_types/Q4_0.quantized");
    for (quantizer, expected) in [(Quantizer::Q8_0, &q8_0[..]), (Quantizer::Q4_0, &q4_0[..])] {
        let rows = rows();
        let row_bytes = expected.len() / rows.len();
        for (index, (row, expected)) in rows.iter().zip(expected.chunks_exact(row_bytes)).enumerate() {
            assert!(quantized(quantizer, row) == expected, "{quantizer:?}: row {index}");
        }
    }
}

/// Root mean square errors, relative to the root mean square of the row, that llama.cpp's own Q4_K and Q3_K quantisers (at
/// commit 0c1e570, without an importance matrix) make of the same rows.
const LLAMA_CPP: [(Quantizer, [f64; 16]); 2] = [
    (
        Quantizer::Q4K,
        [
            0.07657, 0.07166, 0.07291, 0.06795, 0.06983, 0.06969, 0.07313, 0.06796, 0.13366, 0.06565, 0.10556, 0.03919,
            0.05325, 0.06911, 0.05223, 0.00067,
        ],
    ),
    (
        Quantizer::Q3K,
        [
            0.15436, 0.14888, 0.14822, 0.14666, 0.14817, 0.14991, 0.14620, 0.13988, 0.15413, 0.14215, 0.11685, 0.14167,
            0.12797, 0.14731, 0.12695, 0.12518,
        ],
    ),
];

#[test]
fn super_blocks_err_no_more_than_the_formats_own_quantizers() {
    let mut report = Vec::new();
    for (quantizer, errors) in LLAMA_CPP {
        for (index, (row, theirs)) in rows().iter().zip(errors).enumerate() {
            let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
            let values = restored(quantizer, row);
            let error = square(&mut row.iter().zip(&values).map(|(x, y)| f64::from(*x) - f64::from(*y)));
            let ours = (error / square(&mut row.iter().map(|&x| f64::from(x)))).sqrt();
            report.push(format!("{quantizer:?}, row {index}: {ours:.5} against {theirs:.5}"));
            assert!(ours <= theirs * 1.02 + 1e-4, "{report:#?}");
        }
    }
    println!("{report:#?}");
}

#[test]
fn errors_of_q4_k_stay_within_a_step_whatever_the_row() {
    for (index, row) in rows().iter().enumerate() {
        let values = restored(Quantizer::Q4K, row);
        for (block, (x, y)) in row.chunks(256).zip(values.chunks(256)).enumerate() {
            let (least, most) = x.iter().fold((0.0_f32, 0.0_f32), |(a, b), &x| (a.min(x), b.max(x)));
            // A step of 15, and what half a unit of a subnormal f16, 2^-25, makes of 63 * 15 and 63 of them.
            let bound = (most - least) / 15.0 + 2.0_f32.powi(-15);
            let worst = x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0_f32, f32::max);
            assert!(worst <= bound, "row {index}, block {block}: {worst} past {bound}");
        }
    }
}

#[test]
fn every_scale_and_minimum_of_six_bits_is_put_where_it_is_read() {
    for j in 0..8 {
        for (scale, minimum) in [(0, 63), (63, 0), (37, 22), (22, 37)] {
            let mut block = [0_u8; 144];
            put_half(&mut block, 0, 1.0);
            put_half(&mut block, 2, 1.0);
            put_scale_and_minimum(&mut block[4..16], j, (scale, minimum));
            block[16..].fill(0x11);
            let mut values = [0.0; 256];
            dequantize(TensorType::Q4K, &block, &mut values).expect("a block");
            for (sub, values) in values.chunks(32).enumerate() {
                let expected = if sub == j { f32::from(scale) - f32::from(minimum) } else { 0.0 };
                assert!(values.iter().all(|&value| value == expected), "{j}, {scale}, {minimum}: {values:?}");
            }
        }
    }
}

#[test]
fn errors_of_q3_k_stay_within_a_step_whatever_the_row() {
    for (index, row) in rows().iter().enumerate() {
        let values = restored(Quantizer::Q3K, row);
        for (block, (x, y)) in row.chunks(256).zip(values.chunks(256)).enumerate() {
            let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            // A step of the widest sub-block, and what half a unit of a subnormal f16, 2^-25, makes of 32 * 4 of them.
            let bound = largest / 3.0 + 2.0_f32.powi(-18);
            let worst = x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0_f32, f32::max);
            assert!(worst <= bound, "row {index}, block {block}: {worst} past {bound}");
        }
    }
}

#[test]
fn every_signed_scale_of_six_bits_is_put_where_it_is_read() {
    for j in 0..16 {
        for scale in [-32, -17, -1, 1, 16, 31] {
            let mut block = [0_u8; 110];
            put_half(&mut block, Q3_K_SCALE, 1.0);
            for other in 0..16 {
                put_signed_scale(&mut block[Q3_K_SCALES..Q3_K_SCALE], other, if other == j { scale } else { 0 });
            }
            let mut values = [0.0; 256];
            dequantize(TensorType::Q3K, &block, &mut values).expect("a block");
            for (sub, values) in values.chunks(16).enumerate() {
                // All codes are the lowest.
                let expected = if sub == j { -4.0 * f32::from(scale) } else { 0.0 };
                assert!(values.iter().all(|&value| value == expected), "{j}, {scale}: {values:?}");
            }
        }
    }
}

#[test]
fn what_is_not_finite_stays_visible_and_zeros_stay_zeros() {
    for quantizer in Quantizer::ALL {
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut row = vec![0.5; 512];
            row[300] = poison;
            let values = restored(quantizer, &row);
            assert!(values[300].is_nan(), "{quantizer:?} of {poison}");
            assert!(values[..256].iter().all(|value| (value - 0.5).abs() < 0.05), "{quantizer:?}: a block apart");
        }
        assert!(restored(quantizer, &[0.0; 512]).iter().all(|&value| value == 0.0), "{quantizer:?}");
        assert!(restored(quantizer, &[1e-38; 512]).iter().all(|&value| value.abs() < 1e-30), "{quantizer:?}");
    }
}

#[test]
fn rows_that_are_not_whole_blocks_fall_back_or_are_refused() {
    assert_eq!(Quantizer::Q4K.for_row(512), Some(Quantizer::Q4K));
    assert_eq!(Quantizer::Q4K.for_row(576), Some(Quantizer::Q8_0));
    assert_eq!(Quantizer::Q3K.for_row(896), Some(Quantizer::Q4_0));
    assert_eq!(Quantizer::Q4_0.for_row(576), Some(Quantizer::Q4_0));
    assert_eq!(Quantizer::Q8_0.for_row(33), None);
    for quantizer in Quantizer::ALL {
        assert!(quantizer.quantize(&[0.0; 33], &mut [0; 34]).is_err());
        assert!(quantizer.quantize(&[0.0; 256], &mut [0; 143]).is_err());
    }
}
