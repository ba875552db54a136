//! Where the real models are.

use std::path::PathBuf;

/// The models that tests run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// SmolLM2-135M-Instruct, Q4_1: a llama.
    SmolLm2,
    /// Qwen2.5-Coder-0.5B-Instruct, Q4_K_M: the draft of the pair.
    QwenDraft,
    /// Qwen2.5-Coder-1.5B-Instruct, Q4_K_M: the target of the pair.
    QwenTarget,
    /// Gemma 3 270M, Q4_K_M: SentencePiece and sliding windows.
    Gemma,
}

impl Model {
    /// File name without its ending; the reference data has the same.
    pub fn stem(self) -> &'static str {
        match self {
            Self::SmolLm2 => "smollm2-135m-instruct-q4_1",
            Self::QwenDraft => "qwen2.5-coder-0.5b-instruct-q4_k_m",
            Self::QwenTarget => "qwen2.5-coder-1.5b-instruct-q4_k_m",
            Self::Gemma => "gemma-3-270m-q4_k_m",
        }
    }
}

/// The model's file, in the folder that `SPEC_MODELS` names, else in the user's cache.
///
/// # Panics
/// When it is not there: a test without its model has failed.
pub fn path(model: Model) -> PathBuf {
    present(format!("{}.gguf", model.stem()), if model == Model::Gemma { " --gemma" } else { "" })
}

/// The folder with the published `tokenizer.json` and `tokenizer_config.json` of a family: `qwen2.5` or `gemma-3`.
///
/// # Panics
/// When it is not there.
pub fn published_tokenizer(family: &str) -> PathBuf {
    present(format!("tokenizers/{family}"), " --gemma")
}

fn present(name: String, option: &str) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("SPEC_MODELS").unwrap_or_else(|| {
        let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        cache.expect("HOME, XDG_CACHE_HOME or SPEC_MODELS says where models are").join("spec/models")
    });
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask fetch{option}`", path.display());
    path
}
