//! Made from `headers/acl/device.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use super::base::*;
use crate::Status;
use crate::table::functions;
use core::ffi::c_uint;

/// On the device's own processor.
pub const ACL_DEVICE: aclrtRunMode = aclrtRunMode(0);
/// On a host with the device as a card.
pub const ACL_HOST: aclrtRunMode = aclrtRunMode(1);
/// Where this process runs.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtRunMode(pub c_uint);
/// The calling thread's.
pub const ACL_RT_THREAD_LEVEL: aclrtLastErrLevel = aclrtLastErrLevel(0);
/// Whose last error is meant.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtLastErrLevel(pub c_uint);

functions! {
    device:
    /// Makes a device current for this thread, with its primary context. The first time in a process can take seconds.
    fn aclrtSetDevice(deviceId: i32) -> Status = Runtime, Cann(8, 0);
    /// Takes one `aclrtSetDevice` back; at none the device's resources in this process are released.
    fn aclrtResetDevice(deviceId: i32) -> Status = Runtime, Cann(8, 0);
    /// Releases the device's resources in this process, whatever the number of `aclrtSetDevice`.
    fn aclrtResetDeviceForce(deviceId: i32) -> Status = Runtime, Cann(8, 5);
    /// The device that is current on this thread.
    fn aclrtGetDevice(deviceId: *mut i32) -> Status = Runtime, Cann(8, 0);
    /// How many devices this process may use, after `ASCEND_RT_VISIBLE_DEVICES`.
    fn aclrtGetDeviceCount(count: *mut u32) -> Status = Runtime, Cann(8, 0);
    /// Whether this process runs on a host or on the device itself.
    fn aclrtGetRunMode(runMode: *mut aclrtRunMode) -> Status = Runtime, Cann(8, 0);
    /// Waits for every stream of the current device.
    fn aclrtSynchronizeDevice() -> Status = Runtime, Cann(8, 0);
    /// Waits for every stream of the current device, `timeout` milliseconds at most; -1 is for ever.
    fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> Status = Runtime, Cann(8, 5);
    /// Makes a context on a device, and makes it current on this thread.
    fn aclrtCreateContext(context: *mut aclrtContext, deviceId: i32) -> Status = Runtime, Cann(8, 0);
    /// Destroys a context that `aclrtCreateContext` made.
    fn aclrtDestroyContext(context: aclrtContext) -> Status = Runtime, Cann(8, 0);
    /// Makes a context, and its device, current on this thread.
    fn aclrtSetCurrentContext(context: aclrtContext) -> Status = Runtime, Cann(8, 0);
    /// The context that is current on this thread.
    fn aclrtGetCurrentContext(context: *mut aclrtContext) -> Status = Runtime, Cann(8, 0);
    /// Returns the last error and clears it.
    fn aclrtGetLastError(level: aclrtLastErrLevel) -> Status = Runtime, Cann(8, 0);
    /// Returns the last error and keeps it.
    fn aclrtPeekAtLastError(level: aclrtLastErrLevel) -> Status = Runtime, Cann(8, 0);
    /// Seconds after which a stream's wait for an event fails.
    fn aclrtSetOpWaitTimeout(timeout: u32) -> Status = Runtime, Cann(8, 0);
    /// Seconds after which a running operator is given up.
    fn aclrtSetOpExecuteTimeOut(timeout: u32) -> Status = Runtime, Cann(8, 0);
}
