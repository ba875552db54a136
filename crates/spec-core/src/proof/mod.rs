//! Proof that the rules are exact: the code that ships, drafting included, run for every way its choices can fall, and the
//! law of what it emits compared with the target's. And proof that the proof can fail: known faults, seeded one at a time.

mod every;
mod mutants;
mod rounds;
mod toy;
mod world;

use std::vec::Vec;

use world::{Drafting, Rows, World};

use crate::{AcceptanceRule, Block, RejectionRule, SamplingParams, Siblings, Token};

/// The bound that the enumerated law has to keep.
const EXACT: f64 = 1e-9;

const DISTINCT: RejectionRule = RejectionRule { siblings: Siblings::Distinct };
const INDEPENDENT: RejectionRule = RejectionRule { siblings: Siblings::Independent };

fn sampled() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::default() }
}

/// Pairs of kinds of rows, target first.
const PAIRS: [(Rows, Rows); 10] = [
    (Rows::Random, Rows::Random),
    (Rows::Random, Rows::Peaked),
    (Rows::Peaked, Rows::Random),
    (Rows::Zeros, Rows::Zeros),
    (Rows::Ties, Rows::Ties),
    (Rows::Even, Rows::Odd),
    (Rows::Zeros, Rows::Random),
    (Rows::Random, Rows::Zeros),
    (Rows::Certain, Rows::Random),
    (Rows::Random, Rows::Certain),
];

/// The worst distance over rows of all kinds, and over seeds.
fn worst(
    rule: &dyn AcceptanceRule,
    drafting: Drafting,
    vocab: usize,
    shape: &[usize],
    seeds: core::ops::Range<u64>,
    params: &SamplingParams,
    end: Option<Token>,
) -> f64 {
    let mut worst = 0.0f64;
    for (target, drafter) in PAIRS {
        for seed in seeds.clone() {
            let world = World {
                vocab,
                prompt: &[0, 1],
                target: &|text| target.row(seed, vocab, text),
                drafter: &|text| drafter.row(seed + 1000, vocab, text),
                params: params.clone(),
                drafter_params: None,
                rule,
                shape,
                drafting,
                end,
            };
            let what = || std::format!("{} {drafting:?} {target:?}/{drafter:?} {vocab} {shape:?} {seed}", rule.name());
            let found = world.explore().unwrap_or_else(|error| panic!("{}: {error}", what()));
            assert!(found.distance < EXACT, "{}: {:e} from the target's law", what(), found.distance);
            worst = worst.max(found.distance);
        }
    }
    worst
}

#[test]
fn chains_have_the_targets_law_under_rejection_and_block() {
    for rule in [&DISTINCT as &dyn AcceptanceRule, &INDEPENDENT, &Block] {
        for (vocab, seeds) in [(2, 6), (3, 4), (4, 2)] {
            for shape in [&[1][..], &[1, 1], &[1, 1, 1]] {
                for drafting in [Drafting::Proposal, Drafting::Top] {
                    worst(rule, drafting, vocab, shape, 0..seeds, &sampled(), None);
                }
            }
        }
    }
}

#[test]
fn a_draft_may_end_behind_a_token_that_was_drawn() {
    for rule in [&DISTINCT as &dyn AcceptanceRule, &Block] {
        for end in 0..3 {
            worst(rule, Drafting::Proposal, 3, &[1, 1, 1], 0..3, &sampled(), Some(end));
        }
    }
    worst(&DISTINCT, Drafting::Proposal, 3, &[2, 1], 0..3, &sampled(), Some(1));
}

/// The shapes that every run of the tests proves; children per node, by level.
const SHAPES: [&[usize]; 5] = [&[2], &[2, 1], &[2, 2], &[3, 1], &[2, 1, 1]];

fn trees(rule: RejectionRule, drafting: Drafting) {
    for shape in SHAPES {
        for vocab in [2, 3] {
            worst(&rule, drafting, vocab, shape, 0..2, &sampled(), None);
        }
        worst(&rule, drafting, 4, shape, 0..1, &sampled(), None);
    }
}

#[test]
fn trees_of_siblings_without_replacement_have_the_targets_law() {
    trees(DISTINCT, Drafting::Proposal);
}

#[test]
fn trees_of_independent_siblings_have_the_targets_law() {
    trees(INDEPENDENT, Drafting::Proposal);
}

#[test]
fn trees_of_given_siblings_have_the_targets_law() {
    trees(DISTINCT, Drafting::Top);
}

#[test]
fn given_and_drawn_siblings_mix() {
    trees(DISTINCT, Drafting::Mixed);
    trees(INDEPENDENT, Drafting::Mixed);
}

/// Takes minutes: `cargo xtask proof` runs it.
#[test]
#[ignore = "minutes; for the long run"]
fn long_bigger_trees_have_the_targets_law() {
    for rule in [DISTINCT, INDEPENDENT] {
        for shape in [&[3, 2][..], &[2, 2, 1], &[4, 1], &[3, 1, 1]] {
            worst(&rule, Drafting::Proposal, 3, shape, 0..4, &sampled(), None);
        }
        worst(&rule, Drafting::Proposal, 4, &[3, 2], 0..1, &sampled(), None);
    }
    for rule in [&DISTINCT as &dyn AcceptanceRule, &Block] {
        worst(rule, Drafting::Proposal, 4, &[1, 1, 1, 1], 0..4, &sampled(), None);
        worst(rule, Drafting::Proposal, 3, &[1, 1, 1, 1, 1], 0..4, &sampled(), None);
    }
}

#[test]
fn processing_along_a_path_keeps_the_targets_law() {
    let base = sampled();
    let settings = [
        SamplingParams { temperature: 0.0, ..base.clone() },
        SamplingParams { temperature: 0.6, ..base.clone() },
        SamplingParams { top_k: 2, ..base.clone() },
        SamplingParams { top_p: 0.7, ..base.clone() },
        SamplingParams { min_p: 0.3, ..base.clone() },
        SamplingParams { repeat_penalty: 1.8, ..base.clone() },
        SamplingParams { presence_penalty: 0.8, ..base.clone() },
        SamplingParams { frequency_penalty: 0.7, penalty_window: 2, ..base.clone() },
        SamplingParams { logit_bias: Vec::from([(1, 1.5), (2, f32::NEG_INFINITY)]), ..base.clone() },
        SamplingParams {
            temperature: 0.8,
            top_k: 3,
            top_p: 0.9,
            min_p: 0.05,
            repeat_penalty: 1.3,
            presence_penalty: 0.4,
            frequency_penalty: 0.3,
            penalty_window: 3,
            logit_bias: Vec::from([(0, 0.5)]),
        },
    ];
    // Only rows without masks: a bias of minus infinity must leave something.
    for params in settings {
        for (target, drafter) in
            [(Rows::Random, Rows::Random), (Rows::Peaked, Rows::Random), (Rows::Ties, Rows::Peaked)]
        {
            for (rule, shape) in [
                (&DISTINCT as &dyn AcceptanceRule, &[1, 1, 1][..]),
                (&Block, &[1, 1, 1]),
                (&DISTINCT, &[2, 2]),
                (&INDEPENDENT, &[2, 1]),
            ] {
                let world = World {
                    vocab: 4,
                    prompt: &[0, 1],
                    target: &|text| target.row(3, 4, text),
                    drafter: &|text| drafter.row(4, 4, text),
                    params: params.clone(),
                    drafter_params: None,
                    rule,
                    shape,
                    drafting: Drafting::Proposal,
                    end: None,
                };
                let found = world.explore().expect("a proper world");
                assert!(found.distance < EXACT, "{} {shape:?} {params:?}: {:e}", rule.name(), found.distance);
            }
        }
    }
}

#[test]
fn a_drafter_that_processes_otherwise_than_the_target_keeps_the_targets_law() {
    let drafters = [
        SamplingParams { temperature: 0.5, ..sampled() },
        SamplingParams { temperature: 1.5, ..sampled() },
        SamplingParams { temperature: 0.0, ..sampled() },
        SamplingParams { top_k: 2, ..sampled() },
        SamplingParams { top_p: 0.6, repeat_penalty: 1.5, ..sampled() },
    ];
    for drafter in drafters {
        for (rule, shape) in [(&DISTINCT as &dyn AcceptanceRule, &[1, 1][..]), (&Block, &[1, 1]), (&DISTINCT, &[2, 1])]
        {
            let world = World {
                vocab: 4,
                prompt: &[0, 1],
                target: &|text| Rows::Random.row(5, 4, text),
                drafter: &|text| Rows::Random.row(6, 4, text),
                params: sampled(),
                drafter_params: Some(drafter.clone()),
                rule,
                shape,
                drafting: Drafting::Proposal,
                end: None,
            };
            let found = world.explore().expect("a proper world");
            assert!(found.distance < EXACT, "{} {drafter:?}: {:e}", rule.name(), found.distance);
        }
    }
}

#[test]
fn a_law_with_fewer_tokens_than_siblings_wanted_gives_a_shorter_list() {
    use crate::{DraftTree, KeyedChoices, Pipeline, Proposal, Scratch};
    let pipeline = Pipeline::new(sampled(), 4).expect("valid parameters");
    let (masked, mut scratch) = (f32::NEG_INFINITY, Scratch::default());
    let row = [1.0, masked, 0.0, masked];
    let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
    for (proposal, count) in [
        (Proposal::Sampled(Siblings::Distinct), 2..=2),
        (Proposal::Sampled(Siblings::Independent), 1..=2),
        (Proposal::Argmax, 2..=2),
    ] {
        let mut tree = DraftTree::new();
        let nodes =
            proposal.propose(&mut tree, None, &law, 3, 0, &mut KeyedChoices::new(1, 0)).expect("a proper parent");
        assert!(count.contains(&nodes.len()), "{proposal:?}: {}", nodes.len());
        assert_eq!(tree.len(), nodes.len());
    }
}
