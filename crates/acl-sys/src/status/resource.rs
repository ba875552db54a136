//! 2xxxxx: resources and support; 3xxxxx: state.

use super::status_codes;

const LEAK: &str = "look for handles that are never destroyed; the numbers per device are limited";
const STREAMS: &str = "capture fewer graphs or sizes of graphs (each takes streams of its own), and use fewer streams; \
                       else look for handles that are never destroyed";
const SUPPORT: &str = "the chip, the driver or this CANN does not have it: compare their versions";
const OVERFLOW: &str = "look for values beyond the range of f16, or for bad inputs";

status_codes! {
    200000 ACL_ERROR_BAD_ALLOC "memory of the host ran out", "free memory of the host";
    200001 ACL_ERROR_API_NOT_SUPPORT "the call is not supported here", SUPPORT;
    200002 ACL_ERROR_INVALID_DEVICE "the device is not valid", "compare with npu-smi info";
    200003 ACL_ERROR_MEMORY_ADDRESS_UNALIGNED "an address is not aligned", "take addresses from aclrtMalloc, and offsets that are multiples of 64";
    200004 ACL_ERROR_RESOURCE_NOT_MATCH "things that do not belong together were combined", "check which context each was made in";
    200005 ACL_ERROR_INVALID_RESOURCE_HANDLE "the handle is not valid, or was destroyed", "look for a use after destruction";
    200006 ACL_ERROR_FEATURE_UNSUPPORTED "the feature is not supported", SUPPORT;
    200007 ACL_ERROR_PROF_MODULES_UNSUPPORTED "one of the things to profile is not supported", "ask for fewer ACL_PROF_ bits";
    207000 ACL_ERROR_RT_FEATURE_NOT_SUPPORT "the feature is not supported: another chip, or an old driver or library", SUPPORT;
    207001 ACL_ERROR_RT_MEMORY_ALLOCATION "memory of the device ran out", "free some, shorten the context or the batch; npu-smi info names other processes; HUGE_ONLY needs huge pages";
    207002 ACL_ERROR_RT_MEMORY_FREE "memory of the device could not be freed", "look for a pointer that is freed twice, or that is not from aclrtMalloc";
    207003 ACL_ERROR_RT_AICORE_OVER_FLOW "a number overflowed on an AI core", OVERFLOW;
    207004 ACL_ERROR_RT_NO_DEVICE "the device is absent or ill", "look at npu-smi info, and whether the container has /dev/davinci*";
    207005 ACL_ERROR_RT_RESOURCE_ALLOC_FAIL "a resource of the device ran out", STREAMS;
    207006 ACL_ERROR_RT_NO_PERMISSION "this user may not use the device", "join the driver's group (HwHiAiUser, see /etc/ascend_install.info), then log in anew";
    207007 ACL_ERROR_RT_NO_EVENT_RESOURCE "there are no more events", LEAK;
    207008 ACL_ERROR_RT_NO_STREAM_RESOURCE "there are no more streams", STREAMS;
    207009 ACL_ERROR_RT_NO_NOTIFY_RESOURCE "there are no more notifies", LEAK;
    207010 ACL_ERROR_RT_NO_MODEL_RESOURCE "there are no more models", LEAK;
    207011 ACL_ERROR_RT_NO_CDQ_RESOURCE "there are no more queues", LEAK;
    207012 ACL_ERROR_RT_OVER_LIMIT "a limit was exceeded", LEAK;
    207013 ACL_ERROR_RT_QUEUE_EMPTY "the queue is empty", "try again later";
    207014 ACL_ERROR_RT_QUEUE_FULL "the queue is full", "try again later";
    207015 ACL_ERROR_RT_REPEATED_INIT "it was started already", "start it once";
    207016 ACL_ERROR_RT_AIVEC_OVER_FLOW "a number overflowed on a vector core", OVERFLOW;
    207017 ACL_ERROR_RT_OVER_FLOW "a number overflowed", OVERFLOW;
    207018 ACL_ERROR_RT_DEVICE_OOM "the device's own system ran out of memory", "end other processes on the device";
    207019 ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP "the driver cannot update this operator", "install driver HDK 25.0.RC1 or newer";
    207020 ACL_ERROR_RT_TIMEOUT "the driver did not answer in time", "look at npu-smi info and the plog";
    300000 ACL_ERROR_STORAGE_OVER_LIMIT "the storage limit was exceeded", "free space, or raise the limit";
}
