/* AscendCL, part 2: devices, contexts, time limits of operators. See base.h for what these files are. */
#ifndef ACL_SYS_DEVICE_H
#define ACL_SYS_DEVICE_H

#include "base.h"

/** Where this process runs. */
typedef enum aclrtRunMode {
    /** On the device's own processor. */
    ACL_DEVICE = 0,
    /** On a host with the device as a card. */
    ACL_HOST = 1
} aclrtRunMode;

/** Whose last error is meant. */
typedef enum aclrtLastErrLevel {
    /** The calling thread's. */
    ACL_RT_THREAD_LEVEL = 0
} aclrtLastErrLevel;

/** Makes a device current for this thread, with its primary context. The first time in a process can take seconds. */
aclError aclrtSetDevice(int32_t deviceId);
/** Takes one `aclrtSetDevice` back; at none the device's resources in this process are released. */
aclError aclrtResetDevice(int32_t deviceId);
/** Releases the device's resources in this process, whatever the number of `aclrtSetDevice`. */
aclError aclrtResetDeviceForce(int32_t deviceId);
/** The device that is current on this thread. */
aclError aclrtGetDevice(int32_t *deviceId);
/** How many devices this process may use, after `ASCEND_RT_VISIBLE_DEVICES`. */
aclError aclrtGetDeviceCount(uint32_t *count);
/** Whether this process runs on a host or on the device itself. */
aclError aclrtGetRunMode(aclrtRunMode *runMode);
/** Waits for every stream of the current device. */
aclError aclrtSynchronizeDevice(void);
/** Waits for every stream of the current device, `timeout` milliseconds at most; -1 is for ever. */
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout);

/** Makes a context on a device, and makes it current on this thread. */
aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId);
/** Destroys a context that `aclrtCreateContext` made. */
aclError aclrtDestroyContext(aclrtContext context);
/** Makes a context, and its device, current on this thread. */
aclError aclrtSetCurrentContext(aclrtContext context);
/** The context that is current on this thread. */
aclError aclrtGetCurrentContext(aclrtContext *context);

/** Returns the last error and clears it. */
aclError aclrtGetLastError(aclrtLastErrLevel level);
/** Returns the last error and keeps it. */
aclError aclrtPeekAtLastError(aclrtLastErrLevel level);

/** Seconds after which a stream's wait for an event fails. */
aclError aclrtSetOpWaitTimeout(uint32_t timeout);
/** Seconds after which a running operator is given up. */
aclError aclrtSetOpExecuteTimeOut(uint32_t timeout);

#endif
