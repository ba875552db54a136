//! Ascend device of `spec`: decoders over ATB's operators, through atb-rs.
//!
//! The same code runs on an NPU and on the simulator; which one it is, is decided by the library that the
//! [`Runtime`](atb_rs::Runtime) was started with.
//!
//! - [`AscendDevice`]: an open device, and whether it still answers.
//! - [`AscendStream`]: a queue of work with ATB's state for it; drafter and target have one each, or share one.
//! - [`AscendModel`]: a checkpoint on a device, as a [`Model`](spec_runtime::Model) of the engine.
//! - [`MemoryPlan`]: what a model will take of device and host, before anything is taken.
//!
//! Every row goes through the same kernels, whether it belongs to a prompt, to plain decoding or to a draft: see
//! `docs/adr/0006-one-attention-for-all-rows.md`. On the simulator, whose sums have one order, a row of logits is
//! therefore a function of its own text, bit for bit. Hardware promises no such order: two passes of different sizes may
//! round differently, and a near-tie may then fall the other way.
//!
//! **Nothing here has run on an NPU yet.**
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod batch;
mod device;
mod error;
mod graphs;
mod half_type;
mod load;
mod model;
mod options;
mod pass;
mod plan;
mod rope;
mod shape;
mod store;
mod stream;
mod upload;

pub use device::{AscendDevice, DeviceOptions};
pub use error::AscendError;
pub use half_type::HalfType;
pub use model::AscendModel;
pub use options::LoadOptions;
pub use plan::MemoryPlan;
pub use stream::{AscendEvent, AscendStream};
