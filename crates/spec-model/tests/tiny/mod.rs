//! A complete model of one layer, small enough to write down: the valid file that tests then damage.
#![allow(dead_code, reason = "each test binary uses a part")]

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
