//! The processor, its memory and the system: what the CPU path needs.

use spec_cpu::{Isa, PackedMatrix, Pool, Product, QuantizedRows, WeightType, matmul};

use super::finding::{Fault, Finding, Section};
use super::machine::Machine;

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Less free memory than this holds hardly any model with its cache.
const LITTLE_MEMORY: u64 = 1 << 30;
/// Connections and shards take descriptors.
const FEW_FILES: u64 = 1024;

pub(crate) fn section(machine: &Machine) -> Section {
    let mut section = Section::new("CPU");
    section.add(system(machine));
    section.add(processor(machine));
    section.add(instructions(machine));
    section.add(memory(machine));
    section.add(huge_pages(machine));
    section.add(limits(machine));
    section.add(self_test(machine));
    section
}

fn system(machine: &Machine) -> Finding {
    let distribution = machine.value("/etc/os-release", "PRETTY_NAME").unwrap_or_else(|| "unknown distribution".into());
    let kernel = machine.read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    let glibc = machine.glibc.as_deref().unwrap_or("unknown");
    let container = if machine.is_container() { ", in a container" } else { "" };
    let arch = std::env::consts::ARCH;
    Finding::fine("system", format!("{distribution}, Linux {} on {arch}, glibc {glibc}{container}", kernel.trim()))
}

fn processor(machine: &Machine) -> Finding {
    let name = machine.value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unnamed".into());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::fine("processor", format!("{name}, {threads} threads for this process"))
}

fn isa(machine: &Machine) -> Result<Isa, spec_cpu::CpuError> {
    machine.variable("SPEC_CPU_ISA").map_or_else(|| Ok(Isa::detect()), |name| Isa::from_name(&name))
}

fn instructions(machine: &Machine) -> Finding {
    match isa(machine) {
        Ok(Isa::Portable) => {
            Finding::warning("instructions", "portable kernels, about seven times slower than vectors")
                .fix("use a processor with AVX-512 VNNI, and unset SPEC_CPU_ISA; drafts hardly pay without")
        }
        Ok(isa) => Finding::fine("instructions", isa.name()),
        Err(error) => Finding::failure("instructions", Fault::Cpu, error.to_string()).fix("unset SPEC_CPU_ISA"),
    }
}

/// Bytes that `/proc/meminfo` gives for a key.
fn meminfo(machine: &Machine, key: &str) -> Option<u64> {
    let value = machine.value("/proc/meminfo", key)?;
    value.split_whitespace().next()?.parse::<u64>().ok().map(|number| number << 10)
}

/// What a container may take, where it is less than all.
fn allowed(machine: &Machine, total: u64) -> Option<u64> {
    let limit = machine.read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    limit.filter(|&limit| limit < total)
}

/// The machine's memory, or what of it this container may take.
pub(super) fn all_memory(machine: &Machine) -> Option<u64> {
    let total = meminfo(machine, "MemTotal")?;
    Some(allowed(machine, total).unwrap_or(total))
}

fn memory(machine: &Machine) -> Finding {
    let (Some(total), Some(available)) = (meminfo(machine, "MemTotal"), meminfo(machine, "MemAvailable")) else {
        return Finding::note("memory", "/proc/meminfo does not say");
    };
    let limit = allowed(machine, total);
    let group = limit.map_or(String::new(), |limit| format!(", {} MiB allowed to this container", limit >> 20));
    let said = format!("{} of {} MiB available{group}", available >> 20, total >> 20);
    if available.min(limit.unwrap_or(u64::MAX)) < LITTLE_MEMORY {
        Finding::warning("memory", said).fix("end other programs, raise the container's limit, or take a smaller model")
    } else {
        Finding::fine("memory", said)
    }
}

fn huge_pages(machine: &Machine) -> Finding {
    let Some(text) = machine.read(HUGE_PAGES) else {
        return Finding::note("huge pages", "this kernel has none; large models read a third slower");
    };
    match text.split('[').nth(1).and_then(|rest| rest.split(']').next()) {
        Some("never") => Finding::warning("huge pages", "never; large models read a third slower")
            .fix(format!("echo madvise | sudo tee {HUGE_PAGES}")),
        Some(mode) => Finding::fine("huge pages", mode),
        None => Finding::note("huge pages", format!("{HUGE_PAGES} says `{}`", text.trim())),
    }
}

fn limits(machine: &Machine) -> Finding {
    let text = machine.read("/proc/self/limits").unwrap_or_default();
    let soft = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.to_owned())
    };
    let (files, locked) = (soft("Max open files"), soft("Max locked memory"));
    let few = files.as_ref().and_then(|files| files.parse::<u64>().ok()).is_some_and(|files| files < FEW_FILES);
    let show = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
    let said = format!("{} open files, {} bytes of locked memory", show(files), show(locked));
    match few {
        true => Finding::warning("limits", said).fix("ulimit -n 4096"),
        false => Finding::fine("limits", said),
    }
}

/// A product of small whole numbers, which every kernel gets exactly right.
fn self_test(machine: &Machine) -> Finding {
    let run = || -> Result<[f32; 2], spec_cpu::CpuError> {
        let (isa, pool) = (isa(machine)?, Pool::new(2)?);
        let bytes: Vec<u8> = (1..=8_u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        let weights = PackedMatrix::pack(WeightType::F32, 2, 4, &bytes, &pool)?;
        let mut rows = QuantizedRows::new(weights.activation_form(), 4)?;
        rows.quantize(isa, &pool, 1, &[1.0, 0.0, 0.0, 2.0])?;
        let mut output = [0.0; 2];
        matmul(isa, &pool, &mut [Product::new(&weights, &rows, &mut output)])?;
        Ok(output)
    };
    match run() {
        Ok([9.0, 21.0]) => Finding::fine("self-test", "matmul on two threads is right"),
        Ok(wrong) => Finding::failure("self-test", Fault::Cpu, format!("matmul gave {wrong:?}, and [9, 21] is right"))
            .fix("SPEC_CPU_ISA=portable may work; please report it with this output"),
        Err(error) => Finding::failure("self-test", Fault::Cpu, error.to_string())
            .fix("the lines above may say why; else please report it with this output"),
    }
}
