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
}

impl Model {
    /// File name without its ending; the reference data has the same.
    pub fn stem(self) -> &'static str {
        match self {
            Self::SmolLm2 => "smollm2-135m-instruct-q4_1",
            Self::QwenDraft => "qwen2.5-coder-0.5b-instruct-q4_k_m",
            Self::QwenTarget => "qwen2.5-coder-1.5b-instruct-q4_k_m",
        }
    }
}

/// The model's file, in the folder that `SPEC_MODELS` names, else in the user's cache.
///
/// # Panics
/// When it is not there: a test without its model has failed.
pub fn path(model: Model) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("SPEC_MODELS").unwrap_or_else(|| {
        let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        cache.expect("HOME, XDG_CACHE_HOME or SPEC_MODELS says where models are").join("spec/models")
    });
    let path = folder.join(format!("{}.gguf", model.stem()));
    assert!(path.is_file(), "{} is missing: run `cargo xtask fetch`", path.display());
    path
}
