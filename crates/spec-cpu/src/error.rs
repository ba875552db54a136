//! What can go wrong in this crate.

use crate::WeightType;

/// Why a CPU operation was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The input dimension of a weight matrix is not a whole number of quantisation blocks.
    #[error(
        "a {ty:?} matrix of {outputs} x {inputs} cannot be packed: its inputs must be a positive \
         multiple of {block}; convert the model with a type whose blocks divide {inputs}"
    )]
    WeightShape {
        /// Storage type of the matrix.
        ty: WeightType,
        /// Output rows.
        outputs: usize,
        /// Input columns.
        inputs: usize,
        /// Inputs per quantisation block.
        block: usize,
    },
    /// The bytes given do not hold exactly the matrix described.
    #[error(
        "a {ty:?} matrix of {outputs} x {inputs} takes {expected} bytes, {found} were given; \
         check the tensor's type and dimensions"
    )]
    WeightBytes {
        /// Storage type of the matrix.
        ty: WeightType,
        /// Output rows.
        outputs: usize,
        /// Input columns.
        inputs: usize,
        /// Bytes that such a matrix takes.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Two sides of an operation disagree about a size.
    #[error("{operation}: {what} must be {expected}, found {found}")]
    Shape {
        /// The operation that refused.
        operation: &'static str,
        /// The size in question.
        what: &'static str,
        /// What it has to be, at least or exactly as the operation documents.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// A matrix was multiplied with rows quantised for another block size.
    #[error(
        "{weights:?} weights take activations in the form {expected:?}, these rows are in {found:?}; \
         quantise the rows in the form that PackedMatrix::activation_form names"
    )]
    ActivationForm {
        /// Storage type of the matrix.
        weights: WeightType,
        /// The form its kernel reads.
        expected: crate::ActivationForm,
        /// The form of the rows given.
        found: crate::ActivationForm,
    },
    /// The operating system refused memory.
    #[error("cannot reserve {bytes} bytes of weight memory: {source}; free memory or use a smaller model")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The operating system refused a thread.
    #[error("cannot start worker thread {index} of {threads}: {source}; ask for fewer threads")]
    Thread {
        /// Index of the worker.
        index: usize,
        /// Threads asked for.
        threads: usize,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The instruction set asked for does not exist or this processor lacks it.
    #[error("instruction set '{name}' is not available here; available: {available}")]
    UnknownIsa {
        /// The name given.
        name: String,
        /// Names usable on this processor.
        available: String,
    },
    /// A tensor of the checkpoint that cannot be used.
    #[error("tensor '{tensor}': {source}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong with it.
        source: Box<CpuError>,
    },
    /// Something that no kernel of this crate does.
    #[error("{what} is not supported on the CPU; {instead}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What to do.
        instead: &'static str,
    },
    /// A context that the model does not have.
    #[error("a context of {context} positions is outside 1..={limit}, what the model was trained for")]
    Context {
        /// Positions asked for.
        context: usize,
        /// Positions the model knows.
        limit: usize,
    },
    /// A KV cache too large to address, or of no size at all.
    #[error("a KV cache of {blocks} blocks of 32 tokens is not possible; ask for another context")]
    KvSize {
        /// Blocks asked for.
        blocks: usize,
    },
}
