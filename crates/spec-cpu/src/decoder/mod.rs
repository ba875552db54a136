//! The decoder: rows of tokens in, rows of logits out, driven by configuration.
//!
//! A row's numbers pass through nothing that looks at another row, except attention, which looks at the cache.

mod rope;
mod weights;

use spec_model::ModelConfig;
use spec_runtime::Row;
use spec_runtime::kv::Place;

use crate::attention::AttentionPlan;
use crate::kv_cache::KvCache;
use crate::shortlist::Shortlist;
use crate::{ActivationForm, CpuError, Isa, PackedMatrix, Pool, Product, QuantizedRows, SharedSlice, matmul};
use rope::Rope;
pub(crate) use weights::{DecoderWeights, LayerWeights};

/// Multiply-adds below which turning queries and keys is not worth a region.
const ROTATE_INLINE: usize = 8192;

/// The decoder's weights and sizes.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) config: ModelConfig,
    pub(crate) weights: DecoderWeights,
    pub(crate) isa: Isa,
}

/// Memory that passes reuse.
#[derive(Debug)]
pub(crate) struct Workspace {
    rope: Rope,
    pub(crate) plan: AttentionPlan,
    hidden: Vec<f32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    scored: Vec<f32>,
    listed: Vec<f32>,
    normed: Activations,
    attended_codes: Activations,
    inner_codes: Activations,
}

impl Workspace {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        Self {
            rope: Rope::new(config.rope.as_ref().expect("every architecture read so far has rotary positions")),
            plan: AttentionPlan::default(),
            hidden: Vec::new(),
            queries: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            attended: Vec::new(),
            gate: Vec::new(),
            up: Vec::new(),
            scored: Vec::new(),
            listed: Vec::new(),
            normed: Activations::default(),
            attended_codes: Activations::default(),
            inner_codes: Activations::default(),
        }
    }
}

/// Input rows of matrices, in every form that the matrices at hand read.
#[derive(Debug, Default)]
struct Activations(Vec<QuantizedRows>);

impl Activations {
    /// Has `fill` replace the rows in each form that one of `matrices` reads.
    fn fill(
        &mut self,
        matrices: &[&PackedMatrix],
        mut fill: impl FnMut(&mut QuantizedRows) -> Result<(), CpuError>,
    ) -> Result<(), CpuError> {
        for (index, matrix) in matrices.iter().enumerate() {
            let form = matrix.activation_form();
            if matrices[..index].iter().any(|earlier| earlier.activation_form() == form) {
                continue;
            }
            if self.0.iter().all(|rows| rows.form() != form) {
                self.0.push(QuantizedRows::new(form, matrix.inputs())?);
            }
            fill(self.rows_mut(form))?;
        }
        Ok(())
    }

    fn rows_mut(&mut self, form: ActivationForm) -> &mut QuantizedRows {
        self.0.iter_mut().find(|rows| rows.form() == form).expect("`fill` has just made the form")
    }

    fn of(&self, matrix: &PackedMatrix) -> &QuantizedRows {
        let form = matrix.activation_form();
        self.0.iter().find(|rows| rows.form() == form).expect("`fill` was called with this matrix")
    }
}

/// The first `len` numbers of a buffer that only grows.
fn part(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

impl Decoder {
    /// Runs `rows`, which lie at `places` and are described by the workspace's plan, and writes the logits of those
    /// that `scored` names, in its order, to `logits`; with a shortlist, those of its tokens alone.
    pub(crate) fn forward(
        &self,
        pool: &Pool,
        cache: &mut dyn KvCache,
        workspace: &mut Workspace,
        (rows, places): (&[Row], &[Place]),
        (scored, shortlist): (&[usize], Option<&Shortlist>),
        logits: &mut [f32],
    ) -> Result<(), CpuError> {
        let (config, isa, count) = (&self.config, self.isa, rows.len());
        let width = config.hidden_size;
        let (query_width, key_width) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let epsilon = config.norm_epsilon;

        let Workspace { rope, plan, normed, attended_codes, inner_codes, .. } = workspace;
        rope.grow(rows.iter().map(|row| row.position + 1).max().unwrap_or(0));
        let hidden = part(&mut workspace.hidden, count * width);
        let queries = part(&mut workspace.queries, count * query_width);
        let keys = part(&mut workspace.keys, count * key_width);
        let values = part(&mut workspace.values, count * key_width);
        let attended = part(&mut workspace.attended, count * query_width);
        let gate = part(&mut workspace.gate, count * config.intermediate_size);
        let up = part(&mut workspace.up, count * config.intermediate_size);

        for (row, hidden) in rows.iter().zip(hidden.chunks_exact_mut(width)) {
            self.weights.embedding.dequantize_row(row.token as usize, hidden)?;
        }
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let LayerWeights { q, k, v, attn_output, gate: gate_weights, up: up_weights, down, .. } = layer;
            normed
                .fill(&[q, k, v], |into| into.quantize_rms_norm(isa, pool, count, hidden, &layer.attn_norm, epsilon))?;
            let products = &mut [
                Product::new(q, normed.of(q), queries).bias(layer.q_bias.as_deref()),
                Product::new(k, normed.of(k), keys).bias(layer.k_bias.as_deref()),
                Product::new(v, normed.of(v), values).bias(layer.v_bias.as_deref()),
            ];
            matmul(isa, pool, products)?;
            self.rotate(pool, rope, rows, queries, keys);
            cache.store(pool, index, places, keys, values);
            cache.attend(pool, index, plan, queries, attended);
            attended_codes.fill(&[attn_output], |into| into.quantize(isa, pool, count, attended))?;
            let product = Product::new(attn_output, attended_codes.of(attn_output), hidden);
            matmul(isa, pool, &mut [product.accumulate()])?;

            normed.fill(&[gate_weights, up_weights], |into| {
                into.quantize_rms_norm(isa, pool, count, hidden, &layer.ffn_norm, epsilon)
            })?;
            let products = &mut [
                Product::new(gate_weights, normed.of(gate_weights), gate),
                Product::new(up_weights, normed.of(up_weights), up),
            ];
            matmul(isa, pool, products)?;
            inner_codes.fill(&[down], |into| into.quantize_silu_mul(isa, pool, count, gate, up))?;
            matmul(isa, pool, &mut [Product::new(down, inner_codes.of(down), hidden).accumulate()])?;
        }
        if scored.is_empty() {
            return Ok(());
        }

        let head = self.weights.head();
        let last = part(&mut workspace.scored, scored.len() * width);
        for (&row, last) in scored.iter().zip(last.chunks_exact_mut(width)) {
            last.copy_from_slice(&hidden[row * width..(row + 1) * width]);
        }
        normed.fill(&[head], |into| {
            into.quantize_rms_norm(isa, pool, scored.len(), last, &self.weights.output_norm, epsilon)
        })?;
        let Some(shortlist) = shortlist else {
            return matmul(isa, pool, &mut [Product::new(head, normed.of(head), logits)]);
        };
        let matrix = shortlist.matrix();
        let listed = part(&mut workspace.listed, scored.len() * matrix.outputs());
        matmul(isa, pool, &mut [Product::new(matrix, normed.of(matrix), listed)])?;
        shortlist.spread(listed, logits, config.vocab_size);
        Ok(())
    }

    /// Turns the queries and keys of all rows to their positions.
    fn rotate(&self, pool: &Pool, rope: &Rope, rows: &[Row], queries: &mut [f32], keys: &mut [f32]) {
        let head_dim = self.config.head_dim;
        let (query_width, key_width) = (queries.len() / rows.len(), keys.len() / rows.len());
        let tasks = if queries.len() <= ROTATE_INLINE { 1 } else { rows.len().min(4 * pool.threads()) };
        let chunk = rows.len().div_ceil(tasks);
        let (queries, keys) = (SharedSlice::new(queries), SharedSlice::new(keys));
        pool.run(tasks, |task| {
            for (row, given) in rows.iter().enumerate().skip(task * chunk).take(chunk) {
                // SAFETY: each row belongs to one task.
                let (query, key) = unsafe {
                    (
                        queries.slice(row * query_width..(row + 1) * query_width),
                        keys.slice(row * key_width..(row + 1) * key_width),
                    )
                };
                rope.rotate(self.isa, given.position, head_dim, query);
                rope.rotate(self.isa, given.position, head_dim, key);
            }
        });
    }
}
