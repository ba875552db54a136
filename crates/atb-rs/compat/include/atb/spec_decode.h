// Speculative decoding as classes, for a program over AscendCL: tensors on the device, models behind libspec.
//
// These classes are this project's; ATB has none of them. Tensor has the fields of ATB's, in their order, and deviceSize behind them.
// With ATB's own headers, include spec_decode/operation.h instead of this: compat/README.md.
#ifndef SPEC_DECODE_ATB_SPEC_DECODE_H
#define SPEC_DECODE_ATB_SPEC_DECODE_H

#include <cstdint>
#include <vector>

#include "atb/context.h"
#include "spec_decode/adaptive.h"
#include "spec_decode/cache.h"
#include "spec_decode/operation.h"
#include "spec_decode/tensors.h"

namespace atb {

/// Elements along each axis, the slowest first.
struct Dims {
    int64_t dims[8] = {};
    uint64_t dimNum = 0;
};

struct TensorDesc {
    aclDataType dtype = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_UNDEFINED;
    Dims shape;
};

/// A description with a pointer. It owns nothing: who makes a tensor frees its memory.
struct Tensor {
    TensorDesc desc;
    void *deviceData = nullptr;
    void *hostData = nullptr;
    /// Bytes of the data.
    uint64_t dataSize = 0;
    /// Bytes at deviceData: here as many.
    uint64_t deviceSize = 0;
};

/// Takes device memory for a tensor of this type and shape, to be freed by aclrtFree(tensor.deviceData).
inline Status CreateTensor(aclDataType dtype, const std::vector<int64_t> &dims, Tensor &tensor)
{
    return spec_decode::allocate("atb::CreateTensor", dtype, dims, tensor);
}

/// Values that were computed from tensors, kept on the device.
using CacheManager = spec_decode::Cache<Tensor>;

} // namespace atb

#endif
