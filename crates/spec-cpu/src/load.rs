//! How a model is loaded.

use std::sync::Arc;

use crate::{Isa, KvType, Pool};

/// Rows of a pass unless asked otherwise.
const MAX_ROWS: usize = 512;

/// Choices for [`CpuModel::load`](crate::CpuModel::load).
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// The threads that passes run on. Models may share a pool; a pass that finds it busy runs on its own thread.
    pub pool: Arc<Pool>,
    /// How keys and values are stored.
    pub kv: KvType,
    /// Positions a sequence can have; `None` is what the model was trained for.
    pub context: Option<usize>,
    /// Tokens that the cache holds, of all sequences and their draft rows; `None` is the context and some slack. Memory is
    /// taken as tokens come.
    pub kv_tokens: Option<usize>,
    /// Rows that a pass may carry.
    pub max_rows: usize,
    /// The kernels; `None` is [`Isa::from_environment`].
    pub isa: Option<Isa>,
    /// Called with the bytes of weights packed so far, and of all weights.
    pub progress: Option<&'a mut dyn FnMut(usize, usize)>,
}

impl LoadOptions<'_> {
    /// The defaults: f16 cache, the model's context, passes of 512 rows.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool, kv: KvType::F16, context: None, kv_tokens: None, max_rows: MAX_ROWS, isa: None, progress: None }
    }
}

impl std::fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadOptions")
            .field("pool", &self.pool)
            .field("kv", &self.kv)
            .field("context", &self.context)
            .field("kv_tokens", &self.kv_tokens)
            .field("max_rows", &self.max_rows)
            .field("isa", &self.isa)
            .finish_non_exhaustive()
    }
}
