//! Made from `headers/spec_atb.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use crate::Status;
use crate::table::{functions, layout};
use core::ffi::{c_char, c_uint, c_void};

/// Version of this interface. It grows with every change of a layout or a signature here.
pub const SPEC_ATB_ABI_VERSION: u32 = 1;
/// Dimensions that a tensor has at most.
pub const SPEC_ATB_MAX_DIMS: u32 = 8;
/// A C++ exception was caught; the text is its `what`.
pub const SPEC_ATB_ERROR_EXCEPTION: i32 = -1;
/// libatb, or a library it needs, could not be loaded.
pub const SPEC_ATB_ERROR_LIBRARY: i32 = -2;
/// libatb was built for the other C++ ABI.
pub const SPEC_ATB_ERROR_ABI: i32 = -3;
/// This libatb lacks the function, or the chip the feature.
pub const SPEC_ATB_ERROR_UNSUPPORTED: i32 = -4;
/// A pointer that may not be null is.
pub const SPEC_ATB_ERROR_NULL: i32 = -5;
#[repr(C)]
pub struct spec_atb_context {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct spec_atb_operation {
    _unused: [u8; 0],
}
/// Shape of a tensor.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_dims {
    pub dims: [i64; 8],
    /// How many of `dims` count: 1 to 8, or 0 for an empty optional tensor.
    pub dim_num: u64,
}
/// Element type, layout and shape. All zero describes an optional tensor that is left out.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_tensor_desc {
    /// An `aclDataType`.
    pub dtype: i32,
    /// An `aclFormat`.
    pub format: i32,
    pub shape: spec_atb_dims,
}
/// A tensor with its memory.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_tensor {
    pub desc: spec_atb_tensor_desc,
    /// On the device.
    pub device_data: *mut c_void,
    /// On the host: what lengths of sequences need beside `device_data`, read at setup.
    pub host_data: *mut c_void,
    /// Exactly what `spec_atb_tensor_size` says.
    pub data_size: u64,
}
/// Inputs and outputs of one execution, in the operation's order.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_pack {
    pub inputs: *const spec_atb_tensor,
    pub input_count: u64,
    pub outputs: *const spec_atb_tensor,
    pub output_count: u64,
}
/// What `spec_atb_probe` found.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_probe_result {
    /// 0 or 1: `_GLIBCXX_USE_CXX11_ABI` of the shim.
    pub shim_cxx11_abi: i32,
    /// 0 or 1: that of libatb, by the symbols it has; -1 when it has neither.
    pub atb_cxx11_abi: i32,
    /// Path of libatb, NUL-terminated, cut when longer.
    pub atb_path: [c_char; 4096],
    /// What libatb says of its version, NUL-terminated. Libraries built from source say `ATBVERSION`.
    pub atb_version: [c_char; 128],
}
pub const SPEC_ATB_EXECUTE_NORMAL: spec_atb_execute_type = spec_atb_execute_type(0);
/// Prepare only.
pub const SPEC_ATB_EXECUTE_PRELAUNCH: spec_atb_execute_type = spec_atb_execute_type(1);
/// Launch what was prepared.
pub const SPEC_ATB_EXECUTE_LAUNCH: spec_atb_execute_type = spec_atb_execute_type(2);
/// What `Execute` does, per thread.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_execute_type(pub c_uint);
pub const SPEC_ATB_LAUNCH_KERNELS: spec_atb_launch_mode = spec_atb_launch_mode(0);
/// Captured at the first execution; shapes may not change afterwards.
pub const SPEC_ATB_LAUNCH_GRAPH: spec_atb_launch_mode = spec_atb_launch_mode(1);
/// How a graph is launched.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_launch_mode(pub c_uint);
/// Allocates `size` bytes on the device; null on failure.
pub type spec_atb_allocate = Option<unsafe extern "C" fn(user_data: *mut c_void, size: u64) -> *mut c_void>;
/// Frees what a `spec_atb_allocate` returned.
pub type spec_atb_deallocate = Option<unsafe extern "C" fn(user_data: *mut c_void, pointer: *mut c_void)>;
/// How a context is made. All zero is ATB's default.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_context_param {
    /// Blocks of 3 MiB for tiling data on the host, 128 to 1024; 0 is the default (ATB 8.5).
    pub host_tiling_blocks: u32,
    /// The same on the device, 32 to 1024. Not 0 where the other is not.
    pub device_tiling_blocks: u32,
    /// Memory for tiling data comes from here (ATB 8.2); both or neither, and not with block counts.
    pub allocate: spec_atb_allocate,
    pub deallocate: spec_atb_deallocate,
    /// Handed to both; lives as long as the context.
    pub user_data: *mut c_void,
}
/// Gives an input of a node another shape with as many elements. May be called by any setup of the graph.
pub type spec_atb_reshape_function = Option<
    unsafe extern "C" fn(user_data: *mut c_void, old_shape: *const spec_atb_dims, new_shape: *mut spec_atb_dims),
>;
/// Descriptions of a graph's or plugin's outputs for given inputs.
pub type spec_atb_infer_shape_function = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        inputs: *const spec_atb_tensor_desc,
        input_count: u64,
        outputs: *mut spec_atb_tensor_desc,
        output_count: u64,
    ) -> Status,
>;
/// Frees what `user_data` points to. Called once.
pub type spec_atb_release_function = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// How a node sees one of its inputs.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_view {
    /// Null: as it is.
    pub reshape: spec_atb_reshape_function,
    /// Lives as long as the graph.
    pub user_data: *mut c_void,
}
/// One step of a graph. Tensors are numbered: inputs of the graph, then its outputs, then what is inside.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_node {
    /// Taken over by the graph.
    pub operation: *mut spec_atb_operation,
    pub inputs: *const u32,
    pub input_count: u64,
    pub outputs: *const u32,
    pub output_count: u64,
    /// One for each input, or null.
    pub views: *const spec_atb_view,
}
/// Operations that run one after the other as one.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_graph_param {
    /// NUL-terminated; up to 128 letters, digits and underscores.
    pub name: *const c_char,
    pub nodes: *const spec_atb_node,
    /// Up to 1024.
    pub node_count: u64,
    /// Up to 256, like the next two.
    pub input_count: u32,
    pub output_count: u32,
    pub internal_count: u32,
    pub reserved: u32,
    /// Null: the nodes tell.
    pub infer_shape: spec_atb_infer_shape_function,
    /// Handed to `infer_shape`.
    pub user_data: *mut c_void,
    /// Called with `user_data` when the graph is destroyed; may be null. Not called when creating it fails.
    pub release: spec_atb_release_function,
}
/// Plans: checks tensors, says how much workspace is needed. Tensors inside a graph have no memory yet.
pub type spec_atb_plugin_setup = Option<
    unsafe extern "C" fn(user_data: *mut c_void, pack: *const spec_atb_pack, workspace_size: *mut u64) -> Status,
>;
/// Puts work on `stream`. Not to wait for it.
pub type spec_atb_plugin_execute = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        pack: *const spec_atb_pack,
        workspace: *mut c_void,
        workspace_size: u64,
        stream: *mut c_void,
    ) -> Status,
>;
/// An operation that is the caller's code, alone or in a graph.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_plugin_param {
    /// NUL-terminated.
    pub name: *const c_char,
    pub input_count: u32,
    pub output_count: u32,
    pub infer_shape: spec_atb_infer_shape_function,
    pub setup: spec_atb_plugin_setup,
    pub execute: spec_atb_plugin_execute,
    /// Handed to all of them; they may be called on any thread that uses the operation.
    pub user_data: *mut c_void,
    /// Called with `user_data` when the operation is destroyed; may be null. Not called when creating it fails.
    pub release: spec_atb_release_function,
}

layout! {
    spec_atb_dims: 72 bytes, aligned 8 { dims 0, dim_num 64 }
    spec_atb_tensor_desc: 80 bytes, aligned 8 { dtype 0, format 4, shape 8 }
    spec_atb_tensor: 104 bytes, aligned 8 { desc 0, device_data 80, host_data 88, data_size 96 }
    spec_atb_pack: 32 bytes, aligned 8 { inputs 0, input_count 8, outputs 16, output_count 24 }
    spec_atb_probe_result: 4232 bytes, aligned 4 { shim_cxx11_abi 0, atb_cxx11_abi 4, atb_path 8, atb_version 4104 }
    spec_atb_context_param: 32 bytes, aligned 8 {
        host_tiling_blocks 0, device_tiling_blocks 4, allocate 8, deallocate 16, user_data 24
    }
    spec_atb_view: 16 bytes, aligned 8 { reshape 0, user_data 8 }
    spec_atb_node: 48 bytes, aligned 8 { operation 0, inputs 8, input_count 16, outputs 24, output_count 32, views 40 }
    spec_atb_graph_param: 64 bytes, aligned 8 {
        name 0, nodes 8, node_count 16, input_count 24, output_count 28, internal_count 32, reserved 36, infer_shape 40,
        user_data 48, release 56
    }
    spec_atb_plugin_param: 56 bytes, aligned 8 {
        name 0, input_count 8, output_count 12, infer_shape 16, setup 24, execute 32, user_data 40, release 48
    }
}

functions! {
    spec_atb:
    /// `SPEC_ATB_ABI_VERSION` of the header that the shim was compiled with. Callable before anything else.
    fn spec_atb_abi_version() -> u32 = Shim, Shim(1);
    /// Compares the C++ ABI of the shim and of libatb. -3 when they differ: nothing else may be called then.
    fn spec_atb_probe(result: *mut spec_atb_probe_result) -> Status = Shim, Shim(1);
    /// Text of the calling thread's last failure, "" when there was none. Valid until the thread calls the shim again.
    fn spec_atb_last_error() -> *const c_char = Shim, Shim(1);
    /// Bytes of workspace that an operation may take unless the caller says otherwise, as the shim was built.
    fn spec_atb_workspace_ceiling() -> u64 = Shim, Shim(1);
    /// Bytes that a tensor takes; 0 when `desc` describes none.
    fn spec_atb_tensor_size(desc: *const spec_atb_tensor_desc) -> u64 = Shim, Shim(1);
    /// Turns scales into what a Linear of int8 takes as `uint64` scales: each number's 32 bits, zero-extended.
    fn spec_atb_quant_param_convert(source: *const f32, destination: *mut u64, count: u64) -> Status = Shim, Shim(1);
    /// Makes a context on the current device. It takes 96 MiB there by default.
    fn spec_atb_create_context(param: *const spec_atb_context_param, context: *mut *mut spec_atb_context) -> Status = Shim, Shim(1);
    /// Destroys a context; in graph launch mode after the operations that used it.
    fn spec_atb_destroy_context(context: *mut spec_atb_context) -> Status = Shim, Shim(1);
    /// The stream (an `aclrtStream`) that operations are put on.
    fn spec_atb_set_execute_stream(context: *mut spec_atb_context, stream: *mut c_void) -> Status = Shim, Shim(1);
    /// Several streams, chosen by the operations' stream ids (ATB 8.1).
    fn spec_atb_set_execute_streams(context: *mut spec_atb_context, streams: *const *mut c_void, count: u64) -> Status = Shim, Shim(1);
    /// Copies tiling data in the stream's order instead of waiting for it.
    fn spec_atb_set_async_tiling_copy(context: *mut spec_atb_context, enable: u32) -> Status = Shim, Shim(1);
    /// What `spec_atb_execute` does on this thread (ATB 8.1).
    fn spec_atb_set_execute_type(context: *mut spec_atb_context, type_: spec_atb_execute_type) -> Status = Shim, Shim(1);
    /// How graphs are launched (ATB 8.2).
    fn spec_atb_set_launch_mode(context: *mut spec_atb_context, mode: spec_atb_launch_mode) -> Status = Shim, Shim(1);
    /// Name of an operation into `buffer`, NUL-terminated; `size` bytes at most.
    fn spec_atb_operation_name(operation: *const spec_atb_operation, buffer: *mut c_char, size: u64) -> Status = Shim, Shim(1);
    /// How many inputs and outputs an operation has.
    fn spec_atb_operation_arity(operation: *const spec_atb_operation, inputs: *mut u32, outputs: *mut u32) -> Status = Shim, Shim(1);
    /// Descriptions of the outputs for given inputs. `output_count` has to be the operation's own.
    fn spec_atb_infer_shape(operation: *const spec_atb_operation, inputs: *const spec_atb_tensor_desc, input_count: u64, outputs: *mut spec_atb_tensor_desc, output_count: u64) -> Status = Shim, Shim(1);
    /// Checks tensors, plans their execution and says how much workspace it takes. Reads the host copies of lengths.
    fn spec_atb_setup(operation: *mut spec_atb_operation, pack: *const spec_atb_pack, workspace_size: *mut u64, context: *mut spec_atb_context) -> Status = Shim, Shim(1);
    /// Puts the planned work on the context's stream. Tensors and workspace live until the stream has passed it.
    fn spec_atb_execute(operation: *mut spec_atb_operation, pack: *const spec_atb_pack, workspace: *mut c_void, workspace_size: u64, context: *mut spec_atb_context) -> Status = Shim, Shim(1);
    /// Which of the context's streams an operation goes to (ATB 8.1).
    fn spec_atb_set_stream_id(operation: *mut spec_atb_operation, stream_id: u32) -> Status = Shim, Shim(1);
    /// Destroys an operation that no graph has taken.
    fn spec_atb_destroy_operation(operation: *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a graph. On success it owns its nodes' operations; on failure they stay the caller's.
    fn spec_atb_create_graph(param: *const spec_atb_graph_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes an operation of the caller's code. The callbacks may not unwind.
    fn spec_atb_create_plugin(param: *const spec_atb_plugin_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
}
