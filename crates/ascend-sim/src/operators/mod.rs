//! Operators, with ATB's semantics and limits, computed on the CPU.
//!
//! They share no code with the engine's own CPU kernels: each is written from ATB's documentation, plainly, so that one
//! checks the other. Halves are stored as such and summed in f32, in an order that depends on the position of the
//! summands alone, so that each row of a result is a function of that row.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod cache;
pub(crate) mod elewise;
pub(crate) mod gather;
pub(crate) mod linear;
pub(crate) mod paged_attention;
pub(crate) mod product;
pub(crate) mod reduce;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod sampling;
pub(crate) mod self_attention;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod split;
pub(crate) mod tensor;
pub(crate) mod transdata;
pub(crate) mod verify;

use crate::config::Soc;
use crate::failure::{Failure, Outcome};
use crate::order::Usage;
use acl_sys::Status;
use std::sync::Arc;
use tensor::{Argument, Desc, Tensor, Type};

/// What a kernel works on.
pub(crate) struct Bound {
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
}

/// The work itself. It reads and writes bound tensors only, so that a captured one may run again.
pub(crate) type Kernel = Arc<dyn Fn(&Bound) -> Outcome + Send + Sync>;

/// An operation that was planned for its tensors.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Bytes of workspace, before they are rounded up.
    pub(crate) scratch: u64,
    pub(crate) multiply_adds: f64,
    /// Bytes that the kernel moves; `None` for all of its tensors.
    pub(crate) bytes: Option<f64>,
    /// Kernels that the operation is on a device, one after the other.
    pub(crate) launches: u32,
    pub(crate) kernel: Kernel,
}

impl Plan {
    /// A plan that needs no workspace and moves its tensors once.
    pub(crate) fn new(kernel: impl Fn(&Bound) -> Outcome + Send + Sync + 'static) -> Self {
        Self { scratch: 0, multiply_adds: 0.0, bytes: None, launches: 1, kernel: Arc::new(kernel) }
    }

    pub(crate) fn with_scratch(self, scratch: usize) -> Self {
        Self { scratch: scratch as u64, ..self }
    }

    pub(crate) fn with_work(self, multiply_adds: f64) -> Self {
        Self { multiply_adds, ..self }
    }

    pub(crate) fn with_bytes(self, bytes: f64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    pub(crate) fn with_launches(self, launches: u32) -> Self {
        Self { launches, ..self }
    }
}

/// One of ATB's operations, with its parameters.
pub(crate) trait Operator: Send + Sync {
    /// ATB's name.
    fn name(&self) -> &'static str;

    /// How many inputs and outputs there are.
    fn arity(&self) -> (usize, usize);

    /// Whether an input may be left out.
    fn is_optional(&self, _input: usize) -> bool {
        false
    }

    /// Whether ATB has a kernel for these types and layouts. Shapes are not checked yet.
    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool;

    /// Descriptions of the outputs, after checks of the inputs' shapes.
    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>>;

    /// Checks what else there is, and plans.
    fn plan(&self, inputs: &[Argument], outputs: &[Argument], soc: Soc) -> Outcome<Plan>;

    /// How a tensor is used; `None` for one that is not touched, or only by its other name.
    fn usage(&self, is_input: bool, _index: usize) -> Option<Usage> {
        Some(if is_input { Usage::Read } else { Usage::Write })
    }

    /// Whether sums are formed, whose rounding may depend on their order.
    fn sums(&self) -> bool {
        false
    }
}

/// A shape that does not fit.
pub(crate) fn shape(text: impl Into<String>) -> Failure {
    Failure::new(Status::ATB_ERROR_INVALID_TENSOR_DIM, text)
}

/// Whether all descriptions are plain and of one of these types, the same for all.
pub(crate) fn all_of<'a>(descs: impl IntoIterator<Item = &'a Desc>, types: &[Type]) -> bool {
    let mut first = None;
    descs.into_iter().all(|desc| {
        let same = *first.get_or_insert(desc.dtype) == desc.dtype;
        same && desc.format == tensor::Format::Nd && types.contains(&desc.dtype)
    })
}

/// Whether a description is plain and of this type.
pub(crate) fn is(desc: &Desc, dtype: Type) -> bool {
    desc.dtype == dtype && desc.format == tensor::Format::Nd
}

/// A kernel met a value that would make it read or write beyond its tensors.
pub(crate) fn trap(text: impl Into<String>) -> Failure {
    Failure::new(Status::ACL_ERROR_RT_AICORE_EXCEPTION, text)
}
