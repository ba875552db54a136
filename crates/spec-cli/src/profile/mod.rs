//! `spec profile`: what a command did when, as a trace for Perfetto and Chrome, and its hot spots.

mod stats;
mod trace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use spec_cpu::probe;

use crate::args::{Command, ModelArgs, ProfileArgs, ProfileTask};
use crate::config::CommandLine;
use crate::device::DeviceName;
use crate::refusal::refuse;
use crate::session::CpuDevice;
use crate::usage;

pub(crate) use trace::Trace;

pub(crate) fn run(args: ProfileArgs, line: &CommandLine) -> Result<ExitCode> {
    let ProfileArgs { task, out, command } = args;
    match (task, out) {
        (Some(ProfileTask::Stats(args)), _) => stats::run(&args),
        (None, Some(out)) => record(named(out), command, line),
        // Clap asks for one of them.
        (None, None) => Err(usage("give -o NAME and a command, or `stats FILE`")),
    }
}

/// Runs a command and keeps what its rounds did.
fn record(path: PathBuf, words: Vec<OsString>, line: &CommandLine) -> Result<ExitCode> {
    let (line, mut command) = match line.of_command(words).and_then(|line| Ok((line.parsed()?.command, line))) {
        Ok((command, line)) => (line, command),
        Err(refusal) => return Ok(refuse(&refusal)),
    };
    let Some(model) = model_args(&mut command) else {
        return Err(usage("only commands that generate have rounds to trace: generate, chat, serve, batch, demo"));
    };
    let (device, threads) = (model.device, model.threads);
    let trace = Arc::new(Trace::create(path)?);
    model.trace = Some(Arc::clone(&trace));
    let code = crate::run(command, &line);
    // What was recorded is whole even where the command failed.
    let bandwidth = (device == DeviceName::Cpu).then(|| bandwidth(threads)).transpose();
    let path = trace.finish(device, bandwidth.unwrap_or(None))?;
    let code = code?;
    eprintln!("traced to {0}: ui.perfetto.dev shows it, `spec profile stats {0}` sums it up", path.display());
    Ok(code)
}

/// What the memory of this machine gives, for the target's passes to be compared with.
fn bandwidth(threads: Option<usize>) -> Result<f64> {
    let device = CpuDevice::new(threads)?;
    Ok(probe::read_bandwidth(device.isa(), device.pool())?)
}

fn model_args(command: &mut Command) -> Option<&mut ModelArgs> {
    match command {
        Command::Generate(args) => Some(&mut args.model),
        Command::Chat(args) => Some(&mut args.model),
        Command::Serve(args) => Some(&mut args.model),
        Command::Batch(args) => Some(&mut args.model),
        Command::Demo(args) => Some(&mut args.model),
        _ => None,
    }
}

/// The file of a trace: as other profilers do, a name is enough.
fn named(out: PathBuf) -> PathBuf {
    if out.extension().is_some_and(|extension| extension == "json") {
        return out;
    }
    let mut name = out.into_os_string();
    name.push(".json");
    name.into()
}
