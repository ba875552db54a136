//! Start and end, versions, element types, data buffers.

use crate::exports::{Out, Text, exports};
use crate::failure::{Failure, Outcome, argument, require};
use crate::world::world;
use acl_sys::{
    ACL_BF16, ACL_BOOL, ACL_COMPLEX32, ACL_COMPLEX64, ACL_COMPLEX128, ACL_DOUBLE, ACL_FLOAT, ACL_FLOAT8_E4M3FN,
    ACL_FLOAT8_E5M2, ACL_FLOAT8_E8M0, ACL_FLOAT16, ACL_HIFLOAT8, ACL_INT8, ACL_INT16, ACL_INT32, ACL_INT64, ACL_UINT8,
    ACL_UINT16, ACL_UINT32, ACL_UINT64, Status, aclCANNPackageName, aclCANNPackageVersion, aclDataBuffer, aclDataType,
};
use std::ffi::{c_char, c_void};
use std::path::Path;

/// Brackets of one kind that a configuration may nest.
const MAX_DEPTH: usize = 10;

/// Reads and checks a configuration of `aclInit`, and returns it in one spelling.
fn read_configuration(path: &str) -> Outcome<String> {
    let failure = |status, text: String| Failure::new(status, format!("{path}: {text}"));
    let text = std::fs::read_to_string(Path::new(path))
        .map_err(|error| failure(Status::ACL_ERROR_INVALID_FILE, error.to_string()))?;
    for (open, close) in [('{', '}'), ('[', ']')] {
        let mut depth = 0usize;
        for character in text.chars() {
            depth = if character == open { depth + 1 } else { depth.saturating_sub(usize::from(character == close)) };
            require(depth <= MAX_DEPTH, || {
                failure(Status::ACL_ERROR_PARSE_FILE, format!("`{open}` nests deeper than {MAX_DEPTH}"))
            })?;
        }
    }
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| failure(Status::ACL_ERROR_PARSE_FILE, error.to_string()))?;
    require(value.is_object(), || failure(Status::ACL_ERROR_PARSE_FILE, "not an object".to_owned()))?;
    let mode = value.get("err_msg_mode").and_then(|mode| mode.as_str()).unwrap_or("0");
    require(matches!(mode, "0" | "1"), || {
        failure(Status::ACL_ERROR_FILE_ATTR_INVALID, format!("err_msg_mode {mode} is not 0 or 1"))
    })?;
    Ok(value.to_string())
}

fn version_number() -> i32 {
    let (major, minor, patch) = world().config().cann;
    i32::try_from(major * 10_000_000 + minor * 100_000 + patch * 1_000).unwrap_or(i32::MAX)
}

fn version_text() -> String {
    let (major, minor, patch) = world().config().cann;
    format!("{major}.{minor}.{patch}")
}

fn check_package(name: Option<String>) -> Outcome {
    let known = ["runtime", "compiler", "hccl", "toolkit", "opp", "driver", "cann"];
    let name = name.ok_or_else(|| argument("the package's name is null"))?;
    require(known.contains(&name.as_str()), || argument(format!("package `{name}` is not one of {}", known.join(", "))))
}

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (to, from) in chars.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from as c_char;
    }
    chars
}

fn element_size(dtype: aclDataType) -> usize {
    match dtype {
        ACL_INT8 | ACL_UINT8 | ACL_BOOL | ACL_HIFLOAT8 | ACL_FLOAT8_E5M2 | ACL_FLOAT8_E4M3FN | ACL_FLOAT8_E8M0 => 1,
        ACL_FLOAT16 | ACL_BF16 | ACL_INT16 | ACL_UINT16 => 2,
        ACL_FLOAT | ACL_INT32 | ACL_UINT32 | ACL_COMPLEX32 => 4,
        ACL_INT64 | ACL_UINT64 | ACL_DOUBLE | ACL_COMPLEX64 => 8,
        ACL_COMPLEX128 => 16,
        _ => 0,
    }
}

/// What an `aclDataBuffer` points to.
struct DataBuffer {
    data: *mut c_void,
    size: usize,
}

/// The buffer behind a handle.
fn buffer<'a>(handle: *const aclDataBuffer) -> Outcome<&'a mut DataBuffer> {
    let handle = handle.cast_mut().cast::<DataBuffer>();
    // SAFETY: by the caller's contract it is null or came from aclCreateDataBuffer, and one thread uses it at a time.
    unsafe { handle.as_mut() }.ok_or_else(|| argument("the data buffer is null"))
}

exports! {
    /// Starts AscendCL. A second start says so and counts.
    fn aclInit(config_path: Text) {
        let config = config_path.get().map(|path| read_configuration(&path)).transpose()?.unwrap_or_default();
        let mut initialised = world().initialised.lock();
        match &mut *initialised {
            None => {
                *initialised = Some((1, config));
                Ok(())
            }
            Some((_, first)) if *first != config => Err(argument("started before with another configuration")),
            Some((count, _)) => {
                *count += 1;
                Err(Failure::new(Status::ACL_ERROR_REPEAT_INITIALIZE, "AscendCL is started already"))
            }
        }
    }

    /// Ends AscendCL, whatever the number of starts.
    fn aclFinalize() {
        let repeated = || Failure::new(Status::ACL_ERROR_REPEAT_FINALIZE, "AscendCL is not started");
        world().initialised.lock().take().ok_or_else(repeated)?;
        crate::control::note_leaks();
        Ok(())
    }

    /// Takes one start back.
    fn aclFinalizeReference(ref_count: Out<u64>) {
        let mut initialised = world().initialised.lock();
        let repeated = || Failure::new(Status::ACL_ERROR_REPEAT_FINALIZE, "AscendCL is not started");
        let (count, _) = initialised.as_mut().ok_or_else(repeated)?;
        *count -= 1;
        let left = *count;
        if left == 0 {
            *initialised = None;
            drop(initialised);
            crate::control::note_leaks();
        }
        ref_count.set(left)
    }

    /// The thread's last text, which it forgets.
    fn aclGetRecentErrMsg() -> *const c_char, else std::ptr::null(), {
        Ok(crate::failure::take_message())
    }

    /// Name of the simulated chip.
    fn aclrtGetSocName() -> *const c_char, else std::ptr::null(), {
        Ok(world().config().soc.name().as_ptr())
    }

    /// Version of the interface.
    fn aclrtGetVersion(major: Out<i32>, minor: Out<i32>, patch: Out<i32>) {
        major.set(1)?;
        minor.set(16)?;
        patch.set(0)
    }

    /// Version of a package as text.
    fn aclsysGetVersionStr(package: Text, version: Out<[c_char; 128]>) {
        check_package(package.get())?;
        version.set(chars(&version_text()))
    }

    /// Version of a package as a number.
    fn aclsysGetVersionNum(package: Text, version: Out<i32>) {
        check_package(package.get())?;
        version.set(version_number())
    }

    /// Version of a package in parts.
    fn aclsysGetCANNVersion(name: aclCANNPackageName, version: Out<aclCANNPackageVersion>) {
        require(name.0 <= 7, || argument(format!("package {} is unknown", name.0)))?;
        let (major, minor, patch) = world().config().cann;
        version.set(aclCANNPackageVersion {
            version: chars(&version_text()),
            majorVersion: chars(&major.to_string()),
            minorVersion: chars(&minor.to_string()),
            releaseVersion: chars(&patch.to_string()),
            patchVersion: chars("0"),
            reserved: [0; 128],
        })
    }

    /// Bytes per element.
    fn aclDataTypeSize(dtype: aclDataType) -> usize, else 0, {
        Ok(element_size(dtype))
    }

    /// Widens half precision.
    fn aclFloat16ToFloat(value: u16) -> f32, else f32::NAN, {
        Ok(half::f16::from_bits(value).to_f32())
    }

    /// Narrows to half precision; what does not fit, NaN too, becomes the largest value of its sign.
    fn aclFloatToFloat16(value: f32) -> u16, else 0, {
        let half = half::f16::from_f32(value);
        let largest = if value.is_sign_negative() { half::f16::MIN } else { half::f16::MAX };
        Ok(if half.is_finite() { half } else { largest }.to_bits())
    }

    /// Describes bytes.
    fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut aclDataBuffer, else std::ptr::null_mut(), {
        Ok(Box::into_raw(Box::new(DataBuffer { data, size })).cast())
    }

    /// Frees a description.
    fn aclDestroyDataBuffer(handle: *const aclDataBuffer) {
        let buffer: *mut DataBuffer = buffer(handle)?;
        // SAFETY: it came from a box, by the caller's contract, and is given back once.
        drop(unsafe { Box::from_raw(buffer) });
        Ok(())
    }

    /// Where the described bytes are.
    fn aclGetDataBufferAddr(handle: *const aclDataBuffer) -> *mut c_void, else std::ptr::null_mut(), {
        Ok(buffer(handle)?.data)
    }

    /// How many bytes are described.
    fn aclGetDataBufferSizeV2(handle: *const aclDataBuffer) -> usize, else 0, {
        Ok(buffer(handle)?.size)
    }

    /// Points a description at other bytes.
    fn aclUpdateDataBuffer(handle: *mut aclDataBuffer, data: *mut c_void, size: usize) {
        *buffer(handle)? = DataBuffer { data, size };
        Ok(())
    }
}
