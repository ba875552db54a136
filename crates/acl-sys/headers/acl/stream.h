/* AscendCL, part 3: streams, events, callbacks. See base.h for what these files are. */
#ifndef ACL_SYS_STREAM_H
#define ACL_SYS_STREAM_H

#include "base.h"

/** Flags of `aclrtCreateStreamWithConfig`, to be combined with `|`. */
enum {
    ACL_STREAM_FAST_LAUNCH = 0x1,
    ACL_STREAM_FAST_SYNC = 0x2,
    ACL_STREAM_PERSISTENT = 0x4,
    ACL_STREAM_HUGE = 0x8,
    ACL_STREAM_CPU_SCHEDULE = 0x10,
    ACL_STREAM_DEVICE_USE_ONLY = 0x20,
    /** Mode of `aclrtSetStreamFailureMode`: later tasks run after one failed. The default. */
    ACL_CONTINUE_ON_FAILURE = 0,
    /** Mode of `aclrtSetStreamFailureMode`: later tasks are skipped after one failed. */
    ACL_STOP_ON_FAILURE = 1,
    /** Event flag: a hardware flag that streams wait for, and that stays set until reset. */
    ACL_EVENT_SYNC = 0x1,
    /** Event flag: progress of a stream can be queried. */
    ACL_EVENT_CAPTURE_STREAM_PROGRESS = 0x2,
    /** Event flag: it has a time, for `aclrtEventElapsedTime`. */
    ACL_EVENT_TIME_LINE = 0x8,
    ACL_EVENT_DEVICE_USE_ONLY = 0x10,
    ACL_EVENT_EXTERNAL = 0x20,
    ACL_EVENT_IPC = 0x40
};

/** What `aclrtStreamQuery` found. */
typedef enum aclrtStreamStatus {
    ACL_STREAM_STATUS_COMPLETE = 0,
    ACL_STREAM_STATUS_NOT_READY = 1,
    ACL_STREAM_STATUS_RESERVED = 0xFFFF
} aclrtStreamStatus;

/** What `aclrtQueryEventStatus` found. Its numbers are the other way round than those of `aclrtEventStatus`. */
typedef enum aclrtEventRecordedStatus {
    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
    ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;

/** What the deprecated `aclrtQueryEvent` found. */
typedef enum aclrtEventStatus {
    ACL_EVENT_STATUS_COMPLETE = 0,
    ACL_EVENT_STATUS_NOT_READY = 1,
    ACL_EVENT_STATUS_RESERVED = 2
} aclrtEventStatus;

/** What `aclrtQueryEventWaitStatus` found. */
typedef enum aclrtEventWaitStatus {
    ACL_EVENT_WAIT_STATUS_COMPLETE = 0,
    ACL_EVENT_WAIT_STATUS_NOT_READY = 1,
    ACL_EVENT_WAIT_STATUS_RESERVED = 0xFFFF
} aclrtEventWaitStatus;

/** Whether a stream stands still until a callback returned. */
typedef enum aclrtCallbackBlockType {
    ACL_CALLBACK_NO_BLOCK = 0,
    ACL_CALLBACK_BLOCK = 1
} aclrtCallbackBlockType;

/** A callback of `aclrtLaunchCallback`. */
typedef void (*aclrtCallback)(void *userData);
/** A callback of `aclrtLaunchHostFunc`. */
typedef void (*aclrtHostFunc)(void *args);

/** Makes a stream in the current context. */
aclError aclrtCreateStream(aclrtStream *stream);
/** Makes a stream with a priority and `ACL_STREAM_*` flags. */
aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag);
/** Destroys a stream after its queued work. */
aclError aclrtDestroyStream(aclrtStream stream);
/** Destroys a stream without waiting. */
aclError aclrtDestroyStreamForce(aclrtStream stream);
/** Waits for a stream's queued work, and returns its failure if it had one. */
aclError aclrtSynchronizeStream(aclrtStream stream);
/** As `aclrtSynchronizeStream`, `timeout` milliseconds at most; -1 is for ever, 0 is refused. */
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);
/** Whether a stream's queued work is done, without waiting. */
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status);
/** Makes a stream's later work wait for an event. */
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
/** As `aclrtStreamWaitEvent`, with a time limit, after which the stream fails. */
aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout);
/** Drops a stream's queued work. */
aclError aclrtStreamAbort(aclrtStream stream);
/** The number by which logs and profiles name a stream. */
aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId);
/** What happens to a stream's later tasks after one failed: `ACL_CONTINUE_ON_FAILURE` or `ACL_STOP_ON_FAILURE`. */
aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode);

/** Makes an event. */
aclError aclrtCreateEvent(aclrtEvent *event);
/** Makes an event with `ACL_EVENT_*` flags. */
aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag);
/** Makes an event that can be recorded again without a reset. */
aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag);
/** Destroys an event, finished or not. */
aclError aclrtDestroyEvent(aclrtEvent event);
/** Records an event after the work queued so far on a stream. */
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
/** Clears an event by a task on a stream. Refused for events of `aclrtCreateEventExWithFlag`. */
aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
/** Whether what an event was recorded after is done. */
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status);
/** As `aclrtQueryEventStatus`, with other numbers. Deprecated by the vendor. */
aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status);
/** Whether every stream that waits for an event has passed it. */
aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status);
/** Waits on the host for an event. */
aclError aclrtSynchronizeEvent(aclrtEvent event);
/** As `aclrtSynchronizeEvent`, `timeout` milliseconds at most; -1 is for ever, 0 is refused. */
aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);
/** Milliseconds between two completed events that were made with `ACL_EVENT_TIME_LINE`. */
aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent);
/** When an event completed, in microseconds of the device's clock. */
aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp);

/** Names the thread that runs a stream's callbacks by `aclrtProcessReport`. */
aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);
/** Takes that back. */
aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);
/** Runs this thread's due callbacks, waiting `timeout` milliseconds at most for the first. */
aclError aclrtProcessReport(int32_t timeout);
/** Queues a callback; a thread has to have subscribed to the stream. */
aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType, aclrtStream stream);
/** Queues a callback that a thread of the runtime runs. The stream comes first here. */
aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args);

#endif
