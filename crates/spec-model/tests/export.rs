//! Safetensors checkpoints written as GGUF files.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod tiny;

use std::path::Path;

use serde_json::{Value, json};
use spec_model::{Checkpoint, Export, Format, ModelConfig, Quantizer, RopeStyle};
use tiny::folder::{MODEL_TYPES, config, folder, says, tensors};

/// Writes the files of a byte-level tokenizer beside the weights.
fn put_tokenizer(folder: &Path) {
    let vocabulary: serde_json::Map<String, Value> =
        tiny::tokens().into_iter().take(259).zip(0_u32..).map(|(text, id)| (text, id.into())).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let split = json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, bytes]});
    let end = json!({"id": 257, "content": "<|im_end|>", "special": true, "normalized": false});
    let tokenizer = json!({"version": "1.0", "added_tokens": [end], "pre_tokenizer": split, "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a b"]}});
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let settings = json!({"eos_token": "<|im_end|>", "chat_template": "{{ messages[0].content }}|{{ eos_token }}"});
    std::fs::write(folder.join("tokenizer_config.json"), settings.to_string()).unwrap();
}

fn exported(checkpoint: &Checkpoint) -> Checkpoint {
    let export = Export::new(checkpoint, Quantizer::Q8_0, Quantizer::Q8_0).unwrap();
    let mut file = Vec::new();
    export.write(&mut file, "out.gguf", 2, &mut |_| ()).unwrap();
    Checkpoint::from_bytes(file, "out.gguf").unwrap()
}

/// Where a row of heads of four lies when its pairs are neighbours and not halves.
fn turned(values: &[f32], cols: usize) -> Vec<f32> {
    let rows: Vec<&[f32]> = values.chunks(cols).collect();
    rows.chunks(4).flat_map(|head| [head[0], head[2], head[1], head[3]].concat()).collect()
}

#[test]
fn folders_of_every_architecture_are_written_as_gguf() {
    for model_type in MODEL_TYPES {
        let folder = folder(&config(model_type, 2), &tensors(model_type, 2));
        put_tokenizer(folder.path());
        let before = Checkpoint::open(folder.path()).unwrap();
        let after = exported(&before);
        assert!(matches!(after.format(), Format::Gguf { version: 3 }));
        let (old, new) = (before.config(), after.config());
        let sizes = |config: &ModelConfig| {
            let (heads, widths) =
                ((config.heads, config.kv_heads, config.head_dim), (config.hidden_size, config.intermediate_size));
            (heads, widths, config.layers, config.vocab_size, config.context_length, config.tied_embeddings)
        };
        assert_eq!(sizes(old), sizes(new), "{model_type}");
        assert_eq!(old.norm_epsilon, new.norm_epsilon, "{model_type}");
        assert_eq!(old.attention_scale, new.attention_scale, "{model_type}");
        let window =
            |config: &ModelConfig| config.sliding_window.as_ref().map(|window| (window.size, window.layers.clone()));
        assert_eq!(window(old), window(new), "{model_type}");
        assert_eq!(old.rope.as_ref().map(|rope| rope.frequencies()), new.rope.as_ref().map(|rope| rope.frequencies()));
        let neighbours = new.rope.as_ref().is_some_and(|rope| rope.style == RopeStyle::Interleaved);
        assert_eq!(neighbours, matches!(model_type, "llama" | "mistral"), "{model_type}");

        let (old, new) = (before.weights(), after.weights());
        for (old, new) in old.vectors().zip(new.vectors()).chain([(&old.embedding, &new.embedding)]) {
            assert_eq!(old.to_f32(), new.to_f32(), "{model_type}: {} and {}", old.name, new.name);
        }
        for (old, new) in old.layers.iter().zip(&new.layers) {
            for (old, new) in [(&old.q, &new.q), (&old.k, &new.k)] {
                let (old, new) = (&old.weight, &new.weight);
                let values = old.to_f32();
                let wanted = if neighbours { turned(&values, old.cols) } else { values };
                assert_eq!(wanted, new.to_f32(), "{model_type}: {} and {}", old.name, new.name);
            }
            for (old, new) in [(&old.v, &new.v), (&old.attn_output, &new.attn_output), (&old.down, &new.down)] {
                assert_eq!(old.weight.to_f32(), new.weight.to_f32(), "{model_type}: {}", old.weight.name);
            }
        }

        let (old, new) = (before.tokenizer().unwrap(), after.tokenizer().unwrap());
        for text in ["abc ab 2024!", "<|im_end|>x", "é\n"] {
            assert_eq!(old.encode(text, true).unwrap(), new.encode(text, true).unwrap(), "{model_type}: {text:?}");
        }
        assert_eq!((old.end_ids(), old.bos_id(), old.adds_bos()), (new.end_ids(), new.bos_id(), new.adds_bos()));
        let said = |checkpoint: &Checkpoint| {
            checkpoint.chat_template().unwrap().unwrap().render(&[spec_model::Message::new("user", "hi")]).unwrap()
        };
        assert_eq!(said(&before), said(&after), "{model_type}");
    }
}

#[test]
fn what_gguf_has_no_words_for_is_refused() {
    let refusal = |model_type: &str, scalar: Value| {
        let mut config = config(model_type, 1);
        config["query_pre_attn_scalar"] = scalar;
        let folder = folder(&config, &tensors(model_type, 1));
        put_tokenizer(folder.path());
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        Export::new(&checkpoint, Quantizer::Q8_0, Quantizer::Q8_0).map(|_| ()).unwrap_err().to_string()
    };
    // Scores that are scaled by something else than the width of a head.
    says(&refusal("gemma3_text", 16.into()), &["GGUF", "keys would mean another one"]);
    let folder = folder(&config("llama", 1), &tensors("llama", 1));
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let without = Export::new(&checkpoint, Quantizer::Q8_0, Quantizer::Q8_0).map(|_| ()).unwrap_err().to_string();
    says(&without, &["tokenizer.json"]);
    put_tokenizer(folder.path());
    let path = folder.path().join("tokenizer.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"individual_digits\":true", "\"individual_digits\":false")).unwrap();
    let unknown = Export::new(&checkpoint, Quantizer::Q8_0, Quantizer::Q8_0).map(|_| ()).unwrap_err().to_string();
    says(&unknown, &["rules of splitting", "no name"]);
}
