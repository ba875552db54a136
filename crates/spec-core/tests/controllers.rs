//! Controllers against traces computed by hand.

use std::time::Duration;

use spec_core::{
    AcceptanceRule, AdaptiveEpsilon, Additive, DraftTree, Epsilon, EpsilonPublished, Fixed, KeyedChoices,
    LatencyTolerance, LengthPolicy, Outcome, PathLaws, Pipeline, Round, RuleName, SamplingParams, Scratch, Start,
    Survey, Tolerance,
};

fn round(drafted: usize, accepted: usize) -> Round {
    Round { drafted, accepted, emitted: accepted + 1, ..Round::default() }
}

/// The article's `AdjustStrategy`, over the rounds of a window: accepted of drafted, and the length behind it.
#[test]
fn the_additive_length_follows_the_published_rule_over_four_rounds() {
    let mut policy = Additive::new(5, 8);
    assert_eq!((Additive::WINDOW, policy.next()), (4, 5));
    for (accepted, rate, length) in [
        (5, "5/5", 6),
        (6, "11/11", 7),
        (3, "14/18 = .778", 6),
        (6, "20/24 = .833", 7),
        (7, "22/26 = .846, the first round is out", 8),
        (8, "24/28 = .857, and 8 is the limit", 8),
        (0, "21/29 = .724", 7),
        (0, "15/30 = .500", 6),
        (6, "14/29 = .483", 5),
        (5, "11/26 = .423", 4),
        (4, "15/22 = .682", 3),
        (3, "18/18", 4),
    ] {
        let drafted = policy.next();
        assert!(accepted <= drafted, "{rate}");
        policy.observe(&round(drafted, accepted));
        assert_eq!(policy.next(), length, "{rate}");
    }
}

#[test]
fn a_survey_drafts_every_length_in_turn_and_its_greatest_between_them() {
    let mut policy = Survey::new(3);
    let lengths: Vec<usize> = (0..10)
        .map(|_| {
            let length = policy.next();
            policy.observe(&round(length, 0));
            length
        })
        .collect();
    assert_eq!(lengths, [0, 3, 1, 3, 2, 3, 3, 3, 0, 3]);
}

/// A round that took so many milliseconds a token.
fn timed(milliseconds: u64) -> Round {
    let time = |share| Duration::from_millis(2 * milliseconds * share / 4);
    Round { draft: time(1), verify: time(3), ..round(3, 1) }
}

#[test]
fn a_tolerance_opens_step_by_step_while_tokens_are_late_and_closes_while_they_are_not() {
    let tolerance = Tolerance::default();
    let mut policy = LatencyTolerance::new(Box::new(Fixed(3)), tolerance.clone(), Duration::from_millis(20));
    let mut steps = |milliseconds: &[u64]| -> Vec<u32> {
        let step = |&milliseconds| {
            policy.observe(&timed(milliseconds));
            assert_eq!(policy.next(), 3, "the length is the other policy's");
            tolerance.step()
        };
        milliseconds.iter().map(step).collect()
    };
    assert_eq!(steps(&[10, 20]), [0, 0], "in time: it stays closed");
    assert_eq!(steps(&[40, 40, 40]), [1, 2, 3], "means of 23, 28 and 35 ms");
    assert_eq!(steps(&[40; 9]), [4, 5, 6, 7, 8, 9, 10, 10, 10], "and no further than its maximum");
    assert_eq!(steps(&[10, 10, 10]), [10, 10, 9], "means of 33, 25 and 18 ms");
    assert_eq!(steps(&[10; 10]), [8, 7, 6, 5, 4, 3, 2, 1, 0, 0]);
    assert_eq!(steps(&[60, 60]), [1, 2]);
    policy.start(Start { prompt_len: 5, drafter: spec_core::DraftCost::Free });
    assert_eq!(tolerance.step(), 0, "the next answer begins closed");
}

/// Drafts token 0 from `q` and judges it by `p`, greedy.
fn judge(rule: &dyn AcceptanceRule, p: [f32; 3], q: [f32; 3]) -> Outcome {
    let (p, q) = (p.map(f32::ln), q.map(f32::ln));
    let mut pipeline = Pipeline::new(SamplingParams::default(), 3).expect("valid parameters");
    let (mut tree, mut scratch, mut choices) = (DraftTree::new(), Scratch::default(), KeyedChoices::new(1, 0));
    let law = pipeline.law(&q, None, &mut scratch).expect("a proper row");
    rule.proposal().propose(&mut tree, None, &law, 1, 0, &mut choices).expect("a root");
    let rows = vec![p.to_vec(); 2];
    let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 0, None);
    rule.verify(&tree, &mut laws, &mut choices).expect("a chain")
}

#[test]
fn an_adaptive_epsilon_judges_as_the_rule_of_its_present_tolerance() {
    let (p, q) = ([0.455, 0.475, 0.07], [0.5, 0.4, 0.1]);
    let mut kept = Vec::new();
    for name in ["epsilon:0.1", "epsilon-published:0.1"] {
        let rule = AdaptiveEpsilon::new(name.parse().expect("a rule")).expect("an epsilon rule");
        for step in 0..=Tolerance::STEPS {
            let epsilon = f64::from(step) / 100.0;
            assert!((rule.epsilon() - epsilon).abs() < 1e-12, "{name}: {}", rule.epsilon());
            let fixed: &dyn AcceptanceRule = match rule.name() {
                "epsilon" => &Epsilon(rule.epsilon()),
                _ => &EpsilonPublished(rule.epsilon()),
            };
            let outcome = judge(&rule, p, q);
            assert_eq!(outcome, judge(fixed, p, q), "{name}, step {step}");
            assert_eq!(rule.needs_confidence(), fixed.needs_confidence());
            kept.push(outcome.accepted.len());
            rule.tolerance().open();
        }
        assert!(!rule.lossless());
    }
    assert_eq!(kept[..11].iter().sum::<usize>(), 6, "p = .455 >= .5 - x from x = .05 on: {kept:?}");
    for name in ["greedy", "coupled", "rejection", "typical"] {
        let name: RuleName = name.parse().expect("a rule");
        assert!(AdaptiveEpsilon::new(name).is_none(), "{name}");
    }
}
