//! Speculation changes nothing: rounds with any draft emit what rounds without one emit.

mod random;

use std::sync::Arc;

use random::Random;
use spec_core::{
    AcceptanceRule, Coupled, DraftTree, Greedy, KeyedChoices, KnownLaws, LogitRows, NodeId, Noise, Origin, Outcome,
    PathLaws, PathMasks, Pipeline, RejectionReason, SamplingError, SamplingParams, ScalarScan, Scratch, Token,
    TokenMask, VerifyError,
};

/// A target whose logits are a function of the whole text before them.
struct Target {
    seed: u64,
    vocab: usize,
}

impl Target {
    fn logits(&self, text: &[Token]) -> Vec<f32> {
        let hash = text.iter().fold(self.seed, |hash, &token| (hash ^ u64::from(token)).wrapping_mul(0x100_0000_01B3));
        let mut random = Random::new(hash);
        (0..self.vocab).map(|_| (random.uniform() * 4.0) as f32).collect()
    }

    /// The rows of a pass over `tree` after `text`.
    fn rows(&self, text: &[Token], tree: &DraftTree) -> Vec<Vec<f32>> {
        let mut rows = vec![self.logits(text)];
        for (id, _) in tree.nodes() {
            let path: Vec<Token> = tree.path(id).iter().map(|&node| tree.node(node).token).collect();
            rows.push(self.logits(&[text, &path].concat()));
        }
        rows
    }
}

/// A constraint that allows one residue class at even positions and the other at odd ones.
struct ByPosition<'a> {
    tree: &'a DraftTree,
    base: usize,
    classes: [Residue; 2],
}

impl PathMasks for ByPosition<'_> {
    fn mask(&self, node: Option<NodeId>) -> Option<&dyn TokenMask> {
        let depth = node.map_or(0, |node| self.tree.depth(node));
        Some(&self.classes[(self.base + depth) % 2])
    }
}

/// One round: verifies `tree` and appends what it emits to the text and the pipeline's history.
fn round(
    rule: &dyn AcceptanceRule,
    target: &Target,
    tree: &DraftTree,
    text: &mut Vec<Token>,
    pipeline: &mut Pipeline,
    constrained: bool,
) -> Outcome {
    let rows = target.rows(text, tree);
    let before = pipeline.len();
    let masks = ByPosition { tree, base: text.len(), classes: [Residue(0), Residue(1)] };
    let masks: Option<&dyn PathMasks> = if constrained { Some(&masks) } else { None };
    let mut laws = PathLaws::new(tree, &rows, pipeline, text.len(), masks);
    let outcome = rule.verify(tree, &mut laws, &mut KeyedChoices::new(0, text.len())).expect("every row has a law");
    drop(laws);
    assert_eq!(pipeline.len(), before, "verification must leave the history as it was");
    let emitted = outcome.accepted.iter().map(|&node| tree.node(node).token).chain([outcome.next]);
    for token in emitted {
        text.push(token);
        pipeline.push(token);
    }
    outcome
}

fn plain(
    rule: &dyn AcceptanceRule,
    target: &Target,
    prompt: &[Token],
    params: &SamplingParams,
    length: usize,
    constrained: bool,
) -> Vec<Token> {
    let mut pipeline = Pipeline::new(params.clone(), target.vocab).expect("valid parameters");
    pipeline.extend(prompt);
    let mut text = prompt.to_vec();
    while text.len() < length {
        round(rule, target, &DraftTree::new(), &mut text, &mut pipeline, constrained);
    }
    text
}

/// A random tree, half of whose tokens follow what the target will say.
fn random_tree(random: &mut Random, vocab: usize, hints: &[Token]) -> DraftTree {
    let mut tree = DraftTree::new();
    for _ in 0..random.below(9) {
        let parent = match random.below(tree.len() + 1) {
            0 => None,
            // The last node often enough to grow deep.
            _ if random.below(2) == 0 => tree.nodes().last().map(|(id, _)| id),
            index => tree.nodes().nth(index - 1).map(|(id, _)| id),
        };
        let depth = parent.map_or(0, |id| tree.depth(id));
        let hint = hints.get(depth).copied().filter(|_| random.below(4) > 0);
        let token = hint.unwrap_or_else(|| random.below(vocab) as Token);
        let origin = if random.below(2) == 0 { Origin::Fixed } else { Origin::Shared };
        // A repeated sibling is refused, which only makes this tree smaller.
        let _ = tree.push(parent, token, origin);
    }
    tree
}

fn params_of(random: &mut Random, temperature: f32) -> SamplingParams {
    SamplingParams {
        temperature,
        top_k: [0, 0, 4][random.below(3)],
        top_p: [1.0, 0.9][random.below(2)],
        min_p: [0.0, 0.05][random.below(2)],
        repeat_penalty: [1.0, 1.2][random.below(2)],
        presence_penalty: [0.0, 0.3][random.below(2)],
        frequency_penalty: [0.0, 0.2][random.below(2)],
        penalty_window: [0, 3][random.below(2)],
        logit_bias: if random.below(4) == 0 { vec![(1, 0.7)] } else { vec![] },
    }
}

/// Generates with random trees and compares with plain generation; returns (drafted, accepted).
fn compare(case: usize, random: &mut Random, rule: &dyn AcceptanceRule, temperature: f32) -> (usize, usize) {
    const LENGTH: usize = 7;
    let target = Target { seed: random.bits(), vocab: 3 + random.below(10) };
    let prompt: Vec<Token> = (0..random.below(3)).map(|_| random.below(target.vocab) as Token).collect();
    let params = params_of(random, temperature);
    let expected = plain(rule, &target, &prompt, &params, LENGTH + 9, false);
    let mut pipeline = Pipeline::new(params.clone(), target.vocab).expect("valid parameters");
    pipeline.extend(&prompt);
    let mut text = prompt;
    let (mut drafted, mut accepted) = (0, 0);
    while text.len() < LENGTH {
        let tree = random_tree(random, target.vocab, &expected[text.len()..]);
        let outcome = round(rule, &target, &tree, &mut text, &mut pipeline, false);
        drafted += tree.len();
        accepted += outcome.accepted.len();
        let leaf = outcome.accepted.last().copied();
        assert_eq!(outcome.rejection.is_some(), tree.children(leaf).next().is_some(), "case {case}");
    }
    assert_eq!(text, expected[..text.len()], "case {case}: {params:?}");
    (drafted, accepted)
}

#[test]
fn coupled_emits_what_plain_sampling_emits_for_every_draft() {
    let mut random = Random::new(21);
    let (mut drafted, mut accepted) = (0, 0);
    for case in 0..100_000 {
        let rule = Coupled::new(Noise::with_choice(random.bits(), case as u32 % 3), Arc::new(ScalarScan));
        let temperature = [0.0, 0.5, 0.8, 1.5][case % 4];
        let counts = compare(case, &mut random, &rule, temperature);
        drafted += counts.0;
        accepted += counts.1;
    }
    assert!(
        accepted > 100_000 && accepted < drafted,
        "{accepted} of {drafted}: the comparison must meet both verdicts"
    );
}

#[test]
fn greedy_emits_what_plain_greedy_decoding_emits_for_every_draft() {
    let mut random = Random::new(22);
    let (mut drafted, mut accepted) = (0, 0);
    for case in 0..30_000 {
        let counts = compare(case, &mut random, &Greedy, 0.0);
        drafted += counts.0;
        accepted += counts.1;
    }
    assert!(accepted > 30_000 && accepted < drafted, "{accepted} of {drafted}: the comparison must meet both verdicts");
}

#[test]
fn rejection_at_every_position_leaves_all_processing_as_plain_decoding_has_it() {
    const VOCAB: usize = 12;
    let target = Target { seed: 5, vocab: VOCAB };
    let base = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
    let together = SamplingParams {
        top_k: 9,
        top_p: 0.95,
        min_p: 0.01,
        repeat_penalty: 1.5,
        presence_penalty: 0.5,
        frequency_penalty: 0.5,
        penalty_window: 4,
        logit_bias: vec![(2, 1.0), (3, f32::NEG_INFINITY)],
        ..base.clone()
    };
    let settings = [
        base.clone(),
        SamplingParams { top_k: 5, ..base.clone() },
        SamplingParams { top_p: 0.9, ..base.clone() },
        SamplingParams { min_p: 0.2, ..base.clone() },
        SamplingParams { repeat_penalty: 1.5, ..base.clone() },
        SamplingParams { presence_penalty: 0.8, ..base.clone() },
        SamplingParams { frequency_penalty: 0.8, penalty_window: 4, ..base.clone() },
        SamplingParams { logit_bias: vec![(2, 2.0), (3, f32::NEG_INFINITY)], ..base },
        SamplingParams { temperature: 0.0, ..together.clone() },
        together,
    ];
    let coupled = Coupled::new(Noise::new(77), Arc::new(ScalarScan));
    let prompt = [1, 2, 3, 1];
    for params in settings {
        let rule: &dyn AcceptanceRule = if params.is_greedy() { &Greedy } else { &coupled };
        for constrained in [false, true] {
            let expected = plain(rule, &target, &prompt, &params, 40, constrained);
            for wrong_at in 0..=6 {
                let mut pipeline = Pipeline::new(params.clone(), VOCAB).expect("valid parameters");
                pipeline.extend(&prompt);
                let mut text = prompt.to_vec();
                while text.len() < 30 {
                    let start = text.len();
                    let mut draft = expected[start..start + 6].to_vec();
                    if let Some(token) = draft.get_mut(wrong_at) {
                        *token = (*token + 1) % VOCAB as Token;
                    }
                    let tree = DraftTree::chain(&draft, Origin::Shared);
                    let outcome = round(rule, &target, &tree, &mut text, &mut pipeline, constrained);
                    let what = format!("{params:?}, constrained: {constrained}, wrong at {wrong_at}");
                    assert_eq!(outcome.accepted.len(), wrong_at, "{what}");
                    match outcome.rejection {
                        Some(rejection) => {
                            assert_eq!((rejection.position, rejection.token), (start + wrong_at, draft[wrong_at]));
                            assert_eq!(rejection.reason, RejectionReason::TargetDiffers);
                        }
                        None => assert_eq!(wrong_at, 6),
                    }
                    assert_eq!(text, expected[..text.len()], "{what}");
                }
            }
        }
    }
}

#[test]
fn coupled_accepts_as_often_as_shared_gumbel_noise_predicts() {
    let p = [0.45f64, 0.25, 0.15, 0.10, 0.05];
    let q = [0.15f64, 0.35, 0.20, 0.20, 0.10];
    let predicted: f64 = (0..5).map(|i| 1.0 / (0..5).map(|j| f64::max(p[j] / p[i], q[j] / q[i])).sum::<f64>()).sum();
    assert!((predicted - 0.672_830).abs() < 1e-6);

    let logits = |law: &[f64]| -> Vec<f32> { law.iter().map(|x| x.ln() as f32).collect() };
    let (target_row, drafter_row) = (vec![logits(&p); 2], logits(&q));
    let params = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let mut pipeline = Pipeline::new(params.clone(), 5).expect("valid parameters");
    let drafter = Pipeline::new(params, 5).expect("valid parameters");
    let rule = Coupled::new(Noise::new(2024), Arc::new(ScalarScan));
    let mut scratch = Scratch::default();
    const TRIALS: usize = 1_000_000;
    let (mut accepted, mut emitted) = (0usize, [0usize; 5]);
    for position in 0..TRIALS {
        let law = drafter.law(&drafter_row, None, &mut scratch).expect("a proper row");
        let mut tree = DraftTree::new();
        let mut choices = KeyedChoices::new(0, position);
        rule.proposal().propose(&mut tree, None, &law, 1, position, &mut choices).expect("a root");
        let mut laws = PathLaws::new(&tree, &target_row, &mut pipeline, position, None);
        let outcome = rule.verify(&tree, &mut laws, &mut choices).expect("proper rows");
        accepted += outcome.accepted.len();
        emitted[outcome.accepted.first().map_or(outcome.next, |&node| tree.node(node).token) as usize] += 1;
    }
    // Four standard deviations.
    let close = |count: usize, probability: f64| {
        let deviation = (probability * (1.0 - probability) / TRIALS as f64).sqrt();
        (count as f64 / TRIALS as f64 - probability).abs() < 4.0 * deviation
    };
    assert!(close(accepted, predicted), "{accepted} of {TRIALS} accepted");
    assert!((0..5).all(|token| close(emitted[token], p[token])), "{emitted:?} emitted");
}

#[test]
fn a_drafter_equal_to_the_target_is_always_accepted() {
    let target = Target { seed: 9, vocab: 40 };
    for temperature in [0.0, 0.8, 1.3] {
        let params = SamplingParams {
            temperature,
            top_p: 0.9,
            repeat_penalty: 1.2,
            penalty_window: 5,
            ..SamplingParams::default()
        };
        let rule = Coupled::new(Noise::new(6), Arc::new(ScalarScan));
        let mut pipeline = Pipeline::new(params, 40).expect("valid parameters");
        let mut text = vec![0];
        pipeline.extend(&text);
        let mut scratch = Scratch::default();
        for _ in 0..30 {
            let (committed, mut draft) = (text.len(), text.clone());
            let mut choices = KeyedChoices::new(0, committed);
            let (mut tree, mut parent) = (DraftTree::new(), None);
            for _ in 0..5 {
                let row = target.logits(&draft);
                let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
                let nodes = rule.proposal().propose(&mut tree, parent, &law, 1, draft.len(), &mut choices);
                parent = nodes.expect("a chain").first().copied();
                let token = tree.node(parent.expect("one child")).token;
                draft.push(token);
                pipeline.push(token);
            }
            pipeline.truncate(committed);
            assert_eq!(
                round(&rule, &target, &tree, &mut text, &mut pipeline, false).accepted.len(),
                5,
                "T {temperature}"
            );
        }
    }
}

/// One residue class of ids.
struct Residue(u32);

impl TokenMask for Residue {
    fn allows(&self, token: Token) -> bool {
        token % 2 == self.0
    }
}

#[test]
fn a_draft_that_leaves_the_constraint_is_rejected_where_it_does() {
    let rows = vec![vec![1.0, 5.0, 2.0, 5.0]; 4];
    // Allowed: even, odd, even. The third proposal is odd.
    let tree = DraftTree::chain(&[2, 1, 3], Origin::Fixed);
    let masks = ByPosition { tree: &tree, base: 10, classes: [Residue(0), Residue(1)] };
    let mut pipeline = Pipeline::new(SamplingParams::default(), 4).expect("valid parameters");
    let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 10, Some(&masks));
    let outcome = Greedy.verify(&tree, &mut laws, &mut KeyedChoices::new(0, 10)).expect("proper rows");
    assert_eq!((outcome.accepted.len(), outcome.next), (2, 2));
    assert_eq!(outcome.rejection.map(|rejection| (rejection.position, rejection.token)), Some((12, 3)));
}

#[test]
fn a_row_without_a_law_is_an_error_only_on_the_path() {
    let tree = DraftTree::chain(&[1, 0], Origin::Fixed);
    let judge = |rows: Vec<Vec<f32>>| {
        let mut pipeline = Pipeline::new(SamplingParams::default(), 2).expect("valid parameters");
        pipeline.extend(&[0, 0, 0]);
        let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 3, None);
        let result = Greedy.verify(&tree, &mut laws, &mut KeyedChoices::new(0, 3));
        drop(laws);
        assert_eq!(pipeline.len(), 3, "an error, too, leaves the history as it was");
        result
    };
    let (zero, one, bad) = (vec![1.0, 0.0], vec![0.0, 1.0], vec![f32::NAN, 0.0]);
    assert_eq!(judge(vec![zero.clone(), bad.clone(), bad.clone()]).map(|outcome| outcome.next), Ok(0));
    assert!(matches!(
        judge(vec![one.clone(), bad.clone(), bad]),
        Err(VerifyError::Sampling(SamplingError::LogitValue { token: 0, .. }))
    ));
    assert_eq!(
        judge(vec![one, zero]).map(|outcome| outcome.next),
        Err(VerifyError::Sampling(SamplingError::RowTooShort { found: 0, vocab: 2 }))
    );
}

#[test]
fn greedy_needs_no_row_whose_most_probable_token_is_known() {
    let mut tree = DraftTree::chain(&[1, 2, 0], Origin::Fixed);
    let wrong = tree.push(None, 3, Origin::Fixed).expect("a second child");
    // Row 2, behind token 2, ties: the lowest id counts. Nothing is asked of the rows below a wrong token.
    let rows = vec![vec![], vec![], vec![1.0, 1.0, 0.0, 0.0], vec![], vec![]];
    let known = [Some(1), Some(2), None, Some(3), None];
    let mut pipeline = Pipeline::new(SamplingParams::default(), 4).expect("valid parameters");
    let mut laws = KnownLaws { known: &known, laws: PathLaws::new(&tree, &rows, &mut pipeline, 0, None) };
    let outcome = Greedy.verify(&tree, &mut laws, &mut KeyedChoices::new(0, 0)).expect("every row is known");
    let accepted: Vec<Token> = outcome.accepted.iter().map(|&node| tree.node(node).token).collect();
    assert_eq!((accepted, outcome.next, outcome.rejection), (vec![1, 2, 0], 3, None));
    assert!(!outcome.accepted.contains(&wrong));
}

#[test]
fn rows_in_one_slice_are_cut_by_width() {
    let rows = spec_core::FlatRows { logits: &[1.0, 2.0, 3.0, 4.0], width: 2 };
    assert_eq!([rows.row(0), rows.row(1), rows.row(2), rows.row(usize::MAX)], [&[1.0, 2.0][..], &[3.0, 4.0], &[], &[]]);
}
