//! A decoder's sizes without its numbers: what memory is planned with, for files at hand and for others.

mod file_type;
mod published;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::architecture::Bias;
use crate::config::Declared;
use crate::document::{self, Json, MAX_CONFIG};
use crate::{
    Checkpoint, Error, LayerWeights, Linear, ModelConfig, Norm, NormKind, Result, TensorType, TensorView, Weights,
    names,
};
pub use file_type::FileType;
use file_type::Role;
use published::Published;

/// A tensor's sizes. A vector is one row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorOutline {
    /// Name in the file, or the one that it would have in a GGUF file.
    pub name: String,
    /// Element type.
    pub tensor_type: TensorType,
    /// Rows: outputs of a matrix.
    pub rows: usize,
    /// Elements per row: inputs of a matrix.
    pub cols: usize,
}

impl TensorOutline {
    /// Elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.rows * self.cols
    }

    /// Bytes in the file.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.tensor_type.row_bytes(self.cols).unwrap_or(0) * self.rows
    }
}

impl From<&TensorView<'_>> for TensorOutline {
    fn from(view: &TensorView<'_>) -> Self {
        let TensorView { name, tensor_type, rows, cols, .. } = *view;
        Self { name: name.to_owned(), tensor_type, rows, cols }
    }
}

/// The sizes of a decoder and of its tensors.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outline {
    /// The hyper-parameters.
    pub config: ModelConfig,
    /// The tensors by their role.
    pub weights: Weights<TensorOutline>,
}

impl Checkpoint {
    /// Its sizes.
    #[must_use]
    pub fn outline(&self) -> Outline {
        Outline { config: self.config().clone(), weights: self.weights().map(|view| TensorOutline::from(view)) }
    }
}

impl Outline {
    /// What a model described by the `config.json` at `path` takes as a file of type `stored`; when that is not given, with
    /// matrices of the type that the description names, or BF16.
    ///
    /// # Errors
    /// Those about files and fields; [`Error::Architecture`] for one that is not read.
    pub fn open(path: &Path, stored: Option<FileType>) -> Result<Self> {
        let file = path.display().to_string();
        let bytes = document::read(path, MAX_CONFIG)?.ok_or_else(|| Error::Io {
            file: file.clone(),
            action: "open",
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        let json = Json::parse(&file, &bytes)?;
        let named = ["dtype", "torch_dtype"].iter().find_map(|key| json.fields().get(*key)?.as_str());
        let published = match named {
            Some("float32") => FileType::F32,
            Some("float16") => FileType::F16,
            _ => FileType::BF16,
        };
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        Self::of_config(&json, &folder, stored.unwrap_or(published))
    }

    /// The published model of this name, such as `qwen2.5-7b` or `Llama-3.1-8B-Instruct`, as a file of type `stored`; `None`
    /// when its shape is not in the table.
    #[must_use]
    pub fn published(name: &str, stored: FileType) -> Option<Self> {
        let config = Published::find(name)?.config().to_string();
        let json = Json::parse(name, config.as_bytes()).expect("the table's rows are objects");
        Some(Self::of_config(&json, name, stored).expect("every row of the table is read by a test"))
    }

    /// Names of the published models whose shapes are known.
    pub fn known() -> impl Iterator<Item = &'static str> {
        published::TABLE.iter().map(|row| row.name)
    }

    /// Parameters: elements of all tensors, a tied head counted once.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.weights.matrices().chain(self.weights.vectors()).map(TensorOutline::elements).sum()
    }

    fn of_config(json: &Json, name: &str, stored: FileType) -> Result<Self> {
        let (mut config, declared) = ModelConfig::from_json(json, name)?;
        config.vocab_size = declared.vocab_size.ok_or_else(|| json.bad("vocab_size", "missing".into()))?;
        config.tied_embeddings = declared.tied.unwrap_or(config.architecture.tied_embeddings);
        let weights = Sketch { config: &config, declared: &declared, stored }.weights();
        Ok(Self { config, weights })
    }
}

/// Makes the tensors that an architecture needs.
struct Sketch<'a> {
    config: &'a ModelConfig,
    declared: &'a Declared,
    stored: FileType,
}

impl Sketch<'_> {
    fn weights(&self) -> Weights<TensorOutline> {
        let (config, hidden) = (self.config, self.config.hidden_size);
        let tied = config.tied_embeddings;
        let table = |name: &str, role| {
            let tensor_type = self.stored.matrix(role, 0, config, hidden);
            TensorOutline { name: format!("{name}.weight"), tensor_type, rows: config.vocab_size, cols: hidden }
        };
        Weights {
            embedding: table(names::GGUF.embedding, if tied { Role::Output } else { Role::Embedding }),
            positions: config.rope.is_none().then(|| TensorOutline {
                name: format!("{}.weight", names::GGUF.positions),
                tensor_type: TensorType::F32,
                rows: config.context_length,
                cols: hidden,
            }),
            output_norm: self.norm(names::GGUF.output_norm, hidden),
            output: (!tied).then(|| table(names::GGUF.output, Role::Output)),
            layers: (0..config.layers).map(|layer| self.layer(layer)).collect(),
        }
    }

    fn layer(&self, layer: usize) -> LayerWeights<TensorOutline> {
        let (config, architecture, names) = (self.config, self.config.architecture, &names::GGUF);
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let name = |part: &str| format!("{}{layer}.{part}", names.layers);
        let linear = |part: &str, role, rows, cols, bias| {
            let tensor_type = self.stored.matrix(role, layer, config, cols);
            let weight = TensorOutline { name: format!("{}.weight", name(part)), tensor_type, rows, cols };
            Linear { weight, bias: has(bias).then(|| vector(format!("{}.bias", name(part)), rows)) }
        };
        let attention_bias = self.declared.attention_bias.unwrap_or(false);
        let ffn_bias = self.declared.ffn_bias.unwrap_or(false);
        let biased = |bias, declared| if bias == Bias::Configured && declared { Bias::Always } else { bias };
        let qkv_bias = biased(architecture.qkv_bias, attention_bias);
        let output_bias = biased(architecture.attn_output_bias, attention_bias);
        let ffn_bias = biased(architecture.ffn_bias, ffn_bias);
        let of_qkv = |role| if architecture.fused_qkv { Role::Fused } else { role };
        let head_norm = |part| architecture.head_norms.then(|| vector(name(part) + ".weight", config.head_dim));
        let post_norm = |part| architecture.post_norms.then(|| self.norm(&name(part), hidden));
        LayerWeights {
            attn_norm: self.norm(&name(names.attn_norm), hidden),
            q: linear(names.q, of_qkv(Role::QueryOrKey), queries, hidden, qkv_bias),
            k: linear(names.k, of_qkv(Role::QueryOrKey), keys, hidden, qkv_bias),
            v: linear(names.v, of_qkv(Role::Value), keys, hidden, qkv_bias),
            q_norm: head_norm(names.q_norm),
            k_norm: head_norm(names.k_norm),
            attn_output: linear(names.attn_output, Role::AttentionOutput, hidden, queries, output_bias),
            post_attn_norm: post_norm(names.post_attn_norm),
            ffn_norm: self.norm(&name(names.ffn_norm), hidden),
            gate: architecture.gated.then(|| linear(names.gate, Role::GateOrUp, inner, hidden, ffn_bias)),
            up: linear(names.up, Role::GateOrUp, inner, hidden, ffn_bias),
            down: linear(names.down, Role::Down, hidden, inner, ffn_bias),
            post_ffn_norm: post_norm(names.post_ffn_norm),
        }
    }

    fn norm(&self, name: &str, width: usize) -> Norm<TensorOutline> {
        let bias = match self.config.norm {
            NormKind::Rms => None,
            NormKind::Layer => Some(vector(format!("{name}.bias"), width)),
        };
        Norm { weight: vector(format!("{name}.weight"), width), bias }
    }
}

fn has(bias: Bias) -> bool {
    bias == Bias::Always
}

fn vector(name: String, cols: usize) -> TensorOutline {
    TensorOutline { name, tensor_type: TensorType::F32, rows: 1, cols }
}
