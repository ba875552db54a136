//! What every set of parameters offers inside the crate, and the words in which it states its limits.

use crate::device::Chip;
use crate::error::{Error, Result};
use crate::tensor::{DataType, Facts, Format, MaskValues, TensorDesc};
use acl_sys::{Api, Status, spec_atb_operation};
use std::fmt::{Debug, Display};
use std::sync::Arc;

/// How parameters become an operation.
pub trait Lower: Debug + Send + Sync + 'static {
    /// The operation's name.
    fn name(&self) -> &'static str;

    /// The shim's function that makes it.
    fn function(&self) -> &'static str;

    /// Compares the parameters with the limits.
    fn check(&self, chip: Chip) -> Result<()>;

    /// Compares tensors with the limits.
    fn check_tensors(&self, check: &Check<'_>) -> Result<()>;

    /// Calls the shim.
    ///
    /// # Safety
    /// `operation` is valid for a write.
    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error>;
}

/// The tensors of an operation, to be checked.
#[derive(Debug)]
pub struct Check<'a> {
    operation: &'static str,
    chip: Chip,
    inputs: &'a [Facts],
    outputs: &'a [Facts],
}

/// One tensor, to be checked.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    operation: &'static str,
    name: &'static str,
    desc: &'a TensorDesc,
    facts: &'a Facts,
}

/// The error for a parameter out of its limits.
pub(super) fn require(condition: bool, operation: &'static str, rule: impl FnOnce() -> String) -> Result<()> {
    match condition {
        true => Ok(()),
        false => Err(Error::Parameter { operation, rule: rule() }),
    }
}

impl<'a> Check<'a> {
    pub(crate) fn new(operation: &'static str, chip: Chip, inputs: &'a [Facts], outputs: &'a [Facts]) -> Result<Self> {
        let check = Self { operation, chip, inputs, outputs };
        for (at, facts) in inputs.iter().enumerate() {
            let refuse = |rule: String| Error::Tensor { operation, tensor: format!("input {at}"), rule };
            let Some(desc) = &facts.desc else { continue };
            if desc.is_empty() {
                return Err(refuse(format!("is {desc}, and no axis may be 0 long")));
            }
            if desc.dtype() == DataType::Bf16 && !chip.has_bf16() {
                return Err(refuse(format!("is {desc}, and {chip:?} has no bf16; use f16")));
            }
        }
        Ok(check)
    }

    pub fn chip(&self) -> Chip {
        self.chip
    }

    /// A tensor that may not be left out.
    pub fn input(&self, at: usize, name: &'static str) -> Result<Operand<'a>> {
        let missing = || Error::Tensor {
            operation: self.operation,
            tensor: format!("{name} (input {at})"),
            rule: format!("is not there; {} inputs were given", self.inputs.len()),
        };
        let facts = self.inputs.get(at).ok_or_else(missing)?;
        let desc = facts.desc.as_ref().ok_or_else(missing)?;
        Ok(Operand { operation: self.operation, name, desc, facts })
    }

    /// The output has to be the input: ATB writes a part of it and leaves the rest, so that another address would hold
    /// rubbish there. Inside a graph, equal numbers stand for equal addresses, and the graph compares them.
    pub fn in_place(&self, input: usize, output: usize, name: &'static str) -> Result<()> {
        let source = self.input(input, name)?;
        let target = self.outputs.get(output).cloned().unwrap_or_default();
        if target.address != source.facts.address || target.desc != source.facts.desc {
            return source
                .refuse(format!("is written in place: output {output} has to be the same tensor in the same memory"));
        }
        Ok(())
    }
}

impl<'a> Operand<'a> {
    pub fn desc(&self) -> &'a TensorDesc {
        self.desc
    }

    pub fn refuse<T>(&self, rule: impl Display) -> Result<T> {
        Err(Error::Tensor {
            operation: self.operation,
            tensor: self.name.to_owned(),
            rule: format!("is {}; it {rule}", self.desc),
        })
    }

    pub fn require(&self, condition: bool, rule: impl Display) -> Result<()> {
        match condition {
            true => Ok(()),
            false => self.refuse(rule),
        }
    }

    pub fn dtype(&self, allowed: &[DataType]) -> Result<DataType> {
        match allowed.contains(&self.desc.dtype()) {
            true => Ok(self.desc.dtype()),
            false => {
                let names: Vec<_> = allowed.iter().map(DataType::to_string).collect();
                self.refuse(format!("has to be {}", names.join(" or ")))
            }
        }
    }

    pub fn nd(&self) -> Result<()> {
        self.require(self.desc.format() == Format::Nd, "has to be in ND format")
    }

    pub fn shape(&self, expected: &[usize]) -> Result<()> {
        self.require(self.desc.shape() == expected, format!("has to have shape {expected:?}"))
    }

    pub fn rank(&self, allowed: std::ops::RangeInclusive<usize>) -> Result<()> {
        let rank = self.desc.shape().len();
        self.require(allowed.contains(&rank), format!("has to have {} to {} axes", allowed.start(), allowed.end()))
    }

    /// Lengths of sequences with their copy on the host, without which setup refuses, or plans by old ones.
    pub fn lengths(&self, sequences: usize) -> Result<&'a Arc<[i32]>> {
        self.dtype(&[DataType::I32])?;
        self.shape(&[sequences])?;
        match &self.facts.lengths {
            Some(lengths) => Ok(lengths),
            None => self.refuse("needs its copy on the host: make it by Tensor::lengths"),
        }
    }

    /// A mask has to say what its values mean, and mean what the kernel takes.
    pub fn mask(&self, needed: MaskValues) -> Result<()> {
        match self.facts.mask {
            Some(values) if values == needed => Ok(()),
            Some(values) => self.refuse(format!("holds {values}, and this kernel takes {needed}")),
            None => self.refuse(format!("has to hold {needed}; say so by Tensor::with_mask_values")),
        }
    }
}

/// The float types of activations.
pub(super) const HALVES: &[DataType] = &[DataType::F16, DataType::Bf16];
