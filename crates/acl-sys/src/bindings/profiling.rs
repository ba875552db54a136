//! Made from `headers/acl/profiling.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use crate::Status;
use crate::table::functions;
use core::ffi::{c_char, c_uint, c_void};

pub const ACL_AICORE_ARITHMETIC_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(0);
pub const ACL_AICORE_PIPE_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(1);
pub const ACL_AICORE_MEMORY_BANDWIDTH: aclprofAicoreMetrics = aclprofAicoreMetrics(2);
pub const ACL_AICORE_L0B_AND_WIDTH: aclprofAicoreMetrics = aclprofAicoreMetrics(3);
pub const ACL_AICORE_RESOURCE_CONFLICT_RATIO: aclprofAicoreMetrics = aclprofAicoreMetrics(4);
pub const ACL_AICORE_MEMORY_UB: aclprofAicoreMetrics = aclprofAicoreMetrics(5);
pub const ACL_AICORE_L2_CACHE: aclprofAicoreMetrics = aclprofAicoreMetrics(6);
/// Known since CANN 8.5.
pub const ACL_AICORE_PIPE_EXECUTE_UTILIZATION: aclprofAicoreMetrics = aclprofAicoreMetrics(7);
/// Known since CANN 8.1.
pub const ACL_AICORE_MEMORY_ACCESS: aclprofAicoreMetrics = aclprofAicoreMetrics(8);
pub const ACL_AICORE_NONE: aclprofAicoreMetrics = aclprofAicoreMetrics(255);
/// What the hardware counters of the cores count; one group at a time.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclprofAicoreMetrics(pub c_uint);
pub const ACL_PROF_ARGS_MIN: aclprofConfigType = aclprofConfigType(0);
/// Megabytes that the results may take.
pub const ACL_PROF_STORAGE_LIMIT: aclprofConfigType = aclprofConfigType(1);
pub const ACL_PROF_SYS_HARDWARE_MEM_FREQ: aclprofConfigType = aclprofConfigType(3);
pub const ACL_PROF_LLC_MODE: aclprofConfigType = aclprofConfigType(4);
pub const ACL_PROF_SYS_IO_FREQ: aclprofConfigType = aclprofConfigType(5);
pub const ACL_PROF_SYS_INTERCONNECTION_FREQ: aclprofConfigType = aclprofConfigType(6);
pub const ACL_PROF_DVPP_FREQ: aclprofConfigType = aclprofConfigType(7);
pub const ACL_PROF_HOST_SYS: aclprofConfigType = aclprofConfigType(8);
pub const ACL_PROF_HOST_SYS_USAGE: aclprofConfigType = aclprofConfigType(9);
pub const ACL_PROF_HOST_SYS_USAGE_FREQ: aclprofConfigType = aclprofConfigType(10);
/// What `aclprofSetConfig` sets. Numbers above these moved between releases (14 for one) and are left out.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclprofConfigType(pub c_uint);
pub const ACL_PROF_ACL_API: u64 = 1;
pub const ACL_PROF_TASK_TIME: u64 = 2;
pub const ACL_PROF_AICORE_METRICS: u64 = 4;
pub const ACL_PROF_AICPU: u64 = 8;
pub const ACL_PROF_L2CACHE: u64 = 16;
pub const ACL_PROF_HCCL_TRACE: u64 = 32;
pub const ACL_PROF_TRAINING_TRACE: u64 = 64;
pub const ACL_PROF_MSPROFTX: u64 = 128;
pub const ACL_PROF_RUNTIME_API: u64 = 256;
pub const ACL_PROF_GE_API_L0: u64 = 512;
pub const ACL_PROF_TASK_TIME_L0: u64 = 2048;
pub const ACL_PROF_TASK_MEMORY: u64 = 4096;
pub const ACL_PROF_TASK_TIME_L2: u64 = 8192;
pub const ACL_PROF_OP_ATTR: u64 = 16384;
pub const ACL_PROF_TASK_TIME_L3: u64 = 32768;
pub const ACL_PROF_GE_API_L1: u64 = 16777216;
#[repr(C)]
pub struct aclprofConfig {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct aclprofAicoreEvents {
    _unused: [u8; 0],
}

functions! {
    profiling:
    /// Prepares profiling into a folder whose name has `length` bytes (4096 at most); after `aclInit`, before any model.
    fn aclprofInit(profilerResultPath: *const c_char, length: usize) -> Status = Profiling, Cann(8, 0);
    /// Ends profiling and writes what is left.
    fn aclprofFinalize() -> Status = Profiling, Cann(8, 0);
    /// Says what to profile, on `deviceNums` devices; null on failure.
    fn aclprofCreateConfig(deviceIdList: *mut u32, deviceNums: u32, aicoreMetrics: aclprofAicoreMetrics, aicoreEvents: *const aclprofAicoreEvents, dataTypeConfig: u64) -> *mut aclprofConfig = Profiling, Cann(8, 0);
    /// Frees what `aclprofCreateConfig` made.
    fn aclprofDestroyConfig(profilerConfig: *const aclprofConfig) -> Status = Profiling, Cann(8, 0);
    /// Sets one more thing, to a text of `configLength` bytes.
    fn aclprofSetConfig(configType: aclprofConfigType, config: *const c_char, configLength: usize) -> Status = Profiling, Cann(8, 0);
    /// Starts collecting.
    fn aclprofStart(profilerConfig: *const aclprofConfig) -> Status = Profiling, Cann(8, 0);
    /// Stops collecting.
    fn aclprofStop(profilerConfig: *const aclprofConfig) -> Status = Profiling, Cann(8, 0);
    /// Makes a marker for the timeline; null on failure.
    fn aclprofCreateStamp() -> *mut c_void = Profiling, Cann(8, 0);
    /// Frees a marker.
    fn aclprofDestroyStamp(stamp: *mut c_void) -> () = Profiling, Cann(8, 0);
    /// Labels a marker with `msgLen` bytes.
    fn aclprofSetStampTraceMessage(stamp: *mut c_void, msg: *const c_char, msgLen: u32) -> Status = Profiling, Cann(8, 0);
    /// Marks this moment.
    fn aclprofMark(stamp: *mut c_void) -> Status = Profiling, Cann(8, 0);
    /// Opens a range on this thread; ranges nest.
    fn aclprofPush(stamp: *mut c_void) -> Status = Profiling, Cann(8, 0);
    /// Closes the innermost range of this thread.
    fn aclprofPop() -> Status = Profiling, Cann(8, 0);
    /// Opens a range that any thread may close.
    fn aclprofRangeStart(stamp: *mut c_void, rangeId: *mut u32) -> Status = Profiling, Cann(8, 0);
    /// Closes such a range.
    fn aclprofRangeStop(rangeId: u32) -> Status = Profiling, Cann(8, 0);
}
