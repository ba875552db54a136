//! Safetensors checkpoints as GGUF files have them: the names of tensors, the order of their rows, the keys.

use super::{Content, Kind, Planned};
use crate::gguf::Gguf;
use crate::gguf::write::{Value, header};
use crate::{
    Checkpoint, Error, LayerWeights, Linear, ModelConfig, Norm, NormKind, Result, RopeConfig, RopeScaling, RopeStyle,
    TensorType, TensorView, names,
};

const RMS_EPSILON: &str = "attention.layer_norm_rms_epsilon";
const LAYER_EPSILON: &str = "attention.layer_norm_epsilon";

/// What describes the model without its tokenizer.
///
/// # Errors
/// [`Error::Unsupported`] when a reader of these keys would compute something else.
pub(super) fn keys(checkpoint: &Checkpoint) -> Result<Vec<(String, Value)>> {
    let config = checkpoint.config();
    // Converters make no difference between the two.
    let architecture = match config.architecture.name {
        "mistral" => "llama",
        name => name,
    };
    let mut keys: Vec<(String, Value)> =
        vec![("general.architecture".into(), architecture.into()), ("general.name".into(), config.name.clone().into())];
    let mut add = |key: &str, value: Value| keys.push((format!("{architecture}.{key}"), value));
    for (key, size) in [
        ("vocab_size", config.vocab_size),
        ("context_length", config.context_length),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("block_count", config.layers),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
    ] {
        add(key, number(size));
    }
    match config.norm {
        NormKind::Rms => add(RMS_EPSILON, config.norm_epsilon.into()),
        NormKind::Layer => add(LAYER_EPSILON, config.norm_epsilon.into()),
    }
    if let Some(rope) = &config.rope {
        for (key, size) in [
            ("attention.key_length", config.head_dim),
            ("attention.value_length", config.head_dim),
            ("rope.dimension_count", rope.dims),
        ] {
            add(key, number(size));
        }
        add("rope.freq_base", rope.theta.into());
        stretched(rope, &mut add);
    }
    for (key, cap) in
        [("attn_logit_softcapping", config.attention_softcap), ("final_logit_softcapping", config.logit_softcap)]
    {
        if let Some(cap) = cap {
            add(key, cap.into());
        }
    }
    if let Some(window) = &config.sliding_window {
        add("attention.sliding_window", number(window.size));
        add("attention.sliding_window_pattern", window.layers.clone().into());
        if let Some(rope) = &window.rope {
            add("rope.freq_base_swa", rope.theta.into());
        }
    }
    check(checkpoint, &keys)?;
    if let Some(template) = checkpoint.chat_template()? {
        keys.push(("tokenizer.chat_template".into(), template.source().into()));
    }
    keys.extend(checkpoint.tokenizer_keys()?);
    Ok(keys)
}

fn number(size: usize) -> Value {
    Value::U32(u32::try_from(size).expect("sizes of a configuration fit 32 bits"))
}

fn stretched(rope: &RopeConfig, add: &mut dyn FnMut(&str, Value)) {
    match rope.scaling {
        // That of Llama 3 is a tensor.
        RopeScaling::None | RopeScaling::Llama3 { .. } => {}
        RopeScaling::Linear { factor } => {
            add("rope.scaling.type", "linear".into());
            add("rope.scaling.factor", factor.into());
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
            add("rope.scaling.type", "yarn".into());
            add("rope.scaling.factor", factor.into());
            add("rope.scaling.original_context_length", number(original_context));
            add("rope.scaling.yarn_beta_fast", beta_fast.into());
            add("rope.scaling.yarn_beta_slow", beta_slow.into());
        }
    }
}

/// Whether a reader of the keys gets the configuration that they were made of.
fn check(checkpoint: &Checkpoint, keys: &[(String, Value)]) -> Result<()> {
    let stored: Vec<(&str, Vec<u8>)> = keys.iter().map(|(key, value)| (key.as_str(), value.stored())).collect();
    let file = Gguf::parse(header(&stored, &[], 32), checkpoint.name())?;
    let (mut read, _) = ModelConfig::from_metadata(file.metadata())?;
    let config = checkpoint.config();
    // What tensors tell, and what their order of rows stands for.
    (read.architecture, read.vocab_size, read.tied_embeddings) =
        (config.architecture, config.vocab_size, config.tied_embeddings);
    let rotations = |config: &ModelConfig| {
        let of_windows = config.sliding_window.as_ref().and_then(|window| window.rope.clone());
        [config.rope.clone(), of_windows].map(|rope| rope.map(of_halves))
    };
    let (found, wanted) = (rotations(&read), rotations(config));
    read.rope.clone_from(&config.rope);
    if let (Some(read), Some(wanted)) = (&mut read.sliding_window, &config.sliding_window) {
        read.rope.clone_from(&wanted.rope);
    }
    if read == *config && found == wanted {
        return Ok(());
    }
    let what = "writing this configuration to GGUF, whose keys would mean another one,".to_owned();
    Err(Error::Unsupported { file: checkpoint.name().to_owned(), what })
}

/// The same rotation, without what a tensor says of it.
fn of_halves(rope: RopeConfig) -> RopeConfig {
    let scaling = match rope.scaling {
        RopeScaling::Llama3 { .. } => RopeScaling::None,
        other => other,
    };
    RopeConfig { style: RopeStyle::Halves, scaling, ..rope }
}

/// The tensors, in the order of a pass.
pub(super) fn tensors(checkpoint: &Checkpoint) -> Vec<Planned<'_>> {
    let (config, weights) = (checkpoint.config(), checkpoint.weights());
    let names = &names::GGUF;
    let mut list = List { config, planned: Vec::new() };
    list.matrix(names.embedding, Kind::Table, vec![weights.embedding], None);
    if let Some(positions) = &weights.positions {
        let dims = vec![positions.cols as u64, positions.rows as u64];
        list.floats(format!("{}.weight", names.positions), dims, positions.to_f32());
    }
    if let Some(rope) = config.rope.as_ref().filter(|rope| matches!(rope.scaling, RopeScaling::Llama3 { .. })) {
        let plain = RopeConfig { scaling: RopeScaling::None, ..rope.clone() }.frequencies();
        let factors = plain.iter().zip(rope.frequencies()).map(|(plain, stretched)| (plain / stretched) as f32);
        list.vector("rope_freqs.weight".into(), factors.collect());
    }
    for (layer, weights) in weights.layers.iter().enumerate() {
        list.layer(&format!("{}{layer}.", names.layers), weights);
    }
    list.norm(names.output_norm, &weights.output_norm);
    if let Some(output) = weights.output {
        list.matrix(names.output, Kind::Table, vec![output], None);
    }
    list.planned
}

struct List<'a> {
    config: &'a ModelConfig,
    planned: Vec<Planned<'a>>,
}

impl<'a> List<'a> {
    fn layer(&mut self, prefix: &str, weights: &LayerWeights<TensorView<'a>>) {
        let names = &names::GGUF;
        let name = |part: &str| format!("{prefix}{part}");
        let config = self.config;
        let is_turned = config.architecture.rope == Some(RopeStyle::Interleaved);
        let turned = config.rope.as_ref().filter(|rope| is_turned && rope.style == RopeStyle::Halves);
        let turned = turned.map(|_| config.head_dim);
        self.norm(&name(names.attn_norm), &weights.attn_norm);
        if config.architecture.fused_qkv {
            self.linear(&name(names.qkv), &[&weights.q, &weights.k, &weights.v], None);
        } else {
            self.linear(&name(names.q), &[&weights.q], turned);
            self.linear(&name(names.k), &[&weights.k], turned);
            self.linear(&name(names.v), &[&weights.v], None);
        }
        for (part, norm) in [(names.q_norm, &weights.q_norm), (names.k_norm, &weights.k_norm)] {
            if let Some(norm) = norm {
                self.vector(format!("{}.weight", name(part)), norm.to_f32());
            }
        }
        self.linear(&name(names.attn_output), &[&weights.attn_output], None);
        for (part, norm) in [
            (names.post_attn_norm, weights.post_attn_norm.as_ref()),
            (names.ffn_norm, Some(&weights.ffn_norm)),
            (names.post_ffn_norm, weights.post_ffn_norm.as_ref()),
        ] {
            if let Some(norm) = norm {
                self.norm(&name(part), norm);
            }
        }
        if let Some(gate) = &weights.gate {
            self.linear(&name(names.gate), &[gate], None);
        }
        self.linear(&name(names.up), &[&weights.up], None);
        self.linear(&name(names.down), &[&weights.down], None);
    }

    fn norm(&mut self, name: &str, norm: &Norm<TensorView<'a>>) {
        self.vector(format!("{name}.weight"), norm.weight.to_f32());
        if let Some(bias) = &norm.bias {
            self.vector(format!("{name}.bias"), bias.to_f32());
        }
    }

    /// One projection, or several that the file has as one.
    fn linear(&mut self, name: &str, parts: &[&Linear<TensorView<'a>>], turned: Option<usize>) {
        self.matrix(name, Kind::Matrix, parts.iter().map(|part| part.weight).collect(), turned);
        let biases: Vec<f32> =
            parts.iter().filter_map(|part| part.bias.as_ref()).flat_map(TensorView::to_f32).collect();
        if !biases.is_empty() {
            let biases = match turned {
                Some(head) => (0..biases.len()).map(|row| biases[source_row(row, head)]).collect(),
                None => biases,
            };
            self.vector(format!("{name}.bias"), biases);
        }
    }

    fn matrix(&mut self, name: &str, kind: Kind, views: Vec<TensorView<'a>>, turned: Option<usize>) {
        let rows: usize = views.iter().map(|view| view.rows).sum();
        let TensorView { cols, tensor_type, .. } = views[0];
        self.planned.push(Planned {
            name: format!("{name}.weight"),
            dims: vec![cols as u64, rows as u64],
            rows,
            cols,
            stored: tensor_type,
            kind,
            content: Content::Stored { views, turned },
            quantizer: None,
        });
    }

    fn vector(&mut self, name: String, values: Vec<f32>) {
        self.floats(name, vec![values.len() as u64], values);
    }

    fn floats(&mut self, name: String, dims: Vec<u64>, values: Vec<f32>) {
        self.planned.push(Planned {
            name,
            dims,
            rows: 1,
            cols: values.len(),
            stored: TensorType::F32,
            kind: Kind::Other,
            content: Content::Floats(values),
            quantizer: None,
        });
    }
}

/// Which row of a projection, stored for pairs of halves, comes to be `row` where pairs are neighbours; `head` rows are a head's.
pub(super) fn source_row(row: usize, head: usize) -> usize {
    let (first, within) = (row / head * head, row % head);
    first + within % 2 * (head / 2) + within / 2
}
