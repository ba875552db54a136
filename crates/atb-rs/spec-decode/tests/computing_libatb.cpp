// A libatb that computes, on the host and at once, what Verify is composed of: f32, and bf16 for casts. It refuses what
// ATB would refuse: other contexts and sizes than at setup, too little workspace, missing addresses.
#include <atb/atb_infer.h>
#include <atb/operation_infra.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace atb {
namespace {

class OneContext final : public Context {
public:
    Status SetExecuteStream(aclrtStream stream) override { stream_ = stream; return 0; }
    aclrtStream GetExecuteStream() const override { return stream_; }
    Status SetAsyncTilingCopyStatus(bool) override { return 0; }
    bool GetAsyncTilingCopyStatus() const override { return false; }
    Status SetExecuteStreams(const std::vector<aclrtStream> &) override { return 0; }
    std::vector<aclrtStream> GetExecuteStreams() override { return {stream_}; }
    Status SetExecuteType(ExecuteType) override { return 0; }
    ExecuteType GetExecuteType() override { return EXECUTE_NORMAL; }
    Status SetLaunchMode(LaunchMode) override { return 0; }
    LaunchMode GetLaunchMode() override { return KERNEL_LAUNCH_MODE; }

private:
    aclrtStream stream_ = nullptr;
};

uint64_t elements(const TensorDesc &desc)
{
    uint64_t count = 1;
    for (uint64_t at = 0; at < desc.shape.dimNum; ++at) {
        count *= static_cast<uint64_t>(desc.shape.dims[at]);
    }
    return count;
}

template <typename Element> Element *data(const Tensor &tensor)
{
    return static_cast<Element *>(tensor.deviceData);
}

/// Checks as ATB does, and leaves the computing to others.
class Computing : public Operation {
public:
    explicit Computing(uint32_t inputs, uint32_t outputs = 1) : inputs_(inputs), outputs_(outputs) {}
    std::string GetName() const override { return "Computing"; }
    uint32_t GetInputNum() const override { return inputs_; }
    uint32_t GetOutputNum() const override { return outputs_; }
    Status InferShape(const SVector<TensorDesc> &, SVector<TensorDesc> &) const override { return 0; }
    Status Setup(const VariantPack &pack, uint64_t &workspace_size, Context *context) override
    {
        if (context == nullptr || pack.inTensors.size() != inputs_ || pack.outTensors.size() != outputs_) {
            return ERROR_INVALID_PARAM;
        }
        context_ = context;
        seen_ = pack;
        workspace_size = SCRATCH;
        return 0;
    }
    Status Execute(const VariantPack &pack, uint8_t *workspace, uint64_t size, Context *context) override
    {
        if (context != context_ || workspace == nullptr || size < SCRATCH) {
            return ERROR_INVALID_PARAM;
        }
        for (uint32_t at = 0; at < inputs_ + outputs_; ++at) {
            const Tensor &now = at < inputs_ ? pack.inTensors.at(at) : pack.outTensors.at(at - inputs_);
            const Tensor &then = at < inputs_ ? seen_.inTensors.at(at) : seen_.outTensors.at(at - inputs_);
            if (now.deviceData == nullptr || now.dataSize != Utils::GetTensorSize(then.desc)) {
                return ERROR_INVALID_PARAM;
            }
        }
        std::memset(workspace, 0xFF, SCRATCH);
        compute(pack);
        return 0;
    }
    virtual void compute(const VariantPack &pack) = 0;

private:
    static constexpr uint64_t SCRATCH = 512;
    uint32_t inputs_;
    uint32_t outputs_;
    Context *context_ = nullptr;
    VariantPack seen_;
};

class Softmax final : public Computing {
public:
    Softmax() : Computing(1) {}
    void compute(const VariantPack &pack) override
    {
        const TensorDesc &desc = pack.inTensors.at(0).desc;
        const float *x = data<float>(pack.inTensors.at(0));
        float *y = data<float>(pack.outTensors.at(0));
        const int64_t width = desc.shape.dims[1];
        for (int64_t row = 0; row < desc.shape.dims[0]; ++row, x += width, y += width) {
            const float greatest = *std::max_element(x, x + width);
            double total = 0.0;
            for (int64_t at = 0; at < width; ++at) {
                total += std::exp(static_cast<double>(x[at]) - greatest);
            }
            for (int64_t at = 0; at < width; ++at) {
                y[at] = static_cast<float>(std::exp(static_cast<double>(x[at]) - greatest) / total);
            }
        }
    }
};

class Sort final : public Computing {
public:
    explicit Sort(int32_t count) : Computing(1, 2), count_(count) {}
    void compute(const VariantPack &pack) override
    {
        const TensorDesc &desc = pack.inTensors.at(0).desc;
        const int64_t width = desc.shape.dims[1];
        for (int64_t row = 0; row < desc.shape.dims[0]; ++row) {
            const float *x = data<float>(pack.inTensors.at(0)) + row * width;
            std::vector<int32_t> order(static_cast<size_t>(width));
            for (int64_t at = 0; at < width; ++at) {
                order[static_cast<size_t>(at)] = static_cast<int32_t>(at);
            }
            std::stable_sort(order.begin(), order.end(), [x](int32_t a, int32_t b) { return x[a] > x[b]; });
            for (int32_t at = 0; at < count_; ++at) {
                data<float>(pack.outTensors.at(0))[row * count_ + at] = x[order[static_cast<size_t>(at)]];
                data<int32_t>(pack.outTensors.at(1))[row * count_ + at] = order[static_cast<size_t>(at)];
            }
        }
    }

private:
    int32_t count_;
};

class Gather final : public Computing {
public:
    Gather() : Computing(2) {}
    void compute(const VariantPack &pack) override
    {
        const TensorDesc &indices = pack.inTensors.at(1).desc;
        const int64_t width = pack.inTensors.at(0).desc.shape.dims[1], count = indices.shape.dims[1];
        for (int64_t at = 0; at < indices.shape.dims[0] * count; ++at) {
            const int64_t from = at / count * width + data<int32_t>(pack.inTensors.at(1))[at];
            data<float>(pack.outTensors.at(0))[at] = data<float>(pack.inTensors.at(0))[from];
        }
    }
};

class Elewise final : public Computing {
public:
    explicit Elewise(const infer::ElewiseParam &param)
        : Computing(param.elewiseType == infer::ElewiseParam::ELEWISE_LESS ? 2 : 1), param_(param)
    {
    }
    void compute(const VariantPack &pack) override
    {
        for (uint64_t at = 0; at < elements(pack.outTensors.at(0).desc); ++at) {
            if (param_.elewiseType == infer::ElewiseParam::ELEWISE_CAST) {
                const uint32_t bits = static_cast<uint32_t>(data<uint16_t>(pack.inTensors.at(0))[at]) << 16;
                std::memcpy(data<float>(pack.outTensors.at(0)) + at, &bits, sizeof bits);
            } else if (param_.elewiseType == infer::ElewiseParam::ELEWISE_MULS) {
                data<float>(pack.outTensors.at(0))[at] =
                    data<float>(pack.inTensors.at(0))[at] * param_.mulsParam.varAttr;
            } else {
                data<int8_t>(pack.outTensors.at(0))[at] =
                    data<float>(pack.inTensors.at(0))[at] < data<float>(pack.inTensors.at(1))[at];
            }
        }
    }

private:
    infer::ElewiseParam param_;
};

} // namespace

class OperationImpl {
public:
    uint32_t stream_id = 0;
};
OperationInfra::OperationInfra() : impl_(std::make_unique<OperationImpl>()) {}
OperationInfra::~OperationInfra() = default;
void OperationInfra::SetExecuteStreamId(uint32_t streamId) { impl_->stream_id = streamId; }
uint32_t OperationInfra::GetExecuteStreamId() const { return impl_->stream_id; }
aclrtStream OperationInfra::GetExecuteStream(Context *context) { return context->GetExecuteStream(); }

Status CreateContext(Context **context) { *context = new OneContext; return 0; }
Status DestroyContext(Context *context) { delete context; return 0; }
Status DestroyOperation(Operation *operation) { delete operation; return 0; }

template <> Status CreateOperation(const infer::SoftmaxParam &param, Operation **operation)
{
    if (param.axes.size() != 1 || param.axes.at(0) != -1) {
        return ERROR_INVALID_PARAM;
    }
    *operation = new Softmax;
    return 0;
}

template <> Status CreateOperation(const infer::SortParam &param, Operation **operation)
{
    *operation = new Sort(param.num.at(0));
    return 0;
}

template <> Status CreateOperation(const infer::GatherParam &param, Operation **operation)
{
    if (param.axis != 1 || param.batchDims != 1) {
        return ERROR_INVALID_PARAM;
    }
    *operation = new Gather;
    return 0;
}

template <> Status CreateOperation(const infer::ElewiseParam &param, Operation **operation)
{
    *operation = new Elewise(param);
    return 0;
}

std::string Utils::GetAtbVersion() { return "computing"; }
uint64_t Utils::GetTensorSize(const TensorDesc &desc)
{
    const uint64_t size = desc.dtype == ACL_INT8 ? 1 : desc.dtype == ACL_BF16 ? 2 : 4;
    return size * elements(desc);
}
void Utils::QuantParamConvert(const float *, uint64_t *, uint64_t) {}

} // namespace atb
