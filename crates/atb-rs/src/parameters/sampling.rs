//! The largest of a row, and draws from it.

use super::lower::{Check, HALVES, Lower, Operand, require};
use crate::device::Chip;
use crate::error::Result;
use crate::tensor::DataType;
use acl_sys::{
    Api, SPEC_ATB_REDUCE_MAX, SPEC_ATB_REDUCE_MIN, SPEC_ATB_REDUCE_SUM, SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL,
    SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL_LOGPROBS, SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL,
    SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS, SPEC_ATB_SAMPLING_SINGLE_TOPK, Status, spec_atb_multinomial_param,
    spec_atb_operation, spec_atb_reduce_param, spec_atb_sampling_param, spec_atb_sort_param,
};

/// Sort: the `count` largest of the last axis, in descending order. Input x, f16, bf16 or (A2) f32; outputs: values,
/// and i32 indices. `count` 1 is the only argmax that ATB has. Which of equal elements comes first is not documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// 1 to the length of the last axis.
    pub count: usize,
}

impl Lower for Sort {
    fn name(&self) -> &'static str {
        "Sort"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_sort"
    }

    fn check(&self, _: Chip) -> Result<()> {
        require(self.count >= 1 && i32::try_from(self.count).is_ok(), self.name(), || {
            format!("count is {}, and 1 is the least", self.count)
        })
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let x = check.input(0, "x")?;
        match check.chip() {
            Chip::A2 | Chip::Other => x.dtype(&[DataType::F16, DataType::Bf16, DataType::F32])?,
            _ => x.dtype(HALVES)?,
        };
        x.require(self.count <= x.desc().last(), format!("has fewer than {} elements in a row", self.count))
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        // Checked to fit.
        let param = spec_atb_sort_param { count: self.count as i32, reserved: 0 };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_sort(&param, operation) }
    }
}

/// Which reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reduction {
    /// i32 and bf16; not f16.
    Max,
    /// i32 and bf16; not f16.
    Min,
    /// f16 and bf16.
    Sum,
}

/// Reduce: one value for an axis, which goes away. Input x; output the values, without indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// Which reduction.
    pub reduction: Reduction,
    /// The axis.
    pub axis: usize,
}

impl Lower for Reduce {
    fn name(&self) -> &'static str {
        "Reduce"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_reduce"
    }

    fn check(&self, _: Chip) -> Result<()> {
        require(self.axis < 8, self.name(), || format!("axis is {}, and tensors have 8 at most", self.axis))
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let x = check.input(0, "x")?;
        match self.reduction {
            Reduction::Max | Reduction::Min => x.dtype(&[DataType::I32, DataType::Bf16])?,
            Reduction::Sum => x.dtype(HALVES)?,
        };
        x.require(self.axis < x.desc().shape().len(), format!("has no axis {}", self.axis))
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let mut param = spec_atb_reduce_param {
            axes: [0; 8],
            axis_count: 1,
            type_: match self.reduction {
                Reduction::Max => SPEC_ATB_REDUCE_MAX,
                Reduction::Min => SPEC_ATB_REDUCE_MIN,
                Reduction::Sum => SPEC_ATB_REDUCE_SUM,
            },
            reserved: 0,
        };
        param.axes[0] = self.axis as i64;
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_reduce(&param, operation) }
    }
}

/// Multinomial: draws from rows of probabilities. Input probabilities f16 `[B, V]`; output i32 `[B, count]`. A2 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multinomial {
    /// 1 to 64.
    pub count: u32,
    /// Of the C library's generator, which ATB starts anew at each setup, for the whole process.
    pub seed: u32,
}

impl Lower for Multinomial {
    fn name(&self) -> &'static str {
        "Multinomial"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_multinomial"
    }

    fn check(&self, chip: Chip) -> Result<()> {
        require(matches!(chip, Chip::A2 | Chip::Other), self.name(), || format!("{chip:?} has no such operation"))?;
        require((1..=64).contains(&self.count), self.name(), || {
            format!("count is {}, and 1 to 64 is allowed", self.count)
        })
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let rows = check.input(0, "probabilities")?;
        rows.dtype(&[DataType::F16])?;
        rows.require(self.count as usize <= rows.desc().last(), format!("has fewer than {} columns", self.count))
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let param = spec_atb_multinomial_param { sample_count: self.count, seed: self.seed };
        // SAFETY: the caller's promise; the parameter is valid for the call.
        unsafe { api.spec_atb_create_multinomial(&param, operation) }
    }
}

/// TopkToppSampling: draws from the likeliest of each row of probabilities, after softmax. Inputs: probabilities
/// `[B, V]`, f16 or bf16, then what the kind says; outputs: tokens i32 `[B, 1]`, their probabilities `[B, 1]`. B is 512
/// at most.
///
/// **The tensor `last kept` counts from 0**: it is the index of the last probability that is kept, k - 1. ATB reads out
/// of range for k itself when k is V.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sampling {
    /// One k and one seed for all rows. Input top-p `[B or 1, 1]`.
    Uniform {
        /// How many are kept, 1 to V.
        top_k: u32,
        /// `0xFFFF_FFFF` would take the time, and is refused here.
        seed: u32,
    },
    /// Inputs last kept i32 `[B, 1]`, top-p `[B, 1]`.
    Seeded {
        /// One for each row.
        seeds: Vec<u32>,
    },
    /// Inputs last kept, top-p, and exponential noise like the probabilities.
    Exponential,
    /// Inputs last kept, top-p, and uniform numbers f32 `[B, 1]`; a third output, log-probabilities f32 `[B, size]`.
    /// The randomness is the caller's, so that results can be reproduced.
    Supplied {
        /// Up to V and 16,384.
        log_probabilities: u32,
    },
    /// As `Exponential`, with a third output, log-probabilities f32 `[B, size]`.
    ExponentialLogged {
        /// Up to V and 16,384.
        log_probabilities: u32,
    },
}

/// Sampling reproduces nothing with this seed: it stands for the clock.
const CLOCK_SEED: u32 = u32::MAX;

impl Lower for Sampling {
    fn name(&self) -> &'static str {
        "TopkToppSampling"
    }

    fn function(&self) -> &'static str {
        "spec_atb_create_sampling"
    }

    fn check(&self, _: Chip) -> Result<()> {
        let name = self.name();
        match self {
            Sampling::Uniform { top_k, seed } => {
                require(*top_k >= 1, name, || "top_k is 0, and 1 is the least".to_owned())?;
                require(*seed != CLOCK_SEED, name, || "seed 0xFFFFFFFF stands for the clock".to_owned())
            }
            Sampling::Seeded { seeds } => {
                require((1..=512).contains(&seeds.len()), name, || {
                    format!("there are {} seeds, one for each of 1 to 512 rows", seeds.len())
                })?;
                require(!seeds.contains(&CLOCK_SEED), name, || "seed 0xFFFFFFFF stands for the clock".to_owned())
            }
            Sampling::Exponential => Ok(()),
            Sampling::Supplied { log_probabilities } | Sampling::ExponentialLogged { log_probabilities } => {
                require(*log_probabilities <= 16_384, name, || {
                    format!("log_probabilities is {log_probabilities}, and 16384 is the limit")
                })
            }
        }
    }

    fn check_tensors(&self, check: &Check<'_>) -> Result<()> {
        let rows = check.input(0, "probabilities")?;
        let dtype = rows.dtype(HALVES)?;
        rows.rank(2..=2)?;
        let (batch, vocabulary) = (rows.desc().shape()[0], rows.desc().last());
        rows.require(batch <= 512, "has more than 512 rows")?;
        let column = |operand: &Operand<'_>, dtype: DataType| {
            operand.dtype(&[dtype])?;
            operand.shape(&[batch, 1])
        };
        match self {
            Sampling::Uniform { top_k, .. } => {
                rows.require(*top_k as usize <= vocabulary, format!("has fewer than {top_k} columns"))?;
                let top_p = check.input(1, "top-p")?;
                top_p.dtype(&[dtype])?;
                let fits = matches!(top_p.desc().shape(), &[count, 1] if count == batch || count == 1);
                return top_p.require(fits, format!("has to be [{batch}, 1] or [1, 1]"));
            }
            Sampling::Seeded { seeds } => {
                rows.require(seeds.len() == batch, format!("has {batch} rows for {} seeds", seeds.len()))?;
            }
            Sampling::Exponential | Sampling::ExponentialLogged { .. } => {
                let noise = check.input(3, "noise")?;
                noise.dtype(&[dtype])?;
                noise.shape(rows.desc().shape())?;
            }
            Sampling::Supplied { .. } => column(&check.input(3, "uniform numbers")?, DataType::F32)?,
        }
        if let Sampling::Supplied { log_probabilities } | Sampling::ExponentialLogged { log_probabilities } = self {
            rows.require(*log_probabilities as usize <= vocabulary, "has fewer columns than log-probabilities")?;
        }
        column(&check.input(1, "last kept")?, DataType::I32)?;
        column(&check.input(2, "top-p")?, dtype)
    }

    unsafe fn create(&self, api: &Api, operation: *mut *mut spec_atb_operation) -> Result<Status, acl_sys::Error> {
        let (kind, seeds, seed, topk, log_probs_size) = match self {
            Sampling::Uniform { top_k, seed } => (SPEC_ATB_SAMPLING_SINGLE_TOPK, &[][..], *seed, *top_k, 0),
            Sampling::Seeded { seeds } => (SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL, &seeds[..], 0, 100, 0),
            Sampling::Exponential => (SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL, &[][..], 0, 100, 0),
            Sampling::Supplied { log_probabilities } => {
                (SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS, &[][..], 0, 100, *log_probabilities as i32)
            }
            Sampling::ExponentialLogged { log_probabilities } => {
                (SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL_LOGPROBS, &[][..], 0, 100, *log_probabilities as i32)
            }
        };
        let param = spec_atb_sampling_param {
            seeds: seeds.as_ptr(),
            seed_count: seeds.len() as u64,
            type_: kind,
            seed,
            topk,
            log_probs_size,
        };
        // SAFETY: the caller's promise; the parameter and its seeds are valid for the call, which copies them.
        unsafe { api.spec_atb_create_sampling(&param, operation) }
    }
}
