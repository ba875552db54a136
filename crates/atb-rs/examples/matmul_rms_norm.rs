//! A product and a norm of it, between two copies, on two streams, with the time that the device took.
//!
//!     cargo run -p atb-rs --example matmul_rms_norm [-- --hardware]
//!
//! Without `--hardware` it runs on the simulator, which is compiled in. With it, on device 0 of the CANN that is found;
//! it ends with one line and exit code 1 when there is none.

use acl_sys::Api;
use atb_rs::parameters::{Linear, RmsNorm};
use atb_rs::{
    Context, DataType, Device, DeviceBuffer, Event, Executor, HostBuffer, Operation, Result, Runtime, Stream, Tensor,
    TensorDesc, Workspace,
};
use half::f16;
use std::process::ExitCode;
use std::time::Duration;

/// Rows of the input, and its columns.
const ROWS: usize = 4;
const DEPTH: usize = 64;
/// Columns of the product.
const COLUMNS: usize = 128;
const EPSILON: f32 = 1e-5;

/// What came out.
pub struct Outcome {
    /// The norm of the product, [ROWS, COLUMNS].
    pub normed: Vec<f16>,
    /// The time on the device from the first operation to the end of the last one.
    pub elapsed: Duration,
}

/// The input, which is small and not regular.
pub fn input() -> Vec<f16> {
    (0..ROWS * DEPTH).map(|at| f16::from_f32(((at * 37 % 101) as f32 - 50.0) / 64.0)).collect()
}

/// The weight, [COLUMNS, DEPTH].
pub fn weight() -> Vec<f16> {
    (0..COLUMNS * DEPTH).map(|at| f16::from_f32(((at * 53 % 97) as f32 - 48.0) / 128.0)).collect()
}

/// What has to come out, in f64 from the rounded inputs.
pub fn expected() -> Vec<f64> {
    let (x, w) = (input(), weight());
    let mut normed = Vec::new();
    for x in x.chunks(DEPTH) {
        let products = w.chunks(DEPTH).map(|w| x.iter().zip(w).map(|(x, w)| x.to_f64() * w.to_f64()).sum::<f64>());
        // The product is rounded to f16 on its way to the norm.
        let products: Vec<f64> = products.map(|product| f16::from_f64(product).to_f64()).collect();
        let mean = products.iter().map(|product| product * product).sum::<f64>() / COLUMNS as f64;
        normed.extend(products.iter().map(|product| product / (mean + f64::from(EPSILON)).sqrt()));
    }
    normed
}

/// Copies the input to the device on one stream, computes on another, and copies the result back on the first.
pub fn run(context: &Context) -> Result<Outcome> {
    let (copies, computation) = (Stream::new(context)?, Stream::new(context)?);
    let executor = Executor::new(&computation, Workspace::new(context, 64 << 20))?;
    let mut multiply = Operation::new(context, Linear::new(false))?;
    let mut norm = Operation::new(context, RmsNorm::new(EPSILON))?;

    let half = |shape| TensorDesc::new(DataType::F16, shape);
    let x = Tensor::allocate(context, half([ROWS, DEPTH]))?;
    let product = Tensor::allocate(context, half([ROWS, COLUMNS]))?;
    let normed = DeviceBuffer::new(context, half([ROWS, COLUMNS]).bytes())?;
    let y = Tensor::new(half([ROWS, COLUMNS]), &normed)?;
    // Weights are loaded once, before anything runs, so that they may be copied the simple way.
    let w = Tensor::new(half([COLUMNS, DEPTH]), &DeviceBuffer::from_slice(context, &weight())?)?;
    let gamma = DeviceBuffer::from_slice(context, &[f16::ONE; COLUMNS])?;
    let gamma = Tensor::new(TensorDesc::new(DataType::F16, [COLUMNS]), &gamma)?;

    let mut staging = HostBuffer::new(context, half([ROWS, DEPTH]).bytes())?;
    staging.write::<f16>()?.copy_from_slice(&input());
    let mut result = HostBuffer::new(context, normed.len())?;
    let (mut uploaded, mut downloaded) = (Event::new(context)?, Event::new(context)?);
    let (mut started, mut finished) = (Event::timed(context)?, Event::timed(context)?);

    if let Some(buffer) = x.buffer() {
        copies.upload(&staging, buffer)?;
    }
    copies.record(&mut uploaded)?;

    computation.wait(&uploaded)?;
    computation.record(&mut started)?;
    multiply.setup(&executor, vec![x, w], vec![product.clone()])?.execute()?;
    norm.setup(&executor, vec![product, gamma], vec![y])?.execute()?;
    computation.record(&mut finished)?;

    copies.wait(&finished)?;
    copies.download(&normed, &mut result)?;
    copies.record(&mut downloaded)?;

    downloaded.synchronize()?;
    let elapsed = finished.elapsed_since(&started)?;
    Ok(Outcome { normed: result.read()?.to_vec(), elapsed })
}

fn main() -> ExitCode {
    match compute(std::env::args().any(|argument| argument == "--hardware")) {
        Ok(outcome) => {
            let pairs = outcome.normed.iter().zip(expected());
            let worst = pairs.map(|(got, wanted)| (got.to_f64() - wanted).abs()).fold(0.0, f64::max);
            println!("{ROWS}x{DEPTH} by {DEPTH}x{COLUMNS}, then RmsNorm: {:?} on the device", outcome.elapsed);
            println!("largest difference from f64: {worst:.5}");
            // Two roundings to f16 of values below 4.
            if worst < 0.01 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("matmul_rms_norm: {}", error.to_string().lines().next().unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn compute(hardware: bool) -> Result<Outcome, Box<dyn std::error::Error>> {
    let api = if hardware {
        // SAFETY: what lies where CANN is installed is taken to be CANN.
        unsafe { Api::load()? }
    } else {
        simulator()
    };
    let runtime = Runtime::start(api)?;
    let outcome = run(&Context::new(&Device::open(&runtime, 0)?)?)?;
    runtime.shutdown()?;
    Ok(outcome)
}

/// The simulator as a part of this program.
fn simulator() -> Api {
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys.
    unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) }
}
