use super::reference::{self, Random};
use super::*;
use crate::{ActivationForm, CpuError, PackedMatrix, Pool, QuantizedRows};

/// (outputs, inputs) that each type allows: panels cut short, an odd number of 32-input blocks, one and several super-blocks.
fn shapes(ty: WeightType) -> &'static [(usize, usize)] {
    match ty.block() {
        1 => &[(1, 1), (16, 64), (35, 577)],
        32 => &[(16, 32), (5, 64), (49, 576), (33, 896), (16, 96)],
        _ => &[(16, 256), (3, 512), (50, 1536), (100, 512)],
    }
}

struct Case {
    ty: WeightType,
    weights: PackedMatrix,
    values: Vec<f64>,
    /// Row-major.
    rows: Vec<f32>,
}

const ROWS: usize = 49;

fn cases(pool: &Pool) -> Vec<Case> {
    let mut random = Random(7);
    let mut all = Vec::new();
    for ty in WeightType::ALL {
        for &(outputs, inputs) in shapes(ty) {
            let bytes = random.tensor(ty, outputs, inputs);
            let weights = PackedMatrix::pack(ty, outputs, inputs, &bytes, pool).expect("packs");
            let values = reference::dequantize(ty, &bytes);
            let rows = random.floats(ROWS * inputs);
            all.push(Case { ty, weights, values, rows });
        }
    }
    all
}

fn multiply(isa: Isa, pool: &Pool, weights: &PackedMatrix, rows: &[f32]) -> Vec<f32> {
    let count = rows.len() / weights.inputs();
    let mut activations = QuantizedRows::new(weights.activation_form(), weights.inputs()).expect("fits");
    activations.quantize(isa, pool, count, rows).expect("fits");
    let mut output = vec![f32::NAN; count * weights.outputs()];
    matmul(isa, pool, &mut [Product::new(weights, &activations, &mut output)]).expect("fits");
    output
}

#[test]
fn every_kernel_agrees_with_the_reference() {
    let pool = Pool::new(2).expect("threads");
    for case in cases(&pool) {
        let (outputs, inputs) = (case.weights.outputs(), case.weights.inputs());
        for isa in Isa::available() {
            let found = multiply(isa, &pool, &case.weights, &case.rows);
            for row in 0..ROWS {
                let source = &case.rows[row * inputs..(row + 1) * inputs];
                let activations = reference::activations(case.ty.activation_form(), source);
                for output in 0..outputs {
                    let weights = &case.values[output * inputs..(output + 1) * inputs];
                    let (expected, magnitude) = reference::dot(weights, &activations);
                    // Integers are exact; what remains are some roundings of f32 per block.
                    let tolerance = magnitude * 1e-6 + 1e-6;
                    let found = f64::from(found[row * outputs + output]);
                    assert!(
                        (found - expected).abs() <= tolerance,
                        "{:?} {outputs}x{inputs} {}: [{row}][{output}] is {found}, not {expected}",
                        case.ty,
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_is_the_same_bits_alone_and_among_others_on_any_number_of_threads() {
    let pools: Vec<_> = (1..=3).map(|threads| Pool::new(threads).expect("threads")).collect();
    for case in cases(&pools[1]) {
        let (outputs, inputs) = (case.weights.outputs(), case.weights.inputs());
        for isa in Isa::available() {
            let alone: Vec<u32> = case
                .rows
                .chunks_exact(inputs)
                .flat_map(|row| multiply(isa, &pools[0], &case.weights, row))
                .map(f32::to_bits)
                .collect();
            for rows in (1..=17).chain([18, 19, 24, 31, 32, 33, 36, 48, 49]) {
                for pool in &pools {
                    let together = multiply(isa, pool, &case.weights, &case.rows[..rows * inputs]);
                    let together: Vec<u32> = together.into_iter().map(f32::to_bits).collect();
                    assert!(
                        together == alone[..rows * outputs],
                        "{:?} {outputs}x{inputs} {}: {rows} rows, {} threads",
                        case.ty,
                        isa.name(),
                        pool.threads()
                    );
                }
            }
        }
    }
}

/// On ordinary numbers: where sums of integers leave what f32 holds, instruction sets with tiles round once per super-block.
#[test]
fn instruction_sets_with_fused_operations_agree_bit_for_bit() {
    let pool = Pool::new(2).expect("threads");
    let fused: Vec<Isa> = Isa::available().into_iter().filter(|&isa| isa != Isa::Portable).collect();
    for case in cases(&pool) {
        for pair in fused.windows(2) {
            let results = [0, 1].map(|i| multiply(pair[i], &pool, &case.weights, &case.rows));
            assert!(results[0] == results[1], "{:?} differs between {pair:?}", case.ty);
        }
    }
}

#[test]
fn large_codes_do_not_overflow() {
    let pool = Pool::new(1).expect("a thread");
    for ty in WeightType::ALL {
        if ty.block() == 1 {
            continue;
        }
        for fill in [0xff_u8, 0x7f, 0x80] {
            let mut bytes = vec![fill; 16 * (512 / ty.block()) * ty.block_bytes()];
            for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                // Scale (and minimum) one; the other bytes stay.
                for &at in reference::scales_at(ty) {
                    block[at..at + 2].copy_from_slice(&[0x00, 0x3c]);
                }
            }
            let weights = PackedMatrix::pack(ty, 16, 512, &bytes, &pool).expect("packs");
            let values = reference::dequantize(ty, &bytes);
            for isa in Isa::available() {
                // Sums of integers far beyond what f32 holds exactly.
                let rows: Vec<f32> = (0..16 * 512).map(|at| if at % 37 == 0 { 0.99 } else { 1.0 }).collect();
                let together = multiply(isa, &pool, &weights, &rows);
                for (row, found) in rows.chunks_exact(512).zip(together.chunks_exact(16)) {
                    let alone = multiply(isa, &pool, &weights, row);
                    assert!(alone == found, "{ty:?} of {fill:#x} {}: {alone:?}, {found:?}", isa.name());
                }
            }
            for sign in [1.0, -1.0] {
                let row = vec![sign; 512];
                let activations = reference::activations(ty.activation_form(), &row);
                let (expected, magnitude) = reference::dot(&values[..512], &activations);
                for isa in Isa::available() {
                    let found = multiply(isa, &pool, &weights, &row);
                    let error = (f64::from(found[0]) - expected).abs();
                    assert!(error <= magnitude * 1e-6, "{ty:?} of {fill:#x} {}: {found:?}", isa.name());
                }
            }
        }
    }
}

#[test]
fn rows_that_are_not_finite_give_nan_and_leave_their_neighbours_alone() {
    let pool = Pool::new(2).expect("threads");
    for case in cases(&pool) {
        let (outputs, inputs) = (case.weights.outputs(), case.weights.inputs());
        for isa in Isa::available() {
            let clean = multiply(isa, &pool, &case.weights, &case.rows[..3 * inputs]);
            for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut rows = case.rows[..3 * inputs].to_vec();
                rows[inputs + inputs / 2] = poison;
                let found = multiply(isa, &pool, &case.weights, &rows);
                assert_eq!(found[..outputs], clean[..outputs]);
                assert_eq!(found[2 * outputs..], clean[2 * outputs..]);
                let row = &found[outputs..2 * outputs];
                assert!(row.iter().all(|value| !value.is_finite()), "{:?}: {row:?}", case.ty);
                if case.ty.block() > 1 || poison.is_nan() {
                    assert!(row.iter().all(|value| value.is_nan()), "{:?}: {row:?}", case.ty);
                }
            }
            let zeros = multiply(isa, &pool, &case.weights, &vec![1e-38; inputs]);
            assert!(zeros.iter().all(|value| value.abs() < 1e-30));
        }
    }
}

#[test]
fn products_of_one_region_equal_products_of_their_own_with_bias_stride_and_residual() {
    let pool = Pool::new(2).expect("threads");
    let mut random = Random(3);
    let (inputs, rows) = (512, 11);
    let values = random.floats(rows * inputs);
    for isa in Isa::available() {
        let mut by_256 = QuantizedRows::new(ActivationForm::Block256, inputs).expect("fits");
        let mut by_32 = QuantizedRows::new(ActivationForm::Block32, inputs).expect("fits");
        by_256.quantize(isa, &pool, rows, &values).expect("fits");
        by_32.quantize(isa, &pool, rows, &values).expect("fits");
        let mut pack = |ty, outputs| {
            let bytes = random.tensor(ty, outputs, inputs);
            PackedMatrix::pack(ty, outputs, inputs, &bytes, &pool).expect("packs")
        };
        let (a, b, c) = (pack(WeightType::Q4_K, 100), pack(WeightType::Q5_0, 20), pack(WeightType::Q6_K, 33));
        let bias = random.floats(100);
        let mut found_a = vec![7.0; rows * 120];
        let mut found_b = vec![0.0; rows * 20];
        let mut found_c = vec![1.5; rows * 33];
        let mut products = [
            Product::new(&a, &by_256, &mut found_a).stride(120).bias(Some(&bias)),
            Product::new(&b, &by_32, &mut found_b),
            Product::new(&c, &by_256, &mut found_c).accumulate(),
        ];
        matmul(isa, &pool, &mut products).expect("fits");

        let plain_a = multiply(isa, &pool, &a, &values);
        for (row, found) in found_a.chunks_exact(120).enumerate() {
            let expected: Vec<f32> =
                plain_a[row * 100..(row + 1) * 100].iter().zip(&bias).map(|(x, y)| x + y).collect();
            assert_eq!(found[..100], expected);
            assert_eq!(found[100..], [7.0; 20], "the gap between rows is not touched");
        }
        assert_eq!(found_b, multiply(isa, &pool, &b, &values));
        let plain_c: Vec<f32> = multiply(isa, &pool, &c, &values).into_iter().map(|value| value + 1.5).collect();
        assert_eq!(found_c, plain_c);
    }
}

#[test]
fn sides_that_do_not_fit_are_refused_in_words() {
    let pool = Pool::new(1).expect("a thread");
    let isa = Isa::detect();
    let bytes = Random(1).tensor(WeightType::Q8_0, 4, 64);
    let weights = PackedMatrix::pack(WeightType::Q8_0, 4, 64, &bytes, &pool).expect("packs");
    let refusal = |form, inputs: usize, length: usize, stride: usize, bias: Option<&[f32]>| {
        let mut rows = QuantizedRows::new(form, inputs).expect("fits");
        rows.quantize(isa, &pool, 2, &vec![0.0; 2 * inputs]).expect("fits");
        let mut output = vec![0.0; length];
        let product = Product::new(&weights, &rows, &mut output).stride(stride).bias(bias);
        matmul(isa, &pool, &mut [product]).expect_err("must be refused")
    };
    let block32 = ActivationForm::Block32;
    let form = refusal(ActivationForm::Float, 64, 8, 4, None);
    assert!(matches!(form, CpuError::ActivationForm { .. }), "{form}");
    for (error, word) in [
        (refusal(block32, 32, 8, 4, None), "inputs"),
        (refusal(block32, 64, 7, 4, None), "output length"),
        (refusal(block32, 64, 8, 3, None), "stride"),
        (refusal(block32, 64, 8, 4, Some(&[0.0; 3])), "bias"),
    ] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(QuantizedRows::new(block32, 33).is_err());
    let mut rows = QuantizedRows::new(block32, 64).expect("fits");
    assert!(rows.quantize(isa, &pool, 2, &[0.0; 64]).is_err());
}

#[test]
fn fused_quantisation_equals_its_two_steps() {
    let pool = Pool::new(2).expect("threads");
    let mut random = Random(11);
    let (rows, inputs) = (9, 1536);
    let (x, y, weight) = (random.floats(rows * inputs), random.floats(rows * inputs), random.floats(inputs));
    let bytes = random.tensor(WeightType::Q4_K, 16, inputs);
    let weights = PackedMatrix::pack(WeightType::Q4_K, 16, inputs, &bytes, &pool).expect("packs");
    for isa in Isa::available() {
        let product = |activations: &QuantizedRows| {
            let mut output = vec![0.0; rows * 16];
            matmul(isa, &pool, &mut [Product::new(&weights, activations, &mut output)]).expect("fits");
            output
        };
        let mut fused = QuantizedRows::new(ActivationForm::Block256, inputs).expect("fits");
        let mut steps = vec![0.0; rows * inputs];

        let norms = [
            vector::Norm::Rms { weight: &weight, epsilon: 1e-5 },
            vector::Norm::Layer { weight: &weight, bias: &y[..inputs], epsilon: 1e-5 },
        ];
        for norm in norms {
            fused.quantize_norm(isa, &pool, rows, &x, norm).expect("fits");
            steps.copy_from_slice(&x);
            vector::norm(isa, norm, &mut steps);
            assert_eq!(product(&fused), multiply(isa, &pool, &weights, &steps));
        }
        let narrow = vector::Norm::Layer { weight: &weight, bias: &y[1..inputs], epsilon: 1e-5 };
        assert!(fused.quantize_norm(isa, &pool, rows, &x, narrow).is_err(), "a bias is missing");

        for function in [vector::Nonlinearity::Silu, vector::Nonlinearity::GeluTanh] {
            fused.quantize_gated(isa, &pool, rows, function, (&x, &y)).expect("fits");
            vector::gated(isa, function, &x, &y, &mut steps);
            assert_eq!(product(&fused), multiply(isa, &pool, &weights, &steps));

            fused.quantize_activated(isa, &pool, rows, function, &x).expect("fits");
            vector::activated(isa, function, &x, &mut steps);
            assert_eq!(product(&fused), multiply(isa, &pool, &weights, &steps));
        }
    }
}

#[test]
fn probes_measure_something() {
    let pool = Pool::new(2).expect("threads");
    for isa in Isa::available() {
        assert!(probe::peak_int8_macs(isa, &pool) > 1e6);
        let bytes: Vec<u8> = (0..2048_u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(isa.run(probe::Read(&bytes)), 2047 * 2048 / 2);
    }
}
