//! Files that must be refused, each with an error that names file, place and remedy.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod tiny;

use std::io::Write as _;

use spec_model::gguf::write::Writer;
use spec_model::{Checkpoint, Error, RopeStyle, TensorType};
use tiny::{HIDDEN, VOCAB, llama, open, with, with_zeros};

/// Checks that the file is refused with all the phrases.
fn refused(writer: Writer, phrases: &[&str]) {
    let message = open(writer).unwrap_err().to_string();
    assert!(message.starts_with("tiny.gguf: "), "{message}");
    for phrase in phrases {
        assert!(message.contains(phrase), "`{phrase}` is not in: {message}");
    }
}

fn on_disk(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_valid_file_opens_from_disk_with_all_its_parts() {
    let file = on_disk(&llama().finish());
    let checkpoint = Checkpoint::open(file.path()).unwrap();
    let config = checkpoint.config();
    assert_eq!((config.hidden_size, config.head_dim, config.vocab_size), (8, 4, VOCAB as usize));
    let rope = config.rope.as_ref().unwrap();
    assert_eq!((rope.dims, rope.style, rope.theta), (4, RopeStyle::Interleaved, 10_000.0));
    assert!(config.tied_embeddings);
    let weights = checkpoint.weights();
    assert!(weights.output.is_none() && weights.layers[0].q.bias.is_none());
    assert_eq!((weights.layers[0].k.weight.rows, weights.layers[0].k.weight.cols), (4, 8));
    assert_eq!(weights.layers[0].down.weight.to_f32(), [0.5; 96]);
    assert_eq!(weights.embedding.row(VOCAB as usize - 1).unwrap().len(), 32);
    assert!(weights.embedding.row(VOCAB as usize).is_none());
    assert!(checkpoint.chat_template().unwrap().is_none());
    assert_eq!(checkpoint.tokenizer().unwrap().encode("ab", true).unwrap(), [256]);
}

#[test]
fn a_released_tensor_reads_the_same_again() {
    let file = on_disk(&llama().finish());
    let checkpoint = Checkpoint::open(file.path()).unwrap();
    let view = checkpoint.tensor("token_embd.weight").unwrap();
    let before = view.to_f32();
    checkpoint.release(&view);
    assert_eq!(view.to_f32(), before);
}

#[test]
fn a_file_one_byte_short_is_refused_with_both_sizes() {
    let bytes = llama().finish();
    let file = on_disk(&bytes[..bytes.len() - 1]);
    let message = Checkpoint::open(file.path()).unwrap_err().to_string();
    for phrase in [bytes.len().to_string(), (bytes.len() - 1).to_string(), "truncated".into()] {
        assert!(message.contains(&phrase), "{message}");
    }
}

#[test]
fn files_that_cannot_be_mapped_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        (directory.path().join("absent.gguf"), "absent.gguf"),
        (directory.path().to_path_buf(), "no safetensors or GGUF file"),
        (on_disk(b"").into_temp_path().keep().unwrap(), "empty"),
    ];
    for (path, phrase) in &cases {
        let message = Checkpoint::open(path).unwrap_err().to_string();
        assert!(message.contains(phrase), "{message}");
    }
    std::fs::remove_file(&cases[2].0).unwrap();
}

#[test]
fn another_architecture_is_named_before_its_keys_are_missed() {
    refused(with("general.architecture", "gemma2"), &["`gemma2`", "llama, mistral, qwen2, qwen3, gemma3, gpt2"]);
    refused(llama().without_key("general.architecture"), &["general.architecture", "missing"]);
}

#[test]
fn every_missing_key_is_named() {
    for key in [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        refused(llama().without_key(key), &[key, "missing"]);
    }
}

#[test]
fn sizes_that_do_not_fit_together_are_refused() {
    refused(with("llama.attention.head_count_kv", 3_u32), &["head_count_kv", "does not divide"]);
    refused(
        with("llama.attention.head_count", 3_u32).key("llama.attention.head_count_kv", 1_u32),
        &["head_count", "8"],
    );
    refused(with("llama.rope.dimension_count", 3_u32), &["rope.dimension_count", "even"]);
    refused(with("llama.rope.dimension_count", 6_u32), &["rope.dimension_count", "at most"]);
    refused(with("llama.rope.freq_base", -1.0_f32), &["rope.freq_base"]);
    refused(with("llama.attention.layer_norm_rms_epsilon", f32::NAN), &["epsilon", "finite"]);
    refused(with("llama.attention.layer_norm_rms_epsilon", 2.0_f32), &["epsilon", "below 1"]);
    refused(with("llama.block_count", 0_u32), &["block_count", "0"]);
    refused(with("llama.block_count", u32::MAX), &["block_count", "4294967295"]);
    refused(with("llama.attention.head_count", "two"), &["head_count", "string", "integer"]);
}

#[test]
fn what_would_change_the_computation_is_refused_and_not_ignored() {
    for kind in ["longrope", "frobnicate"] {
        refused(with("llama.rope.scaling.type", kind), &["rope.scaling.type", kind, "none, linear, yarn"]);
    }
    refused(with("llama.rope.scaling.attn_factor", 2.0_f32), &["rope.scaling.attn_factor", "without yarn"]);
    let yarn = || with("llama.rope.scaling.type", "yarn").key("llama.rope.scaling.factor", 4.0_f32);
    refused(yarn().key("llama.rope.scaling.yarn_ext_factor", 0.5_f32), &["yarn_ext_factor", "0.5"]);
    refused(with("llama.rope.scaling.factor", 0.5_f32), &["rope.scaling.factor", "at least 1"]);
    refused(with("llama.expert_count", 8_u32), &["expert_count", "not supported yet"]);
    refused(with("llama.attention.scale", 0.5_f32), &["attention.scale", "not supported yet"]);
    refused(with("llama.attention.causal", false), &["attention.causal", "not supported yet"]);
    assert!(open(with("llama.rope.scaling.type", "none")).is_ok());
    assert!(open(with("llama.rope.scaling.factor", 1.0_f32)).is_ok());
}

#[test]
fn every_tensor_that_is_missing_or_misshapen_is_named() {
    let bytes = llama().finish();
    let file = spec_model::gguf::Gguf::parse(bytes, "tiny.gguf").unwrap();
    assert_eq!(file.tensors().len(), 11);
    for tensor in file.tensors() {
        let name = tensor.name.as_str();
        refused(llama().without_tensor(name), &[&format!("`{name}`"), "missing"]);
        let mut dims: Vec<u64> = tensor.dims.iter().map(|&dim| dim as u64).collect();
        dims[0] += 2;
        let found: Vec<_> = dims.iter().rev().collect();
        refused(
            with_zeros(llama(), name, &dims),
            &[&format!("`{name}`"), &format!("{found:?}"), &tensor.shape(), "shape"],
        );
    }
}

#[test]
fn a_tensor_that_the_architecture_does_not_use_is_refused() {
    refused(with_zeros(llama(), "blk.0.attn_q_norm.weight", &[4]), &["`blk.0.attn_q_norm.weight`", "`llama`"]);
    // With a bias of the first layer's query, the others are wanted.
    refused(with_zeros(llama(), "blk.0.attn_q.bias", &[8]), &["`blk.0.attn_k.bias`", "missing"]);
    refused(with_zeros(llama(), "blk.1.attn_norm.weight", &[8]), &["`blk.1.attn_norm.weight`"]);
}

#[test]
fn vectors_may_be_halves_and_are_never_blocks() {
    let half = llama().tensor("output_norm.weight", TensorType::F16, &[HIDDEN], &[0x3c; 16]);
    let value = half::f16::from_bits(0x3c3c).to_f32();
    assert_eq!(open(half).unwrap().weights().output_norm.weight.to_f32(), [value; 8]);
    let blocks = with("llama.embedding_length", 32_u32).tensor("output_norm.weight", TensorType::Q8_0, &[32], &[0; 34]);
    let blocks = with_zeros(blocks, "token_embd.weight", &[32, VOCAB]);
    refused(blocks, &["`output_norm.weight`", "Q8_0", "supported: F32"]);
}

#[test]
fn an_untied_head_may_have_another_type_than_the_embedding() {
    let head = llama().tensor("output.weight", TensorType::F16, &[HIDDEN, VOCAB], &[0; 2 * 8 * VOCAB as usize]);
    let checkpoint = open(head).unwrap();
    assert!(!checkpoint.config().tied_embeddings);
    assert_eq!(checkpoint.weights().output.unwrap().tensor_type, TensorType::F16);
}

#[test]
fn rope_frequency_factors_are_read_and_checked() {
    let factors = |values: &[f32]| llama().f32_tensor("rope_freqs.weight", &[values.len() as u64], values);
    let checkpoint = open(factors(&[1.0, 8.0])).unwrap();
    assert_eq!(checkpoint.config().rope.as_ref().unwrap().frequency_factors, Some(vec![1.0, 8.0]));
    refused(factors(&[1.0]), &["`rope_freqs.weight`", "[1]", "[2]"]);
    refused(factors(&[1.0, 0.0]), &["`rope_freqs.weight`", "factor 0"]);
    refused(factors(&[1.0, f32::NAN]), &["`rope_freqs.weight`", "NaN"]);
}

#[test]
fn qwen2_needs_its_attention_biases() {
    let mut writer = llama().key("general.architecture", "qwen2");
    for key in ["block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"] {
        let value = match key {
            "block_count" => 1_u32,
            "context_length" => 64,
            "embedding_length" => HIDDEN as u32,
            "feed_forward_length" => tiny::INNER as u32,
            _ => 2,
        };
        writer = writer.key(&format!("qwen2.{key}"), value);
    }
    writer = writer.key("qwen2.attention.head_count_kv", 1_u32).key("qwen2.attention.layer_norm_rms_epsilon", 1e-6_f32);
    refused(writer.clone(), &["`blk.0.attn_q.bias`", "missing"]);
    for (name, length) in [("q", 8), ("k", 4), ("v", 4)] {
        writer = with_zeros(writer, &format!("blk.0.attn_{name}.bias"), &[length]);
    }
    let checkpoint = open(writer).unwrap();
    assert_eq!(checkpoint.config().rope.as_ref().unwrap().style, RopeStyle::Halves);
    assert_eq!(checkpoint.weights().layers[0].q.bias.unwrap().cols, 8);
}

#[test]
fn a_declared_vocabulary_size_must_be_the_embeddings() {
    refused(with("llama.vocab_size", 300_u32), &["`token_embd.weight`", "[300, 8]", "[262, 8]"]);
}

#[test]
fn more_tokens_than_embedding_rows_are_refused() {
    let mut tokens = tiny::tokens();
    tokens.push("extra".into());
    let mut kinds = tiny::kinds();
    kinds.push(1);
    let writer = with("tokenizer.ggml.tokens", tokens).key("tokenizer.ggml.token_type", kinds);
    let error = open(writer).unwrap().tokenizer().unwrap_err();
    assert!(matches!(&error, Error::Tokenizer { .. }), "{error}");
    assert!(error.to_string().contains("263 tokens"), "{error}");
}

#[test]
fn a_chat_template_of_the_file_sees_its_bos_and_eos() {
    let writer = with("tokenizer.chat_template", "{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}")
        .key("tokenizer.ggml.bos_token_id", 257_u32);
    let template = open(writer).unwrap().chat_template().unwrap().unwrap();
    let text = template.render(&[spec_model::Message::new("user", "hi")]).unwrap();
    assert_eq!(text, "<|im_end|>|<|im_end|>|hi");
    assert!(open(with("tokenizer.chat_template", "{% if %}")).unwrap().chat_template().is_err());
}
