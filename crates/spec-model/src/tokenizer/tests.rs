//! Byte-level BPE from metadata; the other kinds in the files below.

mod hostile;
mod pieces;
mod pre_tokenizers;
mod published;

use super::*;
use crate::gguf::Gguf;
use crate::gguf::write::{Value, Writer};

/// All bytes, two merges, and one token of every other kind.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = (0..=u8::MAX).map(|b| byte_level::character_of(b).to_string()).collect();
    texts.extend(["ab", "abc", "<|im_end|>", "<s>", "<tool>", "<0x0A>", "</s>", "[PAD]"].map(String::from));
    texts
}

const KINDS: [i32; 8] = [1, 1, 3, 3, 4, 6, 1, 5];

fn file() -> Writer {
    let mut kinds = vec![1; 256];
    kinds.extend(KINDS);
    Writer::new()
        .key("tokenizer.ggml.model", "gpt2")
        .key("tokenizer.ggml.pre", "gpt-2")
        .key("tokenizer.ggml.tokens", texts())
        .key("tokenizer.ggml.token_type", kinds)
        .key("tokenizer.ggml.merges", ["a b", "ab c"].as_slice())
        .key("tokenizer.ggml.bos_token_id", 259_u32)
        .key("tokenizer.ggml.eos_token_id", 258_u32)
}

fn load_with(writer: Writer, pre: Option<&str>) -> Result<Tokenizer> {
    let gguf = Gguf::parse(writer.finish(), "t.gguf")?;
    Tokenizer::from_metadata(gguf.metadata(), pre)
}

fn load(writer: Writer) -> Tokenizer {
    load_with(writer, None).unwrap()
}

fn problem(writer: Writer) -> String {
    load_with(writer, None).unwrap_err().to_string()
}

/// Every token, as both know it.
fn same_tokens(vocabulary: &Vocabulary, tokenizer: &Tokenizer) {
    assert_eq!((vocabulary.len(), vocabulary.real_len()), (tokenizer.vocab_size(), tokenizer.real_vocab_size()));
    assert!(!vocabulary.is_empty() && vocabulary.text(vocabulary.len() as u32).is_err());
    for id in 0..vocabulary.len() as u32 {
        assert_eq!(vocabulary.text(id).unwrap(), tokenizer.token_text(id).unwrap());
        assert_eq!(vocabulary.kind(id).unwrap(), tokenizer.token_kind(id).unwrap());
        for control in [false, true] {
            assert_eq!(vocabulary.bytes(id, control).unwrap(), tokenizer.token_bytes(id, control).unwrap());
        }
    }
}

#[test]
fn a_vocabulary_needs_no_rules_of_splitting() {
    let read = |writer: Writer| Vocabulary::from_metadata(Gguf::parse(writer.finish(), "t.gguf").unwrap().metadata());
    same_tokens(&read(file()).unwrap(), &load(file()));
    for odd in [with("pre", "unheard-of"), with("merges", ["nonsense"].as_slice())] {
        same_tokens(&read(odd).unwrap(), &load(file()));
    }
    let message = read(with("model", "bert")).unwrap_err().to_string();
    assert!(message.contains("bert"), "{message}");
    let message = read(with("token_type", vec![1; 7])).unwrap_err().to_string();
    assert!(message.contains("7 kinds"), "{message}");
}

fn with(key: &str, value: impl Into<Value>) -> Writer {
    file().key(&format!("tokenizer.ggml.{key}"), value)
}

/// A tokenizer of each kind that has a token for everything, by name.
fn every_kind() -> &'static [(&'static str, Tokenizer)] {
    static KINDS: std::sync::OnceLock<Vec<(&str, Tokenizer)>> = std::sync::OnceLock::new();
    KINDS.get_or_init(|| {
        vec![
            ("byte-level BPE", load(file())),
            ("pieces with a space in front", pieces::tokenizer(true)),
            ("pieces", pieces::tokenizer(false)),
            ("marked tokenizer.json", published::marked()),
        ]
    })
}

#[test]
fn every_byte_has_its_own_character() {
    let characters: std::collections::HashSet<char> = (0..=u8::MAX).map(byte_level::character_of).collect();
    assert_eq!(characters.len(), 256);
    assert_eq!(byte_level::character_of(b' '), 'Ġ');
    assert_eq!(byte_level::character_of(b'\n'), 'Ċ');
    assert_eq!(byte_level::character_of(b'A'), 'A');
    assert_eq!(byte_level::decode("ĠéĊ"), Some(vec![b' ', 0xe9, b'\n']));
    assert_eq!(byte_level::decode("中"), None);
}

#[test]
fn merges_apply_in_order_and_bytes_come_back_exactly() {
    let tokenizer = load(file());
    assert_eq!(tokenizer.encode("abcab", false).unwrap(), [257, 256]);
    let text = "ab é\u{0}\t中文 \r\n😀";
    let ids = tokenizer.encode(text, false).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
}

#[test]
fn control_tokens_are_text_unless_they_are_asked_for() {
    let tokenizer = load(file());
    let plain = tokenizer.encode("ab<|im_end|>", false).unwrap();
    assert_eq!((plain[0], plain.len()), (256, 1 + "<|im_end|>".len()));
    assert_eq!(tokenizer.encode("ab<|im_end|>ab", true).unwrap(), [256, 258, 256]);
    // A user-defined token is always one id, as in the model's own tokenizer.
    assert_eq!(tokenizer.encode("<tool>", false).unwrap(), [260]);
    assert_eq!(tokenizer.encode("<tool>", true).unwrap(), [260]);
    assert!(tokenizer.encode("", true).unwrap().is_empty());
}

#[test]
fn tags_of_tool_calls_are_text_however_they_are_marked() {
    let tags = ["<tool_call>", "</tool_call>"];
    let file = |kind: i32| {
        let texts: Vec<String> = texts().into_iter().chain(tags.map(String::from)).collect();
        let kinds: Vec<i32> = [1; 256].into_iter().chain(KINDS).chain([kind; 2]).collect();
        file().key("tokenizer.ggml.tokens", texts).key("tokenizer.ggml.token_type", kinds)
    };
    for kind in [3, 4] {
        let tokenizer = load(file(kind));
        for (id, tag) in (264..).zip(tags) {
            assert_eq!(tokenizer.token_kind(id).unwrap(), TokenKind::UserDefined, "{tag} of kind {kind}");
            assert_eq!(tokenizer.token_bytes(id, false).unwrap(), tag.as_bytes());
            assert_eq!(tokenizer.encode(tag, false).unwrap(), [id]);
        }
    }
    // Nothing else that is marked as control becomes text.
    assert_eq!(load(file(3)).token_kind(258).unwrap(), TokenKind::Control);
}

#[test]
fn bos_comes_first_once_and_only_with_special_tokens() {
    let tokenizer = load(with("add_bos_token", true));
    assert!(tokenizer.adds_bos());
    assert_eq!(tokenizer.encode("ab", false).unwrap(), [256]);
    assert_eq!(tokenizer.encode("ab", true).unwrap(), [259, 256]);
    assert_eq!(tokenizer.encode("<s>ab", true).unwrap(), [259, 256]);
    assert_eq!(load(with("add_bos_token", false)).encode("ab", true).unwrap(), [256]);
    let without_id = with("add_bos_token", true).without_key("tokenizer.ggml.bos_token_id");
    assert!(problem(without_id).contains("bos_token_id"));
}

#[test]
fn eos_comes_last_once_and_only_when_the_metadata_says_so() {
    let tokenizer = load(with("add_eos_token", true));
    assert_eq!(tokenizer.encode("ab", false).unwrap(), [256]);
    assert_eq!(tokenizer.encode("ab", true).unwrap(), [256, 258]);
    assert_eq!(tokenizer.encode("ab<|im_end|>", true).unwrap(), [256, 258]);
}

#[test]
fn end_ids_come_from_metadata_and_known_texts() {
    assert_eq!(load(file()).end_ids(), [258]);
    let more = with("eot_token_id", 256_u32).key("tokenizer.ggml.eom_token_id", 257_u32);
    assert_eq!(load(more).end_ids(), [256, 257, 258]);
    // Chats end though the end of text is another token, and the file names no end of turn.
    assert_eq!(load(with("eos_token_id", 259_u32)).end_ids(), [258, 259]);
    // Text like `</s>` is an end only when it is marked as control.
    let mut kinds = vec![1; 256];
    kinds.extend([1, 1, 3, 3, 4, 6, 3, 5]);
    assert_eq!(load(with("token_type", kinds)).end_ids(), [258, 262]);
}

#[test]
fn bytes_of_each_kind_of_token() {
    let tokenizer = load(file());
    let bytes = |id, control| tokenizer.token_bytes(id, control).unwrap();
    assert_eq!(bytes(0xe9, false), [0xe9]);
    assert_eq!(bytes(257, false), b"abc");
    assert_eq!((bytes(258, false), bytes(258, true)), (vec![], b"<|im_end|>".to_vec()));
    assert_eq!(bytes(260, false), b"<tool>");
    assert_eq!(bytes(261, false), b"\n");
    assert_eq!((bytes(263, false), bytes(263, true)), (vec![], b"[PAD]".to_vec()));
    assert_eq!(tokenizer.token_text(0x20).unwrap(), "Ġ");
    assert_eq!(tokenizer.token_kind(260).unwrap(), TokenKind::UserDefined);
}

#[test]
fn the_end_of_a_message_is_no_end_where_turns_return() {
    let ends = |extra: &str| {
        let mut texts = texts();
        (texts[260], texts[262], texts[263]) = ("<|end|>".into(), "<|return|>".into(), extra.into());
        let mut kinds = vec![1; 256];
        kinds.extend([1, 1, 3, 3, 3, 6, 3, 3]);
        load(with("tokens", texts).key("tokenizer.ggml.token_type", kinds)).end_ids().to_vec()
    };
    assert_eq!(ends("[PAD]"), [258, 260, 262]);
    assert_eq!(ends("<|call|>"), [258, 262, 263]);
}

#[test]
fn an_id_out_of_range_is_an_error() {
    let tokenizer = load(file());
    for id in [264, u32::MAX] {
        let error = tokenizer.token_bytes(id, true).unwrap_err();
        assert!(matches!(error, Error::TokenId { id: found, size: 264 } if found == id));
        assert!(tokenizer.decode(&[0, id]).is_err());
        assert!(tokenizer.token_text(id).is_err());
    }
}

#[test]
fn a_byte_without_a_token_is_an_error_and_never_dropped() {
    let mut texts = texts();
    texts[0x04] = "hole".into();
    let tokenizer = load(with("tokens", texts));
    let message = tokenizer.encode("ab\u{4}", false).unwrap_err().to_string();
    assert!(message.contains("0x04") && message.contains("offset 2"), "{message}");
    assert_eq!(tokenizer.encode("ab", false).unwrap(), [256]);
}

#[test]
fn an_unknown_pre_tokenizer_lists_the_known_and_can_be_overridden() {
    let message = problem(with("pre", "xyz"));
    for name in ["`xyz`", "smollm", "qwen2", "gpt-2"] {
        assert!(message.contains(name), "{message}");
    }
    assert!(load_with(with("pre", "xyz"), Some("qwen2")).is_ok());
    assert!(load_with(file(), Some("nope")).is_err());
    let missing = file().without_key("tokenizer.ggml.pre");
    let message = problem(missing.clone());
    assert!(message.contains("`tokenizer.ggml.pre` is missing") && message.contains("llama-bpe"), "{message}");
    assert!(load_with(missing, Some("gpt-2")).is_ok());
}

#[test]
fn pre_tokenizers_split_as_their_models_do() {
    // With "1 2" as a merge, only rules that keep digits together can use it.
    let digits = with("merges", ["1 2"].as_slice()).key("tokenizer.ggml.tokens", {
        let mut texts = texts();
        texts[256] = "12".into();
        texts
    });
    let count = |pre| load_with(digits.clone(), Some(pre)).unwrap().encode("12", false).unwrap().len();
    assert_eq!((count("gpt-2"), count("smollm"), count("qwen2"), count("llama-bpe")), (1, 2, 2, 1));
    // Qwen's tokenizer composes characters first; GPT-2's does not.
    let decomposed = "e\u{301}";
    let qwen = load_with(file(), Some("qwen2")).unwrap();
    assert_eq!(qwen.decode(&qwen.encode(decomposed, false).unwrap()).unwrap(), "é");
    let gpt2 = load(file());
    assert_eq!(gpt2.decode(&gpt2.encode(decomposed, false).unwrap()).unwrap(), decomposed);
}

#[test]
fn contradictory_tables_are_refused() {
    let mut twice = texts();
    twice[262] = "ab".into();
    let cases = [
        (with("tokens", twice), "same text"),
        (with("tokens", Vec::<String>::new()), "empty"),
        (with("token_type", vec![1; 3]), "3 kinds for 264 tokens"),
        (with("token_type", vec![9; 264]), "kind 9"),
        (with("token_type", Value::U8s(vec![1; 264])), "array of u8"),
        (with("merges", ["ab"].as_slice()), "merge 0"),
        (with("merges", ["a  b"].as_slice()), "merge 0"),
        (with("merges", ["a b", "x y"].as_slice()), "xy"),
        (with("eos_token_id", 264_u32), "264"),
        (with("model", "llama"), "tokenizer.ggml.scores"),
        (with("model", "bert"), "encoders"),
        (with("model", "rwkv"), "`rwkv`"),
        (with("add_eos_token", true).without_key("tokenizer.ggml.eos_token_id"), "eos_token_id"),
        (file().without_key("tokenizer.ggml.merges"), "tokenizer.ggml.merges"),
        (file().without_key("tokenizer.ggml.token_type"), "tokenizer.ggml.token_type"),
    ];
    for (writer, phrase) in cases {
        let message = problem(writer);
        assert!(message.starts_with("t.gguf") && message.contains(phrase), "`{phrase}` is not in: {message}");
    }
}
