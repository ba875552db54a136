//! The driver and the nodes in `/dev`: what has to be handed to a container, and to a user.

use std::io::ErrorKind;

use super::finding::{Fault, Finding, Section};
use super::machine::Machine;

/// What belongs to all devices.
const SHARED: &[&str] = &["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"];
const DRIVER: &str = "/usr/local/Ascend/driver/version.info";
const INSTALLATION: &str = "/etc/ascend_install.info";
const GROUP: &str = "HwHiAiUser";
/// `EBUSY`, for which the standard library's kind is younger than some compilers.
const BUSY: i32 = 16;

/// What a container has to be given, as flags of docker.
pub(crate) const CONTAINER_FLAGS: &str = "\
in a container, start it with --device /dev/davinci0 --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc
and -v /usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64 -v /usr/local/Ascend/driver/version.info:/usr/local/Ascend/driver/version.info
and -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi -v /usr/local/dcmi:/usr/local/dcmi -v /etc/ascend_install.info:/etc/ascend_install.info";

pub(crate) fn section(machine: &Machine) -> Section {
    let mut section = Section::new("Ascend: driver and devices");
    section.add(driver(machine));
    section.findings.extend(nodes(machine));
    section.findings.extend(visible(machine));
    section
}

pub(crate) fn driver_version(machine: &Machine) -> Option<String> {
    machine.value(DRIVER, "version")
}

fn driver(machine: &Machine) -> Finding {
    let loaded = machine.read("/proc/modules").is_some_and(|text| text.contains("davinci") || text.contains("drv_"));
    let cann = machine.host.cann_folders();
    let cann = cann.first().and_then(|folder| acl_sys::Host::release_in(folder));
    let cann = cann.map_or(String::new(), |release| format!(", CANN {release}"));
    match driver_version(machine) {
        Some(version) => Finding::note(
            "driver",
            format!(
                "{version}{}{cann}; the vendor's compatibility table says whether they go together, in both directions",
                if loaded { "" } else { ", whose modules /proc/modules does not list" }
            ),
        ),
        None => Finding::warning("driver", format!("{DRIVER} cannot be read, so that its version is not known{cann}"))
            .fix("install the driver (HDK), or mount that file into the container"),
    }
}

fn nodes(machine: &Machine) -> Vec<Finding> {
    let devices = machine.nodes();
    let missing: Vec<&str> = SHARED.iter().copied().filter(|path| !machine.exists(path)).collect();
    if devices.is_empty() {
        let container = if machine.is_container() { "; this is a container, which sees what it is given" } else { "" };
        let said = format!("no /dev/davinci0 or higher: no NPU, or no driver{container}");
        return vec![
            Finding::failure("devices", Fault::Device, said).fix("npu-smi info, on the host").fix(CONTAINER_FLAGS),
        ];
    }
    if !missing.is_empty() {
        let said = format!("{} davinci devices, and no {}", devices.len(), missing.join(", no "));
        return vec![Finding::failure("devices", Fault::Device, said).fix(CONTAINER_FLAGS)];
    }
    let paths = devices.iter().map(|number| format!("/dev/davinci{number}"));
    let all = paths.chain(SHARED.iter().map(|path| (*path).to_owned()));
    let mut findings = Vec::new();
    for path in all {
        let Err(error) = (machine.open)(&machine.host.path(&path)) else { continue };
        let said = format!("{path}: {error}");
        findings.push(match error.kind() {
            ErrorKind::PermissionDenied => permission(machine, said),
            _ if error.raw_os_error() == Some(BUSY) => {
                Finding::failure("devices", Fault::Device, format!("{said}: held by another container or machine"))
                    .fix("npu-smi info, on the host, lists who has it; free it there")
            }
            _ => Finding::failure("devices", Fault::Device, said).fix("npu-smi info, on the host").fix(CONTAINER_FLAGS),
        });
    }
    if findings.is_empty() {
        let numbers: Vec<String> = devices.iter().map(u32::to_string).collect();
        findings.push(Finding::fine("devices", format!("/dev/davinci{} may be opened", numbers.join(", "))));
    }
    findings
}

/// The nodes are there, and are somebody else's.
fn permission(machine: &Machine, said: String) -> Finding {
    let group = machine.value(INSTALLATION, "UserGroup").unwrap_or_else(|| GROUP.to_owned());
    let user = machine.value("/proc/self/status", "Uid").unwrap_or_default();
    let user = user.split_whitespace().next().unwrap_or("unknown").to_owned();
    Finding::failure("devices", Fault::Permission, format!("{said}; this process is of user {user}"))
        .fix(format!("sudo usermod -aG {group} $USER, then log in anew"))
        .fix(format!("in a container, --group-add with the number of {group} on the host, or the owner's --user"))
}

/// `ASCEND_RT_VISIBLE_DEVICES` against what is there.
fn visible(machine: &Machine) -> Option<Finding> {
    let value = machine.variable("ASCEND_RT_VISIBLE_DEVICES")?;
    let devices = machine.nodes();
    let range = range(&devices);
    let wrong = |why: &str| {
        let said = format!("ASCEND_RT_VISIBLE_DEVICES is `{value}`: {why}; {range}");
        Some(Finding::failure("visible devices", Fault::Device, said).fix("unset ASCEND_RT_VISIBLE_DEVICES"))
    };
    let mut numbers: Vec<u32> = Vec::new();
    for item in value.split(',') {
        let Ok(number) = item.parse() else {
            return wrong(&format!(
                "`{item}` is no number, and what begins there is cut off, so that no spaces either"
            ));
        };
        if numbers.last().is_some_and(|&last| last >= number) {
            return wrong("the numbers have to ascend");
        }
        numbers.push(number);
    }
    match numbers.iter().find(|number| !devices.contains(number)) {
        Some(number) if !devices.is_empty() => wrong(&format!("there is no device {number}")),
        _ => Some(Finding::note(
            "visible devices",
            format!("ASCEND_RT_VISIBLE_DEVICES is {value}, numbered from 0 here"),
        )),
    }
}

/// Which numbers are valid, in words.
pub(crate) fn range(devices: &[u32]) -> String {
    match devices {
        [] => "no device is there".to_owned(),
        [only] => format!("{only} is the only device"),
        [first, .., last] if (last - first) as usize == devices.len() - 1 => format!("valid are {first} to {last}"),
        _ => format!("valid are {}", devices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
