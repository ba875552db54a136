//! Made from `headers/acl/memory.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use super::base::*;
use crate::Status;
use crate::table::{functions, layout};
use core::ffi::{c_uint, c_void};

/// Huge pages (2 MiB) for what is larger than 1 MiB, normal ones when they run out.
pub const ACL_MEM_MALLOC_HUGE_FIRST: aclrtMemMallocPolicy = aclrtMemMallocPolicy(0);
pub const ACL_MEM_MALLOC_HUGE_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(1);
pub const ACL_MEM_MALLOC_NORMAL_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(2);
pub const ACL_MEM_MALLOC_HUGE_FIRST_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(3);
pub const ACL_MEM_MALLOC_HUGE_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(4);
pub const ACL_MEM_MALLOC_NORMAL_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(5);
pub const ACL_MEM_MALLOC_HUGE1G_ONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(6);
pub const ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: aclrtMemMallocPolicy = aclrtMemMallocPolicy(7);
pub const ACL_MEM_TYPE_LOW_BAND_WIDTH: aclrtMemMallocPolicy = aclrtMemMallocPolicy(256);
pub const ACL_MEM_TYPE_HIGH_BAND_WIDTH: aclrtMemMallocPolicy = aclrtMemMallocPolicy(4096);
/// Known since CANN 8.5.
pub const ACL_MEM_ACCESS_USER_SPACE_READONLY: aclrtMemMallocPolicy = aclrtMemMallocPolicy(1048576);
/// Which pages an allocation takes, and where.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemMallocPolicy(pub c_uint);
pub const ACL_MEMCPY_HOST_TO_HOST: aclrtMemcpyKind = aclrtMemcpyKind(0);
pub const ACL_MEMCPY_HOST_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(1);
pub const ACL_MEMCPY_DEVICE_TO_HOST: aclrtMemcpyKind = aclrtMemcpyKind(2);
pub const ACL_MEMCPY_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(3);
/// As the pointers tell. Known since CANN 8.5.
pub const ACL_MEMCPY_DEFAULT: aclrtMemcpyKind = aclrtMemcpyKind(4);
/// Through a buffer of the runtime's own.
pub const ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(5);
pub const ACL_MEMCPY_INNER_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(6);
pub const ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: aclrtMemcpyKind = aclrtMemcpyKind(7);
/// From where to where a copy goes.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemcpyKind(pub c_uint);
pub const ACL_DDR_MEM: aclrtMemAttr = aclrtMemAttr(0);
pub const ACL_HBM_MEM: aclrtMemAttr = aclrtMemAttr(1);
pub const ACL_DDR_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(2);
pub const ACL_DDR_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(3);
pub const ACL_HBM_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(4);
pub const ACL_HBM_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(5);
pub const ACL_DDR_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(6);
pub const ACL_DDR_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(7);
pub const ACL_HBM_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(8);
pub const ACL_HBM_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(9);
pub const ACL_HBM_MEM_HUGE1G: aclrtMemAttr = aclrtMemAttr(10);
pub const ACL_HBM_MEM_P2P_HUGE1G: aclrtMemAttr = aclrtMemAttr(11);
/// Known since CANN 8.5, like the ones below.
pub const ACL_MEM_NORMAL: aclrtMemAttr = aclrtMemAttr(12);
pub const ACL_MEM_HUGE: aclrtMemAttr = aclrtMemAttr(13);
pub const ACL_MEM_HUGE1G: aclrtMemAttr = aclrtMemAttr(14);
pub const ACL_MEM_P2P_NORMAL: aclrtMemAttr = aclrtMemAttr(15);
pub const ACL_MEM_P2P_HUGE: aclrtMemAttr = aclrtMemAttr(16);
pub const ACL_MEM_P2P_HUGE1G: aclrtMemAttr = aclrtMemAttr(17);
/// Which memory `aclrtGetMemInfo` is asked about.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemAttr(pub c_uint);
pub const ACL_MEM_LOCATION_TYPE_HOST: aclrtMemLocationType = aclrtMemLocationType(0);
pub const ACL_MEM_LOCATION_TYPE_DEVICE: aclrtMemLocationType = aclrtMemLocationType(1);
/// The runtime does not know it: ordinary memory of the host.
pub const ACL_MEM_LOCATION_TYPE_UNREGISTERED: aclrtMemLocationType = aclrtMemLocationType(2);
pub const ACL_MEM_LOCATION_TYPE_HOST_NUMA: aclrtMemLocationType = aclrtMemLocationType(4);
/// Where a pointer points to.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMemLocationType(pub c_uint);
/// A kind of memory, and the number of the device or node.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMemLocation {
    pub id: u32,
    pub type_: aclrtMemLocationType,
}
/// What `aclrtPointerGetAttributes` found.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtPtrAttributes {
    pub location: aclrtMemLocation,
    /// Bytes per page.
    pub pageSize: u32,
    pub rsv: [u32; 4],
}
pub const ACL_RT_MEM_ATTR_RSV: aclrtMallocAttrType = aclrtMallocAttrType(0);
pub const ACL_RT_MEM_ATTR_MODULE_ID: aclrtMallocAttrType = aclrtMallocAttrType(1);
pub const ACL_RT_MEM_ATTR_DEVICE_ID: aclrtMallocAttrType = aclrtMallocAttrType(2);
pub const ACL_RT_MEM_ATTR_VA_FLAG: aclrtMallocAttrType = aclrtMallocAttrType(3);
/// What an `aclrtMallocAttribute` sets.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclrtMallocAttrType(pub c_uint);
/// To what an `aclrtMallocAttribute` sets it.
#[repr(C)]
#[derive(Copy, Clone)]
pub union aclrtMallocAttrValue {
    pub moduleId: u16,
    pub deviceId: u32,
    pub vaFlag: u32,
    pub rsv: [u8; 8],
}
/// One wish about an allocation.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct aclrtMallocAttribute {
    pub attr: aclrtMallocAttrType,
    pub value: aclrtMallocAttrValue,
}
/// The wishes about an allocation.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclrtMallocConfig {
    pub attrs: *mut aclrtMallocAttribute,
    pub numAttrs: usize,
}

layout! {
    aclrtMemLocation: 8 bytes, aligned 4 { id 0, type_ 4 }
    aclrtPtrAttributes: 28 bytes, aligned 4 { location 0, pageSize 8, rsv 12 }
    aclrtMallocAttrValue: 8 bytes, aligned 4 { moduleId 0, deviceId 0, vaFlag 0, rsv 0 }
    aclrtMallocAttribute: 12 bytes, aligned 4 { attr 0, value 4 }
    aclrtMallocConfig: 16 bytes, aligned 8 { attrs 0, numAttrs 8 }
}

functions! {
    memory:
    /// Allocates on the current device, 64-byte aligned. The bytes are not zeroed.
    fn aclrtMalloc(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtMalloc`, without the 32 spare bytes behind.
    fn aclrtMallocAlign32(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtMalloc`, in memory that the device caches.
    fn aclrtMallocCached(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtMalloc`, with more wishes; `cfg` may be null.
    fn aclrtMallocWithCfg(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy, cfg: *mut aclrtMallocConfig) -> Status = Runtime, Cann(8, 5);
    /// Frees memory of a device at once: work that still uses it is not waited for.
    fn aclrtFree(devPtr: *mut c_void) -> Status = Runtime, Cann(8, 0);
    /// Waits for the device, then frees.
    fn aclrtFreeWithDevSync(devPtr: *mut c_void) -> Status = Runtime, Cann(8, 5);
    /// Allocates pinned memory of the host, as asynchronous copies need it.
    fn aclrtMallocHost(hostPtr: *mut *mut c_void, size: usize) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtMallocHost`, with more wishes; `cfg` may be null.
    fn aclrtMallocHostWithCfg(ptr: *mut *mut c_void, size: u64, cfg: *mut aclrtMallocConfig) -> Status = Runtime, Cann(8, 5);
    /// Frees pinned memory.
    fn aclrtFreeHost(hostPtr: *mut c_void) -> Status = Runtime, Cann(8, 0);
    /// Fills `count` bytes of at most `maxCount` with the low byte of `value`.
    fn aclrtMemset(devPtr: *mut c_void, maxCount: usize, value: i32, count: usize) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtMemset`, in the order of a stream.
    fn aclrtMemsetAsync(devPtr: *mut c_void, maxCount: usize, value: i32, count: usize, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Copies `count` bytes to a place that has `destMax`. Waits for its own transfer only, not for other streams.
    fn aclrtMemcpy(dst: *mut c_void, destMax: usize, src: *const c_void, count: usize, kind: aclrtMemcpyKind) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtMemcpy`, in the order of a stream. Memory of the host has to be pinned and to live until the copy is done.
    fn aclrtMemcpyAsync(dst: *mut c_void, destMax: usize, src: *const c_void, count: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Copies `height` rows of `width` bytes, which lie `dpitch` and `spitch` bytes apart.
    fn aclrtMemcpy2d(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: aclrtMemcpyKind) -> Status = Runtime, Cann(8, 0);
    /// As `aclrtMemcpy2d`, in the order of a stream.
    fn aclrtMemcpy2dAsync(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> Status = Runtime, Cann(8, 0);
    /// Free and total bytes of a kind of memory on the current device.
    fn aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> Status = Runtime, Cann(8, 0);
    /// What the runtime knows about a pointer.
    fn aclrtPointerGetAttributes(ptr: *const c_void, attributes: *mut aclrtPtrAttributes) -> Status = Runtime, Cann(8, 5);
}
