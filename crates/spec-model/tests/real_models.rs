//! Real checkpoints against stored references: token ids of every string, and the text of the public prompts.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::time::Instant;

use spec_model::{Checkpoint, FileType, Message, Outline, TensorType};
use spec_testing::data;
use spec_testing::models::{self, Model};

struct Expected {
    model: Model,
    layers: usize,
    tied: bool,
    end_ids: &'static [u32],
    prompts: bool,
}

/// Everything that is checked of one model. Returns its tokenizer for comparisons.
fn check(expected: &Expected) -> spec_model::Tokenizer {
    let path = models::path(expected.model);
    let start = Instant::now();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let opened = start.elapsed();
    let start = Instant::now();
    let tokenizer = checkpoint.tokenizer().unwrap();
    println!("{}: opened in {opened:?}, tokenizer in {:?}", expected.model.stem(), start.elapsed());

    let config = checkpoint.config();
    assert_eq!((config.layers, config.tied_embeddings), (expected.layers, expected.tied));
    let weights = checkpoint.weights();
    assert_eq!(weights.layers.len(), expected.layers);
    assert_eq!(weights.embedding.rows, config.vocab_size);
    assert_eq!(tokenizer.end_ids(), expected.end_ids);

    let reference = data::reference(expected.model);
    let mut wrong = Vec::new();
    let mut equal = |text: &str, special: bool, want: &[u32]| {
        let got = tokenizer.encode(text, special).unwrap();
        if got != want {
            wrong.push(format!("{text:?} special {special}: got {got:?}, want {want:?}"));
        }
    };
    for string in &reference.tokenize {
        equal(&string.text, false, &string.ids);
        equal(&string.text, true, &string.ids_with_special);
    }
    for completion in &reference.complete {
        equal(&completion.prompt_text, true, &completion.prompt_ids);
    }
    assert!(reference.tokenize.len() >= 15 && reference.complete.len() >= 8);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    for string in &reference.tokenize {
        assert_eq!(tokenizer.decode(&string.ids).unwrap(), string.text, "decoding must be exact");
    }

    let template = checkpoint.chat_template().unwrap().unwrap();
    for completion in reference.complete.iter().filter(|c| c.kind == "chat") {
        let text = template.render(&[Message::new("user", &completion.user)]).unwrap();
        assert_eq!(text, completion.prompt_text);
    }
    if expected.prompts {
        for (name, prompt) in data::prompts() {
            assert_eq!(template.render(&messages(prompt)).unwrap(), prompt, "{name}");
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
    check(&Expected { model: Model::SmolLm2, layers: 30, tied: true, end_ids: &[0, 2], prompts: false });
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair() {
    let qwen =
        |model, layers| check(&Expected { model, layers, tied: false, end_ids: &[151_643, 151_645], prompts: true });
    let draft = qwen(Model::QwenDraft, 24);
    let target = qwen(Model::QwenTarget, 28);
    assert_eq!((target.real_vocab_size(), draft.real_vocab_size()), (151_665, 151_665));
    assert!((0..151_665).all(|id| target.token_text(id).unwrap() == draft.token_text(id).unwrap()));
}

#[test]
#[ignore = "needs Gemma 3 270M: cargo xtask test --gemma"]
fn real_gemma_says_nothing_of_its_pattern_and_local_base() {
    let checkpoint = Checkpoint::open(models::path(Model::Gemma)).unwrap();
    let metadata = checkpoint.metadata().unwrap();
    for absent in ["gemma3.attention.sliding_window_pattern", "gemma3.rope.freq_base_swa", "tokenizer.chat_template"] {
        assert!(!metadata.contains(absent), "{absent}");
    }
    let config = checkpoint.config();
    let window = config.sliding_window.as_ref().unwrap();
    let full: Vec<usize> = (0..config.layers).filter(|&layer| !window.layers[layer]).collect();
    assert_eq!((window.size, full.as_slice()), (512, [5, 11, 17].as_slice()));
    assert_eq!(window.rope.as_ref().unwrap().theta, 10_000.0);
    assert_eq!(config.rope.as_ref().unwrap().theta, 1_000_000.0);
    assert_eq!((config.attention_scale, config.embedding_scale), (1.0 / 16.0, 640.0_f32.sqrt()));
    assert!(checkpoint.chat_template().unwrap().is_none());
}

/// The file's sizes, and those of the published shape as a file of this type.
fn outlines(model: Model, name: &str, stored: FileType) -> [Outline; 2] {
    [Checkpoint::open(models::path(model)).unwrap().outline(), Outline::published(name, stored).unwrap()]
}

/// What the layers' matrices are stored as, whichever layer it is.
fn parts(outline: &Outline) -> Vec<(String, TensorType, usize, usize)> {
    let of_layers = outline.weights.matrices().filter_map(|matrix| {
        let (_, part) = matrix.name.strip_prefix("blk.")?.split_once('.')?;
        Some((part.to_owned(), matrix.tensor_type, matrix.rows, matrix.cols))
    });
    let mut parts: Vec<_> = of_layers.collect();
    parts.sort_by_key(|part| format!("{part:?}"));
    parts
}

#[test]
fn real_smollm2_is_stored_as_its_shape_and_type_say() {
    let [file, published] = outlines(Model::SmolLm2, "smollm2-135m", FileType::Q4_1);
    assert_eq!(file.weights, published.weights);
}

#[test]
#[ignore = "needs Gemma 3 270M: cargo xtask test --gemma"]
fn real_gemma_is_stored_as_its_shape_and_type_say() {
    let [file, published] = outlines(Model::Gemma, "gemma-3-270m", FileType::Q4KM);
    assert_eq!(file.weights, published.weights);
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair_is_stored_as_its_shapes_and_type_say() {
    for (model, name) in [(Model::QwenDraft, "qwen2.5-0.5b"), (Model::QwenTarget, "qwen2.5-1.5b")] {
        let [file, published] = outlines(model, name, FileType::Q4KM);
        // Their quantiser counted layers in the order of their names, so that others are wider, and as many.
        assert_eq!(parts(&file), parts(&published), "{name}");
        // These files have the embedding a second time, as the head.
        let head = file.weights.output.as_ref().unwrap();
        assert_eq!(head.tensor_type, published.weights.embedding.tensor_type, "{name}");
        assert_eq!(head.elements(), published.weights.embedding.elements(), "{name}");
    }
}
