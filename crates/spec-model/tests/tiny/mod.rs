//! A complete model of one layer, small enough to write down: the valid file that tests then damage.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod folder;

use spec_model::gguf::write::{Value, Writer};
use spec_model::{Checkpoint, Error};

pub(crate) const HIDDEN: u64 = 8;
pub(crate) const INNER: u64 = 12;
pub(crate) const VOCAB: u64 = 262;

/// The 256 byte tokens in the byte-level alphabet, one merge, control, user-defined and padding tokens.
pub(crate) fn tokens() -> Vec<String> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut shifted = 0x100..;
    let mut tokens: Vec<String> = (0..=255_u8)
        .map(|b| {
            let code = if printable(b) { u32::from(b) } else { shifted.next().expect("the range has no end") };
            char::from_u32(code).expect("below the surrogates").to_string()
        })
        .collect();
    tokens.extend(["ab", "<|im_end|>", "<tool>", "</s>", "[PAD260]", "[PAD261]"].map(String::from));
    tokens
}

pub(crate) fn kinds() -> Vec<i32> {
    let mut kinds = vec![1; 257];
    kinds.extend([3, 4, 1, 5, 5]);
    kinds
}

/// A valid llama file without a head (tied).
pub(crate) fn llama() -> Writer {
    let mut writer = Writer::new()
        .key("general.architecture", "llama")
        .key("general.name", "tiny")
        .key("llama.block_count", 1_u32)
        .key("llama.context_length", 64_u32)
        .key("llama.embedding_length", HIDDEN as u32)
        .key("llama.feed_forward_length", INNER as u32)
        .key("llama.attention.head_count", 2_u32)
        .key("llama.attention.head_count_kv", 1_u32)
        .key("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .key("tokenizer.ggml.model", "gpt2")
        .key("tokenizer.ggml.pre", "gpt-2")
        .key("tokenizer.ggml.tokens", tokens())
        .key("tokenizer.ggml.token_type", kinds())
        .key("tokenizer.ggml.merges", ["a b"].as_slice())
        .key("tokenizer.ggml.eos_token_id", 257_u32);
    for (name, dims) in [
        ("token_embd.weight", vec![HIDDEN, VOCAB]),
        ("output_norm.weight", vec![HIDDEN]),
        ("blk.0.attn_norm.weight", vec![HIDDEN]),
        ("blk.0.attn_q.weight", vec![HIDDEN, HIDDEN]),
        ("blk.0.attn_k.weight", vec![HIDDEN, HIDDEN / 2]),
        ("blk.0.attn_v.weight", vec![HIDDEN, HIDDEN / 2]),
        ("blk.0.attn_output.weight", vec![HIDDEN, HIDDEN]),
        ("blk.0.ffn_norm.weight", vec![HIDDEN]),
        ("blk.0.ffn_gate.weight", vec![HIDDEN, INNER]),
        ("blk.0.ffn_up.weight", vec![HIDDEN, INNER]),
        ("blk.0.ffn_down.weight", vec![INNER, HIDDEN]),
    ] {
        writer = with_zeros(writer, name, &dims);
    }
    writer
}

pub(crate) fn with_zeros(writer: Writer, name: &str, dims: &[u64]) -> Writer {
    let count = dims.iter().product::<u64>() as usize;
    writer.f32_tensor(name, dims, &vec![0.5; count])
}

pub(crate) fn with(key: &str, value: impl Into<Value>) -> Writer {
    llama().key(key, value)
}

pub(crate) fn open(writer: Writer) -> Result<Checkpoint, Error> {
    Checkpoint::from_bytes(writer.finish(), "tiny.gguf")
}

/// Rows and columns of the matrices of layer `layer`, and lengths of its vectors, by GGUF's names; query heads are 2 of 4
/// elements over a width of 8, key heads 1.
fn layer_tensors(architecture: &str, layer: usize) -> Vec<(String, Vec<u64>)> {
    let (queries, keys) = (8, if architecture == "gpt2" { 8 } else { 4 });
    let mut tensors = vec![("attn_norm.weight", vec![HIDDEN]), ("ffn_norm.weight", vec![HIDDEN])];
    if architecture == "gpt2" {
        tensors.push(("attn_qkv.weight", vec![HIDDEN, queries + 2 * keys]));
    } else {
        tensors.extend([
            ("attn_q.weight", vec![HIDDEN, queries]),
            ("attn_k.weight", vec![HIDDEN, keys]),
            ("attn_v.weight", vec![HIDDEN, keys]),
            ("ffn_gate.weight", vec![HIDDEN, INNER]),
        ]);
    }
    tensors.extend([
        ("attn_output.weight", vec![queries, HIDDEN]),
        ("ffn_up.weight", vec![HIDDEN, INNER]),
        ("ffn_down.weight", vec![INNER, HIDDEN]),
    ]);
    let vectors: &[(&str, u64)] = match architecture {
        "qwen2" => &[("attn_q.bias", 8), ("attn_k.bias", 4), ("attn_v.bias", 4)],
        "qwen3" => &[("attn_q_norm.weight", 4), ("attn_k_norm.weight", 4)],
        "gemma3" => &[
            ("attn_q_norm.weight", 4),
            ("attn_k_norm.weight", 4),
            ("post_attention_norm.weight", 8),
            ("post_ffw_norm.weight", 8),
        ],
        "gpt2" => &[
            ("attn_norm.bias", 8),
            ("ffn_norm.bias", 8),
            ("attn_qkv.bias", 24),
            ("attn_output.bias", 8),
            ("ffn_up.bias", INNER),
            ("ffn_down.bias", 8),
        ],
        _ => &[],
    };
    tensors.extend(vectors.iter().map(|&(name, length)| (name, vec![length])));
    tensors.into_iter().map(|(name, dims)| (format!("blk.{layer}.{name}"), dims)).collect()
}

/// A valid file of any architecture. Elements are different numbers, so that none can be taken for another.
pub(crate) fn of(architecture: &str, layers: usize) -> Writer {
    let mut writer = llama().key("general.architecture", architecture);
    for tensor in layer_tensors("llama", 0) {
        writer = writer.without_tensor(&tensor.0);
    }
    for key in ["context_length", "embedding_length", "feed_forward_length", "attention.head_count"] {
        let value = match key {
            "context_length" => 64_u32,
            "embedding_length" => HIDDEN as u32,
            "feed_forward_length" => INNER as u32,
            _ => 2,
        };
        writer = writer.key(&format!("{architecture}.{key}"), value);
    }
    writer = writer.key(&format!("{architecture}.block_count"), layers as u32);
    if architecture == "gpt2" {
        writer = writer.key("gpt2.attention.layer_norm_epsilon", 1e-5_f32);
        writer = numbered(writer, "position_embd.weight", &[HIDDEN, 64]);
        writer = numbered(writer, "output_norm.bias", &[HIDDEN]);
    } else {
        let key = |name: &str| format!("{architecture}.attention.{name}");
        writer = writer.key(&key("head_count_kv"), 1_u32).key(&key("layer_norm_rms_epsilon"), 1e-6_f32);
    }
    for layer in 0..layers {
        for (name, dims) in layer_tensors(architecture, layer) {
            writer = numbered(writer, &name, &dims);
        }
    }
    writer
}

/// A tensor of the numbers from 0.
pub(crate) fn numbered(writer: Writer, name: &str, dims: &[u64]) -> Writer {
    let values: Vec<f32> = (0..dims.iter().product::<u64>()).map(|i| i as f32).collect();
    writer.f32_tensor(name, dims, &values)
}
