// Contexts. Methods that later releases appended to the class are called only where a function of the same release
// shows that the library has them: a virtual method that is missing cannot be asked for.
#include "internal.hpp"

using namespace spec_atb;

namespace {

using CreateWithAllocator = atb::Status (*)(atb::Context **, const std::function<void *(size_t)> &,
                                            const std::function<void(void *)> &);
using CreateWithBlocks = atb::Status (*)(atb::Context **, uint32_t, uint32_t);

atb::Context *unwrap(spec_atb_context *context)
{
    return reinterpret_cast<atb::Context *>(context);
}

/// ATB 8.1 brought several streams and the type of execution.
bool is_8_1()
{
    return is_there(&atb::SetExecuteStreamId);
}

/// ATB 8.2 brought the launch mode.
bool is_8_2()
{
    return is_there(static_cast<CreateWithAllocator>(&atb::CreateContext));
}

atb::Status create(const spec_atb_context_param &param, atb::Context **context)
{
    if (param.allocate != nullptr) {
        auto allocate = [function = param.allocate, data = param.user_data](size_t size) {
            return function(data, size);
        };
        auto deallocate = [function = param.deallocate, data = param.user_data](void *pointer) {
            function(data, pointer);
        };
        return static_cast<CreateWithAllocator>(&atb::CreateContext)(context, allocate, deallocate);
    }
    if (param.host_tiling_blocks != 0) {
        return static_cast<CreateWithBlocks>(&atb::CreateContext)(context, param.host_tiling_blocks,
                                                                  param.device_tiling_blocks);
    }
    return atb::CreateContext(context);
}

} // namespace

extern "C" spec_atb_status spec_atb_create_context(const spec_atb_context_param *param, spec_atb_context **context)
{
    const char *what = "atb::CreateContext";
    return guarded(what, [&]() -> spec_atb_status {
        if (param == nullptr || context == nullptr) {
            return null(what);
        }
        const bool allocator = param->allocate != nullptr;
        const bool blocks = param->host_tiling_blocks != 0;
        if (allocator != (param->deallocate != nullptr) || blocks != (param->device_tiling_blocks != 0) ||
            (allocator && blocks)) {
            return fail(atb::ERROR_INVALID_PARAM, what,
                        "both functions or none, both block counts or none, and not functions with counts");
        }
        if (allocator && !is_8_2()) {
            return unsupported(what, "an allocator needs ATB 8.2");
        }
        if (blocks && !is_there(static_cast<CreateWithBlocks>(&atb::CreateContext))) {
            return unsupported(what, "block counts need ATB 8.5");
        }
        atb::Context *made = nullptr;
        const atb::Status status = create(*param, &made);
        if (status == 0) {
            *context = reinterpret_cast<spec_atb_context *>(made);
        }
        return from_atb(status, what);
    });
}

extern "C" spec_atb_status spec_atb_destroy_context(spec_atb_context *context)
{
    const char *what = "atb::DestroyContext";
    return guarded(what, [&]() {
        return context == nullptr ? null(what) : from_atb(atb::DestroyContext(unwrap(context)), what);
    });
}

extern "C" spec_atb_status spec_atb_set_execute_stream(spec_atb_context *context, void *stream)
{
    const char *what = "atb::Context::SetExecuteStream";
    return guarded(what, [&]() {
        return context == nullptr ? null(what) : from_atb(unwrap(context)->SetExecuteStream(stream), what);
    });
}

extern "C" spec_atb_status spec_atb_set_execute_streams(spec_atb_context *context, void *const *streams,
                                                        uint64_t count)
{
    const char *what = "atb::Context::SetExecuteStreams";
    return guarded(what, [&]() {
        if (context == nullptr || (streams == nullptr && count != 0)) {
            return null(what);
        }
        if (!is_8_1()) {
            return unsupported(what, "several streams need ATB 8.1");
        }
        return from_atb(unwrap(context)->SetExecuteStreams(std::vector<aclrtStream>(streams, streams + count)), what);
    });
}

extern "C" spec_atb_status spec_atb_set_async_tiling_copy(spec_atb_context *context, uint32_t enable)
{
    const char *what = "atb::Context::SetAsyncTilingCopyStatus";
    return guarded(what, [&]() {
        return context == nullptr
                   ? null(what)
                   : from_atb(unwrap(context)->SetAsyncTilingCopyStatus(flag(enable, "enable")), what);
    });
}

extern "C" spec_atb_status spec_atb_set_execute_type(spec_atb_context *context, spec_atb_execute_type type)
{
    const char *what = "atb::Context::SetExecuteType";
    return guarded(what, [&]() {
        if (context == nullptr) {
            return null(what);
        }
        if (!is_8_1()) {
            return unsupported(what, "the type of execution needs ATB 8.1");
        }
        return from_atb(unwrap(context)->SetExecuteType(static_cast<atb::ExecuteType>(type)), what);
    });
}

extern "C" spec_atb_status spec_atb_set_launch_mode(spec_atb_context *context, spec_atb_launch_mode mode)
{
    const char *what = "atb::Context::SetLaunchMode";
    return guarded(what, [&]() {
        if (context == nullptr) {
            return null(what);
        }
        if (!is_8_2()) {
            return unsupported(what, "the launch mode needs ATB 8.2");
        }
        return from_atb(unwrap(context)->SetLaunchMode(static_cast<atb::LaunchMode>(mode)), what);
    });
}
