use half::f16;

use super::*;
use crate::kernels::reference::Random;

/// Every function on every instruction set, as bits, for inputs whose length is not a multiple of sixteen.
fn all_results(isa: Isa) -> Vec<u32> {
    let mut random = Random(5);
    let (x, y) = (random.floats(1003), random.floats(1003));
    let mut results = Vec::new();
    let mut out = vec![0.0; 1003];
    for kind in [Norm::Rms { weight: &y, epsilon: 1e-6 }, Norm::Layer { weight: &y, bias: &x, epsilon: 1e-6 }] {
        out.copy_from_slice(&x);
        norm(isa, kind, &mut out);
        results.extend_from_slice(&out);
        add_norm(isa, kind, &mut x.clone(), &mut out);
        results.extend_from_slice(&out);
    }
    for function in [Nonlinearity::Silu, Nonlinearity::GeluTanh] {
        activated(isa, function, &x, &mut out);
        results.extend_from_slice(&out);
        gated(isa, function, &x, &y, &mut out);
        results.extend_from_slice(&out);
    }
    soft_cap_all(isa, &mut out, 0.7);
    results.extend_from_slice(&out);
    add(isa, &mut out, &y);
    scale(isa, &mut out, 0.3);
    rope_interleaved(isa, &mut out[..100], &x[..50], &y[..50]);
    rope_halves(isa, &mut out[100..200], &x[..50], &y[..50]);
    let largest = max(isa, &out);
    let total = exp_sum(isa, &mut out, largest);
    results.extend([largest, total, sum(isa, &out)]);
    results.extend_from_slice(&out);
    results.into_iter().map(f32::to_bits).collect()
}

#[test]
fn instruction_sets_agree_bit_for_bit() {
    let expected = all_results(Isa::Portable);
    for isa in Isa::available() {
        assert!(all_results(isa) == expected, "{}", isa.name());
    }
}

#[test]
fn exp_is_within_two_ulp_and_defined_everywhere() {
    let mut worst = 0.0_f64;
    // A prime stride over all floats of the range, both signs.
    for bits in (0..88.722_f32.to_bits()).step_by(1009) {
        for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
            let (expected, found) = (f64::from(x).exp(), f64::from(exp(x)));
            if x < -87.336_54 {
                assert_eq!(found, 0.0, "{x}");
                continue;
            }
            let rounded = expected as f32;
            let ulp = f64::from(f32::from_bits(rounded.to_bits() + 1) - rounded);
            worst = worst.max((found - expected).abs() / ulp);
        }
    }
    assert!(worst <= 2.0, "{worst} ULP");
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp(f32::INFINITY), f32::INFINITY);
    assert_eq!(exp(1e30), f32::INFINITY);
    assert_eq!(exp(-1e30), 0.0);
    assert!(exp(f32::NAN).is_nan());
    assert!(exp(88.722_8).is_finite());
}

#[test]
fn half_precision_conversions_are_exact_on_all_values() {
    for bits in 0..=u16::MAX {
        let (expected, found) = (f16::from_bits(bits).to_f32(), f16_to_f32(bits));
        assert!(found == expected || found.is_nan() && expected.is_nan(), "{bits:#x}");
    }
    // Every half, its neighbours in f32, and the midpoints between halves.
    for bits in (0..=u32::MAX).step_by(4093).chain((0..0x8000).map(|half| half << 13)) {
        for bits in [bits.wrapping_sub(1), bits, bits.wrapping_add(1), bits | 0x1000] {
            let value = f32::from_bits(bits);
            let (expected, found) = (f16::from_f32(value), f16::from_bits(f32_to_f16(value)));
            let same = expected.to_bits() == found.to_bits();
            assert!(same || expected.is_nan() && found.is_nan(), "{bits:#x} {value:e}");
        }
    }
    for isa in Isa::available() {
        let mut random = Random(9);
        let values = random.floats(77);
        let (mut halves, mut back) = (vec![0; 77], vec![0.0; 77]);
        to_f16(isa, &values, &mut halves);
        from_f16(isa, &halves, &mut back);
        let expected: Vec<f32> = values.iter().map(|&value| f16::from_f32(value).to_f32()).collect();
        assert_eq!(back, expected);
    }
}

#[test]
fn argmax_takes_the_lowest_of_ties_and_reports_nan() {
    for isa in Isa::available() {
        for length in [1, 15, 16, 17, 100] {
            for at in 0..length {
                let mut values = vec![-1.0; length];
                values[at] = 3.0;
                values[length - 1] = 3.0;
                assert_eq!(argmax(isa, &values), Some(at));
                values[at] = f32::NAN;
                assert_eq!(argmax(isa, &values), None, "NaN at {at} of {length}");
            }
        }
        assert_eq!(argmax(isa, &[]), None);
        assert_eq!(argmax(isa, &[f32::NEG_INFINITY; 3]), Some(0));
        assert_eq!(argmax(isa, &[-0.0, 0.0]), Some(0));
        assert_eq!(max(isa, &[]), f32::NEG_INFINITY);
    }
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, as it is written in the paper.
fn exact_gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

fn exact_silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[test]
fn non_linearities_and_caps_follow_their_formulas() {
    let values: Vec<f32> = (-4000..=4000).map(|i| i as f32 * 0.01).collect();
    let factors: Vec<f32> = (0..values.len()).map(|i| (i % 7) as f32 - 3.0).collect();
    let mut out = vec![0.0; values.len()];
    for isa in Isa::available() {
        for (function, exact) in
            [(Nonlinearity::Silu, exact_silu as fn(f64) -> f64), (Nonlinearity::GeluTanh, exact_gelu)]
        {
            // Both are x times a number of at most one, of which the exponential leaves 22 bits.
            let close = |found: f32, expected: f64, x: f32| {
                (f64::from(found) - expected).abs() <= f64::from(x).abs().max(1.0) * 5e-7
            };
            activated(isa, function, &values, &mut out);
            for (&x, &found) in values.iter().zip(&out) {
                assert!(close(found, exact(f64::from(x)), x), "{function:?}({x}) = {found}");
            }
            gated(isa, function, &values, &factors, &mut out);
            for ((&x, &factor), &found) in values.iter().zip(&factors).zip(&out) {
                assert!(close(found, exact(f64::from(x)) * f64::from(factor), 3.0 * x), "{function:?}({x}) * {factor}");
            }
            let mut ends = [0.0; 4];
            activated(isa, function, &[f32::MAX, f32::MIN, -1e30, f32::NAN], &mut ends);
            assert_eq!(ends[..3], [f32::MAX, 0.0, 0.0], "{function:?}");
            assert!(ends[3].is_nan(), "{function:?}");
        }
        for cap in [0.5, 30.0] {
            out.copy_from_slice(&values);
            soft_cap_all(isa, &mut out, cap);
            for (&x, &found) in values.iter().zip(&out) {
                let expected = f64::from(cap) * (f64::from(x) / f64::from(cap)).tanh();
                assert!((f64::from(found) - expected).abs() <= f64::from(cap) * 2.0_f64.powi(-22), "{x} in {cap}");
            }
            let mut ends = [0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::NAN];
            soft_cap_all(isa, &mut ends, cap);
            assert_eq!(ends[..4], [0.0, cap, -cap, cap]);
            assert!(ends[4].is_nan());
        }
    }
}

#[test]
fn norms_follow_their_formulas() {
    let mut random = Random(2);
    for width in [16, 80, 576] {
        let (x, weight, bias) = (random.floats(3 * width), random.floats(width), random.floats(width));
        for isa in Isa::available() {
            let (mut root, mut layer) = (x.clone(), x.iter().map(|x| x + 5.0).collect::<Vec<_>>());
            let kinds = [
                Norm::Rms { weight: &weight, epsilon: 1e-5 },
                Norm::Layer { weight: &weight, bias: &bias, epsilon: 1e-5 },
            ];
            assert_eq!(kinds.map(|kind| kind.width()), [width; 2]);
            let given = layer.clone();
            norm(isa, kinds[0], &mut root);
            norm(isa, kinds[1], &mut layer);
            for (row, (x, shifted)) in x.chunks(width).zip(given.chunks(width)).enumerate() {
                let average = |term: &dyn Fn(f64) -> f64, row: &[f32]| {
                    row.iter().map(|&x| term(f64::from(x))).sum::<f64>() / width as f64
                };
                let square = average(&|x| x * x, x);
                let mean = average(&|x| x, shifted);
                let variance = average(&|x| (x - mean) * (x - mean), shifted);
                for column in 0..width {
                    let (weight, bias) = (f64::from(weight[column]), f64::from(bias[column]));
                    let expected = f64::from(x[column]) / (square + 1e-5).sqrt() * weight;
                    let found = f64::from(root[row * width + column]);
                    assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
                    let expected = (f64::from(shifted[column]) - mean) / (variance + 1e-5).sqrt() * weight + bias;
                    let found = f64::from(layer[row * width + column]);
                    assert!((found - expected).abs() < 5e-6, "{found}, not {expected}");
                }
            }
            for (kind, normed) in kinds.into_iter().zip([&root, &layer]) {
                let mut row =
                    if matches!(kind, Norm::Rms { .. }) { x[..width].to_vec() } else { given[..width].to_vec() };
                let mut sum = bias.clone();
                add_norm(isa, kind, &mut row, &mut sum);
                assert!(sum.iter().zip(&bias).zip(normed).all(|((sum, bias), normed)| *sum == bias + normed));
            }
        }
    }
}

#[test]
fn rotation_follows_its_formula() {
    let mut random = Random(2);
    let x = random.floats(6);
    let close = |found: f32, expected: f64| (f64::from(found) - expected).abs() < 1e-6;
    for isa in Isa::available() {
        let angles = [0.1_f64, 2.0, -1.0];
        let (cos, sin) = (angles.map(|a| a.cos() as f32), angles.map(|a| a.sin() as f32));
        let (mut pairs, mut halves) = ([0.0; 6], [0.0; 6]);
        pairs.copy_from_slice(&x[..6]);
        for index in 0..3 {
            (halves[index], halves[3 + index]) = (pairs[2 * index], pairs[2 * index + 1]);
        }
        rope_interleaved(isa, &mut pairs, &cos, &sin);
        rope_halves(isa, &mut halves, &cos, &sin);
        for index in 0..3 {
            let (a, b) = (f64::from(x[2 * index]), f64::from(x[2 * index + 1]));
            let (s, c) = angles[index].sin_cos();
            for (first, second) in [(pairs[2 * index], pairs[2 * index + 1]), (halves[index], halves[3 + index])] {
                assert!(close(first, a * c - b * s) && close(second, a * s + b * c));
            }
        }
    }
}
