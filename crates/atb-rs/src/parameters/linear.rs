//! Matrix products.

use super::lower::{Check, HALVES, Lower, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::{DataType, Format};
use acl_sys::{
    Api, SPEC_ATB_LINEAR_QUANT_DEFAULT, SPEC_ATB_LINEAR_QUANT_PER_TOKEN, SPEC_ATB_MATMUL_PLAIN, Status,
    spec_atb_linear_param, spec_atb_operation,
};

/// Whether a product is of int8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinearQuant {
    /// f16 or bf16.
    None,
    /// int8 with a scale for each column of the output: u64 or i64 bits for f16, f32 for bf16. A bias is i32.
    PerChannel {
        /// f16 or bf16.
        output: DataType,
    },
    /// The same with a scale, f32, for each row of the activations too, and all scales f32. No bias; A2 only.
    PerToken {
        /// f16 or bf16.
        output: DataType,
    },
}

/// Linear: y = x w, + bias. Inputs: x `[M, K]` or `[B, M, K]`, weight, (bias `[N]` or `[1, N]`), (scales `[N]`),
/// (scales of rows `[M]`), or for `accumulate` x, weight and a f32 tensor `[M, N]`; output `[.., M, N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// The weight is `[N, K]`, as checkpoints have it, and not `[K, N]`.
    pub transpose_weight: bool,
    /// A bias is an input. ATB's own default is that one is.
    pub bias: bool,
    /// Add into an f32 tensor. A2 only, without bias, not quantised.
    pub accumulate: bool,
    /// Whether it is of int8.
    pub quant: LinearQuant,
}

impl Linear {
    /// A layer of a checkpoint: weight `[N, K]`, not quantised.
    pub fn new(bias: bool) -> Self {
        Self { transpose_weight: true, bias, accumulate: false, quant: LinearQuant::None }
    }

    fn output(&self) -> Option<DataType> {
        match self.quant {
            LinearQuant::None => None,
            LinearQuant::PerChannel { output } | LinearQuant::PerToken { output } => Some(output),
        }
    }

    fn check_quantised(&self, check: &Check<'_>, columns: usize, rows: usize) -> Result<()> {
        let mut next = 2;
        if self.bias {
            let bias = check.input(next, "bias")?;
            bias.dtype(&[DataType::I32])?;
            bias.require(bias.desc().len() == columns, format!("has to have {columns} elements"))?;
            next += 1;
        }
        let scale = check.input(next, "scales")?;
        let as_bits =
            matches!(self.quant, LinearQuant::PerChannel { output: DataType::F16 }) && check.chip() != Chip::A910;
        scale.dtype(if as_bits { &[DataType::U64, DataType::I64] } else { &[DataType::F32] })?;
        scale.require(scale.desc().len().is_multiple_of(columns), format!("has to have {columns} elements"))?;
        if let LinearQuant::PerToken { .. } = self.quant {
            let row_scale = check.input(next + 1, "scales of rows")?;
            row_scale.dtype(&[DataType::F32])?;
            row_scale.require(row_scale.desc().len() == rows, format!("has to have {rows} elements"))?;
        }
        Ok(())
    }
}

impl Lower for Linear {
    fn name(&self) -> &'static str {
        "Linear"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_linear"
    }

    fn check(&self, chip: Chip) -> Result<()> {
        let name = self.name();
        let everything = matches!(chip, Chip::A2 | Chip::Other);
        require(!self.accumulate || (everything && !self.bias && self.quant == LinearQuant::None), name, || {
            format!("accumulating takes an A2, no bias and no quantisation; the chip is {chip:?}")
        })?;
        let Some(output) = self.output() else { return Ok(()) };
        require(HALVES.contains(&output), name, || format!("int8 gives f16 or bf16, and {output} was asked for"))?;
        require(output == DataType::F16 || everything, name, || format!("int8 to bf16 takes an A2, not {chip:?}"))?;
        if let LinearQuant::PerToken { .. } = self.quant {
            require(everything && !self.bias, name, || {
                format!("scales for each row take an A2 and no bias; the chip is {chip:?}")
            })?;
        }
        require(chip != Chip::I310P || (self.bias && self.transpose_weight), name, || {
            "int8 on 310P takes a bias and a weight of [N, K]".to_owned()
        })
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let (x, weight) = (check.input(0, "x")?, check.input(1, "weight")?);
        x.nd()?;
        x.rank(2..=3)?;
        let shape = x.desc().shape();
        let (depth, rows) = (x.desc().last(), x.desc().len() / x.desc().last());
        let quantised = self.quant != LinearQuant::None;
        let dtype = match check.chip() {
            _ if quantised => x.dtype(&[DataType::I8])?,
            Chip::I310P => x.dtype(&[DataType::F16])?,
            Chip::A2 | Chip::Other if !self.accumulate => x.dtype(&[DataType::F16, DataType::Bf16, DataType::F32])?,
            _ => x.dtype(HALVES)?,
        };
        weight.dtype(&[dtype])?;
        let is_nz = weight.desc().format() == Format::Nz;
        weight.require(!is_nz || dtype != DataType::F32, "has to be in ND format for f32")?;
        if let LinearQuant::PerToken { .. } = self.quant {
            weight.nd()?;
            weight.require(weight.desc().shape().len() == shape.len(), "has to have as many axes as x")?;
        }
        // Tiles of NZ have axes of their own; ATB compares those itself.
        let weight_shape = weight.desc().shape();
        if is_nz && weight_shape.len() == 4 {
            return Ok(());
        }
        weight.rank(2..=3)?;
        let (outer, inner) = (weight_shape[weight_shape.len() - 2], weight.desc().last());
        let (columns, weight_depth) = if self.transpose_weight { (outer, inner) } else { (inner, outer) };
        weight.require(weight_depth == depth, format!("has to have {depth} elements where x has its last axis"))?;
        if quantised {
            return self.check_quantised(check, columns, rows);
        }
        if self.bias {
            let bias = check.input(2, "bias")?;
            let wide = dtype != DataType::F32 && !is_nz && matches!(check.chip(), Chip::A2 | Chip::Other);
            let types = [dtype, DataType::F32];
            bias.dtype(if wide { &types } else { &types[..1] })?;
            bias.rank(1..=2)?;
            bias.require(
                bias.desc().last() == columns && bias.desc().len() == columns,
                format!("has to have {columns} elements"),
            )?;
        }
        if self.accumulate {
            let sum = check.input(2, "sum")?;
            sum.dtype(&[DataType::F32])?;
            sum.require(sum.desc().len() == rows * columns, format!("has to be {rows} by {columns}"))?;
        }
        Ok(())
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let param = spec_atb_linear_param {
            transpose_a: 0,
            transpose_b: self.transpose_weight.into(),
            has_bias: self.bias.into(),
            out_data_type: self.output().map_or(-1, DataType::raw),
            accumulate: self.accumulate.into(),
            matmul: SPEC_ATB_MATMUL_PLAIN,
            quant: match self.quant {
                // Before ATB 8.2 there was only this one, which the type of the output turns on; another value would
                // land in what older releases keep reserved, and be refused there.
                LinearQuant::None | LinearQuant::PerChannel { .. } => SPEC_ATB_LINEAR_QUANT_DEFAULT,
                LinearQuant::PerToken { .. } => SPEC_ATB_LINEAR_QUANT_PER_TOKEN,
            },
            reserved: 0,
        };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_linear(&param, operation) }
    }
}
