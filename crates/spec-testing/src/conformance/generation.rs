//! Claims about whole generations: drafting changes time, nothing else, and nothing stays behind.

use std::cell::Cell;
use std::sync::Arc;

use spec_core::{DraftTree, Fixed, Origin, RuleName, SamplingParams};
use spec_runtime::{
    CancelToken, Completion, Drafter, Engine, FinishReason, Generation, Model, ModelDrafter, NgramDrafter, Request,
    ScriptedDrafter, SuffixDrafter,
};

use super::{Backend, room, text};
use crate::Letters;
use crate::tiny::TinySpec;

/// Tokens that most generations here are long.
const LENGTH: usize = 48;

fn seeded() -> SamplingParams {
    SamplingParams { temperature: 0.8, top_p: 0.95, ..SamplingParams::default() }
}

fn engine(model: &Arc<dyn Model>, drafter: Option<Box<dyn Drafter>>) -> Engine {
    let engine = Engine::new(Arc::clone(model), Arc::new(Letters(model.config().vocab)));
    match drafter {
        Some(drafter) => engine.with_drafter(drafter),
        None => engine,
    }
}

fn request(prompt: &[u32], sampling: &SamplingParams, k: usize, length: usize) -> Request {
    Request {
        sampling: sampling.clone(),
        seed: Some(5),
        draft_len: Box::new(Fixed(k)),
        ..Request::new(prompt.to_vec(), length)
    }
}

fn run(model: &Arc<dyn Model>, drafter: Option<Box<dyn Drafter>>, request: Request) -> Completion {
    engine(model, drafter).generate(request, &mut |_| {}).expect("the generation succeeds")
}

impl Backend<'_> {
    fn with_a_draft_model(&self, seed: Option<u64>, check: impl Fn(&Arc<dyn Model>, &Arc<dyn Model>, &str)) {
        for &spec in self.specs {
            let (target, name) = (self.model(spec), format!("{} on {}", spec.arch, self.name));
            let draft = self.model(TinySpec { seed: seed.unwrap_or(spec.seed), ..spec });
            let before = [room(&target), room(&draft)];
            check(&target, &draft, &name);
            assert_eq!([room(&target), room(&draft)], before, "{name}: blocks leak");
        }
    }
}

/// Greedy and seeded output with every drafter is the output without one.
///
/// # Panics
/// When the claim does not hold.
pub fn drafting_changes_no_token(backend: &Backend<'_>) {
    backend.with_a_draft_model(Some(99), |target, other, name| {
        // A prompt that repeats itself, so that copying has something to copy.
        let prompt: Vec<u32> = text(3, 12).repeat(3);
        for (setting, sampling) in [("greedy", SamplingParams::default()), ("seeded", seeded())] {
            let plain = run(target, None, request(&prompt, &sampling, 0, LENGTH));
            assert_eq!(plain.tokens.len(), LENGTH, "{name}");
            for k in [1, 3, 7] {
                let drafters: [(&str, Box<dyn Drafter>); 3] = [
                    ("another model", Box::new(ModelDrafter::new(Arc::clone(other)))),
                    ("n-grams", Box::new(NgramDrafter::new())),
                    ("suffixes", Box::new(SuffixDrafter::new())),
                ];
                for (drafter, value) in drafters {
                    let what = format!("{name}, {setting}, {drafter}, {k} drafted");
                    let got = run(target, Some(value), request(&prompt, &sampling, k, LENGTH));
                    assert_eq!(got.tokens, plain.tokens, "{what}");
                    assert!(drafter != "another model" || got.speculation.drafted > 0, "{what}: nothing was drafted");
                }
            }
        }
    });
}

/// The same weights, opened a second time with a cache of their own, guess everything.
///
/// # Panics
/// When the claim does not hold.
pub fn an_own_copy_is_accepted_whole_under_every_lossless_rule(backend: &Backend<'_>) {
    backend.with_a_draft_model(None, |target, copy, name| {
        let prompt = text(29, 17);
        let rules = [
            (SamplingParams::default(), "greedy"),
            (seeded(), "coupled"),
            (seeded(), "rejection"),
            (seeded(), "block"),
        ];
        for (sampling, rule) in rules {
            for k in [1, 5] {
                let named: RuleName = rule.parse().expect("a rule of the table");
                let request = Request { rule: Some(named.into()), ..request(&prompt, &sampling, k, LENGTH) };
                let drafter = Box::new(ModelDrafter::new(Arc::clone(copy)));
                let stats = run(target, Some(drafter), request).speculation;
                let what = format!("{name}, {rule}, {k} drafted");
                assert!(stats.accepted == stats.drafted && stats.drafted >= LENGTH / 3, "{what}: {stats:?}");
            }
        }
    });
}

/// A model that knows nothing of the target is refused mostly, and does not change the greedy text.
///
/// # Panics
/// When the claim does not hold.
pub fn another_model_is_mostly_refused(backend: &Backend<'_>) {
    let varied = Cell::new(0);
    backend.with_a_draft_model(Some(99), |target, other, name| {
        let prompt = text(31, 20);
        let greedy = SamplingParams::default();
        let plain = run(target, None, request(&prompt, &greedy, 0, LENGTH));
        let drafter = || Some(Box::new(ModelDrafter::new(Arc::clone(other))) as Box<dyn Drafter>);
        let got = run(target, drafter(), request(&prompt, &greedy, 4, LENGTH));
        assert_eq!(got.tokens, plain.tokens, "{name}");
        let rejection: RuleName = "rejection".parse().expect("a rule of the table");
        let request = Request { rule: Some(rejection.into()), ..request(&prompt, &seeded(), 4, LENGTH) };
        let sampled = run(target, drafter(), request);
        assert_eq!(sampled.tokens.len(), LENGTH, "{name}");
        // A model whose text is one token over and over, as random weights may have it, is easily guessed.
        if plain.tokens.iter().all(|token| *token == plain.tokens[0]) {
            return;
        }
        varied.set(varied.get() + 1);
        for (rule, stats) in [("greedy", &got.speculation), ("rejection", &sampled.speculation)] {
            let what = format!("{name}, {rule}: {} of {} accepted", stats.accepted, stats.drafted);
            assert!(stats.drafted > LENGTH && stats.acceptance_rate() < 0.5, "{what}");
        }
    });
    assert!(varied.get() > 0, "no model of {} has a text", backend.name);
}

/// Trees whose accepted path is not the first branch, so that commits move rows within the cache.
///
/// # Panics
/// When the claim does not hold.
pub fn trees_from_a_script_change_no_token(backend: &Backend<'_>) {
    backend.each(|model, name| {
        let prompt = text(37, 15);
        for sampling in [SamplingParams::default(), seeded()] {
            let plain = run(model, None, request(&prompt, &sampling, 0, LENGTH));
            let vocab = model.config().vocab as u32;
            // The right tokens come second at every depth, with a child each that leads astray.
            let mut trees = Vec::new();
            let mut at = 1;
            // A budget of as many nodes as a tree has, while that many tokens are left.
            while at + 10 <= plain.tokens.len() {
                let mut tree = DraftTree::new();
                let mut parent = None;
                for &right in &plain.tokens[at..at + 3] {
                    let wrong = tree.push(parent, (right + 1) % vocab, Origin::Fixed).expect("a node");
                    tree.push(Some(wrong), (right + 2) % vocab, Origin::Fixed).expect("a node");
                    parent = Some(tree.push(parent, right, Origin::Fixed).expect("a node"));
                }
                trees.push(tree);
                // Three accepted, and the bonus token.
                at += 4;
            }
            let rounds = trees.len();
            let got = run(model, Some(Box::new(ScriptedDrafter::trees(trees))), request(&prompt, &sampling, 9, LENGTH));
            assert_eq!(got.tokens, plain.tokens, "{name}");
            assert_eq!(got.speculation.accepted, 3 * rounds, "{name}: {:?}", got.speculation);
        }
    });
}

/// The last position is used, and nothing past it.
///
/// # Panics
/// When the claim does not hold.
pub fn generation_ends_with_the_context(backend: &Backend<'_>) {
    backend.with_a_draft_model(None, |target, copy, name| {
        let context = target.config().context;
        for short in [1, 2, 9] {
            let prompt = text(41, context - short);
            let plain = run(target, None, request(&prompt, &SamplingParams::default(), 0, 100));
            assert_eq!(plain.tokens.len(), short + 1, "{name}: one more than there are positions left");
            assert_eq!(plain.finish, FinishReason::Length, "{name}");
            let drafter = Box::new(ModelDrafter::new(Arc::clone(copy)));
            let got = run(target, Some(drafter), request(&prompt, &SamplingParams::default(), 7, 100));
            assert_eq!(got.tokens, plain.tokens, "{name}, {short} positions left");
        }
        let refused = engine(target, None).start(request(&text(41, context), &SamplingParams::default(), 0, 1));
        assert!(refused.is_err(), "{name}: a prompt without room for an answer");
    });
}

/// Whenever it is cancelled: blocks are free again, and the next generation is as if nothing had been.
///
/// # Panics
/// When the claim does not hold.
pub fn cancelled_generations_give_everything_back(backend: &Backend<'_>) {
    backend.with_a_draft_model(None, |target, copy, name| {
        let prompt = text(43, 40);
        let before = [room(target), room(copy)];
        let plain = run(target, None, request(&prompt, &SamplingParams::default(), 0, 20));
        for after in [0, 1, 2, 5, 9] {
            let cancel = CancelToken::new();
            if after == 0 {
                cancel.cancel();
            }
            let request = Request { cancel: cancel.clone(), ..request(&prompt, &SamplingParams::default(), 3, LENGTH) };
            let mut engine = engine(target, Some(Box::new(ModelDrafter::new(Arc::clone(copy)))));
            let mut seen = 0;
            let cancelled = engine.generate(request, &mut |_| {
                seen += 1;
                if seen == after {
                    cancel.cancel();
                }
            });
            let cancelled = cancelled.expect("a cancelled generation ends");
            assert_eq!(cancelled.finish, FinishReason::Cancelled, "{name}, after {after}");
            let least = cancelled.tokens.len().min(plain.tokens.len());
            assert_eq!(cancelled.tokens[..least], plain.tokens[..least], "{name}, after {after}");
            assert!(cancelled.tokens.len() < LENGTH, "{name}: it went on to the end");
            drop(engine);
            assert_eq!([room(target), room(copy)], before, "{name}: cancelled after {after}, blocks leak");
        }
        let again = run(target, None, self::request(&prompt, &SamplingParams::default(), 0, 20));
        assert_eq!(again.tokens, plain.tokens, "{name}");
    });
}

/// Generations that take turns, each with a draft, do not notice each other.
///
/// # Panics
/// When the claim does not hold.
pub fn generations_in_turns_are_those_alone(backend: &Backend<'_>) {
    backend.with_a_draft_model(Some(99), |target, other, name| {
        let prompts = [text(47, 5), text(53, 18), text(59, 33)];
        let plain: Vec<_> =
            prompts.iter().map(|prompt| run(target, None, request(prompt, &seeded(), 0, 24)).tokens).collect();
        let mut engine = engine(target, Some(Box::new(ModelDrafter::new(Arc::clone(other)))));
        let mut generations: Vec<Generation> = prompts
            .iter()
            .map(|prompt| engine.start(request(prompt, &seeded(), 3, 24)).expect("a legal request"))
            .collect();
        let mut is_going = true;
        while is_going {
            is_going = false;
            for generation in &mut generations {
                is_going |= engine.step(generation, &mut |_| {}).expect("a round");
            }
        }
        for (generation, plain) in generations.into_iter().zip(plain) {
            let completion = engine.finish(generation);
            assert_eq!(completion.tokens, plain, "{name}");
            assert!(completion.speculation.drafted > 0, "{name}: nothing was drafted");
        }
    });
}

/// An own copy is accepted whole in the tenth long generation as in the first (field report 177).
///
/// # Panics
/// When the claim does not hold.
pub fn acceptance_stays_over_many_long_generations(backend: &Backend<'_>) {
    let Some(&spec) = backend.specs.first() else { return };
    let (target, copy) = (backend.model(spec), backend.model(spec));
    let mut engine = engine(&target, Some(Box::new(ModelDrafter::new(Arc::clone(&copy)))));
    for round in 0..10 {
        let prompt = text(61 + round, spec.context - 30);
        let stats = engine.generate(request(&prompt, &SamplingParams::default(), 5, 24), &mut |_| {});
        let stats = stats.expect("the generation succeeds").speculation;
        assert!(stats.drafted >= 16, "round {round}: {stats:?}");
        assert_eq!(stats.accepted, stats.drafted, "round {round} on {}", backend.name);
    }
}
