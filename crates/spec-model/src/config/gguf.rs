//! The configuration in a GGUF file's metadata.

use super::fields::{Fields, MAX_CONTEXT, MAX_WIDTH, Spelling, sizes};
use super::rope::{reached, yarn_magnitude};
use super::{Declared, ModelConfig, SlidingWindow};
use crate::architecture::Windows;
use crate::gguf::Metadata;
use crate::{Architecture, Error, Result, RopeConfig, RopeScaling, RopeStyle};

const SPELLING: Spelling = Spelling {
    hidden: "embedding_length",
    intermediate: "feed_forward_length",
    layers: "block_count",
    heads: "attention.head_count",
    kv_heads: "attention.head_count_kv",
    head_dim: "attention.key_length",
    context: "context_length",
    rms_epsilon: "attention.layer_norm_rms_epsilon",
    layer_epsilon: "attention.layer_norm_epsilon",
    four_times: false,
};

/// Layers of the one Gemma 3 whose queries are not scaled by the width of a head: no key says so.
const GEMMA3_27B_LAYERS: usize = 62;

impl ModelConfig {
    /// Reads `general.architecture` first, then the keys under its prefix. `vocab_size`, `tied_embeddings` and the
    /// frequency factors come from the tensors: see [`Checkpoint`](crate::Checkpoint), which fills them in.
    pub(crate) fn from_metadata(metadata: Metadata<'_>) -> Result<(Self, Declared)> {
        let architecture = Architecture::of_gguf(metadata.str("general.architecture")?, metadata.file())?;
        let keys = Keys { metadata, prefix: architecture.name };
        keys.refuse_what_is_not_implemented()?;

        let name = metadata.optional_str("general.name")?.unwrap_or_default().to_owned();
        let mut config = sizes(&keys, &SPELLING, architecture, name)?;
        let fields: &dyn Fields = &keys;
        let value_length = fields.optional_size("attention.value_length", MAX_WIDTH)?.unwrap_or(config.head_dim);
        if value_length != config.head_dim {
            let what = format!("value length {value_length} beside key length {}", config.head_dim);
            return Err(keys.unsupported(what));
        }
        if architecture.name == "gemma3" && config.layers == GEMMA3_27B_LAYERS {
            config.attention_scale = ((config.hidden_size / config.heads) as f32).sqrt().recip();
        }
        config.attention_softcap = keys.softcap("attn_logit_softcapping")?;
        config.logit_softcap = keys.softcap("final_logit_softcapping")?;
        if let Some(style) = architecture.rope {
            config.rope = Some(keys.rope(&config, style)?);
            if let Some(context) = config.rope.as_ref().and_then(|rope| reached(&rope.scaling)) {
                config.context_length = config.context_length.max(context.min(MAX_CONTEXT as usize));
            }
        }
        config.sliding_window = keys.window(&config)?;
        let declared = Declared { vocab_size: fields.optional_size("vocab_size", u32::MAX)?, ..Declared::default() };
        Ok((config, declared))
    }
}

/// The keys under an architecture's prefix.
struct Keys<'a> {
    metadata: Metadata<'a>,
    prefix: &'static str,
}

impl Fields for Keys<'_> {
    fn integer(&self, key: &str) -> Result<Option<u32>> {
        self.metadata.optional_u32(&self.full(key))
    }

    fn float(&self, key: &str) -> Result<Option<f32>> {
        self.metadata.optional_f32(&self.full(key))
    }

    fn bad(&self, key: &str, problem: String) -> Error {
        self.metadata.bad(&self.full(key), problem)
    }

    fn missing(&self, key: &str) -> Error {
        Error::MissingKey { file: self.metadata.file().to_owned(), key: self.full(key) }
    }

    fn unsupported(&self, what: String) -> Error {
        Error::Unsupported { file: self.metadata.file().to_owned(), what }
    }
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn softcap(&self, key: &str) -> Result<Option<f32>> {
        let fields: &dyn Fields = self;
        match fields.float(key)? {
            Some(0.0) => Ok(None),
            _ => fields.positive(key),
        }
    }

    fn rope(&self, config: &ModelConfig, style: RopeStyle) -> Result<RopeConfig> {
        let fields: &dyn Fields = self;
        let dims = fields.optional_size("rope.dimension_count", MAX_WIDTH)?.unwrap_or(config.head_dim);
        if !dims.is_multiple_of(2) || dims > config.head_dim {
            let problem = format!("{dims} must be even and at most the head's {}", config.head_dim);
            return Err(self.bad("rope.dimension_count", problem));
        }
        let theta = fields.theta("rope.freq_base")?.unwrap_or(config.architecture.rope_theta);
        let scaling = self.scaling(config.context_length)?;
        Ok(RopeConfig { theta, style, dims, scaling, frequency_factors: None })
    }

    fn scaling(&self, context: usize) -> Result<RopeScaling> {
        let fields: &dyn Fields = self;
        let kind = self.metadata.optional_str(&self.full("rope.scaling.type"))?;
        // Converters write 0 for none. The second key is the older one.
        let mut factor = None;
        for key in ["rope.scaling.factor", "rope.scale_linear"] {
            if factor.is_none() && fields.float(key)?.is_some_and(|factor| factor != 0.0) {
                factor = fields.stretch(key)?;
            }
        }
        let factor = factor.unwrap_or(1.0);
        let strengthened = fields.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let scaling = match kind {
            Some("none") => RopeScaling::None,
            // Without a type a factor means this one.
            Some("linear") | None if factor == 1.0 => RopeScaling::None,
            Some("linear") | None => RopeScaling::Linear { factor },
            Some("yarn") => {
                let log_multiplier = fields.float("rope.scaling.yarn_log_multiplier")?.filter(|&weight| weight != 0.0);
                let natural = log_multiplier.map_or_else(
                    || yarn_magnitude(factor, 1.0),
                    |weight| yarn_magnitude(factor, 1.0) / yarn_magnitude(factor, weight),
                );
                RopeScaling::Yarn {
                    factor,
                    original_context: fields
                        .optional_size("rope.scaling.original_context_length", MAX_CONTEXT)?
                        .unwrap_or(context),
                    beta_fast: fields.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: fields.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    attention_factor: natural * strengthened,
                    truncate: true,
                }
            }
            Some(other) => {
                let what = format!("`{}` = {other} (of none, linear, yarn)", self.full("rope.scaling.type"));
                return Err(self.unsupported(what));
            }
        };
        let yarn = matches!(scaling, RopeScaling::Yarn { .. });
        if strengthened != 1.0 && !yarn {
            return Err(self.refuse("rope.scaling.attn_factor", format!("{strengthened} without yarn")));
        }
        for (key, plain) in [("rope.scaling.yarn_ext_factor", 1.0), ("rope.scaling.yarn_attn_factor", 1.0)] {
            if let Some(value) = fields.float(key)?.filter(|&value| yarn && value >= 0.0 && value != plain) {
                return Err(self.refuse(key, value.to_string()));
            }
        }
        Ok(scaling)
    }

    fn window(&self, config: &ModelConfig) -> Result<Option<SlidingWindow>> {
        const SIZE: &str = "attention.sliding_window";
        const PATTERN: &str = "attention.sliding_window_pattern";
        let Some(size) = self.integer(SIZE)?.filter(|&size| size > 0) else {
            return Ok(None);
        };
        // `llama` stands for Mistral's models too.
        let windows = if self.prefix == "llama" { Windows::All } else { config.architecture.windows };
        let layers: Vec<bool> = match (self.metadata.optional_flags(&self.full(PATTERN))?, windows) {
            (Some(flags), _) if flags.len() == config.layers => flags,
            (Some(flags), _) => {
                let problem = format!("{} entries for {} layers", flags.len(), config.layers);
                return Err(self.bad(PATTERN, problem));
            }
            (None, Windows::AllButEach(each)) => {
                let fields: &dyn Fields = self;
                let each = fields.optional_size(PATTERN, MAX_WIDTH)?.unwrap_or(each);
                (1..=config.layers).map(|layer| !layer.is_multiple_of(each)).collect()
            }
            (None, Windows::All) => vec![true; config.layers],
            (None, Windows::Upper | Windows::Never) => {
                return Err(self.refuse(SIZE, format!("{size} without `{}`", self.full(PATTERN))));
            }
        };
        if !layers.contains(&true) {
            return Ok(None);
        }
        let fields: &dyn Fields = self;
        let local = fields.theta("rope.freq_base_swa")?.or(config.architecture.local_rope_theta);
        let rope = config.rope.as_ref().zip(local).map(|(rope, theta)| RopeConfig {
            theta,
            scaling: RopeScaling::None,
            ..rope.clone()
        });
        Ok(Some(SlidingWindow { size: size as usize, layers, rope }))
    }

    fn refuse(&self, key: &str, value: String) -> Error {
        self.unsupported(format!("`{}` = {value}", self.full(key)))
    }

    /// Keys that change the computation and that this version would otherwise silently ignore.
    fn refuse_what_is_not_implemented(&self) -> Result<()> {
        if let Some(count) = self.integer("expert_count")?.filter(|&n| n > 0) {
            return Err(self.refuse("expert_count", format!("{count} (mixture of experts)")));
        }
        for key in ["attention.scale", "logit_scale", "residual_scale", "embedding_scale", "rope.scaling.alpha"] {
            if let Some(value) = self.float(key)?.filter(|&value| value != 0.0) {
                return Err(self.refuse(key, value.to_string()));
            }
        }
        let causal = self.full("attention.causal");
        if self.metadata.optional_bool(&causal)? == Some(false) {
            return Err(self.refuse("attention.causal", "false".into()));
        }
        Ok(())
    }
}
