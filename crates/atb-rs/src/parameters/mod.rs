//! Parameters of operations, each with ATB's documented limits, which are checked before ATB is asked.
//!
//! Notation in the shapes: T tokens of all sequences, H hidden size, N query heads, K key-value heads, D head size,
//! B sequences, V vocabulary. Limits are those of ATB's headers and documentation, `hicann/ascend-transformer-boost`
//! ddcc8b62.

mod cache;
mod elementwise;
mod gather;
mod linear;
mod lower;
mod norm;
mod paged_attention;
mod rope;
mod sampling;
mod self_attention;
mod verify;

pub(crate) use lower::Check;

pub use cache::{CacheLayout, ReshapeAndCache};
pub use elementwise::{Activation, Elewise, Softmax};
pub use gather::{Gather, Split};
pub use linear::{Linear, LinearQuant};
pub use norm::{NormModel, NormQuant, Placement, RmsNorm};
pub use paged_attention::{PagedAttention, PagedMode};
pub use rope::{Rope, RopeTables, Rotation};
pub use sampling::{Multinomial, Reduce, Reduction, Sampling, Sort};
pub use self_attention::{PrefillKernel, PrefillMask, SelfAttention};
pub use verify::Verify;

/// Parameters of an operation, for [`Operation::new`](crate::Operation::new). The types of this module are all there
/// are.
pub trait Parameters: lower::Lower {}

impl<P: lower::Lower> Parameters for P {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
