//! What variables and folders say about CANN and ATB, before any library is loaded.

use std::path::{Path, PathBuf};

use acl_sys::Host;

use super::finding::{Fault, Finding, Section};
use super::machine::Machine;

/// The release that everything here is written for.
const OLDEST: acl_sys::Version = acl_sys::Version::new(8, 5, 0);
const TABLE_OF_TYPES: &str = "configs/ops_configs/atb_ops_info.ini";
/// Functions that return a string carry the C++ ABI in their names: the only trace of it in libatb.
const NEW_ABI: &[u8] = b"_ZN3atb5Utils13GetAtbVersionB5cxx11Ev";
const OLD_ABI: &[u8] = b"_ZN3atb5Utils13GetAtbVersionEv";

/// Whether anything of CANN, of its driver, or of an NPU is here.
pub(crate) fn is_anything_here(machine: &Machine) -> bool {
    let variables = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ATB_HOME_PATH", "ASCEND_RT_VISIBLE_DEVICES"];
    variables.iter().any(|name| machine.host.variable(name).is_some())
        || !machine.host.cann_folders().is_empty()
        || !machine.nodes().is_empty()
        || machine.exists("/usr/local/Ascend")
}

pub(crate) fn section(machine: &Machine) -> Section {
    let mut section = Section::new("Ascend: environment");
    section.add(cann(machine));
    section.findings.extend(mixed_releases(machine));
    section.findings.extend(libraries_for_linking(machine));
    section.findings.extend(operators(machine));
    section
}

fn cann(machine: &Machine) -> Finding {
    let folders = machine.host.cann_folders();
    let releases: Vec<String> = folders
        .iter()
        .map(|folder| match Host::release_in(folder) {
            _ if Host::is_simulated(folder) => format!("a simulator in {}", folder.display()),
            Some(release) => format!("{release} in {}", folder.display()),
            None => format!("of unknown release in {}", folder.display()),
        })
        .collect();
    if let Some(missing) = named_and_missing(machine) {
        return missing;
    }
    let Some(first) = folders.first() else {
        // Loading them says where they were looked for, and what to paste.
        return Finding::note("CANN", "in none of the usual folders, and no variable names another");
    };
    match Host::release_in(first).filter(|release| *release < OLDEST) {
        Some(_) => Finding::warning("CANN", releases.join("; "))
            .fix(format!("install CANN {OLDEST} or newer: timed waits and graph capture need it, as does build-atb")),
        None => Finding::fine("CANN", releases.join("; ")),
    }
}

fn named_and_missing(machine: &Machine) -> Option<Finding> {
    ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].into_iter().find_map(|name| {
        let folder = machine.variable(name)?;
        let finding = Finding::warning("CANN", format!("{name} is {folder}, and there is no such folder"));
        (!Path::new(&folder).is_dir()).then(|| finding.fix(machine.host.advice()))
    })
}

/// Two releases in one library path: whichever comes first brings functions that the other does not have.
fn mixed_releases(machine: &Machine) -> Option<Finding> {
    let is_canns = |folder: &PathBuf| ["libascendcl.so", "libacl_rt.so"].iter().any(|file| folder.join(file).exists());
    let mut seen: Vec<(acl_sys::Version, PathBuf)> = Vec::new();
    for folder in machine.host.library_path().into_iter().filter(is_canns) {
        // `lib64` of an installation, or a folder below it.
        let release = folder.ancestors().skip(1).take(2).find_map(Host::release_in);
        seen.extend(release.map(|release| (release, folder)));
    }
    let (first, others) = seen.split_first()?;
    let other = others.iter().find(|other| (other.0.major, other.0.minor) != (first.0.major, first.0.minor))?;
    let said = format!(
        "LD_LIBRARY_PATH mixes CANN {} ({}) and CANN {} ({}); driver {}",
        first.0,
        first.1.display(),
        other.0,
        other.1.display(),
        super::nodes::driver_version(machine).unwrap_or_else(|| "unknown".into())
    );
    Some(Finding::failure("releases", Fault::Version, said).fix(without(machine, std::slice::from_ref(&other.1))))
}

fn libraries_for_linking(machine: &Machine) -> Option<Finding> {
    let is_stub = |folder: &PathBuf| {
        let named =
            |folder: &Path| folder.iter().any(|part| ["devlib", "stub", "stubs"].iter().any(|name| part == *name));
        named(folder) || folder.canonicalize().is_ok_and(|real| named(&real))
    };
    let stubs: Vec<PathBuf> = machine.host.library_path().into_iter().filter(is_stub).collect();
    let first = stubs.first()?;
    let said =
        format!("LD_LIBRARY_PATH has {}, whose libraries are for linking and only return 100039", first.display());
    Some(Finding::failure("library path", Fault::Library, said).fix(without(machine, &stubs)))
}

/// The line that exports the library path without some folders.
fn without(machine: &Machine, unwanted: &[PathBuf]) -> String {
    let kept: Vec<String> = machine
        .host
        .library_path()
        .iter()
        .filter(|folder| !unwanted.contains(folder))
        .map(|folder| folder.display().to_string())
        .collect();
    format!("export LD_LIBRARY_PATH={}", kept.join(":"))
}

fn operators(machine: &Machine) -> Option<Finding> {
    let folder = machine.variable("ASCEND_OPP_PATH")?;
    if Path::new(&folder).is_dir() {
        return Some(Finding::fine("operators", folder));
    }
    let said = format!("ASCEND_OPP_PATH is {folder}, and there is no such folder (148049, or 507033 later)");
    let advice = "install the operator package of CANN's release and this chip (Ascend-cann-<chip>-ops, before 8.5 \
                  -kernels-), then source CANN's set_env.sh";
    Some(Finding::failure("operators", Fault::Library, said).fix(advice))
}

/// ATB as its folder shows it. What the shim says of it when loaded is another finding.
pub(crate) fn atb(machine: &Machine) -> Vec<Finding> {
    let Some(folder) = machine.host.atb_folders().into_iter().next() else {
        let said = "no ATB: it comes with the nnal package, usually in /usr/local/Ascend/nnal/atb";
        return vec![Finding::failure("ATB", Fault::Atb, said).fix(machine.host.shim_advice())];
    };
    if machine.host.variable("ATB_HOME_PATH").is_none() {
        let said = format!("{} is there, and ATB_HOME_PATH is not set", folder.display());
        return vec![Finding::failure("ATB", Fault::Atb, said).fix(machine.host.shim_advice())];
    }
    let library = folder.join("lib/libatb.so");
    let Ok(bytes) = std::fs::read(&library) else {
        let said = format!("ATB_HOME_PATH is {}, and {} cannot be read", folder.display(), library.display());
        return vec![Finding::failure("ATB", Fault::Atb, said).fix(machine.host.shim_advice())];
    };
    let mut findings = vec![abi(&folder, &bytes)];
    if !folder.join(TABLE_OF_TYPES).is_file() {
        let said = format!("{TABLE_OF_TYPES} is not in ATB_HOME_PATH: ATB checks no element types without it");
        findings
            .push(Finding::failure("ATB's tables", Fault::Atb, said).fix("install nnal anew, or mend ATB_HOME_PATH"));
    }
    findings.extend(releases_differ(machine, &folder));
    findings
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

fn abi(folder: &Path, library: &[u8]) -> Finding {
    let named = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let built = match (has(library, NEW_ABI), has(library, OLD_ABI)) {
        (true, _) => "cxx_abi_1",
        (false, true) => "cxx_abi_0",
        (false, false) => {
            return Finding::note(
                "ATB",
                format!("{} does not tell its C++ ABI", folder.join("lib/libatb.so").display()),
            );
        }
    };
    if named.starts_with("cxx_abi_") && named != built {
        let said = format!("ATB_HOME_PATH ends in {named}, and its libatb.so is of {built}");
        return Finding::failure("ATB", Fault::Atb, said).fix("install nnal anew: its folders were mixed");
    }
    let release =
        Host::release_in(folder).map_or_else(|| "of unknown release".to_owned(), |release| release.to_string());
    Finding::fine("ATB", format!("{release}, {built}, in {}", folder.display()))
}

fn releases_differ(machine: &Machine, atb: &Path) -> Option<Finding> {
    let cann = Host::release_in(machine.host.cann_folders().first()?)?;
    let atb = Host::release_in(atb)?;
    let said = format!("ATB is {atb} and CANN is {cann}; ATB calls below AscendCL, into its own release");
    ((cann.major, cann.minor) != (atb.major, atb.minor)).then(|| {
        Finding::failure("releases", Fault::Version, said).fix(format!("install the nnal package of CANN {cann}"))
    })
}
