//! Functions of each element, and softmax.

use super::lower::{Check, HALVES, Lower, Operand, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::DataType::{self, *};
use acl_sys::{
    Api, SPEC_ATB_ACTIVATION_GELU, SPEC_ATB_ACTIVATION_SIGMOID, SPEC_ATB_ACTIVATION_SWIGLU_FORWARD,
    SPEC_ATB_ACTIVATION_SWISH, SPEC_ATB_ELEWISE_ADD, SPEC_ATB_ELEWISE_CAST, SPEC_ATB_ELEWISE_COS,
    SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL, SPEC_ATB_ELEWISE_DYNAMIC_QUANT, SPEC_ATB_ELEWISE_EQUAL,
    SPEC_ATB_ELEWISE_GREATER, SPEC_ATB_ELEWISE_LESS, SPEC_ATB_ELEWISE_LOGICAL_AND, SPEC_ATB_ELEWISE_LOGICAL_NOT,
    SPEC_ATB_ELEWISE_LOGICAL_OR, SPEC_ATB_ELEWISE_MUL, SPEC_ATB_ELEWISE_MULS, SPEC_ATB_ELEWISE_NEG,
    SPEC_ATB_ELEWISE_QUANT, SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL, SPEC_ATB_ELEWISE_REALDIV, SPEC_ATB_ELEWISE_SIN,
    SPEC_ATB_ELEWISE_SUB, SPEC_ATB_ELEWISE_TANH, Status, spec_atb_activation_param, spec_atb_elewise_param,
    spec_atb_operation, spec_atb_softmax_param,
};

/// Activation. Input x; output y of the same shape, but for `Swiglu`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Activation {
    /// silu(gate) * up of a packed `[.., gate | up]`; the output's last axis is half as long. f16, bf16, f32.
    Swiglu,
    /// x * sigmoid(scale * x). f16, bf16.
    Swish {
        /// 1 gives silu.
        scale: f32,
    },
    /// f16, bf16, f32.
    Gelu {
        /// By the error function, and not by tanh.
        exact: bool,
    },
    /// f16, bf16, f32.
    Sigmoid,
}

impl Lower for Activation {
    fn name(&self) -> &'static str {
        "Activation"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_activation"
    }

    fn check(&self, _: Chip) -> Result<()> {
        match self {
            Activation::Swish { scale } => {
                require(scale.is_finite(), self.name(), || format!("scale is {scale}, and has to be finite"))
            }
            _ => Ok(()),
        }
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let x = check.input(0, "x")?;
        match self {
            Activation::Swish { .. } => x.dtype(HALVES)?,
            _ => x.dtype(&[F16, Bf16, F32])?,
        };
        if let Activation::Swiglu = self {
            let step = if check.chip() == Chip::I310P { 32 } else { 2 };
            x.require(x.desc().last().is_multiple_of(step), format!("needs a last axis of a multiple of {step}"))?;
        }
        Ok(())
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let (kind, scale, exact_gelu) = match *self {
            Activation::Swiglu => (SPEC_ATB_ACTIVATION_SWIGLU_FORWARD, 1.0, 0),
            Activation::Swish { scale } => (SPEC_ATB_ACTIVATION_SWISH, scale, 0),
            Activation::Gelu { exact } => (SPEC_ATB_ACTIVATION_GELU, 1.0, exact.into()),
            Activation::Sigmoid => (SPEC_ATB_ACTIVATION_SIGMOID, 1.0, 0),
        };
        let param = spec_atb_activation_param { type_: kind, scale, dim: -1, exact_gelu };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_activation(&param, operation) }
    }
}

/// Elewise: one or two inputs of one type, with broadcasting as in numpy, and quantisation. Which types are possible
/// differs by function, and is narrower than one thinks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Elewise {
    /// f16 and bf16 from and to f32, i32 from and to i64; nothing else.
    Cast {
        /// The type of the output.
        to: DataType,
    },
    /// Times a number. f16, f32, bf16.
    Scale {
        /// The number.
        factor: f32,
    },
    /// f16, f32, bf16.
    Cosine,
    /// f16, f32, bf16.
    Sine,
    /// f16, bf16.
    Negate,
    /// f16, bf16.
    Tanh,
    /// f16, f32, bf16, i32, i64.
    Add,
    /// f16, bf16, i64.
    Subtract,
    /// f16, bf16; neither f32 nor integers.
    Multiply,
    /// f16, f32, bf16.
    Divide,
    /// i64, f16, f32, bf16, to i8.
    Less,
    /// i64, f16, f32, bf16, to i8.
    Greater,
    /// f16, f32, bf16, to i8. Integers are equal when neither is less.
    Equal,
    /// i8.
    Not,
    /// i8.
    And,
    /// i8.
    Or,
    /// round(x / scale + offset), within i8. f16 whose last axis is a multiple of 32; A2.
    Quantize {
        /// Not 0.
        scale: f32,
        /// Added after the division; `None` stands for symmetric quantisation.
        offset: Option<i32>,
    },
    /// Each row by its own largest magnitude. f16, bf16; outputs: i8 like x, and the rows' scales, f32, of x's shape
    /// without the last axis, which is 26,624 long at most in f16, 7,552 in bf16, 4,096 on 310P.
    DynamicQuantize,
    /// round(x / scale + offset), within i8. Inputs x, f16 or bf16, scale of the same type, offset i8, which may be
    /// [absent](crate::Tensor::absent); A2.
    QuantizePerChannel,
    /// (x - offset) * scale, to f16. Inputs x i8, scale f16, offset i8, which may be [absent](crate::Tensor::absent); A2.
    DequantizePerChannel,
}

impl Elewise {
    fn is_unary(self) -> bool {
        matches!(
            self,
            Elewise::Cast { .. }
                | Elewise::Scale { .. }
                | Elewise::Cosine
                | Elewise::Sine
                | Elewise::Negate
                | Elewise::Tanh
                | Elewise::Not
                | Elewise::Quantize { .. }
                | Elewise::DynamicQuantize
        )
    }

    fn types(self) -> &'static [DataType] {
        match self {
            Elewise::Cast { to: F16 | Bf16 } => &[F32],
            Elewise::Cast { to: F32 } => &[F16, Bf16],
            Elewise::Cast { to: I32 } => &[I64],
            Elewise::Cast { to: I64 } => &[I32],
            Elewise::Cast { .. } => &[],
            Elewise::Scale { .. } | Elewise::Divide | Elewise::Equal => &[F16, F32, Bf16],
            Elewise::Cosine | Elewise::Sine => &[F16, F32, Bf16],
            Elewise::Negate | Elewise::Tanh | Elewise::DynamicQuantize | Elewise::QuantizePerChannel => HALVES,
            Elewise::Quantize { .. } => &[F16],
            Elewise::DequantizePerChannel => &[I8],
            Elewise::Add => &[F16, F32, Bf16, I32, I64],
            Elewise::Subtract => &[F16, Bf16, I64],
            Elewise::Multiply => &[F16, Bf16],
            Elewise::Less | Elewise::Greater => &[I64, F16, F32, Bf16],
            Elewise::Not | Elewise::And | Elewise::Or => &[I8],
        }
    }
}

impl Elewise {
    /// The limits on rows that are quantised.
    fn check_rows(self, chip: Chip, x: &Operand<'_>, dtype: DataType) -> Result<()> {
        let last = x.desc().last();
        match self {
            Elewise::Quantize { .. } => x.require(last.is_multiple_of(32), "needs a last axis of a multiple of 32"),
            Elewise::DynamicQuantize => {
                let most = match (chip, dtype) {
                    (Chip::I310P, _) => 4096,
                    (_, F16) => 26_624,
                    _ => 7552,
                };
                x.require(last <= most, format!("has rows of more than {most}"))
            }
            _ => Ok(()),
        }
    }
}

impl Lower for Elewise {
    fn name(&self) -> &'static str {
        "Elewise"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_elewise"
    }

    fn check(&self, chip: Chip) -> Result<()> {
        require(!self.types().is_empty(), self.name(), || format!("{self:?}: nothing is cast to that"))?;
        let of_a2 =
            matches!(self, Elewise::Quantize { .. } | Elewise::QuantizePerChannel | Elewise::DequantizePerChannel);
        require(!of_a2 || matches!(chip, Chip::A2 | Chip::Other), self.name(), || {
            format!("{chip:?} does not have {self:?}")
        })?;
        let fits = |scale: f32| scale != 0.0 && scale.is_finite();
        match *self {
            Elewise::Quantize { scale, .. } => {
                require(fits(scale), self.name(), || format!("scale is {scale}, and has to be finite and not 0"))
            }
            _ => Ok(()),
        }
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let x = check.input(0, "x")?;
        let dtype = x.dtype(self.types())?;
        if self.is_unary() {
            return self.check_rows(check.chip(), &x, dtype);
        }
        let y = check.input(1, "y")?;
        y.dtype(&[if *self == Elewise::DequantizePerChannel { F16 } else { dtype }])?;
        let pairs = x.desc().shape().iter().rev().zip(y.desc().shape().iter().rev());
        let fits = pairs.into_iter().all(|(&one, &other)| one == other || one == 1 || other == 1);
        y.require(fits, format!("does not broadcast with x, {}", x.desc()))
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let kind = match self {
            Elewise::Cast { .. } => SPEC_ATB_ELEWISE_CAST,
            Elewise::Scale { .. } => SPEC_ATB_ELEWISE_MULS,
            Elewise::Add => SPEC_ATB_ELEWISE_ADD,
            Elewise::Subtract => SPEC_ATB_ELEWISE_SUB,
            Elewise::Multiply => SPEC_ATB_ELEWISE_MUL,
            Elewise::Divide => SPEC_ATB_ELEWISE_REALDIV,
            Elewise::Less => SPEC_ATB_ELEWISE_LESS,
            Elewise::Greater => SPEC_ATB_ELEWISE_GREATER,
            Elewise::Equal => SPEC_ATB_ELEWISE_EQUAL,
            Elewise::Not => SPEC_ATB_ELEWISE_LOGICAL_NOT,
            Elewise::And => SPEC_ATB_ELEWISE_LOGICAL_AND,
            Elewise::Or => SPEC_ATB_ELEWISE_LOGICAL_OR,
            Elewise::Cosine => SPEC_ATB_ELEWISE_COS,
            Elewise::Sine => SPEC_ATB_ELEWISE_SIN,
            Elewise::Negate => SPEC_ATB_ELEWISE_NEG,
            Elewise::Tanh => SPEC_ATB_ELEWISE_TANH,
            Elewise::Quantize { .. } => SPEC_ATB_ELEWISE_QUANT,
            Elewise::DynamicQuantize => SPEC_ATB_ELEWISE_DYNAMIC_QUANT,
            Elewise::QuantizePerChannel => SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL,
            Elewise::DequantizePerChannel => SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL,
        };
        let (scale, offset) =
            if let Elewise::Quantize { scale, offset } = *self { (scale, offset) } else { (1.0, None) };
        let param = spec_atb_elewise_param {
            type_: kind,
            out_data_type: if let Elewise::Cast { to } = self { to.raw() } else { -1 },
            factor: if let Elewise::Scale { factor } = *self { factor } else { 0.0 },
            quant_scale: scale,
            quant_offset: offset.unwrap_or(0),
            quant_asymmetric: offset.is_some().into(),
        };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_elewise(&param, operation) }
    }
}

/// Softmax over the last axis. Input x, f16, f32 or bf16; output the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softmax;

impl Lower for Softmax {
    fn name(&self) -> &'static str {
        "Softmax"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_softmax"
    }

    fn check(&self, _: Chip) -> Result<()> {
        Ok(())
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        check.input(0, "x")?.dtype(&[F16, F32, Bf16]).map(drop)
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let param = spec_atb_softmax_param { axes: [-1, 0, 0, 0, 0, 0, 0, 0], axis_count: 1 };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_softmax(&param, operation) }
    }
}
