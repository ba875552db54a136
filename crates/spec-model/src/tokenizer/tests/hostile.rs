//! Damaged and hostile vocabularies: no panic, no guess.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::*;
use super::published::byte_level_file;
use crate::gguf::Gguf;
use crate::gguf::write::Writer;

const TEXTS: [&str; 4] = ["ab<|im_end|>é 中 12", "", "\u{0}<s><tool>", "aaaaaaaaaaaaaaaaaaaaabc"];

/// So many cases, or more where `PROPTEST_CASES` asks for them.
fn at_least(cases: u32) -> Config {
    let config = Config::default();
    Config { cases: cases.max(config.cases), ..config }
}

/// Uses a tokenizer in every way; errors are as good as ids.
fn exercise(tokenizer: &Tokenizer) {
    for text in TEXTS {
        for special in [false, true] {
            if let Ok(ids) = tokenizer.encode(text, special) {
                assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()), "{text:?} gave {ids:?}");
                assert!(tokenizer.decode(&ids).is_ok());
            }
        }
    }
    assert!(tokenizer.end_ids().iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
    assert!(tokenizer.token_bytes(u32::MAX, true).is_err());
}

#[test]
fn damaged_json_is_refused_or_works() {
    let whole = byte_level_file().to_string().into_bytes();
    let config = br#"{"add_bos_token":true,"bos_token":"<s>","eos_token":{"content":"<|im_end|>"}}"#;
    let mut runner = TestRunner::new(at_least(3000));
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..6);
    // Behind the long list of bytes lies everything else: half of the edits go there.
    let result = runner.run(&(edits, any::<bool>()), |(edits, late)| {
        let mut bytes = whole.clone();
        for (place, byte, kind) in edits {
            if bytes.len() < 2 {
                break;
            }
            let from = if late { bytes.len() * 3 / 4 } else { 0 };
            let at = from + place.index(bytes.len() - from);
            match kind {
                0 => bytes[at] ^= 1 << (byte % 8),
                1 => bytes[at] = br#"{}[],:"0129-e.\unt"#[usize::from(byte) % 18],
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        if let Ok(tokenizer) = Tokenizer::from_json(&bytes, Some(config), None, "t.json") {
            exercise(&tokenizer);
        }
        Ok(())
    });
    result.unwrap();
}

/// Values that are anything but what is wanted.
fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "\\PC{0,6}".prop_map(Into::into),
        prop::sample::select(vec!["ByteLevel", "Sequence", "Split", "Metaspace", "Prepend", "a b", "ab", "▁", "<s>"])
            .prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let key =
            prop::sample::select(vec!["type", "id", "content", "prepend", "pattern", "Regex", "x", "normalizers"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            prop::collection::vec((key, inner), 0..3).prop_map(|entries| entries
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    })
}

#[test]
fn wrong_types_anywhere_are_refused_or_work() {
    const PLACES: [&str; 22] = [
        "/added_tokens",
        "/added_tokens/0",
        "/added_tokens/0/id",
        "/added_tokens/0/content",
        "/added_tokens/0/normalized",
        "/added_tokens/2/special",
        "/normalizer",
        "/normalizer/type",
        "/pre_tokenizer",
        "/pre_tokenizer/pretokenizers",
        "/pre_tokenizer/pretokenizers/0",
        "/pre_tokenizer/pretokenizers/0/pattern",
        "/pre_tokenizer/pretokenizers/0/pattern/Regex",
        "/pre_tokenizer/pretokenizers/0/behavior",
        "/post_processor",
        "/post_processor/single",
        "/post_processor/single/0",
        "/decoder",
        "/model",
        "/model/vocab/abc",
        "/model/merges",
        "/model/merges/1",
    ];
    let whole = byte_level_file();
    let mut runner = TestRunner::new(at_least(2000));
    let changes = prop::collection::vec((prop::sample::select(PLACES.to_vec()), any_json()), 1..3);
    let result = runner.run(&changes, |changes| {
        let mut file = whole.clone();
        for (place, value) in changes {
            if let Some(target) = file.pointer_mut(place) {
                *target = value;
            }
        }
        if let Ok(tokenizer) = Tokenizer::from_json(file.to_string().as_bytes(), None, None, "t.json") {
            exercise(&tokenizer);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn json_bombs_are_refused_at_once() {
    let deep = "[".repeat(1_000_000);
    let nested = |inner: &str| format!(r#"{{"normalizer":{inner},"model":{{"vocab":{{"a":0}},"merges":[]}}}}"#);
    let sequences = (0..100)
        .fold(r#"{"type":"NFC"}"#.to_owned(), |inner, _| format!(r#"{{"type":"Sequence","normalizers":[{inner}]}}"#));
    let long = format!(r#"{{"model":{{"vocab":{{}},"merges":[{}0]}}}}"#, "0,".repeat(1_000_000));
    let bombs = [
        deep.clone(),
        nested(&deep),
        nested(&sequences),
        nested(&format!(r#"{{"type":"Sequence","normalizers":[{}null]}}"#, "null,".repeat(1_000_000))),
        format!(r#"{{"model":{deep}}}"#),
        long,
        format!(r#"{{"model":{{"vocab":{{"a":{}}},"merges":[]}}}}"#, "9".repeat(1_000_000)),
        r#"{"model":{"vocab":{"a":0,"a":1},"merges":[]}}"#.into(),
        r#"{"model":{"vocab":{"a":0},"merges":[]},"model":{"vocab":{"a":0},"merges":[]}}"#.into(),
        r#"{"model":{"vocab":{},"merges":[]}}"#.into(),
        String::new(),
    ];
    for bomb in bombs {
        let started = std::time::Instant::now();
        assert!(Tokenizer::from_json(bomb.as_bytes(), None, None, "t.json").is_err());
        assert!(started.elapsed().as_secs() < 5, "{:.60}", bomb);
    }
}

#[test]
fn hostile_score_tables_are_refused_or_work() {
    let text =
        prop_oneof![Just("a".to_owned()), Just("▁".to_owned()), Just("<0x41>".to_owned()), "\\PC{0,3}", "[ab▁]{1,9}"];
    let tokens = prop::collection::vec((text, any::<f32>(), 1..=6_i32), 1..40);
    let mut runner = TestRunner::new(at_least(3000));
    let result = runner.run(&(tokens, any::<bool>(), 0..50_u32), |(tokens, prefix, bos)| {
        let writer = Writer::new()
            .key("tokenizer.ggml.model", "llama")
            .key("tokenizer.ggml.tokens", tokens.iter().map(|t| t.0.clone()).collect::<Vec<_>>())
            .key("tokenizer.ggml.scores", tokens.iter().map(|t| t.1).collect::<Vec<_>>())
            .key("tokenizer.ggml.token_type", tokens.iter().map(|t| t.2).collect::<Vec<_>>())
            .key("tokenizer.ggml.bos_token_id", bos)
            .key("tokenizer.ggml.add_space_prefix", prefix);
        let gguf = Gguf::parse(writer.finish(), "t.gguf").unwrap();
        if let Ok(tokenizer) = Tokenizer::from_metadata(gguf.metadata(), None) {
            exercise(&tokenizer);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn a_long_text_of_one_character_takes_no_quadratic_time() {
    let tokens = ["<unk>", "<s>", "</s>", "a", "aa", "aaaa", "aaaaaaaa"];
    let writer = Writer::new()
        .key("tokenizer.ggml.model", "llama")
        .key("tokenizer.ggml.tokens", tokens.as_slice())
        .key("tokenizer.ggml.scores", vec![0.0_f32, 0.0, 0.0, -4.0, -3.0, -2.0, -1.0])
        .key("tokenizer.ggml.token_type", vec![2, 3, 3, 1, 1, 1, 1])
        .key("tokenizer.ggml.add_space_prefix", false);
    let gguf = Gguf::parse(writer.finish(), "t.gguf").unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata(), None).unwrap();
    let started = std::time::Instant::now();
    let ids = tokenizer.encode(&"a".repeat(1 << 20), false).unwrap();
    assert_eq!(ids, vec![6; 1 << 17]);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

proptest! {
    /// What tokens stand for is the text, byte for byte, in every kind of vocabulary: who shows whole characters of
    /// those bytes shows whole characters of the text.
    #[test]
    fn bytes_of_tokens_join_to_the_text(text in "\\PC{0,30}", special in any::<bool>()) {
        let text = text.replace('▁', "_");
        for (name, tokenizer) in super::every_kind() {
            let ids = tokenizer.encode(&text, false).unwrap();
            let joined: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id, special).unwrap()).collect();
            let prefix = if tokenizer.space_prefix && !text.is_empty() { " " } else { "" };
            prop_assert_eq!(String::from_utf8(joined).unwrap(), format!("{prefix}{text}"), "{}", name);
            prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.as_str(), "{}", name);
        }
    }
}
