/* AscendCL, part 4: memory of the device, pinned memory of the host, copies. See base.h for what these files are. */
#ifndef ACL_SYS_MEMORY_H
#define ACL_SYS_MEMORY_H

#include "base.h"

/** Which pages an allocation takes, and where. */
typedef enum aclrtMemMallocPolicy {
    /** Huge pages (2 MiB) for what is larger than 1 MiB, normal ones when they run out. */
    ACL_MEM_MALLOC_HUGE_FIRST = 0,
    ACL_MEM_MALLOC_HUGE_ONLY = 1,
    ACL_MEM_MALLOC_NORMAL_ONLY = 2,
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x100,
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
    /** Known since CANN 8.5. */
    ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000
} aclrtMemMallocPolicy;

/** From where to where a copy goes. */
typedef enum aclrtMemcpyKind {
    ACL_MEMCPY_HOST_TO_HOST = 0,
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
    /** As the pointers tell. Known since CANN 8.5. */
    ACL_MEMCPY_DEFAULT = 4,
    /** Through a buffer of the runtime's own. */
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6,
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7
} aclrtMemcpyKind;

/** Which memory `aclrtGetMemInfo` is asked about. */
typedef enum aclrtMemAttr {
    ACL_DDR_MEM = 0,
    ACL_HBM_MEM = 1,
    ACL_DDR_MEM_HUGE = 2,
    ACL_DDR_MEM_NORMAL = 3,
    ACL_HBM_MEM_HUGE = 4,
    ACL_HBM_MEM_NORMAL = 5,
    ACL_DDR_MEM_P2P_HUGE = 6,
    ACL_DDR_MEM_P2P_NORMAL = 7,
    ACL_HBM_MEM_P2P_HUGE = 8,
    ACL_HBM_MEM_P2P_NORMAL = 9,
    ACL_HBM_MEM_HUGE1G = 10,
    ACL_HBM_MEM_P2P_HUGE1G = 11,
    /** Known since CANN 8.5, like the ones below. */
    ACL_MEM_NORMAL = 12,
    ACL_MEM_HUGE = 13,
    ACL_MEM_HUGE1G = 14,
    ACL_MEM_P2P_NORMAL = 15,
    ACL_MEM_P2P_HUGE = 16,
    ACL_MEM_P2P_HUGE1G = 17
} aclrtMemAttr;

/** Where a pointer points to. */
typedef enum aclrtMemLocationType {
    ACL_MEM_LOCATION_TYPE_HOST = 0,
    ACL_MEM_LOCATION_TYPE_DEVICE = 1,
    /** The runtime does not know it: ordinary memory of the host. */
    ACL_MEM_LOCATION_TYPE_UNREGISTERED = 2,
    ACL_MEM_LOCATION_TYPE_HOST_NUMA = 4
} aclrtMemLocationType;

/** A kind of memory, and the number of the device or node. */
typedef struct aclrtMemLocation {
    uint32_t id;
    aclrtMemLocationType type;
} aclrtMemLocation;

/** What `aclrtPointerGetAttributes` found. */
typedef struct aclrtPtrAttributes {
    aclrtMemLocation location;
    /** Bytes per page. */
    uint32_t pageSize;
    uint32_t rsv[4];
} aclrtPtrAttributes;

/** What an `aclrtMallocAttribute` sets. */
typedef enum aclrtMallocAttrType {
    ACL_RT_MEM_ATTR_RSV = 0,
    ACL_RT_MEM_ATTR_MODULE_ID = 1,
    ACL_RT_MEM_ATTR_DEVICE_ID = 2,
    ACL_RT_MEM_ATTR_VA_FLAG = 3
} aclrtMallocAttrType;

/** To what an `aclrtMallocAttribute` sets it. */
typedef union aclrtMallocAttrValue {
    uint16_t moduleId;
    uint32_t deviceId;
    uint32_t vaFlag;
    uint8_t rsv[8];
} aclrtMallocAttrValue;

/** One wish about an allocation. */
typedef struct aclrtMallocAttribute {
    aclrtMallocAttrType attr;
    aclrtMallocAttrValue value;
} aclrtMallocAttribute;

/** The wishes about an allocation. */
typedef struct aclrtMallocConfig {
    aclrtMallocAttribute *attrs;
    size_t numAttrs;
} aclrtMallocConfig;

/** Allocates on the current device, 64-byte aligned. The bytes are not zeroed. */
aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
/** As `aclrtMalloc`, without the 32 spare bytes behind. */
aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
/** As `aclrtMalloc`, in memory that the device caches. */
aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
/** As `aclrtMalloc`, with more wishes; `cfg` may be null. */
aclError aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig *cfg);
/** Frees memory of a device at once: work that still uses it is not waited for. */
aclError aclrtFree(void *devPtr);
/** Waits for the device, then frees. */
aclError aclrtFreeWithDevSync(void *devPtr);
/** Allocates pinned memory of the host, as asynchronous copies need it. */
aclError aclrtMallocHost(void **hostPtr, size_t size);
/** As `aclrtMallocHost`, with more wishes; `cfg` may be null. */
aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg);
/** Frees pinned memory. */
aclError aclrtFreeHost(void *hostPtr);
/** Fills `count` bytes of at most `maxCount` with the low byte of `value`. */
aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count);
/** As `aclrtMemset`, in the order of a stream. */
aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream);
/** Copies `count` bytes to a place that has `destMax`. Waits for its own transfer only, not for other streams. */
aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind);
/** As `aclrtMemcpy`, in the order of a stream. Memory of the host has to be pinned and to live until the copy is done. */
aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream);
/** Copies `height` rows of `width` bytes, which lie `dpitch` and `spitch` bytes apart. */
aclError aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind);
/** As `aclrtMemcpy2d`, in the order of a stream. */
aclError aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                            aclrtMemcpyKind kind, aclrtStream stream);
/** Free and total bytes of a kind of memory on the current device. */
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total);
/** What the runtime knows about a pointer. */
aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes);

#endif
