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
fn packed_size_stays_near_the_file_size() {
    let pool = Pool::new(1).expect("a thread");
    for ty in WeightType::ALL {
        let bytes = Random(2).tensor(ty, 64, 1024);
        let matrix = PackedMatrix::pack(ty, 64, 1024, &bytes, &pool).expect("a valid matrix");
        assert!(matrix.packed_bytes() * 100 <= bytes.len() * 103, "{ty:?} grows");
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
