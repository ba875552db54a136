//! `spec doctor`: what this machine has, what is wrong with it, and what to do, a line each.

mod cuda;
mod environment;
mod finding;
mod libraries;
mod machine;
mod nodes;
mod npu;
mod system;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::device::DeviceName;
use finding::{Fault, Finding, Section};
use machine::Machine;

/// What was found, and what it means for the device that was asked for.
struct Report {
    device: Option<DeviceName>,
    sections: Vec<Section>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let report = diagnose(&Machine::current(), args.device, &mut |section| {
        // Section by section: a library that takes the process with it leaves what came before.
        if args.json { Ok(()) } else { out.write_all(section.text().as_bytes()).and_then(|()| out.flush()) }
    })?;
    match args.json {
        true => writeln!(out, "{}", report.json())?,
        false => out.write_all(report.ending().as_bytes())?,
    }
    Ok(ExitCode::from(report.code()))
}

/// The machine's memory, or what of it this container may take.
pub(crate) fn machine_memory() -> Option<u64> {
    system::all_memory(&Machine::current())
}

/// Looks at everything that matters to the device, or to any when none is named, and shows each section when it is done.
fn diagnose(
    machine: &Machine,
    device: Option<DeviceName>,
    show: &mut dyn FnMut(&Section) -> std::io::Result<()>,
) -> Result<Report> {
    let mut sections = Vec::new();
    let mut add = |section: Section| -> std::io::Result<()> {
        show(&section)?;
        sections.push(section);
        Ok(())
    };
    add(system::section(machine))?;
    match device {
        Some(DeviceName::Ascend(number)) => ascend(machine, number, true, &mut add)?,
        Some(DeviceName::AscendSim) => simulator(machine, &mut add)?,
        Some(DeviceName::Cuda) => {}
        Some(DeviceName::Cpu) => {}
        None if environment::is_anything_here(machine) => ascend(machine, 0, false, &mut add)?,
        None => {
            let mut section = Section::new("Ascend");
            section.add(Finding::note("devices", "nothing of an NPU, its driver or CANN is here"));
            add(section)?;
        }
    }
    if matches!(device, None | Some(DeviceName::Cuda))
        && let Some(section) = cuda::section(machine, device == Some(DeviceName::Cuda))
    {
        add(section)?;
    }
    Ok(Report { device, sections })
}

type Add<'a> = dyn FnMut(Section) -> std::io::Result<()> + 'a;

/// An NPU, from the outside to the inside. What nobody asked for fails nobody's command.
fn ascend(machine: &Machine, number: u16, is_asked_for: bool, add: &mut Add<'_>) -> std::io::Result<()> {
    let mut add = |section: Section| add(if is_asked_for { section } else { section.demoted() });
    add(environment::section(machine))?;
    let (section, api) = libraries::section(machine, DeviceName::Ascend(number));
    add(section)?;
    add(nodes::section(machine))?;
    let mut atb = Section::new("Ascend: ATB");
    atb.findings = environment::atb(machine);
    if let Some(api) = api {
        add(atb)?;
        add(npu::section(machine, api, number, false))
    } else {
        add(atb)
    }
}

fn simulator(machine: &Machine, add: &mut Add<'_>) -> std::io::Result<()> {
    let (section, api) = libraries::section(machine, DeviceName::AscendSim);
    add(section)?;
    match api {
        Some(api) => add(npu::section(machine, api, 0, true)),
        None => Ok(()),
    }
}

impl Report {
    fn first_failure(&self) -> Option<(&Finding, Fault)> {
        let mut findings = self.sections.iter().flat_map(|section| &section.findings);
        findings.find_map(|finding| Some((finding, finding.fault()?)))
    }

    fn code(&self) -> u8 {
        self.first_failure().map_or(0, |(_, fault)| fault.code())
    }

    fn verdict(&self) -> String {
        let device = self.device.unwrap_or(DeviceName::Cpu);
        match self.first_failure() {
            None => format!("{device} can be used"),
            Some((finding, _)) => {
                let said = finding.said.lines().next().unwrap_or_default();
                let cpu = match (device, self.sections.first().is_some_and(Section::has_failed)) {
                    (DeviceName::Cpu, _) | (_, true) => "",
                    _ => "; the CPU can be used: --device cpu",
                };
                format!("{device} cannot be used (exit code {}): {}: {said}{cpu}", self.code(), finding.check)
            }
        }
    }

    /// The lines that repair a library path, for the very end, where they are found and copied.
    fn paste(&self) -> Vec<&str> {
        let fixes =
            self.first_failure().filter(|(_, fault)| *fault == Fault::Library).map(|(finding, _)| &finding.fixes);
        let is_command = |line: &&str| ["source ", "export ", "cargo "].iter().any(|word| line.starts_with(word));
        fixes.into_iter().flatten().map(|line| line.trim()).filter(is_command).collect()
    }

    fn ending(&self) -> String {
        let mut text = format!("\n{}\n", self.verdict());
        for line in self.paste() {
            text += &format!("  {line}\n");
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "device": self.device.map(|device| device.to_string()),
            "usable": self.first_failure().is_none(),
            "exit_code": self.code(),
            "verdict": self.verdict(),
            "sections": self.sections.iter().map(Section::json).collect::<Vec<_>>(),
            "paste": self.paste(),
        })
    }
}
