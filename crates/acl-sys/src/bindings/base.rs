//! Made from `headers/acl/base.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use crate::Status;
use crate::table::{functions, layout};
use core::ffi::{c_char, c_int, c_uint, c_void};

/// Bits of an IEEE 754 binary16 number.
pub type aclFloat16 = u16;
/// A device context; null is none.
pub type aclrtContext = *mut c_void;
/// A stream; null is the default stream of the current context.
pub type aclrtStream = *mut c_void;
/// An event.
pub type aclrtEvent = *mut c_void;
pub const ACL_DT_UNDEFINED: aclDataType = aclDataType(-1);
pub const ACL_FLOAT: aclDataType = aclDataType(0);
pub const ACL_FLOAT16: aclDataType = aclDataType(1);
pub const ACL_INT8: aclDataType = aclDataType(2);
pub const ACL_INT32: aclDataType = aclDataType(3);
pub const ACL_UINT8: aclDataType = aclDataType(4);
pub const ACL_INT16: aclDataType = aclDataType(6);
pub const ACL_UINT16: aclDataType = aclDataType(7);
pub const ACL_UINT32: aclDataType = aclDataType(8);
pub const ACL_INT64: aclDataType = aclDataType(9);
pub const ACL_UINT64: aclDataType = aclDataType(10);
pub const ACL_DOUBLE: aclDataType = aclDataType(11);
pub const ACL_BOOL: aclDataType = aclDataType(12);
pub const ACL_STRING: aclDataType = aclDataType(13);
pub const ACL_COMPLEX64: aclDataType = aclDataType(16);
pub const ACL_COMPLEX128: aclDataType = aclDataType(17);
pub const ACL_BF16: aclDataType = aclDataType(27);
pub const ACL_INT4: aclDataType = aclDataType(29);
pub const ACL_UINT1: aclDataType = aclDataType(30);
pub const ACL_COMPLEX32: aclDataType = aclDataType(33);
/// Known since CANN 8.5, like every one below.
pub const ACL_HIFLOAT8: aclDataType = aclDataType(34);
pub const ACL_FLOAT8_E5M2: aclDataType = aclDataType(35);
pub const ACL_FLOAT8_E4M3FN: aclDataType = aclDataType(36);
pub const ACL_FLOAT8_E8M0: aclDataType = aclDataType(37);
pub const ACL_FLOAT6_E3M2: aclDataType = aclDataType(38);
pub const ACL_FLOAT6_E2M3: aclDataType = aclDataType(39);
pub const ACL_FLOAT4_E2M1: aclDataType = aclDataType(40);
pub const ACL_FLOAT4_E1M2: aclDataType = aclDataType(41);
/// Element type of a tensor. The numbers have holes, and newer releases add more.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclDataType(pub c_int);
pub const ACL_FORMAT_UNDEFINED: aclFormat = aclFormat(-1);
pub const ACL_FORMAT_NCHW: aclFormat = aclFormat(0);
pub const ACL_FORMAT_NHWC: aclFormat = aclFormat(1);
/// Plain row-major, any rank.
pub const ACL_FORMAT_ND: aclFormat = aclFormat(2);
pub const ACL_FORMAT_NC1HWC0: aclFormat = aclFormat(3);
pub const ACL_FORMAT_FRACTAL_Z: aclFormat = aclFormat(4);
pub const ACL_FORMAT_NC1HWC0_C04: aclFormat = aclFormat(12);
pub const ACL_FORMAT_HWCN: aclFormat = aclFormat(16);
pub const ACL_FORMAT_NDHWC: aclFormat = aclFormat(27);
/// Tiles of 16 columns, the cube unit's own order ("NZ").
pub const ACL_FORMAT_FRACTAL_NZ: aclFormat = aclFormat(29);
pub const ACL_FORMAT_NCDHW: aclFormat = aclFormat(30);
pub const ACL_FORMAT_NDC1HWC0: aclFormat = aclFormat(32);
pub const ACL_FRACTAL_Z_3D: aclFormat = aclFormat(33);
pub const ACL_FORMAT_NC: aclFormat = aclFormat(35);
pub const ACL_FORMAT_NCL: aclFormat = aclFormat(47);
/// Known since CANN 8.3.
pub const ACL_FORMAT_FRACTAL_NZ_C0_16: aclFormat = aclFormat(50);
pub const ACL_FORMAT_FRACTAL_NZ_C0_32: aclFormat = aclFormat(51);
/// Known since CANN 8.5, like the ones below.
pub const ACL_FORMAT_FRACTAL_NZ_C0_2: aclFormat = aclFormat(52);
pub const ACL_FORMAT_FRACTAL_NZ_C0_4: aclFormat = aclFormat(53);
pub const ACL_FORMAT_FRACTAL_NZ_C0_8: aclFormat = aclFormat(54);
/// Memory layout of a tensor.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclFormat(pub c_int);
pub const ACL_PKG_NAME_CANN: aclCANNPackageName = aclCANNPackageName(0);
pub const ACL_PKG_NAME_RUNTIME: aclCANNPackageName = aclCANNPackageName(1);
pub const ACL_PKG_NAME_COMPILER: aclCANNPackageName = aclCANNPackageName(2);
pub const ACL_PKG_NAME_HCCL: aclCANNPackageName = aclCANNPackageName(3);
pub const ACL_PKG_NAME_TOOLKIT: aclCANNPackageName = aclCANNPackageName(4);
pub const ACL_PKG_NAME_OPP: aclCANNPackageName = aclCANNPackageName(5);
pub const ACL_PKG_NAME_OPP_KERNEL: aclCANNPackageName = aclCANNPackageName(6);
pub const ACL_PKG_NAME_DRIVER: aclCANNPackageName = aclCANNPackageName(7);
/// A part of CANN that has a version of its own, for `aclsysGetCANNVersion`.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclCANNPackageName(pub c_uint);
/// A version as NUL-terminated text: whole, then in parts.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclCANNPackageVersion {
    pub version: [c_char; 128],
    pub majorVersion: [c_char; 64],
    pub minorVersion: [c_char; 64],
    pub releaseVersion: [c_char; 64],
    pub patchVersion: [c_char; 64],
    pub reserved: [c_char; 128],
}
#[repr(C)]
pub struct aclDataBuffer {
    _unused: [u8; 0],
}

layout! {
    aclCANNPackageVersion: 512 bytes, aligned 1 {
        version 0, majorVersion 128, minorVersion 192, releaseVersion 256, patchVersion 320, reserved 384
    }
}

functions! {
    base:
    /// Starts AscendCL in this process. `configPath` names a JSON file, or is null.
    fn aclInit(configPath: *const c_char) -> Status = Runtime, Cann(8, 0);
    /// Ends AscendCL in this process, whatever the number of starts.
    fn aclFinalize() -> Status = Runtime, Cann(8, 0);
    /// Takes one start back and says how many are left; ends AscendCL at none.
    fn aclFinalizeReference(refCount: *mut u64) -> Status = Runtime, Cann(8, 5);
    /// The last error's text of this thread, which it clears. Null when there is none; valid until the thread asks again.
    fn aclGetRecentErrMsg() -> *const c_char = Runtime, Cann(8, 0);
    /// Name of the chip, such as `Ascend910B1`; null when it is not known.
    fn aclrtGetSocName() -> *const c_char = Runtime, Cann(8, 0);
    /// Version of the AscendCL interface, which is not the version of CANN. Deprecated by the vendor.
    fn aclrtGetVersion(majorVersion: *mut i32, minorVersion: *mut i32, patchVersion: *mut i32) -> Status = Runtime, Cann(8, 0);
    /// Version of a package such as `runtime`, as text into a buffer of 128 bytes.
    fn aclsysGetVersionStr(pkgName: *mut c_char, versionStr: *mut c_char) -> Status = Runtime, Cann(8, 5);
    /// Version of a package as one number: major * 10^7 + minor * 10^5 + patch * 10^3, less for pre-releases.
    fn aclsysGetVersionNum(pkgName: *mut c_char, versionNum: *mut i32) -> Status = Runtime, Cann(8, 5);
    /// Version of a package. Deprecated by the vendor in favour of `aclsysGetVersionStr`.
    fn aclsysGetCANNVersion(name: aclCANNPackageName, version: *mut aclCANNPackageVersion) -> Status = Runtime, Cann(8, 1);
    /// Bytes per element; 0 for types without a whole number of them.
    fn aclDataTypeSize(dataType: aclDataType) -> usize = Runtime, Cann(8, 0);
    /// Widens half precision, exactly.
    fn aclFloat16ToFloat(value: aclFloat16) -> f32 = Runtime, Cann(8, 0);
    /// Narrows to half precision; what is out of range becomes the largest finite value.
    fn aclFloatToFloat16(value: f32) -> aclFloat16 = Runtime, Cann(8, 0);
    /// Describes `size` bytes at `data`; null on failure.
    fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut aclDataBuffer = Runtime, Cann(8, 0);
    /// Frees the description, not what it points to.
    fn aclDestroyDataBuffer(dataBuffer: *const aclDataBuffer) -> Status = Runtime, Cann(8, 0);
    /// Where the described bytes are.
    fn aclGetDataBufferAddr(dataBuffer: *const aclDataBuffer) -> *mut c_void = Runtime, Cann(8, 0);
    /// How many bytes are described.
    fn aclGetDataBufferSizeV2(dataBuffer: *const aclDataBuffer) -> usize = Runtime, Cann(8, 0);
    /// Points the description at other bytes.
    fn aclUpdateDataBuffer(dataBuffer: *mut aclDataBuffer, data: *mut c_void, size: usize) -> Status = Runtime, Cann(8, 0);
}
