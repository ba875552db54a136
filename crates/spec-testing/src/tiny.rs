//! Tiny models with random weights, as GGUF files.

use spec_model::gguf::write::Writer;
use spec_model::{Quantizer, TensorType};

/// Element types of a tiny model's matrices.
#[derive(Clone, Copy, Debug)]
pub struct TinyTypes {
    /// Embedding, and head where it is tied.
    pub embedding: TensorType,
    /// Head; `None` ties it to the embedding.
    pub output: Option<TensorType>,
    /// Query, key and attention output.
    pub attention: TensorType,
    /// Value.
    pub value: TensorType,
    /// Gate and up.
    pub gate: TensorType,
    /// Down.
    pub down: TensorType,
}

impl TinyTypes {
    /// One type everywhere, the head tied.
    pub const fn all(ty: TensorType) -> Self {
        Self { embedding: ty, output: None, attention: ty, value: ty, gate: ty, down: ty }
    }
}

/// What a tiny model is made of.
#[derive(Clone, Copy, Debug)]
pub struct TinySpec {
    /// `llama`, `qwen2`, `qwen3`, `gemma3` or `gpt2`.
    pub arch: &'static str,
    /// Tokens: 256 bytes, pairs of letters up to all 676, words that no text merges to, and two control tokens. At least 300.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward block.
    pub ffn: usize,
    /// Types of the matrices.
    pub types: TinyTypes,
    /// Positions.
    pub context: usize,
    /// Positions that every second layer sees, the first included.
    pub window: Option<usize>,
    /// Whether attention scores and logits are capped, in gemma3.
    pub soft_caps: bool,
    /// Two specs that differ in it only have different weights.
    pub seed: u64,
}

impl TinySpec {
    /// In the manner of SmolLM2: llama, tied, Q4_1, three key heads, a width that is no multiple of 64.
    pub const fn llama() -> Self {
        Self {
            arch: "llama",
            vocab: 331,
            hidden: 96,
            layers: 2,
            heads: 9,
            kv_heads: 3,
            head_dim: 32,
            ffn: 224,
            types: TinyTypes { embedding: TensorType::Q8_0, ..TinyTypes::all(TensorType::Q4_1) },
            context: 256,
            window: None,
            soft_caps: false,
            seed: 1,
        }
    }

    /// In the manner of the Qwen2.5 1.5B: qwen2 with biases, K-quants.
    pub const fn qwen_k() -> Self {
        let types = TinyTypes { embedding: TensorType::Q6K, value: TensorType::Q6K, ..TinyTypes::all(TensorType::Q4K) };
        Self {
            arch: "qwen2",
            vocab: 320,
            hidden: 256,
            layers: 2,
            heads: 8,
            kv_heads: 2,
            head_dim: 32,
            ffn: 512,
            types,
            context: 256,
            window: None,
            soft_caps: false,
            seed: 2,
        }
    }

    /// In the manner of the Qwen2.5 0.5B: 32-block types, but K-quants where the width allows them; an own head.
    pub const fn qwen_mixed() -> Self {
        Self {
            arch: "qwen2",
            vocab: 301,
            hidden: 160,
            layers: 3,
            heads: 10,
            kv_heads: 2,
            head_dim: 16,
            ffn: 256,
            types: TinyTypes {
                embedding: TensorType::Q8_0,
                output: Some(TensorType::F32),
                attention: TensorType::Q5_0,
                value: TensorType::Q8_0,
                gate: TensorType::Q5_0,
                down: TensorType::Q4K,
            },
            context: 256,
            window: None,
            soft_caps: false,
            seed: 3,
        }
    }

    /// In the manner of Mistral 7B: a llama with a sliding window.
    pub const fn mistral() -> Self {
        Self { window: Some(20), seed: 11, ..Self::llama() }
    }

    /// In the manner of Qwen3: normed heads that are wider than the model.
    pub const fn qwen3() -> Self {
        Self {
            arch: "qwen3",
            vocab: 303,
            hidden: 96,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 48,
            ffn: 160,
            types: TinyTypes::all(TensorType::F16),
            context: 256,
            window: None,
            soft_caps: false,
            seed: 12,
        }
    }

    /// In the manner of Gemma 3: norms everywhere, gates by GELU, windows with a rotary base of their own; and soft caps, which
    /// its elder had.
    pub const fn gemma() -> Self {
        Self {
            arch: "gemma3",
            vocab: 310,
            heads: 4,
            kv_heads: 1,
            head_dim: 32,
            window: Some(20),
            soft_caps: true,
            seed: 13,
            types: TinyTypes { output: None, ..Self::qwen_mixed().types },
            ..Self::qwen_mixed()
        }
    }

    /// Gemma 3 as it is, without soft caps.
    pub const fn gemma_uncapped() -> Self {
        Self { soft_caps: false, seed: 15, ..Self::gemma() }
    }

    /// In the manner of GPT-2: norms with a mean, a bias everywhere, learned positions, no gate.
    pub const fn gpt2() -> Self {
        Self {
            arch: "gpt2",
            vocab: 302,
            hidden: 96,
            layers: 2,
            heads: 6,
            kv_heads: 6,
            head_dim: 16,
            ffn: 384,
            types: TinyTypes { embedding: TensorType::F16, ..TinyTypes::all(TensorType::Q8_0) },
            context: 256,
            window: None,
            soft_caps: false,
            seed: 14,
        }
    }

    /// One of each architecture, the smallest.
    pub const fn every_architecture() -> [Self; 6] {
        [Self::llama(), Self::mistral(), Self::qwen_mixed(), Self::qwen3(), Self::gemma(), Self::gpt2()]
    }

    /// The 32-block and float types that the others have not: llama, with an own head.
    pub const fn blocks_of_32() -> Self {
        Self {
            types: TinyTypes {
                embedding: TensorType::IQ4NL,
                output: Some(TensorType::BF16),
                attention: TensorType::Q4_0,
                value: TensorType::Q5_1,
                gate: TensorType::IQ4NL,
                down: TensorType::F16,
            },
            seed: 4,
            ..Self::llama()
        }
    }

    /// The super-block types that the others have not: qwen2, with an own head.
    pub const fn super_blocks() -> Self {
        Self {
            types: TinyTypes {
                embedding: TensorType::Q5K,
                output: Some(TensorType::IQ4XS),
                attention: TensorType::Q3K,
                value: TensorType::Q5K,
                gate: TensorType::IQ4XS,
                down: TensorType::Q2K,
            },
            seed: 5,
            ..Self::qwen_k()
        }
    }

    /// Matrices are of the spec's types, and from their values stored otherwise if asked for.
    fn file(&self, stored: Stored) -> Writer {
        let Self { arch, hidden, ffn, types, .. } = *self;
        let (query_width, key_width) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let is_gpt2 = arch == "gpt2";
        let key = |name: &str| format!("{arch}.{name}");
        let mut file = self
            .vocabulary(Writer::new().key("general.architecture", arch).key("general.name", "tiny"))
            .key(&key("embedding_length"), hidden as u32)
            .key(&key("feed_forward_length"), ffn as u32)
            .key(&key("block_count"), self.layers as u32)
            .key(&key("context_length"), self.context as u32)
            .key(&key("attention.head_count"), self.heads as u32)
            .key(&key("attention.head_count_kv"), self.kv_heads as u32);
        file = if is_gpt2 {
            file.key(&key("attention.layer_norm_epsilon"), 1e-5_f32)
        } else {
            file.key(&key("attention.key_length"), self.head_dim as u32)
                .key(&key("attention.value_length"), self.head_dim as u32)
                .key(&key("rope.freq_base"), 10_000.0_f32)
                .key(&key("attention.layer_norm_rms_epsilon"), 1e-6_f32)
        };
        if let Some(window) = self.window {
            let flags: Vec<bool> = (0..self.layers).map(|layer| layer.is_multiple_of(2)).collect();
            file = file
                .key(&key("attention.sliding_window"), window as u32)
                .key(&key("attention.sliding_window_pattern"), flags);
        }
        if arch == "gemma3" {
            file = file.key(&key("rope.freq_base_swa"), 500.0_f32);
        }
        if arch == "gemma3" && self.soft_caps {
            file = file.key(&key("attn_logit_softcapping"), 2.0_f32).key(&key("final_logit_softcapping"), 8.0_f32);
        }

        let mut random = Random(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut matrix = |file: Writer, name: &str, ty: TensorType, rows: usize, cols: usize| {
            let mut ty = ty;
            let mut data = random.matrix(ty, rows, cols);
            let mut values = vec![0.0; rows * cols];
            spec_model::dequantize(ty, &data, &mut values).expect("whole blocks");
            match stored {
                Stored::AsMade => {}
                Stored::Floats => {
                    ty = TensorType::F32;
                    data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                }
                Stored::Quantized(quantizer) => {
                    if let Some(quantizer) = quantizer.for_row(cols) {
                        ty = quantizer.tensor_type();
                        data = vec![0; rows * ty.row_bytes(cols).expect("whole blocks")];
                        quantizer.quantize(&values, &mut data).expect("whole blocks");
                    }
                }
            }
            file.tensor(name, ty, &[cols as u64, rows as u64], &data)
        };
        file = matrix(file, "token_embd.weight", types.embedding, self.vocab, hidden);
        if let Some(ty) = types.output {
            file = matrix(file, "output.weight", ty, self.vocab, hidden);
        }
        if is_gpt2 {
            file = matrix(file, "position_embd.weight", TensorType::F32, self.context, hidden);
        }
        let (query, down) = (("attn_q", types.attention, query_width, hidden), ("ffn_down", types.down, hidden, ffn));
        let output = ("attn_output", types.attention, hidden, query_width);
        let up = ("ffn_up", types.gate, ffn, hidden);
        let matrices = if is_gpt2 {
            vec![("attn_qkv", types.attention, query_width + 2 * key_width, hidden), output, up, down]
        } else {
            let (k, v) = (("attn_k", types.attention, key_width, hidden), ("attn_v", types.value, key_width, hidden));
            vec![query, k, v, output, ("ffn_gate", types.gate, ffn, hidden), up, down]
        };
        for layer in 0..self.layers {
            for &(name, ty, rows, cols) in &matrices {
                file = matrix(file, &format!("blk.{layer}.{name}.weight"), ty, rows, cols);
            }
        }

        let mut vector = |file: Writer, name: &str, len: usize, centre: f32| {
            let values: Vec<f32> = (0..len).map(|_| centre + 0.3 * random.signed()).collect();
            file.f32_tensor(name, &[len as u64], &values)
        };
        let mut norms = vec![("attn_norm", hidden), ("ffn_norm", hidden)];
        if matches!(arch, "qwen3" | "gemma3") {
            norms.extend([("attn_q_norm", self.head_dim), ("attn_k_norm", self.head_dim)]);
        }
        if arch == "gemma3" {
            norms.extend([("post_attention_norm", hidden), ("post_ffw_norm", hidden)]);
        }
        let biased: Vec<(&str, usize)> = match arch {
            "qwen2" => vec![("attn_q", query_width), ("attn_k", key_width), ("attn_v", key_width)],
            "gpt2" => norms.iter().copied().chain(matrices.iter().map(|&(name, _, rows, _)| (name, rows))).collect(),
            _ => Vec::new(),
        };
        file = vector(file, "output_norm.weight", hidden, 1.0);
        if is_gpt2 {
            file = vector(file, "output_norm.bias", hidden, 0.0);
        }
        for layer in 0..self.layers {
            for &(name, len) in &norms {
                file = vector(file, &format!("blk.{layer}.{name}.weight"), len, 1.0);
            }
            for &(name, len) in &biased {
                file = vector(file, &format!("blk.{layer}.{name}.bias"), len, 0.0);
            }
        }
        file
    }

    fn vocabulary(&self, file: Writer) -> Writer {
        const CONTROL: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
        let words = self.vocab.checked_sub(256 + CONTROL.len()).filter(|&words| words >= 42);
        let words = words.expect("a tiny vocabulary has at least 300 tokens");
        let pairs = words.min(26 * 26);
        let mut tokens: Vec<String> = byte_characters().map(String::from).collect();
        let letter = |index: usize| char::from(b'a' + index as u8);
        let mut merges = Vec::new();
        for pair in 0..pairs {
            // Spread over all first letters.
            let (first, second) = (letter(pair % 26), letter((pair / 26 + pair) % 26));
            tokens.push(format!("{first}{second}"));
            merges.push(format!("{first} {second}"));
        }
        tokens.extend((pairs..words).map(|word| format!("word{word}")));
        let mut kinds = vec![1; tokens.len()];
        tokens.extend(CONTROL.map(String::from));
        kinds.extend([3; CONTROL.len()]);
        let end = self.vocab as u32 - 1;
        let template = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
        file.key("tokenizer.ggml.model", "gpt2")
            .key("tokenizer.ggml.pre", "gpt-2")
            .key("tokenizer.ggml.tokens", tokens)
            .key("tokenizer.ggml.token_type", kinds)
            .key("tokenizer.ggml.merges", merges)
            .key("tokenizer.ggml.bos_token_id", end - 1)
            .key("tokenizer.ggml.eos_token_id", end)
            .key("tokenizer.ggml.add_bos_token", false)
            .key("tokenizer.chat_template", template)
    }
}

/// The bytes of a model's file, the same for the same spec.
///
/// # Panics
/// When the vocabulary is outside its range, or a width is no whole number of its type's blocks.
pub fn gguf(spec: TinySpec) -> Vec<u8> {
    spec.file(Stored::AsMade).finish()
}

/// The same model with its matrices quantised: to the type asked for, or to the one that [`Quantizer::for_row`] gives.
///
/// # Panics
/// As [`gguf`].
pub fn gguf_quantized(spec: TinySpec, quantizer: Quantizer) -> Vec<u8> {
    spec.file(Stored::Quantized(quantizer)).finish()
}

/// The same model, number for number, with its matrices in F32.
///
/// # Panics
/// As [`gguf`].
pub fn gguf_floats(spec: TinySpec) -> Vec<u8> {
    spec.file(Stored::Floats).finish()
}

/// How matrices are stored.
#[derive(Clone, Copy, Debug)]
enum Stored {
    AsMade,
    Floats,
    /// Where rows allow it.
    Quantized(Quantizer),
}

/// The printable characters that stand for the 256 bytes in a byte-level vocabulary, in the order of the bytes.
fn byte_characters() -> impl Iterator<Item = char> {
    let mut next = 0x100;
    (0..=u8::MAX).map(move |byte| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => {
            next += 1;
            char::from_u32(next - 1).expect("a character of Latin Extended-A")
        }
    })
}

/// A xorshift generator: the files must be the same everywhere.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn byte(&mut self) -> u8 {
        (self.bits() >> 56) as u8
    }

    /// In [-1, 1).
    fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A scale between half of `size` and `size`, as f16.
    fn scale(&mut self, size: f32) -> [u8; 2] {
        half::f16::from_f32(size * (0.75 + 0.25 * self.signed())).to_le_bytes()
    }

    /// `rows` x `cols` blocks of random codes, scaled so that a product with a normalised row is of the order of 1.
    fn matrix(&mut self, ty: TensorType, rows: usize, cols: usize) -> Vec<u8> {
        let row_bytes = ty.row_bytes(cols).expect("the width is a whole number of blocks");
        let reach = 2.5 / (cols as f32).sqrt();
        let mut data = Vec::with_capacity(rows * row_bytes);
        while data.len() < rows * row_bytes {
            self.block(ty, reach, &mut data);
        }
        data
    }

    /// One block with values in about `-reach..reach`.
    fn block(&mut self, ty: TensorType, reach: f32, data: &mut Vec<u8>) {
        let codes = |random: &mut Self, data: &mut Vec<u8>, bytes: usize| {
            data.extend((0..bytes).map(|_| random.byte()));
        };
        match ty {
            TensorType::F32 => data.extend((reach * self.signed()).to_le_bytes()),
            TensorType::F16 => data.extend(half::f16::from_f32(reach * self.signed()).to_le_bytes()),
            TensorType::BF16 => data.extend(half::bf16::from_f32(reach * self.signed()).to_le_bytes()),
            TensorType::Q4_0 => {
                data.extend(self.scale(reach / 8.0));
                codes(self, data, 16);
            }
            TensorType::Q4_1 => {
                data.extend(self.scale(reach * 2.0 / 15.0));
                data.extend(self.scale(-reach));
                codes(self, data, 16);
            }
            TensorType::Q5_1 => {
                data.extend(self.scale(reach * 2.0 / 31.0));
                data.extend(self.scale(-reach));
                codes(self, data, 4 + 16);
            }
            TensorType::IQ4NL => {
                data.extend(self.scale(reach / 127.0));
                codes(self, data, 16);
            }
            TensorType::Q2K => {
                codes(self, data, 16 + 64);
                data.extend(self.scale(reach * 2.0 / (3.0 * 8.0)));
                data.extend(self.scale(reach / 8.0));
            }
            TensorType::Q3K => {
                codes(self, data, 32 + 64 + 12);
                data.extend(self.scale(reach / (4.0 * 16.0)));
            }
            TensorType::Q5K => {
                data.extend(self.scale(reach * 2.0 / (31.0 * 32.0)));
                data.extend(self.scale(reach / 32.0));
                codes(self, data, 12 + 32 + 128);
            }
            TensorType::IQ4XS => {
                data.extend(self.scale(reach / (127.0 * 16.0)));
                codes(self, data, 2 + 4 + 128);
            }
            TensorType::Q5_0 => {
                data.extend(self.scale(reach / 16.0));
                codes(self, data, 4 + 16);
            }
            TensorType::Q8_0 => {
                data.extend(self.scale(reach / 127.0));
                codes(self, data, 32);
            }
            TensorType::Q4K => {
                data.extend(self.scale(reach * 2.0 / (15.0 * 32.0)));
                data.extend(self.scale(reach / 32.0));
                codes(self, data, 12 + 128);
            }
            TensorType::Q6K => {
                codes(self, data, 128 + 64 + 16);
                data.extend(self.scale(reach / (32.0 * 64.0)));
            }
            other => unreachable!("tiny models have no {other} tensors"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec_model::Checkpoint;

    #[test]
    fn tiny_files_are_whole_checkpoints() {
        let types = [TinySpec::qwen_k(), TinySpec::blocks_of_32(), TinySpec::super_blocks()];
        for spec in TinySpec::every_architecture().into_iter().chain(types) {
            let checkpoint = Checkpoint::from_bytes(gguf(spec), "tiny.gguf").expect("a legal file");
            assert_eq!(checkpoint.config().vocab_size, spec.vocab);
            let tokenizer = checkpoint.tokenizer().expect("a tokenizer");
            let text = "All bytes exist: \u{0}\n\t ü 中 😀 the end";
            let ids = tokenizer.encode(text, false).expect("any text encodes");
            assert!(ids.len() < text.len(), "some pair was merged");
            assert!(ids.iter().all(|&id| (id as usize) < spec.vocab));
            let values = checkpoint.weights().embedding.to_f32();
            let square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32 * spec.hidden as f32;
            assert!((0.2..20.0).contains(&square), "{}: a row's square is {square}", spec.arch);
        }
    }

    #[test]
    fn the_seed_changes_the_weights() {
        let other = TinySpec { seed: 9, ..TinySpec::llama() };
        assert_ne!(gguf(other), gguf(TinySpec::llama()));
    }
}
