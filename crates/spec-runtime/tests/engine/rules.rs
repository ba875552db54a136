//! Rules chosen by name, over real rounds.

use super::*;

use spec_core::{Block, Epsilon, EpsilonPublished, Goodput, RuleName, Siblings};
use spec_runtime::RequestRule;

fn named(rule: &str) -> Option<RequestRule> {
    Some(rule.parse::<RuleName>().expect("a rule of the table").into())
}

#[test]
fn a_models_own_copy_is_accepted_whole_by_every_lossless_rule() {
    let settings = [
        sampled(0.8),
        sampled(1.5),
        SamplingParams { top_p: 0.9, repeat_penalty: 1.2, presence_penalty: 0.3, ..sampled(0.9) },
        SamplingParams { top_k: 4, ..sampled(1.0) },
        sampled(0.0),
    ];
    for rule in ["coupled", "rejection", "rejection-independent", "block"] {
        for sampling in &settings {
            for k in [1, 4, 7] {
                let spec = HashSpec::default();
                let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(model_drafter(spec));
                let with = Request { sampling: sampling.clone(), rule: named(rule), ..request(200, k) };
                let got = run(&mut engine, with);
                assert_eq!(got.speculation.accepted, got.speculation.drafted, "{rule}, k {k}, {sampling:?}");
                assert!(got.speculation.drafted >= 99, "{rule}, k {k}");
                assert_eq!(got.rule, rule.trim_end_matches("-independent"));
            }
        }
    }
}

#[test]
fn a_random_drafter_is_accepted_as_often_as_its_law_overlaps() {
    let spec = HashSpec { vocab: 16, context: 4096, blocks: 300, ..HashSpec::default() };
    let other = HashSpec { seed: 4, ..spec.clone() };
    let (target, draft) = (HashModel::new(spec.clone()), HashModel::new(other.clone()));
    let law = |model: &HashModel, text: &[Token]| -> Vec<f64> {
        let weights: Vec<f64> = model.logits_of(text).iter().map(|&logit| f64::from(logit).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    };
    let with = Request { sampling: sampled(1.0), rule: named("rejection"), ..request(4000, 1) };
    let got = run(&mut engine(&target).with_drafter(model_drafter(other)), with);
    // Each text that was drafted behind has its own overlap.
    let text: Vec<Token> = PROMPT.iter().chain(&got.tokens).copied().collect();
    let overlaps: Vec<f64> = (PROMPT.len() + 1..text.len())
        .map(|length| {
            let (p, q) = (law(&target, &text[..length]), law(&draft, &text[..length]));
            p.iter().zip(&q).map(|(p, q)| p.min(*q)).sum()
        })
        .collect();
    let expected = overlaps.iter().sum::<f64>() / overlaps.len() as f64;
    let rate = got.speculation.acceptance_rate();
    assert!(expected < 0.6, "the drafter is another model: {expected}");
    assert!((rate - expected).abs() < 0.05, "{rate} accepted, {expected} overlap");
}

#[test]
fn a_seed_repeats_under_rules_that_draw_and_choices_differ() {
    let spec = HashSpec::default();
    for rule in ["rejection", "block", "entropy", "typical", "epsilon:0.1", "epsilon-published"] {
        let text = |choice, seed| {
            let drafter = model_drafter(HashSpec { noise: 0.3, ..spec.clone() });
            let with =
                Request { sampling: sampled(1.0), rule: named(rule), choice, seed: Some(seed), ..request(48, 4) };
            let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(drafter), with);
            assert!(got.speculation.drafted > 0 && got.speculation.accepted > 0, "{rule}");
            got.tokens
        };
        assert_eq!(text(0, 7), text(0, 7), "{rule}");
        assert_ne!(text(0, 7), text(1, 7), "{rule}");
        assert_ne!(text(0, 7), text(0, 8), "{rule}");
    }
}

#[test]
fn min_p_holds_for_accepted_corrected_and_bonus_tokens() {
    let spec = HashSpec::default();
    let model = HashModel::new(spec.clone());
    for rule in ["coupled", "rejection", "block"] {
        let drafter = model_drafter(HashSpec { noise: 0.3, ..spec.clone() });
        let sampling = SamplingParams { min_p: 0.5, ..sampled(1.0) };
        let got =
            run(&mut engine(&model).with_drafter(drafter), Request { sampling, rule: named(rule), ..request(200, 4) });
        assert!(got.speculation.accepted > 20 && got.speculation.accepted < got.speculation.drafted, "{rule}");
        let mut text = PROMPT.to_vec();
        for &token in &got.tokens {
            let row = model.logits_of(&text);
            let max = row.iter().copied().fold(f32::MIN, f32::max);
            assert!(f64::from(row[token as usize] - max).exp() >= 0.499, "{rule}: {token} after {text:?}");
            text.push(token);
        }
    }
}

#[test]
fn greedy_text_is_the_same_under_every_lossless_rule() {
    let spec = HashSpec::default();
    let expected = plain(&spec, request(80, 0)).tokens;
    for rule in ["greedy", "coupled", "rejection", "block"] {
        for (name, drafter) in drafters(&spec) {
            let got = run(
                &mut engine(&HashModel::new(spec.clone())).with_drafter(drafter),
                Request { rule: named(rule), ..request(80, 5) },
            );
            assert_eq!(got.tokens, expected, "{rule}, {name}");
        }
    }
}

#[test]
fn block_refuses_a_drafter_that_branches_before_it_drafts() {
    let mut tree = spec_core::DraftTree::new();
    for token in [1, 2] {
        tree.push(None, token, spec_core::Origin::Fixed).unwrap();
    }
    let drafter = Box::new(ScriptedDrafter::trees([tree]));
    let target = HashModel::new(HashSpec::default());
    let mut engine = engine(&target).with_drafter(drafter);
    let message =
        error(engine.generate(Request { rule: Some(RequestRule::Own(Box::new(Block))), ..request(8, 4) }, &mut |_| {}));
    assert!(message.contains("rule: block judges chains") && message.contains("scripted"), "{message}");
    assert_eq!(target.passes(), 0);
}

#[test]
fn the_published_epsilon_refuses_drafters_without_laws() {
    let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(Box::new(NgramDrafter::new()));
    let message = error(engine.generate(
        Request { rule: Some(RequestRule::Own(Box::new(EpsilonPublished(0.01)))), ..request(8, 4) },
        &mut |_| {},
    ));
    assert!(message.contains("epsilon-published") && message.contains("ngram"), "{message}");
    // The other reading takes such a proposal as certain.
    run(&mut engine, Request { rule: Some(RequestRule::Own(Box::new(Epsilon(0.01)))), ..request(8, 4) });
}

#[test]
fn greedy_is_refused_for_sampling() {
    let target = HashModel::new(HashSpec::default());
    let with = Request { sampling: sampled(0.7), rule: named("greedy"), ..request(8, 4) };
    let message = error(engine(&target).generate(with, &mut |_| {}));
    assert!(message.contains("temperature is 0.7"), "{message}");
}

/// A drafter that draws one node more than it may.
struct Overrun;

impl Drafter for Overrun {
    fn name(&self) -> &str {
        "overrun"
    }
    fn draft(&mut self, context: spec_runtime::DraftContext<'_>) -> Result<spec_core::DraftTree, RuntimeError> {
        let mut tree = spec_core::DraftTree::new();
        let mut parent = None;
        for index in 0..=context.budget {
            let mut scratch = spec_core::Scratch::default();
            let law = context.pipeline.law(&[0.0; 32], None, &mut scratch).expect("a proper row");
            let proposal = spec_core::Proposal::Sampled(Siblings::Distinct);
            let position = context.tokens.len() + index;
            let nodes = proposal.propose(&mut tree, parent, &law, 1, position, context.choices);
            parent = nodes.expect("a chain").first().copied();
        }
        Ok(tree)
    }
    fn observe(&mut self, _: spec_runtime::GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }
    fn forget(&mut self, _: spec_runtime::GenerationId) {}
}

#[test]
fn a_drawn_node_beyond_the_budget_is_an_error_and_is_not_dropped() {
    let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(Box::new(Overrun));
    let message = error(
        engine.generate(Request { rule: named("rejection"), sampling: sampled(1.0), ..request(9, 3) }, &mut |_| {}),
    );
    assert!(message.contains("overrun") && message.contains("was drawn and must be submitted"), "{message}");
}

#[test]
fn goodput_changes_time_and_not_the_text() {
    let spec = HashSpec { order: 3, ..HashSpec::default() };
    let expected = plain(&spec, request(300, 0)).tokens;
    for (name, drafter) in drafters(&spec) {
        let target = HashModel::new(spec.clone());
        let mut engine = engine(&target).with_drafter(drafter);
        let got = run(&mut engine, Request { draft_len: Box::new(Goodput::new(8)), ..request(300, 0) });
        assert_eq!(got.tokens, expected, "{name}");
        assert!(got.speculation.drafted > 0, "{name}: it was tried");
        assert_eq!(target.free_blocks(), spec.blocks, "{name}");
    }
}

#[test]
fn a_trial_looks_at_the_end_of_the_text_and_leaves_the_drafters_cache_alone() {
    struct Trials(usize);
    impl LengthPolicy for Trials {
        fn next(&mut self) -> usize {
            self.0 += 1;
            3
        }
        fn context(&self) -> Option<usize> {
            (self.0 % 3 == 1).then_some(6)
        }
        fn observe(&mut self, _: &spec_core::Round) {}
    }
    // Rows depend on the last four tokens, so that six are enough.
    let spec = HashSpec { order: 4, ..HashSpec::default() };
    let draft = HashModel::new(spec.clone());
    let drafter = Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>));
    let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(drafter);
    let got = run(&mut engine, Request { draft_len: Box::new(Trials(0)), ..request(200, 0) });
    assert_eq!(got.tokens, plain(&spec, request(200, 0)).tokens);
    assert_eq!(got.speculation.accepted, got.speculation.drafted);
    assert!(got.speculation.drafted > 100);
    assert_eq!(draft.free_blocks(), spec.blocks);
}
