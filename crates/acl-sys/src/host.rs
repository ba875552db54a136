//! What this machine says about where CANN is: environment variables and the usual folders.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where CANN is installed when nobody chose another place, newest layout first.
const CANN_FOLDERS: &[&str] = &["/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest"];
/// The same below the home folder, for installations without root.
const CANN_FOLDERS_AT_HOME: &[&str] = &["Ascend/cann", "Ascend/ascend-toolkit/latest"];
const DRIVER_FOLDERS: &[&str] = &["/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64"];
const NNAL_SCRIPT: &str = "/usr/local/Ascend/nnal/atb/set_env.sh";

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

    fn folder(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn library_path(&self) -> Vec<PathBuf> {
        let value = self.variables.get("LD_LIBRARY_PATH");
        let folders = value.into_iter().flat_map(std::env::split_paths);
        folders.filter(|folder| !folder.as_os_str().is_empty()).collect()
    }

    /// Places of CANN that variables name, whether anything is there or not.
    fn named(&self) -> impl Iterator<Item = PathBuf> {
        ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].into_iter().filter_map(|name| self.variable(name))
    }

    fn usual(&self) -> impl Iterator<Item = PathBuf> {
        let home = self.variable("HOME");
        let at_home = CANN_FOLDERS_AT_HOME.iter().filter_map(move |folder| Some(home.as_ref()?.join(folder)));
        CANN_FOLDERS.iter().map(|folder| self.folder(folder)).chain(at_home)
    }

    /// Installations of CANN that are there: named by variables first, then in the usual places.
    pub fn cann_folders(&self) -> Vec<PathBuf> {
        unique(self.named().chain(self.usual()).filter(|folder| folder.is_dir()))
    }

    /// Where CANN's libraries are looked for, in order.
    pub fn library_folders(&self) -> Vec<PathBuf> {
        let named = self.named().map(|folder| folder.join("lib64"));
        let usual = self.usual().map(|folder| folder.join("lib64"));
        unique(named.chain(self.library_path()).chain(usual))
    }

    /// Where the ATB shim is looked for, in order; the first may be the file itself.
    pub fn shim_places(&self) -> Vec<PathBuf> {
        let variable = self.variable("SPEC_ATB_SHIM");
        let atb = self.variable("ATB_HOME_PATH").map(|folder| folder.join("lib"));
        unique(variable.into_iter().chain(self.beside_executable()).chain(atb).chain(self.library_path()))
    }

    /// Where the simulator is looked for, in order; the first may be the file itself.
    pub fn simulator_places(&self) -> Vec<PathBuf> {
        let variable = self.variable("SPEC_ASCEND_SIM");
        let built = self.directory.join("target/ascend");
        let built = [built.clone(), built.join("lib64")];
        let cann = self.named().map(|folder| folder.join("lib64"));
        unique(variable.into_iter().chain(self.beside_executable()).chain(built).chain(cann))
    }

    fn beside_executable(&self) -> Option<PathBuf> {
        Some(self.executable.as_ref()?.parent()?.to_owned())
    }

    /// The lines to paste when CANN's libraries are not found, with the folders that are there.
    pub fn advice(&self) -> String {
        let installed = self.cann_folders();
        let drivers: Vec<PathBuf> =
            DRIVER_FOLDERS.iter().map(|folder| self.folder(folder)).filter(|folder| folder.is_dir()).collect();
        let mut text = String::new();
        let Some(cann) = installed.iter().find(|folder| folder.join("lib64").is_dir()).or(installed.first()) else {
            let places: Vec<String> = self.usual().map(|folder| folder.display().to_string()).collect();
            let _ = write!(
                text,
                "CANN is in none of {}; install its toolkit (8.0 or newer), then paste:\n  source {}/set_env.sh",
                places.join(", "),
                CANN_FOLDERS[0]
            );
            return text;
        };
        let _ = write!(text, "CANN is in {}; paste:", cann.display());
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

    /// The lines to paste when the ATB shim is not found.
    pub fn shim_advice(&self) -> String {
        let script = self.folder(NNAL_SCRIPT);
        let missing = if script.is_file() { "" } else { "install the nnal package of CANN's release, then " };
        format!(
            "{missing}paste:\n  source {}\n  cargo xtask build-atb --with-spec-decode\nSPEC_ATB_SHIM may name the file",
            script.display()
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
    } else {
        None
    }
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
