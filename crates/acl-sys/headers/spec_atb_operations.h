/*
 * C interface of the ATB shim, continued: parameters of the operations, and the functions that make them.
 * The rules at the top of spec_atb.h hold here too.
 */
#ifndef SPEC_ATB_OPERATIONS_H
#define SPEC_ATB_OPERATIONS_H

#include "spec_atb.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Quantisation of a norm's output. */
typedef enum spec_atb_quant_type {
    SPEC_ATB_QUANT_NONE = 0,
    SPEC_ATB_QUANT_INT4 = 1,
    SPEC_ATB_QUANT_INT8 = 2,
    SPEC_ATB_QUANT_INT16 = 3,
    SPEC_ATB_QUANT_FLOAT8 = 4,
    SPEC_ATB_QUANT_FLOAT16 = 5
} spec_atb_quant_type;

/** Quantisation with scales that are found on the way. */
typedef enum spec_atb_dynamic_quant_type {
    SPEC_ATB_DYNAMIC_QUANT_NONE = 0,
    SPEC_ATB_DYNAMIC_QUANT_SYMMETRIC = 1,
    SPEC_ATB_DYNAMIC_QUANT_ASYMMETRIC = 2
} spec_atb_dynamic_quant_type;

/** Order of a tensor's axes: B batch, S sequence, N heads, D head size. */
typedef enum spec_atb_input_layout {
    SPEC_ATB_LAYOUT_BSND = 0,
    SPEC_ATB_LAYOUT_BNSD = 1
} spec_atb_input_layout;

/** Scaling of attention scores by the logarithm of the length. */
typedef enum spec_atb_scale_type {
    SPEC_ATB_SCALE_PLAIN = 0,
    SPEC_ATB_SCALE_LOGN = 1
} spec_atb_scale_type;

/** Quantisation inside an attention. */
typedef enum spec_atb_attention_quant {
    SPEC_ATB_ATTENTION_QUANT_NONE = 0,
    SPEC_ATB_ATTENTION_DEQUANT_FUSION = 1,
    SPEC_ATB_ATTENTION_QUANT_QKV_OFFLINE = 2,
    SPEC_ATB_ATTENTION_QUANT_QKV_ONLINE = 3
} spec_atb_attention_quant;

/** Compression of a cache of keys and values. */
typedef enum spec_atb_compress_type {
    SPEC_ATB_COMPRESS_NONE = 0,
    SPEC_ATB_COMPRESS_KV_HEAD = 1,
    SPEC_ATB_COMPRESS_KV_HEAD_ROPE = 2
} spec_atb_compress_type;

/** Rows of a table by index. */
typedef struct spec_atb_gather_param {
    int64_t axis;
    /** 0 to `axis`. */
    int64_t batch_dims;
} spec_atb_gather_param;

/** What surrounds a norm. */
typedef enum spec_atb_rms_norm_layer {
    /** The norm alone. */
    SPEC_ATB_RMS_NORM = 1,
    /** Of a sum with the residual, which is an output too. */
    SPEC_ATB_RMS_PRE_NORM = 2,
    /** Of a sum with the residual. */
    SPEC_ATB_RMS_POST_NORM = 3
} spec_atb_rms_norm_layer;

/** Precision of a norm's sums. */
typedef enum spec_atb_rms_norm_precision {
    SPEC_ATB_RMS_NORM_HIGH_PRECISION = 0,
    SPEC_ATB_RMS_NORM_HIGH_PERFORMANCE = 1
} spec_atb_rms_norm_precision;

/** How the weight enters a norm. */
typedef enum spec_atb_rms_norm_model {
    /** times gamma */
    SPEC_ATB_RMS_NORM_LLAMA = 0,
    /** times 1 + gamma */
    SPEC_ATB_RMS_NORM_GEMMA = 1
} spec_atb_rms_norm_model;

/** Root-mean-square norm. The fields go to the one of ATB's three parameter sets that `layer` names. */
typedef struct spec_atb_rms_norm_param {
    /** Of the layer norm that dynamic quantisation fuses; 1e-5 where unused. */
    double layer_norm_epsilon;
    spec_atb_rms_norm_layer layer;
    spec_atb_quant_type quant;
    float epsilon;
    spec_atb_rms_norm_precision precision;
    spec_atb_rms_norm_model model;
    spec_atb_dynamic_quant_type dynamic_quant;
    /** Plain norm: 1/rms is a second output. */
    uint32_t has_rstd;
    /** Pre- and post-norm: a bias is an input. */
    uint32_t has_bias;
} spec_atb_rms_norm_param;

/** What kind of product. */
typedef enum spec_atb_matmul_type {
    SPEC_ATB_MATMUL_PLAIN = 0,
    SPEC_ATB_MATMUL_EIN_SUM = 1
} spec_atb_matmul_type;

/** Scales of an int8 product. */
typedef enum spec_atb_linear_quant {
    SPEC_ATB_LINEAR_QUANT_DEFAULT = 0,
    SPEC_ATB_LINEAR_QUANT_PER_CHANNEL = 1,
    /** One more input: a scale for each row of the activations. */
    SPEC_ATB_LINEAR_QUANT_PER_TOKEN = 2
} spec_atb_linear_quant;

/** Matrix product. ATB's own defaults are `transpose_b` 1 and `has_bias` 1. */
typedef struct spec_atb_linear_param {
    uint32_t transpose_a;
    /** The weight is [out, in]. */
    uint32_t transpose_b;
    uint32_t has_bias;
    /** An `aclDataType`; -1 for a product that is not quantised. */
    int32_t out_data_type;
    /** Add into an f32 tensor. */
    uint32_t accumulate;
    spec_atb_matmul_type matmul;
    spec_atb_linear_quant quant;
    uint32_t reserved;
} spec_atb_linear_param;

/** Rotary position embedding. */
typedef struct spec_atb_rope_param {
    /** 2 rotates halves (Llama, Qwen), 4 two independent halves, the head size adjacent pairs. */
    int32_t rotary_coeff;
    /** 0: tables gathered per token; 1: tables by position, read from row 0 for each sequence. */
    int32_t cos_format;
} spec_atb_rope_param;

/** Which caches `spec_atb_create_reshape_and_cache` writes. */
typedef enum spec_atb_cache_config {
    SPEC_ATB_CACHE_KEY_AND_VALUE = 0,
    SPEC_ATB_CACHE_KEY_ONLY = 1,
    /** Both, in NZ layout. */
    SPEC_ATB_CACHE_KEY_AND_VALUE_NZ = 2
} spec_atb_cache_config;

/** Writes keys and values to slots of a paged cache. Cache outputs have to be the cache inputs. */
typedef struct spec_atb_reshape_and_cache_param {
    spec_atb_compress_type compress;
    spec_atb_cache_config cache;
} spec_atb_reshape_and_cache_param;

/** Which attention. */
typedef enum spec_atb_self_attention_calc {
    SPEC_ATB_SELF_ATTENTION_DEFAULT = 0,
    SPEC_ATB_SELF_ATTENTION_ENCODER = 1,
    SPEC_ATB_SELF_ATTENTION_DECODER = 2,
    /** Prefill beside a paged cache. */
    SPEC_ATB_SELF_ATTENTION_PA_ENCODER = 3,
    /** Prefill over a cached prefix. */
    SPEC_ATB_SELF_ATTENTION_PREFIX_ENCODER = 4
} spec_atb_self_attention_calc;

/** Which kernel. The values that a mask holds depend on it. */
typedef enum spec_atb_self_attention_kernel {
    SPEC_ATB_SELF_ATTENTION_KERNEL_DEFAULT = 0,
    SPEC_ATB_SELF_ATTENTION_KERNEL_HIGH_PRECISION = 1,
    /** ATB 9.0. */
    SPEC_ATB_SELF_ATTENTION_KERNEL_EXP_M8V2 = 2
} spec_atb_self_attention_kernel;

/** Which mask. */
typedef enum spec_atb_self_attention_mask {
    SPEC_ATB_SELF_ATTENTION_MASK_NONE = 0,
    SPEC_ATB_SELF_ATTENTION_MASK_NORM = 1,
    SPEC_ATB_SELF_ATTENTION_MASK_ALIBI = 2,
    SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS = 3,
    SPEC_ATB_SELF_ATTENTION_MASK_ALIBI_COMPRESS = 4,
    SPEC_ATB_SELF_ATTENTION_MASK_ALIBI_COMPRESS_SQRT = 5,
    SPEC_ATB_SELF_ATTENTION_MASK_ALIBI_COMPRESS_LEFT_ALIGN = 6,
    SPEC_ATB_SELF_ATTENTION_MASK_SLIDING_WINDOW_NORM = 7,
    SPEC_ATB_SELF_ATTENTION_MASK_SLIDING_WINDOW_COMPRESS = 8,
    /** ATB 8.2. */
    SPEC_ATB_SELF_ATTENTION_MASK_CAUSAL = 9
} spec_atb_self_attention_mask;

/** Attention over keys and values that are inputs. */
typedef struct spec_atb_self_attention_param {
    int32_t head_num;
    /** 0 is `head_num`. */
    int32_t kv_head_num;
    /** Times the query; 1 usually. */
    float q_scale;
    /** Times the scores: 1/sqrt(head size). */
    float qk_scale;
    spec_atb_attention_quant quant;
    /** An `aclDataType`; -1 for an attention that is not quantised. */
    int32_t out_data_type;
    uint32_t batch_run_status_enable;
    /** The mask is triangular: a [128, 128] one serves every length. */
    uint32_t is_triu_mask;
    spec_atb_self_attention_calc calc;
    spec_atb_self_attention_kernel kernel;
    /** Clamp scores to `clamp_min` .. `clamp_max`. */
    uint32_t clamp;
    float clamp_min;
    float clamp_max;
    spec_atb_self_attention_mask mask;
    /** Keys and values need no copy into a cache: they come through one already. */
    uint32_t bypass_cache;
    spec_atb_scale_type scale;
    spec_atb_input_layout layout;
    /** Head size of the values in latent attention; 0 otherwise. */
    uint32_t mla_v_head_size;
    /** The cache is a sliding window of `window_size`. */
    uint32_t sliding_window_cache;
    uint32_t window_size;
} spec_atb_self_attention_param;

/** Which mask. */
typedef enum spec_atb_paged_attention_mask {
    SPEC_ATB_PAGED_ATTENTION_MASK_NONE = 0,
    SPEC_ATB_PAGED_ATTENTION_MASK_NORM = 1,
    SPEC_ATB_PAGED_ATTENTION_MASK_ALIBI = 2,
    /** [sum of query rows, longest context]: any row may see any position. */
    SPEC_ATB_PAGED_ATTENTION_MASK_SPEC = 3,
    /** ATB 8.2. */
    SPEC_ATB_PAGED_ATTENTION_MASK_FREE = 4,
    /** ATB 9.1. */
    SPEC_ATB_PAGED_ATTENTION_MASK_NORM_COMPRESS = 5
} spec_atb_paged_attention_mask;

/** How many query rows a sequence has. */
typedef enum spec_atb_paged_attention_calc {
    /** One: plain decoding. */
    SPEC_ATB_PAGED_ATTENTION_DECODE = 0,
    /** Several: verification of drafts. One more input, the number of rows. */
    SPEC_ATB_PAGED_ATTENTION_SPEC = 1
} spec_atb_paged_attention_calc;

/** Attention over a paged cache. */
typedef struct spec_atb_paged_attention_param {
    int32_t head_num;
    /** 0 is `head_num`. */
    int32_t kv_head_num;
    /** Times the scores: 1/sqrt(head size). */
    float qk_scale;
    /** Times the query; 0 leaves it alone (ATB 8.5). */
    float q_scale;
    spec_atb_paged_attention_mask mask;
    spec_atb_paged_attention_calc calc;
    uint32_t batch_run_status_enable;
    spec_atb_attention_quant quant;
    /** An `aclDataType`; -1 for an attention that is not quantised. */
    int32_t out_data_type;
    uint32_t has_quant_offset;
    spec_atb_compress_type compress;
    spec_atb_scale_type scale;
    spec_atb_input_layout layout;
    /** Head size of the values in latent attention; 0 otherwise. */
    uint32_t mla_v_head_size;
} spec_atb_paged_attention_param;

/** Which function. */
typedef enum spec_atb_activation_type {
    SPEC_ATB_ACTIVATION_RELU = 1,
    SPEC_ATB_ACTIVATION_GELU = 2,
    SPEC_ATB_ACTIVATION_FAST_GELU = 3,
    /** x * sigmoid(scale * x) */
    SPEC_ATB_ACTIVATION_SWISH = 4,
    SPEC_ATB_ACTIVATION_LOG = 5,
    /** Of a packed [gate, up]: silu(gate) * up. */
    SPEC_ATB_ACTIVATION_SWIGLU_FORWARD = 6,
    SPEC_ATB_ACTIVATION_SWIGLU_BACKWARD = 7,
    SPEC_ATB_ACTIVATION_SIGMOID = 8,
    SPEC_ATB_ACTIVATION_FASTER_GELU_FORWARD = 9
} spec_atb_activation_type;

/** A function of each element. */
typedef struct spec_atb_activation_param {
    spec_atb_activation_type type;
    /** Of SWISH; 1 otherwise. */
    float scale;
    /** Axis that SWIGLU halves; -1 is the last, and the only one that is supported. */
    int32_t dim;
    /** GELU without the tanh approximation. */
    uint32_t exact_gelu;
} spec_atb_activation_param;

/** Which function. */
typedef enum spec_atb_elewise_type {
    SPEC_ATB_ELEWISE_CAST = 1,
    SPEC_ATB_ELEWISE_MULS = 2,
    SPEC_ATB_ELEWISE_COS = 3,
    SPEC_ATB_ELEWISE_SIN = 4,
    SPEC_ATB_ELEWISE_NEG = 5,
    SPEC_ATB_ELEWISE_QUANT = 6,
    SPEC_ATB_ELEWISE_LOGICAL_NOT = 7,
    SPEC_ATB_ELEWISE_ADD = 8,
    SPEC_ATB_ELEWISE_MUL = 9,
    SPEC_ATB_ELEWISE_REALDIV = 10,
    SPEC_ATB_ELEWISE_LOGICAL_AND = 11,
    SPEC_ATB_ELEWISE_LOGICAL_OR = 12,
    SPEC_ATB_ELEWISE_LESS = 13,
    SPEC_ATB_ELEWISE_GREATER = 14,
    SPEC_ATB_ELEWISE_SUB = 15,
    SPEC_ATB_ELEWISE_EQUAL = 16,
    SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL = 17,
    SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL = 18,
    SPEC_ATB_ELEWISE_DYNAMIC_QUANT = 19,
    SPEC_ATB_ELEWISE_TANH = 20
} spec_atb_elewise_type;

/** A function of one or two elements, with broadcasting. */
typedef struct spec_atb_elewise_param {
    spec_atb_elewise_type type;
    /** An `aclDataType`: the target of CAST; -1 otherwise. */
    int32_t out_data_type;
    /** The factor of MULS. */
    float factor;
    /** Of QUANT; 1 otherwise. */
    float quant_scale;
    /** Of QUANT; 0 otherwise. */
    int32_t quant_offset;
    /** Quantise with an offset. */
    uint32_t quant_asymmetric;
} spec_atb_elewise_param;

/** Softmax over neighbouring axes. */
typedef struct spec_atb_softmax_param {
    /** Ascending; -1 alone is the last. */
    int64_t axes[8];
    uint64_t axis_count;
} spec_atb_softmax_param;

/** The largest elements of the last axis, in descending order, with their indices. */
typedef struct spec_atb_sort_param {
    /** How many. 1 is an argmax. */
    int32_t count;
    uint32_t reserved;
} spec_atb_sort_param;

/** Which reduction. */
typedef enum spec_atb_reduce_type {
    SPEC_ATB_REDUCE_MAX = 1,
    SPEC_ATB_REDUCE_MIN = 2,
    SPEC_ATB_REDUCE_SUM = 3
} spec_atb_reduce_type;

/** Reduction over axes, which go away. */
typedef struct spec_atb_reduce_param {
    /** Not negative. */
    int64_t axes[8];
    uint64_t axis_count;
    spec_atb_reduce_type type;
    uint32_t reserved;
} spec_atb_reduce_param;

/** Draws from rows of probabilities. */
typedef struct spec_atb_multinomial_param {
    /** 1 to 64. */
    uint32_t sample_count;
    uint32_t seed;
} spec_atb_multinomial_param;

/** How to draw, and with whose randomness. */
typedef enum spec_atb_sampling_type {
    /** One top-k for all rows, in the parameter. */
    SPEC_ATB_SAMPLING_SINGLE_TOPK = 0,
    /** Row by row, a seed each. */
    SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL = 1,
    /** Row by row, with a tensor of exponential noise. */
    SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL = 2,
    /** Row by row, with a tensor of uniform numbers; log-probabilities are an output. */
    SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS = 3,
    /** As BATCH_EXPONENTIAL; log-probabilities are an output. */
    SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL_LOGPROBS = 4
} spec_atb_sampling_type;

/** Draws from the likeliest of a row. */
typedef struct spec_atb_sampling_param {
    /** A seed for each row, for BATCH_MULTINOMIAL. Copied. */
    const uint32_t *seeds;
    uint64_t seed_count;
    spec_atb_sampling_type type;
    /** For SINGLE_TOPK. 0xFFFFFFFF takes the time. */
    uint32_t seed;
    /** For SINGLE_TOPK: how many are kept. The tensor of the other types holds this less 1. */
    uint32_t topk;
    /** How many log-probabilities are an output. */
    int32_t log_probs_size;
} spec_atb_sampling_param;

/** Cuts a tensor in 2 or 3 along an axis. */
typedef struct spec_atb_split_param {
    int32_t dim;
    /** 2 or 3. */
    int32_t count;
    /** Length of each piece; all 0 for equal ones. */
    int32_t sizes[4];
} spec_atb_split_param;

/** Which way. */
typedef enum spec_atb_transdata_type {
    SPEC_ATB_TRANSDATA_NZ_TO_ND = 1,
    SPEC_ATB_TRANSDATA_ND_TO_NZ = 2
} spec_atb_transdata_type;

/** Changes a tensor's layout. */
typedef struct spec_atb_transdata_param {
    /** Last two lengths of the result, for NZ_TO_ND. */
    int64_t out_crops[2];
    spec_atb_transdata_type type;
    uint32_t reserved;
} spec_atb_transdata_param;

/** What an event operation does. */
typedef enum spec_atb_event_action {
    SPEC_ATB_EVENT_RECORD = 1,
    /** Wait, then reset: the event has to be made with `ACL_EVENT_SYNC`. */
    SPEC_ATB_EVENT_WAIT = 2
} spec_atb_event_action;

/** An event in a graph; no inputs, no outputs (ATB 8.1). */
typedef struct spec_atb_event_param {
    /** An `aclrtEvent`, which lives as long as the operation. */
    void *event;
    spec_atb_event_action action;
    uint32_t reserved;
} spec_atb_event_param;

/** Makes a Gather operation. */
spec_atb_status spec_atb_create_gather(const spec_atb_gather_param *param, spec_atb_operation **operation);
/** Makes a RmsNorm operation. */
spec_atb_status spec_atb_create_rms_norm(const spec_atb_rms_norm_param *param, spec_atb_operation **operation);
/** Makes a Linear operation. */
spec_atb_status spec_atb_create_linear(const spec_atb_linear_param *param, spec_atb_operation **operation);
/** Makes a Rope operation. */
spec_atb_status spec_atb_create_rope(const spec_atb_rope_param *param, spec_atb_operation **operation);
/** Makes a ReshapeAndCache operation. */
spec_atb_status spec_atb_create_reshape_and_cache(const spec_atb_reshape_and_cache_param *param,
                                                  spec_atb_operation **operation);
/** Makes a SelfAttention operation. */
spec_atb_status spec_atb_create_self_attention(const spec_atb_self_attention_param *param,
                                               spec_atb_operation **operation);
/** Makes a PagedAttention operation. */
spec_atb_status spec_atb_create_paged_attention(const spec_atb_paged_attention_param *param,
                                                spec_atb_operation **operation);
/** Makes a Activation operation. */
spec_atb_status spec_atb_create_activation(const spec_atb_activation_param *param, spec_atb_operation **operation);
/** Makes a Elewise operation. */
spec_atb_status spec_atb_create_elewise(const spec_atb_elewise_param *param, spec_atb_operation **operation);
/** Makes a Softmax operation. */
spec_atb_status spec_atb_create_softmax(const spec_atb_softmax_param *param, spec_atb_operation **operation);
/** Makes a Sort operation. */
spec_atb_status spec_atb_create_sort(const spec_atb_sort_param *param, spec_atb_operation **operation);
/** Makes a Reduce operation. */
spec_atb_status spec_atb_create_reduce(const spec_atb_reduce_param *param, spec_atb_operation **operation);
/** Makes a Multinomial operation. */
spec_atb_status spec_atb_create_multinomial(const spec_atb_multinomial_param *param, spec_atb_operation **operation);
/** Makes a TopkToppSampling operation. */
spec_atb_status spec_atb_create_sampling(const spec_atb_sampling_param *param, spec_atb_operation **operation);
/** Makes a Split operation. */
spec_atb_status spec_atb_create_split(const spec_atb_split_param *param, spec_atb_operation **operation);
/** Makes a Transdata operation. */
spec_atb_status spec_atb_create_transdata(const spec_atb_transdata_param *param, spec_atb_operation **operation);
/** Makes a Event operation. */
spec_atb_status spec_atb_create_event(const spec_atb_event_param *param, spec_atb_operation **operation);
/** Changes the parameter of a Sort, for the next setup. */
spec_atb_status spec_atb_update_sort(spec_atb_operation *operation, const spec_atb_sort_param *param);
/** Changes the parameter of a sampling operation, such as its seeds, for the next setup. */
spec_atb_status spec_atb_update_sampling(spec_atb_operation *operation, const spec_atb_sampling_param *param);

#ifdef __cplusplus
}
#endif

#endif
