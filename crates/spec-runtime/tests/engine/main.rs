//! The engine over models that read their own cache back, so that any misplaced row shows in the text.

mod ahead;
mod audit;
mod chooser;
mod constraint;
mod decisions;
mod draft_cache;
mod field;
#[cfg(feature = "grammar")]
mod grammar;
mod kv;
mod law;
mod lazy;
mod limits;
mod loss;
mod lossless;
mod observers;
mod options;
mod prefixes;
mod rules;
mod session;
mod together;
mod verdicts;
mod vocabulary;

use std::sync::Arc;

use spec_core::{LengthPolicy, SamplingParams, Token};
use spec_runtime::{
    Completion, Drafter, Engine, Model, ModelDrafter, NgramDrafter, Request, RuntimeError, ScriptedDrafter,
};
use spec_testing::{HashModel, HashSpec, Letters};

/// A text to continue, with a repetition for the n-gram drafter.
const PROMPT: [Token; 12] = [3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1];

fn engine(target: &Arc<HashModel>) -> Engine {
    let vocab = target.config().vocab;
    Engine::new(Arc::clone(target) as Arc<dyn Model>, Arc::new(Letters(vocab)))
}

fn model_drafter(spec: HashSpec) -> Box<dyn Drafter> {
    Box::new(ModelDrafter::new(HashModel::new(spec)))
}

fn request(max_tokens: usize, k: usize) -> Request {
    Request { draft_len: Box::new(spec_core::Fixed(k)), seed: Some(7), ..Request::new(PROMPT.to_vec(), max_tokens) }
}

fn run(engine: &mut Engine, request: Request) -> Completion {
    engine.generate(request, &mut |_| {}).expect("the generation succeeds")
}

/// Plain decoding, one pass a token, by the shipped engine without a drafter.
fn plain(spec: &HashSpec, request: Request) -> Completion {
    let completion = run(&mut engine(&HashModel::new(spec.clone())), request);
    assert_eq!(completion.speculation.drafted, 0);
    completion
}

/// The drafters that every equality is tried with: name and drafter.
fn drafters(target: &HashSpec) -> Vec<(&'static str, Box<dyn Drafter>)> {
    vec![
        ("ngram", Box::new(NgramDrafter::new()) as Box<dyn Drafter>),
        ("self", model_drafter(target.clone())),
        ("similar", model_drafter(HashSpec { noise: 0.3, ..target.clone() })),
        ("random", model_drafter(HashSpec { seed: 99, ..target.clone() })),
    ]
}

/// Draft lengths by a list, round after round.
struct Schedule(Vec<usize>, usize);

impl Schedule {
    fn new(lengths: &[usize]) -> Self {
        Self(lengths.to_vec(), 0)
    }
}

impl LengthPolicy for Schedule {
    fn next(&mut self) -> usize {
        let length = self.0[self.1 % self.0.len()];
        self.1 += 1;
        length
    }

    fn observe(&mut self, _: &spec_core::Round) {}
}

fn sampled(temperature: f32) -> SamplingParams {
    SamplingParams { temperature, ..SamplingParams::default() }
}

/// A drafter that proposes one given block in its first round.
fn scripted(block: &[Token]) -> Box<dyn Drafter> {
    Box::new(ScriptedDrafter::chains([block]))
}

fn error(result: Result<Completion, RuntimeError>) -> String {
    result.expect_err("the request is refused").to_string()
}
