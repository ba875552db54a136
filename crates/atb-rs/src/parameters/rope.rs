//! Rotary position embeddings.

use super::lower::{Check, HALVES, Lower, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::DataType;
use acl_sys::{Api, Status, spec_atb_operation, spec_atb_rope_param};

/// Which elements of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rotation {
    /// Element i with i + D/2: Llama and Qwen as their checkpoints have it. Tables are concat(f, f).
    Halves,
    /// Each half of a head by itself (ChatGLM).
    QuarterHeads,
    /// Neighbours. Tables hold each angle twice in a row.
    Pairs {
        /// D.
        head_size: usize,
    },
}

/// What the tables' rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeTables {
    /// One for each token, gathered before: `[T, D]`. For decoding and verification.
    PerToken,
    /// One for each position, `[longest, D]`, read from row 0 for each sequence. For prefill only.
    ByPosition,
}

/// Rope. Inputs: q `[T, N*D]`, k `[T, K*D]`, cos, sin `[rows, D]`, lengths `[B]` (read with `ByPosition` only, and
/// always there); outputs: q, k. f16 or bf16 with tables of the same, or f16 with f32 tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope {
    /// Which elements turn together.
    pub rotation: Rotation,
    /// What the tables' rows are.
    pub tables: RopeTables,
}

impl Lower for Rope {
    fn name(&self) -> &'static str {
        "Rope"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_rope"
    }

    fn check(&self, _: Chip) -> Result<()> {
        match self.rotation {
            Rotation::Pairs { head_size } => {
                require((16..=4096).contains(&head_size) && head_size % 2 == 0, self.name(), || {
                    format!("the head size is {head_size}, and 16 to 4096 is allowed")
                })
            }
            Rotation::Halves | Rotation::QuarterHeads => Ok(()),
        }
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let (q, k) = (check.input(0, "q")?, check.input(1, "k")?);
        let (cos, sin) = (check.input(2, "cos")?, check.input(3, "sin")?);
        let dtype = q.dtype(HALVES)?;
        k.dtype(&[dtype])?;
        let tables = if dtype == DataType::F16 { &[DataType::F16, DataType::F32][..] } else { HALVES };
        let table = cos.dtype(tables)?;
        sin.dtype(&[table])?;
        cos.require(dtype == DataType::F16 || table == dtype, format!("has to be {dtype} like q"))?;
        cos.rank(2..=2)?;
        sin.shape(cos.desc().shape())?;
        let size = cos.desc().last();
        cos.require((16..=4096).contains(&size), "has a head size outside of 16 to 4096")?;
        if let Rotation::Pairs { head_size } = self.rotation {
            cos.require(size == head_size, format!("has to be {head_size} wide"))?;
        }
        let (tokens, hidden) = (q.desc().shape()[0], q.desc().last());
        k.require(k.desc().shape()[0] == tokens, format!("has to have {tokens} rows like q"))?;
        if q.desc().shape().len() == 2 {
            let key_hidden = k.desc().last();
            q.require(hidden.is_multiple_of(16), "needs rows of a multiple of 16")?;
            q.require(hidden.is_multiple_of(key_hidden), format!("needs rows of a multiple of k's, {key_hidden}"))?;
            k.require(key_hidden.is_multiple_of(size), format!("needs rows of a multiple of the head size, {size}"))?;
            if self.tables == RopeTables::PerToken {
                cos.require(cos.desc().shape()[0] == tokens, format!("has to have a row for each of {tokens} tokens"))?;
            }
        }
        let lengths = check.input(4, "lengths")?;
        lengths.dtype(&[DataType::I32, DataType::U32])?;
        lengths.rank(1..=1)
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let param = spec_atb_rope_param {
            rotary_coeff: match self.rotation {
                Rotation::Halves => 2,
                Rotation::QuarterHeads => 4,
                // Checked to fit.
                Rotation::Pairs { head_size } => head_size as i32,
            },
            cos_format: match self.tables {
                RopeTables::PerToken => 0,
                RopeTables::ByPosition => 1,
            },
        };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_rope(&param, operation) }
    }
}
