//! What it takes until the host knows which drafts stand, greedy: with the logits copied to it, with ATB's operations
//! called one by one, and with Verify. A table in Markdown, of the simulator's cost model.
//!
//!     cargo run -p atb-rs --example verify_costs
//!
//! No hardware is asked: the numbers are launches, bytes and a virtual clock.

use acl_sys::Api;
use atb_rs::parameters::{Gather, Softmax, Sort, Verify};
use atb_rs::{
    Context, DataType, Device, DeviceBuffer, Executor, HostBuffer, Operation, Result, Runtime, Stream, Tensor,
    TensorDesc, Verdicts, Workspace,
};
use std::error::Error;
use std::process::ExitCode;

const VOCABULARIES: [usize; 2] = [49_152, 151_936];
const ROWS: [usize; 3] = [2, 5, 8];
/// Nanoseconds of a launch on the device: the simulator's default, and another, so that the difference counts them.
const LAUNCH: [u64; 2] = [4_000, 5_000];

/// Each way, with the simulator's `verify` that it is measured under.
const WAYS: [(&str, Way, &str); 4] = [
    ("logits to the host", Way::Host, "composed"),
    ("operations one by one", Way::Composed, "composed"),
    ("Verify, as the module composes it", Way::Fused, "composed"),
    ("Verify, as one kernel", Way::Fused, "kernel"),
];

#[derive(Clone, Copy)]
enum Way {
    Host,
    Composed,
    Fused,
}

/// Bytes that went to the host, and nanoseconds until it had them.
struct Cost {
    bytes: usize,
    time: u64,
}

struct Machine {
    context: Context,
    stream: Stream,
    executor: Executor,
}

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("verify_costs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> std::result::Result<(), Box<dyn Error>> {
    println!("| vocabulary | rows | way | tasks on the stream | bytes to the host | virtual time |");
    println!("|---|---|---|---|---|---|");
    for vocabulary in VOCABULARIES {
        for rows in ROWS {
            for (name, way, verify) in WAYS {
                let [cost, dearer] = LAUNCH.map(|launch| measure(way, verify, launch, rows, vocabulary));
                let (cost, dearer) = (cost?, dearer?);
                let tasks = (dearer.time - cost.time) / (LAUNCH[1] - LAUNCH[0]);
                let microseconds = cost.time as f64 / 1e3;
                println!("| {vocabulary} | {rows} | {name} | {tasks} | {} | {microseconds:.1} us |", cost.bytes);
            }
        }
    }
    Ok(())
}

fn measure(
    way: Way,
    verify: &str,
    launch: u64,
    rows: usize,
    vocabulary: usize,
) -> std::result::Result<Cost, Box<dyn Error>> {
    ascend_sim::reset();
    ascend_sim::configure(&format!("delay=0;verify={verify};launch={launch}"))?;
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys.
    let api = unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
    let runtime = Runtime::start(api)?;
    let cost = {
        let context = Context::new(&Device::open(&runtime, 0)?)?;
        let stream = Stream::new(&context)?;
        let executor = Executor::new(&stream, Workspace::with_default_ceiling(&context)?)?;
        let machine = Machine { context, stream, executor };
        let desc = TensorDesc::new(DataType::F16, [rows, vocabulary]);
        let values: Vec<half::f16> = (0..rows * vocabulary).map(|at| half::f16::from_f32((at % 997) as f32)).collect();
        let buffer = DeviceBuffer::from_slice(&machine.context, &values)?;
        let logits = Tensor::new(desc, &buffer)?;
        match way {
            Way::Host => to_the_host(&machine, &buffer)?,
            Way::Composed => composed(&machine, logits, rows)?,
            Way::Fused => fused(&machine, logits, rows)?,
        }
    };
    runtime.shutdown()?;
    Ok(cost)
}

fn to_the_host(machine: &Machine, logits: &DeviceBuffer) -> Result<Cost> {
    let mut host = HostBuffer::new(&machine.context, logits.len())?;
    let begun = host_time();
    machine.stream.download(logits, &mut host)?;
    machine.stream.synchronize()?;
    Ok(Cost { bytes: host.len(), time: host_time() - begun })
}

/// What Verify is made of, with its outputs in one piece of memory as well.
fn composed(machine: &Machine, logits: Tensor, rows: usize) -> Result<Cost> {
    let context = &machine.context;
    let mut verdicts = Verdicts::new(context, Verify::Greedy, rows, DataType::F16)?;
    let [tokens, values, picked] = [0, 1, 2].map(|at| verdicts.tensors().swap_remove(at));
    let (mut softmax, mut sort) = (Operation::new(context, Softmax)?, Operation::new(context, Sort { count: 2 })?);
    let mut gather = Operation::new(context, Gather { axis: 1, batch_dims: 1 })?;
    let vocabulary = logits.desc().map_or(0, |desc| desc.shape()[1]);
    let probabilities = Tensor::allocate(context, TensorDesc::new(DataType::F16, [rows, vocabulary]))?;
    let executor = &machine.executor;
    let begun = host_time();
    softmax.setup(executor, vec![logits.clone()], vec![probabilities.clone()])?.execute()?;
    sort.setup(executor, vec![logits], vec![values, tokens.clone()])?.execute()?;
    gather.setup(executor, vec![probabilities, tokens], vec![picked])?.execute()?;
    finish(machine, &mut verdicts, begun)
}

fn fused(machine: &Machine, logits: Tensor, rows: usize) -> Result<Cost> {
    let mut verdicts = Verdicts::new(&machine.context, Verify::Greedy, rows, DataType::F16)?;
    let mut verify = Operation::new(&machine.context, Verify::Greedy)?;
    let begun = host_time();
    verify.setup(&machine.executor, vec![logits], verdicts.tensors())?.execute()?;
    finish(machine, &mut verdicts, begun)
}

fn finish(machine: &Machine, verdicts: &mut Verdicts, begun: u64) -> Result<Cost> {
    verdicts.download(&machine.stream)?;
    machine.stream.synchronize()?;
    let cost = Cost { bytes: verdicts.bytes(), time: host_time() - begun };
    // The largest of 0 to 996 in each row: 996, at several places.
    assert!(verdicts.greedy()?.iter().all(|verdict| verdict.logits == [996.0; 2] && verdict.decided().is_none()));
    Ok(cost)
}

/// Nanoseconds of this thread's clock in the simulator.
fn host_time() -> u64 {
    let Some(address) = ascend_sim::resolve("ascend_sim_host_time") else { return 0 };
    // SAFETY: the simulator's function of this name has this signature.
    let host_time: unsafe extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(address.as_ptr()) };
    // SAFETY: it takes a number.
    unsafe { host_time(0) }
}
