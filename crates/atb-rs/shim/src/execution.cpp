// Tensors, and operations once they are made: shapes, setup, execution, the end.
#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "internal.hpp"

namespace spec_atb {

atb::Dims to_atb(const spec_atb_dims &dims)
{
    if (dims.dim_num > SPEC_ATB_MAX_DIMS) {
        throw std::invalid_argument("a tensor has 8 dimensions at most");
    }
    atb::Dims converted{};
    std::copy(dims.dims, dims.dims + SPEC_ATB_MAX_DIMS, converted.dims);
    converted.dimNum = dims.dim_num;
    return converted;
}

spec_atb_dims from_atb(const atb::Dims &dims)
{
    spec_atb_dims converted{};
    std::copy(dims.dims, dims.dims + SPEC_ATB_MAX_DIMS, converted.dims);
    converted.dim_num = dims.dimNum;
    return converted;
}

atb::TensorDesc to_atb(const spec_atb_tensor_desc &desc)
{
    atb::TensorDesc converted;
    converted.dtype = static_cast<aclDataType>(desc.dtype);
    converted.format = static_cast<aclFormat>(desc.format);
    converted.shape = to_atb(desc.shape);
    return converted;
}

spec_atb_tensor_desc from_atb(const atb::TensorDesc &desc)
{
    spec_atb_tensor_desc converted{};
    converted.dtype = desc.dtype;
    converted.format = desc.format;
    converted.shape = from_atb(desc.shape);
    return converted;
}

void to_atb(const spec_atb_pack &pack, atb::VariantPack &destination)
{
    auto convert = [](const spec_atb_tensor &tensor) {
        atb::Tensor converted;
        converted.desc = to_atb(tensor.desc);
        converted.deviceData = tensor.device_data;
        converted.hostData = tensor.host_data;
        converted.dataSize = tensor.data_size;
        return converted;
    };
    fill(destination.inTensors, pack.inputs, pack.input_count, convert);
    fill(destination.outTensors, pack.outputs, pack.output_count, convert);
}

namespace {

bool holds_null(const spec_atb_pack *pack)
{
    return pack == nullptr || (pack->inputs == nullptr && pack->input_count != 0) ||
           (pack->outputs == nullptr && pack->output_count != 0);
}

/// Frees wrappers after ATB has destroyed what they wrapped; the innermost releases run first.
void finish(spec_atb_operation *operation)
{
    for (spec_atb_operation *node : operation->nodes) {
        finish(node);
    }
    if (operation->release != nullptr) {
        operation->release(operation->user_data);
    }
    delete operation;
}

} // namespace
} // namespace spec_atb

using namespace spec_atb;

extern "C" uint64_t spec_atb_tensor_size(const spec_atb_tensor_desc *desc)
{
    uint64_t size = 0;
    const spec_atb_status status = guarded("atb::Utils::GetTensorSize", [&]() -> spec_atb_status {
        if (desc != nullptr && desc->shape.dim_num != 0) {
            size = atb::Utils::GetTensorSize(to_atb(*desc));
        }
        return 0;
    });
    return status == 0 ? size : 0;
}

extern "C" spec_atb_status spec_atb_quant_param_convert(const float *source, uint64_t *destination, uint64_t count)
{
    const char *what = "atb::Utils::QuantParamConvert";
    return guarded(what, [&]() -> spec_atb_status {
        if (source == nullptr || destination == nullptr) {
            return null(what);
        }
        atb::Utils::QuantParamConvert(source, destination, count);
        return 0;
    });
}

extern "C" spec_atb_status spec_atb_operation_name(const spec_atb_operation *operation, char *buffer, uint64_t size)
{
    const char *what = "atb::Operation::GetName";
    return guarded(what, [&]() -> spec_atb_status {
        if (operation == nullptr || buffer == nullptr || size == 0) {
            return null(what);
        }
        const std::string name = operation->operation->GetName();
        const size_t length = std::min<size_t>(size - 1, name.size());
        std::memcpy(buffer, name.data(), length);
        buffer[length] = '\0';
        return 0;
    });
}

extern "C" spec_atb_status spec_atb_operation_arity(const spec_atb_operation *operation, uint32_t *inputs,
                                                    uint32_t *outputs)
{
    const char *what = "atb::Operation::GetInputNum";
    return guarded(what, [&]() -> spec_atb_status {
        if (operation == nullptr || inputs == nullptr || outputs == nullptr) {
            return null(what);
        }
        const uint32_t input_count = operation->operation->GetInputNum();
        *outputs = operation->operation->GetOutputNum();
        *inputs = input_count;
        return 0;
    });
}

extern "C" spec_atb_status spec_atb_infer_shape(const spec_atb_operation *operation,
                                                const spec_atb_tensor_desc *inputs, uint64_t input_count,
                                                spec_atb_tensor_desc *outputs, uint64_t output_count)
{
    const char *what = "atb::Operation::InferShape";
    return guarded(what, [&]() -> spec_atb_status {
        if (operation == nullptr || (inputs == nullptr && input_count != 0) ||
            (outputs == nullptr && output_count != 0)) {
            return null(what);
        }
        if (operation->operation->GetOutputNum() != output_count) {
            return fail(atb::ERROR_INVALID_TENSOR_NUM, what, "the operation has another number of outputs");
        }
        atb::SVector<atb::TensorDesc> in_descs;
        atb::SVector<atb::TensorDesc> out_descs;
        fill(in_descs, inputs, input_count, [](const spec_atb_tensor_desc &desc) { return to_atb(desc); });
        out_descs.reserve(output_count);
        out_descs.resize(output_count);
        const atb::Status status = operation->operation->InferShape(in_descs, out_descs);
        if (status == 0) {
            for (uint64_t at = 0; at < output_count; ++at) {
                outputs[at] = from_atb(out_descs.at(at));
            }
        }
        return from_atb(status, what);
    });
}

extern "C" spec_atb_status spec_atb_setup(spec_atb_operation *operation, const spec_atb_pack *pack,
                                          uint64_t *workspace_size, spec_atb_context *context)
{
    const char *what = "atb::Operation::Setup";
    return guarded(what, [&]() -> spec_atb_status {
        if (operation == nullptr || holds_null(pack) || workspace_size == nullptr || context == nullptr) {
            return null(what);
        }
        // 13 KiB: on the heap, for threads with little stack.
        auto converted = std::make_unique<atb::VariantPack>();
        to_atb(*pack, *converted);
        uint64_t size = 0;
        const atb::Status status =
            operation->operation->Setup(*converted, size, reinterpret_cast<atb::Context *>(context));
        if (status == 0) {
            *workspace_size = size;
        }
        return from_atb(status, what);
    });
}

extern "C" spec_atb_status spec_atb_execute(spec_atb_operation *operation, const spec_atb_pack *pack, void *workspace,
                                            uint64_t workspace_size, spec_atb_context *context)
{
    const char *what = "atb::Operation::Execute";
    return guarded(what, [&]() -> spec_atb_status {
        if (operation == nullptr || holds_null(pack) || context == nullptr) {
            return null(what);
        }
        auto converted = std::make_unique<atb::VariantPack>();
        to_atb(*pack, *converted);
        return from_atb(operation->operation->Execute(*converted, static_cast<uint8_t *>(workspace), workspace_size,
                                                      reinterpret_cast<atb::Context *>(context)),
                        what);
    });
}

extern "C" spec_atb_status spec_atb_set_stream_id(spec_atb_operation *operation, uint32_t stream_id)
{
    const char *what = "atb::SetExecuteStreamId";
    return guarded(what, [&]() -> spec_atb_status {
        if (operation == nullptr) {
            return null(what);
        }
        if (!is_there(&atb::SetExecuteStreamId)) {
            return unsupported(what, "stream ids need ATB 8.1");
        }
        return from_atb(atb::SetExecuteStreamId(operation->operation, stream_id), what);
    });
}

extern "C" spec_atb_status spec_atb_destroy_operation(spec_atb_operation *operation)
{
    const char *what = "atb::DestroyOperation";
    return guarded(what, [&]() -> spec_atb_status {
        if (operation == nullptr) {
            return null(what);
        }
        const spec_atb_status status = from_atb(atb::DestroyOperation(operation->operation), what);
        if (status == 0) {
            finish(operation);
        }
        return status;
    });
}
