//! What a model will take in memory, told before it is loaded.

use spec_model::{Checkpoint, ModelConfig, Outline, TensorOutline};
use spec_runtime::ModelDrafter;

use crate::kv::{BLOCK_TOKENS, KvShape};
use crate::load::Quantizing;
use crate::model::cache_tokens;
use crate::packed::{LANES, PART};
use crate::{ActivationForm, CpuError, LoadOptions, PackedMatrix, WeightType};

/// Rows of logits that are counted for a sequence: a draft of usual length, and what sampling makes of a row.
const LOGIT_ROWS: usize = 16;
/// Positions of a text for each that brings a panel of the head to the shortlist, beyond those that are there from the start.
const POSITIONS_PER_PANEL: usize = 8;
/// Positions of a text for each that reads a page of an embedding that was not read before, where the embedding stays in its file.
const POSITIONS_PER_PAGE: usize = 4;
const PAGE: usize = 4096;

/// Bytes that [`CpuModel::load`](crate::CpuModel::load) and passes take, with the same options.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    /// Weights as they lie in memory.
    pub weights: usize,
    /// The most while loading: the matrices packed by then, and the file's pages of the part that is read.
    pub loading: usize,
    /// The part of the head that a shortlist ([`Model::shortlist`](spec_runtime::Model::shortlist)) copies, once a text that fills
    /// the context has been read: an estimate.
    pub shortlist: usize,
    /// Pages of the file that stay in use: those of an embedding that is not packed, an estimate.
    pub file_pages: usize,
    /// Keys and values when the cache is full.
    pub kv: usize,
    /// The part of `kv` that one token takes.
    pub kv_per_token: usize,
    /// Activations of a pass of `max_rows` rows, no more than the cache has tokens, and what every position turns queries by.
    pub activations: usize,
    /// The logits of a row.
    pub logits_row: usize,
    /// `activations`, and sixteen rows of logits for each of the sequences expected at a time (no more than a pass has rows).
    pub scratch: usize,
}

impl MemoryPlan {
    /// The plan for loading `checkpoint`; no tensor is read.
    ///
    /// # Errors
    /// [`CpuError::Unsupported`] for a tensor type that no kernel takes.
    pub fn of(checkpoint: &Checkpoint, options: &LoadOptions<'_>) -> Result<Self, CpuError> {
        Self::of_outline(&checkpoint.outline(), options)
    }

    /// The same from the sizes alone.
    ///
    /// # Errors
    /// As [`MemoryPlan::of`].
    pub fn of_outline(outline: &Outline, options: &LoadOptions<'_>) -> Result<Self, CpuError> {
        let (config, weights) = (&outline.config, &outline.weights);
        let (mut packed, mut loading) = (0, 0);
        let mut quantizing = Quantizing::new(options.quant, options.requantize);
        let mut stored_as = |tensor: &TensorOutline| -> Result<WeightType, CpuError> {
            let ty = WeightType::of(tensor.tensor_type).ok_or_else(|| CpuError::Unsupported {
                what: format!("tensor {} of type {}", tensor.name, tensor.tensor_type),
                instead: "convert the model to a type that the documentation of WeightType lists",
            })?;
            let chosen = quantizing.choose(ty, tensor.cols);
            Ok(chosen.and_then(|quantizer| WeightType::of(quantizer.tensor_type())).unwrap_or(ty))
        };
        let head = weights.output.as_ref().unwrap_or(&weights.embedding);
        let listed = Panels::of(stored_as(head)?, head);
        for tensor in weights.matrices() {
            let stays_in_its_file = std::ptr::eq(tensor, head) || std::ptr::eq(tensor, &weights.embedding);
            if options.trimmed_head && stays_in_its_file {
                continue;
            }
            packed += PackedMatrix::bytes_of(stored_as(tensor)?, tensor.rows, tensor.cols);
            loading = loading.max(packed + tensor.stored_bytes().min(PART));
        }
        let floats: usize = weights.vectors().map(TensorOutline::elements).sum();
        let vectors = floats * size_of::<f32>();

        let context = options.context.unwrap_or(config.context_length).min(config.context_length);
        let tokens = cache_tokens(options, config.context_length).next_multiple_of(BLOCK_TOKENS);
        let shape = KvShape {
            layers: config.layers,
            blocks: tokens / BLOCK_TOKENS,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        };
        let kv_per_token = shape.token_rows() * options.kv.head_bytes(config.head_dim);
        let rows = options.max_rows.min(tokens);
        let mut forms = Forms::default();
        for layer in &weights.layers {
            for linear in [&layer.q, &layer.k, &layer.v].into_iter().chain(&layer.gate).chain([&layer.up]) {
                forms.add(0, stored_as(&linear.weight)?);
            }
            forms.add(1, stored_as(&layer.attn_output.weight)?);
            forms.add(2, stored_as(&layer.down.weight)?);
        }
        let mut plan = Self {
            weights: packed + vectors,
            loading: loading + vectors,
            shortlist: listed.bytes(config.vocab_size / ModelDrafter::SHORTLIST_SHARE, context),
            file_pages: 0,
            kv: tokens.saturating_mul(kv_per_token),
            kv_per_token,
            activations: rows * (row_floats(config) * size_of::<f32>() + forms.row_bytes(config))
                + turns(config, context),
            logits_row: config.vocab_size * size_of::<f32>(),
            scratch: 0,
        };
        if options.trimmed_head {
            plan.file_pages = (context / POSITIONS_PER_PAGE * PAGE).min(weights.embedding.stored_bytes());
        }
        plan.scratch =
            plan.scratch_for(LOGIT_ROWS.max(LOGIT_ROWS.saturating_mul(options.parallel).min(options.max_rows)));
        Ok(plan)
    }

    /// Activations, and so many rows of logits.
    #[must_use]
    pub fn scratch_for(&self, rows: usize) -> usize {
        self.activations.saturating_add(rows.saturating_mul(self.logits_row))
    }

    /// The most that is taken at any time, without a shortlist.
    #[must_use]
    pub fn peak(&self) -> usize {
        let settled = self.weights.saturating_add(self.kv).saturating_add(self.scratch).saturating_add(self.file_pages);
        self.loading.max(settled)
    }
}

/// The panels of a head.
#[derive(Clone, Copy, Debug)]
struct Panels {
    count: usize,
    bytes: usize,
}

impl Panels {
    fn of(ty: WeightType, head: &TensorOutline) -> Self {
        Self { count: head.rows.div_ceil(LANES), bytes: PackedMatrix::bytes_of(ty, LANES, head.cols) }
    }

    /// Of a list that begins with `tokens` neighbouring ones and then follows a text of `positions`.
    fn bytes(self, tokens: usize, positions: usize) -> usize {
        (tokens.div_ceil(LANES) + positions / POSITIONS_PER_PANEL).min(self.count) * self.bytes
    }
}

/// The numbers of a row while it passes through a layer.
fn row_floats(config: &ModelConfig) -> usize {
    let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let joining = if config.architecture.post_norms { config.hidden_size } else { 0 };
    let inner = if config.architecture.gated { 2 } else { 1 } * config.intermediate_size;
    // The residual stream and what joins it, queries and what they found, keys and values, gate and up.
    config.hidden_size + joining + 2 * queries + 2 * keys + inner
}

/// Cosines and sines of every position.
fn turns(config: &ModelConfig, positions: usize) -> usize {
    let of_windows = config.sliding_window.as_ref().and_then(|window| window.rope.as_ref());
    let pairs: usize = config.rope.iter().chain(of_windows).map(|rope| rope.dims / 2).sum();
    2 * pairs * positions * size_of::<f32>()
}

/// The forms that inputs of matrices are brought to: of the residual stream, of attention's output, of the inner layer.
#[derive(Default, Debug)]
struct Forms([Vec<ActivationForm>; 3]);

impl Forms {
    fn add(&mut self, place: usize, ty: WeightType) {
        let form = ty.activation_form();
        if !self.0[place].contains(&form) {
            self.0[place].push(form);
        }
    }

    fn row_bytes(&self, config: &ModelConfig) -> usize {
        let widths = [config.hidden_size, config.heads * config.head_dim, config.intermediate_size];
        let places = self.0.iter().zip(widths);
        places.map(|(forms, width)| forms.iter().map(|form| form.row_bytes(width)).sum::<usize>()).sum()
    }
}
