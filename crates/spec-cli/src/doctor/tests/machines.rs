//! Machines to be looked at.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use acl_sys::{Api, Error, Host, Loader};
use tempfile::TempDir;

use super::super::machine::Machine;
use super::super::{Report, diagnose};
use crate::device::DeviceName;

/// Marks of the two C++ ABIs in libatb.
pub(super) const ABI_1: &str = "_ZN3atb5Utils13GetAtbVersionB5cxx11Ev";
pub(super) const ABI_0: &str = "_ZN3atb5Utils13GetAtbVersionEv";

/// The simulator's configuration is one for the process.
static SIMULATOR: Mutex<()> = Mutex::new(());

/// A machine in a folder.
pub(super) struct Folder {
    root: TempDir,
    variables: Vec<(String, String)>,
    open: fn(&Path) -> io::Result<()>,
    load: fn(Loader) -> Result<Api, Error>,
    /// The simulator's configuration, where it stands in for libraries.
    simulator: Option<String>,
}

fn allowed(path: &Path) -> io::Result<()> {
    std::fs::File::open(path).map(drop)
}

fn load_libraries(loader: Loader) -> Result<Api, Error> {
    // SAFETY: tests have compiled what is there, with the signatures of acl-sys.
    unsafe { loader.load() }
}

fn simulate(_: Loader) -> Result<Api, Error> {
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys.
    Ok(unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) })
}

impl Folder {
    /// A computer without an NPU.
    pub(super) fn plain() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = Self { root, variables: Vec::new(), open: allowed, load: load_libraries, simulator: None };
        folder.write("/etc/os-release", "NAME=\"Test\"\nPRETTY_NAME=\"Test Linux 1\"\n");
        folder.write("/proc/sys/kernel/osrelease", "6.1.0-test\n");
        folder.write("/proc/cpuinfo", "model name\t: A Processor\n");
        folder.write("/proc/meminfo", "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n");
        folder.write("/proc/self/status", "Uid:\t65534\t65534\t65534\t65534\n");
        folder.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        folder
    }

    /// A server with two NPUs, where everything is as it should be. Its libraries are the simulator's, so configured.
    pub(super) fn server(simulator: &str) -> Self {
        let simulator = Some(format!("devices=2;delay=0;{simulator}"));
        let mut folder = Self { load: simulate, simulator, ..Self::plain() };
        for node in ["davinci0", "davinci1", "davinci_manager", "devmm_svm", "hisi_hdc"] {
            folder.write(&format!("/dev/{node}"), "");
        }
        folder.write("/proc/modules", "drv_davinci_intf 1 0 - Live\n");
        folder.write("/usr/local/Ascend/driver/version.info", "Version=25.2.0\n");
        folder.write("/etc/ascend_install.info", "UserName=HwHiAiUser\nUserGroup=HwHiAiUser\n");
        folder.install_cann("/usr/local/Ascend/cann", "8.5.0");
        folder.install_atb(1, "8.5.0", ABI_1);
        folder
    }

    pub(super) fn install_cann(&mut self, at: &str, release: &str) {
        self.write(&format!("{at}/share/info/runtime/version.info"), &format!("Version={release}\n"));
        self.write(&format!("{at}/set_env.sh"), "");
        self.write(&format!("{at}/lib64/any"), "");
        let folder = self.path(at).display().to_string();
        self.set("ASCEND_HOME_PATH", &folder);
    }

    pub(super) fn install_atb(&mut self, abi: u8, release: &str, mark: &str) {
        const NNAL: &str = "/usr/local/Ascend/nnal/atb";
        self.write(&format!("{NNAL}/set_env.sh"), "");
        self.write(&format!("{NNAL}/latest/version.info"), &format!("    branch : {release}\n"));
        let folder = format!("{NNAL}/latest/atb/cxx_abi_{abi}");
        self.write(&format!("{folder}/lib/libatb.so"), &format!("\u{7f}ELF...{mark}..."));
        self.write(&format!("{folder}/configs/ops_configs/atb_ops_info.ini"), "");
        let folder = self.path(&folder).display().to_string();
        self.set("ATB_HOME_PATH", &folder);
    }

    pub(super) fn path(&self, absolute: &str) -> PathBuf {
        self.root.path().join(absolute.trim_start_matches('/'))
    }

    pub(super) fn write(&self, absolute: &str, text: &str) {
        let path = self.path(absolute);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    pub(super) fn remove(&self, absolute: &str) {
        let path = self.path(absolute);
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Compiles a library, with others that it needs.
    pub(super) fn compile(&self, absolute: &str, source: &str, needs: &[&Path]) -> PathBuf {
        self.write(&format!("{absolute}.c"), source);
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-w", "-Wl,--no-as-needed", "-o"]).arg(self.path(absolute));
        command.arg(self.path(&format!("{absolute}.c")));
        for library in needs {
            command.arg("-L").arg(library.parent().expect("a file is in a folder"));
            command.arg(format!("-l:{}", library.file_name().expect("a file has a name").to_string_lossy()));
        }
        assert!(command.status().expect("a C compiler").success());
        self.path(absolute)
    }

    pub(super) fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn unset(&mut self, name: &str) -> &mut Self {
        self.variables.retain(|(known, _)| known != name);
        self
    }

    /// Has device nodes refuse to be opened.
    pub(super) fn refuse(&mut self, open: fn(&Path) -> io::Result<()>) -> &mut Self {
        self.open = open;
        self
    }

    pub(super) fn look(&self, device: Option<&str>) -> Seen {
        let device = device.map(|name| name.parse::<DeviceName>().expect("a device"));
        let host = self
            .variables
            .iter()
            .fold(Host::at(self.root.path()), |host, (name, value)| host.with_variable(name, value));
        let _guard = self.simulator.as_ref().map(|configuration| {
            let guard = SIMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
            ascend_sim::reset();
            ascend_sim::configure(configuration).expect("a configuration");
            guard
        });
        let machine = Machine { host, open: self.open, load: self.load, glibc: Some("2.36".to_owned()) };
        let mut text = String::new();
        let report = diagnose(&machine, device, &mut |section| {
            text += &section.text();
            Ok(())
        });
        let report = report.expect("a diagnosis");
        text += &report.ending();
        if self.simulator.as_ref().is_some_and(|configuration| !configuration.contains("lost")) {
            assert_eq!(ascend_sim::alive(), Vec::<String>::new(), "whatever was found, nothing is left\n{text}");
        }
        Seen { report, text }
    }
}

/// What was said of a machine.
pub(super) struct Seen {
    pub(super) report: Report,
    pub(super) text: String,
}

impl Seen {
    /// Ends with this code, and has all of these words on lines of one finding.
    #[track_caller]
    pub(super) fn says(&self, code: u8, words: &[&str]) -> &Self {
        assert_eq!(self.report.code(), code, "{}", self.text);
        for word in words {
            assert!(self.text.contains(word), "`{word}` is not in:\n{}", self.text);
        }
        self
    }

    /// A line to follow.
    #[track_caller]
    pub(super) fn fixes(&self, words: &[&str]) -> &Self {
        let fixes: Vec<&str> = self.text.lines().filter_map(|line| line.trim().strip_prefix("fix: ")).collect();
        for word in words {
            assert!(fixes.iter().any(|fix| fix.contains(word)), "no line to follow has `{word}`:\n{}", self.text);
        }
        self
    }

    #[track_caller]
    pub(super) fn says_nothing_of(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(!self.text.contains(word), "`{word}` is in:\n{}", self.text);
        }
        self
    }
}
