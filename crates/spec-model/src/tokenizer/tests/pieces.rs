//! SentencePiece vocabularies, against the ids that SentencePiece itself gives.

use serde_json::Value as Json;

use super::super::*;
use crate::gguf::Gguf;
use crate::gguf::write::{Value, Writer};

fn oracle() -> Json {
    serde_json::from_str(include_str!("../../../../spec-testing/data/sentencepiece_scores/models.json")).unwrap()
}

fn file(model: &Json) -> Writer {
    let list = |key: &str| model[key].as_array().unwrap();
    let tokens: Vec<String> = list("tokens").iter().map(|t| t.as_str().unwrap().to_owned()).collect();
    let scores: Vec<f32> = list("scores").iter().map(|s| s.as_f64().unwrap() as f32).collect();
    let kinds: Vec<i32> = list("kinds").iter().map(|k| k.as_i64().unwrap() as i32).collect();
    Writer::new()
        .key("tokenizer.ggml.model", "llama")
        .key("tokenizer.ggml.tokens", tokens)
        .key("tokenizer.ggml.scores", scores)
        .key("tokenizer.ggml.token_type", kinds)
        .key("tokenizer.ggml.add_space_prefix", model["space_prefix"].as_bool().unwrap())
}

fn load(writer: Writer) -> Result<Tokenizer> {
    let gguf = Gguf::parse(writer.finish(), "t.gguf")?;
    Tokenizer::from_metadata(gguf.metadata(), None)
}

/// With a space in front of text, or without.
pub(super) fn tokenizer(space_prefix: bool) -> Tokenizer {
    load(file(&oracle()["models"][usize::from(!space_prefix)])).unwrap()
}

/// The model without a space in front, with a key changed.
fn with(key: &str, value: impl Into<Value>) -> Writer {
    file(&oracle()["models"][1]).key(&format!("tokenizer.ggml.{key}"), value)
}

const TOOL: u32 = 3;

#[test]
fn ids_are_those_of_sentencepiece() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for model in oracle()["models"].as_array().unwrap() {
        let prefix = model["space_prefix"].as_bool().unwrap();
        let tokenizer = load(file(model)).unwrap();
        for case in model["strings"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            // Behind a token matched as a whole a text begins anew here, as in llama.cpp and in published tokenizers.
            if prefix && text.contains("<tool>") {
                continue;
            }
            let theirs: Vec<u32> =
                case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let ours = tokenizer.encode(text, false).unwrap();
            if ours != theirs {
                wrong.push(format!("{text:?}: ours {ours:?}, theirs {theirs:?}"));
            }
            assert_eq!(tokenizer.decode(&ours).unwrap(), text.replace('▁', " "), "prefix {prefix}");
            compared += 1;
        }
    }
    assert!(wrong.is_empty() && compared > 40, "{compared} compared, wrong: {wrong:#?}");
}

#[test]
fn a_text_behind_a_whole_token_begins_anew() {
    let tokenizer = load(file(&oracle()["models"][0])).unwrap();
    let join = |parts: &[&[u32]]| parts.concat();
    let (a, the) = (tokenizer.encode("a", false).unwrap(), tokenizer.encode("the", false).unwrap());
    assert_eq!(tokenizer.encode("a<tool>the", false).unwrap(), join(&[&a, &[TOOL], &the]));
    // Control tokens do the same where they are asked for, after BOS.
    assert_eq!(tokenizer.encode("a</s>the", true).unwrap(), join(&[&[1], &a, &[2], &the]));
    assert!(!tokenizer.encode("a</s>the", false).unwrap().contains(&2));
}

#[test]
fn the_space_in_front_is_taken_away_at_the_start_of_a_text_alone() {
    let tokenizer = load(file(&oracle()["models"][0])).unwrap();
    let ids = tokenizer.encode("the  then", false).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "the  then");
    // What a model adds to a text keeps its space.
    assert_eq!(tokenizer.token_bytes(ids[0], false).unwrap(), b" the");
    // Without that rule a space is a space.
    let plain = load(file(&oracle()["models"][1])).unwrap();
    assert_eq!(plain.decode(&plain.encode(" the", false).unwrap()).unwrap(), " the");
}

#[test]
fn beginning_and_end_have_the_ids_of_sentencepiece_unless_the_file_says_otherwise() {
    let tokenizer = load(file(&oracle()["models"][1])).unwrap();
    assert_eq!((tokenizer.bos_id(), tokenizer.adds_bos(), tokenizer.end_ids()), (Some(1), true, &[2][..]));
    assert_eq!(tokenizer.encode("the", true).unwrap()[0], 1);
    let tokenizer = load(with("add_bos_token", false).key("tokenizer.ggml.eos_token_id", 1_u32)).unwrap();
    assert_ne!(tokenizer.encode("the", true).unwrap()[0], 1);
    assert_eq!(tokenizer.end_ids(), [1, 2]);
    let tokenizer = load(with("add_eos_token", true)).unwrap();
    assert_eq!(tokenizer.encode("the", true).unwrap().last(), Some(&2));
}

#[test]
fn the_leftmost_of_equal_scores_merges_first() {
    let tokens = ["<unk>", "<s>", "</s>", "a", "aa", "aaa"].map(String::from).to_vec();
    let tokenizer = load(
        Writer::new()
            .key("tokenizer.ggml.model", "llama")
            .key("tokenizer.ggml.tokens", tokens)
            .key("tokenizer.ggml.scores", vec![0.0_f32, 0.0, 0.0, -5.0, -1.0, -2.0])
            .key("tokenizer.ggml.token_type", vec![2, 3, 3, 1, 1, 1])
            .key("tokenizer.ggml.add_space_prefix", false),
    )
    .unwrap();
    // Pairs first, since they score more than triples; a rank per pair of tokens could not say so of both ways.
    assert_eq!(tokenizer.encode("aaaaa", false).unwrap(), [4, 5]);
    assert_eq!(tokenizer.encode("aaa", false).unwrap(), [5]);
}

#[test]
fn a_character_without_a_token_or_bytes_is_an_error_and_never_dropped() {
    let tokenizer = load(
        Writer::new()
            .key("tokenizer.ggml.model", "llama")
            .key("tokenizer.ggml.tokens", ["<unk>", "<s>", "</s>", "a"].as_slice())
            .key("tokenizer.ggml.scores", vec![0.0_f32; 4])
            .key("tokenizer.ggml.token_type", vec![2, 3, 3, 1])
            .key("tokenizer.ggml.add_space_prefix", false),
    )
    .unwrap();
    assert_eq!(tokenizer.encode("aa", false).unwrap(), [3, 3]);
    let message = tokenizer.encode("a☃", false).unwrap_err().to_string();
    assert!(message.contains("☃"), "{message}");
}

#[test]
fn contradictory_tables_are_refused() {
    let model = &oracle()["models"][1];
    let count = model["tokens"].as_array().unwrap().len();
    let mut twice: Vec<String> =
        model["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect();
    let mut no_byte = twice.clone();
    twice[300] = twice[301].clone();
    no_byte[4] = "<0xZZ>".into();
    let mut scores = vec![0.0_f32; count];
    scores[7] = f32::NAN;
    let cases = [
        (with("scores", vec![0.0_f32; 3]), "3 scores"),
        (with("scores", scores), "score of token 7"),
        (with("scores", Value::U8s(vec![1; count])), "array of u8"),
        (with("tokens", twice), "same text"),
        (with("tokens", no_byte), "byte token 4"),
        (with("bos_token_id", 1_000_000_u32), "1000000"),
        (file(model).without_key("tokenizer.ggml.scores"), "tokenizer.ggml.scores"),
    ];
    for (writer, phrase) in cases {
        let message = load(writer).unwrap_err().to_string();
        assert!(message.starts_with("t.gguf") && message.contains(phrase), "`{phrase}` is not in: {message}");
    }
    let gguf = Gguf::parse(file(model).finish(), "t.gguf").unwrap();
    let message = Tokenizer::from_metadata(gguf.metadata(), Some("qwen2")).unwrap_err().to_string();
    assert!(message.contains("`qwen2`"), "{message}");
}
