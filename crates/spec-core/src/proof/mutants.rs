//! Faults seeded into the rule: the enumeration finds each, or a statistic where the fault is one of keys over rounds.

use std::format;
use std::string::String;

use super::rounds;
use super::world::{Drafting, Rows, World, logits};
use super::{DISTINCT, EXACT, sampled};
use crate::mutant::{self, Mutant};
use crate::{AcceptanceRule, Block, SamplingParams, Token};

/// Runs worlds with the fault and without it; gives why the suite fails with it. Without it the suite must pass.
fn verdict(fault: Mutant, rule: &dyn AcceptanceRule, shape: &[usize], params: &SamplingParams) -> Option<String> {
    let explore = || {
        for seed in 0..6u64 {
            let world = World {
                vocab: 4,
                prompt: &[],
                target: &|text| Rows::Random.row(seed, 4, text),
                drafter: &|text| Rows::Random.row(seed + 50, 4, text),
                params: params.clone(),
                drafter_params: None,
                rule,
                shape,
                drafting: Drafting::Proposal,
                end: None,
            };
            match world.explore() {
                Err(error) => return Some(error),
                Ok(found) if found.distance > EXACT => return Some(format!("off by {:e}", found.distance)),
                Ok(_) => {}
            }
        }
        None
    };
    assert_eq!(explore(), None, "without the fault");
    mutant::with(fault, explore)
}

#[test]
fn q_recorded_before_top_p_is_found() {
    let params = SamplingParams { top_p: 0.6, ..sampled() };
    assert!(verdict(Mutant::RecordBeforeFilters, &DISTINCT, &[1, 1], &params).is_some());
    assert!(verdict(Mutant::RecordBeforeFilters, &Block, &[1, 1], &params).is_some());
}

#[test]
fn an_acceptance_choice_shared_between_siblings_is_found() {
    let found = verdict(Mutant::SharedAcceptKey, &DISTINCT, &[2], &sampled());
    assert!(found.is_some_and(|why| why.contains("used twice")));
}

#[test]
fn a_residual_that_is_not_normalised_is_found() {
    assert!(verdict(Mutant::ResidualNotNormalised, &DISTINCT, &[2], &sampled()).is_some());
}

#[test]
fn a_sibling_law_that_is_not_normalised_is_found() {
    assert!(verdict(Mutant::SiblingLawNotNormalised, &DISTINCT, &[2], &sampled()).is_some());
}

#[test]
fn a_token_withheld_by_its_own_probability_is_found() {
    for rule in [&DISTINCT as &dyn AcceptanceRule, &Block] {
        assert!(verdict(Mutant::WithheldByOwnProbability, rule, &[1, 1], &sampled()).is_some());
    }
    assert!(verdict(Mutant::WithheldByOwnProbability, &DISTINCT, &[2], &sampled()).is_some());
}

#[test]
fn withheld_tokens_are_off_by_as_much_as_computed_elsewhere() {
    let world = |mutant, p: &'static [f64], q: &'static [f64], shape: &'static [usize]| {
        let (target, drafter) = (move |_: &[Token]| logits(p), move |_: &[Token]| logits(q));
        let world = World {
            vocab: p.len(),
            prompt: &[],
            target: &target,
            drafter: &drafter,
            params: sampled(),
            drafter_params: None,
            rule: &DISTINCT,
            shape,
            drafting: Drafting::Proposal,
            end: None,
        };
        mutant::with(mutant, || world.explore().expect("a proper world").variation)
    };
    let off = world(Mutant::WithheldByOwnProbability, &[0.5, 0.5], &[0.9, 0.1], &[1]);
    assert!((off - 0.05).abs() < 1e-6, "{off}");
    let off = world(Mutant::WithheldSibling, &[0.4, 0.35, 0.15, 0.1], &[0.1, 0.15, 0.5, 0.25], &[2]);
    assert!((off - 0.045).abs() < 1e-6, "{off}");
}

#[test]
fn keys_without_the_round_are_found() {
    let (statistic, limit) = rounds::block_statistic(100_000);
    assert!(statistic < limit, "with the round in the key: {statistic}, limit {limit}");
    let (statistic, limit) = mutant::with(Mutant::KeyWithoutRound, || rounds::block_statistic(100_000));
    assert!(statistic > limit, "without it: {statistic}, limit {limit}");
}
