//! What the files of a quantised model store each matrix as.

use crate::{ModelConfig, TensorType};

/// A way to store a whole model, by the name that GGUF files of it end in: most matrices are of one type, some of a wider one.
///
/// Which ones is decided as llama.cpp's quantiser does (commit 0c1e570, without an importance matrix).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are those of files")]
pub enum FileType {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2K,
    Q3KM,
    Q4KS,
    Q4KM,
    Q5KM,
    Q6K,
}

/// Type, name, what most matrices are.
const TABLE: [(FileType, &str, TensorType); 14] = [
    (FileType::F32, "f32", TensorType::F32),
    (FileType::F16, "f16", TensorType::F16),
    (FileType::BF16, "bf16", TensorType::BF16),
    (FileType::Q8_0, "q8_0", TensorType::Q8_0),
    (FileType::Q4_0, "q4_0", TensorType::Q4_0),
    (FileType::Q4_1, "q4_1", TensorType::Q4_1),
    (FileType::Q5_0, "q5_0", TensorType::Q5_0),
    (FileType::Q5_1, "q5_1", TensorType::Q5_1),
    (FileType::Q2K, "q2_k", TensorType::Q2K),
    (FileType::Q3KM, "q3_k_m", TensorType::Q3K),
    (FileType::Q4KS, "q4_k_s", TensorType::Q4K),
    (FileType::Q4KM, "q4_k_m", TensorType::Q4K),
    (FileType::Q5KM, "q5_k_m", TensorType::Q5K),
    (FileType::Q6K, "q6_k", TensorType::Q6K),
];

const _: () = {
    let mut i = 0;
    while i < TABLE.len() {
        assert!(TABLE[i].0 as usize == i, "table order must be the enum's");
        i += 1;
    }
};

/// Layers of the models whose key heads are so few that all their value matrices are worth more bits.
const LAYERS_OF_70B: usize = 80;

/// What a matrix does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Embedding,
    /// The head, be it the embedding or not.
    Output,
    QueryOrKey,
    Value,
    /// Query, key and value in one.
    Fused,
    AttentionOutput,
    GateOrUp,
    Down,
}

impl FileType {
    /// The one of this name, in any case.
    pub fn of(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    /// Its name, such as `q4_k_m`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// All names, for messages.
    pub fn names() -> String {
        TABLE.map(|row| row.1).join(", ")
    }

    /// What a matrix with rows of `cols` in layer `layer` of a model is stored as.
    pub(super) fn matrix(self, role: Role, layer: usize, config: &ModelConfig, cols: usize) -> TensorType {
        use TensorType as T;
        let base = TABLE[self as usize].2;
        if base.block_size() == 1 {
            return base;
        }
        let layers = config.layers;
        let more_bits = layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
        let wanted = match (role, self) {
            (Role::Output, Self::Q8_0) => T::Q8_0,
            (Role::Output, _) => T::Q6K,
            (Role::Value | Role::Down, Self::Q4KM | Self::Q5KM) if more_bits => T::Q6K,
            (Role::Value, Self::Q2K) if config.heads / config.kv_heads >= 4 => T::Q4K,
            (Role::Value, Self::Q3KM) if layer < 2 => T::Q5K,
            (Role::Value, Self::Q4KS) if layer < 4 => T::Q5K,
            (Role::Value, Self::Q3KM | Self::Q4KM | Self::Q4KS) if layers == LAYERS_OF_70B => T::Q5K,
            (Role::Down, Self::Q3KM) if layer < layers / 16 => T::Q5K,
            (Role::Down, Self::Q4KS) if layer < layers / 8 => T::Q5K,
            (Role::Value | Role::Down | Role::AttentionOutput, Self::Q2K) => T::Q3K,
            (Role::Value | Role::Down | Role::AttentionOutput | Role::Fused, Self::Q3KM) => T::Q4K,
            (Role::Fused, Self::Q4KM) => T::Q5K,
            (Role::Fused, Self::Q5KM) => T::Q6K,
            _ => base,
        };
        fitting(wanted, cols)
    }
}

/// The type, or the next wider one whose blocks rows of `cols` are made of.
fn fitting(wanted: TensorType, cols: usize) -> TensorType {
    use TensorType as T;
    let chosen = match wanted {
        fits if cols.is_multiple_of(fits.block_size()) => fits,
        T::Q2K | T::Q3K => T::Q4_0,
        T::Q4K => T::Q5_0,
        T::Q5K => T::Q5_1,
        T::Q6K => T::Q8_0,
        other => other,
    };
    if cols.is_multiple_of(chosen.block_size()) { chosen } else { T::F16 }
}
