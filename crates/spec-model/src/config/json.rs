//! The configuration in a `config.json`.

use serde_json::{Map, Value};

use super::fields::{Fields, MAX_CONTEXT, MAX_WIDTH, Spelling, activation, sizes};
use super::rope::{reached, yarn_magnitude};
use super::{Declared, ModelConfig, SlidingWindow};
use crate::architecture::Windows;
use crate::document::Json;
use crate::{Architecture, Error, Result, RopeConfig, RopeScaling, RopeStyle};

const SPELLING: Spelling = Spelling {
    hidden: "hidden_size",
    intermediate: "intermediate_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    head_dim: "head_dim",
    context: "max_position_embeddings",
    rms_epsilon: "rms_norm_eps",
    layer_epsilon: "layer_norm_epsilon",
    four_times: false,
};

const GPT2_SPELLING: Spelling = Spelling {
    hidden: "n_embd",
    intermediate: "n_inner",
    layers: "n_layer",
    heads: "n_head",
    context: "n_positions",
    four_times: true,
    ..SPELLING
};

impl ModelConfig {
    /// Reads `model_type` first. `vocab_size` and `tied_embeddings` are completed by the tensors.
    pub(crate) fn from_json(json: &Json, name: &str) -> Result<(Self, Declared)> {
        let outer = Reader { json, fields: json.fields(), path: String::new(), defaults: &[] };
        let model_type = outer.text("model_type")?.ok_or_else(|| outer.missing("model_type"))?;
        let architecture = Architecture::of_model_type(model_type, json.file())?;
        // Models that also see keep the decoder's part apart.
        let (inner, sees) = match outer.object("text_config")? {
            Some(fields) => (fields, true),
            None => (outer.fields, false),
        };
        let path = if sees { "text_config.".to_owned() } else { String::new() };
        let reader = Reader { json, fields: inner, path, defaults: architecture.defaults };
        if reader.flag("use_bidirectional_attention")? == Some(true) {
            return Err(Error::EncoderOnly {
                file: json.file().to_owned(),
                found: format!("{model_type} with use_bidirectional_attention"),
                supported: crate::architecture::supported(),
            });
        }
        for outside in [&outer, &reader] {
            outside.refuse_what_is_not_implemented()?;
        }

        let name = outer.text("_name_or_path")?.filter(|name| !name.is_empty()).unwrap_or(name).to_owned();
        let spelling = if architecture.rope.is_some() { &SPELLING } else { &GPT2_SPELLING };
        let mut config = sizes(&reader, spelling, architecture, name)?;
        reader.complete(&mut config)?;
        let fields: &dyn Fields = &reader;
        let attention_bias = reader.flag("attention_bias")?.unwrap_or(false);
        let declared = Declared {
            vocab_size: fields.optional_size("vocab_size", u32::MAX)?,
            tied: Some(match outer.flag("tie_word_embeddings")? {
                Some(tied) => tied,
                None => reader.flag("tie_word_embeddings")?.unwrap_or(architecture.tied_embeddings),
            }),
            attention_bias: Some(attention_bias),
            ffn_bias: Some(reader.flag("mlp_bias")?.unwrap_or(false)),
            other_parts: sees,
        };
        Ok((config, declared))
    }
}

/// An object of the document, and what it means where it says nothing.
struct Reader<'a> {
    json: &'a Json,
    fields: &'a Map<String, Value>,
    /// What stands before the names of its fields in messages.
    path: String,
    defaults: &'static [(&'static str, f64)],
}

impl Fields for Reader<'_> {
    fn integer(&self, key: &str) -> Result<Option<u32>> {
        let Some(value) = self.get(key) else {
            return Ok(self.default(key).map(|value| value as u32));
        };
        match value.as_u64().map(u32::try_from) {
            Some(Ok(value)) => Ok(Some(value)),
            _ => Err(self.bad(key, format!("{} is not an integer of 32 bits unsigned", shown(value)))),
        }
    }

    fn float(&self, key: &str) -> Result<Option<f32>> {
        let Some(value) = self.get(key) else {
            return Ok(self.default(key).map(|value| value as f32));
        };
        match value.as_f64().map(|value| value as f32).filter(|value| value.is_finite()) {
            Some(value) => Ok(Some(value)),
            None => Err(self.bad(key, format!("{} is not a finite number", shown(value)))),
        }
    }

    fn bad(&self, key: &str, problem: String) -> Error {
        self.json.bad(&format!("{}{key}", self.path), problem)
    }

    fn missing(&self, key: &str) -> Error {
        self.bad(key, "missing".into())
    }

    fn unsupported(&self, what: String) -> Error {
        Error::Unsupported { file: self.json.file().to_owned(), what }
    }
}

impl<'a> Reader<'a> {
    /// `null` means what absence means.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    fn default(&self, key: &str) -> Option<f64> {
        self.defaults.iter().find(|(name, _)| *name == key).map(|&(_, value)| value)
    }

    fn typed<T>(&self, key: &str, wanted: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(value) => Ok(Some(value)),
                None => Err(self.bad(key, format!("{} is not {wanted}", shown(value)))),
            },
        }
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>> {
        self.typed(key, "an object", Value::as_object)
    }

    fn inside(&self, fields: &'a Map<String, Value>, key: &str) -> Self {
        Self { json: self.json, fields, path: format!("{}{key}.", self.path), defaults: &[] }
    }

    fn refuse(&self, key: &str, meaning: &str) -> Error {
        self.unsupported(format!("`{}{key}`, {meaning},", self.path))
    }

    /// Fields that change the computation and that this version would otherwise silently ignore.
    fn refuse_what_is_not_implemented(&self) -> Result<()> {
        if self.get("quantization_config").is_some() {
            let instead = "weights quantised by another tool; take the unquantised checkpoint or a GGUF file";
            return Err(self.refuse("quantization_config", instead));
        }
        for (key, meaning) in [
            ("scale_attn_by_inverse_layer_idx", "scores divided by the layer's number"),
            ("add_cross_attention", "attention to an encoder"),
            ("is_encoder_decoder", "an encoder before the decoder"),
        ] {
            if self.flag(key)? == Some(true) {
                return Err(self.refuse(key, meaning));
            }
        }
        Ok(())
    }

    /// All but the sizes.
    fn complete(&self, config: &mut ModelConfig) -> Result<()> {
        let fields: &dyn Fields = self;
        for key in ["hidden_activation", "hidden_act", "activation_function"] {
            if let Some(found) = self.text(key)? {
                config.activation = activation(found).ok_or_else(|| {
                    self.unsupported(format!("`{}{key}` = {found} (of silu, gelu_pytorch_tanh)", self.path))
                })?;
                break;
            }
        }
        config.attention_softcap = fields.positive("attn_logit_softcapping")?;
        config.logit_softcap = fields.positive("final_logit_softcapping")?;
        if let Some(scalar) = fields.positive("query_pre_attn_scalar")? {
            config.attention_scale = scalar.sqrt().recip();
        }
        if self.flag("scale_attn_weights")? == Some(false) {
            config.attention_scale = 1.0;
        }
        let mut local = None;
        if config.architecture.rope.is_some() {
            let (global, of_windows) = self.rope(config)?;
            if let Some(context) = reached(&global.scaling) {
                config.context_length = config.context_length.max(context.min(MAX_CONTEXT as usize));
            }
            config.rope = Some(global);
            local = of_windows;
        }
        config.sliding_window = self.window(config, local)?;
        Ok(())
    }

    /// Rotary embedding, and that of layers with a window where it is another one. Two generations of the format: fields
    /// beside each other (`rope_theta`, `rope_scaling`, `rope_local_base_freq`), and `rope_parameters` that holds
    /// them, for each type of layer or for all.
    fn rope(&self, config: &ModelConfig) -> Result<(RopeConfig, Option<RopeConfig>)> {
        let fields: &dyn Fields = self;
        let dims = config.head_dim;
        if !dims.is_multiple_of(2) {
            return Err(self.bad("head_dim", format!("{dims} must be even")));
        }
        let parameters = match self.object("rope_parameters")? {
            Some(found) => Some(self.inside(found, "rope_parameters")),
            None => self.object("rope_scaling")?.map(|found| self.inside(found, "rope_scaling")),
        };
        let of_type = |kind: &str| -> Result<Option<Self>> {
            let Some(all) = &parameters else { return Ok(None) };
            Ok(all.object(kind)?.map(|found| all.inside(found, kind)))
        };
        let (full, sliding) = (of_type("full_attention")?, of_type("sliding_attention")?);
        let of_all = full.as_ref().or(parameters.as_ref());
        let theta = match of_all.map(|reader| (reader as &dyn Fields).theta("rope_theta")).transpose()?.flatten() {
            Some(theta) => theta,
            None => fields.theta("rope_theta")?.unwrap_or(config.architecture.rope_theta),
        };
        let make =
            |theta, scaling| RopeConfig { theta, style: RopeStyle::Halves, dims, scaling, frequency_factors: None };
        self.refuse_partial_rotation()?;
        let stretched =
            |reader: Option<&Self>| reader.map_or(Ok(RopeScaling::None), |r| r.scaling(config.context_length));
        let global = make(theta, stretched(of_all)?);

        let named = match &sliding {
            Some(reader) => (reader as &dyn Fields).theta("rope_theta")?,
            None => fields.theta("rope_local_base_freq")?,
        };
        let local = match (named, config.architecture.local_rope_theta) {
            (Some(theta), _) | (None, Some(theta)) => Some(make(theta, stretched(sliding.as_ref())?)),
            (None, None) => None,
        };
        Ok((global, local))
    }

    fn refuse_partial_rotation(&self) -> Result<()> {
        match self.float("partial_rotary_factor")?.filter(|&factor| factor != 1.0) {
            Some(factor) => Err(self.unsupported(format!("`{}partial_rotary_factor` = {factor}", self.path))),
            None => Ok(()),
        }
    }

    /// `rope_type` is the newer name of `type`, and what counts where files have both.
    fn scaling(&self, context: usize) -> Result<RopeScaling> {
        self.refuse_partial_rotation()?;
        let fields: &dyn Fields = self;
        let factor = || fields.stretch("factor")?.ok_or_else(|| self.missing("factor"));
        let original = || fields.optional_size("original_max_position_embeddings", MAX_CONTEXT);
        let kind = match self.text("rope_type")? {
            Some(kind) => kind,
            None => self.text("type")?.unwrap_or("default"),
        };
        Ok(match kind {
            "default" => RopeScaling::None,
            "linear" => match factor()? {
                1.0 => RopeScaling::None,
                factor => RopeScaling::Linear { factor },
            },
            "llama3" => {
                let needed = |key: &str| fields.positive(key)?.ok_or_else(|| self.missing(key));
                let (low_freq_factor, high_freq_factor) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
                if low_freq_factor >= high_freq_factor {
                    let problem = format!("{high_freq_factor} must be above low_freq_factor {low_freq_factor}");
                    return Err(self.bad("high_freq_factor", problem));
                }
                let original_context = original()?.ok_or_else(|| self.missing("original_max_position_embeddings"))?;
                RopeScaling::Llama3 { factor: factor()?, low_freq_factor, high_freq_factor, original_context }
            }
            "yarn" => {
                let original_context = original()?.unwrap_or(context);
                let factor = match fields.stretch("factor")? {
                    Some(factor) => factor,
                    None => (context as f32 / original_context as f32).max(1.0),
                };
                let attention_factor = match fields.positive("attention_factor")? {
                    Some(given) => given,
                    None => match (fields.positive("mscale")?, fields.positive("mscale_all_dim")?) {
                        (Some(one), Some(all)) => yarn_magnitude(factor, one) / yarn_magnitude(factor, all),
                        _ => yarn_magnitude(factor, 1.0),
                    },
                };
                RopeScaling::Yarn {
                    factor,
                    original_context,
                    beta_fast: fields.positive("beta_fast")?.unwrap_or(32.0),
                    beta_slow: fields.positive("beta_slow")?.unwrap_or(1.0),
                    attention_factor,
                    truncate: self.flag("truncate")?.unwrap_or(true),
                }
            }
            other => {
                let what = format!(
                    "rope type {other} in `{}` (of default, linear, llama3, yarn)",
                    self.path.trim_end_matches('.')
                );
                return Err(self.unsupported(what));
            }
        })
    }

    fn window(&self, config: &ModelConfig, rope: Option<RopeConfig>) -> Result<Option<SlidingWindow>> {
        let fields: &dyn Fields = self;
        let count = config.layers;
        let windows = config.architecture.windows;
        // A stored null means none, and absence what the architecture means.
        let none = self.fields.get("sliding_window").is_some_and(Value::is_null)
            || (windows == Windows::Upper && self.flag("use_sliding_window")? != Some(true));
        let Some(size) = fields.optional_size("sliding_window", MAX_CONTEXT)?.filter(|_| !none) else {
            return Ok(None);
        };
        let layers: Vec<bool> = match (self.layer_types(count)?, windows) {
            (Some(_) | None, Windows::Never) => return Ok(None),
            (Some(layers), _) => layers,
            (None, Windows::All) => vec![true; count],
            (None, Windows::Upper) => {
                let first = self.integer("max_window_layers")?.unwrap_or(0) as usize;
                (0..count).map(|layer| layer >= first).collect()
            }
            (None, Windows::AllButEach(each)) => {
                let named = match fields.optional_size("sliding_window_pattern", MAX_WIDTH)? {
                    None => fields.optional_size("_sliding_window_pattern", MAX_WIDTH)?,
                    named => named,
                };
                let each = named.unwrap_or(each);
                (1..=count).map(|layer| !layer.is_multiple_of(each)).collect()
            }
        };
        Ok(layers.contains(&true).then_some(SlidingWindow { size, layers, rope }))
    }

    /// Which layers have a window, where the file lists them.
    fn layer_types(&self, count: usize) -> Result<Option<Vec<bool>>> {
        const KEY: &str = "layer_types";
        let Some(list) = self.typed(KEY, "a list", Value::as_array)? else {
            return Ok(None);
        };
        if list.len() != count {
            return Err(self.bad(KEY, format!("{} entries for {count} layers", list.len())));
        }
        let slides = list.iter().map(|kind| match kind.as_str() {
            Some("sliding_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => Err(self.unsupported(format!("`{}{KEY}` with {}", self.path, shown(kind)))),
        });
        slides.collect::<Result<_>>().map(Some)
    }
}

/// A value for a message: hostile ones may be long.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.len() > 64 => format!("a string of {} bytes", text.len()),
        other => other.to_string(),
    }
}
