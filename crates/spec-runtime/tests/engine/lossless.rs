use super::*;

/// Sampling settings under which speculation must change nothing.
fn settings() -> Vec<(&'static str, SamplingParams)> {
    let base = sampled(0.8);
    vec![
        ("greedy", sampled(0.0)),
        ("temperature", base.clone()),
        ("hot", sampled(2.0)),
        ("top-p", SamplingParams { top_p: 0.95, ..base.clone() }),
        ("top-k", SamplingParams { top_k: 5, ..base.clone() }),
        ("min-p", SamplingParams { min_p: 0.5, temperature: 1.0, ..base.clone() }),
        ("greedy repeat penalty", SamplingParams { repeat_penalty: 1.3, ..sampled(0.0) }),
        ("greedy presence penalty", SamplingParams { presence_penalty: 1.0, ..sampled(0.0) }),
        (
            "everything",
            SamplingParams {
                top_k: 20,
                top_p: 0.9,
                min_p: 0.02,
                repeat_penalty: 1.1,
                presence_penalty: 0.3,
                frequency_penalty: 0.2,
                logit_bias: vec![(3, 1.5), (4, f32::NEG_INFINITY)],
                ..base
            },
        ),
    ]
}

#[test]
fn speculation_never_changes_the_output() {
    let mut drafted = std::collections::BTreeMap::new();
    for order in [2, usize::MAX] {
        let spec = HashSpec { order, ..HashSpec::default() };
        for (setting, sampling) in settings() {
            for k in [1, 2, 5, 7, 48] {
                let with = |k| Request { sampling: sampling.clone(), logprobs: Some(3), ..request(120, k) };
                let expected = plain(&spec, with(k));
                for (name, drafter) in drafters(&spec) {
                    let target = HashModel::new(spec.clone());
                    let mut engine = engine(&target).with_drafter(drafter);
                    let got = run(&mut engine, with(k));
                    let what = format!("{name}, {setting}, k {k}, order {order}");
                    assert_eq!(got.tokens, expected.tokens, "{what}");
                    assert_eq!(got.text, expected.text, "{what}");
                    assert_eq!(got.logprobs, expected.logprobs, "{what}");
                    assert_eq!(got.finish, expected.finish, "{what}");
                    assert_eq!(target.free_blocks(), spec.blocks, "{what}: blocks leak");
                    *drafted.entry(name).or_insert(0) += got.speculation.drafted;
                    if name != "ngram" {
                        assert!(
                            got.speculation.drafted_rounds + 1 >= got.speculation.rounds,
                            "{what} drafts each round"
                        );
                    }
                }
            }
        }
    }
    assert!(drafted.values().all(|&count| count > 1000), "{drafted:?}");
}

#[test]
fn a_models_own_copy_is_accepted_whole() {
    for (setting, sampling) in settings() {
        for k in [1, 4, 7] {
            let spec = HashSpec::default();
            let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(model_drafter(spec));
            let got = run(&mut engine, Request { sampling: sampling.clone(), ..request(200, k) });
            assert_eq!(got.speculation.accepted, got.speculation.drafted, "{setting}, k {k}");
            assert!(got.speculation.drafted >= 99, "{setting}, k {k}");
        }
    }
}

#[test]
fn a_random_drafter_is_hardly_ever_right_and_never_hurts() {
    let spec = HashSpec { vocab: 512, ..HashSpec::default() };
    let drafter = model_drafter(HashSpec { seed: 4, ..spec.clone() });
    let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(drafter), request(200, 5));
    assert_eq!(got.tokens, plain(&spec, request(200, 5)).tokens);
    assert!(got.speculation.drafted > 900);
    assert!(got.speculation.acceptance_rate() < 0.02, "{}", got.speculation.acceptance_rate());
}

#[test]
fn a_seed_repeats_and_no_seed_is_fresh() {
    let spec = HashSpec::default();
    let with = |seed| Request { sampling: sampled(1.0), seed, ..request(32, 4) };
    assert_eq!(plain(&spec, with(Some(42))).tokens, plain(&spec, with(Some(42))).tokens);
    let fresh: Vec<Completion> = (0..8).map(|_| plain(&spec, with(None))).collect();
    assert!(fresh.iter().any(|c| c.tokens != fresh[0].tokens), "unseeded answers differ");
    let again = plain(&spec, with(Some(fresh[3].seed)));
    assert_eq!(again.tokens, fresh[3].tokens, "a reported seed gives the answer again");
}

#[test]
fn choices_of_one_request_differ_and_each_is_lossless() {
    let spec = HashSpec::default();
    let with = |choice| Request { sampling: sampled(1.0), choice, ..request(64, 4) };
    assert_ne!(plain(&spec, with(0)).tokens, plain(&spec, with(1)).tokens);
    let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(model_drafter(spec.clone())), with(1));
    assert_eq!(got.tokens, plain(&spec, with(1)).tokens);
    assert!(got.speculation.drafted > 0);
}

#[test]
fn one_engine_serves_several_generations_at_once() {
    let spec = HashSpec { blocks: 256, ..HashSpec::default() };
    let target = HashModel::new(spec.clone());
    let mut engine = engine(&target).with_drafter(model_drafter(HashSpec { noise: 0.3, ..spec.clone() }));
    let prompt = |i: usize| PROMPT.iter().map(|&t| (t + i as Token) % 32).collect::<Vec<_>>();
    let with = |i: usize| Request {
        prompt: prompt(i),
        sampling: sampled(if i.is_multiple_of(2) { 0.0 } else { 0.9 }),
        seed: Some(i as u64),
        ..request(40 + i, 1 + i)
    };
    let mut open: Vec<_> = (0..8).map(|i| engine.start(with(i)).unwrap()).collect();
    while open.iter_mut().map(|g| engine.step(g, &mut |_| {}).unwrap()).fold(false, |any, more| any | more) {}
    for (i, generation) in open.into_iter().enumerate() {
        let got = engine.finish(generation);
        assert_eq!(got.tokens, plain(&spec, with(i)).tokens, "request {i}");
        assert!(got.speculation.drafted > 0);
    }
    assert_eq!(target.free_blocks(), 256);
}

#[test]
fn a_tree_is_verified_like_the_paths_it_holds() {
    let spec = HashSpec::default();
    let expected = plain(&spec, request(24, 4));
    let (first, second, third) = (expected.tokens[1], expected.tokens[2], expected.tokens[3]);
    let wrong = |token: Token| (token + 1) % 32;
    let mut tree = spec_core::DraftTree::new();
    let fixed = spec_core::Origin::Fixed;
    let bad = tree.push(None, wrong(first), fixed).unwrap();
    tree.push(Some(bad), second, fixed).unwrap();
    let good = tree.push(None, first, fixed).unwrap();
    tree.push(Some(good), wrong(second), fixed).unwrap();
    let deeper = tree.push(Some(good), second, fixed).unwrap();
    tree.push(Some(deeper), third, fixed).unwrap();
    let drafter = Box::new(ScriptedDrafter::trees([tree]));
    let got = run(&mut engine(&HashModel::new(spec)).with_drafter(drafter), request(24, 8));
    assert_eq!(got.tokens, expected.tokens);
    assert_eq!((got.speculation.drafted, got.speculation.accepted), (6, 3));
}

#[test]
fn many_seeds_give_plain_answers_with_rejections_in_every_one() {
    let spec = HashSpec { noise: 0.0, ..HashSpec::default() };
    let target = HashModel::new(spec.clone());
    let draft = HashSpec { noise: 0.4, ..spec.clone() };
    let mut engine = engine(&target).with_drafter(model_drafter(draft));
    for seed in 1..=50 {
        let with = || Request { sampling: sampled(0.8), seed: Some(seed), ..request(64, 5) };
        let got = run(&mut engine, with());
        assert_eq!(got.tokens, plain(&spec, with()).tokens, "seed {seed}");
        assert!(got.speculation.accepted < got.speculation.drafted, "seed {seed} rejects something");
    }
    assert_eq!(target.free_blocks(), spec.blocks);
}
