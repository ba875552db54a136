//! Loading the libraries, and the functions in them.

use acl_sys::{Api, Error, Family, Since};
use atb_rs::Runtime;

use super::finding::{Fault, Finding, Section};
use super::machine::Machine;
use crate::device::DeviceName;

/// Loads the device's libraries; what to paste, when they are not found, is the last thing that is printed.
pub(crate) fn section(machine: &Machine, device: DeviceName) -> (Section, Option<Api>) {
    let mut section =
        Section::new(if device == DeviceName::AscendSim { "Simulator: library" } else { "Ascend: libraries" });
    let Some(loader) = device.loader(&machine.host) else { return (section, None) };
    match (machine.load)(loader.bind_now(true)) {
        Err(error) => {
            section.add(refusal("AscendCL", &error));
            (section, None)
        }
        Ok(api) => {
            section.add(functions(&api));
            (section, Some(api))
        }
    }
}

/// What a library's refusal means: the first line says what, those that say where it was looked for follow, and the rest
/// is to be done.
pub(crate) fn refusal(check: &'static str, error: &Error) -> Finding {
    let text = error.to_string();
    let fault = match error {
        _ if text.contains("undefined symbol") => Fault::Version,
        Error::ShimVersion { .. } => Fault::Atb,
        Error::SymbolMissing { .. } | Error::VersionTooOld { .. } => Fault::Version,
        _ => Fault::Library,
    };
    let is_detail = |line: &&str| line.trim_start().starts_with("tried ");
    let said: Vec<&str> = text.lines().take(1).chain(text.lines().skip(1).filter(is_detail)).collect();
    let fixes: Vec<&str> = text.lines().skip(1).filter(|line| !is_detail(line)).collect();
    let finding = Finding::failure(check, fault, said.join("\n"));
    match (error, text.split_once("; build it with ")) {
        (Error::SimulatorMissing { .. }, Some((_, command))) => finding.fix(command.trim_matches('`')),
        _ => finding.fix(fixes.join("\n")),
    }
}

/// Whether every function is there that all releases have; younger ones are called where they are there.
fn functions(api: &Api) -> Finding {
    let of_acl = Api::functions().filter(|function| function.family != Family::Shim);
    let (mut known, mut absent, mut younger) = (0, Vec::new(), Vec::new());
    for function in of_acl {
        known += 1;
        if api.address(function).is_err() {
            let list = match (function.since, function.family) {
                (Since::Cann(8, 0), Family::Runtime) => &mut absent,
                _ => &mut younger,
            };
            list.push(format!("{} ({})", function.name(), function.since));
        }
    }
    let there = known - absent.len() - younger.len();
    if !absent.is_empty() {
        let said = format!("{there} of {known} functions; these belong to every release: {}", absent.join(", "));
        return Finding::failure("functions", Fault::Version, said)
            .fix("install CANN anew, toolkit and runtime of one release");
    }
    if !younger.is_empty() {
        let said = format!("{there} of {known} functions; without: {}", younger.join(", "));
        return Finding::note("functions", said).fix("a newer CANN has them; calls that need one fail by themselves");
    }
    Finding::fine("functions", format!("all {known} functions of AscendCL"))
}

/// The shim, and libatb under it: which they are, and whether they are of one C++ ABI.
pub(crate) fn shim_is_there(api: &Api) -> Result<(), Error> {
    let of_shim = |function: &&acl_sys::Function| function.family == Family::Shim;
    match Api::functions().find(of_shim) {
        Some(function) => api.address(function).map(drop),
        None => Ok(()),
    }
}

/// The part of the shim with operations of our own.
pub(crate) fn module(runtime: &Runtime) -> Finding {
    if runtime.has_spec_decode() {
        return Finding::fine("spec-decode module", "in the shim");
    }
    Finding::note("spec-decode module", "not in the shim: drafts are verified on the host")
        .fix("cargo xtask build-atb --installed --with-spec-decode")
}
