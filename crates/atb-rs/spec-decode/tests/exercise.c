/* Calls Verify as atb-rs does, over a libatb that computes. Ends with 0 when everything was as it has to be. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spec_decode.h"

#define HAS(condition)                                                                               \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            fprintf(stderr, "%d: %s; last error: %s\n", __LINE__, #condition, spec_atb_last_error()); \
            return 1;                                                                                \
        }                                                                                            \
    } while (0)

enum { F32 = 0, INT8 = 2, INT32 = 3, BF16 = 27, ND = 2, ROWS = 3, WIDTH = 5 };

static spec_atb_tensor tensor(int32_t dtype, int64_t columns, void *memory, uint64_t size)
{
    spec_atb_tensor made;
    memset(&made, 0, sizeof made);
    made.desc.dtype = dtype;
    made.desc.format = ND;
    made.desc.shape.dims[0] = ROWS;
    made.desc.shape.dims[1] = columns;
    made.desc.shape.dim_num = columns == 0 ? 1 : 2;
    made.device_data = memory;
    made.data_size = size;
    return made;
}

static spec_atb_status run(spec_atb_operation *operation, const spec_atb_pack *pack, spec_atb_context *context)
{
    uint64_t size = 0;
    spec_atb_status status = spec_atb_setup(operation, pack, &size, context);
    if (status != 0) {
        return status;
    }
    void *workspace = malloc(size);
    memset(workspace, 0xFF, size);
    if (spec_atb_execute(operation, pack, workspace, size - 1, context) != 1) {
        status = 1;
    } else {
        status = spec_atb_execute(operation, pack, workspace, size, context);
    }
    free(workspace);
    return status;
}

int main(void)
{
    spec_atb_context_param context_param;
    memset(&context_param, 0, sizeof context_param);
    spec_atb_context *context = NULL;
    HAS(spec_atb_create_context(&context_param, &context) == 0);

    spec_atb_operation *greedy = NULL;
    spec_atb_verify_param param = {SPEC_ATB_VERIFY_GREEDY, 0.5f};
    HAS(spec_atb_create_verify(&param, &greedy) == 1 && greedy == NULL);
    param.inverse_temperature = 1.0f;
    param.rule = (spec_atb_verify_rule)7;
    HAS(spec_atb_create_verify(&param, &greedy) == 1 && greedy == NULL);
    HAS(spec_atb_create_verify(NULL, &greedy) == SPEC_ATB_ERROR_NULL);
    param.rule = SPEC_ATB_VERIFY_GREEDY;
    HAS(spec_atb_create_verify(&param, &greedy) == 0);
    char name[32];
    HAS(spec_atb_operation_name(greedy, name, sizeof name) == 0 && strcmp(name, "VerifyOperation") == 0);
    uint32_t inputs = 0, outputs = 0;
    HAS(spec_atb_operation_arity(greedy, &inputs, &outputs) == 0 && inputs == 1 && outputs == 3);

    float logits[ROWS][WIDTH] = {{0, 3, 1, 2, -1}, {4, 4, 0, 0, 4}, {0, 1, NAN, 2, 3}};
    int32_t tokens[ROWS][2];
    float values[ROWS][2], probabilities[ROWS][2];
    const spec_atb_tensor rows = tensor(F32, WIDTH, logits, sizeof logits);
    spec_atb_tensor verdict[] = {tensor(INT32, 2, tokens, sizeof tokens), tensor(F32, 2, values, sizeof values),
                                 tensor(F32, 2, probabilities, sizeof probabilities)};
    spec_atb_pack pack = {&rows, 1, verdict, 3};
    HAS(spec_atb_execute(greedy, &pack, NULL, 0, context) == 1);
    HAS(run(greedy, &pack, context) == 0);
    HAS(tokens[0][0] == 1 && tokens[0][1] == 3 && values[0][0] == 3 && values[0][1] == 2);
    const double total = exp(-3) + 1 + exp(-2) + exp(-1) + exp(-4);
    HAS(fabs(probabilities[0][0] - 1 / total) < 1e-6 && fabs(probabilities[0][1] - exp(-1) / total) < 1e-6);
    HAS(values[1][0] == 4 && values[1][1] == 4);
    HAS(isnan(probabilities[2][0]) && isnan(probabilities[2][1]));

    /* Statuses as ATB's: numbers, dimensions, sizes, types, shapes. */
    uint64_t size = 0;
    spec_atb_tensor_desc described[3];
    HAS(spec_atb_infer_shape(greedy, &rows.desc, 1, described, 3) == 0);
    for (int at = 0; at < 3; ++at) {
        HAS(memcmp(described + at, &verdict[at].desc, sizeof *described) == 0);
    }
    pack.output_count = 2;
    HAS(spec_atb_setup(greedy, &pack, &size, context) == 5);
    pack.output_count = 3;
    spec_atb_tensor odd = rows;
    pack.inputs = &odd;
    odd.desc.shape.dim_num = 0;
    HAS(spec_atb_setup(greedy, &pack, &size, context) == 8);
    odd = rows, odd.desc.shape.dims[1] = 0;
    HAS(spec_atb_setup(greedy, &pack, &size, context) == 9);
    odd = rows, odd.desc.dtype = INT32;
    HAS(spec_atb_setup(greedy, &pack, &size, context) == 13);
    odd = rows, odd.desc.shape.dims[1] = 1;
    HAS(spec_atb_setup(greedy, &pack, &size, context) == 8);
    pack.inputs = &rows;
    verdict[1].desc.dtype = BF16;
    HAS(spec_atb_setup(greedy, &pack, &size, context) == 13);
    /* A setup that failed leaves nothing to execute. */
    HAS(spec_atb_execute(greedy, &pack, logits, sizeof logits, context) == 1);
    HAS(spec_atb_destroy_operation(greedy) == 0);

    /* bf16 logits, a temperature of 2: p of token 1 is 1 / (1 + e^-1) for a lead of 2. */
    spec_atb_operation *rejection = NULL;
    param.rule = SPEC_ATB_VERIFY_REJECTION;
    param.inverse_temperature = 0.5f;
    HAS(spec_atb_create_verify(&param, &rejection) == 0);
    uint16_t halves[ROWS][2] = {{0x0000, 0x4000}, {0x0000, 0x4000}, {0x4000, 0x4000}};
    int32_t drafted[ROWS] = {1, 1, 0};
    const float p = (float)(1 / (1 + exp(-1)));
    float thresholds[ROWS] = {p - 1e-5f, p + 1e-5f, 2.0f};
    int8_t accepted[ROWS];
    float of_drafted[ROWS];
    const spec_atb_tensor given[] = {tensor(BF16, 2, halves, sizeof halves), tensor(INT32, 0, drafted, sizeof drafted),
                                     tensor(F32, 0, thresholds, sizeof thresholds)};
    const spec_atb_tensor judged[] = {tensor(INT8, 0, accepted, sizeof accepted),
                                      tensor(F32, 0, of_drafted, sizeof of_drafted)};
    const spec_atb_pack draft = {given, 3, judged, 2};
    HAS(run(rejection, &draft, context) == 0);
    HAS(accepted[0] == 1 && accepted[1] == 0 && accepted[2] == 0);
    HAS(fabsf(of_drafted[0] - p) < 1e-6f && fabsf(of_drafted[2] - 0.5f) < 1e-6f);
    HAS(spec_atb_destroy_operation(rejection) == 0);
    HAS(spec_atb_destroy_context(context) == 0);
    return 0;
}
