//! How a model is loaded.

use crate::HalfType;

/// Rows of one sequence that one call of attention verifies, unless asked otherwise: what MindIE and vLLM's Ascend
/// backend keep to.
pub(crate) const MAX_QUERY_ROWS: usize = 16;
/// Rows of a pass, unless asked otherwise.
const MAX_ROWS: usize = 128;

/// Choices for [`AscendModel::load`](crate::AscendModel::load).
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// Type of weights, activations and cache; `None` is f16, or bf16 for models whose activations leave the range of f16
    /// (gemma3), where the chip has it.
    pub dtype: Option<HalfType>,
    /// Matrices of the layers as int8, a scale for each output, and activations quantised row by row (W8A8). A2 and A3.
    pub int8: bool,
    /// Positions a sequence can have; `None` is what the model was trained for.
    pub context: Option<usize>,
    /// Tokens that a block of the KV cache holds: a multiple of 16, 128 at most. `None` is the largest that the heads allow.
    pub block_tokens: Option<usize>,
    /// Blocks of the KV cache, for all sequences; `None` is one sequence of `context` positions with its draft rows, and a
    /// short one beside it.
    pub kv_blocks: Option<usize>,
    /// Rows that a pass may carry, of all sequences; 1024 at most.
    pub max_rows: usize,
    /// Rows that one sequence may have in one entry of an attention; more are several entries. 128 at most.
    pub max_query_rows: usize,
    /// Called with the bytes of weights brought to the device so far, and of all weights, as the file stores them.
    pub progress: Option<&'a mut dyn FnMut(usize, usize)>,
}

impl Default for LoadOptions<'_> {
    /// The model's context for one sequence, passes of 128 rows.
    fn default() -> Self {
        Self {
            dtype: None,
            int8: false,
            context: None,
            block_tokens: None,
            kv_blocks: None,
            max_rows: MAX_ROWS,
            max_query_rows: MAX_QUERY_ROWS,
            progress: None,
        }
    }
}

impl std::fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadOptions")
            .field("dtype", &self.dtype)
            .field("int8", &self.int8)
            .field("context", &self.context)
            .field("block_tokens", &self.block_tokens)
            .field("kv_blocks", &self.kv_blocks)
            .field("max_rows", &self.max_rows)
            .field("max_query_rows", &self.max_query_rows)
            .finish_non_exhaustive()
    }
}
