//! Real checkpoints against stored references: token ids of every string, and the text of the public prompts.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use spec_model::{Checkpoint, Message, VocabMatch, compare};

/// The model's file, in `SPEC_MODELS` or the user's cache.
fn model_path(file: &str) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = || {
        let home = || variable("HOME").map(|home| home.join(".cache"));
        let cache = variable("XDG_CACHE_HOME").or_else(home);
        cache.expect("neither HOME nor XDG_CACHE_HOME is set").join("spec/models")
    };
    let path = variable("SPEC_MODELS").unwrap_or_else(cache).join(file);
    assert!(path.is_file(), "{} is missing: run `cargo xtask fetch`", path.display());
    path
}

fn data(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec-testing/data").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

struct Expected {
    model: &'static str,
    layers: usize,
    tied: bool,
    end_ids: &'static [u32],
    prompts: bool,
}

/// Everything that is checked of one model. Returns its tokenizer for comparisons.
fn check(expected: &Expected) -> spec_model::Tokenizer {
    let path = model_path(&format!("{}.gguf", expected.model));
    let start = Instant::now();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let opened = start.elapsed();
    let start = Instant::now();
    let tokenizer = checkpoint.tokenizer().unwrap();
    println!("{}: opened in {opened:?}, tokenizer in {:?}", expected.model, start.elapsed());

    let config = checkpoint.config();
    assert_eq!((config.layers, config.tied_embeddings), (expected.layers, expected.tied));
    let weights = checkpoint.weights();
    assert_eq!(weights.layers.len(), expected.layers);
    assert_eq!(weights.embedding.rows, config.vocab_size);
    assert_eq!(tokenizer.end_ids(), expected.end_ids);

    let reference: Value = serde_json::from_str(&data(&format!("reference/{}.json", expected.model))).unwrap();
    let mut wrong = Vec::new();
    let mut equal = |text: &str, special: bool, want: Vec<u32>| {
        let got = tokenizer.encode(text, special).unwrap();
        if got != want {
            wrong.push(format!("{text:?} special {special}: got {got:?}, want {want:?}"));
        }
    };
    let strings = reference["tokenize"].as_array().unwrap();
    for string in strings {
        let text = string["text"].as_str().unwrap();
        equal(text, false, ids(&string["ids"]));
        equal(text, true, ids(&string["ids_with_special"]));
    }
    let completions = reference["complete"].as_array().unwrap();
    for completion in completions {
        equal(completion["prompt_text"].as_str().unwrap(), true, ids(&completion["prompt_ids"]));
    }
    assert!(strings.len() >= 15 && completions.len() >= 8);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    for string in strings {
        let text = string["text"].as_str().unwrap();
        assert_eq!(tokenizer.decode(&ids(&string["ids"])).unwrap(), text, "decoding must be exact");
    }

    let template = checkpoint.chat_template().unwrap().unwrap();
    for completion in completions.iter().filter(|c| c["kind"] == "chat") {
        let user = completion["user"].as_str().unwrap();
        let text = template.render(&[Message::new("user", user)]).unwrap();
        assert_eq!(text, completion["prompt_text"].as_str().unwrap());
    }
    if expected.prompts {
        for name in ["chat", "chinese", "code-edit", "code-write", "extract", "prose", "summarise"] {
            let prompt = data(&format!("prompts/{name}.txt"));
            assert_eq!(template.render(&messages(&prompt)).unwrap(), prompt, "{name}");
        }
    }
    tokenizer
}

/// The messages of a prompt written in the ChatML layout, up to the open assistant turn.
fn messages(prompt: &str) -> Vec<Message> {
    let turns = prompt.split("<|im_start|>").filter_map(|turn| turn.strip_suffix("<|im_end|>\n"));
    turns.map(|turn| turn.split_once('\n').unwrap()).map(|(role, content)| Message::new(role, content)).collect()
}

#[test]
fn real_smollm2() {
    check(&Expected { model: "smollm2-135m-instruct-q4_1", layers: 30, tied: true, end_ids: &[0, 2], prompts: false });
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair() {
    let qwen =
        |model, layers| check(&Expected { model, layers, tied: false, end_ids: &[151_643, 151_645], prompts: true });
    let draft = qwen("qwen2.5-coder-0.5b-instruct-q4_k_m", 24);
    let target = qwen("qwen2.5-coder-1.5b-instruct-q4_k_m", 28);
    assert_eq!(compare(&target, &draft), VocabMatch::Same);
    assert_eq!(target.real_vocab_size(), 151_665);
}
