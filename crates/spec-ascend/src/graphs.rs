//! The graphs that a pass is made of: embedding, layer, head; and the one that moves accepted rows within the cache.

use atb_rs::parameters::{
    Activation, CacheLayout, Elewise, Gather, Linear, LinearQuant, PagedAttention, PagedMode, Placement,
    ReshapeAndCache, RmsNorm, Rope, RopeTables, Rotation, Split,
};
use atb_rs::{Context, DataType, GraphBuilder, Operation, Parameters, TensorId, View};

use crate::shape::Shape;

type Result<T> = std::result::Result<T, atb_rs::Error>;

/// Inputs of the layer graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The residual stream, `[T, H]`.
    Hidden,
    AttnNorm,
    Qkv,
    QkvScale,
    QkvBias,
    QNorm,
    KNorm,
    /// `[T, D]`.
    Cos,
    Sin,
    Keys,
    Values,
    /// i32 `[T]`.
    Slots,
    /// i32 `[B, C]`.
    Tables,
    /// i32 `[B]`.
    Contexts,
    /// `[T, C * block]`.
    Mask,
    /// i32 `[B]`.
    Rows,
    Out,
    OutScale,
    OutBias,
    PostAttnNorm,
    FfnNorm,
    GateUp,
    GateUpScale,
    GateUpBias,
    Down,
    DownScale,
    DownBias,
    PostFfnNorm,
}

/// Where a graph's nodes find its inputs.
struct Nodes<'a> {
    graph: GraphBuilder,
    context: &'a Context,
    shape: &'a Shape,
    roles: Vec<Role>,
}

/// A projection's inputs.
#[derive(Clone, Copy)]
struct Projection {
    weight: Role,
    scale: Role,
    /// Only where the model has one.
    bias: Option<Role>,
}

impl Shape {
    /// The layer graph's inputs, in order.
    pub(crate) fn roles(&self) -> Vec<Role> {
        use Role::*;
        let kept = |role: &Role| match role {
            QkvScale | OutScale | GateUpScale | DownScale => self.int8,
            QkvBias => self.bias.qkv,
            OutBias => self.bias.out,
            GateUpBias => self.bias.gate_up,
            DownBias => self.bias.down,
            QNorm | KNorm => self.head_norms,
            PostAttnNorm | PostFfnNorm => self.post_norms,
            _ => true,
        };
        let all = [
            Hidden,
            AttnNorm,
            Qkv,
            QkvScale,
            QkvBias,
            QNorm,
            KNorm,
            Cos,
            Sin,
            Keys,
            Values,
            Slots,
            Tables,
            Contexts,
            Mask,
            Rows,
            Out,
            OutScale,
            OutBias,
            PostAttnNorm,
            FfnNorm,
            GateUp,
            GateUpScale,
            GateUpBias,
            Down,
            DownScale,
            DownBias,
            PostFfnNorm,
        ];
        all.into_iter().filter(kept).collect()
    }

    /// Type of the rotary tables: f16 kernels take f32, which keeps angles exact.
    pub(crate) fn table_type(&self) -> DataType {
        match self.dtype {
            crate::HalfType::F16 => DataType::F32,
            crate::HalfType::Bf16 => DataType::Bf16,
        }
    }

    fn cache_layout(&self) -> CacheLayout {
        if self.is_tiled() { CacheLayout::Nz } else { CacheLayout::Nd }
    }
}

/// Rows of `width` elements, whatever they were before.
fn rows_of(width: usize) -> Option<View> {
    Some(Box::new(move |shape| vec![shape.iter().product::<usize>() / width, width]))
}

/// `[T, heads, size]`.
fn heads_of(heads: usize, size: usize) -> Option<View> {
    Some(Box::new(move |shape| vec![shape.iter().product::<usize>() / (heads * size), heads, size]))
}

impl Nodes<'_> {
    fn input(&self, role: Role) -> TensorId {
        // A role that the shape does not have would be a number that no graph has, and building refuses it.
        let at = self.roles.iter().position(|&other| other == role).unwrap_or(usize::MAX);
        self.graph.input(at)
    }

    fn add<P: Parameters>(
        &mut self,
        parameters: P,
        inputs: Vec<(TensorId, Option<View>)>,
        outputs: &[TensorId],
    ) -> Result<()> {
        self.graph.node_with_views(Operation::new(self.context, parameters)?, inputs, outputs);
        Ok(())
    }

    /// A node with one new tensor as its output.
    fn make<P: Parameters>(&mut self, parameters: P, inputs: Vec<(TensorId, Option<View>)>) -> Result<TensorId> {
        let output = self.graph.internal();
        self.add(parameters, inputs, &[output])?;
        Ok(output)
    }

    fn norm(&mut self, x: TensorId, view: Option<View>, gamma: Role) -> Result<TensorId> {
        let gamma = self.input(gamma);
        self.make(RmsNorm::new(self.shape.epsilon), vec![(x, view), (gamma, None)])
    }

    fn project(&mut self, x: TensorId, view: Option<View>, projection: Projection) -> Result<TensorId> {
        let weight = self.input(projection.weight);
        let bias = projection.bias.map(|role| self.input(role));
        if !self.shape.int8 {
            let inputs = [(x, view), (weight, None)].into_iter().chain(bias.map(|bias| (bias, None))).collect();
            return self.make(Linear::new(bias.is_some()), inputs);
        }
        let (codes, row_scales) = (self.graph.internal(), self.graph.internal());
        self.add(Elewise::DynamicQuantize, vec![(x, view)], &[codes, row_scales])?;
        let quant = LinearQuant::PerToken { output: self.shape.dtype.data_type() };
        let scale = self.input(projection.scale);
        let inputs = vec![(codes, None), (weight, None), (scale, None), (row_scales, None)];
        let product = self.make(Linear { quant, ..Linear::new(false) }, inputs)?;
        match bias {
            None => Ok(product),
            Some(bias) => self.make(Elewise::Add, vec![(product, None), (bias, None)]),
        }
    }

    /// Attention's output, `[T, N, D]`; keys and values of the rows go to the caches before.
    fn attend(&mut self, x: TensorId, caches: [TensorId; 2]) -> Result<TensorId> {
        let Shape { heads, kv_heads, head_dim, .. } = *self.shape;
        let (query_width, key_width) = (self.shape.query_width(), self.shape.key_width());
        let bias = self.shape.bias.qkv.then_some(Role::QkvBias);
        let qkv = self.project(x, None, Projection { weight: Role::Qkv, scale: Role::QkvScale, bias })?;
        let [q, k, v] = [self.graph.internal(), self.graph.internal(), self.graph.internal()];
        let split = Split { axis: -1, lengths: vec![query_width, key_width, key_width] };
        self.add(split, vec![(qkv, None)], &[q, k, v])?;
        let (mut q, mut k) = (q, k);
        if self.shape.head_norms {
            q = self.norm(q, rows_of(head_dim), Role::QNorm)?;
            k = self.norm(k, rows_of(head_dim), Role::KNorm)?;
        }
        let [cos, sin, rows] = [Role::Cos, Role::Sin, Role::Rows].map(|role| (self.input(role), None));
        let turned = [self.graph.internal(), self.graph.internal()];
        let rope = Rope { rotation: Rotation::Halves, tables: RopeTables::PerToken };
        let heads_first = vec![(q, rows_of(query_width)), (k, rows_of(key_width)), cos, sin, rows];
        self.add(rope, heads_first, &turned)?;
        let [q, k] = turned;

        let written = vec![
            (k, heads_of(kv_heads, head_dim)),
            (v, heads_of(kv_heads, head_dim)),
            (self.input(Role::Keys), None),
            (self.input(Role::Values), None),
            (self.input(Role::Slots), None),
        ];
        self.add(ReshapeAndCache { layout: self.shape.cache_layout() }, written, &caches)?;
        let attention = PagedAttention { heads, kv_heads, scale: self.shape.attention_scale, mode: PagedMode::Verify };
        let [tables, contexts, mask, rows] =
            [Role::Tables, Role::Contexts, Role::Mask, Role::Rows].map(|role| (self.input(role), None));
        let [keys, values] = caches.map(|cache| (cache, None));
        self.make(attention, vec![(q, heads_of(heads, head_dim)), keys, values, tables, contexts, mask, rows])
    }

    /// The feed-forward block's product before its last projection, `[T, F]`.
    fn gate(&mut self, x: TensorId) -> Result<TensorId> {
        let bias = self.shape.bias.gate_up.then_some(Role::GateUpBias);
        let projection = Projection { weight: Role::GateUp, scale: Role::GateUpScale, bias };
        let packed = self.project(x, None, projection)?;
        if !self.shape.gelu {
            return self.make(Activation::Swiglu, vec![(packed, None)]);
        }
        let (gate, up) = (self.graph.internal(), self.graph.internal());
        let split = Split { axis: -1, lengths: vec![self.shape.ffn; 2] };
        self.add(split, vec![(packed, None)], &[gate, up])?;
        let gate = self.make(Activation::Gelu { exact: false }, vec![(gate, None)])?;
        self.make(Elewise::Multiply, vec![(gate, None), (up, None)])
    }
}

/// A layer. Inputs: [`Shape::roles`]; outputs: the residual stream behind it, and the two caches, in the memory of the
/// inputs.
pub(crate) fn layer(context: &Context, shape: &Shape) -> Result<Operation> {
    let roles = shape.roles();
    let mut nodes = Nodes { graph: GraphBuilder::new("spec_layer", roles.len(), 3), context, shape, roles };
    let [output, keys, values] = [0, 1, 2].map(|at| nodes.graph.output(at));
    let hidden = nodes.input(Role::Hidden);

    let normed = nodes.norm(hidden, None, Role::AttnNorm)?;
    let attended = nodes.attend(normed, [keys, values])?;
    let bias = shape.bias.out.then_some(Role::OutBias);
    let out = Projection { weight: Role::Out, scale: Role::OutScale, bias };
    let mut block = nodes.project(attended, rows_of(shape.query_width()), out)?;
    if shape.post_norms {
        block = nodes.norm(block, None, Role::PostAttnNorm)?;
    }
    // The norm takes the sum and hands it on.
    let (normed, sum) = (nodes.graph.internal(), nodes.graph.internal());
    let norm = RmsNorm { placement: Placement::BeforeLayer { bias: false }, ..RmsNorm::new(shape.epsilon) };
    let gamma = nodes.input(Role::FfnNorm);
    nodes.add(norm, vec![(block, None), (hidden, None), (gamma, None)], &[normed, sum])?;

    let gated = nodes.gate(normed)?;
    let bias = shape.bias.down.then_some(Role::DownBias);
    let down = Projection { weight: Role::Down, scale: Role::DownScale, bias };
    let mut block = nodes.project(gated, None, down)?;
    if shape.post_norms {
        block = nodes.norm(block, None, Role::PostFfnNorm)?;
    }
    nodes.add(Elewise::Add, vec![(sum, None), (block, None)], &[output])?;
    nodes.graph.build(context)
}

/// What comes before the layers. Inputs: embedding, tokens, positions, and cosines and sines of each rotary embedding;
/// outputs: the residual stream, and the tables' rows.
pub(crate) fn embedding(context: &Context, shape: &Shape, ropes: usize) -> Result<Operation> {
    let mut graph = GraphBuilder::new("spec_embedding", 3 + 2 * ropes, 1 + 2 * ropes);
    let gather = || Operation::new(context, Gather::ROWS);
    let [table, tokens, positions] = [0, 1, 2].map(|at| graph.input(at));
    if shape.embedding_scale == 1.0 {
        graph.node(gather()?, &[table, tokens], &[graph.output(0)]);
    } else {
        let plain = graph.internal();
        graph.node(gather()?, &[table, tokens], &[plain]);
        let scale = Elewise::Scale { factor: shape.embedding_scale };
        graph.node(Operation::new(context, scale)?, &[plain], &[graph.output(0)]);
    }
    for at in 0..2 * ropes {
        graph.node(gather()?, &[graph.input(3 + at), positions], &[graph.output(1 + at)]);
    }
    graph.build(context)
}

/// What comes behind the layers. Inputs: residual stream, i32 numbers of the rows that are scored, gamma, head; output:
/// their logits.
pub(crate) fn head(context: &Context, shape: &Shape) -> Result<Operation> {
    let mut graph = GraphBuilder::new("spec_head", 4, 1);
    let (rows, normed) = (graph.internal(), graph.internal());
    graph.node(Operation::new(context, Gather::ROWS)?, &[graph.input(0), graph.input(1)], &[rows]);
    graph.node(Operation::new(context, RmsNorm::new(shape.epsilon))?, &[rows, graph.input(2)], &[normed]);
    graph.node(Operation::new(context, Linear::new(false))?, &[normed, graph.input(3)], &[graph.output(0)]);
    graph.build(context)
}

/// Moves rows of both caches of a layer: all are read before any is written. Inputs: keys, values, i32 slots to read,
/// i32 slots to write; outputs: the caches, in the memory of the inputs.
pub(crate) fn compaction(context: &Context, shape: &Shape) -> Result<Operation> {
    let Shape { kv_heads, head_dim, .. } = *shape;
    let mut graph = GraphBuilder::new("spec_compaction", 4, 2);
    let moved = [graph.internal(), graph.internal()];
    let [from, to] = [2, 3].map(|at| graph.input(at));
    for (at, &rows) in moved.iter().enumerate() {
        let table = (graph.input(at), rows_of(shape.key_width()));
        graph.node_with_views(Operation::new(context, Gather::ROWS)?, vec![table, (from, None)], &[rows]);
    }
    let inputs = vec![
        (moved[0], heads_of(kv_heads, head_dim)),
        (moved[1], heads_of(kv_heads, head_dim)),
        (graph.input(0), None),
        (graph.input(1), None),
        (to, None),
    ];
    let outputs = [graph.output(0), graph.output(1)];
    graph.node_with_views(Operation::new(context, ReshapeAndCache { layout: CacheLayout::Nd })?, inputs, &outputs);
    graph.build(context)
}
