/* Calls the shim as atb-rs does, over a libatb that does nothing. Ends with 0 when everything was as it has to be. With
 * the argument `mismatch` it expects a libatb of the other C++ ABI. */
#include <stdio.h>
#include <string.h>

#include "spec_atb_operations.h"

#define HAS(condition)                                                                               \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            fprintf(stderr, "%d: %s; last error: %s\n", __LINE__, #condition, spec_atb_last_error()); \
            return 1;                                                                                \
        }                                                                                            \
    } while (0)

static int released = 0;
static void release(void *user_data)
{
    released += *(int *)user_data;
}

static void flatten(void *user_data, const spec_atb_dims *old_shape, spec_atb_dims *new_shape)
{
    (void)user_data;
    memset(new_shape, 0, sizeof *new_shape);
    new_shape->dims[0] = old_shape->dims[0] * old_shape->dims[1];
    new_shape->dim_num = 1;
}

static spec_atb_status as_input(void *user_data, const spec_atb_tensor_desc *inputs, uint64_t input_count,
                                spec_atb_tensor_desc *outputs, uint64_t output_count)
{
    (void)user_data;
    for (uint64_t at = 0; at < output_count; ++at) {
        outputs[at] = inputs[input_count - 1];
    }
    return 0;
}

static spec_atb_status plan(void *user_data, const spec_atb_pack *pack, uint64_t *workspace_size)
{
    (void)user_data;
    *workspace_size = pack->input_count;
    return 0;
}

static void *seen_stream = NULL;
static spec_atb_status queue(void *user_data, const spec_atb_pack *pack, void *workspace, uint64_t workspace_size,
                             void *stream)
{
    (void)user_data, (void)pack, (void)workspace, (void)workspace_size;
    seen_stream = stream;
    return 0;
}

int main(int argc, char **argv)
{
    static spec_atb_probe_result found;
    HAS(spec_atb_abi_version() == SPEC_ATB_ABI_VERSION);
    HAS(spec_atb_workspace_ceiling() == (uint64_t)2048 << 20);
    const spec_atb_status probed = spec_atb_probe(&found);
    HAS(strstr(found.atb_path, "libatb.so") != NULL);
    spec_atb_linear_param linear = {0, 1, 0, -1, 0, SPEC_ATB_MATMUL_PLAIN, SPEC_ATB_LINEAR_QUANT_DEFAULT, 0};
    spec_atb_operation *one = NULL;
    if (argc > 1 && strcmp(argv[1], "mismatch") == 0) {
        HAS(probed == SPEC_ATB_ERROR_ABI && found.shim_cxx11_abi != found.atb_cxx11_abi);
        HAS(found.atb_version[0] == '\0');
        HAS(spec_atb_create_linear(&linear, &one) == SPEC_ATB_ERROR_ABI && one == NULL);
        HAS(strstr(spec_atb_last_error(), "cxx_abi_") != NULL);
        return 0;
    }
    HAS(probed == 0 && found.shim_cxx11_abi == found.atb_cxx11_abi);
    HAS(strcmp(found.atb_version, "of the test") == 0);

    spec_atb_context_param param;
    memset(&param, 0, sizeof param);
    spec_atb_context *context = NULL;
    int stream = 0;
    HAS(spec_atb_create_context(&param, &context) == 0);
    HAS(spec_atb_set_execute_stream(context, &stream) == 0);
    HAS(spec_atb_create_context(NULL, &context) == SPEC_ATB_ERROR_NULL);
    /* This libatb is older than 8.1. */
    HAS(spec_atb_set_execute_type(context, SPEC_ATB_EXECUTE_LAUNCH) == SPEC_ATB_ERROR_UNSUPPORTED);
    HAS(spec_atb_set_launch_mode(context, SPEC_ATB_LAUNCH_GRAPH) == SPEC_ATB_ERROR_UNSUPPORTED);
    param.host_tiling_blocks = param.device_tiling_blocks = 128;
    HAS(spec_atb_create_context(&param, &context) == SPEC_ATB_ERROR_UNSUPPORTED);
    param.device_tiling_blocks = 0;
    HAS(spec_atb_create_context(&param, &context) == 1);

    /* Truth values and enumerations that ATB keeps in 8 bits are not cut. */
    linear.has_bias = 256;
    HAS(spec_atb_create_linear(&linear, &one) == SPEC_ATB_ERROR_EXCEPTION && one == NULL);
    HAS(strstr(spec_atb_last_error(), "has_bias") != NULL);
    linear.has_bias = 0;
    linear.quant = (spec_atb_linear_quant)(256 + 2);
    HAS(spec_atb_create_linear(&linear, &one) == SPEC_ATB_ERROR_EXCEPTION);
    linear.quant = SPEC_ATB_LINEAR_QUANT_PER_TOKEN;
    linear.reserved = 1;
    HAS(spec_atb_create_linear(&linear, &one) == SPEC_ATB_ERROR_EXCEPTION);
    linear.reserved = 0;
    HAS(spec_atb_create_linear(&linear, &one) == 0);
    HAS(spec_atb_last_error()[0] == '\0');
    char name[5];
    HAS(spec_atb_operation_name(one, name, sizeof name) == 0 && strcmp(name, "PerT") == 0);
    spec_atb_gather_param gather = {0, 0};
    spec_atb_operation *none = NULL;
    HAS(spec_atb_create_gather(&gather, &none) == SPEC_ATB_ERROR_UNSUPPORTED && none == NULL);

    spec_atb_tensor_desc desc = {1, 2, {{3, 5, 0, 0, 0, 0, 0, 0}, 2}};
    spec_atb_tensor_desc output;
    HAS(spec_atb_tensor_size(&desc) == 30 && spec_atb_tensor_size(NULL) == 0);
    HAS(spec_atb_infer_shape(one, &desc, 1, &output, 1) == 0 && memcmp(&desc, &output, sizeof desc) == 0);
    HAS(spec_atb_infer_shape(one, &desc, 1, &output, 2) == 15);
    HAS(spec_atb_infer_shape(one, NULL, 0, &output, 1) == SPEC_ATB_ERROR_EXCEPTION);
    HAS(strstr(spec_atb_last_error(), "there are no inputs") != NULL);
    desc.shape.dim_num = 9;
    HAS(spec_atb_infer_shape(one, &desc, 1, &output, 1) == SPEC_ATB_ERROR_EXCEPTION);
    desc.shape.dim_num = 2;
    float scale = 1.0f;
    uint64_t bits = ~0ull;
    HAS(spec_atb_quant_param_convert(&scale, &bits, 1) == 0 && bits == 0x3f800000);

    /* More tensors than ATB's vector holds in itself, and more than it holds at all. */
    static spec_atb_tensor many[300];
    for (int at = 0; at < 300; ++at) {
        many[at].desc = desc;
        many[at].data_size = (uint64_t)at;
    }
    spec_atb_sort_param sort = {7, 0};
    spec_atb_operation *wide = NULL;
    HAS(spec_atb_create_sort(&sort, &wide) == 0);
    spec_atb_pack pack = {many, 200, many, 1};
    uint64_t size = 0;
    HAS(spec_atb_setup(wide, &pack, &size, context) == 0 && size == 200 * 1000 + 199);
    pack.input_count = 257;
    HAS(spec_atb_setup(wide, &pack, &size, context) == SPEC_ATB_ERROR_EXCEPTION && size == 200199);
    pack.input_count = 1;
    HAS(spec_atb_execute(wide, &pack, NULL, 0, context) == 4);
    HAS(spec_atb_update_sort(wide, &sort) == SPEC_ATB_ERROR_UNSUPPORTED);
    HAS(spec_atb_destroy_operation(wide) == 0);

    /* A graph of an operation and of the caller's own code; on failure they stay the caller's. */
    int value = 1;
    spec_atb_plugin_param own = {"own", 1, 1, as_input, plan, queue, &value, release};
    spec_atb_operation *plugin = NULL;
    HAS(spec_atb_create_plugin(&own, &plugin) == 0);
    const uint32_t ids[] = {0, 1, 2};
    const spec_atb_view views[] = {{flatten, NULL}, {NULL, NULL}};
    const spec_atb_node nodes[] = {{plugin, ids, 1, ids + 2, 1, views}, {one, ids, 2, ids + 2, 1, NULL}};
    int graph_value = 10;
    spec_atb_graph_param graph = {"refused", nodes, 2, 2, 1, 0, 0, as_input, &graph_value, release};
    spec_atb_operation *whole = NULL;
    HAS(spec_atb_create_graph(&graph, &whole) == 2 && whole == NULL && released == 0);
    graph.name = "whole";
    HAS(spec_atb_create_graph(&graph, &whole) == 0);
    HAS(spec_atb_infer_shape(whole, &desc, 1, &output, 1) == 0 && memcmp(&desc, &output, sizeof desc) == 0);
    HAS(spec_atb_setup(whole, &pack, &size, context) == 0 && size == 15);
    HAS(spec_atb_execute(whole, &pack, NULL, 0, context) == 0 && seen_stream == &stream);
    uint32_t inputs = 0, outputs = 0;
    HAS(spec_atb_operation_arity(whole, &inputs, &outputs) == 0 && inputs == 2 && outputs == 1);
    HAS(spec_atb_destroy_operation(whole) == 0 && released == 11);
    HAS(spec_atb_destroy_operation(NULL) == SPEC_ATB_ERROR_NULL);
    HAS(spec_atb_destroy_context(context) == 0);
    return 0;
}
