//! Safe access to Huawei Ascend NPUs: devices, streams, memory and events over AscendCL, and the operators of ATB
//! (Ascend Transformer Boost) with their limits checked before they are called.
//!
//! Work is asynchronous, as on the device: calls queue it on a [`Stream`] and return. What keeps that safe is known on
//! the host. Each piece of memory remembers who used it last; a use on another stream that no event puts after the
//! earlier one is [`Error::Unordered`], a touch by the host before the work is known to be over is [`Error::InUse`],
//! and memory that is dropped while in use is freed once it is not.
//!
//! Everything keeps alive what it needs: buffers, streams and events their [`Context`], that its [`Device`], that the
//! [`Runtime`]. A drop that fails is reported by the next call ([`Error::Dropped`]).
//!
//! ```no_run
//! use atb_rs::parameters::Linear;
//! use atb_rs::{
//!     Context, DataType, Device, DeviceBuffer, Executor, Operation, Runtime, Stream, Tensor, TensorDesc, Workspace,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SAFETY: what lies where CANN is installed is taken to be CANN.
//! let runtime = Runtime::start(unsafe { acl_sys::Api::load()? })?;
//! let context = Context::new(&Device::open(&runtime, 0)?)?;
//! let stream = Stream::new(&context)?;
//! let executor = Executor::new(&stream, Workspace::new(&context, Workspace::DEFAULT_CEILING))?;
//!
//! let ones = [half::f16::ONE; 64 * 32];
//! let x = Tensor::new(TensorDesc::new(DataType::F16, [4, 32]), &DeviceBuffer::from_slice(&context, &ones[..128])?)?;
//! let w = Tensor::new(TensorDesc::new(DataType::F16, [64, 32]), &DeviceBuffer::from_slice(&context, &ones)?)?;
//! let y = Tensor::allocate(&context, TensorDesc::new(DataType::F16, [4, 64]))?;
//! let mut linear = Operation::new(&context, Linear::new(false))?;
//! linear.setup(&executor, vec![x, w], vec![y.clone()])?.execute()?;
//!
//! stream.synchronize()?;
//! let mut result = [half::f16::ZERO; 256];
//! y.buffer().ok_or("y has memory")?.read(0, &mut result)?;
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here has run on an NPU yet.
#![deny(missing_docs)]

mod call;
mod context;
mod device;
mod error;
mod event;
mod graph;
pub mod mask;
mod memory;
mod operation;
mod order;
pub mod parameters;
mod range;
mod runtime;
mod stream;
mod tensor;
mod verdict;
mod workspace;

pub use acl_sys::Status;
pub use context::{Context, MemoryInfo};
pub use device::{Chip, Device};
pub use error::{Error, Result};
pub use event::Event;
pub use graph::{GraphBuilder, TensorId, View};
pub use memory::{DeviceBuffer, Element, HostBuffer};
pub use operation::{Executor, Operation, Plan};
pub use parameters::Parameters;
pub use range::Range;
pub use runtime::{AtbLibrary, Runtime};
pub use stream::Stream;
pub use tensor::{DataType, Format, Lengths, MaskValues, Tensor, TensorDesc};
pub use verdict::{GreedyVerdict, RejectionVerdict, Verdicts};
pub use workspace::Workspace;
