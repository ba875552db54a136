//! What a model will take in memory, told before it is loaded.

use spec_model::{Checkpoint, LayerWeights, TensorView};

use crate::kv::{BLOCK_TOKENS, KvShape};
use crate::load::Fallbacks;
use crate::model::cache_tokens;
use crate::{CpuError, LoadOptions, PackedMatrix, WeightType};

/// Rows of logits that are counted: a draft of usual length, and what sampling makes of a row.
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
    /// Activations of a pass of `max_rows` rows (no more than the cache has tokens), and sixteen rows of logits: an upper bound.
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
        let logits = LOGIT_ROWS * config.vocab_size * size_of::<f32>();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spec_model::{Quantizer, TensorType};
    use spec_testing::tiny::{self, TinySpec, TinyTypes};

    use super::*;
    use crate::{CpuModel, KvType, Pool};

    #[test]
    fn the_plan_is_what_loading_takes() {
        let pool = Arc::new(Pool::new(1).expect("a thread"));
        for types in [TensorType::F16, TensorType::Q4_1, TensorType::Q8_0] {
            for quant in [None, Some(Quantizer::Q4_0), Some(Quantizer::Q4K)] {
                let spec = TinySpec { types: TinyTypes::all(types), ..TinySpec::llama() };
                let checkpoint = Checkpoint::from_bytes(tiny::gguf(spec), "tiny").expect("a legal file");
                let mut options = LoadOptions::new(Arc::clone(&pool));
                (options.quant, options.context, options.kv) = (quant, Some(100), KvType::Q8);
                let plan = MemoryPlan::of(&checkpoint, &options).expect("kernels take it");
                let model = CpuModel::load(&checkpoint, options).expect("it loads");
                let what = format!("{types}, quantised to {quant:?}");
                assert_eq!(plan.weights, model.weight_bytes(), "{what}");
                assert_eq!(plan.kv, model.total_blocks() * BLOCK_TOKENS * model.kv_bytes_per_token(), "{what}");
                assert!(plan.loading > plan.weights && plan.peak() >= plan.loading, "{what}: {plan:?}");
            }
        }
    }

    #[test]
    fn context_and_type_of_the_cache_are_in_the_plan() {
        let pool = Arc::new(Pool::new(1).expect("a thread"));
        let checkpoint = Checkpoint::from_bytes(tiny::gguf(TinySpec::llama()), "tiny").expect("a legal file");
        let kv = |context, kv| {
            let mut options = LoadOptions::new(Arc::clone(&pool));
            (options.context, options.kv) = (Some(context), kv);
            MemoryPlan::of(&checkpoint, &options).expect("kernels take it")
        };
        let (short, long) = (kv(64, KvType::F16), kv(192, KvType::F16));
        assert_eq!(long.kv - short.kv, 128 * short.kv_per_token);
        assert_eq!(kv(64, KvType::F32).kv, 2 * short.kv);
        assert!(kv(64, KvType::Q8).kv < short.kv);
    }
}
