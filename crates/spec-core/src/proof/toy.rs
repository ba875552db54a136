//! Figures computed elsewhere by other means, for small laws: this crate must come to the same.

use std::vec::Vec;

use super::world::{Drafting, World, logits};
use super::{DISTINCT, INDEPENDENT, sampled};
use crate::{AcceptanceRule, Block, Token};

/// Mean number of accepted tokens.
fn accepted(
    target: &dyn Fn(&[Token]) -> Vec<f32>,
    drafter: &dyn Fn(&[Token]) -> Vec<f32>,
    vocab: usize,
    rule: &dyn AcceptanceRule,
    shape: &[usize],
    drafting: Drafting,
) -> f64 {
    let world = World {
        vocab,
        prompt: &[],
        target,
        drafter,
        params: sampled(),
        drafter_params: None,
        rule,
        shape,
        drafting,
        end: None,
    };
    let found = world.explore().expect("a proper world");
    assert!(found.distance < 1e-9, "{:e}", found.distance);
    found.accepted
}

fn near(found: f64, figure: f64) {
    assert!((found - figure).abs() < 1e-6, "{found} for {figure}");
}

#[test]
fn markov_chains_accept_as_many_tokens_as_computed_elsewhere() {
    let p = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.7, 0.1, 0.2], [0.1, 0.2, 0.7]];
    let q = [[0.2, 0.5, 0.3], [0.5, 0.2, 0.3], [0.3, 0.4, 0.3], [0.4, 0.4, 0.2]];
    let row = |text: &[Token]| text.last().map_or(0, |&token| token as usize + 1);
    let (target, drafter) = (|text: &[Token]| logits(&p[row(text)]), |text: &[Token]| logits(&q[row(text)]));
    let chain = [1, 1, 1];
    near(accepted(&target, &drafter, 3, &DISTINCT, &chain, Drafting::Proposal), 1.192);
    near(accepted(&target, &drafter, 3, &Block, &chain, Drafting::Proposal), 1.407);
    near(accepted(&target, &drafter, 3, &DISTINCT, &chain, Drafting::Matched), 0.414_627);
}

#[test]
fn one_position_accepts_as_often_as_computed_elsewhere() {
    let (p, q) = ([0.45, 0.25, 0.15, 0.10, 0.05], [0.15, 0.35, 0.20, 0.20, 0.10]);
    let (target, drafter) = (|_: &[Token]| logits(&p), |_: &[Token]| logits(&q));
    let rate = |rule, shape: &[usize], drafting| accepted(&target, &drafter, 5, rule, shape, drafting);
    near(rate(&DISTINCT, &[1], Drafting::Proposal), 0.7);
    near(rate(&Block, &[1], Drafting::Proposal), 0.7);
    near(rate(&DISTINCT, &[1], Drafting::Top), 0.25);
    near(rate(&INDEPENDENT, &[3], Drafting::Proposal), 0.783_25);
    near(rate(&DISTINCT, &[3], Drafting::Proposal), 0.829_577);
    // The fixed set {0, 1, 2} has .85; the drafter's own top three, {1, 2, 3} for its ties go to the lowest id, has .5.
    near(rate(&DISTINCT, &[3], Drafting::Top), 0.5);
}
