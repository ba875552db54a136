//! The smoke test: what was installed is loaded and asked who it is. It runs in a process of its own, which the loader
//! gives the environment that the user will export.

use acl_sys::{Api, Loader, SPEC_ATB_ABI_VERSION, Since, Status, spec_atb_probe_result};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::{CStr, c_char};
use std::path::Path;

/// Loads CANN and the shim over libatb. A machine without a driver may build, and cannot load.
pub(crate) fn shim(file: &Path, spec_decode: bool) -> Result<()> {
    // SAFETY: what lies where CANN is installed is taken to be CANN, and the shim was compiled just now.
    let api = unsafe { Loader::new().shim(file).load() };
    let api = match api.map_err(|error| error.to_string()) {
        Ok(api) => api,
        Err(words) if is_driver_missing(&words) => return skipped(&words),
        Err(words) => bail!("smoke test: {words}"),
    };
    let found = match probe(&api) {
        Err(error) if is_driver_missing(&format!("{error:#}")) => return skipped(&format!("{error:#}")),
        other => other.context("smoke test")?,
    };
    // SAFETY: takes nothing.
    let ceiling = unsafe { api.spec_atb_workspace_ceiling() }.context("smoke test")?;
    let of_module = |function: &&acl_sys::Function| matches!(function.since, Since::SpecDecode(_));
    for function in Api::functions().filter(of_module).filter(|_| spec_decode) {
        api.address(function).context("smoke test: the spec-decode module")?;
    }
    println!(
        "smoke test: {} speaks version {SPEC_ATB_ABI_VERSION} of the interface; libatb is {} of cxx_abi_{}; workspaces \
         up to {} MB{}",
        file.display(),
        text(&found.atb_path),
        found.atb_cxx11_abi,
        ceiling >> 20,
        if spec_decode { "; the spec-decode module is in it" } else { "" }
    );
    Ok(())
}

/// Loads the simulator as programs that ask for one do.
pub(crate) fn simulator(file: &Path) -> Result<()> {
    // SAFETY: the simulator was compiled just now, of the signatures that acl-sys has.
    let api = unsafe { Loader::new().simulator(true).path(file).load() }.context("smoke test")?;
    probe(&api).context("smoke test")?;
    let mut count = 0;
    // SAFETY: null is allowed for the configuration; the pointer is valid for the call.
    unsafe {
        api.aclInit(std::ptr::null())?.ok()?;
        api.aclrtGetDeviceCount(&mut count)?.ok()?;
        api.aclFinalize()?.ok()?;
    }
    ensure!(count > 0, "smoke test: the simulator has no device; is ASCEND_SIM_CONFIG set?");
    let version = api.cann_version().context("smoke test")?.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
    println!("smoke test: {} simulates {count} device(s) under CANN {version}", file.display());
    Ok(())
}

fn probe(api: &Api) -> Result<spec_atb_probe_result> {
    // SAFETY: takes nothing.
    let spoken = unsafe { api.spec_atb_abi_version() }?;
    ensure!(spoken == SPEC_ATB_ABI_VERSION, "it speaks version {spoken} of the interface, not {SPEC_ATB_ABI_VERSION}");
    let mut found =
        spec_atb_probe_result { shim_cxx11_abi: -1, atb_cxx11_abi: -1, atb_path: [0; 4096], atb_version: [0; 128] };
    // SAFETY: the pointer is valid for the call.
    match unsafe { api.spec_atb_probe(&mut found) }? {
        Status::SUCCESS => Ok(found),
        status => {
            // SAFETY: takes nothing; the text is valid until this thread calls the shim again.
            let words = unsafe { CStr::from_ptr(api.spec_atb_last_error()?) };
            bail!("{status}; {}", words.to_string_lossy())
        }
    }
}

fn is_driver_missing(words: &str) -> bool {
    words.contains("libascend_hal.so") || words.contains("libdrvdsmi_host.so")
}

fn skipped(words: &str) -> Result<()> {
    println!(
        "smoke test: not run, as this machine has no driver; `spec doctor --device ascend` is the test on one that has"
    );
    println!("  {}", words.lines().find(|line| is_driver_missing(line)).unwrap_or_default().trim());
    Ok(())
}

fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&byte| byte != 0).map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
