//! `tokenizer.json` and the files beside it.

use serde_json::{Value, json};

use super::super::*;

/// Byte-level, with two merges and tokens of every kind.
pub(super) fn byte_level_file() -> Value {
    let mut vocab: serde_json::Map<String, Value> =
        (0..=u8::MAX).map(|b| (byte_level::character_of(b).to_string(), json!(b))).collect();
    vocab.insert("ab".into(), json!(256));
    vocab.insert("abc".into(), json!(257));
    json!({
        "version": "1.0",
        "added_tokens": [
            { "id": 258, "content": "<|im_end|>", "special": true, "normalized": false },
            { "id": 259, "content": "<s>", "special": true, "normalized": false },
            { "id": 260, "content": "<tool>", "special": false, "normalized": false },
        ],
        "normalizer": { "type": "NFC" },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": "\\p{N}" }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        ]},
        "post_processor": { "type": "TemplateProcessing",
            "single": [ { "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } } ],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [259], "tokens": ["<s>"] } } },
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": vocab, "merges": ["a b", ["ab", "c"]] },
    })
}

/// SentencePiece's form: spaces marked, one in front, bytes as the last resort.
fn marked_file() -> Value {
    let mut vocab: serde_json::Map<String, Value> =
        (0..=u8::MAX).map(|b| (format!("<0x{b:02X}>"), json!(u32::from(b) + 3))).collect();
    for (id, text) in ["<unk>", "<s>", "</s>"].iter().enumerate() {
        vocab.insert((*text).into(), json!(id));
    }
    for (at, text) in ["▁", "a", "b", "▁a", "▁ab"].iter().enumerate() {
        vocab.insert((*text).into(), json!(259 + at));
    }
    json!({
        "added_tokens": [
            { "id": 0, "content": "<unk>", "special": true, "normalized": false },
            { "id": 1, "content": "<s>", "special": true, "normalized": false },
            { "id": 2, "content": "</s>", "special": true, "normalized": false },
        ],
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ]},
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
            { "type": "ByteFallback" },
            { "type": "Fuse" },
            { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ]},
        "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": vocab, "merges": ["▁ a", "▁a b"] },
    })
}

pub(super) fn marked() -> Tokenizer {
    load(&marked_file())
}

fn load_with(file: &Value, config: Option<Value>, generation: Option<Value>) -> Result<Tokenizer> {
    let bytes = |value: Value| value.to_string().into_bytes();
    let (config, generation) = (config.map(bytes), generation.map(bytes));
    Tokenizer::from_json(file.to_string().as_bytes(), config.as_deref(), generation.as_deref(), "t.json")
}

fn load(file: &Value) -> Tokenizer {
    load_with(file, None, None).unwrap()
}

fn problem(file: &Value) -> String {
    load_with(file, None, None).unwrap_err().to_string()
}

/// The byte-level file with the place `pointer` changed.
fn changed(pointer: &str, value: Value) -> Value {
    let mut file = byte_level_file();
    *file.pointer_mut(pointer).unwrap() = value;
    file
}

#[test]
fn byte_level_texts_come_back_exactly_and_control_tokens_only_when_asked_for() {
    let tokenizer = load(&byte_level_file());
    assert_eq!(tokenizer.encode("abcab", false).unwrap(), [257, 256]);
    assert_eq!(tokenizer.encode("ab<|im_end|>ab", true).unwrap(), [259, 256, 258, 256]);
    assert_eq!(tokenizer.encode("<tool>", false).unwrap(), [260]);
    assert!(!tokenizer.encode("<|im_end|>", false).unwrap().contains(&258));
    let text = "ab é\u{0}\t中文 \r\n😀 12";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap()).unwrap(), text);
    assert_eq!(tokenizer.token_kind(258).unwrap(), TokenKind::Control);
    assert_eq!((tokenizer.vocab_size(), tokenizer.real_vocab_size()), (261, 261));
}

#[test]
fn marked_texts_get_a_space_in_front_and_bytes_where_they_have_no_token() {
    let tokenizer = load(&marked_file());
    assert_eq!(tokenizer.encode("ab a", false).unwrap(), [263, 262]);
    let text = "ab 中a\n  a ";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap()).unwrap(), text);
    assert_eq!(tokenizer.token_kind(3).unwrap(), TokenKind::Byte);
    assert_eq!(tokenizer.token_bytes(3 + 0xe4, false).unwrap(), [0xe4]);
    assert_eq!(tokenizer.token_bytes(263, false).unwrap(), b" ab");
}

#[test]
fn the_begin_token_is_the_templates_unless_the_configuration_says_otherwise() {
    let with = |config: Value| load_with(&byte_level_file(), Some(config), None).unwrap();
    let plain = load(&byte_level_file());
    assert_eq!((plain.bos_id(), plain.adds_bos()), (Some(259), true));
    assert_eq!(plain.encode("<s>ab", true).unwrap(), [259, 256]);
    let off = with(json!({ "add_bos_token": false, "bos_token": { "content": "<s>", "special": true } }));
    assert_eq!((off.bos_id(), off.encode("ab", true).unwrap()), (Some(259), vec![256]));
    let both = with(json!({ "add_eos_token": true, "eos_token": "<|im_end|>", "bos_token": null }));
    assert_eq!(both.encode("ab", true).unwrap(), [259, 256, 258]);
    let error = load_with(&byte_level_file(), Some(json!({ "add_eos_token": true })), None).unwrap_err().to_string();
    assert!(error.contains("EOS"), "{error}");
}

#[test]
fn end_ids_are_those_of_all_files() {
    let ends = |config, generation| load_with(&byte_level_file(), config, generation).unwrap().end_ids().to_vec();
    assert_eq!(ends(None, None), [258]);
    assert_eq!(ends(Some(json!({ "eos_token": "<s>" })), None), [258, 259]);
    assert_eq!(ends(None, Some(json!({ "eos_token_id": 7, "temperature": 0.7 }))), [7, 258]);
    assert_eq!(ends(None, Some(json!({ "eos_token_id": [260, 7] }))), [7, 258, 260]);
    let error = load_with(&byte_level_file(), None, Some(json!({ "eos_token_id": [261] }))).unwrap_err().to_string();
    assert!(error.contains("261"), "{error}");
}

#[test]
fn a_byte_without_a_token_is_an_error_and_never_dropped() {
    let mut file = byte_level_file();
    let vocab = file.pointer_mut("/model/vocab").unwrap().as_object_mut().unwrap();
    let key = byte_level::character_of(4).to_string();
    vocab.remove(&key);
    vocab.insert("hole".into(), json!(4));
    let message = load(&file).encode("ab\u{4}", false).unwrap_err().to_string();
    assert!(message.contains("0x04"), "{message}");
}

#[test]
fn holes_between_ids_are_unused_tokens() {
    let tokenizer = load(&changed("/model/vocab/abc", json!(300)));
    assert_eq!(tokenizer.vocab_size(), 301);
    assert_eq!(tokenizer.token_kind(257).unwrap(), TokenKind::Unused);
}

#[test]
fn what_cannot_be_read_rightly_is_refused_with_the_reason() {
    let cases = [
        (changed("/model/type", json!("Unigram")), "`Unigram`"),
        (changed("/model/type", json!("WordPiece")), "`WordPiece`"),
        (changed("/model/vocab/abc", json!(u32::MAX)), "4294967295"),
        (changed("/model/vocab/abc", json!(256)), "same id 256"),
        (changed("/model/vocab/abc", json!(-1)), "-1"),
        (changed("/model/vocab/abc", json!(1e99)), "1e+99"),
        (changed("/model/merges/0", json!("x y")), "xy"),
        (changed("/model/merges/0", json!("a  b")), "two tokens"),
        (changed("/model/merges/0", json!(["a"])), "merge"),
        (changed("/model/merges", json!("a b")), "merges"),
        (changed("/model", json!([])), "model"),
        (changed("/added_tokens/0/id", json!(256)), "same id 256"),
        (changed("/added_tokens/0/id", json!(280)), "id 280"),
        (changed("/added_tokens/0/content", json!("")), "empty"),
        (changed("/normalizer/type", json!("Precompiled")), "`Precompiled`"),
        (changed("/normalizer", json!({})), "`type`"),
        (changed("/pre_tokenizer/pretokenizers/0/pattern/Regex", json!("(")), "pre_tokenizer"),
        (changed("/pre_tokenizer/pretokenizers/0/type", json!("BertPreTokenizer")), "`BertPreTokenizer`"),
    ];
    for (file, phrase) in cases {
        let message = problem(&file);
        assert!(message.starts_with("t.json") && message.contains(phrase), "`{phrase}` is not in: {message}");
    }
    let mut marked = byte_level_file();
    for (key, value) in
        [("continuing_subword_prefix", json!("##")), ("end_of_word_suffix", json!("</w>")), ("dropout", json!(0.1))]
    {
        marked["model"][key] = value;
        assert!(problem(&marked).contains("not supported"), "{key}");
        marked["model"][key] = Value::Null;
    }
}

#[test]
fn the_vocabulary_of_a_file_is_that_of_its_tokenizer() {
    for file in [byte_level_file(), marked_file()] {
        let vocabulary = Vocabulary::from_json(file.to_string().as_bytes(), "tokenizer.json").unwrap();
        super::same_tokens(&vocabulary, &load(&file));
    }
    let message = Vocabulary::from_json(b"{", "tokenizer.json").unwrap_err().to_string();
    assert!(message.contains("tokenizer.json"), "{message}");
}
