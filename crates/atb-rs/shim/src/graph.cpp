// Graphs, and operations that are the caller's own code.
#include <memory>
#include <stdexcept>

#include "internal.hpp"

using namespace spec_atb;

namespace {

/// ATB keeps functions of more than this many inputs in memory that no constructor has seen.
constexpr uint64_t MAX_VIEWS = 64;

atb::Status infer(spec_atb_infer_shape_function function, void *user_data,
                  const atb::SVector<atb::TensorDesc> &in_descs, atb::SVector<atb::TensorDesc> &out_descs,
                  uint32_t output_count)
{
    std::vector<spec_atb_tensor_desc> inputs;
    inputs.reserve(in_descs.size());
    for (size_t at = 0; at < in_descs.size(); ++at) {
        inputs.push_back(from_atb(in_descs.at(at)));
    }
    std::vector<spec_atb_tensor_desc> outputs(output_count);
    const spec_atb_status status = function(user_data, inputs.data(), inputs.size(), outputs.data(), outputs.size());
    if (status == 0) {
        if (out_descs.size() != output_count) {
            out_descs.reserve(output_count);
            out_descs.resize(output_count);
        }
        for (uint32_t at = 0; at < output_count; ++at) {
            out_descs.at(at) = to_atb(outputs[at]);
        }
    }
    return status;
}

atb::ReshapeFunc reshape(const spec_atb_view &view)
{
    if (view.reshape == nullptr) {
        return nullptr;
    }
    return [view](const atb::Dims &old_shape, atb::Dims &new_shape) {
        const spec_atb_dims from = from_atb(old_shape);
        spec_atb_dims to = from;
        view.reshape(view.user_data, &from, &to);
        new_shape = to_atb(to);
    };
}

atb::Node convert(const spec_atb_node &node)
{
    auto same = [](uint32_t id) { return id; };
    atb::Node converted;
    converted.operation = node.operation->operation;
    fill(converted.inTensorIds, node.inputs, node.input_count, same);
    fill(converted.outTensorIds, node.outputs, node.output_count, same);
    if (node.views != nullptr) {
        if (node.input_count > MAX_VIEWS) {
            throw std::invalid_argument("a node with views has 64 inputs at most");
        }
        fill(converted.inTensorReshapeFuncs, node.views, node.input_count, reshape);
    }
    return converted;
}

bool holds_null(const spec_atb_graph_param &param)
{
    if (param.name == nullptr || (param.nodes == nullptr && param.node_count != 0)) {
        return true;
    }
    for (uint64_t at = 0; at < param.node_count; ++at) {
        const spec_atb_node &node = param.nodes[at];
        if (node.operation == nullptr || (node.inputs == nullptr && node.input_count != 0) ||
            (node.outputs == nullptr && node.output_count != 0)) {
            return true;
        }
    }
    return false;
}

/// The caller's code as an operation. A bare `atb::Operation`, which every release has: ATB wraps it in a graph, and it
/// goes to the context's stream, for it takes no stream id.
class Plugin final : public atb::Operation {
public:
    explicit Plugin(const spec_atb_plugin_param &param) : param_(param), name_(param.name)
    {
        param_.name = nullptr;
    }

    std::string GetName() const override
    {
        return name_;
    }

    atb::Status InferShape(const atb::SVector<atb::TensorDesc> &in_descs,
                           atb::SVector<atb::TensorDesc> &out_descs) const override
    {
        return infer(param_.infer_shape, param_.user_data, in_descs, out_descs, param_.output_count);
    }

    uint32_t GetInputNum() const override
    {
        return param_.input_count;
    }

    uint32_t GetOutputNum() const override
    {
        return param_.output_count;
    }

    atb::Status Setup(const atb::VariantPack &pack, uint64_t &workspace_size, atb::Context *) override
    {
        uint64_t size = 0;
        const Tensors tensors(pack);
        const spec_atb_status status = param_.setup(param_.user_data, &tensors.pack, &size);
        if (status == 0) {
            workspace_size = size;
        }
        return status;
    }

    atb::Status Execute(const atb::VariantPack &pack, uint8_t *workspace, uint64_t workspace_size,
                        atb::Context *context) override
    {
        const Tensors tensors(pack);
        return param_.execute(param_.user_data, &tensors.pack, workspace, workspace_size,
                              context->GetExecuteStream());
    }

private:
    /// ATB's tensors in the C interface's form.
    struct Tensors {
        explicit Tensors(const atb::VariantPack &source)
            : inputs(convert(source.inTensors)), outputs(convert(source.outTensors)),
              pack{inputs.data(), inputs.size(), outputs.data(), outputs.size()}
        {
        }

        static std::vector<spec_atb_tensor> convert(const atb::SVector<atb::Tensor> &source)
        {
            std::vector<spec_atb_tensor> converted;
            converted.reserve(source.size());
            for (size_t at = 0; at < source.size(); ++at) {
                const atb::Tensor &tensor = source.at(at);
                converted.push_back({from_atb(tensor.desc), tensor.deviceData, tensor.hostData, tensor.dataSize});
            }
            return converted;
        }

        std::vector<spec_atb_tensor> inputs;
        std::vector<spec_atb_tensor> outputs;
        spec_atb_pack pack;
    };

    spec_atb_plugin_param param_;
    std::string name_;
};

} // namespace

extern "C" spec_atb_status spec_atb_create_graph(const spec_atb_graph_param *param, spec_atb_operation **operation)
{
    const char *what = "atb::CreateOperation of a graph";
    return guarded(what, [&]() -> spec_atb_status {
        if (param == nullptr || operation == nullptr || holds_null(*param)) {
            return null(what);
        }
        reserved(param->reserved);
        atb::GraphParam converted;
        converted.name = param->name;
        converted.inTensorNum = param->input_count;
        converted.outTensorNum = param->output_count;
        converted.internalTensorNum = param->internal_count;
        auto wrapper = std::make_unique<spec_atb_operation>();
        converted.nodes.reserve(param->node_count);
        wrapper->nodes.reserve(param->node_count);
        for (uint64_t at = 0; at < param->node_count; ++at) {
            converted.nodes.push_back(convert(param->nodes[at]));
            wrapper->nodes.push_back(param->nodes[at].operation);
        }
        if (param->infer_shape != nullptr) {
            converted.inferShapeFunc = [function = param->infer_shape, data = param->user_data,
                                        count = param->output_count](const atb::SVector<atb::TensorDesc> &in_descs,
                                                                     atb::SVector<atb::TensorDesc> &out_descs) {
                return infer(function, data, in_descs, out_descs, count);
            };
        }
        const atb::Status status = atb::CreateOperation(converted, &wrapper->operation);
        if (status == 0) {
            wrapper->release = param->release;
            wrapper->user_data = param->user_data;
            *operation = wrapper.release();
        }
        return from_atb(status, what);
    });
}

extern "C" spec_atb_status spec_atb_create_plugin(const spec_atb_plugin_param *param, spec_atb_operation **operation)
{
    const char *what = "spec_atb_create_plugin";
    return guarded(what, [&]() -> spec_atb_status {
        if (param == nullptr || operation == nullptr || param->name == nullptr || param->infer_shape == nullptr ||
            param->setup == nullptr || param->execute == nullptr) {
            return null(what);
        }
        auto wrapper = std::make_unique<spec_atb_operation>();
        wrapper->operation = new Plugin(*param);
        wrapper->release = param->release;
        wrapper->user_data = param->user_data;
        *operation = wrapper.release();
        return 0;
    });
}
