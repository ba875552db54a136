//! The decoder: rows of tokens in, rows of logits out, driven by configuration.
//!
//! A row's numbers pass through nothing that looks at another row, except attention, which looks at the cache.

mod rope;
mod weights;

use spec_model::{Activation, Checkpoint, ModelConfig};
use spec_runtime::Row;
use spec_runtime::kv::Place;

use crate::attention::AttentionPlan;
use crate::kv_cache::KvCache;
use crate::load::Quantizing;
use crate::shortlist::{Head, Shortlist};
use crate::vector::{self, Nonlinearity};
use crate::{ActivationForm, CpuError, Isa, PackedMatrix, Pool, Product, QuantizedRows, SharedSlice, matmul};
use rope::Rope;
pub(crate) use weights::DecoderWeights;
use weights::{LayerWeights, NormWeights, Projection};

/// Numbers that are turned, normed or capped in less time than a region takes.
const INLINE_NUMBERS: usize = 8192;
/// Logits that a task caps.
const CAPPED_AT_ONCE: usize = 4096;

/// The decoder's weights and sizes.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) config: ModelConfig,
    pub(crate) weights: DecoderWeights,
    pub(crate) isa: Isa,
    function: Nonlinearity,
}

/// Memory that passes reuse.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) plan: AttentionPlan,
    rope: Option<Rope>,
    /// Of layers with a sliding window, where it is another.
    window_rope: Option<Rope>,
    hidden: Vec<f32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    /// What is normed before it joins `hidden`.
    joining: Vec<f32>,
    scored: Vec<f32>,
    listed: Vec<f32>,
    normed: Activations,
    attended_codes: Activations,
    inner_codes: Activations,
}

impl Workspace {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        let window_rope = config.sliding_window.as_ref().and_then(|window| window.rope.as_ref());
        Self {
            plan: AttentionPlan::default(),
            rope: config.rope.as_ref().map(Rope::new),
            window_rope: window_rope.map(Rope::new),
            hidden: Vec::new(),
            queries: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            attended: Vec::new(),
            gate: Vec::new(),
            up: Vec::new(),
            joining: Vec::new(),
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
    fn fill<'a>(
        &mut self,
        matrices: impl Iterator<Item = &'a PackedMatrix> + Clone,
        mut fill: impl FnMut(&mut QuantizedRows) -> Result<(), CpuError>,
    ) -> Result<(), CpuError> {
        for (index, matrix) in matrices.clone().enumerate() {
            let form = matrix.activation_form();
            if matrices.clone().take(index).any(|earlier| earlier.activation_form() == form) {
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

/// Calls `work` with every index below `count`, on several threads where that many `numbers` are worth a region.
fn for_each(pool: &Pool, count: usize, numbers: usize, work: impl Fn(usize) + Sync) {
    let tasks = if numbers <= INLINE_NUMBERS { 1 } else { count.min(4 * pool.threads()) };
    let chunk = count.div_ceil(tasks);
    pool.run(tasks, |task| (task * chunk..count.min((task + 1) * chunk)).for_each(&work));
}

impl Decoder {
    /// Packs the weights of `checkpoint`, matrices quantised as `quantizing` says; `progress` hears of the bytes done and of
    /// all bytes.
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        isa: Isa,
        pool: &Pool,
        (quantizing, trimmed_head): (Quantizing, bool),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CpuError> {
        let config = checkpoint.config().clone();
        let function = match config.activation {
            Activation::Silu => Nonlinearity::Silu,
            Activation::GeluTanh => Nonlinearity::GeluTanh,
            other => return Err(weights::unknown(format!("the activation {other:?}"))),
        };
        Ok(Self {
            weights: DecoderWeights::load(checkpoint, pool, quantizing, trimmed_head, progress)?,
            config,
            isa,
            function,
        })
    }

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
        let positions = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        for rope in workspace.rope.iter_mut().chain(&mut workspace.window_rope) {
            rope.grow(positions);
        }
        self.embed(rows, workspace)?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.attend(pool, cache, workspace, (rows, places), (index, layer))?;
            self.feed_forward(pool, workspace, rows.len(), layer)?;
        }
        if scored.is_empty() {
            return Ok(());
        }
        self.score(pool, workspace, (scored, shortlist), logits)
    }

    /// Starts the residual stream of each row.
    fn embed(&self, rows: &[Row], workspace: &mut Workspace) -> Result<(), CpuError> {
        let (width, scale) = (self.config.hidden_size, self.config.embedding_scale);
        let hidden = part(&mut workspace.hidden, rows.len() * width);
        for (row, hidden) in rows.iter().zip(hidden.chunks_exact_mut(width)) {
            self.weights.embedding.row(row.token as usize, hidden)?;
            if scale != 1.0 {
                vector::scale(self.isa, hidden, scale);
            }
            if let Some(positions) = &self.weights.positions {
                vector::add(self.isa, hidden, &positions[row.position * width..(row.position + 1) * width]);
            }
        }
        Ok(())
    }

    /// Adds a layer's attention to the residual stream.
    fn attend(
        &self,
        pool: &Pool,
        cache: &mut dyn KvCache,
        workspace: &mut Workspace,
        (rows, places): (&[Row], &[Place]),
        (index, layer): (usize, &LayerWeights),
    ) -> Result<(), CpuError> {
        let (config, isa, count) = (&self.config, self.isa, rows.len());
        let (query_width, key_width) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let Workspace { plan, rope, window_rope, normed, attended_codes, joining, .. } = workspace;
        let hidden = part(&mut workspace.hidden, count * config.hidden_size);
        let queries = part(&mut workspace.queries, count * query_width);
        let keys = part(&mut workspace.keys, count * key_width);
        let values = part(&mut workspace.values, count * key_width);
        let attended = part(&mut workspace.attended, count * query_width);
        let window = config.sliding_window.as_ref().filter(|window| window.layers[index]).map(|window| window.size);
        let rope = window.and(window_rope.as_ref()).or(rope.as_ref());

        let LayerWeights { q, k, v, attn_output, .. } = layer;
        let norm = layer.attn_norm.with(config.norm_epsilon);
        let matrices = [&q.matrix, &k.matrix, &v.matrix];
        normed.fill(matrices.into_iter(), |into| into.quantize_norm(isa, pool, count, hidden, norm))?;
        matmul(isa, pool, &mut [q.of(normed, queries), k.of(normed, keys), v.of(normed, values)])?;
        self.place(pool, rope, layer, rows, (queries, keys));
        cache.store(pool, index, places, keys, values);
        cache.attend(pool, (index, window), plan, queries, attended);
        attended_codes.fill([&attn_output.matrix].into_iter(), |into| into.quantize(isa, pool, count, attended))?;
        self.join(pool, (attn_output, layer.post_attn_norm.as_ref()), attended_codes, joining, hidden)
    }

    /// Adds a layer's feed-forward block to the residual stream.
    fn feed_forward(
        &self,
        pool: &Pool,
        workspace: &mut Workspace,
        count: usize,
        layer: &LayerWeights,
    ) -> Result<(), CpuError> {
        let (config, isa, function) = (&self.config, self.isa, self.function);
        let Workspace { normed, inner_codes, joining, .. } = workspace;
        let hidden = part(&mut workspace.hidden, count * config.hidden_size);
        let up_values = part(&mut workspace.up, count * config.intermediate_size);

        let LayerWeights { gate, up, down, .. } = layer;
        let norm = layer.ffn_norm.with(config.norm_epsilon);
        let matrices = gate.iter().chain([up]).map(|projection| &projection.matrix);
        normed.fill(matrices, |into| into.quantize_norm(isa, pool, count, hidden, norm))?;
        let down_only = [&down.matrix].into_iter();
        match gate {
            Some(gate) => {
                let gate_values = part(&mut workspace.gate, count * config.intermediate_size);
                matmul(isa, pool, &mut [gate.of(normed, gate_values), up.of(normed, up_values)])?;
                inner_codes.fill(down_only, |into| {
                    into.quantize_gated(isa, pool, count, function, (gate_values, up_values))
                })?;
            }
            None => {
                matmul(isa, pool, &mut [up.of(normed, up_values)])?;
                inner_codes.fill(down_only, |into| into.quantize_activated(isa, pool, count, function, up_values))?;
            }
        }
        self.join(pool, (down, layer.post_ffn_norm.as_ref()), inner_codes, joining, hidden)
    }

    /// Projects `codes` and adds the result, normed where there is a norm, to the residual stream.
    fn join(
        &self,
        pool: &Pool,
        (projection, norm): (&Projection, Option<&NormWeights>),
        codes: &Activations,
        joining: &mut Vec<f32>,
        hidden: &mut [f32],
    ) -> Result<(), CpuError> {
        let Some(norm) = norm else {
            return matmul(self.isa, pool, &mut [projection.of(codes, hidden).accumulate()]);
        };
        let joining = part(joining, hidden.len());
        matmul(self.isa, pool, &mut [projection.of(codes, joining)])?;
        let (norm, width) = (norm.with(self.config.norm_epsilon), self.config.hidden_size);
        let (count, numbers) = (hidden.len() / width, hidden.len());
        let (joining, hidden) = (SharedSlice::new(joining), SharedSlice::new(hidden));
        for_each(pool, count, numbers, |row| {
            let range = row * width..(row + 1) * width;
            // SAFETY: each row belongs to one task.
            let (joining, hidden) = unsafe { (joining.slice(range.clone()), hidden.slice(range)) };
            vector::add_norm(self.isa, norm, joining, hidden);
        });
        Ok(())
    }

    /// Norms the heads of queries and keys, and turns them to the positions of their rows.
    fn place(
        &self,
        pool: &Pool,
        rope: Option<&Rope>,
        layer: &LayerWeights,
        rows: &[Row],
        (queries, keys): (&mut [f32], &mut [f32]),
    ) {
        let (head_dim, epsilon) = (self.config.head_dim, self.config.norm_epsilon);
        let norms = [&layer.q_norm, &layer.k_norm].map(|norm| norm.as_ref().map(|norm| norm.with(epsilon)));
        if rope.is_none() && norms.iter().all(Option::is_none) {
            return;
        }
        let numbers = queries.len();
        let widths = [queries.len() / rows.len(), keys.len() / rows.len()];
        let both = [SharedSlice::new(queries), SharedSlice::new(keys)];
        for_each(pool, rows.len(), numbers, |row| {
            for ((all, width), norm) in both.iter().zip(widths).zip(norms) {
                // SAFETY: each row belongs to one task.
                let values = unsafe { all.slice(row * width..(row + 1) * width) };
                if let Some(norm) = norm {
                    vector::norm(self.isa, norm, values);
                }
                if let Some(rope) = rope {
                    rope.rotate(self.isa, rows[row].position, head_dim, values);
                }
            }
        });
    }

    /// Makes logits of the rows that `scored` names.
    fn score(
        &self,
        pool: &Pool,
        workspace: &mut Workspace,
        (scored, shortlist): (&[usize], Option<&Shortlist>),
        logits: &mut [f32],
    ) -> Result<(), CpuError> {
        let (isa, width) = (self.isa, self.config.hidden_size);
        let normed = &mut workspace.normed;
        let matrix = match (shortlist, self.weights.head()) {
            (Some(shortlist), _) => shortlist.matrix(),
            (None, Head::Packed(head)) => head,
            (None, Head::Stored(_)) => {
                return Err(CpuError::Unsupported {
                    what: "scoring with a trimmed head that lists no token".into(),
                    instead: "call Model::shortlist first, or load the whole head",
                });
            }
        };
        let last = part(&mut workspace.scored, scored.len() * width);
        for (&row, last) in scored.iter().zip(last.chunks_exact_mut(width)) {
            last.copy_from_slice(&workspace.hidden[row * width..(row + 1) * width]);
        }
        let norm = self.weights.output_norm.with(self.config.norm_epsilon);
        normed.fill([matrix].into_iter(), |into| into.quantize_norm(isa, pool, scored.len(), last, norm))?;
        let Some(shortlist) = shortlist else {
            matmul(isa, pool, &mut [Product::new(matrix, normed.of(matrix), logits)])?;
            self.cap(pool, logits);
            return Ok(());
        };
        let listed = part(&mut workspace.listed, scored.len() * matrix.outputs());
        matmul(isa, pool, &mut [Product::new(matrix, normed.of(matrix), listed)])?;
        self.cap(pool, listed);
        shortlist.spread(listed, logits, self.config.vocab_size);
        Ok(())
    }

    /// Soft-caps logits, where the model does.
    fn cap(&self, pool: &Pool, logits: &mut [f32]) {
        let Some(cap) = self.config.logit_softcap else { return };
        let count = logits.len();
        let logits = SharedSlice::new(logits);
        for_each(pool, count.div_ceil(CAPPED_AT_ONCE), count, |index| {
            // SAFETY: each part belongs to one task.
            let part = unsafe { logits.slice(index * CAPPED_AT_ONCE..count.min((index + 1) * CAPPED_AT_ONCE)) };
            vector::soft_cap_all(self.isa, part, cap);
        });
    }
}
