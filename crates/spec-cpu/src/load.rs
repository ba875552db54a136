//! How a model is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use spec_model::Quantizer;

use crate::{Isa, KvType, Pool, WeightType};

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
    /// Tokens that the cache holds, of all sequences and their draft rows; `None` is the context and some slack for each of `parallel`
    /// sequences. Memory is taken as tokens come.
    pub kv_tokens: Option<usize>,
    /// Sequences that are expected at a time.
    pub parallel: usize,
    /// Rows that a pass may carry.
    pub max_rows: usize,
    /// The kernels; `None` is [`Isa::from_environment`].
    pub isa: Option<Isa>,
    /// What matrices of floats (F32, F16, BF16) are quantised to; `None` keeps them as they are. Rows that are no whole number of
    /// its blocks are quantised as [`Quantizer::for_row`] says, which [`CpuModel::notes`](crate::CpuModel::notes) then mentions. Vectors, such as
    /// norms and biases, stay f32.
    pub quant: Option<Quantizer>,
    /// Called with the bytes of weights packed so far, and of all weights.
    pub progress: Option<&'a mut dyn FnMut(usize, usize)>,
}

impl LoadOptions<'_> {
    /// The defaults: f16 cache, the model's context, passes of 512 rows, weights as they are.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            kv: KvType::F16,
            context: None,
            kv_tokens: None,
            parallel: 1,
            max_rows: MAX_ROWS,
            isa: None,
            quant: None,
            progress: None,
        }
    }
}

impl std::fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadOptions")
            .field("pool", &self.pool)
            .field("kv", &self.kv)
            .field("context", &self.context)
            .field("kv_tokens", &self.kv_tokens)
            .field("parallel", &self.parallel)
            .field("max_rows", &self.max_rows)
            .field("isa", &self.isa)
            .field("quant", &self.quant)
            .finish_non_exhaustive()
    }
}

/// Matrices that were not stored as asked for.
#[derive(Debug, Default)]
pub(crate) struct Fallbacks(BTreeMap<(usize, usize, &'static str), usize>);

impl Fallbacks {
    /// What a matrix of `ty` with rows of `inputs` is quantised to when `quant` is asked for.
    pub(crate) fn choose(&mut self, quant: Option<Quantizer>, ty: WeightType, inputs: usize) -> Option<Quantizer> {
        let quant = quant.filter(|_| matches!(ty, WeightType::F32 | WeightType::F16 | WeightType::BF16))?;
        let chosen = quant.for_row(inputs);
        if chosen != Some(quant) {
            let stored = chosen.map_or(ty.tensor_type(), Quantizer::tensor_type);
            *self.0.entry((inputs, quant.tensor_type().block_size(), stored.name())).or_default() += 1;
        }
        chosen
    }

    /// A sentence for each kind.
    pub(crate) fn notes(&self) -> Vec<String> {
        let note = |(&(inputs, block, stored), count): (&(usize, usize, &str), &usize)| {
            let matrices = if *count == 1 { "1 matrix".to_owned() } else { format!("{count} matrices") };
            format!("{matrices} of {inputs} inputs, which is no multiple of {block}, stored as {stored}")
        };
        self.0.iter().map(note).collect()
    }
}
