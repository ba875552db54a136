//! Reports from the field that fit nowhere else.

use super::*;

#[test]
fn one_word_repeated_many_times_stays_lossless() {
    let spec = HashSpec { order: 2, vocab: 8, ..HashSpec::default() };
    let prompt: Vec<Token> = [1, 2, 3].repeat(48);
    let with = || Request { prompt: prompt.clone(), ..request(96, 5) };
    let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(Box::new(NgramDrafter::new())), with());
    assert_eq!(got.tokens, plain(&spec, with()).tokens);
    assert!(got.speculation.accepted > 40, "{:?}", got.speculation);
}

#[test]
fn an_ngram_drafter_without_a_hit_costs_plain_rounds_only() {
    let spec = HashSpec { vocab: 4096, ..HashSpec::default() };
    let prompt: Vec<Token> = (0..40).collect();
    let target = HashModel::new(spec.clone());
    let mut engine = engine(&target).with_drafter(Box::new(NgramDrafter::new()));
    let got = run(&mut engine, Request { prompt: prompt.clone(), ..request(50, 5) });
    assert_eq!(got.speculation.drafted, 0);
    assert_eq!(target.passes(), 50);
}

#[test]
fn drafting_that_is_off_is_plain_decoding() {
    for drafted in [false, true] {
        let (target, draft) = (HashModel::new(HashSpec::default()), HashModel::new(HashSpec::default()));
        let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
        let length = if drafted { 5 } else { 0 };
        let got = run(&mut engine(&target).with_drafter(Box::new(drafter)), request(50, length));
        assert_eq!(draft.passes() > 0, drafted, "the draft model rests, its prefill included");
        assert_eq!(target.passes() == 50, !drafted, "a pass a token: {}", target.passes());
        assert_eq!(got.speculation.drafted > 0, drafted);
    }
}

#[test]
fn a_models_own_copy_gives_the_first_tokens_and_goes_on() {
    let drafter = model_drafter(HashSpec::default());
    let got = run(&mut engine(&HashModel::new(HashSpec::default())).with_drafter(drafter), request(4, 5));
    assert_eq!(got.tokens, plain(&HashSpec::default(), request(4, 5)).tokens);
    assert_eq!((got.tokens.len(), got.speculation.drafted, got.speculation.accepted), (4, 2, 2));
}

#[test]
fn figures_agree_with_each_other() {
    for (name, drafter) in drafters(&HashSpec::default()) {
        let got = run(&mut engine(&HashModel::new(HashSpec::default())).with_drafter(drafter), request(77, 5));
        let s = &got.speculation;
        assert_eq!(got.completion_tokens, 1 + s.emitted, "{name}: the first token comes from prefill");
        assert_eq!(s.emitted, s.accepted + s.rounds, "{name}: each round brings one token of the target's own");
        assert_eq!(s.by_position.iter().map(|p| p.drafted).sum::<usize>(), s.drafted, "{name}");
        assert_eq!(s.by_position.iter().map(|p| p.accepted).sum::<usize>(), s.accepted, "{name}");
        let (without, with) = (s.mean_accepted_length(), s.tokens_per_round());
        assert!(
            (with - without - 1.0).abs() < 1e-12,
            "{name}: {without} without the target's own token, {with} with it"
        );
        assert!(got.timings.decode >= got.timings.draft + got.timings.verify, "{name}");
    }
}

#[test]
fn not_a_number_in_the_logits_is_an_error_and_the_engine_lives() {
    let spec = HashSpec { noise: f32::NAN, ..HashSpec::default() };
    let target = HashModel::new(spec);
    let mut engine = engine(&target);
    for sampling in [sampled(0.0), sampled(1.0), SamplingParams { top_p: 0.5, ..sampled(1.0) }] {
        let message = error(engine.generate(Request { sampling, ..request(4, 2) }, &mut |_| {}));
        assert!(message.to_lowercase().contains("nan"), "{message}");
        assert_eq!(target.free_blocks(), 64);
    }
}

#[test]
fn padding_of_the_vocabulary_is_never_emitted() {
    let padded = HashModel::new(HashSpec { vocab: 64, ..HashSpec::default() });
    let with = |sampling| Request { sampling, ..request(100, 5) };
    for sampling in [sampled(0.0), sampled(1.5)] {
        let drafter = model_drafter(HashSpec { vocab: 48, ..HashSpec::default() });
        let mut engine =
            Engine::new(Arc::clone(&padded) as Arc<dyn Model>, Arc::new(Letters(32))).with_drafter(drafter);
        let got = run(&mut engine, with(sampling));
        assert!(got.tokens.iter().all(|&token| token < 32));
        assert_eq!(got.speculation.accepted, got.speculation.drafted, "padding differs, the law does not");
        assert!(got.speculation.drafted > 50);
    }
}

#[test]
fn a_drafter_that_proposes_unknown_ids_is_cut_there() {
    let say = plain(&HashSpec::default(), request(8, 0)).tokens;
    let drafter = scripted(&[say[1], say[2], 4000, say[4]]);
    let got = run(&mut engine(&HashModel::new(HashSpec::default())).with_drafter(drafter), request(8, 5));
    assert_eq!((got.tokens, got.speculation.drafted), (say, 2));
}
