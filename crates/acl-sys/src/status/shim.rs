//! ATB's codes (1 to 29), and the shim's own (negative).

use super::status_codes;

const PARAMETERS: &str = "compare the operation's parameter with ATB's limits for it on this chip";
const TENSORS: &str = "compare the tensors with what the operation takes: count, element types, layouts, shapes";
const CALL: &str =
    "set up first, with the same context, tensors of the described sizes, and a workspace as large as asked for";
const GRAPH: &str = "check tensor numbers, that every tensor is written before it is read, and the limits of 256 tensors and 1024 nodes";
const LOG: &str = "read the newest plog under ~/ascend/log/debug/plog; ATB logs there under OP";

status_codes! {
    -5 SPEC_ATB_ERROR_NULL "the shim was given a null pointer", "pass every pointer that is not documented as optional";
    -4 SPEC_ATB_ERROR_UNSUPPORTED "this libatb does not have what was asked for", "install a newer nnal package, of the release of CANN";
    -3 SPEC_ATB_ERROR_ABI "the shim and libatb were built for different C++ ABIs", "source nnal's set_env.sh with --cxx_abi as the shim was built, or build the shim again";
    -2 SPEC_ATB_ERROR_LIBRARY "libatb could not be loaded", "source /usr/local/Ascend/nnal/atb/set_env.sh; spec_atb_last_error names the file";
    -1 SPEC_ATB_ERROR_EXCEPTION "a C++ exception reached the shim", "spec_atb_last_error has its text";
    1 ATB_ERROR_INVALID_PARAM "ATB refused a parameter, a length on the host, or the state of the call", PARAMETERS;
    2 ATB_ERROR_INVALID_GRAPH "the graph is not valid", GRAPH;
    3 ATB_ERROR_INTERNAL_ERROR "ATB failed inside", LOG;
    4 ATB_ERROR_RT_FAIL "a call of the runtime failed inside ATB", LOG;
    5 ATB_ERROR_INVALID_IN_TENSOR_NUM "the number of inputs is wrong", TENSORS;
    6 ATB_ERROR_INVALID_TENSOR_DTYPE "an element type is not supported, such as bf16 on 310P", TENSORS;
    7 ATB_ERROR_INVALID_TENSOR_FORMAT "a layout is not supported", TENSORS;
    8 ATB_ERROR_INVALID_TENSOR_DIM "a shape does not fit", TENSORS;
    9 ATB_ERROR_INVALID_TENSOR_SIZE "a tensor is empty, has a length of 0, or is larger than 256 GiB", TENSORS;
    10 ATB_ERROR_OPERATION_NULL_RUNNER "the operation has no kernel for this", PARAMETERS;
    11 ATB_ERROR_GRAPH_INFERSHAPE_FUNC_FAIL "the graph's shape function failed", "look at the function that was given";
    12 ATB_ERROR_CANN_ERROR "a call of CANN failed inside ATB", LOG;
    13 ATB_ERROR_INVALID_TENSOR_INI_MATCH "ATB's table has no row for these element types and layouts", TENSORS;
    14 ATB_ERROR_INVALID_TENSOR_ADDR "a tensor has no memory", CALL;
    15 ATB_ERROR_INVALID_TENSOR_NUM "the number of tensors is wrong", TENSORS;
    16 ATB_ERROR_INVALID_TENSOR_DIM_NUM "the rank of a tensor is not 1 to 8", TENSORS;
    17 ATB_ERROR_INVALID_SINGLE_OPERATION_PARAM "ATB refused the operation's parameter", PARAMETERS;
    18 ATB_ERROR_GRAPH_NODE_RESHAPE_FUNC_FAIL "a view in the graph failed", "a view keeps the number of elements";
    19 ATB_ERROR_INVALID_GRAPH_NODE_CHUNK "a piece of an input is not valid", GRAPH;
    20 ATB_ERROR_INVALID_CONTEXT_ADDR "there is no context", CALL;
    21 ATB_ERROR_INVALID_STREAM "the context has no stream", "set the execute stream first";
    22 ATB_ERROR_INVALID_WORKSPACE_SIZE "the workspace is too small", CALL;
    23 ATB_ERROR_INVALID_WORKSPACE_ADDR "there is no workspace", CALL;
    24 ATB_ERROR_INVALID_OPERATION_ADDR "there is no operation", CALL;
    25 ATB_ERROR_HCCL_FAIL "a collective call failed", LOG;
    26 ATB_ERROR_OUT_OF_DEVICE_MEMORY "memory of the device ran out, or no device is current", "set the device first; a context alone takes 96 MiB of its memory";
    27 ATB_ERROR_OUT_OF_HOST_MEMORY "memory of the host ran out, or an exception in setup", LOG;
    28 ATB_ERROR_COMM_EMPTY "there is no communicator", PARAMETERS;
    29 ATB_ERROR_COPY_HOST_MEMORY_FAIL "a copy on the host failed", LOG;
}
