//! JSON by a schema, and drafts of another tokenizer, on real models: the tokens are those of plain decoding.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use spec_core::{Fixed, SamplingParams, Token};
use spec_cpu::{CpuModel, LoadOptions, Pool};
use spec_model::{Checkpoint, Conversation, TokenKind, Tokenizer};
use spec_runtime::{
    Completion, Constraint, Drafter, Engine, FinishReason, Grammars, ModelDrafter, NgramDrafter, Request, RuntimeError,
    StopRules, TokenRole, TokenSet, TokenText, VocabularyMap,
};
use spec_server::tools::ToolStyle;
use spec_testing::models::{self, Model};

const CONTEXT: usize = 768;

struct Tokens(Tokenizer);

impl TokenText for Tokens {
    fn vocab(&self) -> usize {
        self.0.real_vocab_size()
    }
    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        Cow::Owned(self.0.token_bytes(token, false).expect("an id below the vocabulary"))
    }
    fn label(&self, token: Token) -> Cow<'_, str> {
        Cow::Borrowed(self.0.token_text(token).expect("an id below the vocabulary"))
    }
    fn role(&self, token: Token) -> TokenRole {
        match self.0.token_kind(token).expect("an id below the vocabulary") {
            TokenKind::Normal | TokenKind::Byte => TokenRole::Text,
            TokenKind::Unused => TokenRole::Unused,
            _ => TokenRole::Marker,
        }
    }
}

struct Loaded {
    model: Arc<CpuModel>,
    tokens: Arc<Tokens>,
}

impl Loaded {
    fn new(model: Model, pool: &Arc<Pool>) -> Self {
        let checkpoint = Checkpoint::open(models::path(model)).expect("the file opens");
        let mut options = LoadOptions::new(Arc::clone(pool));
        options.context = Some(CONTEXT);
        let tokens = Arc::new(Tokens(checkpoint.tokenizer().expect("a tokenizer")));
        Self { model: Arc::new(CpuModel::load(&checkpoint, options).expect("the model loads")), tokens }
    }

    fn engine(&self) -> Engine {
        Engine::new(Arc::clone(&self.model) as _, Arc::clone(&self.tokens) as _)
            .with_row_kernels(spec_cpu::row_kernels(self.model.isa()))
    }

    fn request(&self, text: &str, temperature: f32, k: usize) -> Request {
        let prompt = format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
        let prompt = self.tokens.0.encode(&prompt, true).expect("tokens");
        Request {
            sampling: SamplingParams { temperature, ..SamplingParams::default() },
            seed: Some(20261130),
            stop: StopRules { end_ids: self.tokens.0.end_ids().to_vec(), texts: Vec::new(), max_tokens: 160 },
            draft_len: Box::new(Fixed(k)),
            ..Request::new(prompt, 160)
        }
    }
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(std::thread::available_parallelism().map_or(1, usize::from)).expect("threads"))
}

fn run(engine: &mut Engine, request: Request) -> Completion {
    engine.generate(request, &mut |_| {}).expect("the generation succeeds")
}

/// Times a constraint.
struct Timed(Box<dyn Constraint>, Arc<AtomicU64>);

impl Timed {
    fn time<T>(&mut self, work: impl FnOnce(&mut dyn Constraint) -> T) -> T {
        let begun = Instant::now();
        let result = work(&mut *self.0);
        self.1.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl Constraint for Timed {
    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), RuntimeError> {
        self.time(|constraint| constraint.allow(allowed))
    }
    fn advance(&mut self, token: Token) -> Result<(), RuntimeError> {
        self.time(|constraint| constraint.advance(token))
    }
    fn roll_back(&mut self, tokens: usize) {
        self.time(|constraint| constraint.roll_back(tokens));
    }
    fn forced(&mut self, limit: usize, vocab: usize, end_ids: &[Token]) -> Result<Vec<Token>, RuntimeError> {
        self.time(|constraint| constraint.forced(limit, vocab, end_ids))
    }
}

const SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "name": { "type": "string", "maxLength": 30 },
        "population": { "type": "integer", "minimum": 0 },
        "coastal": { "type": "boolean" },
        "sights": { "type": "array", "items": { "type": "string", "maxLength": 30 }, "minItems": 2, "maxItems": 3 }
    },
    "required": ["name", "population", "coastal", "sights"],
    "additionalProperties": false
}"#;

/// With every drafter, greedy and seeded, the JSON that the model gives alone; what masks take is small beside a pass.
fn json_is_the_same_with_and_without_speculation(model: Model) {
    let pool = pool();
    let target = Loaded::new(model, &pool);
    let copy = Loaded::new(model, &pool);
    let begun = Instant::now();
    let grammars = Grammars::new(&*target.tokens, target.tokens.0.end_ids()).expect("a vocabulary with an end");
    println!("{}: grammars are ready in {:.0} ms", model.stem(), begun.elapsed().as_secs_f64() * 1e3);
    let mut drafters: Vec<(&str, Box<dyn Drafter>, usize)> =
        vec![("ngram", Box::new(NgramDrafter::new()), 5), ("self", Box::new(ModelDrafter::new(copy.model)), 5)];
    let mut engines: Vec<(&str, Engine, usize)> =
        drafters.drain(..).map(|(name, drafter, k)| (name, target.engine().with_drafter(drafter), k)).collect();
    engines.insert(0, ("plain", target.engine(), 0));
    for text in ["Describe Lisbon as JSON.", "Describe a city in the mountains of Peru, in JSON."] {
        for temperature in [0.0, 0.7] {
            let mut expected: Option<Completion> = None;
            for (name, engine, k) in &mut engines {
                let spent = Arc::new(AtomicU64::new(0));
                let grammar = grammars.json_schema(SCHEMA).expect("a schema");
                let constraint = Box::new(Timed(Box::new(grammar), Arc::clone(&spent)));
                let request = target.request(text, temperature, *k);
                let got = run(engine, Request { constraint: Some(constraint), ..request });
                let count = got.completion_tokens as u32;
                let mask = Duration::from_nanos(spent.load(Ordering::Relaxed)) / count;
                let pass = got.timings.verify / got.speculation.rounds.max(1) as u32;
                println!(
                    "{text} at {temperature}, {name}: {count} tokens, {} rounds, {} of {} foreseen or drafted accepted; \
                     the constraint took {:.0} us a token, a pass {:.1} ms",
                    got.speculation.rounds,
                    got.speculation.accepted,
                    got.speculation.drafted,
                    mask.as_secs_f64() * 1e6,
                    pass.as_secs_f64() * 1e3
                );
                assert!(mask < pass / 4, "{name}: masks take {mask:?} a token, a pass {pass:?}");
                let Some(expected) = &expected else {
                    assert_eq!(got.finish, FinishReason::Stop, "{}", got.text);
                    let value: Value = serde_json::from_str(&got.text).expect("JSON");
                    assert!(
                        value["population"].is_u64() && value["sights"].as_array().is_some_and(|list| list.len() >= 2)
                    );
                    println!("{value}");
                    expected = Some(got);
                    continue;
                };
                assert_eq!(
                    (&got.tokens, got.finish),
                    (&expected.tokens, expected.finish),
                    "{text} at {temperature}, {name}"
                );
                assert!(got.speculation.drafted > got.speculation.forced || *name == "ngram", "{:?}", got.speculation);
                assert!(got.speculation.forced > 0, "{:?}", got.speculation);
            }
        }
    }
}

#[test]
fn real_smollm2_json_is_the_same_with_and_without_speculation() {
    json_is_the_same_with_and_without_speculation(Model::SmolLm2);
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair_takes_drafts_of_smollm2_by_the_tokens_both_have() {
    let pool = pool();
    let (target, draft) = (Loaded::new(Model::QwenDraft, &pool), Loaded::new(Model::SmolLm2, &pool));
    let vocabulary = || Arc::clone(&target.tokens) as Arc<dyn TokenText>;
    let error = VocabularyMap::new(vocabulary(), &*draft.tokens).expect_err("other tokenizers").to_string();
    assert!(error.contains("at id 0"), "{error}");
    let map = VocabularyMap::intersection(vocabulary(), &*draft.tokens).expect("they share text");
    println!("{} tokens in common; {:?}", map.shared(), map.notes());
    assert!(map.shared() > 10_000, "{map:?}");
    let mut plain = target.engine();
    let drafter = ModelDrafter::new(draft.model).with_vocabulary(map).with_shortlist();
    let mut engine = target.engine().with_drafter(Box::new(drafter));
    for text in [
        "Write a Python function that adds two numbers.",
        "Why is the sky blue? Answer in one paragraph, café style 😀.",
    ] {
        for temperature in [0.0, 0.7] {
            let expected = run(&mut plain, target.request(text, temperature, 0));
            for k in [2, 5] {
                let got = run(&mut engine, target.request(text, temperature, k));
                let stats = &got.speculation;
                println!("{text} at {temperature}, k {k}: {} of {} accepted", stats.accepted, stats.drafted);
                assert_eq!(
                    (&got.tokens, got.finish),
                    (&expected.tokens, expected.finish),
                    "{text} at {temperature}, k {k}"
                );
                assert!(stats.drafted > 40 && stats.accepted > 0, "{text} at {temperature}, k {k}: {stats:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair_has_one_vocabulary() {
    let tokens =
        |model| Checkpoint::open(models::path(model)).expect("the file opens").tokenizer().expect("a tokenizer");
    let target: Arc<dyn TokenText> = Arc::new(Tokens(tokens(Model::QwenTarget)));
    let map = VocabularyMap::new(target, &Tokens(tokens(Model::QwenDraft))).expect("one vocabulary");
    assert!(map.is_identity() && map.notes().is_empty(), "{map:?}");
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair_is_shown_tools_by_its_template_and_the_tags_of_calls_are_text() {
    for model in [Model::QwenTarget, Model::QwenDraft] {
        let checkpoint = Checkpoint::open(models::path(model)).expect("the file opens");
        let tokenizer = checkpoint.tokenizer().expect("a tokenizer");
        for tag in ["<tool_call>", "</tool_call>"] {
            let ids = tokenizer.encode(tag, false).expect("tokens");
            assert_eq!(ids.len(), 1, "{tag} is {ids:?}");
            assert_eq!(tokenizer.token_bytes(ids[0], false).expect("a token"), tag.as_bytes());
        }
        let template = checkpoint.chat_template().expect("it can be read").expect("there is one");
        let render =
            |conversation: &Conversation<'_>| template.render_json(conversation).map_err(|error| error.to_string());
        assert_eq!(ToolStyle::of(&render), ToolStyle::Template);
    }
}
