/* AscendCL, part 6: profiling. See base.h for what these files are. */
#ifndef ACL_SYS_PROFILING_H
#define ACL_SYS_PROFILING_H

#include "base.h"

/** What the hardware counters of the cores count; one group at a time. */
typedef enum aclprofAicoreMetrics {
    ACL_AICORE_ARITHMETIC_UTILIZATION = 0,
    ACL_AICORE_PIPE_UTILIZATION = 1,
    ACL_AICORE_MEMORY_BANDWIDTH = 2,
    ACL_AICORE_L0B_AND_WIDTH = 3,
    ACL_AICORE_RESOURCE_CONFLICT_RATIO = 4,
    ACL_AICORE_MEMORY_UB = 5,
    ACL_AICORE_L2_CACHE = 6,
    /** Known since CANN 8.5. */
    ACL_AICORE_PIPE_EXECUTE_UTILIZATION = 7,
    /** Known since CANN 8.1. */
    ACL_AICORE_MEMORY_ACCESS = 8,
    ACL_AICORE_NONE = 0xFF
} aclprofAicoreMetrics;

/** What `aclprofSetConfig` sets. Numbers above these moved between releases (14 for one) and are left out. */
typedef enum aclprofConfigType {
    ACL_PROF_ARGS_MIN = 0,
    /** Megabytes that the results may take. */
    ACL_PROF_STORAGE_LIMIT = 1,
    ACL_PROF_SYS_HARDWARE_MEM_FREQ = 3,
    ACL_PROF_LLC_MODE = 4,
    ACL_PROF_SYS_IO_FREQ = 5,
    ACL_PROF_SYS_INTERCONNECTION_FREQ = 6,
    ACL_PROF_DVPP_FREQ = 7,
    ACL_PROF_HOST_SYS = 8,
    ACL_PROF_HOST_SYS_USAGE = 9,
    ACL_PROF_HOST_SYS_USAGE_FREQ = 10
} aclprofConfigType;

/** What a profile holds, to be combined with `|` for `aclprofCreateConfig`. */
enum {
    ACL_PROF_ACL_API = 0x1,
    ACL_PROF_TASK_TIME = 0x2,
    ACL_PROF_AICORE_METRICS = 0x4,
    ACL_PROF_AICPU = 0x8,
    ACL_PROF_L2CACHE = 0x10,
    ACL_PROF_HCCL_TRACE = 0x20,
    ACL_PROF_TRAINING_TRACE = 0x40,
    ACL_PROF_MSPROFTX = 0x80,
    ACL_PROF_RUNTIME_API = 0x100,
    ACL_PROF_GE_API_L0 = 0x200,
    ACL_PROF_TASK_TIME_L0 = 0x800,
    ACL_PROF_TASK_MEMORY = 0x1000,
    ACL_PROF_TASK_TIME_L2 = 0x2000,
    ACL_PROF_OP_ATTR = 0x4000,
    ACL_PROF_TASK_TIME_L3 = 0x8000,
    ACL_PROF_GE_API_L1 = 0x1000000
};

/** What to profile. Opaque. */
typedef struct aclprofConfig aclprofConfig;
/** Counters chosen one by one. Opaque; null everywhere in practice. */
typedef struct aclprofAicoreEvents aclprofAicoreEvents;

/** Prepares profiling into a folder whose name has `length` bytes (4096 at most); after `aclInit`, before any model. */
aclError aclprofInit(const char *profilerResultPath, size_t length);
/** Ends profiling and writes what is left. */
aclError aclprofFinalize(void);
/** Says what to profile, on `deviceNums` devices; null on failure. */
aclprofConfig *aclprofCreateConfig(uint32_t *deviceIdList, uint32_t deviceNums, aclprofAicoreMetrics aicoreMetrics,
                                   const aclprofAicoreEvents *aicoreEvents, uint64_t dataTypeConfig);
/** Frees what `aclprofCreateConfig` made. */
aclError aclprofDestroyConfig(const aclprofConfig *profilerConfig);
/** Sets one more thing, to a text of `configLength` bytes. */
aclError aclprofSetConfig(aclprofConfigType configType, const char *config, size_t configLength);
/** Starts collecting. */
aclError aclprofStart(const aclprofConfig *profilerConfig);
/** Stops collecting. */
aclError aclprofStop(const aclprofConfig *profilerConfig);

/** Makes a marker for the timeline; null on failure. */
void *aclprofCreateStamp(void);
/** Frees a marker. */
void aclprofDestroyStamp(void *stamp);
/** Labels a marker with `msgLen` bytes. */
aclError aclprofSetStampTraceMessage(void *stamp, const char *msg, uint32_t msgLen);
/** Marks this moment. */
aclError aclprofMark(void *stamp);
/** Opens a range on this thread; ranges nest. */
aclError aclprofPush(void *stamp);
/** Closes the innermost range of this thread. */
aclError aclprofPop(void);
/** Opens a range that any thread may close. */
aclError aclprofRangeStart(void *stamp, uint32_t *rangeId);
/** Closes such a range. */
aclError aclprofRangeStop(uint32_t rangeId);

#endif
