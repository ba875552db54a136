//! The same models in the Hugging Face layout: safetensors and JSON files in a folder.

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{HIDDEN, INNER, VOCAB};

/// Every `model_type` that is read.
pub(crate) const MODEL_TYPES: [&str; 7] = ["llama", "mistral", "qwen2", "qwen3", "gemma3_text", "gemma3", "gpt2"];

/// A folder of its own with such a checkpoint.
pub(crate) fn folder(config: &Value, tensors: &[Tensor]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), config, tensors);
    folder
}

/// Asserts that a message has all that it should say.
pub(crate) fn says(message: &str, phrases: &[&str]) {
    for phrase in phrases {
        assert!(message.contains(phrase), "`{phrase}` is not in: {message}");
    }
}

/// A tensor to write: name, shape (slowest first), elements.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// The numbers from 0, in sixteenths, which all types hold exactly.
    pub(crate) fn new(name: &str, shape: &[usize]) -> Self {
        let count: usize = shape.iter().product();
        let bytes = (0..count).flat_map(|i| ((i % 64) as f32 / 16.0).to_le_bytes()).collect();
        Self { name: name.to_owned(), shape: shape.to_vec(), dtype: Dtype::F32, bytes }
    }

    /// The same elements as another type.
    pub(crate) fn cast(mut self, dtype: Dtype) -> Self {
        let values = self.bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")));
        self.bytes = match dtype {
            Dtype::F16 => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
            Dtype::BF16 => values.flat_map(|value| half::bf16::from_f32(value).to_le_bytes()).collect(),
            _ => return self,
        };
        self.dtype = dtype;
        self
    }
}

/// The bytes of a safetensors file, written by the `safetensors` crate.
pub(crate) fn serialize(tensors: &[Tensor]) -> Vec<u8> {
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
        (tensor.name.clone(), view.expect("the bytes are those of the shape"))
    });
    safetensors::serialize(views, None).expect("a legal table")
}

/// A valid `config.json` of an architecture.
pub(crate) fn config(model_type: &str, layers: usize) -> Value {
    if model_type == "gpt2" {
        return json!({
            "model_type": "gpt2", "n_embd": HIDDEN, "n_head": 2, "n_layer": layers, "n_positions": 64, "n_inner": INNER,
            "layer_norm_epsilon": 1e-5, "vocab_size": VOCAB, "activation_function": "gelu_new",
        });
    }
    let mut config = json!({
        "model_type": model_type, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_attention_heads": 2,
        "num_hidden_layers": layers, "num_key_value_heads": 1, "head_dim": 4, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64, "vocab_size": VOCAB, "tie_word_embeddings": true, "hidden_act": "silu",
    });
    if model_type.starts_with("gemma3") {
        config["hidden_activation"] = "gelu_pytorch_tanh".into();
        config["sliding_window"] = 32.into();
        config["query_pre_attn_scalar"] = 4.into();
        config.as_object_mut().expect("an object").remove("hidden_act");
    }
    if model_type == "mistral" {
        config["sliding_window"] = Value::Null;
    }
    config
}

/// The tensors that [`config`] needs.
pub(crate) fn tensors(model_type: &str, layers: usize) -> Vec<Tensor> {
    let (hidden, inner, vocab) = (HIDDEN as usize, INNER as usize, VOCAB as usize);
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: &[usize]| tensors.push(Tensor::new(&name, shape));
    if model_type == "gpt2" {
        add("transformer.wte.weight".into(), &[vocab, hidden]);
        add("transformer.wpe.weight".into(), &[64, hidden]);
        for (name, width) in [("ln_f.weight", hidden), ("ln_f.bias", hidden)] {
            add(format!("transformer.{name}"), &[width]);
        }
        for layer in 0..layers {
            for (name, inputs, outputs) in [
                ("attn.c_attn", hidden, 3 * hidden),
                ("attn.c_proj", hidden, hidden),
                ("mlp.c_fc", hidden, inner),
                ("mlp.c_proj", inner, hidden),
            ] {
                add(format!("transformer.h.{layer}.{name}.weight"), &[inputs, outputs]);
                add(format!("transformer.h.{layer}.{name}.bias"), &[outputs]);
            }
            for name in ["ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"] {
                add(format!("transformer.h.{layer}.{name}"), &[hidden]);
            }
            // The causal mask, which older exports carry.
            add(format!("transformer.h.{layer}.attn.bias"), &[1, 1, 64, 64]);
        }
        return tensors;
    }
    add("model.embed_tokens.weight".into(), &[vocab, hidden]);
    add("model.norm.weight".into(), &[hidden]);
    for layer in 0..layers {
        let mut part = |name: &str, shape: &[usize]| add(format!("model.layers.{layer}.{name}"), shape);
        part("input_layernorm.weight", &[hidden]);
        part("post_attention_layernorm.weight", &[hidden]);
        part("self_attn.q_proj.weight", &[8, hidden]);
        part("self_attn.k_proj.weight", &[4, hidden]);
        part("self_attn.v_proj.weight", &[4, hidden]);
        part("self_attn.o_proj.weight", &[hidden, 8]);
        part("mlp.gate_proj.weight", &[inner, hidden]);
        part("mlp.up_proj.weight", &[inner, hidden]);
        part("mlp.down_proj.weight", &[hidden, inner]);
        let vectors: &[(&str, usize)] = match model_type {
            "qwen2" => &[("self_attn.q_proj.bias", 8), ("self_attn.k_proj.bias", 4), ("self_attn.v_proj.bias", 4)],
            "qwen3" => &[("self_attn.q_norm.weight", 4), ("self_attn.k_norm.weight", 4)],
            "gemma3" | "gemma3_text" => &[
                ("self_attn.q_norm.weight", 4),
                ("self_attn.k_norm.weight", 4),
                ("pre_feedforward_layernorm.weight", 8),
                ("post_feedforward_layernorm.weight", 8),
            ],
            _ => &[],
        };
        for &(name, length) in vectors {
            part(name, &[length]);
        }
    }
    tensors
}

/// Writes one file of weights and the configuration.
pub(crate) fn write(folder: &Path, config: &Value, tensors: &[Tensor]) {
    std::fs::write(folder.join("config.json"), config.to_string()).expect("the folder can be written to");
    std::fs::write(folder.join("model.safetensors"), serialize(tensors)).expect("the folder can be written to");
}

/// Writes `count` files of weights with their index, and the configuration.
pub(crate) fn write_set(folder: &Path, config: &Value, tensors: &[Tensor], count: usize) {
    std::fs::write(folder.join("config.json"), config.to_string()).expect("the folder can be written to");
    let mut map = serde_json::Map::new();
    for (number, part) in tensors.chunks(tensors.len().div_ceil(count)).enumerate() {
        let name = format!("model-{:05}-of-{count:05}.safetensors", number + 1);
        std::fs::write(folder.join(&name), serialize(part)).expect("the folder can be written to");
        map.extend(part.iter().map(|tensor| (tensor.name.clone(), name.clone().into())));
    }
    let index = json!({"metadata": {"total_size": 0}, "weight_map": map});
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).expect("it can be written to");
}
