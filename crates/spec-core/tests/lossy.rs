//! The lossy rules: each against its own definition, and each different from the exact rules where it should be.

use std::sync::Arc;

use spec_core::{
    AcceptanceRule, ChoiceKey, Choices, DraftTree, Entropy, Epsilon, EpsilonPublished, Greedy, KeyedChoices, Noise,
    Origin, Outcome, PathLaws, Pipeline, RULES, RejectionReason, RejectionRule, RuleName, SamplingParams, ScalarScan,
    Scratch, Token, Typical, VerifyError,
};

fn logits(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

fn pipeline(temperature: f32, vocab: usize) -> Pipeline {
    Pipeline::new(SamplingParams { temperature, ..SamplingParams::default() }, vocab).expect("valid parameters")
}

/// Drafts one token from `q` as the rule says and judges it by `p`.
fn judge(
    rule: &dyn AcceptanceRule,
    temperature: f32,
    p: &[f64],
    q: &[f64],
    choices: &mut dyn Choices,
) -> (Token, Outcome) {
    let mut pipeline = pipeline(temperature, p.len());
    let (mut tree, mut scratch, row) = (DraftTree::new(), Scratch::default(), logits(q));
    let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
    rule.proposal().propose(&mut tree, None, &law, 1, 0, choices).expect("a root");
    let rows = vec![logits(p); 2];
    let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 0, None);
    let outcome = rule.verify(&tree, &mut laws, choices).expect("a chain");
    drop(laws);
    (tree.nodes().next().expect("one node").1.token, outcome)
}

/// Judges one given token.
fn judge_given(rule: &dyn AcceptanceRule, temperature: f32, p: &[f64], token: Token) -> Result<Outcome, VerifyError> {
    let mut pipeline = pipeline(temperature, p.len());
    let tree = DraftTree::chain(&[token], Origin::Fixed);
    let rows = vec![logits(p); 2];
    let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 0, None);
    rule.verify(&tree, &mut laws, &mut KeyedChoices::new(1, 0))
}

/// Draws a given index and remembers the probabilities it was asked to accept with.
struct Scripted {
    draw: usize,
    asked: Vec<f64>,
}

impl Choices for Scripted {
    fn accept(&mut self, _: ChoiceKey, probability: f64) -> bool {
        self.asked.push(probability);
        false
    }

    fn draw(&mut self, _: ChoiceKey, _: &[f64]) -> Option<usize> {
        Some(self.draw)
    }
}

#[test]
fn epsilon_keeps_at_temperature_0_what_greedy_refuses() {
    let (p, q) = ([0.45, 0.48, 0.07], [0.5, 0.4, 0.1]);
    let mut choices = KeyedChoices::new(1, 0);
    let (token, outcome) = judge(&Epsilon(0.1), 0.0, &p, &q, &mut choices);
    assert_eq!((token, outcome.accepted.len()), (0, 1), "p = .45 >= .5 - .1");
    let (_, outcome) = judge(&Epsilon(0.01), 0.0, &p, &q, &mut choices);
    assert_eq!((outcome.accepted.len(), outcome.next), (0, 1), "p = .45 < .5 - .01, and the argmax follows");
    assert_eq!(outcome.rejection.map(|rejection| rejection.reason), Some(RejectionReason::BelowThreshold));
    let (_, outcome) = judge(&Greedy, 0.0, &p, &q, &mut choices);
    assert_eq!((outcome.accepted.len(), outcome.next), (0, 1));
}

#[test]
fn epsilon_takes_a_proposal_without_a_law_as_certain() {
    assert_eq!(judge_given(&Epsilon(0.1), 0.0, &[0.95, 0.05], 0).map(|outcome| outcome.accepted.len()), Ok(1));
    assert_eq!(judge_given(&Epsilon(0.1), 0.0, &[0.85, 0.15], 0).map(|outcome| outcome.accepted.len()), Ok(0));
}

#[test]
fn the_published_epsilon_keeps_what_the_drafter_is_sure_of_and_refuses_proposals_without_a_law() {
    let (p, q) = ([0.05, 0.95], [0.9, 0.1]);
    let (token, outcome) = judge(&EpsilonPublished(0.01), 0.0, &p, &q, &mut KeyedChoices::new(1, 0));
    assert_eq!((token, outcome.accepted.len()), (0, 1), "q = .9 >= .05 - .01, although the target hardly wants it");
    let (_, outcome) = judge(&EpsilonPublished(0.01), 0.0, &[0.99, 0.01], &[0.6, 0.4], &mut KeyedChoices::new(1, 0));
    assert_eq!(outcome.accepted.len(), 0, "q = .6 < .99 - .01, although it is the target's own choice");
    assert!(EpsilonPublished(0.01).needs_confidence());
    let error = judge_given(&EpsilonPublished(0.01), 0.0, &p, 0).expect_err("no law");
    assert!(matches!(error, VerifyError::NoConfidence { rule: "epsilon-published", .. }));
    assert!(error.to_string().contains("draft with a model"), "{error}");
}

#[test]
fn typical_keeps_above_the_smaller_of_a_constant_and_the_entropy_bound() {
    let rule = Typical::default();
    // Entropy ln 20: the bound is .3 / 20 = .015 < .05.
    let flat = [0.05; 20];
    assert_eq!(judge_given(&rule, 0.0, &flat, 7).map(|outcome| outcome.accepted.len()), Ok(1));
    // Nearly no entropy: the bound is .09.
    let peaked = [0.92, 0.08];
    assert_eq!(judge_given(&rule, 0.0, &peaked, 1).map(|outcome| outcome.accepted.len()), Ok(0));
    assert_eq!(judge_given(&rule, 0.0, &[0.9, 0.1], 1).map(|outcome| outcome.accepted.len()), Ok(1), ".1 > .09");
}

#[test]
fn entropy_divides_by_its_threshold_and_is_never_stricter_than_the_exact_rule() {
    let (p, q): ([f64; 3], _) = ([0.2, 0.5, 0.3], [0.6, 0.3, 0.1]);
    let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
    let asked = |rule: &dyn AcceptanceRule| {
        let mut choices = Scripted { draw: 0, asked: Vec::new() };
        judge(rule, 1.0, &p, &q, &mut choices);
        choices.asked[0]
    };
    let exact = asked(&RejectionRule::default());
    assert!((exact - 0.2 / 0.6).abs() < 1e-7);
    let loose = asked(&Entropy::default());
    let threshold = f64::min((-0.4 * entropy).exp(), 0.95);
    assert!((loose - exact / threshold).abs() < 1e-6, "{loose}");
    let at_zero = asked(&Entropy { alpha: 0.0, theta: 0.95 });
    assert!((at_zero - exact / 0.95).abs() < 1e-7, "looser even with alpha = 0");
}

#[test]
fn the_law_of_a_lossy_rule_is_not_the_targets() {
    let (p, q) = ([0.7, 0.2, 0.1], [0.2, 0.3, 0.5]);
    let rules: [&dyn AcceptanceRule; 5] =
        [&RejectionRule::default(), &Typical::default(), &Entropy::default(), &Epsilon(0.3), &EpsilonPublished(0.01)];
    for rule in rules {
        const RUNS: u64 = 20_000;
        let mut counts = [0.0; 3];
        for seed in 0..RUNS {
            let (token, outcome) = judge(rule, 1.0, &p, &q, &mut KeyedChoices::new(seed, 0));
            counts[if outcome.accepted.is_empty() { outcome.next } else { token } as usize] += 1.0 / RUNS as f64;
        }
        let off: f64 = counts.iter().zip(p).map(|(found, p)| (found - p).abs()).sum::<f64>() / 2.0;
        assert_eq!(off < 0.015, rule.lossless(), "{}: {off}", rule.name());
    }
}

#[test]
fn rules_are_found_by_name_and_mistakes_list_the_names() {
    let scan: Arc<dyn spec_core::NoiseScan> = Arc::new(ScalarScan);
    for entry in &RULES {
        let name: RuleName = entry.name.parse().expect("a name of the table");
        let rule = name.build(Noise::new(1), &scan);
        assert_eq!(rule.lossless(), entry.lossless, "{}", entry.name);
        assert!(entry.name.starts_with(rule.name()));
    }
    assert_eq!("epsilon".parse::<RuleName>().map(|name| name.parameter()), Ok(Some(0.01)));
    assert_eq!(
        "epsilon-published:0.1".parse::<RuleName>().map(|name| name.to_string()),
        Ok("epsilon-published:0.1".into())
    );
    let error = |text: &str| text.parse::<RuleName>().expect_err("not a rule").to_string();
    assert_eq!(
        error("rejecton"),
        "no rule is called `rejecton`; there are: greedy, coupled, rejection, rejection-independent, block, typical, entropy, \
         epsilon:x, epsilon-published:x"
    );
    assert_eq!(error("block:2"), "rule block: `2` is not a value for it; it takes none");
    assert!(error("epsilon:2").contains("from 0 to 1") && error("epsilon:NaN").contains("from 0 to 1"));
}
