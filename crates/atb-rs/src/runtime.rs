//! The library, started once per process.

use crate::call::{Library, Side, lock};
use crate::device::Chip;
use crate::error::{Error, Result};
use acl_sys::{Api, SPEC_ATB_ABI_VERSION, Since, Status, spec_atb_probe_result};
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// Whether a runtime is alive, and what dropping the last one failed by.
struct Process {
    is_started: bool,
    dropped: Option<Error>,
}

static PROCESS: Mutex<Process> = Mutex::new(Process { is_started: false, dropped: None });

/// AscendCL, started. Clones share it; everything made from it keeps it alive.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // SAFETY: what lies where CANN is installed is taken to be CANN.
/// let runtime = atb_rs::Runtime::start(unsafe { acl_sys::Api::load()? })?;
/// println!("{} devices of {:?}", runtime.device_count()?, runtime.chip());
/// runtime.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    library: Library,
    chip: Chip,
    atb: OnceLock<AtbLibrary>,
    /// Whether `aclInit` was ours, so that `aclFinalize` is too.
    is_ours: bool,
    is_finished: bool,
}

/// Which libatb is loaded, by the shim's probe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtbLibrary {
    /// The file.
    pub path: PathBuf,
    /// What it says; `ATBVERSION` when it was built from source.
    pub version: String,
    /// 0 or 1: `_GLIBCXX_USE_CXX11_ABI`, the same as the shim's.
    pub cxx11_abi: i32,
}

impl Runtime {
    /// Starts AscendCL (`aclInit`, without a configuration). When something else in the process has started it
    /// already, that is used, and is not ended by us.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`] while another `Runtime` lives; the failure of `aclInit`; the failure of an earlier
    /// runtime's end that nobody has seen ([`Error::Dropped`]).
    pub fn start(api: Api) -> Result<Self> {
        let mut process = lock(&PROCESS);
        if let Some(error) = process.dropped.take() {
            return Err(Error::Dropped(Box::new(error)));
        }
        if process.is_started {
            return Err(Error::AlreadyStarted);
        }
        let library = Library::new(api);
        let attempt = || "starting AscendCL".to_owned();
        // SAFETY: null stands for no configuration.
        let started = library.acl("aclInit", attempt, |api| unsafe { api.aclInit(std::ptr::null()) });
        let is_ours = match started {
            Err(Error::Call { status: Status::ACL_ERROR_REPEAT_INITIALIZE, .. }) => false,
            other => other.map(|()| true)?,
        };
        process.is_started = true;
        let chip = Chip::of(library.api());
        Ok(Self(Arc::new(Inner { library, chip, atb: OnceLock::new(), is_ours, is_finished: false })))
    }

    /// Ends AscendCL, when nothing uses it any more. Dropping the last user does the same, without anybody to tell of
    /// a failure but the next [`start`](Self::start).
    ///
    /// # Errors
    /// [`Error::StillInUse`]; the failure of `aclFinalize`; the failure of an earlier drop.
    pub fn shutdown(self) -> Result<()> {
        let holders = Arc::strong_count(&self.0) - 1;
        let mut inner = Arc::try_unwrap(self.0).map_err(|_| Error::StillInUse { holders: holders.max(1) })?;
        let earlier = inner.library.take_dropped();
        inner.finish();
        match earlier.or_else(|| inner.library.take_dropped()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The number of devices.
    ///
    /// # Errors
    /// The failure of `aclrtGetDeviceCount`.
    pub fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        self.library().acl(
            "aclrtGetDeviceCount",
            || "counting devices".to_owned(),
            |api| {
                // SAFETY: the pointer is valid for the call.
                unsafe { api.aclrtGetDeviceCount(&mut count) }
            },
        )?;
        Ok(count)
    }

    /// The ceiling of workspaces in bytes where the caller names none: `SPEC_ATB_MAX_WS_SIZE` (in megabytes) of the
    /// environment, else what the shim was built with (`cargo xtask build-atb --max-ws-size`), else
    /// [`Workspace::DEFAULT_CEILING`](crate::Workspace::DEFAULT_CEILING).
    ///
    /// # Errors
    /// [`Error::CeilingUnreadable`].
    pub fn workspace_ceiling(&self) -> Result<u64> {
        // A shim that was built before it could say has the value that is the default still.
        // SAFETY: takes nothing.
        let built = unsafe { self.api().spec_atb_workspace_ceiling() };
        match std::env::var_os("SPEC_ATB_MAX_WS_SIZE").filter(|value| !value.is_empty()) {
            Some(value) => ceiling(&value.to_string_lossy()),
            None => Ok(built.ok().filter(|&bytes| bytes > 0).unwrap_or(crate::Workspace::DEFAULT_CEILING)),
        }
    }

    /// What kind of chip the devices are.
    pub fn chip(&self) -> Chip {
        self.0.chip
    }

    /// The table of functions, for what this crate does not offer.
    pub fn api(&self) -> &Api {
        self.library().api()
    }

    /// Which libatb is there. Asked once, before anything of ATB is used: the shim has to speak our version of its
    /// interface, and libatb has to be of the shim's C++ ABI, since a wrong one links and then corrupts memory.
    ///
    /// # Errors
    /// The shim cannot be loaded, speaks another version, or sees a libatb of the other ABI.
    pub fn atb(&self) -> Result<&AtbLibrary> {
        if let Some(found) = self.0.atb.get() {
            return Ok(found);
        }
        let found = self.probe()?;
        Ok(self.0.atb.get_or_init(|| found))
    }

    /// Whether the shim has the spec-decode module, and with it [`Verify`](crate::parameters::Verify).
    pub fn has_spec_decode(&self) -> bool {
        let mut functions = Api::functions();
        let of_module = |function: &&acl_sys::Function| matches!(function.since, Since::SpecDecode(_));
        functions.find(of_module).is_some_and(|function| self.api().address(function).is_ok())
    }

    fn probe(&self) -> Result<AtbLibrary> {
        let attempt = || "asking the ATB shim which libatb is there".to_owned();
        // SAFETY: takes nothing.
        let spoken = unsafe { self.api().spec_atb_abi_version() }
            .map_err(|source| Error::Unavailable { attempt: attempt(), source })?;
        if spoken != SPEC_ATB_ABI_VERSION {
            let file = PathBuf::from("libspec_atb.so");
            let source = acl_sys::Error::ShimVersion { file, found: spoken, expected: SPEC_ATB_ABI_VERSION };
            return Err(Error::Unavailable { attempt: attempt(), source });
        }
        let mut result =
            spec_atb_probe_result { shim_cxx11_abi: -1, atb_cxx11_abi: -1, atb_path: [0; 4096], atb_version: [0; 128] };
        // SAFETY: the pointer is valid for the call.
        self.library().shim("spec_atb_probe", attempt, |api| unsafe { api.spec_atb_probe(&mut result) })?;
        Ok(AtbLibrary {
            path: Path::new(&text(&result.atb_path)).to_owned(),
            version: text(&result.atb_version),
            cxx11_abi: result.atb_cxx11_abi,
        })
    }

    pub(crate) fn library(&self) -> &Library {
        &self.0.library
    }
}

impl Inner {
    fn finish(&mut self) {
        if self.is_finished {
            return;
        }
        self.is_finished = true;
        if self.is_ours {
            let attempt = || "ending AscendCL".to_owned();
            // SAFETY: takes nothing, and nothing of the runtime is left.
            self.library.release(Side::AscendCl, "aclFinalize", attempt, |api| unsafe { api.aclFinalize() });
        }
        lock(&PROCESS).is_started = false;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let was_finished = self.is_finished;
        self.finish();
        if !was_finished && let Some(error) = self.library.take_dropped() {
            lock(&PROCESS).dropped.get_or_insert(error);
        }
    }
}

/// Bytes, of a text that is a number of megabytes.
fn ceiling(megabytes: &str) -> Result<u64> {
    let bytes = megabytes
        .trim()
        .parse::<u64>()
        .ok()
        .filter(|&number| number > 0)
        .and_then(|number| number.checked_mul(1 << 20));
    bytes.ok_or_else(|| Error::CeilingUnreadable { value: megabytes.to_owned() })
}

/// The text in a buffer that ends with a NUL, or at its end.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte.to_ne_bytes()[0]).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_ceiling_is_a_number_of_megabytes_and_nothing_else() {
        assert_eq!(super::ceiling("2048").unwrap_or(0), 2 << 30);
        for value in ["0", "2G", "-1", "18446744073709551615"] {
            let refused = super::ceiling(value).expect_err(value).to_string();
            assert!(refused.contains(value) && refused.contains("megabytes"), "{refused}");
        }
    }
}
