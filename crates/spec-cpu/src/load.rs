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
    /// Whether matrices that are quantised already are quantised anew too, where `quant` takes fewer bits than their file. Numbers
    /// are rounded twice then: for draft models, which may err.
    pub requantize: bool,
    /// Packs of the head only what [`Model::shortlist`](spec_runtime::Model::shortlist) lists, and reads embeddings from the checkpoint's
    /// file, which stays open. Tokens that are not listed have logits of `-inf` whatever is asked for, and nothing can be scored before
    /// any is listed: for draft models, which take much less memory then.
    pub trimmed_head: bool,
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
            requantize: false,
            trimmed_head: false,
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
            .field("requantize", &self.requantize)
            .field("trimmed_head", &self.trimmed_head)
            .finish_non_exhaustive()
    }
}

/// What matrices are quantised to while they are loaded.
#[derive(Debug)]
pub(crate) struct Quantizing {
    asked: Option<Quantizer>,
    requantize: bool,
    /// Matrices that are not stored as asked for: inputs, the block that does not divide them, what they are stored as.
    fallbacks: BTreeMap<(usize, usize, &'static str), usize>,
}

impl Quantizing {
    pub(crate) fn new(asked: Option<Quantizer>, requantize: bool) -> Self {
        Self { asked, requantize, fallbacks: BTreeMap::new() }
    }

    /// What a matrix of `ty` with rows of `inputs` is quantised to; `None` keeps it as it is.
    pub(crate) fn choose(&mut self, ty: WeightType, inputs: usize) -> Option<Quantizer> {
        let narrower = |chosen: &Quantizer| chosen.is_narrower_than(ty.tensor_type());
        let asked = self.asked.filter(|asked| ty.block() == 1 || self.requantize && narrower(asked))?;
        let chosen = asked.for_row(inputs).filter(narrower);
        if chosen != Some(asked) {
            let stored = chosen.map_or(ty.tensor_type(), Quantizer::tensor_type);
            *self.fallbacks.entry((inputs, asked.tensor_type().block_size(), stored.name())).or_default() += 1;
        }
        chosen
    }

    /// A sentence for each kind.
    pub(crate) fn notes(&self) -> Vec<String> {
        let note = |(&(inputs, block, stored), count): (&(usize, usize, &str), &usize)| {
            let matrices = if *count == 1 { "1 matrix".to_owned() } else { format!("{count} matrices") };
            format!("{matrices} of {inputs} inputs, which is no multiple of {block}, stored as {stored}")
        };
        self.fallbacks.iter().map(note).collect()
    }
}
