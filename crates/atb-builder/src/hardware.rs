//! The build for hardware: CANN and nnal are found and compared, ATB is built by its own script, the shim beside it.

use crate::arguments::Arguments;
use crate::compile::{SHIM, Toolchain};
use crate::step::{Invocation, Step};
use crate::{Plan, root};
use acl_sys::{Host, Version};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What ATB's script and headers of the releases we know need.
const OLDEST: Version = Version::new(8, 5, 0);
/// Workspace ceiling in MB where nobody asks for another.
const CEILING: u64 = 2048;
/// What ATB's build takes from an nnal that is installed already: it has no source of it.
const BORROWED: &str = "lib/libtbe_adapter.so";

/// Where ATB comes from.
enum Origin {
    /// Built in this checkout.
    Built { checkout: PathBuf, borrowed_from: PathBuf },
    /// Installed in this folder.
    Installed(PathBuf),
}

pub(crate) fn plan(arguments: &Arguments, host: &Host, target: &Path) -> Result<Plan> {
    let mut plan = Plan::default();
    let (cann, release) = find_cann(host)?;
    plan.findings.push(match release {
        Some(release) => format!("CANN {release} in {}", cann.display()),
        None => format!("CANN in {}, which does not say its release; {OLDEST} or newer is needed", cann.display()),
    });
    let abi = choose_abi(arguments, host)?;
    let output = arguments.output.clone().unwrap_or_else(|| target.join("ascend/built"));
    let output = std::path::absolute(output).context("the output folder has no absolute path")?;
    let installed = output.join("atb").join(folder_of(abi));
    let (origin, finding) = find_atb(arguments, host, abi, &output)?;
    plan.findings.push(finding);

    let mut steps = Vec::new();
    let atb = match origin {
        Origin::Installed(folder) => {
            compare_releases(release, &folder, &mut plan.findings)?;
            folder
        }
        Origin::Built { checkout, borrowed_from } => {
            compare_releases(release, &borrowed_from, &mut plan.findings)?;
            plan.findings.extend(branch_advice(release, &checkout));
            build(arguments, host, &cann, abi, (checkout.as_path(), borrowed_from.as_path()), &mut steps)?;
            let built = checkout.join("output");
            steps.push(Step::Folder(output.join("atb")));
            let parts = [PathBuf::from("version.info"), Path::new("atb").join(folder_of(abi))];
            steps.extend(parts.map(|part| Step::Copy { from: built.join(&part), to: output.join(&part) }));
            installed.clone()
        }
    };
    let libraries = installed.join("lib");
    steps.push(Step::Folder(libraries.clone()));
    let sources = arguments.sources.clone().unwrap_or_else(|| root().join("crates/atb-rs"));
    let ceiling = arguments.ceiling().unwrap_or(CEILING);
    let spec_decode = arguments.with_spec_decode;
    let toolchain = Toolchain { sources: &sources, spec_decode, atb: &atb, cann: &cann, cxx11_abi: abi, ceiling };
    steps.push(Step::Run(toolchain.shim(&libraries)?));
    let shim = libraries.join(SHIM);
    let script = output.join("set_env.sh");
    let own = atb == installed;
    steps.push(Step::Write { file: script.clone(), text: environment(abi, (!own).then_some(&atb)) });
    steps.push(Step::Run(smoke(host, &cann, &atb, &shim, spec_decode)?));
    plan.steps = steps;

    plan.outcome.push(format!(
        "installed: {}{} of cxx_abi_{abi}, with workspaces up to {ceiling} MB, in {}",
        if own { "libatb.so, " } else { "" },
        SHIM,
        libraries.display()
    ));
    plan.outcome.push(if spec_decode {
        format!("installed: the spec-decode module, in {SHIM}")
    } else {
        "not installed: the spec-decode module; build it with `cargo xtask build-atb --with-spec-decode`".to_owned()
    });
    plan.outcome.push("paste, in this order:".to_owned());
    plan.outcome.extend(cann_script(&cann).map(|script| format!("  source {}", script.display())));
    plan.outcome.push(format!("  source {}", script.display()));
    plan.outcome.push("which exports:".to_owned());
    plan.outcome.push(format!("  export ATB_HOME_PATH={}", atb.display()));
    plan.outcome.push(format!("  export SPEC_ATB_SHIM={}", shim.display()));
    plan.outcome.push(format!("  export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH", atb.join("lib").display()));
    plan.outcome
        .push("SPEC_ATB_MAX_WS_SIZE changes the ceiling at run time (MB). Try: spec doctor --device ascend".to_owned());
    Ok(plan)
}

fn folder_of(abi: u8) -> String {
    format!("cxx_abi_{abi}")
}

/// The script that CANN's documentation tells to source; under `latest` it is one folder above.
fn cann_script(cann: &Path) -> Option<PathBuf> {
    let scripts = [Some(cann), cann.parent()].into_iter().flatten().map(|folder| folder.join("set_env.sh"));
    scripts.into_iter().find(|script| script.is_file())
}

fn find_cann(host: &Host) -> Result<(PathBuf, Option<Version>)> {
    let is_cann = |folder: &PathBuf| folder.join("lib64").is_dir() && !Host::is_simulated(folder);
    let found = host.cann_folders().into_iter().find(is_cann);
    let Some(cann) = found else {
        bail!(
            "CANN's toolkit is not found, and ATB is compiled against it.\n{}\nWithout hardware there is a simulator:\n  \
             cargo xtask build-atb --sim",
            host.advice()
        );
    };
    let release = Host::release_in(&cann);
    if let Some(release) = release.filter(|release| *release < OLDEST) {
        bail!(
            "CANN in {} is {release}, and ATB is built with {OLDEST} or newer; install a newer toolkit, or set \
             ASCEND_HOME_PATH to one that is here",
            cann.display()
        );
    }
    Ok((cann, release))
}

fn choose_abi(arguments: &Arguments, host: &Host) -> Result<u8> {
    let named = host.variable("ATB_HOME_PATH").map(PathBuf::from);
    let named = named.as_deref().and_then(Path::file_name).and_then(|name| match name.to_str() {
        Some("cxx_abi_0") => Some(0),
        Some("cxx_abi_1") => Some(1),
        _ => None,
    });
    if let (Some(asked), Some(named), true) = (arguments.cxx11_abi, named, arguments.installed) {
        ensure!(
            asked == named,
            "--cxx11-abi {asked} is asked for, and ATB_HOME_PATH leads to cxx_abi_{named}; source nnal's set_env.sh with \
             --cxx_abi={asked}"
        );
    }
    Ok(arguments.cxx11_abi.or(named).unwrap_or(1))
}

/// ATB, and what is to be said of it.
fn find_atb(arguments: &Arguments, host: &Host, abi: u8, output: &Path) -> Result<(Origin, String)> {
    let of_this_abi = |folder: &PathBuf| folder.file_name().is_some_and(|name| name == folder_of(abi).as_str());
    let folders: Vec<PathBuf> = host.atb_folders().into_iter().filter(of_this_abi).collect();
    if arguments.installed {
        let found = folders.into_iter().find(|folder| folder.join("lib/libatb.so").is_file());
        let Some(folder) = found else {
            bail!(
                "no libatb.so of cxx_abi_{abi} is installed (looked at ATB_HOME_PATH and where nnal usually is).\n{}",
                host.shim_advice()
            );
        };
        let finding = format!("ATB of cxx_abi_{abi} in {}", folder.display());
        return Ok((Origin::Installed(folder), finding));
    }
    let named = host.variable("ATB_BUILD_DEPENDENCY_PATH").map(PathBuf::from);
    if let Some(folder) = named.iter().find(|folder| !of_this_abi(folder)) {
        bail!(
            "ATB_BUILD_DEPENDENCY_PATH is {}, and has to end in cxx_abi_{abi}: ATB's script would go on without it",
            folder.display()
        );
    }
    let borrowed = named.into_iter().chain(folders).find(|folder| folder.join(BORROWED).is_file());
    let Some(borrowed_from) = borrowed else {
        bail!(
            "ATB's build takes {BORROWED} from an installed nnal of the same ABI (cxx_abi_{abi}), and there is none; \
             install the nnal package (Ascend-cann-nnal) of CANN's release, or set ATB_BUILD_DEPENDENCY_PATH to its \
             cxx_abi_{abi}. With nnal installed the shim alone is enough:\n  cargo xtask build-atb --installed \
             --with-spec-decode"
        );
    };
    let (checkout, finding) = match &arguments.source {
        Some(folder) => {
            let folder = std::path::absolute(folder).context("--source has no absolute path")?;
            ensure!(
                folder.join("scripts/build.sh").is_file(),
                "{} is no checkout of ATB: it has no scripts/build.sh",
                folder.display()
            );
            ensure!(
                folder.join(".git").exists(),
                "{} is no git checkout, and ATB's script asks git for its commit; clone it instead of unpacking it",
                folder.display()
            );
            let finding = format!("ATB's source in {}", folder.display());
            (folder, finding)
        }
        None => (output.with_file_name("ascend-transformer-boost"), format!("ATB's source from {}", arguments.git)),
    };
    Ok((Origin::Built { checkout, borrowed_from }, finding))
}

/// Cloning, unless it is cloned already, and ATB's own script with the options that it has.
fn build(
    arguments: &Arguments,
    host: &Host,
    cann: &Path,
    abi: u8,
    (checkout, borrowed_from): (&Path, &Path),
    steps: &mut Vec<Step>,
) -> Result<()> {
    let cloned = arguments.source.is_none();
    let needed = ["bash", "git", "cmake", "g++", "python3"];
    let missing: Vec<&str> = needed.into_iter().filter(|program| !is_there(host, program)).collect();
    ensure!(missing.is_empty(), "ATB's build needs {}, and PATH has none; install it first", missing.join(", "));
    if cloned && !checkout.join("scripts/build.sh").is_file() {
        let (url, branch) = match arguments.git.split_once('#') {
            Some((url, branch)) => (url, Some(branch)),
            None => (arguments.git.as_str(), None),
        };
        let clone = Invocation::new("git").arguments(["clone", "--depth", "1"]);
        let clone = branch.into_iter().fold(clone, |clone, branch| clone.arguments(["--branch", branch]));
        steps.push(Step::Run(clone.argument(url).argument(checkout)));
    }
    // The script validates its first argument only, and passes over later ones that it does not know: no option of ours
    // is ever among them.
    let script = Invocation::new("bash")
        .arguments(["scripts/build.sh".to_owned(), "default".to_owned(), format!("--use_cxx11_abi={abi}")])
        .folder(checkout)
        .variable("ASCEND_HOME_PATH", cann)
        .variable("ATB_BUILD_DEPENDENCY_PATH", borrowed_from);
    steps.push(Step::Run(script));
    Ok(())
}

fn is_there(host: &Host, program: &str) -> bool {
    host.variable("PATH").is_some_and(|path| std::env::split_paths(path).any(|folder| folder.join(program).is_file()))
}

/// ATB calls below AscendCL, into the release of CANN that it was built for.
fn compare_releases(cann: Option<Version>, atb: &Path, findings: &mut Vec<String>) -> Result<()> {
    let (Some(cann), Some(atb_release)) = (cann, Host::release_in(atb)) else {
        findings.push("ATB's release is not known, so that it is not compared with CANN's".to_owned());
        return Ok(());
    };
    ensure!(
        (cann.major, cann.minor) == (atb_release.major, atb_release.minor),
        "ATB in {} is of release {atb_release}, and CANN is {cann}; install one release of both",
        atb.display()
    );
    findings.push(format!("ATB {atb_release} and CANN {cann} are of one release"));
    Ok(())
}

/// A word when a source that is there is of another release than CANN. Its branches are named by release.
fn branch_advice(cann: Option<Version>, checkout: &Path) -> Option<String> {
    let script = std::fs::read_to_string(checkout.join("scripts/build.sh")).ok()?;
    let source = script.lines().find_map(|line| Version::parse(line.strip_prefix("VERSION=")?))?;
    let cann = cann.filter(|cann| (cann.major, cann.minor) != (source.major, source.minor))?;
    Some(format!("note: the source calls itself {source}, and CANN is {cann}; its branch of that release fits better"))
}

fn environment(abi: u8, elsewhere: Option<&PathBuf>) -> String {
    let atb = elsewhere.map_or_else(|| format!("$here/atb/cxx_abi_{abi}"), |folder| folder.display().to_string());
    format!(
        "# Source it after CANN's set_env.sh. It locates itself, so that the folder may be moved.\n\
         here=$(cd \"$(dirname \"${{BASH_SOURCE[0]:-$0}}\")\" && pwd)\n\
         export ATB_HOME_PATH=\"{atb}\"\n\
         export SPEC_ATB_SHIM=\"$here/atb/cxx_abi_{abi}/lib/{}\"\n\
         export LD_LIBRARY_PATH=\"$ATB_HOME_PATH/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"\n\
         unset here\n",
        SHIM
    )
}

/// This program once more, with the environment that the user will have.
fn smoke(host: &Host, cann: &Path, atb: &Path, shim: &Path, spec_decode: bool) -> Result<Invocation> {
    let program = std::env::current_exe().context("this program's own file is needed, to run it again")?;
    let folders = [atb.join("lib"), cann.join("lib64")].into_iter().chain(host.library_path());
    let path: OsString = std::env::join_paths(folders).context("a folder's name holds a colon")?;
    Ok(Invocation::new(program)
        .argument("smoke")
        .arguments(spec_decode.then_some("--spec-decode"))
        .argument(shim)
        .variable("ASCEND_HOME_PATH", cann)
        .variable("ATB_HOME_PATH", atb)
        .variable("LD_LIBRARY_PATH", path))
}
