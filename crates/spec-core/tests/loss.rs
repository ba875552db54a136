//! What lossy rules forgive: counted as defined, and never more than a budget allows.

mod random;

use std::sync::Arc;

use random::Random;
use spec_core::{
    AcceptanceRule, Coupled, DraftTree, Entropy, Epsilon, EpsilonPublished, Greedy, KeyedChoices, LossBudget, NodeId,
    Noise, Origin, Outcome, PathLaws, Pipeline, RejectionRule, SamplingParams, ScalarScan, Scratch, Token, Typical,
};

fn logits(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

fn pipeline(temperature: f32, vocab: usize) -> Pipeline {
    Pipeline::new(SamplingParams { temperature, ..SamplingParams::default() }, vocab).expect("valid parameters")
}

/// A draft, and the target's rows for it.
struct Case {
    tree: DraftTree,
    rows: Vec<Vec<f32>>,
    temperature: f32,
    seed: u64,
}

impl Case {
    /// A draft as `rule` wants it: a chain of four, the first two nodes of which have siblings. The drafter is right more often than not.
    fn random(random: &mut Random, rule: &dyn AcceptanceRule, temperature: f32) -> Self {
        const VOCAB: usize = 6;
        let seed = random.bits();
        let (mut tree, mut choices) = (DraftTree::new(), KeyedChoices::new(seed, 0));
        let row = |random: &mut Random| -> Vec<f32> { (0..VOCAB).map(|_| random.normal() as f32 * 1.5).collect() };
        let mut rows = vec![row(random)];
        let mut parent: Option<NodeId> = None;
        for depth in 0..4 {
            let target = &rows[parent.map_or(0, |node| node.index() + 1)];
            let pipeline = pipeline(temperature, VOCAB);
            let mut scratch = Scratch::default();
            let drafted: Vec<f32> = target.iter().map(|logit| logit + random.normal() as f32 * 0.7).collect();
            let law = pipeline.law(&drafted, None, &mut scratch).expect("a proper row");
            let children = if depth < 2 { 2 } else { 1 };
            let nodes = rule.proposal().propose(&mut tree, parent, &law, children, depth, &mut choices);
            let nodes = nodes.expect("a parent without children");
            rows.resize_with(tree.len() + 1, || row(random));
            parent = nodes.first().copied();
        }
        Self { tree, rows, temperature, seed }
    }

    fn judge(&self, rule: &dyn AcceptanceRule, budget: LossBudget) -> Outcome {
        let mut pipeline = pipeline(self.temperature, self.rows[0].len());
        let mut laws = PathLaws::new(&self.tree, &self.rows, &mut pipeline, 0, None);
        rule.verify_within(budget, &self.tree, &mut laws, &mut KeyedChoices::new(self.seed, 0)).expect("proper rows")
    }
}

fn lossy() -> [Box<dyn AcceptanceRule>; 4] {
    [
        Box::new(Typical::default()),
        Box::new(Entropy { alpha: 0.4, theta: 0.6 }),
        Box::new(Epsilon(0.4)),
        Box::new(EpsilonPublished(0.1)),
    ]
}

/// What stays of an outcome beside the reasons for it.
fn emitted(outcome: &Outcome) -> (&[NodeId], Token) {
    (&outcome.accepted, outcome.next)
}

#[test]
fn a_budget_is_never_passed_whatever_is_drawn() {
    let mut random = Random::new(21);
    for rule in lossy() {
        for temperature in [0.0, 0.7, 1.0] {
            let (mut forgiven, mut closed) = (0, 0);
            for _ in 0..400 {
                let most = random.uniform() * 2.0;
                let mut budget = LossBudget::new(most);
                let mut sum = 0.0;
                for _ in 0..4 {
                    let case = Case::random(&mut random, &*rule, temperature);
                    let outcome = case.judge(&*rule, budget);
                    assert!(outcome.forgiven.nodes.is_empty() || !budget.is_closed(), "{} forgave again", rule.name());
                    for node in &outcome.forgiven.nodes {
                        assert!(outcome.accepted.contains(&node.node) && node.log_ratio >= 0.0);
                        assert!(budget.charge(node.log_ratio), "{}: {outcome:?}", rule.name());
                        sum += node.log_ratio;
                        forgiven += 1;
                    }
                    if outcome.forgiven.turned_exact {
                        budget.close();
                        closed += 1;
                    }
                    assert!(sum <= most && sum == budget.spent(), "{}: {sum} of {most}", rule.name());
                }
            }
            // At temperature 0 entropy is greedy, and has nothing to forgive.
            let is_exact = rule.name() == "entropy" && temperature == 0.0;
            assert_eq!((forgiven > 50, closed > 50), (!is_exact, !is_exact), "{} {temperature}", rule.name());
        }
    }
}

#[test]
fn without_a_budget_the_exact_rule_judges_and_with_an_unlimited_one_the_lossy_rule() {
    let mut random = Random::new(22);
    for rule in lossy() {
        for temperature in [0.0, 0.7, 1.0] {
            let exact: Box<dyn AcceptanceRule> = match temperature {
                0.0 => Box::new(Greedy),
                _ => Box::new(RejectionRule::default()),
            };
            let mut differ = 0;
            for _ in 0..500 {
                let case = Case::random(&mut random, &*rule, temperature);
                let expected = case.judge(&*exact, LossBudget::UNLIMITED);
                let held = case.judge(&*rule, LossBudget::new(0.0));
                assert_eq!(emitted(&held), emitted(&expected), "{} {temperature}", rule.name());
                assert!(held.forgiven.nodes.is_empty() && held.forgiven.turned_exact);
                let free = case.judge(&*rule, LossBudget::UNLIMITED);
                let mut pipeline = pipeline(temperature, case.rows[0].len());
                let mut laws = PathLaws::new(&case.tree, &case.rows, &mut pipeline, 0, None);
                let plain = rule.verify(&case.tree, &mut laws, &mut KeyedChoices::new(case.seed, 0));
                assert_eq!(plain.as_ref(), Ok(&free), "{}", rule.name());
                assert!(!free.forgiven.turned_exact);
                differ += usize::from(emitted(&free) != emitted(&expected));
            }
            let is_exact = rule.name() == "entropy" && temperature == 0.0;
            assert_eq!(differ > 25, !is_exact, "{} {temperature}: {differ} of 500", rule.name());
        }
    }
}

#[test]
fn behind_the_token_that_closes_the_budget_all_is_exact() {
    // Along the chain the drafter is off by ln(.48 / .45) and by ln(.6 / .3), and off again: the second does not fit.
    let rows = vec![
        logits(&[0.45, 0.48, 0.07]),
        logits(&[0.3, 0.6, 0.1]),
        logits(&[0.45, 0.48, 0.07]),
        logits(&[0.2, 0.2, 0.6]),
    ];
    let case = Case { tree: DraftTree::chain(&[0, 0, 0], Origin::Fixed), rows, temperature: 0.0, seed: 0 };
    let (near, far) = ((0.48_f64 / 0.45).ln(), (0.6_f64 / 0.3).ln());
    let rule = Epsilon(0.8);
    let all = case.judge(&rule, LossBudget::UNLIMITED);
    let ratios: Vec<f64> = all.forgiven.nodes.iter().map(|node| node.log_ratio).collect();
    assert_eq!((all.accepted.len(), ratios.len(), all.next), (3, 3, 2));
    for (found, expected) in ratios.iter().zip([near, far, near]) {
        assert!((found - expected).abs() < 1e-6, "{ratios:?}");
    }
    let held = case.judge(&rule, LossBudget::new(near + far / 2.0));
    assert_eq!((held.accepted.len(), held.next, held.forgiven.nodes.len()), (1, 1, 1), "the argmax follows");
    assert!(held.forgiven.turned_exact);
}

#[test]
fn what_is_forgiven_of_a_drawn_token_is_the_log_of_the_two_acceptance_probabilities() {
    let (p, q) = ([0.2, 0.5, 0.3], [0.6, 0.3, 0.1]);
    let draw = |rule: &dyn AcceptanceRule, seed: u64| {
        let (mut tree, mut scratch, row) = (DraftTree::new(), Scratch::default(), logits(&q));
        let pipeline = pipeline(1.0, 3);
        let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
        rule.proposal().propose(&mut tree, None, &law, 1, 0, &mut KeyedChoices::new(seed, 0)).expect("a root");
        let case = Case { tree, rows: vec![logits(&p); 2], temperature: 1.0, seed };
        let token = case.tree.nodes().next().expect("one node").1.token;
        (token, case.judge(rule, LossBudget::UNLIMITED).forgiven.nodes.first().map(|node| node.log_ratio))
    };
    let mut seen = [0; 3];
    for seed in 0..200 {
        let (token, forgiven) = draw(&Typical::default(), seed);
        // Of 0 the exact rule keeps a third; of the others all.
        match (token, forgiven) {
            (0, Some(nats)) => assert!((nats - 3.0_f64.ln()).abs() < 1e-6, "{nats}"),
            (1 | 2, None) => {}
            other => panic!("{other:?}"),
        }
        seen[token as usize] += 1;
        let (token, forgiven) = draw(&Entropy { alpha: 0.0, theta: 0.5 }, seed);
        if let Some(nats) = forgiven {
            assert!(token == 0 && (nats - 2.0_f64.ln()).abs() < 1e-6, "{token}: {nats}");
            seen[0] += 1000;
        }
    }
    assert!(seen[0] > 1000 && seen[1] > 0 && seen[2] > 0, "{seen:?}");
    // A given token is kept with p by the exact rule.
    let case =
        Case { tree: DraftTree::chain(&[2], Origin::Fixed), rows: vec![logits(&p); 2], temperature: 1.0, seed: 0 };
    let nats = case.judge(&Epsilon(0.9), LossBudget::UNLIMITED).forgiven.nodes[0].log_ratio;
    assert!((nats - (1.0_f64 / 0.3).ln()).abs() < 1e-6, "{nats}");
}

#[test]
fn equal_logits_cost_nothing_are_counted_and_still_fall_to_a_budget_of_nothing() {
    let rows = vec![logits(&[0.4, 0.4, 0.2]); 2];
    let case = Case { tree: DraftTree::chain(&[1], Origin::Fixed), rows, temperature: 0.0, seed: 0 };
    let free = case.judge(&Epsilon(0.9), LossBudget::UNLIMITED);
    assert_eq!(free.forgiven.nodes.iter().map(|node| node.log_ratio).collect::<Vec<_>>(), [0.0]);
    let held = case.judge(&Epsilon(0.9), LossBudget::new(0.0));
    assert_eq!((held.accepted.len(), held.next), (0, 0));
}

#[test]
fn a_token_without_a_probability_is_never_kept() {
    // With this tolerance everything passes; the second token is masked.
    let rows = vec![vec![1.0, f32::NEG_INFINITY]; 2];
    for temperature in [0.0, 1.0] {
        let tree = DraftTree::chain(&[1], Origin::Fixed);
        let case = Case { tree, rows: rows.clone(), temperature, seed: 0 };
        let outcome = case.judge(&Epsilon(1.0), LossBudget::UNLIMITED);
        assert_eq!((outcome.accepted.len(), outcome.next), (0, 0));
    }
}

#[test]
fn lossless_rules_keep_any_budget_and_forgive_nothing() {
    let mut random = Random::new(23);
    let coupled = Coupled::new(Noise::new(3), Arc::new(ScalarScan));
    for rule in [&coupled as &dyn AcceptanceRule, &RejectionRule::default()] {
        assert!(rule.keeps_budgets());
        let case = Case::random(&mut random, rule, 0.8);
        let outcomes = [0.0, f64::INFINITY].map(|most| case.judge(rule, LossBudget::new(most)));
        assert_eq!(outcomes[0], outcomes[1]);
        assert!(outcomes[0].forgiven.nodes.is_empty());
    }
}
