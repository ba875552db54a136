// A context that a program declares and uses. ATB's own is made by atb::CreateContext; see compat/README.md for programs over that.
#ifndef SPEC_DECODE_ATB_CONTEXT_H
#define SPEC_DECODE_ATB_CONTEXT_H

#include <mutex>

#include "spec_decode/acl.h"
#include "spec_decode/status.h"

namespace atb {

/// Starts AscendCL and makes device 0 current on this thread, each only when nobody has; takes back what it did when it goes.
///
/// Declare it in a function, before everything that uses a device, so that it goes last; as a global it would go when AscendCL's
/// libraries are being torn down.
class Context {
public:
    Context()
    {
        Process &process = Shared();
        const std::lock_guard<std::mutex> lock(process.mutex);
        if (process.contexts++ == 0) {
            const aclError started = aclInit(nullptr);
            process.is_started = started == 0;
            if (started != 0 && started != kStartedBefore) {
                status_ = spec_decode::check(kWhere, started, "aclInit");
            }
        }
        int32_t device = 0;
        if (aclrtGetDevice(&device) != 0) {
            const Status set = spec_decode::check(kWhere, aclrtSetDevice(0), "aclrtSetDevice");
            has_device_ = set == spec_decode::kOk;
            status_ = status_ != spec_decode::kOk ? status_ : set;
        }
    }

    /// Touches no stream: the program's may be gone.
    ~Context()
    {
        Process &process = Shared();
        const std::lock_guard<std::mutex> lock(process.mutex);
        if (has_device_) {
            spec_decode::check(kWhere, aclrtResetDevice(0), "aclrtResetDevice");
        }
        if (--process.contexts == 0 && process.is_started) {
            process.is_started = false;
            spec_decode::check(kWhere, aclFinalize(), "aclFinalize");
        }
    }

    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;

    /// The stream that operations wait for before they read their input.
    Status SetExecuteStream(aclrtStream stream)
    {
        stream_ = stream;
        return status_;
    }

    aclrtStream GetExecuteStream() const { return stream_; }

    /// How starting went.
    Status GetStatus() const { return status_; }

private:
    static constexpr const char *kWhere = "atb::Context";
    /// ACL_ERROR_REPEAT_INITIALIZE: somebody started it, and will end it.
    static constexpr aclError kStartedBefore = 100002;

    struct Process {
        std::mutex mutex;
        int contexts = 0;
        bool is_started = false;
    };

    static Process &Shared()
    {
        static Process process;
        return process;
    }

    aclrtStream stream_ = nullptr;
    Status status_ = spec_decode::kOk;
    bool has_device_ = false;
};

} // namespace atb

#endif
