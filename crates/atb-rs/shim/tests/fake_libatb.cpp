// A libatb of a few operations that do nothing, made against ATB's own headers, to call the shim over. What it lacks,
// such as Gather, an older release could lack too.
#include <atb/atb_infer.h>

#include <cstring>
#include <stdexcept>

namespace atb {
namespace {

class FakeContext final : public Context {
public:
    Status SetExecuteStream(aclrtStream stream) override { stream_ = stream; return 0; }
    aclrtStream GetExecuteStream() const override { return stream_; }
    Status SetAsyncTilingCopyStatus(bool enable) override { async_ = enable; return 0; }
    bool GetAsyncTilingCopyStatus() const override { return async_; }
    Status SetExecuteStreams(const std::vector<aclrtStream> &) override { return 0; }
    std::vector<aclrtStream> GetExecuteStreams() override { return {stream_}; }
    Status SetExecuteType(ExecuteType) override { return 0; }
    ExecuteType GetExecuteType() override { return EXECUTE_NORMAL; }
    Status SetLaunchMode(LaunchMode) override { return 0; }
    LaunchMode GetLaunchMode() override { return KERNEL_LAUNCH_MODE; }

private:
    aclrtStream stream_ = nullptr;
    bool async_ = false;
};

/// Its outputs are like its first input. Setup says how many inputs there were, and how many bytes the last one has.
class FakeOperation : public Operation {
public:
    FakeOperation(std::string name, uint32_t inputs, uint32_t outputs) : name_(name), inputs_(inputs), outputs_(outputs)
    {
    }
    std::string GetName() const override { return name_; }
    uint32_t GetInputNum() const override { return inputs_; }
    uint32_t GetOutputNum() const override { return outputs_; }
    Status InferShape(const SVector<TensorDesc> &in_descs, SVector<TensorDesc> &out_descs) const override
    {
        if (in_descs.size() == 0) {
            throw std::runtime_error("there are no inputs");
        }
        for (uint32_t at = 0; at < outputs_; ++at) {
            out_descs.at(at) = in_descs.at(0);
        }
        return 0;
    }
    Status Setup(const VariantPack &pack, uint64_t &workspace_size, Context *) override
    {
        const size_t count = pack.inTensors.size();
        workspace_size = count * 1000 + (count == 0 ? 0 : pack.inTensors.at(count - 1).dataSize);
        return 0;
    }
    Status Execute(const VariantPack &, uint8_t *, uint64_t, Context *) override { return ERROR_RT_FAIL; }

private:
    std::string name_;
    uint32_t inputs_;
    uint32_t outputs_;
};

class FakeGraph final : public FakeOperation {
public:
    explicit FakeGraph(const GraphParam &param)
        : FakeOperation(param.name, param.inTensorNum, param.outTensorNum), param_(param)
    {
    }
    ~FakeGraph() override
    {
        for (Node &node : param_.nodes) {
            delete node.operation;
        }
    }
    Status InferShape(const SVector<TensorDesc> &in_descs, SVector<TensorDesc> &out_descs) const override
    {
        return param_.inferShapeFunc ? param_.inferShapeFunc(in_descs, out_descs)
                                     : param_.nodes.at(0).operation->InferShape(in_descs, out_descs);
    }
    Status Setup(const VariantPack &pack, uint64_t &workspace_size, Context *context) override
    {
        for (Node &node : param_.nodes) {
            for (size_t at = 0; at < node.inTensorReshapeFuncs.size(); ++at) {
                if (node.inTensorReshapeFuncs.at(at)) {
                    Dims seen{};
                    node.inTensorReshapeFuncs.at(at)(pack.inTensors.at(0).desc.shape, seen);
                    workspace_size += static_cast<uint64_t>(seen.dims[0]);
                }
            }
            uint64_t size = 0;
            const Status status = node.operation->Setup(pack, size, context);
            if (status != 0) {
                return status;
            }
        }
        return 0;
    }
    Status Execute(const VariantPack &pack, uint8_t *workspace, uint64_t size, Context *context) override
    {
        return param_.nodes.at(0).operation->Execute(pack, workspace, size, context);
    }

private:
    GraphParam param_;
};

} // namespace

Status CreateContext(Context **context) { *context = new FakeContext; return 0; }
Status DestroyContext(Context *context) { delete context; return 0; }
Status DestroyOperation(Operation *operation) { delete operation; return 0; }

template <> Status CreateOperation(const infer::LinearParam &param, Operation **operation)
{
    for (uint8_t byte : param.rsv) {
        if (byte != 0) {
            return ERROR_INVALID_PARAM;
        }
    }
    *operation = new FakeOperation(param.quantMode == infer::LinearParam::PER_TOKEN ? "PerToken" : "Linear",
                                   param.hasBias ? 3 : 2, 1);
    return 0;
}

template <> Status CreateOperation(const infer::SortParam &param, Operation **operation)
{
    *operation = new FakeOperation("Sort" + std::to_string(param.num.at(0)), 100, 1);
    return 0;
}

template <> Status CreateOperation(const GraphParam &param, Operation **operation)
{
    if (param.name == "refused") {
        return ERROR_INVALID_GRAPH;
    }
    *operation = new FakeGraph(param);
    return 0;
}

std::string Utils::GetAtbVersion() { return "of the test"; }
uint64_t Utils::GetTensorSize(const TensorDesc &desc)
{
    uint64_t size = 2;
    for (uint64_t at = 0; at < desc.shape.dimNum; ++at) {
        size *= static_cast<uint64_t>(desc.shape.dims[at]);
    }
    return size;
}
void Utils::QuantParamConvert(const float *source, uint64_t *destination, uint64_t count)
{
    for (uint64_t at = 0; at < count; ++at) {
        destination[at] = 0;
        std::memcpy(destination + at, source + at, sizeof(float));
    }
}

} // namespace atb
