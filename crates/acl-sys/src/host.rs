//! What this machine says about where CANN is: environment variables and the usual folders.

use crate::version::Version;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where CANN is installed when nobody chose another place, newest layout first.
const CANN_FOLDERS: &[&str] = &["/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest"];
/// The same below the home folder, for installations without root.
const CANN_FOLDERS_AT_HOME: &[&str] = &["Ascend/cann", "Ascend/ascend-toolkit/latest"];
/// The simulator's file.
pub(crate) const SIMULATOR: &str = "libascend_sim.so";
const DRIVER_FOLDERS: &[&str] = &["/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64"];
/// The script of the nnal package, which holds ATB, and its place below the home folder.
const NNAL_SCRIPT: &str = "/usr/local/Ascend/nnal/atb/set_env.sh";
const NNAL_SCRIPT_AT_HOME: &str = "Ascend/nnal/atb/set_env.sh";
/// Files of an installation that say its release, in lines such as `Version=8.5.0`: the layout from CANN 8.5 on, then
/// older ones. `runtime/version.info` of the older ones counts otherwise, and is none of them.
const VERSION_FILES: &[&str] = &[
    "share/info/runtime/version.info",
    "x86_64-linux/ascend_toolkit_install.info",
    "aarch64-linux/ascend_toolkit_install.info",
    "ascend_toolkit_install.info",
    "version.info",
];

/// The variables and folders by which libraries are found. Other than the current one for tests and for diagnoses.
#[derive(Clone, Debug)]
pub struct Host {
    variables: BTreeMap<String, OsString>,
    root: PathBuf,
    executable: Option<PathBuf>,
    directory: PathBuf,
    is_current: bool,
}

impl Host {
    /// This process's environment and this machine's folders.
    pub fn current() -> Self {
        Self {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .collect(),
            root: PathBuf::from("/"),
            executable: std::env::current_exe().ok(),
            directory: std::env::current_dir().unwrap_or_default(),
            is_current: true,
        }
    }

    /// A machine whose files are below `root`, with an empty environment. The system's loader is not asked for it.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { variables: BTreeMap::new(), directory: root.clone(), root, executable: None, is_current: false }
    }

    /// The same with an environment variable.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The same with another program running, beside which libraries of ours may lie.
    #[must_use]
    pub fn with_executable(mut self, executable: impl Into<PathBuf>) -> Self {
        self.executable = Some(executable.into());
        self
    }

    /// Whether this is the machine and process that we run in.
    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    /// Where an absolute path of the machine is; other than the path itself for one that is a folder.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// An environment variable; `None` when it is empty too.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(OsString::as_os_str)
    }

    fn folder_in(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from)
    }

    /// The folders of `LD_LIBRARY_PATH`.
    pub fn library_path(&self) -> Vec<PathBuf> {
        let value = self.variables.get("LD_LIBRARY_PATH");
        let folders = value.into_iter().flat_map(std::env::split_paths);
        folders.filter(|folder| !folder.as_os_str().is_empty()).collect()
    }

    /// Places of CANN that variables name, whether anything is there or not.
    fn named(&self) -> impl Iterator<Item = PathBuf> {
        ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].into_iter().filter_map(|name| self.folder_in(name))
    }

    fn usual(&self) -> impl Iterator<Item = PathBuf> {
        let home = self.folder_in("HOME");
        let at_home = CANN_FOLDERS_AT_HOME.iter().filter_map(move |folder| Some(home.as_ref()?.join(folder)));
        CANN_FOLDERS.iter().map(|folder| self.path(folder)).chain(at_home)
    }

    /// Installations of CANN that are there: named by variables first, then in the usual places.
    pub fn cann_folders(&self) -> Vec<PathBuf> {
        unique(self.named().chain(self.usual()).filter(|folder| folder.is_dir()))
    }

    /// Whether a folder is a simulator that is laid out like CANN (`cargo xtask build-atb --sim`).
    pub fn is_simulated(folder: &Path) -> bool {
        folder.join("lib64").join(SIMULATOR).exists()
    }

    /// Where CANN's libraries are looked for, in order.
    pub fn library_folders(&self) -> Vec<PathBuf> {
        let named = self.named().map(|folder| folder.join("lib64"));
        let usual = self.usual().map(|folder| folder.join("lib64"));
        unique(named.chain(self.library_path()).chain(usual))
    }

    /// Where the ATB shim is looked for, in order; the first may be the file itself.
    pub fn shim_places(&self) -> Vec<PathBuf> {
        let variable = self.folder_in("SPEC_ATB_SHIM");
        let atb = self.folder_in("ATB_HOME_PATH").map(|folder| folder.join("lib"));
        unique(variable.into_iter().chain(self.beside_executable()).chain(atb).chain(self.library_path()))
    }

    /// Where the simulator is looked for, in order; the first may be the file itself: `SPEC_ASCEND_SIM`, beside the
    /// program, and in the `ascend` folder of the target folder that the program was built in, or that is here.
    pub fn simulator_places(&self) -> Vec<PathBuf> {
        let variable = self.folder_in("SPEC_ASCEND_SIM");
        let built = self.target_folder().into_iter().chain([self.directory.join("target")]);
        let built = built.flat_map(|target| [target.join("ascend"), target.join("ascend/lib64")]);
        let cann = self.named().map(|folder| folder.join("lib64"));
        unique(variable.into_iter().chain(self.beside_executable()).chain(built).chain(cann))
    }

    /// The target folder of the build that the program is from.
    fn target_folder(&self) -> Option<PathBuf> {
        let is_profile = |folder: &&Path| folder.ends_with("debug") || folder.ends_with("release");
        Some(self.executable.as_ref()?.ancestors().find(is_profile)?.parent()?.to_owned())
    }

    /// Installations of ATB that are there, each a folder with `lib` and `include`: `ATB_HOME_PATH` first, then those of
    /// nnal, `cxx_abi_1` before `cxx_abi_0`.
    pub fn atb_folders(&self) -> Vec<PathBuf> {
        let nnal = self.nnal_scripts().into_iter().filter_map(|script| Some(script.parent()?.to_owned()));
        let abis = |folder: PathBuf| {
            ["latest/atb/cxx_abi_1", "latest/atb/cxx_abi_0", "cxx_abi_1", "cxx_abi_0"].map(|abi| folder.join(abi))
        };
        let usual = nnal.flat_map(abis).filter(|folder| folder.is_dir());
        unique(self.folder_in("ATB_HOME_PATH").into_iter().chain(usual))
    }

    /// The release of CANN, or of ATB, in a folder, by its files or, for want of them, by the folder's own name.
    pub fn release_in(folder: &Path) -> Option<Version> {
        // Of ATB, `version.info` is above `atb/cxx_abi_N`.
        let above = folder.ancestors().skip(1).take(2).map(|folder| folder.join("version.info"));
        let files = VERSION_FILES.iter().map(|file| folder.join(file));
        let is_atb = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cxx_abi_"));
        let files: Vec<PathBuf> = if is_atb { above.collect() } else { files.collect() };
        let said = files.iter().find_map(|file| version_in(&std::fs::read_to_string(file).ok()?));
        said.or_else(|| {
            let real = folder.canonicalize().ok()?;
            real.ancestors().take(4).find_map(|folder| Version::parse(&folder.file_name()?.to_string_lossy()))
        })
    }

    /// Scripts of nnal that are there.
    fn nnal_scripts(&self) -> Vec<PathBuf> {
        let named = self.folder_in("ATB_HOME_PATH").and_then(|folder| Some(folder.parent()?.join("set_env.sh")));
        let at_home = self.folder_in("HOME").map(|home| home.join(NNAL_SCRIPT_AT_HOME));
        let all = named.into_iter().chain([self.path(NNAL_SCRIPT)]).chain(at_home);
        unique(all.filter(|script| script.is_file()))
    }

    fn beside_executable(&self) -> Option<PathBuf> {
        Some(self.executable.as_ref()?.parent()?.to_owned())
    }

    /// The lines to paste when CANN's libraries are not found, with the folders that are there.
    pub fn advice(&self) -> String {
        let installed = self.cann_folders();
        let drivers: Vec<PathBuf> =
            DRIVER_FOLDERS.iter().map(|folder| self.path(folder)).filter(|folder| folder.is_dir()).collect();
        let mut text = String::new();
        let Some(cann) = installed.iter().find(|folder| folder.join("lib64").is_dir()).or(installed.first()) else {
            let places: Vec<String> = self.usual().map(|folder| folder.display().to_string()).collect();
            let _ = write!(
                text,
                "CANN is in none of {}; install its toolkit (8.5 or newer), then paste:\n  source {}/set_env.sh",
                places.join(", "),
                CANN_FOLDERS[0]
            );
            return text;
        };
        let _ = write!(
            text,
            "CANN is in {}; paste (a service reads no .bashrc: there it goes before the command of ExecStart):",
            cann.display()
        );
        // A release that is installed under `latest` has its script one folder above.
        let script =
            [Some(cann.as_path()), cann.parent()].into_iter().flatten().map(|folder| folder.join("set_env.sh"));
        if let Some(script) = script.into_iter().find(|script| script.is_file()) {
            let _ = write!(text, "\n  source {}\nor, for the libraries alone:", script.display());
        }
        let folders: Vec<String> =
            [cann.join("lib64")].iter().chain(&drivers).map(|folder| folder.display().to_string()).collect();
        let _ = write!(text, "\n  export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH", folders.join(":"));
        text
    }

    /// The lines to paste when the ATB shim, or libatb, is not found.
    pub fn shim_advice(&self) -> String {
        let scripts = self.nnal_scripts();
        let (missing, script) = match scripts.first() {
            Some(script) => ("", script.display().to_string()),
            None => ("install the nnal package (Ascend-cann-nnal) of CANN's release, then ", NNAL_SCRIPT.to_owned()),
        };
        format!(
            "{missing}paste (SPEC_ATB_SHIM may name a shim that is elsewhere):\n  source {script}\n  cargo xtask build-atb \
             --installed --with-spec-decode"
        )
    }
}

/// Words that the system's loader says, and what they mean here.
pub(crate) fn hint(outcome: &str) -> Option<&'static str> {
    let says = |word: &str| outcome.contains(word);
    if says("libascend_hal.so") || says("libdrvdsmi_host.so") {
        Some(
            "libascend_hal.so is the driver's: install the driver, or mount /usr/local/Ascend/driver into the container",
        )
    } else if says("libatb.so") || says("libmki.so") || says("libasdops.so") {
        Some("libatb.so comes with the nnal package: source /usr/local/Ascend/nnal/atb/set_env.sh")
    } else if says("GLIBC_") || says("GLIBCXX_") {
        Some("the library needs a newer C library than this system's: install the CANN package for this distribution")
    } else if says("ELF class") || says("invalid ELF header") {
        Some("the library is for another processor: install the CANN package for this one (uname -m)")
    } else if says("undefined symbol") && says("3atb") {
        Some(
            "ATB_HOME_PATH leads to a libatb of the other C++ ABI: source nnal's set_env.sh with --cxx_abi=0 or 1, as the \
             shim was built",
        )
    } else if says("undefined symbol") {
        Some(
            "libraries of several CANN releases are mixed: keep one release's folders in LD_LIBRARY_PATH, and a driver \
             that it goes with",
        )
    } else {
        None
    }
}

/// The release that a `version.info` tells, as `Version=8.5.0` or, of ATB, `branch : 8.5.0`.
fn version_in(text: &str) -> Option<Version> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(['=', ':'])?;
        let key = key.trim().to_ascii_lowercase();
        if key.ends_with("version") || key == "branch" || key == "ascend-cann-atb" {
            Version::parse(value.trim())
        } else {
            None
        }
    })
}

/// Whether a library there is one for linking only.
pub(crate) fn is_stub(file: &Path) -> bool {
    let named = |path: &Path| path.iter().any(|part| ["devlib", "stub", "stubs"].iter().any(|stub| part == *stub));
    named(file) || file.canonicalize().is_ok_and(|real| named(&real))
}

fn unique(folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !all.contains(&folder) {
            all.push(folder);
        }
    }
    all
}
