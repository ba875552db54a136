//! A model's hyper-parameters, read from metadata and checked against each other.

use crate::gguf::Metadata;
use crate::{ARCHITECTURES, Architecture, Error, Result, RopeConfig, RopeScaling};

/// Hyper-parameters of a decoder. Every size is non-zero, and they divide as the architecture needs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The architecture's line of the table.
    pub architecture: &'static Architecture,
    /// `general.name`, or empty.
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

/// Upper bounds, far above published models, that keep later products from overflowing.
const MAX_WIDTH: u32 = 1 << 20;
const MAX_LAYERS: u32 = 1 << 12;
const MAX_HEADS: u32 = 1 << 12;
const MAX_CONTEXT: u32 = 1 << 26;

impl ModelConfig {
    /// Reads `general.architecture` first, then the keys under its prefix. `vocab_size`, `tied_embeddings` and the
    /// frequency factors come from the tensors and are left at 0, `false` and `None`: see
    /// [`Checkpoint`](crate::Checkpoint), which fills them in.
    pub(crate) fn from_metadata(metadata: Metadata<'_>) -> Result<Self> {
        let found = metadata.str("general.architecture")?;
        let architecture = ARCHITECTURES.iter().find(|a| a.name == found).ok_or_else(|| Error::Architecture {
            file: metadata.file().to_owned(),
            found: found.to_owned(),
            supported: ARCHITECTURES.each_ref().map(|a| a.name).join(", "),
        })?;
        let keys = Keys { metadata, prefix: architecture.name };
        keys.refuse_what_is_not_implemented()?;

        let hidden_size = keys.size("embedding_length", MAX_WIDTH)?;
        let heads = keys.size("attention.head_count", MAX_HEADS)?;
        let kv_heads = keys.optional_size("attention.head_count_kv", MAX_HEADS)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(keys.bad("attention.head_count_kv", format!("{kv_heads} does not divide the {heads} heads")));
        }
        let head_dim = match keys.optional_size("attention.key_length", MAX_WIDTH)? {
            Some(length) => length,
            None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
            None => {
                return Err(keys.bad(
                    "attention.head_count",
                    format!("{heads} heads do not divide embedding_length {hidden_size}"),
                ));
            }
        };
        let value_length = keys.optional_size("attention.value_length", MAX_WIDTH)?.unwrap_or(head_dim);
        if value_length != head_dim {
            return Err(keys.unsupported(format!("value length {value_length} beside key length {head_dim}")));
        }
        let dims = keys.optional_size("rope.dimension_count", MAX_WIDTH)?.unwrap_or(head_dim);
        if !dims.is_multiple_of(2) || dims > head_dim {
            return Err(
                keys.bad("rope.dimension_count", format!("{dims} must be even and at most the head's {head_dim}"))
            );
        }
        let theta = keys.optional_f32("rope.freq_base")?.unwrap_or(10_000.0);
        if theta <= 1.0 {
            return Err(keys.bad("rope.freq_base", format!("{theta} must be above 1")));
        }
        let norm_epsilon = metadata.f32(&keys.full("attention.layer_norm_rms_epsilon"))?;
        if !(0.0..1.0).contains(&norm_epsilon) {
            return Err(
                keys.bad("attention.layer_norm_rms_epsilon", format!("{norm_epsilon} must be at least 0 and below 1"))
            );
        }
        Ok(Self {
            architecture,
            name: metadata.optional_str("general.name")?.unwrap_or_default().to_owned(),
            vocab_size: 0,
            hidden_size,
            intermediate_size: keys.size("feed_forward_length", MAX_WIDTH)?,
            layers: keys.size("block_count", MAX_LAYERS)?,
            heads,
            kv_heads,
            head_dim,
            context_length: keys.size("context_length", MAX_CONTEXT)?,
            norm: NormKind::Rms,
            norm_epsilon,
            activation: Activation::Silu,
            embedding_scale: 1.0,
            attention_scale: (head_dim as f32).sqrt().recip(),
            attention_softcap: None,
            logit_softcap: None,
            rope: Some(RopeConfig {
                theta,
                style: architecture.rope_style,
                dims,
                scaling: RopeScaling::None,
                frequency_factors: None,
            }),
            sliding_window: None,
            tied_embeddings: false,
        })
    }
}

/// The keys under an architecture's prefix.
struct Keys<'a> {
    metadata: Metadata<'a>,
    prefix: &'static str,
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn bad(&self, key: &str, problem: String) -> Error {
        self.metadata.bad(&self.full(key), problem)
    }

    fn unsupported(&self, what: String) -> Error {
        Error::Unsupported { file: self.metadata.file().to_owned(), what }
    }

    fn optional_size(&self, key: &str, max: u32) -> Result<Option<usize>> {
        match self.metadata.optional_u32(&self.full(key))? {
            Some(value) if value == 0 || value > max => Err(self.bad(key, format!("{value} is not within 1 to {max}"))),
            value => Ok(value.map(|v| v as usize)),
        }
    }

    fn size(&self, key: &str, max: u32) -> Result<usize> {
        match self.optional_size(key, max)? {
            Some(size) => Ok(size),
            None => Err(Error::MissingKey { file: self.metadata.file().to_owned(), key: self.full(key) }),
        }
    }

    fn optional_f32(&self, key: &str) -> Result<Option<f32>> {
        self.metadata.optional_f32(&self.full(key))
    }

    /// Keys that change the computation and that this version would otherwise silently ignore.
    fn refuse_what_is_not_implemented(&self) -> Result<()> {
        let refuse = |key: &str, value: String| Err(self.unsupported(format!("`{}` = {value}", self.full(key))));
        let scaling = self.metadata.optional_str(&self.full("rope.scaling.type"))?;
        if let Some(kind) = scaling.filter(|&kind| kind != "none") {
            return refuse("rope.scaling.type", format!("{kind} (rope scaling)"));
        }
        // Without a type these keys mean linear scaling; a factor of 0 or 1 is none.
        for key in ["rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor"] {
            let factor = self.optional_f32(key)?.filter(|&f| f != 0.0 && f != 1.0);
            if let Some(factor) = factor.filter(|_| scaling.is_none()) {
                return refuse(key, format!("{factor} (rope scaling)"));
            }
        }
        for (key, meaning) in [("expert_count", "mixture of experts"), ("attention.sliding_window", "sliding window")] {
            if let Some(count) = self.metadata.optional_u32(&self.full(key))?.filter(|&n| n > 0) {
                return refuse(key, format!("{count} ({meaning})"));
            }
        }
        if self.metadata.optional_bool(&self.full("attention.causal"))? == Some(false) {
            return refuse("attention.causal", "false".into());
        }
        let shards = self.metadata.optional_u32("split.count")?.filter(|&n| n > 1);
        if let Some(shards) = shards {
            return Err(
                self.unsupported(format!("loading a checkpoint split into {shards} files (merge them into one first)"))
            );
        }
        Ok(())
    }
}
