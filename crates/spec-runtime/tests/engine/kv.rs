//! The caches behind the text: lengths, rollback, catch-up, leaks.

use spec_core::{KeyedChoices, Pipeline};
use spec_runtime::{DraftContext, GenerationId, SuffixDrafter};

use super::*;

fn self_drafter() -> (Arc<HashModel>, Box<dyn Drafter>) {
    let model = HashModel::new(HashSpec::default());
    (Arc::clone(&model), Box::new(ModelDrafter::new(model as Arc<dyn Model>)))
}

#[test]
fn rounds_without_drafting_do_not_spoil_later_ones() {
    let (_, drafter) = self_drafter();
    let asked = Request { draft_len: Box::new(Schedule::new(&[3, 0, 0, 3])), ..request(200, 0) };
    let got = run(&mut engine(&HashModel::new(HashSpec::default())).with_drafter(drafter), asked);
    assert_eq!(got.speculation.accepted, got.speculation.drafted);
    assert!(got.speculation.drafted > 100);
    assert_eq!(got.tokens, plain(&HashSpec::default(), request(200, 0)).tokens);
}

#[test]
fn acceptance_does_not_decay_after_rejections() {
    // A script that is wrong at every place of its block in turn, before the target's own copy takes over.
    struct WrongThenRight(usize, ModelDrafter);
    impl Drafter for WrongThenRight {
        fn name(&self) -> &str {
            "wrong, then right"
        }
        fn draft(&mut self, c: spec_runtime::DraftContext<'_>) -> Result<spec_core::DraftTree, RuntimeError> {
            let tree = self.1.draft(c)?;
            self.0 += 1;
            if self.0 > 20 || tree.is_empty() {
                return Ok(tree);
            }
            let spoilt = self.0 % tree.len();
            let tokens: Vec<Token> = tree
                .nodes()
                .map(|(id, node)| if id.index() == spoilt { (node.token + 1) % 32 } else { node.token })
                .collect();
            Ok(spec_core::DraftTree::chain(&tokens, spec_core::Origin::Fixed))
        }
        fn observe(&mut self, g: spec_runtime::GenerationId, t: &[Token], a: usize) -> Result<(), RuntimeError> {
            self.1.observe(g, t, a)
        }
        fn forget(&mut self, g: spec_runtime::GenerationId) {
            self.1.forget(g);
        }
    }
    let copy = HashModel::new(HashSpec::default());
    let drafter = WrongThenRight(0, ModelDrafter::new(copy as Arc<dyn Model>));
    let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(Box::new(drafter));
    let mut generation = engine.start(request(200, 4)).unwrap();
    while generation.completion().speculation.rounds < 20 {
        engine.step(&mut generation, &mut |_| {}).unwrap();
    }
    let early = generation.completion().speculation.clone();
    assert!(early.accepted < early.drafted);
    while engine.step(&mut generation, &mut |_| {}).unwrap() {}
    let got = engine.finish(generation);
    let late = (got.speculation.accepted - early.accepted, got.speculation.drafted - early.drafted);
    assert_eq!(late.0, late.1, "after the script every draft is accepted");
    assert!(late.1 > 50);
    assert_eq!(got.tokens, plain(&HashSpec::default(), request(200, 4)).tokens);
}

#[test]
fn block_boundaries_do_not_matter() {
    for block_tokens in [1, 2, 3, 5, 16] {
        for length in 14..=18 {
            let spec = HashSpec { block_tokens, blocks: 1024, ..HashSpec::default() };
            let prompt: Vec<Token> = (0..length).collect();
            let with = || Request { prompt: prompt.clone(), ..request(40, 5) };
            let expected = plain(&spec, with());
            let target = HashModel::new(spec.clone());
            let got = run(&mut engine(&target).with_drafter(model_drafter(HashSpec { noise: 0.3, ..spec })), with());
            assert_eq!(got.tokens, expected.tokens, "blocks of {block_tokens}, prompt of {length}");
            assert!(got.speculation.accepted > 0 && got.speculation.accepted < got.speculation.drafted);
            assert_eq!(target.free_blocks(), 1024);
        }
    }
}

#[test]
fn a_drafter_past_its_own_context_stops_drafting_and_not_the_request() {
    let spec = HashSpec::default();
    let draft = HashModel::new(HashSpec { context: 40, ..HashSpec::default() });
    let target = HashModel::new(spec.clone());
    let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
    let got = run(&mut engine(&target).with_drafter(Box::new(drafter)), request(300, 5));
    assert_eq!(got.tokens, plain(&spec, request(300, 5)).tokens);
    assert!(draft.passes() <= 40, "it runs no pass past its context: {}", draft.passes());
    assert_eq!(target.passes() + got.speculation.accepted, 300, "past it, rounds are plain ones");
    assert!(got.speculation.drafted > 10);
    assert_eq!(got.speculation.accepted, got.speculation.drafted, "it never proposes rubbish");
    assert!(got.speculation.drafted < 40);
}

#[test]
fn a_prompt_longer_than_a_pass_is_chunked_for_target_and_drafter() {
    let prompt: Vec<Token> = (0..50).map(|i| i % 32).collect();
    let small = HashSpec { max_rows: 7, ..HashSpec::default() };
    let with = || Request { prompt: prompt.clone(), ..request(30, 5) };
    let got = run(&mut engine(&HashModel::new(small.clone())).with_drafter(model_drafter(small)), with());
    assert_eq!(got.tokens, plain(&HashSpec::default(), with()).tokens);
    assert_eq!(got.speculation.accepted, got.speculation.drafted);
    assert!(got.speculation.drafted > 0);
}

#[test]
fn a_failing_pass_leaves_nothing_behind_and_the_engine_usable() {
    let expected = plain(&HashSpec::default(), request(30, 4)).tokens;
    for failing in 0..12 {
        for target_fails in [true, false] {
            let target = HashModel::new(HashSpec::default());
            let (draft, drafter) = self_drafter();
            if target_fails { &target } else { &draft }.fail_at(failing);
            let mut engine = engine(&target).with_drafter(drafter);
            let first = engine.generate(request(30, 4), &mut |_| {});
            assert_eq!((target.free_blocks(), draft.free_blocks()), (64, 64), "pass {failing} fails");
            if let Err(message) = first {
                assert!(message.to_string().contains("fails"), "{message}");
            }
            target.fail_at(usize::MAX);
            draft.fail_at(usize::MAX);
            assert_eq!(run(&mut engine, request(30, 4)).tokens, expected, "the next request is right");
        }
    }
}

#[test]
fn a_dropped_generation_frees_its_blocks() {
    let target = HashModel::new(HashSpec::default());
    let mut engine = engine(&target);
    let mut generation = engine.start(request(30, 4)).unwrap();
    engine.step(&mut generation, &mut |_| {}).unwrap();
    assert!(target.free_blocks() < 64);
    drop(generation);
    assert_eq!(target.free_blocks(), 64);
}

#[test]
fn a_full_cache_is_an_error_with_the_numbers() {
    let spec = HashSpec { blocks: 2, ..HashSpec::default() };
    let target = HashModel::new(spec);
    let message = error(engine(&target).generate(request(100, 4), &mut |_| {}));
    assert!(message.contains("1 more blocks of 16 tokens") && message.contains("0 are free"), "{message}");
    assert_eq!(target.free_blocks(), 2);
}

#[test]
fn a_follow_up_equals_a_cold_run() {
    let target = HashModel::new(HashSpec::default());
    let mut engine = engine(&target).with_drafter(model_drafter(HashSpec { noise: 0.2, ..HashSpec::default() }));
    let first = run(&mut engine, request(20, 5));
    let prompt: Vec<Token> = PROMPT.iter().chain(&first.tokens).copied().collect();
    let warm = run(&mut engine, Request { prompt: prompt.clone(), ..request(20, 5) });
    let cold = plain(&HashSpec::default(), Request { prompt, ..request(20, 5) });
    assert_eq!(warm.tokens, cold.tokens);
    assert!(warm.speculation.drafted > 0);
}

#[test]
fn the_same_prompt_twice_drafts_the_same_twice() {
    let suffix = ("suffix", Box::new(SuffixDrafter::new()) as Box<dyn Drafter>);
    for (name, drafter) in drafters(&HashSpec::default()).into_iter().chain([suffix]) {
        let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(drafter);
        let spec = |c: &Completion| (c.speculation.drafted, c.speculation.accepted);
        let first = run(&mut engine, request(100, 5));
        let second = run(&mut engine, request(100, 5));
        assert_eq!(spec(&first), spec(&second), "{name}: nothing is remembered from one request to the next");
        assert!(first.speculation.drafted > 0, "{name}");
    }
}

#[test]
fn a_trial_leaves_what_a_draft_model_has_read() {
    let text: Vec<Token> = (0..60).map(|index| index * 7 % 32).collect();
    let mut drafter = ModelDrafter::new(HashModel::new(HashSpec { context: 256, ..HashSpec::default() }));
    let mut caught_up = |length: usize, context: Option<usize>| {
        let unread = drafter.unread(GenerationId(1), &text[..length]);
        let mut pipeline = Pipeline::new(SamplingParams::default(), 32).expect("legal parameters");
        pipeline.extend(&text[..length]);
        let mut choices = KeyedChoices::new(0, length);
        let fresh = DraftContext::new(GenerationId(1), &text[..length], &mut pipeline, &mut choices, 2);
        let tree = drafter.draft(DraftContext { context, ..fresh });
        assert_eq!(tree.expect("it succeeds").len(), 2);
        (unread, drafter.unread(GenerationId(1), &text[..length]))
    };
    assert_eq!(caught_up(40, None), (40, 0));
    assert_eq!(caught_up(54, Some(4)), (14, 14), "a trial reads elsewhere");
    assert_eq!(caught_up(58, Some(20)), (18, 0), "what is unread is no more than a trial looks at");
    assert_eq!(caught_up(60, None), (2, 0));
}
