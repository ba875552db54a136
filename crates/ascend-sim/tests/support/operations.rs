//! Operations by name, with parameters from JSON; what is not named has ATB's default.

use super::Machine;
use acl_sys::*;
use serde_json::Value;
use std::ptr;

fn number<T: TryFrom<i64>>(param: &Value, key: &str, default: T) -> T {
    let value = param.get(key).and_then(Value::as_i64);
    value.map_or(default, |value| T::try_from(value).unwrap_or_else(|_| panic!("{key} is {value}")))
}

fn float(param: &Value, key: &str, default: f32) -> f32 {
    param.get(key).and_then(Value::as_f64).map_or(default, |value| value as f32)
}

fn axes(param: &Value) -> ([i64; 8], u64) {
    let list: Vec<i64> =
        param["axes"].as_array().expect("axes").iter().map(|axis| axis.as_i64().expect("a number")).collect();
    let mut axes = [0; 8];
    axes[..list.len()].copy_from_slice(&list);
    (axes, list.len() as u64)
}

pub(crate) fn self_attention(param: &Value) -> spec_atb_self_attention_param {
    spec_atb_self_attention_param {
        head_num: number(param, "head_num", 0),
        kv_head_num: number(param, "kv_head_num", 0),
        q_scale: float(param, "q_scale", 1.0),
        qk_scale: float(param, "qk_scale", 1.0),
        quant: SPEC_ATB_ATTENTION_QUANT_NONE,
        out_data_type: -1,
        batch_run_status_enable: 0,
        is_triu_mask: number(param, "is_triu_mask", 0),
        calc: spec_atb_self_attention_calc(number(param, "calc", 3)),
        kernel: spec_atb_self_attention_kernel(number(param, "kernel", 0)),
        clamp: 0,
        clamp_min: 0.0,
        clamp_max: 0.0,
        mask: spec_atb_self_attention_mask(number(param, "mask", 1)),
        bypass_cache: 0,
        scale: SPEC_ATB_SCALE_PLAIN,
        layout: SPEC_ATB_LAYOUT_BSND,
        mla_v_head_size: 0,
        sliding_window_cache: 0,
        window_size: 0,
    }
}

pub(crate) fn paged_attention(param: &Value) -> spec_atb_paged_attention_param {
    spec_atb_paged_attention_param {
        head_num: number(param, "head_num", 0),
        kv_head_num: number(param, "kv_head_num", 0),
        qk_scale: float(param, "qk_scale", 1.0),
        q_scale: 0.0,
        mask: spec_atb_paged_attention_mask(number(param, "mask", 0)),
        calc: spec_atb_paged_attention_calc(number(param, "calc", 0)),
        batch_run_status_enable: number(param, "batch_run_status_enable", 0),
        quant: spec_atb_attention_quant(number(param, "quant", 0)),
        out_data_type: -1,
        has_quant_offset: 0,
        compress: SPEC_ATB_COMPRESS_NONE,
        scale: SPEC_ATB_SCALE_PLAIN,
        layout: SPEC_ATB_LAYOUT_BSND,
        mla_v_head_size: 0,
    }
}

/// Makes an operation; its status, and null when that is no success.
pub(crate) fn create(machine: &Machine, op: &str, param: &Value) -> (Status, *mut spec_atb_operation) {
    let (api, mut made) = (&machine.api, ptr::null_mut());
    // SAFETY: parameters and the pointer live as long as the call.
    let status = unsafe {
        match op {
            "gather" => api.spec_atb_create_gather(
                &spec_atb_gather_param { axis: number(param, "axis", 0), batch_dims: number(param, "batch_dims", 0) },
                &mut made,
            ),
            "rms_norm" => api.spec_atb_create_rms_norm(
                &spec_atb_rms_norm_param {
                    layer_norm_epsilon: 1e-5,
                    layer: spec_atb_rms_norm_layer(number(param, "layer", 1)),
                    quant: spec_atb_quant_type(number(param, "quant", 0)),
                    epsilon: float(param, "epsilon", 1e-5),
                    precision: spec_atb_rms_norm_precision(0),
                    model: spec_atb_rms_norm_model(number(param, "model", 0)),
                    dynamic_quant: spec_atb_dynamic_quant_type(number(param, "dynamic_quant", 0)),
                    has_rstd: number(param, "has_rstd", 0),
                    has_bias: number(param, "has_bias", 0),
                },
                &mut made,
            ),
            "linear" => api.spec_atb_create_linear(
                &spec_atb_linear_param {
                    transpose_a: number(param, "transpose_a", 0),
                    transpose_b: number(param, "transpose_b", 1),
                    has_bias: number(param, "has_bias", 0),
                    out_data_type: number(param, "out_data_type", -1),
                    accumulate: number(param, "accumulate", 0),
                    matmul: SPEC_ATB_MATMUL_PLAIN,
                    quant: spec_atb_linear_quant(number(param, "quant", 0)),
                    reserved: number(param, "reserved", 0),
                },
                &mut made,
            ),
            "rope" => api.spec_atb_create_rope(
                &spec_atb_rope_param {
                    rotary_coeff: number(param, "rotary_coeff", 2),
                    cos_format: number(param, "cos_format", 0),
                },
                &mut made,
            ),
            "reshape_and_cache" => api.spec_atb_create_reshape_and_cache(
                &spec_atb_reshape_and_cache_param {
                    compress: SPEC_ATB_COMPRESS_NONE,
                    cache: spec_atb_cache_config(number(param, "cache", 0)),
                },
                &mut made,
            ),
            "self_attention" => api.spec_atb_create_self_attention(&self_attention(param), &mut made),
            "paged_attention" => api.spec_atb_create_paged_attention(&paged_attention(param), &mut made),
            "activation" => api.spec_atb_create_activation(
                &spec_atb_activation_param {
                    type_: spec_atb_activation_type(number(param, "type", 0)),
                    scale: float(param, "scale", 1.0),
                    dim: -1,
                    exact_gelu: number(param, "exact_gelu", 0),
                },
                &mut made,
            ),
            "elewise" => api.spec_atb_create_elewise(
                &spec_atb_elewise_param {
                    type_: spec_atb_elewise_type(number(param, "type", 0)),
                    out_data_type: number(param, "out_data_type", -1),
                    factor: float(param, "factor", 0.0),
                    quant_scale: 1.0,
                    quant_offset: 0,
                    quant_asymmetric: 0,
                },
                &mut made,
            ),
            "softmax" => {
                let (axes, axis_count) = axes(param);
                api.spec_atb_create_softmax(&spec_atb_softmax_param { axes, axis_count }, &mut made)
            }
            "sort" => api.spec_atb_create_sort(
                &spec_atb_sort_param { count: number(param, "count", 1), reserved: 0 },
                &mut made,
            ),
            "reduce" => {
                let (axes, axis_count) = axes(param);
                let type_ = spec_atb_reduce_type(number(param, "type", 1));
                api.spec_atb_create_reduce(&spec_atb_reduce_param { axes, axis_count, type_, reserved: 0 }, &mut made)
            }
            "multinomial" => api.spec_atb_create_multinomial(
                &spec_atb_multinomial_param {
                    sample_count: number(param, "sample_count", 1),
                    seed: number(param, "seed", 0),
                },
                &mut made,
            ),
            "sampling" => api.spec_atb_create_sampling(
                &spec_atb_sampling_param {
                    seeds: ptr::null(),
                    seed_count: 0,
                    type_: spec_atb_sampling_type(number(param, "type", 0)),
                    seed: number(param, "seed", 0),
                    topk: number(param, "topk", 100),
                    log_probs_size: number(param, "log_probs_size", 0),
                },
                &mut made,
            ),
            "verify" => api.spec_atb_create_verify(
                &spec_atb_verify_param {
                    rule: spec_atb_verify_rule(number(param, "rule", 1)),
                    inverse_temperature: float(param, "inverse_temperature", 1.0),
                },
                &mut made,
            ),
            "split" => {
                let mut sizes = [0; 4];
                for (to, from) in sizes.iter_mut().zip(param["sizes"].as_array().into_iter().flatten()) {
                    *to = from.as_i64().expect("a number") as i32;
                }
                let (dim, count) = (number(param, "dim", 0), number(param, "count", 2));
                api.spec_atb_create_split(&spec_atb_split_param { dim, count, sizes }, &mut made)
            }
            "transdata" => api.spec_atb_create_transdata(
                &spec_atb_transdata_param {
                    out_crops: [number(param, "rows", 0), number(param, "columns", 0)],
                    type_: spec_atb_transdata_type(number(param, "type", 2)),
                    reserved: 0,
                },
                &mut made,
            ),
            other => panic!("no operation {other}"),
        }
    };
    (status.expect("exported"), made)
}

/// Makes an operation that is to be made.
#[track_caller]
pub(crate) fn make(machine: &Machine, op: &str, param: Value) -> *mut spec_atb_operation {
    let (status, made) = create(machine, op, &param);
    machine.ok(status);
    made
}
