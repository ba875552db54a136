// What the classes need of a tensor: it is ATB's own, or the one of atb/spec_decode.h, which has the same fields and deviceSize.
#ifndef SPEC_DECODE_TENSORS_H
#define SPEC_DECODE_TENSORS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#include "spec_decode/status.h"

namespace atb {
namespace spec_decode {

template <class Tensor, class = void>
struct HasDeviceSize : std::false_type {};
template <class Tensor>
struct HasDeviceSize<Tensor, std::void_t<decltype(std::declval<Tensor &>().deviceSize)>> : std::true_type {};

/// Takes device memory for a tensor. It is the caller's: aclrtFree(tensor.deviceData). What the tensor had is not freed.
template <class Tensor>
Status allocate(const char *where, aclDataType dtype, const std::vector<int64_t> &dims, Tensor &tensor)
{
    tensor = Tensor{};
    const size_t most = std::size(tensor.desc.shape.dims);
    if (dims.empty() || dims.size() > most) {
        return fail(where, kInvalidTensorDim, "a tensor has 1 to " + std::to_string(most) + " dimensions, and " +
                                                  std::to_string(dims.size()) + " are given");
    }
    uint64_t bytes = aclDataTypeSize(dtype);
    if (bytes == 0) {
        return fail(where, kInvalidTensorDtype,
                    "type " + std::to_string(static_cast<int>(dtype)) + " has no whole number of bytes");
    }
    for (int64_t dim : dims) {
        if (dim <= 0 || bytes > std::numeric_limits<uint64_t>::max() / static_cast<uint64_t>(dim)) {
            return fail(where, kInvalidTensorDim, "a dimension of " + std::to_string(dim));
        }
        bytes *= static_cast<uint64_t>(dim);
    }
    void *memory = nullptr;
    if (Status status = check(where, aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc")) {
        return status;
    }
    tensor.desc.dtype = dtype;
    tensor.desc.format = ACL_FORMAT_ND;
    tensor.desc.shape.dimNum = dims.size();
    std::copy(dims.begin(), dims.end(), tensor.desc.shape.dims);
    tensor.deviceData = memory;
    tensor.dataSize = bytes;
    if constexpr (HasDeviceSize<Tensor>::value) {
        tensor.deviceSize = bytes;
    }
    return kOk;
}

/// Copies a tensor's bytes to the host.
template <class Tensor, class Element>
Status read(const char *where, const Tensor &tensor, std::vector<Element> &elements)
{
    if (tensor.deviceData == nullptr || tensor.dataSize == 0 || tensor.dataSize % sizeof(Element) != 0) {
        return fail(where, kInvalidTensorAddress,
                    "the tensor has no device memory, or " + std::to_string(tensor.dataSize) + " bytes of it");
    }
    elements.resize(tensor.dataSize / sizeof(Element));
    return check(where,
                 aclrtMemcpy(elements.data(), tensor.dataSize, tensor.deviceData, tensor.dataSize,
                             ACL_MEMCPY_DEVICE_TO_HOST),
                 "aclrtMemcpy");
}

/// Token ids of a tensor of int32 [1, N].
template <class Tensor>
Status read_tokens(const char *where, const Tensor &tensor, std::vector<uint32_t> &tokens)
{
    const auto &shape = tensor.desc.shape;
    if (tensor.desc.dtype != ACL_INT32) {
        return fail(where, kInvalidTensorDtype, "token ids are int32");
    }
    if (shape.dimNum != 2 || shape.dims[0] != 1 || shape.dims[1] < 1) {
        return fail(where, kInvalidTensorDim, "token ids have the shape [1, N]");
    }
    if (tensor.dataSize != static_cast<uint64_t>(shape.dims[1]) * sizeof(int32_t)) {
        return fail(where, kInvalidTensorSize, std::to_string(tensor.dataSize) + " bytes for " +
                                                   std::to_string(shape.dims[1]) + " token ids of 4");
    }
    std::vector<int32_t> ids;
    if (Status status = read(where, tensor, ids)) {
        return status;
    }
    if (std::any_of(ids.begin(), ids.end(), [](int32_t id) { return id < 0; })) {
        return fail(where, kInvalidParam, "a token id is negative");
    }
    tokens.assign(ids.begin(), ids.end());
    return kOk;
}

} // namespace spec_decode
} // namespace atb

#endif
