//! Verifies a draft against logits that the caller brings, with this crate alone: `cargo run --example verify_rows`.
//!
//! The "models" are tables of logits by previous token; any engine that returns one row per scored token takes their place.

use std::sync::Arc;

use spec_core::{
    AcceptanceRule, Coupled, DraftTree, KeyedChoices, Noise, PathLaws, Pipeline, SamplingParams, ScalarScan, Scratch,
    Token,
};

const VOCAB: usize = 5;
const SEED: u64 = 42;

/// Target logits after each token.
const TARGET: [[f32; VOCAB]; VOCAB] = [
    [0.1, 2.0, 0.3, 0.2, 1.0],
    [1.5, 0.2, 2.5, 0.1, 0.4],
    [0.3, 0.4, 0.2, 2.2, 0.6],
    [1.9, 0.3, 0.5, 0.2, 1.1],
    [0.2, 0.9, 1.2, 1.4, 0.1],
];

/// The drafter: the same, less certain.
fn drafter_row(token: Token) -> Vec<f32> {
    TARGET[token as usize].iter().map(|logit| logit * 0.6).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let params = SamplingParams { temperature: 0.8, top_p: 0.95, repeat_penalty: 1.1, ..SamplingParams::default() };
    let mut pipeline = Pipeline::new(params, VOCAB)?;
    let rule = Coupled::new(Noise::new(SEED), Arc::new(ScalarScan));
    let mut text: Vec<Token> = vec![0];
    pipeline.extend(&text);

    let mut scratch = Scratch::default();
    while text.len() < 25 {
        // Draft three tokens. The history advances with the draft and is taken back after it.
        let committed = text.len();
        let mut choices = KeyedChoices::new(SEED, committed);
        let (mut tree, mut parent, mut last) = (DraftTree::new(), None, text[committed - 1]);
        for depth in 0..3 {
            let row = drafter_row(last);
            let law = pipeline.law(&row, None, &mut scratch)?;
            let nodes = rule.proposal().propose(&mut tree, parent, &law, 1, committed + depth, &mut choices)?;
            let node = nodes[0];
            (parent, last) = (Some(node), tree.node(node).token);
            pipeline.push(last);
        }
        pipeline.truncate(committed);
        let draft: Vec<Token> = tree.nodes().map(|(_, node)| node.token).collect();

        // One row after the committed text and one after each draft token: what a target pass returns.
        let scored = [text[committed - 1]].into_iter().chain(draft.iter().copied());
        let rows: Vec<Vec<f32>> = scored.map(|token| TARGET[token as usize].to_vec()).collect();

        let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, committed, None);
        let outcome = rule.verify(&tree, &mut laws, &mut choices)?;
        drop(laws);

        let accepted: Vec<Token> = outcome.accepted.iter().map(|&node| tree.node(node).token).collect();
        println!("drafted {draft:?}, accepted {accepted:?}, then {}", outcome.next);
        for token in accepted.into_iter().chain([outcome.next]) {
            text.push(token);
            pipeline.push(token);
        }
    }
    println!("text {text:?}");
    Ok(())
}
