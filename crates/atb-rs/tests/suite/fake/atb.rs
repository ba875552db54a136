//! The shim, with as much of each operation as the tests look at.

use super::{State, Status, call, message, with_state};
use acl_sys::*;
use half::f16;
use std::ffi::{c_char, c_void};

/// What an operation does.
#[derive(Clone, Debug)]
enum Kind {
    Linear(spec_atb_linear_param),
    RmsNorm(spec_atb_rms_norm_param),
    /// Its outputs are these inputs.
    Same(usize, Vec<usize>),
    Graph {
        nodes: Vec<Node>,
        inputs: u32,
        outputs: u32,
        internal: u32,
    },
}

#[derive(Clone, Debug)]
struct Node {
    operation: usize,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    views: Vec<(Option<unsafe extern "C" fn(*mut c_void, *const spec_atb_dims, *mut spec_atb_dims)>, usize)>,
}

pub struct FakeOperation {
    kind: Kind,
    is_set_up: bool,
}

type Made = *mut *mut spec_atb_operation;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) |$state:ident| $body:expr;)*) => {
        $(extern "C" fn $name($($argument: $type),*) -> Status {
            call(stringify!($name), |$state| $body)
        })*

        pub fn resolve(symbol: &str) -> Option<*const ()> {
            match symbol {
                $(stringify!($name) => Some($name as *const ()),)*
                "spec_atb_last_error" => Some(last_error as *const ()),
                "spec_atb_abi_version" => Some(abi_version as *const ()),
                _ => None,
            }
        }
    };
}

extern "C" fn last_error() -> *const c_char {
    with_state(|state| message(state, "shim"))
}

extern "C" fn abi_version() -> u32 {
    with_state(|state| state.abi_version)
}

fn put<T>(to: *mut T, value: T) -> Status {
    // SAFETY: the library under test passes valid pointers, or the test has found something.
    unsafe { to.write(value) };
    Status::SUCCESS
}

fn make(state: &mut State, kind: Kind, operation: Made) -> Status {
    let made = state.make("operation");
    state.operations.insert(made as usize, FakeOperation { kind, is_set_up: false });
    put(operation, made.cast())
}

fn same(state: &mut State, inputs: usize, outputs: &[usize], operation: Made) -> Status {
    make(state, Kind::Same(inputs, outputs.to_vec()), operation)
}

/// Reads a structure of the caller's.
fn get<T: Copy>(from: *const T) -> T {
    // SAFETY: as for `put`.
    unsafe { *from }
}

fn slice<'a, T>(from: *const T, count: u64) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as for `put`.
    unsafe { std::slice::from_raw_parts(from, count as usize) }
}

fn arity(kind: &Kind) -> (usize, usize) {
    match kind {
        Kind::Linear(param) => (2 + param.has_bias as usize, 1),
        Kind::RmsNorm(_) => (2, 1),
        Kind::Same(inputs, outputs) => (*inputs, outputs.len()),
        Kind::Graph { inputs, outputs, .. } => (*inputs as usize, *outputs as usize),
    }
}

fn view(node: &Node, at: usize, mut desc: spec_atb_tensor_desc) -> spec_atb_tensor_desc {
    if let Some((Some(reshape), user_data)) = node.views.get(at) {
        let old = desc.shape;
        // SAFETY: the library under test gave the function with its data.
        unsafe { reshape(*user_data as *mut c_void, &old, &mut desc.shape) };
    }
    desc
}

fn infer(state: &State, kind: &Kind, inputs: &[spec_atb_tensor_desc]) -> Vec<spec_atb_tensor_desc> {
    match kind {
        Kind::Linear(_) => {
            let mut output = inputs[0];
            output.shape.dims[output.shape.dim_num as usize - 1] = inputs[1].shape.dims[0];
            vec![output]
        }
        Kind::RmsNorm(_) => vec![inputs[0]],
        Kind::Same(_, outputs) => outputs.iter().map(|&at| inputs[at]).collect(),
        Kind::Graph { nodes, inputs: from, outputs, internal } => {
            let mut all = inputs.to_vec();
            all.resize((from + outputs + internal) as usize, inputs[0]);
            for node in nodes {
                let seen: Vec<_> =
                    node.inputs.iter().enumerate().map(|(at, &id)| view(node, at, all[id as usize])).collect();
                for (&id, desc) in node.outputs.iter().zip(infer(state, &state.operations[&node.operation].kind, &seen))
                {
                    all[id as usize] = desc;
                }
            }
            all[*from as usize..][..*outputs as usize].to_vec()
        }
    }
}

fn elements(tensor: &spec_atb_tensor) -> &mut [f16] {
    let count = tensor.data_size as usize / 2;
    // SAFETY: what work uses lives until the stream has passed it; the test is about just that.
    unsafe { std::slice::from_raw_parts_mut(tensor.device_data.cast(), count) }
}

/// Products and norms in f32, rounded once.
fn compute(kind: &Kind, inputs: &[spec_atb_tensor], outputs: &[spec_atb_tensor]) {
    match kind {
        Kind::Linear(_) => {
            let (x, w, y) = (elements(&inputs[0]), elements(&inputs[1]), elements(&outputs[0]));
            let depth = inputs[0].desc.shape.dims[1] as usize;
            let columns = w.len() / depth;
            for (at, y) in y.iter_mut().enumerate() {
                let (row, column) = (&x[at / columns * depth..][..depth], &w[at % columns * depth..][..depth]);
                *y = f16::from_f32(row.iter().zip(column).map(|(x, w)| x.to_f32() * w.to_f32()).sum());
            }
        }
        Kind::RmsNorm(param) => {
            let (x, gamma, y) = (elements(&inputs[0]), elements(&inputs[1]), elements(&outputs[0]));
            for (x, y) in x.chunks(gamma.len()).zip(y.chunks_mut(gamma.len())) {
                let mean = x.iter().map(|x| x.to_f32().powi(2)).sum::<f32>() / x.len() as f32;
                let factor = 1.0 / (mean + param.epsilon).sqrt();
                for ((x, gamma), y) in x.iter().zip(&*gamma).zip(y) {
                    *y = f16::from_f32(x.to_f32() * factor * gamma.to_f32());
                }
            }
        }
        // Nothing that the tests look at.
        Kind::Same(..) | Kind::Graph { .. } => {}
    }
}

struct Tensors(Vec<spec_atb_tensor>, Vec<spec_atb_tensor>);
// SAFETY: addresses that the test keeps valid until the work is done.
unsafe impl Send for Tensors {}

fn destroy(state: &mut State, operation: usize) -> Status {
    match state.operations.remove(&operation).map(|operation| operation.kind) {
        Some(Kind::Graph { nodes, .. }) => {
            for node in nodes {
                let _ = destroy(state, node.operation);
            }
        }
        Some(_) => {}
        None => return Status::ATB_ERROR_INVALID_OPERATION_ADDR,
    }
    state.unmake(operation as *mut c_void, "operation")
}

functions! {
    spec_atb_probe(result: *mut spec_atb_probe_result) |state| {
        let mut found = spec_atb_probe_result {
            shim_cxx11_abi: 1, atb_cxx11_abi: 1, atb_path: [0; 4096], atb_version: [0; 128],
        };
        for (to, from) in found.atb_path.iter_mut().zip(b"/opt/libatb.so") { *to = *from as c_char; }
        found.atb_version.fill(b'9' as c_char);
        let _ = put(result, found);
        Status(state.atb_status)
    };
    spec_atb_create_context(_param: *const spec_atb_context_param, context: *mut *mut spec_atb_context) |state| {
        let made = state.make("context of ATB");
        put(context, made.cast())
    };
    spec_atb_destroy_context(context: *mut spec_atb_context) |state| state.unmake(context.cast(), "context of ATB");
    spec_atb_set_execute_stream(context: *mut spec_atb_context, stream: *mut c_void) |state| {
        // The executor's stream, by the context's address.
        state.events.insert(context as usize, Some((stream as usize, 0)));
        Status::SUCCESS
    };
    spec_atb_operation_arity(operation: *const spec_atb_operation, inputs: *mut u32, outputs: *mut u32) |state| {
        let (from, to) = arity(&state.operations[&(operation as usize)].kind);
        let _ = put(inputs, from as u32);
        put(outputs, to as u32)
    };
    spec_atb_infer_shape(operation: *const spec_atb_operation, inputs: *const spec_atb_tensor_desc, count: u64,
                         outputs: *mut spec_atb_tensor_desc, _output_count: u64) |state| {
        let kind = state.operations[&(operation as usize)].kind.clone();
        for (at, desc) in infer(state, &kind, slice(inputs, count)).into_iter().enumerate() {
            let _ = put(outputs.wrapping_add(at), desc);
        }
        Status::SUCCESS
    };
    spec_atb_setup(operation: *mut spec_atb_operation, pack: *const spec_atb_pack, workspace: *mut u64,
                   _context: *mut spec_atb_context) |state| {
        let pack = get(pack);
        for tensor in slice(pack.inputs, pack.input_count) {
            if !tensor.host_data.is_null() {
                let lengths = slice(tensor.host_data.cast_const().cast::<i32>(), tensor.data_size / 4).to_vec();
                state.lengths_at_setup.push(lengths);
            }
        }
        state.operations.get_mut(&(operation as usize)).expect("it is alive").is_set_up = true;
        put(workspace, 512)
    };
    spec_atb_execute(operation: *mut spec_atb_operation, pack: *const spec_atb_pack, workspace: *mut c_void, _size: u64,
                     context: *mut spec_atb_context) |state| {
        let (found, pack) = (&state.operations[&(operation as usize)], get(pack));
        if !found.is_set_up || workspace.is_null() { return Status::ATB_ERROR_INVALID_PARAM; }
        let kind = found.kind.clone();
        let stream = state.events[&(context as usize)].expect("it has a stream").0 as *mut c_void;
        let (inputs, outputs) = (slice(pack.inputs, pack.input_count), slice(pack.outputs, pack.output_count));
        let tensors = Tensors(inputs.to_vec(), outputs.to_vec());
        let mut uses: Vec<*const c_void> = vec![workspace, operation.cast()];
        uses.extend(tensors.0.iter().chain(&tensors.1).map(|tensor| tensor.device_data.cast_const()));
        state.queue(stream, &uses, Box::new(move |_| {
            let tensors = tensors;
            compute(&kind, &tensors.0, &tensors.1);
        }))
    };
    spec_atb_destroy_operation(operation: *mut spec_atb_operation) |state| destroy(state, operation as usize);
    spec_atb_create_graph(param: *const spec_atb_graph_param, operation: Made) |state| {
        let param = get(param);
        let nodes = slice(param.nodes, param.node_count).iter().map(|node| Node {
            operation: node.operation as usize,
            inputs: slice(node.inputs, node.input_count).to_vec(),
            outputs: slice(node.outputs, node.output_count).to_vec(),
            views: if node.views.is_null() { Vec::new() } else {
                slice(node.views, node.input_count).iter().map(|view| (view.reshape, view.user_data as usize)).collect()
            },
        }).collect();
        let (inputs, outputs, internal) = (param.input_count, param.output_count, param.internal_count);
        make(state, Kind::Graph { nodes, inputs, outputs, internal }, operation)
    };
    spec_atb_create_linear(param: *const spec_atb_linear_param, operation: Made) |state| {
        make(state, Kind::Linear(get(param)), operation)
    };
    spec_atb_create_rms_norm(param: *const spec_atb_rms_norm_param, operation: Made) |state| {
        make(state, Kind::RmsNorm(get(param)), operation)
    };
    spec_atb_create_gather(_param: *const spec_atb_gather_param, operation: Made) |state| {
        same(state, 2, &[0], operation)
    };
    spec_atb_create_rope(_param: *const spec_atb_rope_param, operation: Made) |state| {
        same(state, 5, &[0, 1], operation)
    };
    spec_atb_create_reshape_and_cache(_param: *const spec_atb_reshape_and_cache_param, operation: Made) |state| {
        same(state, 5, &[2, 3], operation)
    };
    spec_atb_create_self_attention(param: *const spec_atb_self_attention_param, operation: Made) |state| {
        let masked = get(param).mask != SPEC_ATB_SELF_ATTENTION_MASK_NONE;
        same(state, 4 + masked as usize, &[0], operation)
    };
    spec_atb_create_paged_attention(param: *const spec_atb_paged_attention_param, operation: Made) |state| {
        let verifies = get(param).calc == SPEC_ATB_PAGED_ATTENTION_SPEC;
        same(state, if verifies { 7 } else { 5 }, &[0], operation)
    };
    spec_atb_create_activation(_param: *const spec_atb_activation_param, operation: Made) |state| {
        same(state, 1, &[0], operation)
    };
    spec_atb_create_elewise(_param: *const spec_atb_elewise_param, operation: Made) |state| {
        same(state, 2, &[0], operation)
    };
    spec_atb_create_softmax(_param: *const spec_atb_softmax_param, operation: Made) |state| {
        same(state, 1, &[0], operation)
    };
    spec_atb_create_sort(_param: *const spec_atb_sort_param, operation: Made) |state| {
        same(state, 1, &[0, 0], operation)
    };
    spec_atb_create_verify(_param: *const spec_atb_verify_param, operation: Made) |state| {
        same(state, 1, &[0, 0, 0], operation)
    };
    spec_atb_create_reduce(_param: *const spec_atb_reduce_param, operation: Made) |state| {
        same(state, 1, &[0], operation)
    };
    spec_atb_create_multinomial(_param: *const spec_atb_multinomial_param, operation: Made) |state| {
        same(state, 1, &[0], operation)
    };
    spec_atb_create_sampling(_param: *const spec_atb_sampling_param, operation: Made) |state| {
        same(state, 4, &[0, 0], operation)
    };
    spec_atb_create_split(_param: *const spec_atb_split_param, operation: Made) |state| {
        same(state, 1, &[0, 0], operation)
    };
}
