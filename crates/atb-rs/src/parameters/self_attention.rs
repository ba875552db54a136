//! Attention of whole prompts.

use super::lower::{Check, HALVES, Lower, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::{DataType, MaskValues};
use acl_sys::{
    Api, SPEC_ATB_ATTENTION_QUANT_NONE, SPEC_ATB_LAYOUT_BSND, SPEC_ATB_SCALE_PLAIN,
    SPEC_ATB_SELF_ATTENTION_KERNEL_DEFAULT, SPEC_ATB_SELF_ATTENTION_KERNEL_HIGH_PRECISION,
    SPEC_ATB_SELF_ATTENTION_MASK_NONE, SPEC_ATB_SELF_ATTENTION_MASK_NORM, SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS,
    SPEC_ATB_SELF_ATTENTION_PA_ENCODER, Status, spec_atb_operation, spec_atb_self_attention_param,
};

/// Which mask a prefill takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefillMask {
    /// None: every token sees every token of its sequence.
    None,
    /// `[S, S]` or `[B, S, S]`, S not less than the longest sequence.
    Full,
    /// `[128, 128]`, triangular, used for any length.
    Triangle,
    /// `[128, 128]`, as the compressed kernel takes it.
    Compressed,
}

/// Which kernel computes a prefill in f16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefillKernel {
    /// Products in f16.
    Default,
    /// Products in f32; its mask holds indicators.
    HighPrecision,
}

/// SelfAttention over a prompt (`PA_ENCODER`), beside a paged cache that ReshapeAndCache fills. Inputs: q `[T, N, D]`
/// or `[T, N*D]`, k `[T, K, D]`, v `[T, K, D]`, (mask), lengths i32 `[B]` as
/// [`Tensor::lengths`](crate::Tensor::lengths), whose sum is T; output as q.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfAttention {
    /// N.
    pub heads: usize,
    /// K, a divisor of N.
    pub kv_heads: usize,
    /// Times the scores: 1/sqrt(D). ATB's own default is 1.
    pub scale: f32,
    /// Which mask.
    pub mask: PrefillMask,
    /// Which kernel.
    pub kernel: PrefillKernel,
}

impl SelfAttention {
    /// What the mask of a prefill has to hold: it differs by element type and kernel, and the wrong kind gives
    /// infinities in place of scores.
    pub fn mask_values(&self, dtype: DataType) -> MaskValues {
        match (dtype, self.kernel) {
            (DataType::F16, PrefillKernel::Default) => MaskValues::Additive,
            _ => MaskValues::Indicator,
        }
    }
}

/// Heads and the scale of an attention.
pub(super) fn check_heads(operation: &'static str, heads: usize, kv_heads: usize, scale: f32) -> Result<()> {
    require((1..=1 << 16).contains(&heads), operation, || format!("heads are {heads}, and 1 is the least"))?;
    require(kv_heads >= 1 && heads.is_multiple_of(kv_heads), operation, || {
        format!("heads are {heads}, which has to be a multiple of the key-value heads, {kv_heads}")
    })?;
    require(scale.is_finite() && scale > 0.0, operation, || {
        format!("scale is {scale}, and has to be positive: 1/sqrt(head size)")
    })
}

impl Lower for SelfAttention {
    fn name(&self) -> &'static str {
        "SelfAttention"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_self_attention"
    }

    fn check(&self, _: Chip) -> Result<()> {
        check_heads(self.name(), self.heads, self.kv_heads, self.scale)
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let (q, k, v) = (check.input(0, "q")?, check.input(1, "k")?, check.input(2, "v")?);
        let dtype = q.dtype(HALVES)?;
        q.rank(2..=3)?;
        let (tokens, width) = (q.desc().shape()[0], q.desc().len() / q.desc().shape()[0]);
        q.require(width.is_multiple_of(self.heads), format!("has to be {} heads wide", self.heads))?;
        let size = width / self.heads;
        q.require(size <= 256, format!("has heads of {size}, and 256 is the limit"))?;
        for operand in [k, v] {
            operand.dtype(&[dtype])?;
            operand.rank(2..=3)?;
            operand.require(
                operand.desc().len() == tokens * self.kv_heads * size && operand.desc().shape()[0] == tokens,
                format!("has to be {tokens} rows of {} heads of {size}", self.kv_heads),
            )?;
        }
        let mut next = 3;
        let mut longest_allowed = usize::MAX;
        if self.mask != PrefillMask::None {
            let mask = check.input(next, "mask")?;
            mask.dtype(&[dtype])?;
            mask.mask(self.mask_values(dtype))?;
            let shape = mask.desc().shape();
            if check.chip() != Chip::I310P {
                match self.mask {
                    PrefillMask::Triangle | PrefillMask::Compressed => mask.shape(&[128, 128])?,
                    _ => {
                        mask.rank(2..=3)?;
                        let length = mask.desc().last();
                        mask.require(shape[shape.len() - 2] == length, "has to be square")?;
                        longest_allowed = length;
                    }
                }
            }
            next += 1;
        }
        let lengths = check.input(next, "lengths")?;
        let given = lengths.lengths(lengths.desc().last())?;
        let sum: i64 = given.iter().map(|&length| i64::from(length)).sum();
        lengths.require(
            given.iter().all(|&length| length > 0) && sum == tokens as i64,
            format!("holds {given:?}, and has to be positive and sum up to {tokens} tokens"),
        )?;
        let longest = given.iter().copied().max().unwrap_or_default();
        lengths.require(
            i64::from(longest) <= i64::try_from(longest_allowed).unwrap_or(i64::MAX),
            format!("holds {longest}, and the mask is good for {longest_allowed}"),
        )
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let param = spec_atb_self_attention_param {
            head_num: self.heads as i32,
            kv_head_num: self.kv_heads as i32,
            q_scale: 1.0,
            qk_scale: self.scale,
            quant: SPEC_ATB_ATTENTION_QUANT_NONE,
            out_data_type: -1,
            batch_run_status_enable: 0,
            is_triu_mask: (self.mask == PrefillMask::Triangle).into(),
            calc: SPEC_ATB_SELF_ATTENTION_PA_ENCODER,
            kernel: match self.kernel {
                PrefillKernel::Default => SPEC_ATB_SELF_ATTENTION_KERNEL_DEFAULT,
                PrefillKernel::HighPrecision => SPEC_ATB_SELF_ATTENTION_KERNEL_HIGH_PRECISION,
            },
            clamp: 0,
            clamp_min: 0.0,
            clamp_max: 0.0,
            mask: match self.mask {
                PrefillMask::None => SPEC_ATB_SELF_ATTENTION_MASK_NONE,
                PrefillMask::Full | PrefillMask::Triangle => SPEC_ATB_SELF_ATTENTION_MASK_NORM,
                PrefillMask::Compressed => SPEC_ATB_SELF_ATTENTION_MASK_NORM_COMPRESS,
            },
            bypass_cache: 0,
            scale: SPEC_ATB_SCALE_PLAIN,
            layout: SPEC_ATB_LAYOUT_BSND,
            mla_v_head_size: 0,
            sliding_window_cache: 0,
            window_size: 0,
        };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_self_attention(&param, operation) }
    }
}
