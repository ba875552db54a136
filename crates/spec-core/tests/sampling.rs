//! The pipeline against its definition, and its answers to improper input.

mod random;

use proptest::prelude::*;
use random::Random;
use spec_core::{
    Pipeline, SamplingError, SamplingParams, Scratch, Token, TokenMask, log_probabilities, top_log_probabilities,
};

/// Kept ids in order, straight from the definition: everything sorted, everything in f64.
fn naive_kept(params: &SamplingParams, row: &[f32]) -> Vec<Token> {
    let temperature = f64::from(params.temperature);
    let mut sorted: Vec<(f32, Token)> =
        row.iter().copied().zip(0..).filter(|&(logit, _)| logit > f32::NEG_INFINITY).collect();
    sorted.sort_by(|a, b| b.0.partial_cmp(&a.0).expect("no NaN").then(a.1.cmp(&b.1)));
    let max = f64::from(sorted[0].0);
    let weight = |logit: f32| ((f64::from(logit) - max) / temperature).exp();
    if params.top_k > 0 {
        sorted.truncate(params.top_k);
    }
    if params.top_p < 1.0 {
        let total: f64 = sorted.iter().map(|&(logit, _)| weight(logit)).sum();
        let mut mass = 0.0;
        let last = sorted.iter().position(|&(logit, _)| {
            mass += weight(logit);
            mass >= f64::from(params.top_p) * total
        });
        sorted.truncate(last.map_or(sorted.len(), |last| last + 1));
    }
    let kept = sorted.iter().take_while(|&&(logit, _)| weight(logit) >= f64::from(params.min_p)).count();
    sorted.truncate(kept.max(1));
    sorted.into_iter().map(|(_, token)| token).collect()
}

fn sampled(temperature: f32) -> SamplingParams {
    SamplingParams { temperature, ..SamplingParams::default() }
}

#[test]
fn filters_keep_what_their_definition_keeps() {
    let mut random = Random::new(11);
    let mut scratch = Scratch::default();
    for case in 0..6_000 {
        let length = if case % 100 == 0 { 20_000 } else { 1 + random.below(400) };
        let spread = [0.01, 0.5, 2.0, 6.0, 40.0][random.below(5)];
        let rounded = random.below(3) == 0;
        let mut row: Vec<f32> = (0..length)
            .map(|_| {
                let logit = (random.normal() * spread) as f32;
                if rounded { logit.round() } else { logit }
            })
            .collect();
        for _ in 0..random.below(length) / 3 {
            row[random.below(length)] = f32::NEG_INFINITY;
        }
        row[random.below(length)] = 1.0;
        let mut params = sampled([0.05, 0.7, 1.0, 2.0, 30.0][random.below(5)]);
        params.top_k = [0, 0, 1, 3, 40, 5_000][random.below(6)];
        params.top_p = [1.0, 1.0, 1e-6, 0.3, 0.9, 0.95, 0.999_999][random.below(7)];
        params.min_p = [0.0, 0.0, 1e-9, 0.05, 0.6, 1.0][random.below(6)];
        let expected = naive_kept(&params, &row);
        let pipeline = Pipeline::new(params.clone(), length).expect("valid");
        let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
        match law.kept() {
            Some(kept) => assert_eq!(kept, expected, "case {case}: {params:?}, {length} logits, spread {spread}"),
            None => {
                assert!((params.top_k == 0 || params.top_k >= length) && params.top_p == 1.0 && params.min_p == 0.0)
            }
        }
        assert_eq!(law.argmax(), expected[0]);
    }
}

#[test]
fn filters_are_exact_over_a_large_vocabulary() {
    const VOCAB: usize = 151_936;
    let mut random = Random::new(12);
    let mut scratch = Scratch::default();
    for (spread, lead, top_p) in
        [(2.0, 16.0, 0.95), (2.0, 8.0, 0.9), (2.5, 0.0, 0.95), (0.1, 0.0, 0.5), (0.0, 0.0, 0.3)]
    {
        let mut row: Vec<f32> = (0..VOCAB).map(|_| (random.normal() * spread) as f32).collect();
        for rank in 0..50 {
            row[random.below(VOCAB)] += lead - rank as f32 * 0.1;
        }
        for (top_k, min_p) in [(0, 0.0), (50, 0.0), (0, 0.1)] {
            let params = SamplingParams { top_k, top_p, min_p, ..sampled(0.8) };
            let pipeline = Pipeline::new(params.clone(), VOCAB).expect("valid");
            let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
            assert!(law.kept() == Some(&naive_kept(&params, &row)), "spread {spread}, lead {lead}, {params:?}");
        }
    }
}

#[test]
fn probabilities_are_those_of_the_kept_tokens_and_sum_to_one() {
    let row = [1.0, 2.0, f32::NEG_INFINITY, 0.5, 2.0];
    let mut scratch = Scratch::default();
    let mut probabilities = Vec::new();
    let pipeline = Pipeline::new(SamplingParams { top_k: 3, ..sampled(0.5) }, 5).expect("valid");
    let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
    assert_eq!(law.kept(), Some(&[1, 4, 0][..]));
    law.probabilities(&mut probabilities);
    let share = 1.0 / (2.0 + (-2.0f64).exp());
    for (token, expected) in [(0, (-2.0f64).exp() * share), (1, share), (2, 0.0), (3, 0.0), (4, share)] {
        assert!((law.probability(token) - expected).abs() < 1e-15);
        assert_eq!(law.probability(token), probabilities[token as usize]);
    }
    assert_eq!(law.probability(99), 0.0);
}

#[test]
fn temperature_zero_is_one_hot_at_the_lowest_argmax() {
    let pipeline = Pipeline::new(SamplingParams { top_p: 0.1, ..SamplingParams::default() }, 4).expect("valid");
    let mut scratch = Scratch::default();
    let law = pipeline.law(&[-0.0, -3.0, 0.0, f32::NEG_INFINITY], None, &mut scratch).expect("a proper row");
    assert_eq!(law.argmax(), 0);
    let mut probabilities = Vec::new();
    law.probabilities(&mut probabilities);
    assert_eq!(probabilities, [1.0, 0.0, 0.0, 0.0]);
    assert_eq!([law.probability(0), law.probability(2)], [1.0, 0.0]);
}

#[test]
fn improper_rows_are_refused_by_token_and_value() {
    let mut scratch = Scratch::default();
    for params in [SamplingParams::default(), sampled(1.0), SamplingParams { top_p: 0.5, ..sampled(1.0) }] {
        let pipeline = Pipeline::new(params, 5_000).expect("valid");
        let mut refusal = |edit: &dyn Fn(&mut Vec<f32>)| {
            let mut row = vec![0.25; 5_000];
            edit(&mut row);
            pipeline.law(&row, None, &mut scratch).map(|law| law.argmax())
        };
        for token in [0, 15, 16, 2047, 2048, 4_991, 4_992, 4_999] {
            assert!(matches!(refusal(&|row| row[token] = f32::NAN),
                Err(SamplingError::LogitValue { token: found, value }) if found as usize == token && value.is_nan()));
            assert!(matches!(refusal(&|row| row[token] = f32::INFINITY),
                Err(SamplingError::LogitValue { token: found, value: f32::INFINITY }) if found as usize == token));
        }
        assert_eq!(refusal(&|row| row.fill(f32::NEG_INFINITY)), Err(SamplingError::NothingAllowed { vocab: 5_000 }));
        assert_eq!(refusal(&|row| row.truncate(4_999)), Err(SamplingError::RowTooShort { found: 4_999, vocab: 5_000 }));
        assert_eq!(refusal(&|row| row.clear()), Err(SamplingError::RowTooShort { found: 0, vocab: 5_000 }));
        // Masked tokens are no error, and neither are rows of one token or of extreme finite values.
        assert_eq!(refusal(&|row| row[..4_999].fill(f32::NEG_INFINITY)), Ok(4_999));
        assert_eq!(
            refusal(&|row| {
                row.fill(f32::MIN);
                row[9] = f32::MAX
            }),
            Ok(9)
        );
    }
}

#[test]
fn padding_beyond_the_vocabulary_is_never_seen() {
    let mut scratch = Scratch::default();
    let pipeline = Pipeline::new(sampled(1.0), 3).expect("valid");
    let law = pipeline.law(&[0.0, 1.0, 0.5, 99.0, f32::NAN], None, &mut scratch).expect("padding is ignored");
    assert_eq!(law.argmax(), 1);
    assert_eq!(law.probability(3), 0.0);
}

#[test]
fn parameters_out_of_range_are_named_with_their_range() {
    type Edit = fn(&mut SamplingParams, f32);
    let table: [(&str, Edit, &[f32], &[f32]); 6] = [
        ("temperature", |p, x| p.temperature = x, &[-0.1, f32::NAN, f32::INFINITY], &[0.0, 1e-38, 5.0, f32::MAX]),
        ("top_p", |p, x| p.top_p = x, &[0.0, -1.0, 1.01, f32::NAN], &[1e-9, 0.5, 1.0]),
        ("min_p", |p, x| p.min_p = x, &[-0.1, 1.1, f32::NAN], &[0.0, 0.5, 1.0]),
        ("repeat_penalty", |p, x| p.repeat_penalty = x, &[0.0, -1.0, f32::NAN, f32::INFINITY], &[0.5, 1.0, 2.0]),
        ("presence_penalty", |p, x| p.presence_penalty = x, &[f32::NAN, f32::INFINITY], &[-2.0, 0.0, 2.0]),
        ("frequency_penalty", |p, x| p.frequency_penalty = x, &[f32::NAN, f32::NEG_INFINITY], &[-2.0, 0.0, 2.0]),
    ];
    for (field, edit, refused, allowed) in table {
        for (values, valid) in [(refused, false), (allowed, true)] {
            for &value in values {
                let mut params = SamplingParams::default();
                edit(&mut params, value);
                let result = Pipeline::new(params, 10);
                assert_eq!(result.is_ok(), valid, "{field} = {value}");
                if let Err(error) = result {
                    let message = error.to_string();
                    assert!(message.contains(field) && message.contains("must be"), "{message}");
                }
            }
        }
    }
    let biased = |bias| SamplingParams { logit_bias: vec![bias], ..SamplingParams::default() }.validate(10);
    assert_eq!(biased((10, 1.0)), Err(SamplingError::BiasToken { token: 10, vocab: 10 }));
    assert!(matches!(biased((3, f32::NAN)), Err(SamplingError::BiasValue { token: 3, .. })));
    assert!(matches!(biased((3, f32::INFINITY)), Err(SamplingError::BiasValue { token: 3, .. })));
    assert_eq!(biased((9, f32::NEG_INFINITY)), Ok(()));
    assert!(matches!(Pipeline::new(SamplingParams::default(), 0), Err(SamplingError::Vocabulary { vocab: 0 })));
}

#[test]
fn penalties_and_bias_change_logits_as_documented() {
    let params = SamplingParams {
        repeat_penalty: 2.0,
        presence_penalty: 0.25,
        frequency_penalty: 0.5,
        logit_bias: vec![(3, 1.0), (4, f32::NEG_INFINITY), (3, 0.5)],
        ..sampled(1.0)
    };
    let mut pipeline = Pipeline::new(params, 5).expect("valid");
    // 0 once, 1 twice; 7 and 4_000_000_000 lie outside the vocabulary and penalise nothing.
    pipeline.extend(&[0, 1, 7, 1, 4_000_000_000]);
    assert_eq!(pipeline.len(), 5);
    let expected = [4.0 / 2.0 - 0.25 - 0.5, -2.0 - 0.25 - 1.0, 0.5, 1.0 + 1.5];
    let mut scratch = Scratch::default();
    let law = pipeline.law(&[4.0, -1.0, 0.5, 1.0, 9.0], None, &mut scratch).expect("a proper row");
    let total: f64 = expected.iter().map(|x: &f64| x.exp()).sum();
    for (token, logit) in expected.iter().enumerate() {
        assert!((law.probability(token as Token) - logit.exp() / total).abs() < 1e-12, "token {token}");
    }
    assert_eq!(law.probability(4), 0.0);
}

#[test]
fn overflow_by_bias_is_refused_and_a_ban_of_everything_too() {
    let mut scratch = Scratch::default();
    let biased = |logit_bias| Pipeline::new(SamplingParams { logit_bias, ..sampled(1.0) }, 2).expect("valid");
    let law = biased(vec![(1, f32::MAX)]).law(&[0.0, f32::MAX], None, &mut scratch).map(|law| law.argmax());
    assert_eq!(law, Err(SamplingError::LogitValue { token: 1, value: f32::INFINITY }));
    let banned = biased(vec![(0, f32::NEG_INFINITY), (1, f32::NEG_INFINITY)]);
    let law = banned.law(&[0.0, 1.0], None, &mut scratch).map(|law| law.argmax());
    assert_eq!(law, Err(SamplingError::NothingAllowed { vocab: 2 }));
}

/// Allows even ids only.
struct Even;

impl TokenMask for Even {
    fn allows(&self, token: Token) -> bool {
        token.is_multiple_of(2)
    }
}

#[test]
fn masked_tokens_have_no_probability_and_the_callers_row_is_untouched() {
    let row = [1.0, 9.0, 2.0, 9.0];
    let mut scratch = Scratch::default();
    let pipeline = Pipeline::new(sampled(1.0), 4).expect("valid");
    let law = pipeline.law(&row, Some(&Even), &mut scratch).expect("a proper row");
    assert_eq!(law.argmax(), 2);
    assert_eq!([law.probability(1), law.probability(3)], [0.0, 0.0]);
    assert_eq!(row, [1.0, 9.0, 2.0, 9.0]);
}

/// The processed law of a pipeline that has seen exactly `history`.
fn fresh(params: &SamplingParams, history: &[Token], row: &[f32]) -> Vec<f64> {
    let mut pipeline = Pipeline::new(params.clone(), row.len()).expect("valid");
    pipeline.extend(history);
    law_of(&pipeline, row)
}

fn law_of(pipeline: &Pipeline, row: &[f32]) -> Vec<f64> {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    pipeline.law(row, None, &mut scratch).expect("a proper row").probabilities(&mut out);
    out
}

proptest! {
    #[test]
    fn pushing_and_truncating_leaves_the_state_of_the_remaining_history(
        window in 0usize..6,
        steps in proptest::collection::vec((0u32..7, 0usize..12, any::<bool>()), 1..40),
    ) {
        let params = SamplingParams {
            repeat_penalty: 1.3, presence_penalty: 0.2, frequency_penalty: 0.4, penalty_window: window, ..sampled(1.0)
        };
        let row = [0.3, -0.2, 1.0, 0.0, 0.7];
        let mut pipeline = Pipeline::new(params.clone(), 5).expect("valid");
        let mut history = Vec::new();
        for (token, len, truncate) in steps {
            if truncate {
                pipeline.truncate(len);
                history.truncate(len);
            } else {
                pipeline.push(token);
                history.push(token);
            }
            prop_assert_eq!(pipeline.len(), history.len());
            prop_assert_eq!(law_of(&pipeline, &row), fresh(&params, &history, &row));
        }
        if window > 0 {
            let seen = history.len().saturating_sub(window);
            let whole = SamplingParams { penalty_window: 0, ..params };
            prop_assert_eq!(law_of(&pipeline, &row), fresh(&whole, &history[seen..], &row));
        }
    }
}

#[test]
fn log_probabilities_are_the_log_softmax_of_the_unprocessed_row() {
    let mut random = Random::new(13);
    for length in [1usize, 5, 300, 151_936] {
        let mut row: Vec<f32> = (0..length).map(|_| (random.normal() * 3.0) as f32).collect();
        if length > 2 {
            row[2] = f32::NEG_INFINITY;
        }
        // Padding, however great, has no part in it.
        row.push(1e9);
        let sum: f64 = row[..length].iter().map(|&logit| f64::from(logit).exp()).sum();
        let mut all = Vec::new();
        log_probabilities(&row, length, &mut all).expect("a proper row");
        assert_eq!(all.len(), length);
        for (token, &logit) in row[..length].iter().enumerate() {
            let exact = f64::from(logit) - sum.ln();
            assert!(exact == all[token] || (exact - all[token]).abs() < 1e-5, "{exact} against {}", all[token]);
        }
        let report = top_log_probabilities(&row, length, 0, 7).expect("a proper row");
        assert_eq!((report.id, report.logprob), (0, all[0]));
        let expected: Vec<(Token, f64)> = naive_kept(&SamplingParams { top_k: 7, ..sampled(1.0) }, &row[..length])
            .into_iter()
            .map(|token| (token, all[token as usize]))
            .collect();
        assert_eq!(report.top, expected);
    }
    assert_eq!(top_log_probabilities(&[0.0, 1.0], 2, 1, 0).map(|report| report.top), Ok(vec![]));
    assert_eq!(top_log_probabilities(&[0.0], 1, 1, 0), Err(SamplingError::UnknownToken { token: 1, vocab: 1 }));
    assert_eq!(top_log_probabilities(&[0.0], 2, 1, 0), Err(SamplingError::RowTooShort { found: 1, vocab: 2 }));
    assert!(matches!(
        log_probabilities(&[f32::NAN], 1, &mut Vec::new()),
        Err(SamplingError::LogitValue { token: 0, .. })
    ));
    let masked = top_log_probabilities(&[0.0, f32::NEG_INFINITY], 2, 1, 5).expect("a proper row");
    assert_eq!((masked.logprob, masked.top.len()), (f64::NEG_INFINITY, 1));
}
