//! Root-mean-square norms.

use super::lower::{Check, HALVES, Lower, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::DataType;
use acl_sys::{
    Api, SPEC_ATB_DYNAMIC_QUANT_NONE, SPEC_ATB_DYNAMIC_QUANT_SYMMETRIC, SPEC_ATB_QUANT_INT8, SPEC_ATB_QUANT_NONE,
    SPEC_ATB_RMS_NORM, SPEC_ATB_RMS_NORM_GEMMA, SPEC_ATB_RMS_NORM_HIGH_PRECISION, SPEC_ATB_RMS_NORM_LLAMA,
    SPEC_ATB_RMS_POST_NORM, SPEC_ATB_RMS_PRE_NORM, Status, spec_atb_operation, spec_atb_rms_norm_param,
};

/// What is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// The input. Inputs: x `[.., H]`, gamma `[H]`; output y.
    Alone,
    /// The sum of the input and a residual, which is an output too. Inputs: x, (bias), residual, gamma; outputs y, sum.
    BeforeLayer {
        /// Whether a bias is an input.
        bias: bool,
    },
    /// The sum of the input and a residual. Inputs: x, (bias), residual, gamma; output y.
    AfterLayer {
        /// Whether a bias is an input.
        bias: bool,
    },
}

/// Whether the output is quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormQuant {
    /// As the input.
    None,
    /// int8, with a scale and an offset as inputs after gamma (and beta).
    Int8,
    /// int8, with a scale for each row, f32, as second output. `Placement::Alone`, f16, rows of 12,288 at most.
    Int8PerToken,
}

/// How gamma enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormModel {
    /// Times gamma.
    Llama,
    /// Times 1 + gamma. `Placement::Alone`, not quantised.
    Gemma,
}

/// RmsNorm: y = x * gamma / sqrt(mean(x²) + epsilon), computed in f32. f16 or bf16; rows of a multiple of 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// What is normalised.
    pub placement: Placement,
    /// Added to the mean square; its magnitude is 2e-38 at least.
    pub epsilon: f32,
    /// Whether the output is quantised.
    pub quant: NormQuant,
    /// How gamma enters.
    pub model: NormModel,
}

impl RmsNorm {
    /// The norm of Llama and Qwen.
    pub fn new(epsilon: f32) -> Self {
        Self { placement: Placement::Alone, epsilon, quant: NormQuant::None, model: NormModel::Llama }
    }

    fn has_bias(&self) -> bool {
        matches!(self.placement, Placement::BeforeLayer { bias: true } | Placement::AfterLayer { bias: true })
    }
}

impl Lower for RmsNorm {
    fn name(&self) -> &'static str {
        "RmsNorm"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_rms_norm"
    }

    fn check(&self, chip: Chip) -> Result<()> {
        let name = self.name();
        let (alone, plain) = (self.placement == Placement::Alone, self.quant == NormQuant::None);
        require(self.epsilon.is_finite() && self.epsilon.abs() >= 2e-38, name, || {
            format!("epsilon is {}, and 2e-38 is its least magnitude", self.epsilon)
        })?;
        require(self.model == NormModel::Llama || (alone && plain), name, || {
            "Gemma's form is for the norm alone and not quantised".to_owned()
        })?;
        require(self.quant != NormQuant::Int8PerToken || alone, name, || {
            "scales for each row are for the norm alone".to_owned()
        })?;
        require(alone || !matches!(chip, Chip::A910 | Chip::I310B), name, || {
            format!("{chip:?} has the norm alone only")
        })?;
        require(plain || !self.has_bias(), name, || "a quantised norm takes no bias before the residual".to_owned())?;
        let after = matches!(self.placement, Placement::AfterLayer { .. });
        require(plain || !after || matches!(chip, Chip::A2 | Chip::Other), name, || {
            format!("{chip:?} has no quantised norm after a layer")
        })
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let x = check.input(0, "x")?;
        let per_token = self.quant == NormQuant::Int8PerToken;
        let before = matches!(self.placement, Placement::BeforeLayer { .. });
        let only_f16 = per_token || (before && self.quant == NormQuant::Int8);
        let dtype = x.dtype(if only_f16 { &[DataType::F16] } else { HALVES })?;
        let row = x.desc().last();
        x.nd()?;
        x.require((row * dtype.size()).is_multiple_of(32), "needs rows of a multiple of 32 bytes")?;
        x.require(!per_token || row <= 12_288, "may have rows of 12288 at most")?;
        let mut next = 1;
        if self.has_bias() {
            let bias = check.input(next, "bias")?;
            bias.dtype(&[dtype])?;
            bias.require(bias.desc().len() == row, format!("has to have {row} elements"))?;
            next += 1;
        }
        if self.placement != Placement::Alone {
            let residual = check.input(next, "residual")?;
            residual.dtype(&[dtype])?;
            residual.shape(x.desc().shape())?;
            next += 1;
        }
        let gamma = check.input(next, "gamma")?;
        gamma.dtype(&[dtype])?;
        let is_row = gamma.desc().last() == row && gamma.desc().len() == row;
        gamma.require(is_row, format!("has to have {row} elements on its last axis, and no others"))
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let layer = match self.placement {
            Placement::Alone => SPEC_ATB_RMS_NORM,
            Placement::BeforeLayer { .. } => SPEC_ATB_RMS_PRE_NORM,
            Placement::AfterLayer { .. } => SPEC_ATB_RMS_POST_NORM,
        };
        let (quant, dynamic_quant) = match self.quant {
            NormQuant::None => (SPEC_ATB_QUANT_NONE, SPEC_ATB_DYNAMIC_QUANT_NONE),
            NormQuant::Int8 => (SPEC_ATB_QUANT_INT8, SPEC_ATB_DYNAMIC_QUANT_NONE),
            NormQuant::Int8PerToken => (SPEC_ATB_QUANT_INT8, SPEC_ATB_DYNAMIC_QUANT_SYMMETRIC),
        };
        let param = spec_atb_rms_norm_param {
            layer_norm_epsilon: 1e-5,
            layer,
            quant,
            epsilon: self.epsilon,
            precision: SPEC_ATB_RMS_NORM_HIGH_PRECISION,
            model: match self.model {
                NormModel::Llama => SPEC_ATB_RMS_NORM_LLAMA,
                NormModel::Gemma => SPEC_ATB_RMS_NORM_GEMMA,
            },
            dynamic_quant,
            has_rstd: 0,
            has_bias: self.has_bias().into(),
        };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_rms_norm(&param, operation) }
    }
}
