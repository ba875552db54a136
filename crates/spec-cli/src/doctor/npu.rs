//! The device at work: started, asked, given memory, and tried with a copy, an addition and a product.

use std::time::Duration;

use acl_sys::{Api, Status};
use atb_rs::parameters::{Elewise, Linear, Parameters};
use atb_rs::{
    Chip, Context, DataType, Device, DeviceBuffer, Error, Event, Executor, HostBuffer, Operation, Result, Runtime,
    Stream, Tensor, TensorDesc, Workspace,
};
use half::f16;

use super::finding::{Fault, Finding, Section};
use super::libraries;
use super::machine::Machine;
use super::nodes::{self, CONTAINER_FLAGS};

/// What is taken and given back, to see whether memory is there at all.
const TRIAL_BYTES: usize = 64 << 20;
/// A hung kernel is reported after this. The first kernel of a process is loaded first, which takes its time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sides of the matrices: [ROWS, DEPTH] times [COLUMNS, DEPTH] transposed.
const ROWS: usize = 4;
const DEPTH: usize = 32;
const COLUMNS: usize = 16;

/// Starts the library, and looks at device `number`.
pub(crate) fn section(machine: &Machine, api: Api, number: u16, is_simulator: bool) -> Section {
    let mut section = Section::new(if is_simulator { "Simulator: device" } else { "Ascend: device" });
    if let Err(finding) = look(machine, api, number, is_simulator, &mut section) {
        section.add(*finding);
    }
    if section.has_failed() && !is_simulator {
        section.add(logs(machine));
    }
    section
}

type Look<T> = std::result::Result<T, Box<Finding>>;

fn look(machine: &Machine, api: Api, number: u16, is_simulator: bool, section: &mut Section) -> Look<()> {
    let shim = libraries::shim_is_there(&api);
    let runtime = Runtime::start(api).map_err(|error| failure(machine, "start", &error))?;
    section.add(versions(&runtime));
    section.add(chip(&runtime, is_simulator));
    let count = runtime.device_count().map_err(|error| failure(machine, "devices", &error))?;
    if u32::from(number) >= count {
        return Err(Box::new(no_such_device(machine, number, count)));
    }
    let looked = try_device(machine, &runtime, number, shim, is_simulator, section);
    let ended = runtime.shutdown();
    looked?;
    match ended {
        Ok(()) => Ok(()),
        Err(error) => Err(Box::new(Finding::warning("end", error.to_string()))),
    }
}

fn try_device(
    machine: &Machine,
    runtime: &Runtime,
    number: u16,
    shim: std::result::Result<(), acl_sys::Error>,
    is_simulator: bool,
    section: &mut Section,
) -> Look<()> {
    let failed = |check: &'static str| move |error: Error| failure(machine, check, &error);
    // The first time takes seconds: processes are started on the device, and operators are loaded.
    let device = Device::open(runtime, i32::from(number)).map_err(failed("open"))?;
    let context = Context::new(&device).map_err(failed("open"))?;
    let memory = context.memory_info().map_err(failed("memory"))?;
    DeviceBuffer::new(&context, TRIAL_BYTES).map_err(failed("memory"))?;
    let said = format!("device {number}: {} of {} MiB free", memory.free >> 20, memory.total >> 20);
    section.add(Finding::fine("memory", said));
    context.set_op_timeout(PATIENCE).map_err(failed("self-test"))?;
    copy(&context).map_err(failed("self-test: copy"))?.map_err(wrong("self-test: copy"))?;
    section.add(Finding::fine("self-test: copy", "1 MiB there and back, ordered by an event"));

    match shim {
        Err(error) => {
            section.add(libraries::refusal("ATB shim", &error));
            return Ok(());
        }
        Ok(()) => {
            let found = runtime.atb().map_err(failed("ATB shim"))?;
            let said = format!("libatb {} of cxx_abi_{}, {}", found.version, found.cxx11_abi, found.path.display());
            section.add(Finding::fine("ATB shim", said));
        }
    }
    let ceiling = runtime.workspace_ceiling().map_err(failed("workspace"))?;
    section.add(Finding::fine("workspace", format!("up to {} MB; SPEC_ATB_MAX_WS_SIZE changes it", ceiling >> 20)));
    if !is_simulator {
        section.add(libraries::module(runtime));
    }
    let (sum, product) = (add(&context), multiply(&context));
    sum.map_err(failed("self-test: add"))?.map_err(wrong("self-test: add"))?;
    product.map_err(failed("self-test: matmul"))?.map_err(wrong("self-test: matmul"))?;
    section.add(Finding::fine("self-test: add, matmul", "f16, equal to what the CPU computes"));
    Ok(())
}

fn versions(runtime: &Runtime) -> Finding {
    match runtime.api().cann_version() {
        Ok(Some(version)) => Finding::fine("CANN", format!("{version}, by its own word")),
        Ok(None) => Finding::note("CANN", "older than 8.5, by its own silence"),
        Err(error) => Finding::warning("CANN", format!("does not say its version: {error}")),
    }
}

fn chip(runtime: &Runtime, is_simulator: bool) -> Finding {
    if is_simulator {
        return Finding::note("chip", "simulated: nothing that follows was computed by an NPU");
    }
    match runtime.chip() {
        Chip::A2 => Finding::fine("chip", "Ascend 910B or 910_93 (A2, A3): everything is supported"),
        Chip::I310P => Finding::note("chip", "Ascend 310P: no bf16, caches and masks in NZ layout"),
        other => Finding::warning("chip", format!("{other:?}: ATB has no verification of drafts on it, and no bf16"))
            .fix("use an Atlas 800I A2 or A3, or an Atlas 300I Duo"),
    }
}

fn no_such_device(machine: &Machine, number: u16, count: u32) -> Finding {
    let visible = match machine.variable("ASCEND_RT_VISIBLE_DEVICES") {
        Some(value) => format!("; ASCEND_RT_VISIBLE_DEVICES is `{value}`, and {}", nodes::range(&machine.nodes())),
        None => String::new(),
    };
    let valid = match count {
        0 => "none is visible".to_owned(),
        1 => "0 is the only one".to_owned(),
        _ => format!("valid are 0 to {}", count - 1),
    };
    let finding = Finding::failure("devices", Fault::Device, format!("there is no device {number}: {valid}{visible}"));
    let fix = if visible.is_empty() { "" } else { "unset ASCEND_RT_VISIBLE_DEVICES" };
    finding.fix(fix).fix(if count == 0 { CONTAINER_FLAGS } else { "give --device ascend:N with a valid N" })
}

/// A failed call: its name, meaning and advice are in the error; what this machine adds is looked up here.
fn failure(machine: &Machine, check: &'static str, error: &Error) -> Box<Finding> {
    if let Error::Unavailable { source, .. } = error
        && error.status().is_none()
    {
        return Box::new(libraries::refusal(check, source));
    }
    let said = error.to_string();
    let status = error.status().unwrap_or(Status::SUCCESS);
    let finding = Finding::failure(check, fault(status, &said), said);
    Box::new(match status.0 {
        500_000 | 507_008 => finding.fix(CONTAINER_FLAGS),
        107_001 | 207_004 => {
            let value = machine.variable("ASCEND_RT_VISIBLE_DEVICES");
            let value = value.map_or("is not set".to_owned(), |value| format!("is `{value}`"));
            let range = nodes::range(&machine.nodes());
            finding.fix(format!("ASCEND_RT_VISIBLE_DEVICES {value}, and {range}: unset it, or name those")).fix("npu-smi info")
        }
        507_033 => finding
            .fix("install Ascend-cann-<chip>-ops (before 8.5: -kernels-) of CANN's release, for this chip")
            .fix("if it is installed, have an administrator reset the card"),
        507_014..=507_016 | 507_034..=507_036 | 507_013 => finding
            .fix("export ATB_STREAM_SYNC_EVERY_KERNEL_ENABLE=1, and run this again: the fault appears at its own kernel")
            .fix("if nothing but this runs on the card, driver, firmware and CANN do not fit: npu-smi info -t board -i 0"),
        507_899 => finding.fix("npu-smi info -t board -i 0: Compatibility has to be OK").fix("free the card in other containers"),
        207_001 => finding.fix("npu-smi info lists the processes that hold memory; end those that are left over"),
        _ => finding,
    })
}

fn fault(status: Status, said: &str) -> Fault {
    match status.0 {
        _ if said.contains("EE1015") => Fault::Version,
        207_006 => Fault::Permission,
        207_000 | 207_019 => Fault::Version,
        207_001 | 207_018 | 26 => Fault::Memory,
        148_049 => Fault::Library,
        -99..=-1 | 1..=99 => Fault::Atb,
        _ => Fault::Device,
    }
}

/// Results that are not what they have to be.
fn wrong(check: &'static str) -> impl Fn(String) -> Box<Finding> {
    move |said| {
        let finding = Finding::failure(check, Fault::Device, format!("the device computes wrongly: {said}"));
        Box::new(finding.fix(
            "install the operator package for this chip and CANN's release; do not use the device until this passes",
        ))
    }
}

fn logs(machine: &Machine) -> Finding {
    let newest = machine.newest_log();
    let newest =
        newest.map_or("no plog-*.log is there yet".to_owned(), |file| format!("the newest is {}", file.display()));
    Finding::note("logs of the vendor's libraries", newest).fix(
        "export ASCEND_GLOBAL_LOG_LEVEL=1 ASCEND_SLOG_PRINT_TO_STDOUT=1 ASCEND_LOG_PRINT_TO_STDOUT=1, and run this again",
    )
}

/// The outcome of a computation: what is wrong with it, when it ran at all.
type Computed = Result<std::result::Result<(), String>>;

fn copy(context: &Context) -> Computed {
    let stream = Stream::new(context)?;
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
    let buffer = DeviceBuffer::new(context, bytes.len())?;
    let (mut there, mut back) = (HostBuffer::new(context, bytes.len())?, HostBuffer::new(context, bytes.len())?);
    there.write::<u8>()?.copy_from_slice(&bytes);
    stream.upload(&there, &buffer)?;
    let mut event = Event::new(context)?;
    stream.record(&mut event)?;
    let other = Stream::new(context)?;
    other.wait(&event)?;
    other.download(&buffer, &mut back)?;
    other.synchronize()?;
    let got = back.read::<u8>()?;
    Ok(match got.iter().zip(&bytes).position(|(got, wanted)| got != wanted) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} came back as {}, and {} was sent", got[at], bytes[at])),
    })
}

/// Small multiples of a quarter: their sums and products are exact in f16, and so is what is expected.
fn numbers(count: usize, step: usize) -> Vec<f16> {
    (0..count).map(|at| f16::from_f32((at * step % 9) as f32 / 4.0 - 1.0)).collect()
}

fn tensor<const RANK: usize>(context: &Context, shape: [usize; RANK], values: &[f16]) -> Result<Tensor> {
    Tensor::new(TensorDesc::new(DataType::F16, shape), &DeviceBuffer::from_slice(context, values)?)
}

fn add(context: &Context) -> Computed {
    let (a, b) = (numbers(ROWS * DEPTH, 5), numbers(ROWS * DEPTH, 7));
    let inputs = vec![tensor(context, [ROWS, DEPTH], &a)?, tensor(context, [ROWS, DEPTH], &b)?];
    let expected = a.iter().zip(&b).map(|(a, b)| a.to_f32() + b.to_f32());
    compare(context, Elewise::Add, inputs, [ROWS, DEPTH], expected.collect())
}

fn multiply(context: &Context) -> Computed {
    let (x, w) = (numbers(ROWS * DEPTH, 5), numbers(COLUMNS * DEPTH, 7));
    let inputs = vec![tensor(context, [ROWS, DEPTH], &x)?, tensor(context, [COLUMNS, DEPTH], &w)?];
    let dot = |x: &[f16], w: &[f16]| x.iter().zip(w).map(|(x, w)| x.to_f32() * w.to_f32()).sum();
    let expected = x.chunks(DEPTH).flat_map(|x| w.chunks(DEPTH).map(move |w| dot(x, w)));
    compare(context, Linear::new(false), inputs, [ROWS, COLUMNS], expected.collect())
}

fn compare(
    context: &Context,
    parameters: impl Parameters,
    inputs: Vec<Tensor>,
    shape: [usize; 2],
    expected: Vec<f32>,
) -> Computed {
    let stream = Stream::new(context)?;
    let executor = Executor::new(&stream, Workspace::with_default_ceiling(context)?)?;
    let mut operation = Operation::new(context, parameters)?;
    let buffer = DeviceBuffer::new(context, expected.len() * size_of::<f16>())?;
    let output = Tensor::new(TensorDesc::new(DataType::F16, shape), &buffer)?;
    operation.setup(&executor, inputs, vec![output])?.execute()?;
    stream.synchronize()?;
    let mut got = vec![f16::ZERO; expected.len()];
    buffer.read(0, &mut got)?;
    Ok(judge(&got, &expected))
}

/// Sums in another order are exact here, so that one unit in the last place is all that a device may differ by.
pub(crate) fn judge(got: &[f16], expected: &[f32]) -> std::result::Result<(), String> {
    // What is not a number is not near either.
    let is_near = |got: f16, wanted: f32| (got.to_f32() - wanted).abs() <= wanted.abs().max(1.0) / 1024.0;
    match got.iter().zip(expected).position(|(&got, &wanted)| !is_near(got, wanted)) {
        None => Ok(()),
        Some(at) => Err(format!("element {at} is {}, and {} is right", got[at], expected[at])),
    }
}
