//! A model's hyper-parameters, read from a GGUF file's metadata or from `config.json`, and checked against each other.

mod fields;
mod gguf;
mod json;
mod rope;

use crate::{Architecture, RopeConfig};

/// Hyper-parameters of a decoder. Every size is non-zero, and they divide as the architecture needs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The architecture's line of the table.
    pub architecture: &'static Architecture,
    /// What the checkpoint calls itself (`general.name`, `_name_or_path` or its folder), or empty.
    pub name: String,
    /// Rows of the embedding and of the head: token ids are below it.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Kind of the norms of the residual stream.
    pub norm: NormKind,
    /// Added to the mean square (or variance) in norms.
    pub norm_epsilon: f32,
    /// The feed-forward block's non-linearity.
    pub activation: Activation,
    /// What the embedding is multiplied with.
    pub embedding_scale: f32,
    /// What products of queries and keys are multiplied with.
    pub attention_scale: f32,
    /// `Some(c)`: attention scores become `c * tanh(score / c)`.
    pub attention_softcap: Option<f32>,
    /// `Some(c)`: logits become `c * tanh(logit / c)`.
    pub logit_softcap: Option<f32>,
    /// Rotary position embedding; `None` where positions are learned.
    pub rope: Option<RopeConfig>,
    /// Layers that do not attend to everything.
    pub sliding_window: Option<SlidingWindow>,
    /// True when the head is the embedding.
    pub tied_embeddings: bool,
}

/// What a configuration says about the tensors.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    pub(crate) vocab_size: Option<usize>,
    /// Whether the embedding is the head; `None` when the tensors tell.
    pub(crate) tied: Option<bool>,
    /// Biases that [`Bias::Configured`](crate::Bias) leaves open; `None` when the tensors tell.
    pub(crate) attention_bias: Option<bool>,
    pub(crate) ffn_bias: Option<bool>,
    /// True when the checkpoint holds more than a decoder, which is not read.
    pub(crate) other_parts: bool,
}

/// How rows are normed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormKind {
    /// Divided by their root mean square (arXiv 1910.07467).
    Rms,
    /// Mean removed, divided by the standard deviation, with a bias (arXiv 1607.06450).
    Layer,
}

/// The feed-forward block's non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation (arXiv 1606.08415).
    GeluTanh,
}

/// Layers that attend to the newest positions only.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SlidingWindow {
    /// Positions that a row attends to, its own included.
    pub size: usize,
    /// Whether the window holds, layer by layer; the others attend to everything.
    pub layers: Vec<bool>,
    /// Rotary embedding of the layers with the window; `None` means that of the others.
    pub rope: Option<RopeConfig>,
}
