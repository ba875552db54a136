//! Lists the Ascend devices of this machine: `cargo run -p acl-sys --example devices [FOLDER]`.
//!
//! FOLDER is a CANN installation, or one of its library folders. Exits with 1 and one line when there is none.

use acl_sys::{ACL_HBM_MEM, Api, Error};
use std::ffi::CStr;
use std::process::ExitCode;

fn main() -> ExitCode {
    match list(std::env::args_os().nth(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            // The first line says what, the last one what to paste; `spec doctor` tells the rest.
            let (first, last) = (text.lines().next().unwrap_or_default(), text.lines().last().unwrap_or_default());
            if first == last {
                eprintln!("devices: {first}")
            } else {
                eprintln!("devices: {first}; try: {}", last.trim())
            }
            ExitCode::FAILURE
        }
    }
}

fn list(folder: Option<std::ffi::OsString>) -> Result<(), Error> {
    // SAFETY: what lies where CANN is installed, or in the folder that was named, is taken to be CANN.
    let api = unsafe {
        match folder {
            Some(folder) => Api::load_from(folder)?,
            None => Api::load()?,
        }
    };
    // SAFETY: null is allowed for the configuration's path.
    unsafe { api.aclInit(std::ptr::null())?.ok()? };
    let listed = devices(&api);
    // SAFETY: takes nothing; every device was reset before.
    let ended = unsafe { api.aclFinalize()? };
    listed?;
    Ok(ended.ok()?)
}

fn devices(api: &Api) -> Result<(), Error> {
    if let Some(version) = api.cann_version()? {
        println!("CANN {version}");
    }
    // SAFETY: takes nothing.
    let name = unsafe { api.aclrtGetSocName()? };
    if !name.is_null() {
        // SAFETY: not null, so that it is a C string, which the library keeps.
        println!("chip {}", unsafe { CStr::from_ptr(name) }.to_string_lossy());
    }
    let mut count = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { api.aclrtGetDeviceCount(&mut count)?.ok()? };
    println!("{count} devices");
    for device in 0..i32::try_from(count).unwrap_or(i32::MAX) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the device's number is in range, both pointers are valid, and the reset follows the set.
        unsafe {
            api.aclrtSetDevice(device)?.ok()?;
            let status = api.aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)?;
            api.aclrtResetDevice(device)?.ok()?;
            status.ok()?;
        }
        println!("device {device}: {} of {} MiB free", free >> 20, total >> 20);
    }
    Ok(())
}
