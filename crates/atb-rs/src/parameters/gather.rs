//! Rows of tables, and pieces of tensors.

use super::lower::{Check, HALVES, Lower, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::DataType;
use acl_sys::{Api, Status, spec_atb_gather_param, spec_atb_operation, spec_atb_split_param};

/// Gather: rows of a table by index, such as embeddings. Inputs: table `[V, H]`, indices `[T]`; output `[T, H]`. In
/// general the indexed axis of the table is replaced by the axes of the indices.
///
/// An index that is out of range is not noticed by anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The axis of the table.
    pub axis: usize,
    /// How many leading axes table and indices share; `axis` at most.
    pub batch_dims: usize,
}

impl Gather {
    /// Rows of a matrix.
    pub const ROWS: Self = Self { axis: 0, batch_dims: 0 };
}

impl Lower for Gather {
    fn name(&self) -> &'static str {
        "Gather"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_gather"
    }

    fn check(&self, _: Chip) -> Result<()> {
        require(self.batch_dims <= self.axis, self.name(), || {
            format!("batch_dims is {}, and axis, {}, is its limit", self.batch_dims, self.axis)
        })
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let (table, indices) = (check.input(0, "table")?, check.input(1, "indices")?);
        let types = match check.chip() {
            Chip::I310B => &[DataType::F16][..],
            _ => &[DataType::F16, DataType::Bf16, DataType::F32, DataType::I32, DataType::U32, DataType::I64],
        };
        table.dtype(types)?;
        indices.dtype(&[DataType::I64, DataType::I32, DataType::U32])?;
        let (rank, index_rank) = (table.desc().shape().len(), indices.desc().shape().len());
        table.require(self.axis < rank, format!("has no axis {}", self.axis))?;
        indices.require(index_rank >= self.batch_dims, format!("has fewer than {} axes", self.batch_dims))?;
        table.require(rank - 1 + index_rank - self.batch_dims <= 8, "gives more than 8 axes with these indices")
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let param = spec_atb_gather_param { axis: self.axis as i64, batch_dims: self.batch_dims as i64 };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_gather(&param, operation) }
    }
}

/// Split: 2 or 3 pieces of a tensor along an axis, each contiguous, as Rope and attention need them of a packed
/// projection. Input: x; outputs: the pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The axis; negative ones count from the end.
    pub axis: i32,
    /// Lengths of the pieces: 2 or 3.
    pub lengths: Vec<usize>,
}

impl Lower for Split {
    fn name(&self) -> &'static str {
        "Split"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_split"
    }

    fn check(&self, _: Chip) -> Result<()> {
        let fits = |&length: &usize| length > 0 && i32::try_from(length).is_ok();
        require(matches!(self.lengths.len(), 2 | 3) && self.lengths.iter().all(fits), self.name(), || {
            format!("lengths are {:?}, and 2 or 3 positive ones are needed", self.lengths)
        })
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let x = check.input(0, "x")?;
        match self.lengths.len() {
            2 => x.dtype(&[DataType::F16, DataType::Bf16, DataType::I64])?,
            _ => x.dtype(HALVES)?,
        };
        let shape = x.desc().shape();
        let axis = i64::from(self.axis) + if self.axis < 0 { shape.len() as i64 } else { 0 };
        let length = usize::try_from(axis).ok().and_then(|axis| shape.get(axis));
        let sum: usize = self.lengths.iter().sum();
        x.require(length == Some(&sum), format!("has to be {sum} long on axis {}", self.axis))
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let mut param = spec_atb_split_param { dim: self.axis, count: self.lengths.len() as i32, sizes: [0; 4] };
        for (to, &from) in param.sizes.iter_mut().zip(&self.lengths) {
            // Checked to fit.
            *to = from as i32;
        }
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_split(&param, operation) }
    }
}
