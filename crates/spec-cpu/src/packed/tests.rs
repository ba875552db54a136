use super::*;
use crate::kernels::reference::{self, Random};

#[test]
fn every_row_comes_back_as_the_file_has_it() {
    let pool = Pool::new(2).expect("threads");
    let memory = WeightMemory::new();
    let mut random = Random(1);
    for ty in WeightType::ALL {
        let block = ty.block();
        for (outputs, blocks) in [(1, 1), (16, 2), (17, 3), (40, 5)] {
            let inputs = blocks * block;
            let bytes = random.tensor(ty, outputs, inputs);
            let matrix = PackedMatrix::pack_in(&memory, ty, outputs, inputs, &bytes, &pool).expect("a valid matrix");
            assert_eq!(matrix.file_bytes(), bytes.len());
            let expected = reference::dequantize(ty, &bytes);
            let mut values = vec![0.0; inputs];
            for row in 0..outputs {
                matrix.dequantize_row(row, &mut values).expect("a valid row");
                for (input, &found) in values.iter().enumerate() {
                    let expected = expected[row * inputs + input];
                    let error = (f64::from(found) - expected).abs();
                    assert!(
                        error <= 1e-5 * expected.abs().max(1.0),
                        "{ty:?} [{row}][{input}]: {found}, not {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn floats_quantised_while_packed_are_their_rows_quantised() {
    let pool = Pool::new(2).expect("threads");
    let mut random = Random(5);
    for ty in [WeightType::F32, WeightType::F16, WeightType::BF16] {
        for quantizer in Quantizer::ALL {
            let (outputs, inputs) = (35, 512);
            let bytes = random.tensor(ty, outputs, inputs);
            let quantize = |inputs| {
                PackedMatrix::quantize_in(&WeightMemory::exact(), quantizer, ty, (outputs, inputs), &bytes, &pool)
            };
            let matrix = quantize(inputs).expect("a valid matrix");
            assert_eq!(matrix.weight_type().tensor_type(), quantizer.tensor_type());
            let values: Vec<f32> = reference::dequantize(ty, &bytes).into_iter().map(|value| value as f32).collect();
            let mut found = vec![0.0; inputs];
            for (row, values) in values.chunks_exact(inputs).enumerate() {
                let mut quantized = vec![0; quantizer.tensor_type().row_bytes(inputs).expect("whole blocks")];
                quantizer.quantize(values, &mut quantized).expect("whole blocks");
                let expected = reference::dequantize(matrix.weight_type(), &quantized);
                matrix.dequantize_row(row, &mut found).expect("a valid row");
                let near = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() <= 1e-6;
                assert!(found.iter().zip(&expected).all(near), "{ty:?} to {quantizer:?}, row {row}");
            }
            assert!(matches!(quantize(inputs / 2), Err(CpuError::WeightBytes { .. })), "{ty:?} to {quantizer:?}");
        }
    }
    let bytes = random.tensor(WeightType::F32, 2, 96);
    let refused =
        PackedMatrix::quantize_in(&WeightMemory::exact(), Quantizer::Q4K, WeightType::F32, (2, 96), &bytes, &pool);
    assert!(matches!(refused, Err(CpuError::WeightShape { ty: WeightType::Q4_K, .. })), "96 is no multiple of 256");
}

#[test]
fn packed_size_stays_near_the_file_size() {
    let pool = Pool::new(1).expect("a thread");
    for ty in WeightType::ALL {
        let bytes = Random(2).tensor(ty, 64, 1024);
        let matrix = PackedMatrix::pack(ty, 64, 1024, &bytes, &pool).expect("a valid matrix");
        // Its scales grow from six bits to eight.
        let percent = if ty == WeightType::Q3_K { 106 } else { 103 };
        assert!(matrix.packed_bytes() * 100 <= bytes.len() * percent, "{ty:?} grows");
    }
}

#[test]
fn matrices_that_do_not_fit_their_bytes_or_blocks_are_refused() {
    let pool = Pool::new(1).expect("a thread");
    let pack = |ty, outputs, inputs, bytes: usize| {
        PackedMatrix::pack(ty, outputs, inputs, &vec![0; bytes], &pool).expect_err("must be refused").to_string()
    };
    assert!(pack(WeightType::Q4_K, 2, 384, 432).contains("multiple of 256"));
    assert!(pack(WeightType::Q8_0, 2, 0, 0).contains("multiple of 32"));
    assert!(pack(WeightType::Q8_0, 2, 32, 67).contains("68 bytes"));
    assert!(pack(WeightType::F32, usize::MAX, 4, 16).contains("takes"));
    let empty = PackedMatrix::pack(WeightType::F32, 0, 4, &[], &pool).expect("no outputs");
    assert!(empty.dequantize_row(0, &mut [0.0; 4]).is_err());
}
