//! Reading and checking what both formats say, by the names of each.

use crate::{Activation, Architecture, Error, ModelConfig, NormKind, Result};

/// Upper bounds, far above published models, that keep later products from overflowing.
pub(super) const MAX_WIDTH: u32 = 1 << 20;
pub(super) const MAX_LAYERS: u32 = 1 << 12;
pub(super) const MAX_HEADS: u32 = 1 << 12;
pub(super) const MAX_CONTEXT: u32 = 1 << 26;

/// Typed values by name. An error names the file and the field.
pub(super) trait Fields {
    fn integer(&self, key: &str) -> Result<Option<u32>>;
    /// Finite.
    fn float(&self, key: &str) -> Result<Option<f32>>;
    fn bad(&self, key: &str, problem: String) -> Error;
    fn missing(&self, key: &str) -> Error;
    fn unsupported(&self, what: String) -> Error;
}

impl dyn Fields + '_ {
    pub(super) fn optional_size(&self, key: &str, max: u32) -> Result<Option<usize>> {
        match self.integer(key)? {
            Some(value) if value == 0 || value > max => Err(self.bad(key, format!("{value} is not within 1 to {max}"))),
            value => Ok(value.map(|v| v as usize)),
        }
    }

    pub(super) fn size(&self, key: &str, max: u32) -> Result<usize> {
        self.optional_size(key, max)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn positive(&self, key: &str) -> Result<Option<f32>> {
        match self.float(key)? {
            Some(value) if value <= 0.0 => Err(self.bad(key, format!("{value} must be above 0"))),
            value => Ok(value),
        }
    }

    /// A base of rotary frequencies.
    pub(super) fn theta(&self, key: &str) -> Result<Option<f32>> {
        match self.float(key)? {
            Some(theta) if theta <= 1.0 => Err(self.bad(key, format!("{theta} must be above 1"))),
            theta => Ok(theta),
        }
    }

    /// A factor that stretches, 1 or more.
    pub(super) fn stretch(&self, key: &str) -> Result<Option<f32>> {
        match self.float(key)? {
            Some(factor) if factor < 1.0 => Err(self.bad(key, format!("{factor} must be at least 1"))),
            factor => Ok(factor),
        }
    }
}

/// What a format calls the sizes.
pub(super) struct Spelling {
    pub(super) hidden: &'static str,
    pub(super) intermediate: &'static str,
    pub(super) layers: &'static str,
    pub(super) heads: &'static str,
    pub(super) kv_heads: &'static str,
    pub(super) head_dim: &'static str,
    pub(super) context: &'static str,
    pub(super) rms_epsilon: &'static str,
    pub(super) layer_epsilon: &'static str,
    /// True when a feed-forward width that is not given is four times the hidden one.
    pub(super) four_times: bool,
}

/// The sizes; positions, windows, scales and soft caps are the format's to add, vocabulary and head the tensors'.
pub(super) fn sizes(
    fields: &dyn Fields,
    spelling: &Spelling,
    architecture: &'static Architecture,
    name: String,
) -> Result<ModelConfig> {
    let hidden_size = fields.size(spelling.hidden, MAX_WIDTH)?;
    let heads = fields.size(spelling.heads, MAX_HEADS)?;
    let kv_heads = fields.optional_size(spelling.kv_heads, MAX_HEADS)?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        return Err(fields.bad(spelling.kv_heads, format!("{kv_heads} does not divide the {heads} heads")));
    }
    let head_dim = match fields.optional_size(spelling.head_dim, MAX_WIDTH)? {
        Some(length) => length,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            let problem = format!("{heads} heads do not divide {} {hidden_size}", spelling.hidden);
            return Err(fields.bad(spelling.heads, problem));
        }
    };
    let intermediate_size = match fields.optional_size(spelling.intermediate, MAX_WIDTH)? {
        Some(size) => size,
        None if spelling.four_times => 4 * hidden_size,
        None => return Err(fields.missing(spelling.intermediate)),
    };
    let epsilon = match architecture.norm {
        NormKind::Rms => spelling.rms_epsilon,
        NormKind::Layer => spelling.layer_epsilon,
    };
    let norm_epsilon = fields.float(epsilon)?.ok_or_else(|| fields.missing(epsilon))?;
    if !(0.0..1.0).contains(&norm_epsilon) {
        return Err(fields.bad(epsilon, format!("{norm_epsilon} must be at least 0 and below 1")));
    }
    Ok(ModelConfig {
        architecture,
        name,
        vocab_size: 0,
        hidden_size,
        intermediate_size,
        layers: fields.size(spelling.layers, MAX_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        context_length: fields.size(spelling.context, MAX_CONTEXT)?,
        norm: architecture.norm,
        norm_epsilon,
        activation: architecture.activation,
        embedding_scale: if architecture.scaled_embedding { (hidden_size as f32).sqrt() } else { 1.0 },
        attention_scale: (head_dim as f32).sqrt().recip(),
        attention_softcap: None,
        logit_softcap: None,
        rope: None,
        sliding_window: None,
        tied_embeddings: architecture.tied_embeddings,
    })
}

/// The non-linearity that `hidden_act` names.
pub(super) fn activation(name: &str) -> Option<Activation> {
    match name {
        "silu" | "swish" => Some(Activation::Silu),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Some(Activation::GeluTanh),
        _ => None,
    }
}
