/*
 * C interface of the ATB shim, `libspec_atb.so`.
 *
 * ATB (Ascend Transformer Boost) is a C++ library: its parameters hold containers, and its classes have virtual methods,
 * so that only a C++ compiler with the same standard library can call it. The shim is that compiler's work, and this
 * header is all that anything else sees of it. A simulator implements the same functions.
 *
 * Rules that hold throughout:
 * - Structures are plain and have no padding (a test compiles them with -Wpadded). Numbers have explicit widths,
 *   enumerations are 32 bits, truth values are `uint32_t` and 0 or 1. A `reserved` field has to be 0.
 * - Values of enumerations are ATB's own.
 * - Every function returns a status: 0, an ATB error (1 to 29), an AscendCL error (100000 and more), or one of the
 *   shim's own (negative). No C++ exception leaves the shim. `spec_atb_last_error` has the text.
 * - Pointers in parameters are read during the call and not kept, unless a comment says otherwise.
 * - Output parameters are written on success only.
 * - An operation may be used by one thread at a time; a context belongs to the threads its device is current on.
 */
#ifndef SPEC_ATB_H
#define SPEC_ATB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /** Version of this interface. It grows with every change of a layout or a signature here. */
    SPEC_ATB_ABI_VERSION = 1,
    /** Dimensions that a tensor has at most. */
    SPEC_ATB_MAX_DIMS = 8
};

typedef int32_t spec_atb_status;

/** The shim's own values of a status. */
enum {
    /** A C++ exception was caught; the text is its `what`. */
    SPEC_ATB_ERROR_EXCEPTION = -1,
    /** libatb, or a library it needs, could not be loaded. */
    SPEC_ATB_ERROR_LIBRARY = -2,
    /** libatb was built for the other C++ ABI. */
    SPEC_ATB_ERROR_ABI = -3,
    /** This libatb lacks the function, or the chip the feature. */
    SPEC_ATB_ERROR_UNSUPPORTED = -4,
    /** A pointer that may not be null is. */
    SPEC_ATB_ERROR_NULL = -5
};

/** An `atb::Context`. Opaque. */
typedef struct spec_atb_context spec_atb_context;
/** An `atb::Operation`, single, graph or plugin. Opaque. */
typedef struct spec_atb_operation spec_atb_operation;

/* ---- tensors ---- */

/** Shape of a tensor. */
typedef struct spec_atb_dims {
    int64_t dims[8];
    /** How many of `dims` count: 1 to 8, or 0 for an empty optional tensor. */
    uint64_t dim_num;
} spec_atb_dims;

/** Element type, layout and shape. All zero describes an optional tensor that is left out. */
typedef struct spec_atb_tensor_desc {
    /** An `aclDataType`. */
    int32_t dtype;
    /** An `aclFormat`. */
    int32_t format;
    spec_atb_dims shape;
} spec_atb_tensor_desc;

/** A tensor with its memory. */
typedef struct spec_atb_tensor {
    spec_atb_tensor_desc desc;
    /** On the device. */
    void *device_data;
    /** On the host: what lengths of sequences need beside `device_data`, read at setup. */
    void *host_data;
    /** Exactly what `spec_atb_tensor_size` says. */
    uint64_t data_size;
} spec_atb_tensor;

/** Inputs and outputs of one execution, in the operation's order. */
typedef struct spec_atb_pack {
    const spec_atb_tensor *inputs;
    uint64_t input_count;
    const spec_atb_tensor *outputs;
    uint64_t output_count;
} spec_atb_pack;

/* ---- the library ---- */

/** What `spec_atb_probe` found. */
typedef struct spec_atb_probe_result {
    /** 0 or 1: `_GLIBCXX_USE_CXX11_ABI` of the shim. */
    int32_t shim_cxx11_abi;
    /** 0 or 1: that of libatb, by the symbols it has; -1 when it has neither. */
    int32_t atb_cxx11_abi;
    /** Path of libatb, NUL-terminated, cut when longer. */
    char atb_path[4096];
    /** What libatb says of its version, NUL-terminated. Libraries built from source say `ATBVERSION`. */
    char atb_version[128];
} spec_atb_probe_result;

/** `SPEC_ATB_ABI_VERSION` of the header that the shim was compiled with. Callable before anything else. */
uint32_t spec_atb_abi_version(void);
/** Compares the C++ ABI of the shim and of libatb. -3 when they differ: nothing else may be called then. */
spec_atb_status spec_atb_probe(spec_atb_probe_result *result);
/** Text of the calling thread's last failure, "" when there was none. Valid until the thread calls the shim again. */
const char *spec_atb_last_error(void);
/** Bytes of workspace that an operation may take unless the caller says otherwise, as the shim was built. */
uint64_t spec_atb_workspace_ceiling(void);
/** Bytes that a tensor takes; 0 when `desc` describes none. */
uint64_t spec_atb_tensor_size(const spec_atb_tensor_desc *desc);
/** Turns scales into what a Linear of int8 takes as `uint64` scales: each number's 32 bits, zero-extended. */
spec_atb_status spec_atb_quant_param_convert(const float *source, uint64_t *destination, uint64_t count);

/* ---- contexts ---- */

/** What `Execute` does, per thread. */
typedef enum spec_atb_execute_type {
    SPEC_ATB_EXECUTE_NORMAL = 0,
    /** Prepare only. */
    SPEC_ATB_EXECUTE_PRELAUNCH = 1,
    /** Launch what was prepared. */
    SPEC_ATB_EXECUTE_LAUNCH = 2
} spec_atb_execute_type;

/** How a graph is launched. */
typedef enum spec_atb_launch_mode {
    SPEC_ATB_LAUNCH_KERNELS = 0,
    /** Captured at the first execution; shapes may not change afterwards. */
    SPEC_ATB_LAUNCH_GRAPH = 1
} spec_atb_launch_mode;

/** Allocates `size` bytes on the device; null on failure. */
typedef void *(*spec_atb_allocate)(void *user_data, uint64_t size);
/** Frees what a `spec_atb_allocate` returned. */
typedef void (*spec_atb_deallocate)(void *user_data, void *pointer);

/** How a context is made. All zero is ATB's default. */
typedef struct spec_atb_context_param {
    /** Blocks of 3 MiB for tiling data on the host, 128 to 1024; 0 is the default (ATB 8.5). */
    uint32_t host_tiling_blocks;
    /** The same on the device, 32 to 1024. Not 0 where the other is not. */
    uint32_t device_tiling_blocks;
    /** Memory for tiling data comes from here (ATB 8.2); both or neither, and not with block counts. */
    spec_atb_allocate allocate;
    spec_atb_deallocate deallocate;
    /** Handed to both; lives as long as the context. */
    void *user_data;
} spec_atb_context_param;

/** Makes a context on the current device. It takes 96 MiB there by default. */
spec_atb_status spec_atb_create_context(const spec_atb_context_param *param, spec_atb_context **context);
/** Destroys a context; in graph launch mode after the operations that used it. */
spec_atb_status spec_atb_destroy_context(spec_atb_context *context);
/** The stream (an `aclrtStream`) that operations are put on. */
spec_atb_status spec_atb_set_execute_stream(spec_atb_context *context, void *stream);
/** Several streams, chosen by the operations' stream ids (ATB 8.1). */
spec_atb_status spec_atb_set_execute_streams(spec_atb_context *context, void *const *streams, uint64_t count);
/** Copies tiling data in the stream's order instead of waiting for it. */
spec_atb_status spec_atb_set_async_tiling_copy(spec_atb_context *context, uint32_t enable);
/** What `spec_atb_execute` does on this thread (ATB 8.1). */
spec_atb_status spec_atb_set_execute_type(spec_atb_context *context, spec_atb_execute_type type);
/** How graphs are launched (ATB 8.2). */
spec_atb_status spec_atb_set_launch_mode(spec_atb_context *context, spec_atb_launch_mode mode);

/* ---- operations ---- */

/** Name of an operation into `buffer`, NUL-terminated; `size` bytes at most. */
spec_atb_status spec_atb_operation_name(const spec_atb_operation *operation, char *buffer, uint64_t size);
/** How many inputs and outputs an operation has. */
spec_atb_status spec_atb_operation_arity(const spec_atb_operation *operation, uint32_t *inputs, uint32_t *outputs);
/** Descriptions of the outputs for given inputs. `output_count` has to be the operation's own. */
spec_atb_status spec_atb_infer_shape(const spec_atb_operation *operation, const spec_atb_tensor_desc *inputs,
                                     uint64_t input_count, spec_atb_tensor_desc *outputs, uint64_t output_count);
/** Checks tensors, plans their execution and says how much workspace it takes. Reads the host copies of lengths. */
spec_atb_status spec_atb_setup(spec_atb_operation *operation, const spec_atb_pack *pack, uint64_t *workspace_size,
                               spec_atb_context *context);
/** Puts the planned work on the context's stream. Tensors and workspace live until the stream has passed it. */
spec_atb_status spec_atb_execute(spec_atb_operation *operation, const spec_atb_pack *pack, void *workspace,
                                 uint64_t workspace_size, spec_atb_context *context);
/** Which of the context's streams an operation goes to (ATB 8.1). */
spec_atb_status spec_atb_set_stream_id(spec_atb_operation *operation, uint32_t stream_id);
/** Destroys an operation that no graph has taken. */
spec_atb_status spec_atb_destroy_operation(spec_atb_operation *operation);

/* ---- graphs ---- */

/** Gives an input of a node another shape with as many elements. May be called by any setup of the graph. */
typedef void (*spec_atb_reshape_function)(void *user_data, const spec_atb_dims *old_shape, spec_atb_dims *new_shape);
/** Descriptions of a graph's or plugin's outputs for given inputs. */
typedef spec_atb_status (*spec_atb_infer_shape_function)(void *user_data, const spec_atb_tensor_desc *inputs,
                                                         uint64_t input_count, spec_atb_tensor_desc *outputs,
                                                         uint64_t output_count);
/** Frees what `user_data` points to. Called once. */
typedef void (*spec_atb_release_function)(void *user_data);

/** How a node sees one of its inputs. */
typedef struct spec_atb_view {
    /** Null: as it is. */
    spec_atb_reshape_function reshape;
    /** Lives as long as the graph. */
    void *user_data;
} spec_atb_view;

/** One step of a graph. Tensors are numbered: inputs of the graph, then its outputs, then what is inside. */
typedef struct spec_atb_node {
    /** Taken over by the graph. */
    spec_atb_operation *operation;
    const uint32_t *inputs;
    uint64_t input_count;
    const uint32_t *outputs;
    uint64_t output_count;
    /** One for each input, or null. */
    const spec_atb_view *views;
} spec_atb_node;

/** Operations that run one after the other as one. */
typedef struct spec_atb_graph_param {
    /** NUL-terminated; up to 128 letters, digits and underscores. */
    const char *name;
    const spec_atb_node *nodes;
    /** Up to 1024. */
    uint64_t node_count;
    /** Up to 256, like the next two. */
    uint32_t input_count;
    uint32_t output_count;
    uint32_t internal_count;
    uint32_t reserved;
    /** Null: the nodes tell. */
    spec_atb_infer_shape_function infer_shape;
    /** Handed to `infer_shape`. */
    void *user_data;
    /** Called with `user_data` when the graph is destroyed; may be null. Not called when creating it fails. */
    spec_atb_release_function release;
} spec_atb_graph_param;

/** Makes a graph. On success it owns its nodes' operations; on failure they stay the caller's. */
spec_atb_status spec_atb_create_graph(const spec_atb_graph_param *param, spec_atb_operation **operation);

/* ---- operations of the caller's own ---- */

/** Plans: checks tensors, says how much workspace is needed. Tensors inside a graph have no memory yet. */
typedef spec_atb_status (*spec_atb_plugin_setup)(void *user_data, const spec_atb_pack *pack, uint64_t *workspace_size);
/** Puts work on `stream`. Not to wait for it. */
typedef spec_atb_status (*spec_atb_plugin_execute)(void *user_data, const spec_atb_pack *pack, void *workspace,
                                                   uint64_t workspace_size, void *stream);

/** An operation that is the caller's code, alone or in a graph. */
typedef struct spec_atb_plugin_param {
    /** NUL-terminated. */
    const char *name;
    uint32_t input_count;
    uint32_t output_count;
    spec_atb_infer_shape_function infer_shape;
    spec_atb_plugin_setup setup;
    spec_atb_plugin_execute execute;
    /** Handed to all of them; they may be called on any thread that uses the operation. */
    void *user_data;
    /** Called with `user_data` when the operation is destroyed; may be null. Not called when creating it fails. */
    spec_atb_release_function release;
} spec_atb_plugin_param;

/** Makes an operation of the caller's code. The callbacks may not unwind. */
spec_atb_status spec_atb_create_plugin(const spec_atb_plugin_param *param, spec_atb_operation **operation);

#ifdef __cplusplus
}
#endif

#endif
