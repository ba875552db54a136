//! What a model will take in memory, told before it is loaded.

use spec_model::{Checkpoint, LayerWeights, TensorView};

use crate::kv::{BLOCK_TOKENS, KvShape};
use crate::load::Fallbacks;
use crate::model::cache_tokens;
use crate::{CpuError, LoadOptions, PackedMatrix, WeightType};

/// Rows of logits that are counted for a sequence: a draft of usual length, and what sampling makes of a row.
const LOGIT_ROWS: usize = 16;

/// Bytes that [`CpuModel::load`](crate::CpuModel::load) and passes take, with the same options.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    /// Weights as they lie in memory.
    pub weights: usize,
    /// The most while loading: the matrices packed by then, and the file's pages of the one that is read.
    pub loading: usize,
    /// Keys and values when the cache is full.
    pub kv: usize,
    /// The part of `kv` that one token takes.
    pub kv_per_token: usize,
    /// Activations of a pass of `max_rows` rows (no more than the cache has tokens), and sixteen rows of logits for each of
    /// the sequences expected at a time (no more than a pass has rows): an upper bound.
    pub scratch: usize,
}

impl MemoryPlan {
    /// The plan for loading `checkpoint`; no tensor is read.
    ///
    /// # Errors
    /// [`CpuError::Unsupported`] for a tensor type that no kernel takes.
    pub fn of(checkpoint: &Checkpoint, options: &LoadOptions<'_>) -> Result<Self, CpuError> {
        let (config, weights) = (checkpoint.config(), checkpoint.weights());
        let (mut packed, mut loading, mut fallbacks) = (0, 0, Fallbacks::default());
        let mut pack = |tensor: &TensorView<'_>| -> Result<(), CpuError> {
            let ty = WeightType::of(tensor.tensor_type).ok_or_else(|| CpuError::Unsupported {
                what: format!("tensor {} of type {}", tensor.name, tensor.tensor_type),
                instead: "convert the model to a type that the documentation of WeightType lists",
            })?;
            let stored = fallbacks.choose(options.quant, ty, tensor.cols);
            let stored = stored.and_then(|quantizer| WeightType::of(quantizer.tensor_type())).unwrap_or(ty);
            packed += PackedMatrix::bytes_of(stored, tensor.rows, tensor.cols);
            loading = loading.max(packed + tensor.stored_bytes());
            Ok(())
        };
        // The order of loading.
        for layer in &weights.layers {
            let LayerWeights { q, k, v, attn_output, gate, up, down, .. } = layer;
            for linear in [q, k, v, attn_output].into_iter().chain(gate).chain([up, down]) {
                pack(&linear.weight)?;
            }
        }
        for matrix in weights.output.iter().chain([&weights.embedding]) {
            pack(matrix)?;
        }
        let vector = |tensor: &TensorView<'_>| if tensor.rows == 1 { tensor.cols } else { 0 };
        let positions = weights.positions.as_ref().map_or(0, |positions| positions.rows * positions.cols);
        let floats = checkpoint.tensors().map(|tensor| vector(&tensor)).sum::<usize>() + positions;
        let vectors = floats * size_of::<f32>();

        let tokens = cache_tokens(options, config.context_length).next_multiple_of(BLOCK_TOKENS);
        let shape = KvShape {
            layers: config.layers,
            blocks: tokens / BLOCK_TOKENS,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        };
        let kv_per_token = shape.token_rows() * options.kv.head_bytes(config.head_dim);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        // The residual stream and what joins it, queries and what they found, keys and values, gate and up.
        let floats = 2 * (config.hidden_size + queries + keys + config.intermediate_size);
        // The inputs of matrices in two forms, a byte a number and scales and sums beside.
        let codes = 3 * (config.hidden_size + queries + config.intermediate_size);
        let rows = options.max_rows.min(tokens);
        let scored = LOGIT_ROWS.max(LOGIT_ROWS.saturating_mul(options.parallel).min(options.max_rows));
        let logits = scored * config.vocab_size * size_of::<f32>();
        Ok(Self {
            weights: packed + vectors,
            loading: loading + vectors,
            kv: tokens.saturating_mul(kv_per_token),
            kv_per_token,
            scratch: rows * (floats * size_of::<f32>() + codes) + logits,
        })
    }

    /// The most that is taken at any time.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.loading.max(self.weights.saturating_add(self.kv).saturating_add(self.scratch))
    }
}
