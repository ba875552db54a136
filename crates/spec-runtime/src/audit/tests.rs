//! The statistics, on numbers whose law is known.

use spec_core::Noise;

use super::*;

/// A number of \[0, 1) for every run and index.
fn even(run: u64, index: usize) -> f64 {
    f64::from(Noise::new(run).code(index, 7)) / f64::from(u32::MAX).next_up()
}

/// Numbers of which the upper half of \[0, 1) has `share` too many.
fn shifted(run: u64, index: usize, share: f64) -> f64 {
    let (number, low) = (even(run, index), 0.5 - share);
    if number < low { 0.5 * number / low } else { 0.5 + 0.5 * (number - low) / (1.0 - low) }
}

fn judged(uniform: f64) -> Judged {
    Judged {
        uniform: Some(uniform),
        certainty: 0.4,
        excess: 0.0,
        variance: 1.0,
        guess: Some((uniform < 0.3, 0.3)),
        against_draft: None,
        place: Place::BehindRejection,
    }
}

fn evidence(tokens: usize, number: impl Fn(usize) -> f64) -> Evidence {
    let mut evidence = Evidence::new();
    for index in 0..tokens {
        evidence.add(&judged(number(index)));
        if index % 50 == 49 {
            evidence.end_text(None);
        }
    }
    evidence
}

#[test]
fn alarms_without_reason_are_as_rare_as_the_level_says() {
    let alarms = (0..1_000).filter(|&run| evidence(1_000, |index| even(run, index)).verdict(0.05).differs()).count();
    // 50 are the most to be expected; the questions share tokens here, so that Holm's correction leaves fewer.
    assert!((5..=70).contains(&alarms), "{alarms} of 1000");
}

#[test]
fn a_shift_as_large_as_the_resolution_is_seen_nearly_always() {
    let tokens = 4_000;
    let share = evidence(tokens, |index| even(0, index)).verdict(0.01).resolution.expect("there are enough tokens");
    assert!((0.02..0.08).contains(&share), "{share}");
    let seen = |share: f64| {
        (0..200).filter(|&run| evidence(tokens, |index| shifted(run, index, share)).verdict(0.01).differs()).count()
    };
    let (at, below) = (seen(share), seen(share / 3.0));
    assert!(at >= 184, "{at} of 200 at the resolution of {share}");
    assert!(below < 60, "{below} of 200 at a third of it");
}

#[test]
fn neighbours_that_depend_on_each_other_are_found() {
    // Every number by itself is even, and close to the one before it.
    let number = |index: usize| (even(1, index / 2) + 0.2 * even(2, index)) % 1.0;
    let verdict = evidence(2_000, number).verdict(0.01);
    let found = verdict.questions.iter().find(|question| question.name == "independence of neighbours");
    assert!(found.is_some_and(|question| question.adjusted < 1e-6), "{verdict:?}");
}

#[test]
fn a_token_that_the_law_excludes_settles_it() {
    let mut evidence = evidence(1_000, |index| even(3, index));
    assert!(!evidence.verdict(0.01).differs());
    evidence.add(&Judged { uniform: None, ..judged(0.5) });
    let verdict = evidence.verdict(0.01);
    assert!(verdict.differs() && verdict.p == Some(0.0) && verdict.impossible == 1);
}

#[test]
fn a_text_that_differs_from_plain_decoding_settles_it() {
    let mut evidence = Evidence::new();
    evidence.end_text(Some(true));
    assert!(!evidence.verdict(0.01).differs() && evidence.verdict(0.01).is_conclusive());
    evidence.end_text(Some(false));
    assert!(evidence.verdict(0.01).differs());
    assert!(!Evidence::new().verdict(0.01).is_conclusive());
}

#[test]
fn distances_are_estimated_without_bias() {
    for share in [0.0, 0.05, 0.2] {
        let runs = 60;
        let estimates: Vec<Distance> =
            (0..runs).map(|run| evidence(8_000, |index| shifted(run, index, share)).verdict(0.01).distance).collect();
        let mean = estimates.iter().map(|distance| distance.total_variation.mean).sum::<f64>() / runs as f64;
        // Where to look is estimated too, which loses a little and gains nothing.
        assert!(mean < share + 0.01 && mean > share - 0.02, "{mean} for {share}");
        let held = estimates.iter().filter(|distance| {
            let (low, high) = distance.guesses.expect("there are guesses").interval();
            // A guess is a number below 0.3, of which there are so many.
            (low..high).contains(&(-0.6 * share))
        });
        let held = held.count();
        assert!(held >= 52, "{held} intervals of {runs} hold {}", -0.6 * share);
    }
}

#[test]
fn wealth_may_be_looked_at_all_the_time() {
    let run = |run: u64, share: f64| {
        let mut wealth = Wealth::default();
        (0..3_000)
            .map(|index| {
                wealth.add(Some(shifted(run, index, share)));
                wealth.p_value()
            })
            .last()
    };
    let below = (0..400).filter(|&seed| run(seed, 0.0).is_some_and(|p| p < 0.05)).count();
    assert!(below <= 20, "{below} of 400 fell below 0.05 at some time");
    let seen = (0..50).filter(|&seed| run(seed, 0.1).is_some_and(|p| p < 1e-6)).count();
    assert!(seen >= 48, "{seen} of 50");
    let mut wealth = Wealth::default();
    wealth.add(None);
    assert_eq!(wealth.p_value(), 0.0);
}
