//! Made from `headers/spec_atb_operations.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use super::spec_atb::*;
use crate::Status;
use crate::table::{functions, layout};
use core::ffi::{c_uint, c_void};

pub const SPEC_ATB_QUANT_NONE: spec_atb_quant_type = spec_atb_quant_type(0);
pub const SPEC_ATB_QUANT_INT4: spec_atb_quant_type = spec_atb_quant_type(1);
pub const SPEC_ATB_QUANT_INT8: spec_atb_quant_type = spec_atb_quant_type(2);
pub const SPEC_ATB_QUANT_INT16: spec_atb_quant_type = spec_atb_quant_type(3);
pub const SPEC_ATB_QUANT_FLOAT8: spec_atb_quant_type = spec_atb_quant_type(4);
pub const SPEC_ATB_QUANT_FLOAT16: spec_atb_quant_type = spec_atb_quant_type(5);
/// Quantisation of a norm's output.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_quant_type(pub c_uint);
pub const SPEC_ATB_DYNAMIC_QUANT_NONE: spec_atb_dynamic_quant_type = spec_atb_dynamic_quant_type(0);
pub const SPEC_ATB_DYNAMIC_QUANT_SYMMETRIC: spec_atb_dynamic_quant_type = spec_atb_dynamic_quant_type(1);
pub const SPEC_ATB_DYNAMIC_QUANT_ASYMMETRIC: spec_atb_dynamic_quant_type = spec_atb_dynamic_quant_type(2);
/// Quantisation with scales that are found on the way.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_dynamic_quant_type(pub c_uint);
pub const SPEC_ATB_LAYOUT_BSND: spec_atb_input_layout = spec_atb_input_layout(0);
pub const SPEC_ATB_LAYOUT_BNSD: spec_atb_input_layout = spec_atb_input_layout(1);
/// Order of a tensor's axes: B batch, S sequence, N heads, D head size.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_input_layout(pub c_uint);
pub const SPEC_ATB_SCALE_PLAIN: spec_atb_scale_type = spec_atb_scale_type(0);
pub const SPEC_ATB_SCALE_LOGN: spec_atb_scale_type = spec_atb_scale_type(1);
/// Scaling of attention scores by the logarithm of the length.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_scale_type(pub c_uint);
pub const SPEC_ATB_ATTENTION_QUANT_NONE: spec_atb_attention_quant = spec_atb_attention_quant(0);
pub const SPEC_ATB_ATTENTION_DEQUANT_FUSION: spec_atb_attention_quant = spec_atb_attention_quant(1);
pub const SPEC_ATB_ATTENTION_QUANT_QKV_OFFLINE: spec_atb_attention_quant = spec_atb_attention_quant(2);
pub const SPEC_ATB_ATTENTION_QUANT_QKV_ONLINE: spec_atb_attention_quant = spec_atb_attention_quant(3);
/// Quantisation inside an attention.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_attention_quant(pub c_uint);
pub const SPEC_ATB_COMPRESS_NONE: spec_atb_compress_type = spec_atb_compress_type(0);
pub const SPEC_ATB_COMPRESS_KV_HEAD: spec_atb_compress_type = spec_atb_compress_type(1);
pub const SPEC_ATB_COMPRESS_KV_HEAD_ROPE: spec_atb_compress_type = spec_atb_compress_type(2);
/// Compression of a cache of keys and values.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_compress_type(pub c_uint);
/// Rows of a table by index.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_gather_param {
    pub axis: i64,
    /// 0 to `axis`.
    pub batch_dims: i64,
}
/// The norm alone.
pub const SPEC_ATB_RMS_NORM: spec_atb_rms_norm_layer = spec_atb_rms_norm_layer(1);
/// Of a sum with the residual, which is an output too.
pub const SPEC_ATB_RMS_PRE_NORM: spec_atb_rms_norm_layer = spec_atb_rms_norm_layer(2);
/// Of a sum with the residual.
pub const SPEC_ATB_RMS_POST_NORM: spec_atb_rms_norm_layer = spec_atb_rms_norm_layer(3);
/// What surrounds a norm.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_rms_norm_layer(pub c_uint);
pub const SPEC_ATB_RMS_NORM_HIGH_PRECISION: spec_atb_rms_norm_precision = spec_atb_rms_norm_precision(0);
pub const SPEC_ATB_RMS_NORM_HIGH_PERFORMANCE: spec_atb_rms_norm_precision = spec_atb_rms_norm_precision(1);
/// Precision of a norm's sums.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_rms_norm_precision(pub c_uint);
/// times gamma
pub const SPEC_ATB_RMS_NORM_LLAMA: spec_atb_rms_norm_model = spec_atb_rms_norm_model(0);
/// times 1 + gamma
pub const SPEC_ATB_RMS_NORM_GEMMA: spec_atb_rms_norm_model = spec_atb_rms_norm_model(1);
/// How the weight enters a norm.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_rms_norm_model(pub c_uint);
/// Root-mean-square norm. The fields go to the one of ATB's three parameter sets that `layer` names.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_rms_norm_param {
    /// Of the layer norm that dynamic quantisation fuses; 1e-5 where unused.
    pub layer_norm_epsilon: f64,
    pub layer: spec_atb_rms_norm_layer,
    pub quant: spec_atb_quant_type,
    pub epsilon: f32,
    pub precision: spec_atb_rms_norm_precision,
    pub model: spec_atb_rms_norm_model,
    pub dynamic_quant: spec_atb_dynamic_quant_type,
    /// Plain norm: 1/rms is a second output.
    pub has_rstd: u32,
    /// Pre- and post-norm: a bias is an input.
    pub has_bias: u32,
}
pub const SPEC_ATB_MATMUL_PLAIN: spec_atb_matmul_type = spec_atb_matmul_type(0);
pub const SPEC_ATB_MATMUL_EIN_SUM: spec_atb_matmul_type = spec_atb_matmul_type(1);
/// What kind of product.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_matmul_type(pub c_uint);
pub const SPEC_ATB_LINEAR_QUANT_DEFAULT: spec_atb_linear_quant = spec_atb_linear_quant(0);
pub const SPEC_ATB_LINEAR_QUANT_PER_CHANNEL: spec_atb_linear_quant = spec_atb_linear_quant(1);
/// One more input: a scale for each row of the activations.
pub const SPEC_ATB_LINEAR_QUANT_PER_TOKEN: spec_atb_linear_quant = spec_atb_linear_quant(2);
/// Scales of an int8 product.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_linear_quant(pub c_uint);
/// Matrix product. ATB's own defaults are `transpose_b` 1 and `has_bias` 1.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_linear_param {
    pub transpose_a: u32,
    /// The weight is [out, in].
    pub transpose_b: u32,
    pub has_bias: u32,
    /// An `aclDataType`; -1 for a product that is not quantised.
    pub out_data_type: i32,
    /// Add into an f32 tensor.
    pub accumulate: u32,
    pub matmul: spec_atb_matmul_type,
    pub quant: spec_atb_linear_quant,
    pub reserved: u32,
}
/// Rotary position embedding.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_rope_param {
    /// 2 rotates halves (Llama, Qwen), 4 two independent halves, the head size adjacent pairs.
    pub rotary_coeff: i32,
    /// 0: tables gathered per token; 1: tables by position, read from row 0 for each sequence.
    pub cos_format: i32,
}
pub const SPEC_ATB_CACHE_KEY_AND_VALUE: spec_atb_cache_config = spec_atb_cache_config(0);
pub const SPEC_ATB_CACHE_KEY_ONLY: spec_atb_cache_config = spec_atb_cache_config(1);
/// Both, in NZ layout.
pub const SPEC_ATB_CACHE_KEY_AND_VALUE_NZ: spec_atb_cache_config = spec_atb_cache_config(2);
/// Which caches `spec_atb_create_reshape_and_cache` writes.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_cache_config(pub c_uint);
/// Writes keys and values to slots of a paged cache. Cache outputs have to be the cache inputs.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_reshape_and_cache_param {
    pub compress: spec_atb_compress_type,
    pub cache: spec_atb_cache_config,
}
pub const SPEC_ATB_SELF_ATTENTION_DEFAULT: spec_atb_self_attention_calc = spec_atb_self_attention_calc(0);
pub const SPEC_ATB_SELF_ATTENTION_ENCODER: spec_atb_self_attention_calc = spec_atb_self_attention_calc(1);
pub const SPEC_ATB_SELF_ATTENTION_DECODER: spec_atb_self_attention_calc = spec_atb_self_attention_calc(2);
/// Prefill beside a paged cache.
pub const SPEC_ATB_SELF_ATTENTION_PA_ENCODER: spec_atb_self_attention_calc = spec_atb_self_attention_calc(3);
/// Prefill over a cached prefix.
pub const SPEC_ATB_SELF_ATTENTION_PREFIX_ENCODER: spec_atb_self_attention_calc = spec_atb_self_attention_calc(4);
/// Which attention.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_self_attention_calc(pub c_uint);
pub const SPEC_ATB_SELF_ATTENTION_KERNEL_DEFAULT: spec_atb_self_attention_kernel = spec_atb_self_attention_kernel(0);
pub const SPEC_ATB_SELF_ATTENTION_KERNEL_HIGH_PRECISION: spec_atb_self_attention_kernel =
    spec_atb_self_attention_kernel(1);
/// ATB 9.0.
pub const SPEC_ATB_SELF_ATTENTION_KERNEL_EXP_M8V2: spec_atb_self_attention_kernel = spec_atb_self_attention_kernel(2);
/// Which kernel. The values that a mask holds depend on it.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_self_attention_kernel(pub c_uint);
pub const SPEC_ATB_SELF_ATTENTION_MASK_NONE: spec_atb_self_attention_mask = spec_atb_self_attention_mask(0);
pub const SPEC_ATB_SELF_ATTENTION_MASK_NORM: spec_atb_self_attention_mask = spec_atb_self_attention_mask(1);
pub const SPEC_ATB_SELF_ATTENTION_MASK_ALIBI: spec_atb_self_attention_mask = spec_atb_self_attention_mask(2);
pub const SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS: spec_atb_self_attention_mask = spec_atb_self_attention_mask(3);
pub const SPEC_ATB_SELF_ATTENTION_MASK_ALIBI_COMPRESS: spec_atb_self_attention_mask = spec_atb_self_attention_mask(4);
pub const SPEC_ATB_SELF_ATTENTION_MASK_ALIBI_COMPRESS_SQRT: spec_atb_self_attention_mask =
    spec_atb_self_attention_mask(5);
pub const SPEC_ATB_SELF_ATTENTION_MASK_ALIBI_COMPRESS_LEFT_ALIGN: spec_atb_self_attention_mask =
    spec_atb_self_attention_mask(6);
pub const SPEC_ATB_SELF_ATTENTION_MASK_SLIDING_WINDOW_NORM: spec_atb_self_attention_mask =
    spec_atb_self_attention_mask(7);
pub const SPEC_ATB_SELF_ATTENTION_MASK_SLIDING_WINDOW_COMPRESS: spec_atb_self_attention_mask =
    spec_atb_self_attention_mask(8);
/// ATB 8.2.
pub const SPEC_ATB_SELF_ATTENTION_MASK_CAUSAL: spec_atb_self_attention_mask = spec_atb_self_attention_mask(9);
/// Which mask.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_self_attention_mask(pub c_uint);
/// Attention over keys and values that are inputs.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_self_attention_param {
    pub head_num: i32,
    /// 0 is `head_num`.
    pub kv_head_num: i32,
    /// Times the query; 1 usually.
    pub q_scale: f32,
    /// Times the scores: 1/sqrt(head size).
    pub qk_scale: f32,
    pub quant: spec_atb_attention_quant,
    /// An `aclDataType`; -1 for an attention that is not quantised.
    pub out_data_type: i32,
    pub batch_run_status_enable: u32,
    /// The mask is triangular: a [128, 128] one serves every length.
    pub is_triu_mask: u32,
    pub calc: spec_atb_self_attention_calc,
    pub kernel: spec_atb_self_attention_kernel,
    /// Clamp scores to `clamp_min` .. `clamp_max`.
    pub clamp: u32,
    pub clamp_min: f32,
    pub clamp_max: f32,
    pub mask: spec_atb_self_attention_mask,
    /// Keys and values need no copy into a cache: they come through one already.
    pub bypass_cache: u32,
    pub scale: spec_atb_scale_type,
    pub layout: spec_atb_input_layout,
    /// Head size of the values in latent attention; 0 otherwise.
    pub mla_v_head_size: u32,
    /// The cache is a sliding window of `window_size`.
    pub sliding_window_cache: u32,
    pub window_size: u32,
}
pub const SPEC_ATB_PAGED_ATTENTION_MASK_NONE: spec_atb_paged_attention_mask = spec_atb_paged_attention_mask(0);
pub const SPEC_ATB_PAGED_ATTENTION_MASK_NORM: spec_atb_paged_attention_mask = spec_atb_paged_attention_mask(1);
pub const SPEC_ATB_PAGED_ATTENTION_MASK_ALIBI: spec_atb_paged_attention_mask = spec_atb_paged_attention_mask(2);
/// [sum of query rows, longest context]: any row may see any position.
pub const SPEC_ATB_PAGED_ATTENTION_MASK_SPEC: spec_atb_paged_attention_mask = spec_atb_paged_attention_mask(3);
/// ATB 8.2.
pub const SPEC_ATB_PAGED_ATTENTION_MASK_FREE: spec_atb_paged_attention_mask = spec_atb_paged_attention_mask(4);
/// ATB 9.1.
pub const SPEC_ATB_PAGED_ATTENTION_MASK_NORM_COMPRESS: spec_atb_paged_attention_mask = spec_atb_paged_attention_mask(5);
/// Which mask.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_paged_attention_mask(pub c_uint);
/// One: plain decoding.
pub const SPEC_ATB_PAGED_ATTENTION_DECODE: spec_atb_paged_attention_calc = spec_atb_paged_attention_calc(0);
/// Several: verification of drafts. One more input, the number of rows.
pub const SPEC_ATB_PAGED_ATTENTION_SPEC: spec_atb_paged_attention_calc = spec_atb_paged_attention_calc(1);
/// How many query rows a sequence has.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_paged_attention_calc(pub c_uint);
/// Attention over a paged cache.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_paged_attention_param {
    pub head_num: i32,
    /// 0 is `head_num`.
    pub kv_head_num: i32,
    /// Times the scores: 1/sqrt(head size).
    pub qk_scale: f32,
    /// Times the query; 0 leaves it alone (ATB 8.5).
    pub q_scale: f32,
    pub mask: spec_atb_paged_attention_mask,
    pub calc: spec_atb_paged_attention_calc,
    pub batch_run_status_enable: u32,
    pub quant: spec_atb_attention_quant,
    /// An `aclDataType`; -1 for an attention that is not quantised.
    pub out_data_type: i32,
    pub has_quant_offset: u32,
    pub compress: spec_atb_compress_type,
    pub scale: spec_atb_scale_type,
    pub layout: spec_atb_input_layout,
    /// Head size of the values in latent attention; 0 otherwise.
    pub mla_v_head_size: u32,
}
pub const SPEC_ATB_ACTIVATION_RELU: spec_atb_activation_type = spec_atb_activation_type(1);
pub const SPEC_ATB_ACTIVATION_GELU: spec_atb_activation_type = spec_atb_activation_type(2);
pub const SPEC_ATB_ACTIVATION_FAST_GELU: spec_atb_activation_type = spec_atb_activation_type(3);
/// x * sigmoid(scale * x)
pub const SPEC_ATB_ACTIVATION_SWISH: spec_atb_activation_type = spec_atb_activation_type(4);
pub const SPEC_ATB_ACTIVATION_LOG: spec_atb_activation_type = spec_atb_activation_type(5);
/// Of a packed [gate, up]: silu(gate) * up.
pub const SPEC_ATB_ACTIVATION_SWIGLU_FORWARD: spec_atb_activation_type = spec_atb_activation_type(6);
pub const SPEC_ATB_ACTIVATION_SWIGLU_BACKWARD: spec_atb_activation_type = spec_atb_activation_type(7);
pub const SPEC_ATB_ACTIVATION_SIGMOID: spec_atb_activation_type = spec_atb_activation_type(8);
pub const SPEC_ATB_ACTIVATION_FASTER_GELU_FORWARD: spec_atb_activation_type = spec_atb_activation_type(9);
/// Which function.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_activation_type(pub c_uint);
/// A function of each element.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_activation_param {
    pub type_: spec_atb_activation_type,
    /// Of SWISH; 1 otherwise.
    pub scale: f32,
    /// Axis that SWIGLU halves; -1 is the last, and the only one that is supported.
    pub dim: i32,
    /// GELU without the tanh approximation.
    pub exact_gelu: u32,
}
pub const SPEC_ATB_ELEWISE_CAST: spec_atb_elewise_type = spec_atb_elewise_type(1);
pub const SPEC_ATB_ELEWISE_MULS: spec_atb_elewise_type = spec_atb_elewise_type(2);
pub const SPEC_ATB_ELEWISE_COS: spec_atb_elewise_type = spec_atb_elewise_type(3);
pub const SPEC_ATB_ELEWISE_SIN: spec_atb_elewise_type = spec_atb_elewise_type(4);
pub const SPEC_ATB_ELEWISE_NEG: spec_atb_elewise_type = spec_atb_elewise_type(5);
pub const SPEC_ATB_ELEWISE_QUANT: spec_atb_elewise_type = spec_atb_elewise_type(6);
pub const SPEC_ATB_ELEWISE_LOGICAL_NOT: spec_atb_elewise_type = spec_atb_elewise_type(7);
pub const SPEC_ATB_ELEWISE_ADD: spec_atb_elewise_type = spec_atb_elewise_type(8);
pub const SPEC_ATB_ELEWISE_MUL: spec_atb_elewise_type = spec_atb_elewise_type(9);
pub const SPEC_ATB_ELEWISE_REALDIV: spec_atb_elewise_type = spec_atb_elewise_type(10);
pub const SPEC_ATB_ELEWISE_LOGICAL_AND: spec_atb_elewise_type = spec_atb_elewise_type(11);
pub const SPEC_ATB_ELEWISE_LOGICAL_OR: spec_atb_elewise_type = spec_atb_elewise_type(12);
pub const SPEC_ATB_ELEWISE_LESS: spec_atb_elewise_type = spec_atb_elewise_type(13);
pub const SPEC_ATB_ELEWISE_GREATER: spec_atb_elewise_type = spec_atb_elewise_type(14);
pub const SPEC_ATB_ELEWISE_SUB: spec_atb_elewise_type = spec_atb_elewise_type(15);
pub const SPEC_ATB_ELEWISE_EQUAL: spec_atb_elewise_type = spec_atb_elewise_type(16);
pub const SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL: spec_atb_elewise_type = spec_atb_elewise_type(17);
pub const SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL: spec_atb_elewise_type = spec_atb_elewise_type(18);
pub const SPEC_ATB_ELEWISE_DYNAMIC_QUANT: spec_atb_elewise_type = spec_atb_elewise_type(19);
pub const SPEC_ATB_ELEWISE_TANH: spec_atb_elewise_type = spec_atb_elewise_type(20);
/// Which function.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_elewise_type(pub c_uint);
/// A function of one or two elements, with broadcasting.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_elewise_param {
    pub type_: spec_atb_elewise_type,
    /// An `aclDataType`: the target of CAST; -1 otherwise.
    pub out_data_type: i32,
    /// The factor of MULS.
    pub factor: f32,
    /// Of QUANT; 1 otherwise.
    pub quant_scale: f32,
    /// Of QUANT; 0 otherwise.
    pub quant_offset: i32,
    /// Quantise with an offset.
    pub quant_asymmetric: u32,
}
/// Softmax over neighbouring axes.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_softmax_param {
    /// Ascending; -1 alone is the last.
    pub axes: [i64; 8],
    pub axis_count: u64,
}
/// The largest elements of the last axis, in descending order, with their indices.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_sort_param {
    /// How many. 1 is an argmax.
    pub count: i32,
    pub reserved: u32,
}
pub const SPEC_ATB_REDUCE_MAX: spec_atb_reduce_type = spec_atb_reduce_type(1);
pub const SPEC_ATB_REDUCE_MIN: spec_atb_reduce_type = spec_atb_reduce_type(2);
pub const SPEC_ATB_REDUCE_SUM: spec_atb_reduce_type = spec_atb_reduce_type(3);
/// Which reduction.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_reduce_type(pub c_uint);
/// Reduction over axes, which go away.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_reduce_param {
    /// Not negative.
    pub axes: [i64; 8],
    pub axis_count: u64,
    pub type_: spec_atb_reduce_type,
    pub reserved: u32,
}
/// Draws from rows of probabilities.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_multinomial_param {
    /// 1 to 64.
    pub sample_count: u32,
    pub seed: u32,
}
/// One top-k for all rows, in the parameter.
pub const SPEC_ATB_SAMPLING_SINGLE_TOPK: spec_atb_sampling_type = spec_atb_sampling_type(0);
/// Row by row, a seed each.
pub const SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL: spec_atb_sampling_type = spec_atb_sampling_type(1);
/// Row by row, with a tensor of exponential noise.
pub const SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL: spec_atb_sampling_type = spec_atb_sampling_type(2);
/// Row by row, with a tensor of uniform numbers; log-probabilities are an output.
pub const SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS: spec_atb_sampling_type = spec_atb_sampling_type(3);
/// As BATCH_EXPONENTIAL; log-probabilities are an output.
pub const SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL_LOGPROBS: spec_atb_sampling_type = spec_atb_sampling_type(4);
/// How to draw, and with whose randomness.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_sampling_type(pub c_uint);
/// Draws from the likeliest of a row.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_sampling_param {
    /// A seed for each row, for BATCH_MULTINOMIAL. Copied.
    pub seeds: *const u32,
    pub seed_count: u64,
    pub type_: spec_atb_sampling_type,
    /// For SINGLE_TOPK. 0xFFFFFFFF takes the time.
    pub seed: u32,
    /// For SINGLE_TOPK: how many are kept. The tensor of the other types holds this less 1.
    pub topk: u32,
    /// How many log-probabilities are an output.
    pub log_probs_size: i32,
}
/// Cuts a tensor in 2 or 3 along an axis.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_split_param {
    pub dim: i32,
    /// 2 or 3.
    pub count: i32,
    /// Length of each piece; all 0 for equal ones.
    pub sizes: [i32; 4],
}
pub const SPEC_ATB_TRANSDATA_NZ_TO_ND: spec_atb_transdata_type = spec_atb_transdata_type(1);
pub const SPEC_ATB_TRANSDATA_ND_TO_NZ: spec_atb_transdata_type = spec_atb_transdata_type(2);
/// Which way.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_transdata_type(pub c_uint);
/// Changes a tensor's layout.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_transdata_param {
    /// Last two lengths of the result, for NZ_TO_ND.
    pub out_crops: [i64; 2],
    pub type_: spec_atb_transdata_type,
    pub reserved: u32,
}
pub const SPEC_ATB_EVENT_RECORD: spec_atb_event_action = spec_atb_event_action(1);
/// Wait, then reset: the event has to be made with `ACL_EVENT_SYNC`.
pub const SPEC_ATB_EVENT_WAIT: spec_atb_event_action = spec_atb_event_action(2);
/// What an event operation does.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct spec_atb_event_action(pub c_uint);
/// An event in a graph; no inputs, no outputs (ATB 8.1).
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spec_atb_event_param {
    /// An `aclrtEvent`, which lives as long as the operation.
    pub event: *mut c_void,
    pub action: spec_atb_event_action,
    pub reserved: u32,
}

layout! {
    spec_atb_gather_param: 16 bytes, aligned 8 { axis 0, batch_dims 8 }
    spec_atb_rms_norm_param: 40 bytes, aligned 8 {
        layer_norm_epsilon 0, layer 8, quant 12, epsilon 16, precision 20, model 24, dynamic_quant 28, has_rstd 32,
        has_bias 36
    }
    spec_atb_linear_param: 32 bytes, aligned 4 {
        transpose_a 0, transpose_b 4, has_bias 8, out_data_type 12, accumulate 16, matmul 20, quant 24, reserved 28
    }
    spec_atb_rope_param: 8 bytes, aligned 4 { rotary_coeff 0, cos_format 4 }
    spec_atb_reshape_and_cache_param: 8 bytes, aligned 4 { compress 0, cache 4 }
    spec_atb_self_attention_param: 80 bytes, aligned 4 {
        head_num 0, kv_head_num 4, q_scale 8, qk_scale 12, quant 16, out_data_type 20, batch_run_status_enable 24,
        is_triu_mask 28, calc 32, kernel 36, clamp 40, clamp_min 44, clamp_max 48, mask 52, bypass_cache 56, scale 60,
        layout 64, mla_v_head_size 68, sliding_window_cache 72, window_size 76
    }
    spec_atb_paged_attention_param: 56 bytes, aligned 4 {
        head_num 0, kv_head_num 4, qk_scale 8, q_scale 12, mask 16, calc 20, batch_run_status_enable 24, quant 28,
        out_data_type 32, has_quant_offset 36, compress 40, scale 44, layout 48, mla_v_head_size 52
    }
    spec_atb_activation_param: 16 bytes, aligned 4 { type_ 0, scale 4, dim 8, exact_gelu 12 }
    spec_atb_elewise_param: 24 bytes, aligned 4 {
        type_ 0, out_data_type 4, factor 8, quant_scale 12, quant_offset 16, quant_asymmetric 20
    }
    spec_atb_softmax_param: 72 bytes, aligned 8 { axes 0, axis_count 64 }
    spec_atb_sort_param: 8 bytes, aligned 4 { count 0, reserved 4 }
    spec_atb_reduce_param: 80 bytes, aligned 8 { axes 0, axis_count 64, type_ 72, reserved 76 }
    spec_atb_multinomial_param: 8 bytes, aligned 4 { sample_count 0, seed 4 }
    spec_atb_sampling_param: 32 bytes, aligned 8 {
        seeds 0, seed_count 8, type_ 16, seed 20, topk 24, log_probs_size 28
    }
    spec_atb_split_param: 24 bytes, aligned 4 { dim 0, count 4, sizes 8 }
    spec_atb_transdata_param: 24 bytes, aligned 8 { out_crops 0, type_ 16, reserved 20 }
    spec_atb_event_param: 16 bytes, aligned 8 { event 0, action 8, reserved 12 }
}

functions! {
    spec_atb_operations:
    /// Makes a Gather operation.
    fn spec_atb_create_gather(param: *const spec_atb_gather_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a RmsNorm operation.
    fn spec_atb_create_rms_norm(param: *const spec_atb_rms_norm_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Linear operation.
    fn spec_atb_create_linear(param: *const spec_atb_linear_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Rope operation.
    fn spec_atb_create_rope(param: *const spec_atb_rope_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a ReshapeAndCache operation.
    fn spec_atb_create_reshape_and_cache(param: *const spec_atb_reshape_and_cache_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a SelfAttention operation.
    fn spec_atb_create_self_attention(param: *const spec_atb_self_attention_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a PagedAttention operation.
    fn spec_atb_create_paged_attention(param: *const spec_atb_paged_attention_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Activation operation.
    fn spec_atb_create_activation(param: *const spec_atb_activation_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Elewise operation.
    fn spec_atb_create_elewise(param: *const spec_atb_elewise_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Softmax operation.
    fn spec_atb_create_softmax(param: *const spec_atb_softmax_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Sort operation.
    fn spec_atb_create_sort(param: *const spec_atb_sort_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Reduce operation.
    fn spec_atb_create_reduce(param: *const spec_atb_reduce_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Multinomial operation.
    fn spec_atb_create_multinomial(param: *const spec_atb_multinomial_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a TopkToppSampling operation.
    fn spec_atb_create_sampling(param: *const spec_atb_sampling_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Split operation.
    fn spec_atb_create_split(param: *const spec_atb_split_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Transdata operation.
    fn spec_atb_create_transdata(param: *const spec_atb_transdata_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Makes a Event operation.
    fn spec_atb_create_event(param: *const spec_atb_event_param, operation: *mut *mut spec_atb_operation) -> Status = Shim, Shim(1);
    /// Changes the parameter of a Sort, for the next setup.
    fn spec_atb_update_sort(operation: *mut spec_atb_operation, param: *const spec_atb_sort_param) -> Status = Shim, Shim(1);
    /// Changes the parameter of a sampling operation, such as its seeds, for the next setup.
    fn spec_atb_update_sampling(operation: *mut spec_atb_operation, param: *const spec_atb_sampling_param) -> Status = Shim, Shim(1);
}
