//! What a rule says that it compared is what it compared, and the inequality that it prints holds for the numbers printed.

mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use random::Random;
use spec_core::{
    ChoiceKey, Choices, Comparison, DraftTree, KeyedChoices, Noise, NoiseScan, PathLaws, Pipeline, RULES, RuleName,
    SamplingParams, ScalarScan, Scratch,
};

/// Keeps what was asked, and what was decided.
struct Recorded {
    keyed: KeyedChoices,
    asked: Vec<(Option<f64>, f64, bool)>,
}

impl Choices for Recorded {
    fn accept(&mut self, key: ChoiceKey, probability: f64) -> bool {
        let kept = self.keyed.accept(key, probability);
        self.asked.push((self.keyed.number(key), probability, kept));
        kept
    }

    fn draw(&mut self, key: ChoiceKey, weights: &[f64]) -> Option<usize> {
        self.keyed.draw(key, weights)
    }

    fn number(&self, key: ChoiceKey) -> Option<f64> {
        self.keyed.number(key)
    }
}

/// A side of an inequality: a number, or two or three with what stands between them, among words.
fn value(side: &str) -> f64 {
    let words = side.split([' ', '(', ')']).filter(|word| !word.is_empty());
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    match (&numbers[..], side) {
        (&[number], _) => number,
        (&[a, b], side) if side.contains(" - ") => a - b,
        (&[a, b], side) if side.contains(" / ") => a / b,
        (&[a, b, c], side) if side.contains(" / (") && side.contains(" * ") => a / (b * c),
        _ => panic!("{side}"),
    }
}

/// Whether what is written is true.
fn holds(text: &str) -> bool {
    let split = |operator| text.split_once(operator).map(|(left, right)| (value(left), value(right)));
    if let Some((left, right)) = split(" >= ") {
        left >= right
    } else if let Some((left, right)) = split(" <= ") {
        left <= right
    } else if let Some((left, right)) = split(" < ") {
        left < right
    } else if let Some((left, right)) = split(" != ") {
        left != right
    } else {
        panic!("no inequality: {text}")
    }
}

/// How the inequality of each rule begins and goes on.
fn words(rule: &str) -> [&'static str; 2] {
    match rule {
        "greedy" => ["target argmax ", " != draft "],
        "coupled" => ["target sample ", " != draft "],
        "rejection" | "rejection-independent" => ["u ", " / draft prob "],
        "entropy" => ["u ", " * draft prob "],
        "block" => ["", "block prob "],
        "typical" => ["target prob ", " <= threshold "],
        "epsilon" => ["target prob ", " < draft prob "],
        "epsilon-published" => ["draft prob ", " < target prob "],
        unknown => panic!("{unknown}: say how its inequality reads"),
    }
}

fn row(random: &mut Random, spread: f64) -> Vec<f32> {
    (0..6).map(|_| (random.uniform() * spread) as f32).collect()
}

#[test]
fn every_rule_prints_the_inequality_that_it_rejected_by() {
    let scan: Arc<dyn NoiseScan> = Arc::new(ScalarScan);
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &RULES {
        let name: RuleName = entry.name.parse().expect("a rule");
        for case in 0..400u64 {
            let mut random = Random::new(case + 1);
            let temperature = if entry.name == "greedy" || case % 5 == 0 { 0.0 } else { 1.0 };
            let params = SamplingParams { temperature, ..SamplingParams::default() };
            let mut pipeline = Pipeline::new(params, 6).expect("valid parameters");
            let rule = name.build(Noise::new(case), &scan);
            let mut choices = Recorded { keyed: KeyedChoices::new(case, 0), asked: Vec::new() };

            let (mut tree, mut scratch, mut parent) = (DraftTree::new(), Scratch::default(), None);
            let width = if rule.chains_only() { 1 } else { 1 + random.below(2) };
            for depth in 0..3 {
                let drafted = row(&mut random, 5.0);
                let law = pipeline.law(&drafted, None, &mut scratch).expect("a proper row");
                let nodes = rule.proposal().propose(&mut tree, parent, &law, width, depth, &mut choices);
                parent = nodes.expect("a tree").first().copied();
            }
            let rows: Vec<Vec<f32>> = (0..=tree.len()).map(|_| row(&mut random, 5.0)).collect();
            let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 0, None);
            let outcome = rule.verify(&tree, &mut laws, &mut choices).expect("laws everywhere");
            drop(laws);

            let Some(rejection) = outcome.rejection else { continue };
            let text = rejection.compared.to_string();
            assert!(holds(&text), "{name}, case {case}: {text}");
            let [start, middle] = words(entry.name);
            assert!(text.starts_with(start) && text.contains(middle), "{name}: {text}");
            *seen.entry(entry.name).or_default() += 1;

            match rejection.compared {
                Comparison::Argmax { target, draft } | Comparison::Sample { target, draft } => {
                    assert_eq!((target, draft), (outcome.next, rejection.token));
                }
                Comparison::Ratio { u, p, q, leniency } => {
                    assert_eq!((Some(p), Some(q)), (rejection.p, rejection.q));
                    assert!(choices.asked.contains(&(u, p / (q * leniency), false)), "{text}: {:?}", choices.asked);
                    assert_eq!(leniency < 1.0, entry.name == "entropy", "{text}");
                }
                Comparison::Prefix { u: Some(u), probability } => {
                    // Prefixes are tried from the longest down: the last that fell is one longer than the one that stood.
                    let last = choices.asked.iter().rev().find(|(_, _, kept)| !kept);
                    assert_eq!(last, Some(&(Some(u), probability, false)), "{text}");
                }
                Comparison::Prefix { u: None, probability } => assert_eq!(probability, 0.0),
                Comparison::Threshold { p, .. } => assert_eq!(Some(p), rejection.p),
                Comparison::Epsilon { p, q, .. } | Comparison::EpsilonPublished { p, q, .. } => {
                    assert_eq!((Some(p), Some(q)), (rejection.p, rejection.q));
                }
                other => panic!("{name}: {other:?}"),
            }
            // What was kept was kept by the opposite.
            for &(u, probability, kept) in &choices.asked {
                assert_eq!(u.is_some_and(|u| u < probability), kept, "{name}");
            }
        }
    }
    for entry in &RULES {
        let rejections = seen.get(entry.name).copied().unwrap_or_default();
        assert!(rejections > 40, "{}: {rejections} rejections", entry.name);
    }
}

#[test]
fn numbers_that_rounding_would_make_equal_are_written_longer() {
    let close = Comparison::Epsilon { p: 0.123_456, q: 0.123_457, epsilon: 0.0 };
    assert_eq!(close.to_string(), "target prob 0.123456 < draft prob 0.123457 - epsilon 0.000000");
    let next = f64::from_bits(0.3f64.to_bits() + 1);
    let closest = Comparison::EpsilonPublished { p: next, q: 0.3, epsilon: 0.0 };
    assert_eq!(closest.to_string(), "draft prob 0.3 < target prob 0.30000000000000004 - epsilon 0");
    let small = Comparison::Ratio { u: Some(0.02), p: 1e-5, q: 0.002, leniency: 1.0 };
    assert!(holds(&small.to_string()), "{small}");
    assert_eq!(small.to_string(), "u 0.020 >= target prob 0.000 / draft prob 0.002");
}
