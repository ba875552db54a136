//! Several rounds with the production keys, and a statistic of what they emit.

use std::vec;
use std::vec::Vec;

use super::sampled;
use super::world::softmax;
use crate::{AcceptanceRule, Block, DraftTree, KeyedChoices, PathLaws, Pipeline, Scratch, Token};

const LENGTH: usize = 5;

/// Logits by the last token: the target's and the drafter's.
const TARGET: [[f32; 2]; 2] = [[0.4, -0.5], [-0.3, 0.6]];
const DRAFTER: [[f32; 2]; 2] = [[-0.8, 0.9], [0.9, -0.8]];

/// Chi-square of the first five tokens over `runs` seeds, rounds of three draft tokens under `Block`, and a limit that chance
/// passes once in about 10^6.
pub(super) fn block_statistic(runs: u64) -> (f64, f64) {
    let mut counts = vec![0u64; 1 << LENGTH];
    let mut pipeline = Pipeline::new(sampled(), 2).expect("valid parameters");
    let mut scratch = Scratch::default();
    for seed in 0..runs {
        let mut text: Vec<Token> = vec![0];
        while text.len() <= LENGTH {
            let mut choices = KeyedChoices::new(seed, text.len());
            let mut tree = DraftTree::new();
            let (mut last, mut parent) = (text[text.len() - 1], None);
            for depth in 0..3 {
                let law = pipeline.law(&DRAFTER[last as usize], None, &mut scratch).expect("a proper row");
                let nodes = Block.proposal().propose(&mut tree, parent, &law, 1, text.len() + depth, &mut choices);
                parent = nodes.expect("a chain").first().copied();
                last = tree.node(parent.expect("one child")).token;
            }
            let scored = [text[text.len() - 1]].into_iter().chain(tree.nodes().map(|(_, node)| node.token));
            let rows: Vec<Vec<f32>> = scored.map(|token| TARGET[token as usize].to_vec()).collect();
            let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, text.len(), None);
            let outcome = Block.verify(&tree, &mut laws, &mut choices).expect("a chain");
            drop(laws);
            text.extend(outcome.accepted.iter().map(|&node| tree.node(node).token));
            text.push(outcome.next);
        }
        let cell = text[1..=LENGTH].iter().fold(0, |cell, &token| cell * 2 + token as usize);
        counts[cell] += 1;
    }
    let laws = TARGET.map(|row| softmax(&row));
    let mut statistic = 0.0;
    for (cell, &count) in counts.iter().enumerate() {
        let (mut expected, mut last) = (runs as f64, 0);
        for place in (0..LENGTH).rev() {
            let token = cell >> place & 1;
            expected *= laws[last][token];
            last = token;
        }
        statistic += (count as f64 - expected) * (count as f64 - expected) / expected;
    }
    let freedom = (counts.len() - 1) as f64;
    (statistic, freedom + 5.0 * (2.0 * freedom).sqrt())
}
