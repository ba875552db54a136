//! GPUs: looked for, so that whoever has one reads what `spec` makes of it.

use super::finding::{Fault, Finding, Section};
use super::machine::Machine;
use crate::device::CUDA_IS_NOT_BUILT;

const DRIVER: &str = "/proc/driver/nvidia/version";
const LIBRARIES: &[&str] =
    &["/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1"];
const TOOLKIT: &str = "/usr/local/cuda";

/// `None` when there is nothing of CUDA and nobody asked for it.
pub(crate) fn section(machine: &Machine, is_asked_for: bool) -> Option<Section> {
    let mut section = Section::new("CUDA");
    if let Some(driver) = machine.read(DRIVER) {
        let line = driver.lines().next().unwrap_or_default();
        section.add(Finding::note("driver", line.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    if let Some(library) = LIBRARIES.iter().find(|library| machine.exists(library)) {
        section.add(Finding::note("library", *library));
    }
    let toolkit = machine.variable("CUDA_HOME").or_else(|| machine.exists(TOOLKIT).then(|| TOOLKIT.to_owned()));
    if let Some(toolkit) = toolkit {
        section.add(Finding::note("toolkit", toolkit));
    }
    if is_asked_for {
        section.add(Finding::failure("device", Fault::Device, CUDA_IS_NOT_BUILT).fix("spec doctor --device cpu"));
    } else if !section.findings.is_empty() {
        section.add(Finding::note("device", CUDA_IS_NOT_BUILT));
    }
    (!section.findings.is_empty()).then_some(section)
}
