//! The supported architectures, as data.

use crate::names::{self, Names};
use crate::{Activation, NormKind};

/// How rotary position embedding pairs the elements of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements `2 i` and `2 i + 1` turn together (the original RoFormer order, arXiv 2104.09864). GGUF stores the
    /// query and key rows of `llama` permuted for it.
    Interleaved,
    /// Elements `i` and `i + dims / 2` turn together (GPT-NeoX). Safetensors files store all rows for it.
    Halves,
}

/// Whether a projection has a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bias {
    /// Never.
    Never,
    /// In every checkpoint.
    Always,
    /// As the configuration says; where it says nothing, as the first layer has it.
    Configured,
}

/// Which layers have a sliding window, in checkpoints that have one and do not list the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Windows {
    /// The architecture has none.
    Never,
    /// All.
    All,
    /// Those from `max_window_layers` on.
    Upper,
    /// All but each n-th.
    AllButEach(usize),
}

/// What distinguishes one decoder architecture from another: a new one is a line of [`ARCHITECTURES`]. All are decoders
/// with the norms before the blocks and attention by groups of heads.
#[derive(Debug)]
#[non_exhaustive]
pub struct Architecture {
    /// Our name, and `general.architecture` of GGUF files.
    pub name: &'static str,
    /// Values of `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// Norms of the residual stream.
    pub norm: NormKind,
    /// Non-linearity, unless the configuration says otherwise.
    pub activation: Activation,
    /// True when the feed-forward block is gated.
    pub gated: bool,
    /// Pairing of rotated elements in GGUF files; `None` where positions are learned.
    pub rope: Option<RopeStyle>,
    /// Base of the rotary frequencies, unless the configuration says otherwise.
    pub rope_theta: f32,
    /// The same in layers with a sliding window, where they have one of their own. It is never stretched.
    pub local_rope_theta: Option<f32>,
    /// Layers with a sliding window.
    pub windows: Windows,
    /// Bias of query, key and value.
    pub qkv_bias: Bias,
    /// Bias of attention's output.
    pub attn_output_bias: Bias,
    /// Biases of the feed-forward block.
    pub ffn_bias: Bias,
    /// True when query, key and value are stored as one matrix.
    pub fused_qkv: bool,
    /// True when the heads of queries and keys are normed.
    pub head_norms: bool,
    /// True when the outputs of the blocks are normed before they join the residual stream.
    pub post_norms: bool,
    /// True when the embedding is multiplied with the square root of its width.
    pub scaled_embedding: bool,
    /// True when the embedding is the head, unless `config.json` says otherwise.
    pub tied_embeddings: bool,
    /// True when safetensors files store norms as their distance from one. GGUF files never do.
    pub norms_from_one: bool,
    /// True when safetensors files store matrices as `[inputs, outputs]`. GGUF files never do.
    pub transposed: bool,
    /// What `config.json` means when it does not say.
    pub(crate) defaults: &'static [(&'static str, f64)],
    /// What safetensors files call the tensors.
    pub(crate) names: &'static Names,
}

impl PartialEq for Architecture {
    /// Names are unique.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Architecture {}

const LLAMA: Architecture = Architecture {
    name: "llama",
    model_types: &["llama"],
    norm: NormKind::Rms,
    activation: Activation::Silu,
    gated: true,
    rope: Some(RopeStyle::Interleaved),
    rope_theta: 10_000.0,
    local_rope_theta: None,
    windows: Windows::Never,
    qkv_bias: Bias::Configured,
    attn_output_bias: Bias::Configured,
    ffn_bias: Bias::Configured,
    fused_qkv: false,
    head_norms: false,
    post_norms: false,
    scaled_embedding: false,
    tied_embeddings: false,
    norms_from_one: false,
    transposed: false,
    defaults: &[("rms_norm_eps", 1e-6), ("max_position_embeddings", 2048.0)],
    names: &names::LLAMA,
};

/// Every architecture this version reads.
pub static ARCHITECTURES: [Architecture; 6] = [
    LLAMA,
    // GGUF files call it `llama`: converters make no difference.
    Architecture {
        name: "mistral",
        model_types: &["mistral"],
        windows: Windows::All,
        qkv_bias: Bias::Never,
        attn_output_bias: Bias::Never,
        ffn_bias: Bias::Never,
        defaults: &[
            ("rms_norm_eps", 1e-6),
            ("max_position_embeddings", 131_072.0),
            ("num_key_value_heads", 8.0),
            ("sliding_window", 4096.0),
        ],
        ..LLAMA
    },
    Architecture {
        name: "qwen2",
        model_types: &["qwen2"],
        rope: Some(RopeStyle::Halves),
        windows: Windows::Upper,
        qkv_bias: Bias::Always,
        attn_output_bias: Bias::Never,
        ffn_bias: Bias::Never,
        defaults: &[
            ("rms_norm_eps", 1e-6),
            ("max_position_embeddings", 32_768.0),
            ("sliding_window", 4096.0),
            ("max_window_layers", 28.0),
        ],
        ..LLAMA
    },
    Architecture {
        name: "qwen3",
        model_types: &["qwen3"],
        rope: Some(RopeStyle::Halves),
        windows: Windows::Upper,
        ffn_bias: Bias::Never,
        head_norms: true,
        defaults: &[
            ("rms_norm_eps", 1e-6),
            ("max_position_embeddings", 32_768.0),
            ("head_dim", 128.0),
            ("sliding_window", 4096.0),
            ("max_window_layers", 28.0),
        ],
        ..LLAMA
    },
    Architecture {
        name: "gemma3",
        model_types: &["gemma3_text", "gemma3"],
        activation: Activation::GeluTanh,
        rope: Some(RopeStyle::Halves),
        rope_theta: 1_000_000.0,
        local_rope_theta: Some(10_000.0),
        windows: Windows::AllButEach(6),
        ffn_bias: Bias::Never,
        head_norms: true,
        post_norms: true,
        scaled_embedding: true,
        tied_embeddings: true,
        norms_from_one: true,
        defaults: &[
            ("rms_norm_eps", 1e-6),
            ("max_position_embeddings", 131_072.0),
            ("num_attention_heads", 8.0),
            ("num_key_value_heads", 4.0),
            ("head_dim", 256.0),
            ("query_pre_attn_scalar", 256.0),
            ("sliding_window", 4096.0),
        ],
        names: &names::GEMMA3,
        ..LLAMA
    },
    Architecture {
        name: "gpt2",
        model_types: &["gpt2"],
        norm: NormKind::Layer,
        activation: Activation::GeluTanh,
        gated: false,
        rope: None,
        qkv_bias: Bias::Always,
        attn_output_bias: Bias::Always,
        ffn_bias: Bias::Always,
        fused_qkv: true,
        tied_embeddings: true,
        transposed: true,
        defaults: &[("layer_norm_epsilon", 1e-5), ("n_positions", 1024.0)],
        names: &names::GPT2,
        ..LLAMA
    },
];

/// Architectures that turn a text into vectors and predict no next token, as GGUF and `config.json` name them.
const ENCODERS: [&str; 32] = [
    "albert",
    "bert",
    "camembert",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "eurobert",
    "flaubert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "longformer",
    "mobilebert",
    "modern-bert",
    "modernbert",
    "mpnet",
    "neo-bert",
    "new",
    "nomic-bert",
    "nomic-bert-moe",
    "nomic_bert",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roformer",
    "squeezebert",
    "t5encoder",
    "xlm-roberta",
    "xlm-roberta-xl",
];

impl Architecture {
    /// The one that GGUF files call `name`.
    pub(crate) fn of_gguf(name: &str, file: &str) -> crate::Result<&'static Self> {
        ARCHITECTURES.iter().find(|a| a.name == name).ok_or_else(|| refusal(name, file))
    }

    /// The one with this `model_type`.
    pub(crate) fn of_model_type(name: &str, file: &str) -> crate::Result<&'static Self> {
        ARCHITECTURES.iter().find(|a| a.model_types.contains(&name)).ok_or_else(|| refusal(name, file))
    }
}

fn refusal(found: &str, file: &str) -> crate::Error {
    let (file, found) = (file.to_owned(), found.to_owned());
    let supported = supported();
    if ENCODERS.contains(&found.as_str()) {
        crate::Error::EncoderOnly { file, found, supported }
    } else {
        crate::Error::Architecture { file, found, supported }
    }
}

/// Names of all rows, for messages.
pub(crate) fn supported() -> String {
    ARCHITECTURES.each_ref().map(|a| a.name).join(", ")
}
