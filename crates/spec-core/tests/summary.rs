//! The one-pass summary of a row against its definition.

mod random;

use random::Random;
use spec_core::{BlockSummary, Pipeline, RowSummary, SUMMARY_BLOCK, SamplingError, SamplingParams, Scratch};

fn rows() -> Vec<Vec<f32>> {
    let mut random = Random::new(3);
    let mut rows = Vec::new();
    for length in [1, 7, 2047, 2048, 2049, 10_000, 40_000] {
        let mut row: Vec<f32> = (0..length).map(|_| (random.normal() * 3.0) as f32).collect();
        rows.push(row.clone());
        // The maximum late, and a block that is masked as a whole.
        row[length - 1] = 40.0;
        row.iter_mut().take(length - 1).take(SUMMARY_BLOCK).for_each(|logit| *logit = f32::NEG_INFINITY);
        rows.push(row);
    }
    rows
}

#[test]
fn a_summary_agrees_with_the_two_pass_definition() {
    for row in rows() {
        for inverse_temperature in [1.0, 1.25, 0.3] {
            let summary = RowSummary::of(&row, inverse_temperature).expect("a proper row");
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let terms = row.iter().map(|&x| ((f64::from(x) - f64::from(max)) * inverse_temperature).exp());
            let total: f64 = terms.clone().sum();
            assert_eq!((summary.max, row[summary.argmax as usize]), (max, max));
            assert!((summary.total / total - 1.0).abs() < 1e-12, "{} for {total}", summary.total);
            let log_sum_exp = f64::from(max) * inverse_temperature + total.ln();
            assert!((summary.log_sum_exp() - log_sum_exp).abs() < 1e-12 * log_sum_exp.abs().max(1.0));
            let ids = [0, summary.argmax, row.len() as u32];
            let found: Vec<f64> = summary.probabilities(&row, &ids).collect();
            assert!((found[1] - 1.0 / total).abs() < 1e-12 && found[2] == 0.0);
            if row[0] > f32::NEG_INFINITY {
                assert!((summary.log_probability(row[0]) - found[0].ln()).abs() < 1e-9);
            } else {
                assert_eq!(found[0], 0.0);
            }
        }
    }
}

#[test]
fn blocks_that_were_summarised_elsewhere_combine_to_the_same_bits() {
    for row in rows() {
        let whole = RowSummary::of(&row, 1.25).expect("a proper row");
        let blocks = row.chunks(SUMMARY_BLOCK).map(|block| match RowSummary::of(block, 1.25) {
            Ok(summary) => BlockSummary { max: summary.max, total: summary.total },
            Err(_) => BlockSummary { max: f32::NEG_INFINITY, total: 0.0 },
        });
        assert_eq!(RowSummary::combine(blocks, whole.argmax, 1.25), whole);
    }
}

#[test]
fn the_law_formed_in_one_pass_equals_that_formed_in_two_to_the_last_bit() {
    for row in rows() {
        let params = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
        let pipeline = Pipeline::new(params, row.len()).expect("valid parameters");
        let (mut one, mut two) = (Scratch::default(), Scratch::default());
        let fused = pipeline.summarized_law(&row, None, &mut one).expect("a proper row");
        let plain = pipeline.law(&row, None, &mut two).expect("a proper row");
        let (mut a, mut b) = (Vec::new(), Vec::new());
        fused.probabilities(&mut a);
        plain.probabilities(&mut b);
        assert_eq!(a, b);
        assert_eq!(fused.argmax(), plain.argmax());
    }
}

#[test]
fn what_has_no_law_has_no_summary() {
    assert!(matches!(RowSummary::of(&[0.0, f32::NAN], 1.0), Err(SamplingError::LogitValue { token: 1, .. })));
    assert_eq!(RowSummary::of(&[f32::NEG_INFINITY; 3], 1.0), Err(SamplingError::NothingAllowed { vocab: 3 }));
}
