//! The machine that is looked at: this one, or for tests a folder with what one would have.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use acl_sys::{Api, Error, Host, Loader};

/// Files, environment and libraries of a machine.
pub(crate) struct Machine {
    pub(crate) host: Host,
    /// Opens a device node for reading and writing, and closes it.
    pub(crate) open: fn(&Path) -> io::Result<()>,
    pub(crate) load: fn(Loader) -> Result<Api, Error>,
    /// Version of the C library that this program runs on.
    pub(crate) glibc: Option<String>,
}

impl Machine {
    pub(crate) fn current() -> Self {
        Self { host: Host::current(), open: open_device, load: load_libraries, glibc: glibc() }
    }

    /// A variable of the environment as text.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        Some(self.host.variable(name)?.to_string_lossy().into_owned())
    }

    pub(crate) fn read(&self, absolute: &str) -> Option<String> {
        std::fs::read_to_string(self.host.path(absolute)).ok()
    }

    pub(crate) fn exists(&self, absolute: &str) -> bool {
        self.host.path(absolute).exists()
    }

    /// Numbers behind `/dev/davinci`, ascending.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(self.host.path("/dev")).into_iter().flatten().flatten();
        let number = |name: String| name.strip_prefix("davinci")?.parse().ok();
        let mut numbers: Vec<u32> =
            entries.filter_map(|entry| number(entry.file_name().to_string_lossy().into_owned())).collect();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn is_container(&self) -> bool {
        self.exists("/.dockerenv") || self.exists("/run/.containerenv")
    }

    /// The value behind `key=` or `key:` in a file of such lines.
    pub(crate) fn value(&self, file: &str, key: &str) -> Option<String> {
        self.read(file)?.lines().find_map(|line| {
            let (name, value) = line.split_once(['=', ':'])?;
            name.trim().eq_ignore_ascii_case(key).then(|| value.trim().trim_matches('"').to_owned())
        })
    }

    /// The newest log of the vendor's libraries.
    pub(crate) fn newest_log(&self) -> Option<PathBuf> {
        let variable = |name: &str| self.host.variable(name).map(PathBuf::from);
        let folder = variable("ASCEND_PROCESS_LOG_PATH")
            .or_else(|| Some(variable("ASCEND_WORK_PATH")?.join("log")))
            .or_else(|| Some(variable("HOME")?.join("ascend/log")))?;
        let entries = std::fs::read_dir(folder.join("debug/plog")).ok()?.flatten();
        let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("plog-"));
        logs.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok()).map(|entry| entry.path())
    }
}

fn open_device(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(path).map(drop)
}

fn load_libraries(loader: Loader) -> Result<Api, Error> {
    // SAFETY: what lies where CANN is installed, or where the simulator is built, is taken to be that.
    unsafe { loader.load() }
}

#[cfg(target_env = "gnu")]
fn glibc() -> Option<String> {
    // SAFETY: takes nothing; the text is a constant of the library's.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    Some(version.to_string_lossy().into_owned())
}

#[cfg(not(target_env = "gnu"))]
fn glibc() -> Option<String> {
    None
}
