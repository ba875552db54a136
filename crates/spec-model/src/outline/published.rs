//! Shapes of published models, so that memory can be planned for files that are not at hand.

use serde_json::{Value, json};

/// What the `config.json` of a model says about its sizes.
#[derive(Debug)]
pub(super) struct Published {
    /// Names without what tells forms of one shape apart, such as `-instruct`.
    pub(super) name: &'static str,
    model_type: &'static str,
    hidden: usize,
    intermediate: usize,
    layers: usize,
    heads: (usize, usize),
    head_dim: usize,
    vocab: usize,
    context: usize,
    tied: bool,
}

/// Model, its type; width, inner width, layers; query and key heads, their width; tokens, positions, whether the embedding is
/// the head.
macro_rules! table {
    ($($name:literal $model_type:literal: $hidden:literal $intermediate:literal $layers:literal,
       $heads:literal $kv_heads:literal $head_dim:literal, $vocab:literal $context:literal $tied:literal;)*) => {
        &[$(Published {
            name: $name,
            model_type: $model_type,
            hidden: $hidden,
            intermediate: $intermediate,
            layers: $layers,
            heads: ($heads, $kv_heads),
            head_dim: $head_dim,
            vocab: $vocab,
            context: $context,
            tied: $tied,
        }),*]
    };
}

pub(super) static TABLE: &[Published] = table! {
    "qwen2.5-0.5b" "qwen2": 896 4864 24, 14 2 64, 151936 32768 true;
    "qwen2.5-1.5b" "qwen2": 1536 8960 28, 12 2 128, 151936 32768 true;
    "qwen2.5-3b" "qwen2": 2048 11008 36, 16 2 128, 151936 32768 true;
    "qwen2.5-7b" "qwen2": 3584 18944 28, 28 4 128, 152064 32768 false;
    "qwen2.5-14b" "qwen2": 5120 13824 48, 40 8 128, 152064 32768 false;
    "qwen2.5-32b" "qwen2": 5120 27648 64, 40 8 128, 152064 32768 false;
    "qwen2.5-72b" "qwen2": 8192 29568 80, 64 8 128, 152064 32768 false;
    "qwen3-0.6b" "qwen3": 1024 3072 28, 16 8 128, 151936 40960 true;
    "qwen3-1.7b" "qwen3": 2048 6144 28, 16 8 128, 151936 40960 true;
    "qwen3-4b" "qwen3": 2560 9728 36, 32 8 128, 151936 40960 true;
    "qwen3-8b" "qwen3": 4096 12288 36, 32 8 128, 151936 40960 false;
    "qwen3-14b" "qwen3": 5120 17408 40, 40 8 128, 151936 40960 false;
    "qwen3-32b" "qwen3": 5120 25600 64, 64 8 128, 151936 40960 false;
    "llama-3-8b" "llama": 4096 14336 32, 32 8 128, 128256 8192 false;
    "llama-3-70b" "llama": 8192 28672 80, 64 8 128, 128256 8192 false;
    "llama-3.1-8b" "llama": 4096 14336 32, 32 8 128, 128256 131072 false;
    "llama-3.1-70b" "llama": 8192 28672 80, 64 8 128, 128256 131072 false;
    "llama-3.2-1b" "llama": 2048 8192 16, 32 8 64, 128256 131072 true;
    "llama-3.2-3b" "llama": 3072 8192 28, 24 8 128, 128256 131072 true;
    "llama-2-7b" "llama": 4096 11008 32, 32 32 128, 32000 4096 false;
    "llama-2-13b" "llama": 5120 13824 40, 40 40 128, 32000 4096 false;
    "llama-2-70b" "llama": 8192 28672 80, 64 8 128, 32000 4096 false;
    "tinyllama-1.1b" "llama": 2048 5632 22, 32 4 64, 32000 2048 false;
    "mistral-7b" "mistral": 4096 14336 32, 32 8 128, 32768 32768 false;
    "smollm2-135m" "llama": 576 1536 30, 9 3 64, 49152 8192 true;
    "smollm2-360m" "llama": 960 2560 32, 15 5 64, 49152 8192 true;
    "smollm2-1.7b" "llama": 2048 8192 24, 32 32 64, 49152 8192 true;
    "gemma-3-270m" "gemma3_text": 640 2048 18, 4 1 256, 262144 32768 true;
    "gemma-3-1b" "gemma3_text": 1152 6912 26, 4 1 256, 262144 32768 true;
};

/// What forms of one shape differ in, in their names.
const FORMS: [&str; 5] = ["-instruct", "-chat", "-it", "-base", "-coder"];

impl Published {
    /// The one of this name, in any case and in any form, such as `Qwen2.5-Coder-7B-Instruct`.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        let mut shape = name.to_ascii_lowercase();
        for form in FORMS {
            shape = shape.replace(form, "");
        }
        TABLE.iter().find(|row| row.name == shape)
    }

    /// As its `config.json` would have it. How far positions are stretched is left out: it takes no memory.
    pub(super) fn config(&self) -> Value {
        json!({
            "model_type": self.model_type,
            "_name_or_path": self.name,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads.0,
            "num_key_value_heads": self.heads.1,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": self.tied,
            "sliding_window": null,
        })
    }
}
