// Verify: rows of logits to verdicts, as one operation that is composed of ATB's. It is a plugin operation, so that it can
// stand alone or in a graph, and so that a kernel of ours can take the composition's place behind the same interface.
#include <atb/operation_infra.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "internal.hpp"
#include "spec_decode.h"

using namespace spec_atb;

namespace {

/// What ATB rounds the parts of a workspace up to.
constexpr uint64_t UNIT = 512;

struct Destroy {
    void operator()(atb::Operation *operation) const
    {
        atb::DestroyOperation(operation);
    }
};
using Owned = std::unique_ptr<atb::Operation, Destroy>;

/// One of ATB's operations; throws when this libatb has none such, or refuses the parameter.
template <typename Param> Owned make(const Param &param)
{
    if (!is_there(&atb::CreateOperation<Param>)) {
        throw std::runtime_error("this libatb lacks an operation that Verify is composed of");
    }
    atb::Operation *operation = nullptr;
    const atb::Status status = atb::CreateOperation(param, &operation);
    if (status != atb::NO_ERROR) {
        throw std::runtime_error("ATB refuses a part of Verify with status " + std::to_string(status));
    }
    return Owned(operation);
}

Owned elewise(atb::infer::ElewiseParam::ElewiseType type, float factor = 0.0f, aclDataType output = ACL_DT_UNDEFINED)
{
    atb::infer::ElewiseParam param;
    param.elewiseType = type;
    param.mulsParam.varAttr = factor;
    param.outTensorType = output;
    return make(param);
}

Owned softmax()
{
    atb::infer::SoftmaxParam param;
    const int64_t last = -1;
    fill(param.axes, &last, 1, [](int64_t axis) { return axis; });
    return make(param);
}

/// The two largest of each row, and where they are.
Owned top_two()
{
    atb::infer::SortParam param;
    const int32_t count = 2;
    fill(param.num, &count, 1, [](int32_t number) { return number; });
    return make(param);
}

/// Elements of each row by the row's own indices.
Owned pick()
{
    atb::infer::GatherParam param;
    param.axis = 1;
    param.batchDims = 1;
    return make(param);
}

atb::TensorDesc describe(aclDataType dtype, std::initializer_list<int64_t> shape)
{
    atb::TensorDesc desc;
    desc.dtype = dtype;
    desc.format = ACL_FORMAT_ND;
    desc.shape = atb::Dims{};
    desc.shape.dimNum = shape.size();
    std::copy(shape.begin(), shape.end(), desc.shape.dims);
    return desc;
}

/// A tensor of the composition: one of the caller's, perhaps seen in another shape, or a piece of the workspace.
struct Part {
    enum class Place { Input, Output, Workspace };
    Place place;
    /// Which of the caller's, or the byte of the workspace.
    uint64_t at;
    atb::TensorDesc desc;
};

/// One of ATB's operations between its tensors.
struct Step {
    atb::Operation *operation;
    std::vector<Part> inputs;
    std::vector<Part> outputs;
    /// Bytes of workspace of its own, which the stream's order lets all steps share.
    uint64_t scratch = 0;
    /// Large, and what ATB has seen at setup: kept for execution, where addresses are added.
    std::unique_ptr<atb::VariantPack> pack = nullptr;
};

class Verify final : public atb::OperationInfra {
public:
    explicit Verify(const spec_atb_verify_param &param)
        : greedy_(param.rule == SPEC_ATB_VERIFY_GREEDY), factor_(param.inverse_temperature), softmax_(softmax()),
          pick_(pick())
    {
        using Elewise = atb::infer::ElewiseParam;
        if (greedy_) {
            top_two_ = top_two();
            return;
        }
        cast_ = elewise(Elewise::ELEWISE_CAST, 0.0f, ACL_FLOAT);
        scale_ = elewise(Elewise::ELEWISE_MULS, factor_);
        less_ = elewise(Elewise::ELEWISE_LESS);
    }

    std::string GetName() const override
    {
        return "VerifyOperation";
    }

    uint32_t GetInputNum() const override
    {
        return greedy_ ? 1 : 3;
    }

    uint32_t GetOutputNum() const override
    {
        return greedy_ ? 3 : 2;
    }

    atb::Status InferShape(const atb::SVector<atb::TensorDesc> &in_descs,
                           atb::SVector<atb::TensorDesc> &out_descs) const override
    {
        std::vector<atb::TensorDesc> inputs;
        for (size_t at = 0; at < in_descs.size(); ++at) {
            inputs.push_back(in_descs.at(at));
        }
        const atb::Status status = check(inputs);
        if (status == atb::NO_ERROR) {
            const std::vector<atb::TensorDesc> outputs = expected(inputs[0]);
            fill(out_descs, outputs.data(), outputs.size(), [](const atb::TensorDesc &desc) { return desc; });
        }
        return status;
    }

    atb::Status Setup(const atb::VariantPack &pack, uint64_t &workspace_size, atb::Context *context) override
    {
        steps_.clear();
        if (pack.outTensors.size() != GetOutputNum()) {
            return atb::ERROR_INVALID_IN_TENSOR_NUM;
        }
        std::vector<atb::TensorDesc> inputs;
        for (size_t at = 0; at < pack.inTensors.size(); ++at) {
            inputs.push_back(pack.inTensors.at(at).desc);
        }
        const atb::Status checked = check(inputs);
        if (checked != atb::NO_ERROR) {
            return checked;
        }
        const std::vector<atb::TensorDesc> outputs = expected(inputs[0]);
        for (size_t at = 0; at < outputs.size(); ++at) {
            const atb::TensorDesc &given = pack.outTensors.at(at).desc;
            if (given.dtype != outputs[at].dtype) {
                return atb::ERROR_INVALID_TENSOR_INI_MATCH;
            }
            if (!same_shape(given.shape, outputs[at].shape)) {
                return atb::ERROR_INVALID_TENSOR_DIM;
            }
        }
        if (context == nullptr) {
            return atb::ERROR_INVALID_PARAM;
        }
        const atb::Status status = set_up(inputs[0], context);
        if (status != atb::NO_ERROR) {
            steps_.clear();
            return status;
        }
        workspace_size = tensors_ + scratch_;
        return atb::NO_ERROR;
    }

    atb::Status Execute(const atb::VariantPack &pack, uint8_t *workspace, uint64_t workspace_size,
                        atb::Context *context) override
    {
        if (steps_.empty() || context == nullptr || pack.inTensors.size() != GetInputNum() ||
            pack.outTensors.size() != GetOutputNum() || workspace_size < tensors_ + scratch_ ||
            (workspace == nullptr && tensors_ + scratch_ > 0)) {
            return atb::ERROR_INVALID_PARAM;
        }
        for (Step &step : steps_) {
            for (size_t at = 0; at < step.inputs.size(); ++at) {
                place(step.inputs[at], pack, workspace, step.pack->inTensors.at(at));
            }
            for (size_t at = 0; at < step.outputs.size(); ++at) {
                place(step.outputs[at], pack, workspace, step.pack->outTensors.at(at));
            }
            uint8_t *scratch = step.scratch == 0 ? nullptr : workspace + tensors_;
            const atb::Status status = step.operation->Execute(*step.pack, scratch, step.scratch, context);
            if (status != atb::NO_ERROR) {
                return status;
            }
        }
        return atb::NO_ERROR;
    }

private:
    static bool same_shape(const atb::Dims &one, const atb::Dims &other)
    {
        return one.dimNum == other.dimNum && std::equal(one.dims, one.dims + one.dimNum, other.dims);
    }

    /// ATB's statuses in ATB's order: numbers of tensors, dimensions, types, then how shapes go together.
    atb::Status check(const std::vector<atb::TensorDesc> &inputs) const
    {
        if (inputs.size() != GetInputNum()) {
            return atb::ERROR_INVALID_IN_TENSOR_NUM;
        }
        for (const atb::TensorDesc &desc : inputs) {
            if (desc.shape.dimNum == 0 || desc.shape.dimNum > SPEC_ATB_MAX_DIMS) {
                return atb::ERROR_INVALID_TENSOR_DIM;
            }
            if (std::any_of(desc.shape.dims, desc.shape.dims + desc.shape.dimNum, [](int64_t dim) { return dim <= 0; })) {
                return atb::ERROR_INVALID_TENSOR_SIZE;
            }
        }
        const atb::TensorDesc &logits = inputs[0];
        const bool floats =
            logits.dtype == ACL_FLOAT16 || logits.dtype == ACL_BF16 || logits.dtype == ACL_FLOAT;
        if (!floats || (!greedy_ && (inputs[1].dtype != ACL_INT32 || inputs[2].dtype != ACL_FLOAT)) ||
            std::any_of(inputs.begin(), inputs.end(),
                        [](const atb::TensorDesc &desc) { return desc.format != ACL_FORMAT_ND; })) {
            return atb::ERROR_INVALID_TENSOR_INI_MATCH;
        }
        if (logits.shape.dimNum != 2 || logits.shape.dims[1] < 2) {
            return atb::ERROR_INVALID_TENSOR_DIM;
        }
        const atb::Dims row = describe(ACL_INT32, {logits.shape.dims[0]}).shape;
        if (!greedy_ && !(same_shape(inputs[1].shape, row) && same_shape(inputs[2].shape, row))) {
            return atb::ERROR_INVALID_TENSOR_DIM;
        }
        return atb::NO_ERROR;
    }

    std::vector<atb::TensorDesc> expected(const atb::TensorDesc &logits) const
    {
        const int64_t rows = logits.shape.dims[0];
        if (greedy_) {
            return {describe(ACL_INT32, {rows, 2}), describe(logits.dtype, {rows, 2}), describe(logits.dtype, {rows, 2})};
        }
        return {describe(ACL_INT8, {rows}), describe(ACL_FLOAT, {rows})};
    }

    /// A piece of the workspace for a tensor.
    Part reserve(const atb::TensorDesc &desc)
    {
        const Part part{Part::Place::Workspace, tensors_, desc};
        tensors_ += (atb::Utils::GetTensorSize(desc) + UNIT - 1) / UNIT * UNIT;
        return part;
    }

    static Part input(uint64_t at, const atb::TensorDesc &desc)
    {
        return {Part::Place::Input, at, desc};
    }

    static Part output(uint64_t at, const atb::TensorDesc &desc)
    {
        return {Part::Place::Output, at, desc};
    }

    void add(const Owned &operation, std::vector<Part> inputs, std::vector<Part> outputs)
    {
        Step step{operation.get(), std::move(inputs), std::move(outputs)};
        step.pack = std::make_unique<atb::VariantPack>();
        // Without addresses: those inside a workspace are not known yet, and setup looks at none.
        auto tensor = [](const Part &part) {
            atb::Tensor made;
            made.desc = part.desc;
            made.dataSize = atb::Utils::GetTensorSize(part.desc);
            return made;
        };
        fill(step.pack->inTensors, step.inputs.data(), step.inputs.size(), tensor);
        fill(step.pack->outTensors, step.outputs.data(), step.outputs.size(), tensor);
        steps_.push_back(std::move(step));
    }

    void compose_greedy(const atb::TensorDesc &logits)
    {
        const std::vector<atb::TensorDesc> outputs = expected(logits);
        const Part probabilities = reserve(logits);
        add(softmax_, {input(0, logits)}, {probabilities});
        add(top_two_, {input(0, logits)}, {output(1, outputs[1]), output(0, outputs[0])});
        add(pick_, {probabilities, output(0, outputs[0])}, {output(2, outputs[2])});
    }

    void compose_rejection(const atb::TensorDesc &logits)
    {
        const int64_t rows = logits.shape.dims[0];
        const atb::TensorDesc wide = describe(ACL_FLOAT, {rows, logits.shape.dims[1]});
        const std::vector<atb::TensorDesc> outputs = expected(logits);
        // Two tensors of the width of a row take turns.
        const Part turns[] = {reserve(wide), reserve(wide)};
        size_t next = 0;
        Part row = input(0, logits);
        auto through = [&](const Owned &operation) {
            const Part to = turns[next];
            next = 1 - next;
            add(operation, {row}, {to});
            row = to;
        };
        if (logits.dtype != ACL_FLOAT) {
            through(cast_);
        }
        if (factor_ != 1.0f) {
            through(scale_);
        }
        through(softmax_);
        add(pick_, {row, input(1, describe(ACL_INT32, {rows, 1}))}, {output(1, describe(ACL_FLOAT, {rows, 1}))});
        add(less_, {input(2, outputs[1]), output(1, outputs[1])}, {output(0, outputs[0])});
    }

    atb::Status set_up(const atb::TensorDesc &logits, atb::Context *context)
    {
        tensors_ = 0;
        scratch_ = 0;
        if (greedy_) {
            compose_greedy(logits);
        } else {
            compose_rejection(logits);
        }
        for (Step &step : steps_) {
            if (GetExecuteStreamId() != 0) {
                const atb::Status status = atb::SetExecuteStreamId(step.operation, GetExecuteStreamId());
                if (status != atb::NO_ERROR) {
                    return status;
                }
            }
            // An operation that occurs twice would lose its first plan; none does.
            const atb::Status status = step.operation->Setup(*step.pack, step.scratch, context);
            if (status != atb::NO_ERROR) {
                return status;
            }
            scratch_ = std::max(scratch_, step.scratch);
        }
        return atb::NO_ERROR;
    }

    /// Gives a tensor of a step its address. The caller's keep the size that the caller says, for ATB to check.
    static void place(const Part &part, const atb::VariantPack &pack, uint8_t *workspace, atb::Tensor &tensor)
    {
        if (part.place == Part::Place::Workspace) {
            tensor.deviceData = workspace + part.at;
            return;
        }
        const atb::Tensor &given =
            part.place == Part::Place::Input ? pack.inTensors.at(part.at) : pack.outTensors.at(part.at);
        tensor.deviceData = given.deviceData;
        tensor.dataSize = given.dataSize;
    }

    bool greedy_;
    float factor_;
    Owned softmax_;
    Owned pick_;
    Owned top_two_;
    Owned cast_;
    Owned scale_;
    Owned less_;
    std::vector<Step> steps_;
    /// Bytes of the composition's tensors in the workspace; the scratch of its steps follows.
    uint64_t tensors_ = 0;
    uint64_t scratch_ = 0;
};

} // namespace

extern "C" spec_atb_status spec_atb_create_verify(const spec_atb_verify_param *param, spec_atb_operation **operation)
{
    const char *what = "spec_atb_create_verify";
    return guarded(what, [&]() -> spec_atb_status {
        if (param == nullptr || operation == nullptr) {
            return null(what);
        }
        const float factor = param->inverse_temperature;
        if (param->rule != SPEC_ATB_VERIFY_GREEDY && param->rule != SPEC_ATB_VERIFY_REJECTION) {
            return fail(atb::ERROR_INVALID_PARAM, what, "there is no such rule");
        }
        if (!(factor > 0.0f && std::isfinite(factor)) || (param->rule == SPEC_ATB_VERIFY_GREEDY && factor != 1.0f)) {
            return fail(atb::ERROR_INVALID_PARAM, what,
                        "inverse_temperature is above 0 and finite, and 1 under the greedy rule");
        }
        auto wrapper = std::make_unique<spec_atb_operation>();
        wrapper->operation = new Verify(*param);
        *operation = wrapper.release();
        return 0;
    });
}
