// What the parts of the shim share: the two libraries' headers, failures, conversions of tensors.
#ifndef SPEC_ATB_INTERNAL_HPP
#define SPEC_ATB_INTERNAL_HPP

#include <atb/atb_infer.h>
#include <atb/common_op_params.h>

#include <cstdint>
#include <exception>
#include <string>

#include "spec_atb_operations.h"

// Declared once more as weak: a libatb that lacks one gives a null address, and not a dead process at the first call.
// Member functions cannot be declared again; those used (GetTensorSize, QuantParamConvert) are in ATB since 8.0.
namespace atb {
Status CreateContext(Context **context) __attribute__((weak));
Status CreateContext(Context **context, const std::function<void *(size_t)> &allocate,
                     const std::function<void(void *)> &deallocate) __attribute__((weak));
Status CreateContext(Context **context, uint32_t host_blocks, uint32_t device_blocks) __attribute__((weak));
Status DestroyContext(Context *context) __attribute__((weak));
Status DestroyOperation(Operation *operation) __attribute__((weak));
Status SetExecuteStreamId(Operation *operation, uint32_t stream_id) __attribute__((weak));
template <typename Param> __attribute__((weak)) Status CreateOperation(const Param &param, Operation **operation);
template <typename Param> __attribute__((weak)) Status UpdateOperationParam(Operation *operation, const Param &param);
} // namespace atb

/// An operation, and what has to live as long as it.
struct spec_atb_operation {
    atb::Operation *operation = nullptr;
    /// Of a graph: the wrappers of its nodes, whose operations ATB destroys together with the graph.
    std::vector<spec_atb_operation *> nodes;
    spec_atb_release_function release = nullptr;
    void *user_data = nullptr;
};

namespace spec_atb {

/// Notes the text of a failure for this thread, and returns its status.
spec_atb_status fail(spec_atb_status status, const char *what, const char *why) noexcept;
/// The same for what ATB returned; nothing is noted for 0.
spec_atb_status from_atb(atb::Status status, const char *what) noexcept;
/// 0 when a libatb of this shim's C++ ABI is there. Found out once.
spec_atb_status usable(const char *what) noexcept;

/// Whether libatb has a function that is declared weak above. The address goes through memory: GCC takes it for granted
/// that a function template's instance has one, weak or not, and drops a plain comparison.
template <typename Function> bool is_there(Function *function) noexcept
{
    Function *volatile address = function;
    return address != nullptr;
}

inline spec_atb_status null(const char *what) noexcept
{
    return fail(SPEC_ATB_ERROR_NULL, what, "a pointer that may not be null is");
}

inline spec_atb_status unsupported(const char *what, const char *since) noexcept
{
    return fail(SPEC_ATB_ERROR_UNSUPPORTED, what, since);
}

/// Runs `body` behind a check of the library, and keeps its exceptions inside.
template <typename Body> spec_atb_status guarded(const char *what, Body body) noexcept
{
    const spec_atb_status found = usable(what);
    if (found != 0) {
        return found;
    }
    try {
        return body();
    } catch (const std::exception &exception) {
        return fail(SPEC_ATB_ERROR_EXCEPTION, what, exception.what());
    } catch (...) {
        return fail(SPEC_ATB_ERROR_EXCEPTION, what, "an exception that is no std::exception");
    }
}

atb::TensorDesc to_atb(const spec_atb_tensor_desc &desc);
spec_atb_tensor_desc from_atb(const atb::TensorDesc &desc);
spec_atb_dims from_atb(const atb::Dims &dims);
atb::Dims to_atb(const spec_atb_dims &dims);

/// Fills a vector of ATB's. Its push_back and its initialiser lists lose or overrun more than 64 elements in some
/// releases; reserve, resize and at do not.
template <typename To, typename From, typename Convert>
void fill(atb::SVector<To> &destination, const From *source, uint64_t count, Convert convert)
{
    destination.reserve(count);
    destination.resize(count);
    for (uint64_t at = 0; at < count; ++at) {
        destination.at(at) = convert(source[at]);
    }
}

/// Inputs and outputs as ATB takes them. Throws when there are more than ATB can hold.
void to_atb(const spec_atb_pack &pack, atb::VariantPack &destination);

/// A truth value of the C interface. ATB's are 8 bits wide, so that 256 would pass as false: only 0 and 1 are let in.
bool flag(uint32_t value, const char *name);
/// An enumeration that ATB keeps in 8 bits, checked before it is cut.
uint8_t narrow(uint32_t value, const char *name);
/// Fields that have to be 0 until a later version gives them a meaning.
void reserved(uint32_t value);

} // namespace spec_atb

#endif
