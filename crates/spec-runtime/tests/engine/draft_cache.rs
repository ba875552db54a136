//! Drafts that were made before are found again, and change nothing but time.

use super::*;
use spec_core::{Goodput, KeyedChoices, Pipeline, RuleName};
use spec_runtime::{CachedDrafter, Chooser, Class, DraftCache, DraftContext, GenerationId, Odds, Worth};

/// A draft model that is right about half of the time, behind a cache.
fn cached(draft: &Arc<HashModel>, cache: &Arc<DraftCache>) -> Box<dyn Drafter> {
    let drafter = Box::new(ModelDrafter::new(Arc::clone(draft) as Arc<dyn Model>));
    Box::new(CachedDrafter::new(drafter, Arc::clone(cache)))
}

fn of(rule: &str, temperature: f32, tenant: Option<u64>, seed: u64) -> Request {
    Request {
        rule: Some(rule.parse::<RuleName>().expect("a rule").into()),
        sampling: sampled(temperature),
        seed: Some(seed),
        tenant,
        ..request(80, 4)
    }
}

#[test]
fn output_with_a_draft_cache_is_the_output_without_and_a_repeated_text_asks_no_model() {
    let spec = HashSpec { blocks: 128, ..HashSpec::default() };
    let noisy = HashSpec { noise: 0.2, ..spec.clone() };
    for (rule, temperature) in [("greedy", 0.0), ("coupled", 0.0), ("coupled", 0.9), ("rejection", 0.9), ("block", 0.9)]
    {
        let is_kept = !matches!(rule, "rejection" | "block");
        let (draft, cache) = (HashModel::new(noisy.clone()), Arc::new(DraftCache::new("drafts", 1 << 20)));
        let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(cached(&draft, &cache));
        // Rules that draw are compared with the same drafter without a cache: they are exact in law, not word for word.
        let expected = if is_kept {
            plain(&spec, of(rule, temperature, None, 5))
        } else {
            let mut uncached = super::engine(&HashModel::new(spec.clone())).with_drafter(model_drafter(noisy.clone()));
            run(&mut uncached, of(rule, temperature, None, 5))
        };
        let mut passes = Vec::new();
        for tenant in [Some(1), Some(1), Some(2), None] {
            let before = draft.passes();
            let got = run(&mut engine, of(rule, temperature, tenant, 5));
            assert_eq!(got.tokens, expected.tokens, "{rule} at {temperature} for {tenant:?}");
            let stats = got.speculation;
            assert!(stats.drafted > 40 && stats.accepted > 10, "{rule} at {temperature}: {stats:?}");
            passes.push(draft.passes() - before);
        }
        let stats = cache.stats();
        assert!(passes[0] > 20, "{passes:?}");
        if is_kept {
            assert_eq!(passes[1], 0, "{rule} at {temperature}: every draft was there");
            assert_eq!(stats.hits, stats.entries as u64 / 2, "one of two tenants asked twice: {stats:?}");
        } else {
            assert_eq!((stats.hits, stats.misses, stats.entries), (0, 0, 0), "{rule} draws: nothing is kept");
            assert!(passes[1] > 20, "{passes:?}");
        }
        assert!(passes[2] > 20 && passes[3] > 20, "another tenant, or none, finds nothing: {passes:?}");
        assert_eq!(draft.free_blocks(), 128, "blocks leak");
    }
}

#[test]
fn drafts_of_one_seed_are_not_those_of_another() {
    let spec = HashSpec::default();
    let (draft, cache) = (HashModel::new(spec.clone()), Arc::new(DraftCache::new("drafts", 1 << 20)));
    let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(cached(&draft, &cache));
    let mut hits = Vec::new();
    for seed in [5, 6, 5] {
        let got = run(&mut engine, of("coupled", 0.9, Some(1), seed));
        assert_eq!(got.tokens, plain(&spec, of("coupled", 0.9, None, seed)).tokens);
        // The target's own copy, whether its drafts are new or not.
        assert_eq!(got.speculation.accepted, got.speculation.drafted);
        hits.push(cache.stats().hits);
    }
    assert!(hits[1] == 0 && hits[2] > 10, "{hits:?}");
}

#[test]
fn a_chooser_takes_drafts_from_the_cache_as_those_of_the_model() {
    let spec = HashSpec { blocks: 128, ..HashSpec::default() };
    let (draft, cache) = (HashModel::new(spec.clone()), Arc::new(DraftCache::new("drafts", 1 << 20)));
    let several: Vec<Box<dyn Drafter>> = vec![Box::new(NgramDrafter::new()), cached(&draft, &cache)];
    let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(Box::new(Chooser::new(several)));
    for round in 0..3 {
        for temperature in [0.0, 0.9] {
            for weighed in [false, true] {
                let request = || {
                    let request = of("coupled", temperature, Some(1), 5);
                    let draft_len = if weighed { Box::new(Goodput::default()) as _ } else { request.draft_len };
                    Request { draft_len, ..request }
                };
                let got = run(&mut engine, request());
                assert_eq!(got.tokens, plain(&spec, request()).tokens, "round {round} at {temperature}");
                // What pays is the clock's to say.
                assert!(weighed || got.speculation.drafted > 40, "round {round} at {temperature}");
            }
        }
    }
    assert!(cache.stats().hits > 20, "{:?}", cache.stats());
    assert_eq!(draft.free_blocks(), 128, "blocks leak");
}

#[test]
fn a_draft_from_the_cache_has_the_classes_that_it_was_made_with() {
    let draft = HashModel::new(HashSpec::default());
    let cache = Arc::new(DraftCache::new("drafts", 1 << 20));
    let mut drafter = cached(&draft, &cache);
    let odds = Odds::default();
    let mut made = |generation: u64, budget: usize| {
        let mut pipeline = Pipeline::new(SamplingParams::default(), 32).expect("legal parameters");
        pipeline.extend(&PROMPT);
        let generation = GenerationId(generation);
        let mut choices = KeyedChoices::new(0, 0);
        let tree = drafter.draft(DraftContext {
            tenant: Some(1),
            width: 3,
            worth: Some(Worth { odds: &odds, tokens: 1.0, seconds: 1.0, pass: 0.05, row: 0.001 }),
            ..DraftContext::new(generation, &PROMPT, &mut pipeline, &mut choices, budget)
        });
        let tree = tree.expect("it succeeds");
        let classes: Vec<Class> = tree.nodes().map(|(id, _)| drafter.class(generation, id)).collect();
        (tree, classes, drafter.work().passes)
    };
    let (first, again) = (made(1, 9), made(2, 9));
    assert!(first.0.len() > 3 && first.2 > 0 && again.2 == 0, "{first:?}");
    // A model may look further than it was asked to.
    let mut asked = first.0.clone();
    asked.truncate(9).expect("nothing is drawn");
    assert_eq!((&asked, &first.1[..asked.len()]), (&again.0, &again.1[..]));
    assert!(first.1.iter().any(|class| *class != first.1[0]), "classes differ: {:?}", first.1);
    let cut = made(3, 2);
    assert_eq!((cut.0.len(), cut.2, &cut.1[..]), (2, 0, &first.1[..2]));
    assert!(made(4, 10).2 > 0, "it was made with less room");
}
