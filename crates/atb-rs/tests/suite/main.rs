//! Claims about the safe layer, on a library of functions that work as late as they may (`fake`).
#![allow(clippy::unwrap_used)]

mod example;
mod failures;
mod fake;
mod lifecycle;
mod order;
mod truths;

use atb_rs::{Context, DataType, Device, DeviceBuffer, Executor, Runtime, Stream, Tensor, TensorDesc, Workspace};
use half::f16;

/// A runtime on the fake, and a context of its device.
fn open(session: &fake::Session) -> (Runtime, Context) {
    let runtime = Runtime::start(session.api()).unwrap();
    let context = Context::new(&Device::open(&runtime, 0).unwrap()).unwrap();
    (runtime, context)
}

fn executor(context: &Context) -> Executor {
    let stream = Stream::new(context).unwrap();
    Executor::new(&stream, Workspace::new(context, 1 << 20)).unwrap()
}

/// A tensor of f16 that holds anything.
fn tensor<const RANK: usize>(context: &Context, shape: [usize; RANK]) -> Tensor {
    Tensor::allocate(context, TensorDesc::new(DataType::F16, shape)).unwrap()
}

fn of_type<const RANK: usize>(context: &Context, dtype: DataType, shape: [usize; RANK]) -> Tensor {
    Tensor::allocate(context, TensorDesc::new(dtype, shape)).unwrap()
}

fn halves(context: &Context, count: usize) -> DeviceBuffer {
    DeviceBuffer::from_slice(context, &vec![f16::ONE; count]).unwrap()
}
