//! JSON schemas over a vocabulary that cuts a text in many ways.

use std::borrow::Cow;

use serde_json::Value;
use spec_runtime::{
    Chooser, Constraint, FinishReason, Form, Grammar, Grammars, SuffixDrafter, TokenRole, TokenSet, TokenText,
};

use super::*;

const WORDS: [&str; 10] = ["{\"", "\":", "name", "\":\"", "true", "false", "null", ", ", "ok", "\"}"];
const VOCAB: usize = 128 + WORDS.len() + 3;
/// Two tokens end a text; one begins it.
const ENDS: [Token; 2] = [VOCAB as Token - 2, VOCAB as Token - 1];

/// Every character of ASCII, some words, and three control tokens.
struct Ascii;

impl TokenText for Ascii {
    fn vocab(&self) -> usize {
        VOCAB
    }
    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        match token as usize {
            byte @ ..128 => Cow::Owned(vec![byte as u8]),
            word => Cow::Borrowed(WORDS.get(word - 128).map_or(b"", |word| word.as_bytes())),
        }
    }
    fn label(&self, token: Token) -> Cow<'_, str> {
        Cow::Owned(format!("token {token}"))
    }
}

const RECORD: &str = r##"{
    "type": "object",
    "properties": {
        "name": { "type": "string", "maxLength": 6 },
        "ok": { "type": "boolean" },
        "count": { "$ref": "#/$defs/count" },
        "list": { "type": "array", "items": { "enum": ["left", "right", null] }, "minItems": 1, "maxItems": 3 }
    },
    "required": ["name", "ok", "count", "list"],
    "additionalProperties": false,
    "$defs": { "count": { "type": "integer", "minimum": -5, "maximum": 999 } }
}"##;

fn grammars() -> Grammars {
    Grammars::new(&Ascii, &ENDS).expect("a vocabulary with an end")
}

fn spec() -> HashSpec {
    HashSpec { vocab: VOCAB, order: 5, ..HashSpec::default() }
}

fn constrained(grammar: Grammar, temperature: f32, k: usize) -> Request {
    let mut request =
        Request { sampling: sampled(temperature), constraint: Some(Box::new(grammar)), ..request(300, k) };
    request.stop.end_ids = ENDS.to_vec();
    request
}

fn answer(drafter: Option<Box<dyn Drafter>>, request: Request) -> Completion {
    let engine = Engine::new(HashModel::new(spec()), Arc::new(Ascii));
    run(&mut drafter.into_iter().fold(engine, Engine::with_drafter), request)
}

fn auto() -> Box<dyn Drafter> {
    Box::new(Chooser::new(vec![
        Box::new(SuffixDrafter::new()),
        Box::new(NgramDrafter::new()),
        model_drafter(HashSpec { noise: 0.3, ..spec() }),
    ]))
}

#[test]
fn json_of_a_schema_is_the_same_with_and_without_speculation() {
    let grammars = grammars();
    for temperature in [0.0, 0.7, 1.5] {
        let with = |k| constrained(grammars.json_schema(RECORD).expect("a schema"), temperature, k);
        let expected = answer(None, with(0));
        assert_eq!(expected.finish, FinishReason::Stop, "{}", expected.text);
        let value: Value =
            serde_json::from_str(&expected.text).unwrap_or_else(|error| panic!("{error}: {}", expected.text));
        assert!(value["name"].as_str().is_some_and(|name| name.chars().count() <= 6), "{value}");
        assert!(value["ok"].is_boolean() && value["count"].as_i64().is_some_and(|count| (-5..=999).contains(&count)));
        assert!(value["list"].as_array().is_some_and(|list| (1..=3).contains(&list.len())), "{value}");
        assert_eq!(value.as_object().map(serde_json::Map::len), Some(4));
        for k in [1, 5, 20] {
            for (name, drafter) in drafters(&spec()).into_iter().chain([("auto", auto())]) {
                let got = answer(Some(drafter), with(k));
                assert_eq!((&got.tokens, got.finish), (&expected.tokens, expected.finish), "{name}, k {k}");
                let (forced, drafted) = (got.speculation.forced, got.speculation.drafted);
                assert!(forced > 0 && (drafted > forced || name == "ngram"), "{name}, k {k}: {:?}", got.speculation);
            }
        }
    }
}

#[test]
fn copies_of_a_grammar_go_their_own_ways() {
    let grammars = grammars();
    let grammar = || grammars.json_schema(RECORD).expect("a schema");
    let with = |grammar: Grammar, choice| Request { choice, ..constrained(grammar, 1.2, 5) };
    let expected: Vec<Completion> = (0..4).map(|choice| answer(Some(auto()), with(grammar(), choice))).collect();
    let mut engine = Engine::new(HashModel::new(spec()), Arc::new(Ascii)).with_drafter(auto());
    let one = grammar();
    let mut under_way: Vec<_> =
        (0..4).map(|choice| Some(engine.start(with(one.clone(), choice)).expect("a legal request"))).collect();
    let mut got: Vec<Option<Completion>> = vec![None; 4];
    while got.contains(&None) {
        for (place, got) in under_way.iter_mut().zip(&mut got) {
            let Some(mut generation) = place.take() else { continue };
            if engine.step(&mut generation, &mut |_| {}).expect("the step succeeds") {
                *place = Some(generation);
            } else {
                *got = Some(engine.finish(generation));
            }
        }
    }
    let texts = |all: &[Completion]| all.iter().map(|completion| completion.text.clone()).collect::<Vec<_>>();
    let got: Vec<Completion> = got.into_iter().flatten().collect();
    assert_eq!(texts(&got), texts(&expected));
    assert!(texts(&got).iter().any(|text| *text != got[0].text), "choices differ: {:?}", texts(&got));
}

#[test]
fn a_schema_that_allows_everything_ends_where_its_value_ends() {
    let grammars = grammars();
    // A number or a text has no end of its own; what the schema bounds ends whatever the model thinks.
    for (schema, least) in [("{}", 5), ("true", 5), (r#"{ "type": "boolean" }"#, 20), (r#"{ "const": [] }"#, 20)] {
        let mut ended = 0;
        for seed in 0..20 {
            let with = |k| Request {
                seed: Some(seed),
                ..constrained(grammars.json_schema(schema).expect("a schema"), 1.2, k)
            };
            let expected = answer(None, with(0));
            let got = answer(Some(model_drafter(spec())), with(5));
            assert_eq!((&got.tokens, got.finish), (&expected.tokens, expected.finish), "{schema}, seed {seed}");
            if got.finish == FinishReason::Stop {
                ended += 1;
                let parsed = serde_json::from_str::<Value>(&got.text);
                parsed.unwrap_or_else(|error| panic!("{schema}: {error}: {}", got.text));
            }
        }
        assert!(ended >= least, "{schema}: {ended} of 20 ended");
    }
    let object = answer(None, constrained(grammars.json_object().expect("a grammar"), 0.0, 0));
    assert!(object.text.starts_with('{'), "{}", object.text);
}

#[test]
fn json_between_tags_is_forced_with_its_markers_and_lossless() {
    let grammars = grammars();
    // The token that begins a text, and is in none, as the tag that opens.
    let marker = VOCAB as Token - 3;
    let call = |name: &str| {
        Form::Sequence(vec![
            Form::Token(marker),
            Form::Text(format!("\n{{\"name\": \"{name}\", \"arguments\": ")),
            Form::Json(RECORD.into()),
            Form::Text("}</call>".into()),
        ])
    };
    let form = Form::Repeated(Box::new(Form::Either(vec![call("left \\ \"{}\""), call("right")])));
    for temperature in [0.0, 0.9] {
        let with = |k| constrained(grammars.form(&form).expect("a form"), temperature, k);
        let expected = answer(None, with(0));
        let (first, rest) = expected.tokens.split_first().expect("an answer");
        assert_eq!(*first, marker);
        assert!(rest.contains(&marker) || expected.finish == FinishReason::Stop, "{}", expected.text);
        assert!(expected.text.starts_with("\n{\"name\": \""), "{}", expected.text);
        assert!(expected.text.contains("\"count\""), "{}", expected.text);
        for k in [1, 3, 5] {
            let got = answer(Some(auto()), with(k));
            assert_eq!((&got.tokens, got.finish), (&expected.tokens, expected.finish), "k {k}");
            assert!(got.speculation.forced > 0 && got.speculation.accepted > 0, "k {k}: {:?}", got.speculation);
        }
    }
    let mut sole =
        grammars.form(&Form::Sequence(vec![Form::Text("a".into()), Form::Token(marker), Form::Text("b".into())]));
    let forced = sole.as_mut().expect("a form").forced(8, VOCAB, &ENDS).expect("an answer");
    assert_eq!(forced, [Token::from(b'a'), marker, Token::from(b'b')]);
}

#[test]
fn forms_that_name_nothing_are_refused() {
    let grammars = grammars();
    let refused = grammars.form(&Form::Repeated(Box::new(Form::Token(VOCAB as Token)))).expect_err("no such token");
    assert!(refused.to_string().contains(&VOCAB.to_string()), "{refused}");
    let refused = grammars.form(&Form::Sequence(vec![Form::Json("{\"type\": \"wish\"}".into())])).expect_err("no type");
    assert!(refused.to_string().contains("wish"), "{refused}");
}

/// A generator of choices for walks.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn allowed(grammar: &mut Grammar) -> TokenSet {
    let mut set = TokenSet::new(VOCAB);
    grammar.allow(&mut set).expect("a mask");
    set
}

#[test]
fn a_state_taken_back_is_the_state_that_was() {
    let grammars = grammars();
    for seed in 0..12 {
        let mut choices = Choices(seed);
        let mut grammar = grammars.json_schema(RECORD).expect("a schema");
        let mut path: Vec<Token> = Vec::new();
        for _ in 0..120 {
            // What is foreseen is allowed, one after another, and asking leaves the state as it is.
            if choices.below(3) == 0 {
                let foreseen = grammar.forced(8, VOCAB, &ENDS).expect("an answer");
                for &token in &foreseen {
                    assert!(allowed(&mut grammar).contains(token), "{token} of {foreseen:?} behind {path:?}");
                    grammar.advance(token).expect("it is allowed");
                }
                grammar.roll_back(foreseen.len());
            }
            let set = allowed(&mut grammar);
            let mut fresh = grammars.json_schema(RECORD).expect("a schema");
            path.iter().for_each(|&token| fresh.advance(token).expect("it was allowed"));
            assert_eq!(set, allowed(&mut fresh), "behind {path:?}");
            let next: Vec<Token> =
                (0..VOCAB as Token).filter(|&token| set.contains(token) && !ENDS.contains(&token)).collect();
            if next.is_empty() {
                assert!(ENDS.iter().all(|&end| set.contains(end)), "an end is all that is left");
            }
            if next.is_empty() || choices.below(4) == 0 {
                let back = choices.below(path.len() + 1);
                grammar.roll_back(back);
                path.truncate(path.len() - back);
            } else {
                let token = next[choices.below(next.len())];
                grammar.advance(token).expect("it is allowed");
                path.push(token);
            }
        }
    }
}

#[test]
fn what_cannot_be_enforced_is_refused_in_one_line() {
    let grammars = grammars();
    for (schema, words) in [
        ("", &["no JSON"][..]),
        ("{", &["no JSON"]),
        ("[]", &["an object, true or false"]),
        ("7", &["an object, true or false"]),
        ("false", &["nothing satisfies"]),
        (r#"{ "type": "wish" }"#, &["wish"]),
        (r#"{ "type": "integer", "minimum": 5, "maximum": 1 }"#, &["nsatisfiable"]),
        (r##"{ "$ref": "#/nowhere" }"##, &["nowhere"]),
        (r#"{ "type": "array", "contains": { "const": 1 } }"#, &["contains"]),
        (r#"{ "type": "string", "pattern": "(" }"#, &["("]),
    ] {
        let message = grammars.json_schema(schema).expect_err(schema).to_string();
        assert!(message.starts_with("json_schema: ") && !message.contains('\n'), "{schema}: {message}");
        assert!(words.iter().all(|word| message.contains(word)), "{schema}: {message}");
    }
    let deep = "[".repeat(100_000);
    assert!(grammars.json_schema(&deep).is_err());
}

#[test]
fn a_vocabulary_without_an_end_or_with_monstrous_tokens_is_no_reason_to_panic() {
    let message = Grammars::new(&Ascii, &[]).expect_err("no end").to_string();
    assert!(message.contains("no end token"), "{message}");

    struct Monstrous(usize);
    impl TokenText for Monstrous {
        fn vocab(&self) -> usize {
            300
        }
        fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
            if token < 128 { Ascii.bytes(token) } else { Cow::Owned(vec![b'a' + (token % 26) as u8; self.0]) }
        }
        fn label(&self, token: Token) -> Cow<'_, str> {
            Ascii.label(token)
        }
        fn role(&self, _: Token) -> TokenRole {
            TokenRole::Text
        }
    }
    for length in [1000, 1001, 100_000] {
        let grammars = Grammars::new(&Monstrous(length), &[299]).expect("long tokens are left out");
        let mut set = TokenSet::new(300);
        grammars.json_object().expect("a grammar").allow(&mut set).expect("a mask");
        assert!(set.contains(Token::from(b'{')) && !set.contains(200));
    }
}
