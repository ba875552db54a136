//! Verification of drafts: rows of logits to verdicts.

use super::lower::{Check, HALVES, Lower, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::{DataType, TensorDesc};
use acl_sys::{
    Api, SPEC_ATB_VERIFY_GREEDY, SPEC_ATB_VERIFY_REJECTION, Status, spec_atb_operation, spec_atb_verify_param,
};

/// Verify: what rows of logits say of a draft, so that a few bytes of each row go to the host instead of the row. An
/// operation of the spec-decode module: the shim has it when it was built by `cargo xtask build-atb --with-spec-decode`.
/// It needs ATB 8.1.
///
/// Logits are `[T, V]`, V 2 or more, in f16, bf16 or f32; on a 310P not bf16, and for the greedy rule not f32. Rows are
/// judged one by one: those of several sequences may follow each other. [`Verdicts`](crate::Verdicts) holds the outputs.
///
/// The module composes it of ATB's operations. Those have no clipped difference and no running sum of f32, so that the
/// token after a refusal, which is drawn from what p has more than q, is drawn on the host, from that one row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verify {
    /// The two likeliest tokens. Input logits; outputs: tokens i32 `[T, 2]`, likeliest first, their logits `[T, 2]` and their
    /// probabilities at temperature 1 `[T, 2]`, both of the logits' type.
    ///
    /// Which of equal logits comes first is not defined, as in [`Sort`](super::Sort): where the two are equal, the row
    /// itself has to say. A row that holds NaN or plus infinity anywhere has probabilities that are NaN.
    Greedy,
    /// Whether each drafted token stands, with probability min(1, p / q). Inputs: logits, the token drafted after each row
    /// i32 `[T]`, and u * q f32 `[T]`, with u uniform and q the drafter's probability of the token. Outputs: whether
    /// u * q < p i8 `[T]`, and p f32 `[T]`.
    ///
    /// **Tokens have to be less than V**, which nothing checks on the device. A row after which nothing was drafted takes
    /// any token, and [`NO_DRAFT`](Self::NO_DRAFT) in the place of u * q.
    Rejection {
        /// 1 / temperature, above 0 and finite. The product with the logits is rounded to f32.
        inverse_temperature: f32,
    },
}

impl Verify {
    /// In the place of u * q: refuses, whatever p is.
    pub const NO_DRAFT: f32 = 2.0;

    /// Descriptions of the outputs for so many rows of logits of a type.
    pub fn outputs(&self, rows: usize, logits: DataType) -> Vec<TensorDesc> {
        match self {
            Verify::Greedy => [DataType::I32, logits, logits].map(|dtype| TensorDesc::new(dtype, [rows, 2])).to_vec(),
            Verify::Rejection { .. } => {
                [DataType::I8, DataType::F32].map(|dtype| TensorDesc::new(dtype, [rows])).to_vec()
            }
        }
    }
}

impl Lower for Verify {
    fn name(&self) -> &'static str {
        "Verify"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_verify"
    }

    fn check(&self, _: Chip) -> Result<()> {
        match self {
            Verify::Greedy => Ok(()),
            Verify::Rejection { inverse_temperature: factor } => {
                require(*factor > 0.0 && factor.is_finite(), self.name(), || {
                    format!("inverse_temperature is {factor}, and has to be above 0 and finite")
                })
            }
        }
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let logits = check.input(0, "logits")?;
        match (self, check.chip()) {
            (Verify::Rejection { .. }, _) | (_, Chip::A2 | Chip::Other) => {
                logits.dtype(&[DataType::F16, DataType::Bf16, DataType::F32])?
            }
            _ => logits.dtype(HALVES)?,
        };
        logits.nd()?;
        logits.rank(2..=2)?;
        logits.require(logits.desc().last() >= 2, "has to have 2 tokens or more in a row")?;
        if let Verify::Rejection { .. } = self {
            let rows = logits.desc().shape()[0];
            let tokens = check.input(1, "drafted tokens")?;
            tokens.dtype(&[DataType::I32])?;
            tokens.shape(&[rows])?;
            let thresholds = check.input(2, "u * q")?;
            thresholds.dtype(&[DataType::F32])?;
            thresholds.shape(&[rows])?;
        }
        Ok(())
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let (rule, inverse_temperature) = match self {
            Verify::Greedy => (SPEC_ATB_VERIFY_GREEDY, 1.0),
            Verify::Rejection { inverse_temperature } => (SPEC_ATB_VERIFY_REJECTION, *inverse_temperature),
        };
        let param = spec_atb_verify_param { rule, inverse_temperature };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_verify(&param, operation) }
    }
}
