//! From a checkpoint to what a model has on its device.

use atb_rs::{DataType, DeviceBuffer, Tensor, TensorDesc};
use spec_model::{Checkpoint, LayerWeights, Linear, RopeConfig, TensorView};

use crate::graphs::{self, Role};
use crate::plan::MemoryPlan;
use crate::shape::Shape;
use crate::store::{self, Layer, PassMemory, Store};
use crate::upload::{Matrix, Part, Uploader};
use crate::{AscendDevice, AscendError, AscendStream, HalfType, rope};

/// Brings everything to the device. `progress` hears of the bytes done and of all bytes, as the file stores them.
pub(crate) fn store(
    checkpoint: &Checkpoint,
    stream: &AscendStream,
    shape: Shape,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Store, AscendError> {
    let device = stream.device();
    let plan = MemoryPlan::of(&shape);
    let free = device.context().memory_info().map_err(|error| device.judge(error))?.free as u64;
    let short = |needed: u64| AscendError::Memory { needed, free, plan: Box::new(plan.clone()) };
    // The stream has its context of ATB already.
    let needed = plan.device_bytes_without_stream();
    if needed > free {
        return Err(short(needed));
    }
    fill(checkpoint, stream, shape, progress).map_err(|error| match error {
        AscendError::Call(call) if is_out_of_memory(&call) => short(needed),
        AscendError::Call(call) => device.judge(call),
        other => other,
    })
}

fn is_out_of_memory(error: &atb_rs::Error) -> bool {
    use atb_rs::Status;
    error.status().is_some_and(|status| {
        [
            Status::ACL_ERROR_RT_MEMORY_ALLOCATION,
            Status::ACL_ERROR_RT_DEVICE_OOM,
            Status::ATB_ERROR_OUT_OF_DEVICE_MEMORY,
        ]
        .contains(&status)
    })
}

fn fill(
    checkpoint: &Checkpoint,
    stream: &AscendStream,
    shape: Shape,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Store, AscendError> {
    let (device, context) = (stream.device(), stream.device().context());
    let weights = checkpoint.weights();
    let ropes = distinct_ropes(&shape);
    let mut up = Uploader::new(device, stream.queue(), checkpoint, shape.dtype, progress)?;
    let whole = |view: &TensorView<'_>, up: &mut Uploader<'_>| -> Result<Tensor, AscendError> {
        // Without a lifetime of its own a view is of the checkpoint.
        Ok(up.matrix(&[Part { view: *view, order: None }], false)?.weight)
    };
    let embedding = whole(&weights.embedding, &mut up)?;
    let head = match &weights.output {
        Some(output) => whole(output, &mut up)?,
        None => embedding.clone(),
    };
    let output_norm = up.vector(weights.output_norm.weight.name, &weights.output_norm.weight.to_f32())?;
    let tables = ropes.iter().map(|rope| rotary_tables(&mut up, &shape, rope)).collect::<Result<_, _>>()?;
    let mut layers = Vec::with_capacity(shape.layers);
    for (at, layer) in weights.layers.iter().enumerate() {
        let rope = shape.rope_of(at);
        let caches = [cache(device, stream, &shape)?, cache(device, stream, &shape)?];
        layers.push(Layer {
            weights: layer_weights(&mut up, &shape, layer, rope)?,
            caches,
            rope: ropes.iter().position(|other| *other == *rope).unwrap_or(0),
            operation: graphs::layer(context, &shape)?,
            compaction: if shape.is_tiled() { None } else { Some(graphs::compaction(context, &shape)?) },
        });
    }
    let operations = store::operations(device, &shape, ropes.len())?;
    let verify = store::verify(device, &shape)?;
    let memory = PassMemory::new(device, &shape, ropes.len())?;
    // Rows that nobody wrote are read by padding alone; zeros keep that finite.
    stream.queue().synchronize_for(device.pass_timeout())?;
    drop(up);
    let device = device.clone();
    Ok(Store { device, embedding, tables, output_norm, head, layers, operations, verify, memory, shape })
}

/// The rotary embeddings of all layers, each once.
fn distinct_ropes(shape: &Shape) -> Vec<RopeConfig> {
    let mut ropes: Vec<RopeConfig> = Vec::new();
    for layer in 0..shape.layers {
        let rope = shape.rope_of(layer);
        if !ropes.contains(rope) {
            ropes.push(rope.clone());
        }
    }
    ropes
}

fn rotary_tables(up: &mut Uploader<'_>, shape: &Shape, config: &RopeConfig) -> Result<[Tensor; 2], AscendError> {
    let desc = TensorDesc::new(shape.table_type(), [shape.context, shape.head_dim]);
    let [cos, sin] = rope::tables(config, shape.head_dim, shape.context);
    let mut bring = |values: &[f32]| match shape.table_type() {
        DataType::F32 => up.elements(values, desc),
        _ => {
            let mut bits = vec![0u16; values.len()];
            // Cosines and sines are in range.
            HalfType::Bf16.encode(values, &mut bits);
            up.elements(&bits, desc)
        }
    };
    Ok([bring(&cos)?, bring(&sin)?])
}

/// A cache of keys or values, filled with zeros.
fn cache(device: &AscendDevice, stream: &AscendStream, shape: &Shape) -> Result<Tensor, AscendError> {
    let (blocks, tokens) = (shape.cache_blocks(), shape.block_tokens);
    let dtype = shape.dtype.data_type();
    let desc = match shape.is_tiled() {
        false => TensorDesc::new(dtype, [blocks, tokens, shape.kv_heads, shape.head_dim]),
        true => TensorDesc::new(dtype, [blocks, shape.key_width() / 16, tokens, 16]).nz(),
    };
    let buffer = DeviceBuffer::new(device.context(), desc.bytes())?;
    stream.queue().fill(&buffer, 0)?;
    Ok(Tensor::new(desc, &buffer)?)
}

/// Projections that become one matrix, with the order of the rows of each.
type Linears<'a, 'c> = Vec<(&'a Linear<TensorView<'c>>, Option<Vec<usize>>)>;

/// A layer's weights by role: query, key and value in one matrix, gate and up in another.
fn layer_weights(
    up: &mut Uploader<'_>,
    shape: &Shape,
    layer: &LayerWeights<TensorView<'_>>,
    rope: &RopeConfig,
) -> Result<Vec<(Role, Tensor)>, AscendError> {
    let mut tensors = Vec::new();
    let size = shape.head_dim;
    let orders = [shape.heads, shape.kv_heads].map(|heads| rope::row_order(rope, heads, size));
    let [query, key] = orders;
    let qkv = [(&layer.q, query), (&layer.k, key), (&layer.v, None)];
    let gate = layer.gate.as_ref().ok_or_else(|| AscendError::Tensor {
        tensor: layer.up.weight.name.to_owned(),
        reason: "its block has no gate, which every architecture that runs here has".to_owned(),
    })?;
    let packed: [(Role, Role, Option<Role>, Linears<'_, '_>); 4] = [
        (Role::Qkv, Role::QkvScale, shape.bias.qkv.then_some(Role::QkvBias), qkv.into()),
        (Role::Out, Role::OutScale, shape.bias.out.then_some(Role::OutBias), vec![(&layer.attn_output, None)]),
        (
            Role::GateUp,
            Role::GateUpScale,
            shape.bias.gate_up.then_some(Role::GateUpBias),
            vec![(gate, None), (&layer.up, None)],
        ),
        (Role::Down, Role::DownScale, shape.bias.down.then_some(Role::DownBias), vec![(&layer.down, None)]),
    ];
    for (weight, scale, bias, linears) in packed {
        if let Some(role) = bias {
            tensors.push((role, packed_bias(up, &linears)?));
        }
        let parts: Vec<_> = linears.into_iter().map(|(linear, order)| Part { view: linear.weight, order }).collect();
        let Matrix { weight: matrix, scale: scales } = up.matrix(&parts, shape.int8)?;
        tensors.push((weight, matrix));
        tensors.extend(scales.map(|scales| (scale, scales)));
    }
    let head_order = rope::head_order(rope, size);
    let norms = [
        (Role::AttnNorm, Some(&layer.attn_norm.weight), None),
        (Role::QNorm, layer.q_norm.as_ref(), head_order.as_ref()),
        (Role::KNorm, layer.k_norm.as_ref(), head_order.as_ref()),
        (Role::PostAttnNorm, layer.post_attn_norm.as_ref().map(|norm| &norm.weight), None),
        (Role::FfnNorm, Some(&layer.ffn_norm.weight), None),
        (Role::PostFfnNorm, layer.post_ffn_norm.as_ref().map(|norm| &norm.weight), None),
    ];
    for (role, view, order) in norms {
        let Some(view) = view else { continue };
        let values = view.to_f32();
        let values = match order {
            Some(order) => order.iter().map(|&at| values[at]).collect(),
            None => values,
        };
        tensors.push((role, up.vector(view.name, &values)?));
    }
    Ok(tensors)
}

/// The biases of packed projections, zeros where one has none.
fn packed_bias(up: &mut Uploader<'_>, linears: &Linears<'_, '_>) -> Result<Tensor, AscendError> {
    let mut values = Vec::new();
    for (linear, order) in linears {
        let own = linear.bias.as_ref().map_or_else(|| vec![0.0; linear.weight.rows], TensorView::to_f32);
        match order {
            Some(order) => values.extend(order.iter().map(|&at| own[at])),
            None => values.extend(own),
        }
    }
    let name = linears.first().map_or("", |(linear, _)| linear.weight.name);
    up.vector(name, &values)
}
