//! Keyed randomness: no key is reused, and answers have the probabilities asked for.

use std::collections::HashSet;

use spec_core::{ChoiceKey, Choices, DraftTree, KeyedChoices, NodeId, Origin, Purpose};

const PURPOSES: [Purpose; 5] = [Purpose::Draft, Purpose::Accept, Purpose::Resample, Purpose::Bonus, Purpose::Sibling];

fn nodes(count: u32) -> Vec<Option<NodeId>> {
    let tree = DraftTree::chain(&(0..count).collect::<Vec<_>>(), Origin::Fixed);
    [None].into_iter().chain(tree.nodes().map(|(id, _)| Some(id))).collect()
}

#[test]
fn keys_that_differ_anywhere_give_different_bits() {
    let nodes = nodes(20);
    let mut seen = HashSet::new();
    let mut count = 0;
    for seed in [0, 1, u64::MAX] {
        for round in (0..12).chain([1 << 20]) {
            let choices = KeyedChoices::new(seed, round);
            for position in (round..round + 24).chain([1 << 21]) {
                for &node in &nodes {
                    for purpose in PURPOSES {
                        for draw in 0..3 {
                            seen.insert(choices.bits(ChoiceKey { position, node, purpose, draw }));
                            count += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen.len(), count);
}

#[test]
fn equal_keys_give_equal_answers() {
    let key = ChoiceKey { position: 3, node: None, purpose: Purpose::Accept, draw: 0 };
    let (mut a, mut b) = (KeyedChoices::new(1, 2), KeyedChoices::new(1, 2));
    assert_eq!(a.bits(key), b.bits(key));
    assert_eq!(a.accept(key, 0.5), b.accept(key, 0.5));
    assert_ne!(a.bits(key), KeyedChoices::new(1, 3).bits(key));
    assert_ne!(a.bits(key), KeyedChoices::with_choice(1, 1, 2).bits(key), "choices of one request differ");
}

fn key(index: usize) -> ChoiceKey {
    ChoiceKey { position: index, node: None, purpose: PURPOSES[index % 5], draw: 0 }
}

#[test]
fn acceptance_has_the_probability_asked_for() {
    const TRIALS: usize = 200_000;
    let mut choices = KeyedChoices::new(5, 0);
    for probability in [0.001, 0.3, 0.5, 0.97] {
        let accepted = (0..TRIALS).filter(|&index| choices.accept(key(index), probability)).count() as f64;
        let deviation = (TRIALS as f64 * probability * (1.0 - probability)).sqrt();
        assert!((accepted - probability * TRIALS as f64).abs() < 5.0 * deviation, "{probability}: {accepted}");
    }
    assert!((0..1_000).all(|index| choices.accept(key(index), 1.0) && !choices.accept(key(index), 0.0)));
    assert!((0..1_000).all(|index| choices.accept(key(index), 1.5) && !choices.accept(key(index), -0.5)));
    assert!(!choices.accept(key(0), f64::NAN));
}

#[test]
fn draws_are_in_proportion_to_the_weights() {
    const TRIALS: usize = 200_000;
    let weights = [0.0, 3.0, 1.0, 0.0, 0.5, -2.0];
    let mut choices = KeyedChoices::new(6, 0);
    let mut counts = [0.0; 6];
    for index in 0..TRIALS {
        counts[choices.draw(key(index), &weights).expect("positive weights")] += 1.0;
    }
    for (count, weight) in counts.into_iter().zip(weights) {
        let probability = f64::max(weight, 0.0) / 4.5;
        let deviation = (TRIALS as f64 * probability * (1.0 - probability)).sqrt();
        assert!((count - probability * TRIALS as f64).abs() <= 5.0 * deviation, "{weight}: {count}");
    }
}

#[test]
fn weights_without_a_law_draw_nothing() {
    let mut choices = KeyedChoices::new(7, 0);
    for weights in [&[][..], &[0.0, 0.0], &[-1.0], &[f64::INFINITY, 1.0], &[f64::NAN]] {
        assert_eq!(choices.draw(key(0), weights), None, "{weights:?}");
    }
    assert_eq!(choices.draw(key(0), &[0.0, 1e-300]), Some(1));
}
