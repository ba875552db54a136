// Parameters of operations. Each of ATB's structures is made by its own constructor, so that every field that is not
// named here, and every reserved byte, has the value that ATB gives it.
#include <memory>
#include <type_traits>

#include "internal.hpp"

using namespace spec_atb;

namespace {

template <typename Param> spec_atb_status make(const char *what, const Param &param, spec_atb_operation **operation)
{
    if (!is_there(&atb::CreateOperation<Param>)) {
        return unsupported(what, "this libatb has no such operation");
    }
    auto wrapper = std::make_unique<spec_atb_operation>();
    const atb::Status status = atb::CreateOperation(param, &wrapper->operation);
    if (status == 0) {
        *operation = wrapper.release();
    }
    return from_atb(status, what);
}

/// Makes an operation of a parameter of the C interface, which `convert` turns into ATB's.
template <typename From, typename Convert>
spec_atb_status create(const char *what, const From *param, spec_atb_operation **operation, Convert convert) noexcept
{
    return guarded(what, [&]() -> spec_atb_status {
        if (param == nullptr || operation == nullptr) {
            return null(what);
        }
        return make(what, convert(*param), operation);
    });
}

template <typename From, typename Convert>
spec_atb_status update(const char *what, spec_atb_operation *operation, const From *param, Convert convert) noexcept
{
    return guarded(what, [&]() -> spec_atb_status {
        if (param == nullptr || operation == nullptr) {
            return null(what);
        }
        const auto converted = convert(*param);
        using Param = std::decay_t<decltype(converted)>;
        if (!is_there(&atb::UpdateOperationParam<Param>)) {
            return unsupported(what, "this libatb cannot change the operation's parameter");
        }
        return from_atb(atb::UpdateOperationParam(operation->operation, converted), what);
    });
}

atb::infer::RmsNormParam convert(const spec_atb_rms_norm_param &from)
{
    atb::infer::RmsNormParam to;
    to.layerType = static_cast<atb::infer::RmsNormParam::RmsNormType>(from.layer);
    const auto quant = static_cast<atb::infer::QuantType>(from.quant);
    // Only the set that the layer names is written: ATB counts inputs by the bias of both others.
    switch (from.layer) {
        case SPEC_ATB_RMS_PRE_NORM:
            to.preNormParam.quantType = quant;
            to.preNormParam.epsilon = from.epsilon;
            to.preNormParam.hasBias = flag(from.has_bias, "has_bias");
            break;
        case SPEC_ATB_RMS_POST_NORM:
            to.postNormParam.quantType = quant;
            to.postNormParam.epsilon = from.epsilon;
            to.postNormParam.hasBias = flag(from.has_bias, "has_bias");
            break;
        case SPEC_ATB_RMS_NORM:
            to.normParam.quantType = quant;
            to.normParam.epsilon = from.epsilon;
            to.normParam.layerNormEps = from.layer_norm_epsilon;
            to.normParam.rstd = flag(from.has_rstd, "has_rstd");
            to.normParam.precisionMode = static_cast<atb::infer::RmsNormParam::PrecisionMode>(from.precision);
            to.normParam.modelType = static_cast<atb::infer::RmsNormParam::ModelType>(from.model);
            to.normParam.dynamicQuantType = static_cast<atb::infer::DynamicQuantType>(from.dynamic_quant);
            break;
    }
    return to;
}

atb::infer::LinearParam convert(const spec_atb_linear_param &from)
{
    using To = atb::infer::LinearParam;
    reserved(from.reserved);
    To to;
    to.transposeA = flag(from.transpose_a, "transpose_a");
    to.transposeB = flag(from.transpose_b, "transpose_b");
    to.hasBias = flag(from.has_bias, "has_bias");
    to.outDataType = static_cast<aclDataType>(from.out_data_type);
    to.enAccum = flag(from.accumulate, "accumulate");
    to.matmulType = static_cast<To::MatmulType>(narrow(from.matmul, "matmul"));
    to.quantMode = static_cast<To::QuantMode>(narrow(from.quant, "quant"));
    return to;
}

atb::infer::SelfAttentionParam convert(const spec_atb_self_attention_param &from)
{
    using To = atb::infer::SelfAttentionParam;
    To to;
    to.quantType = static_cast<To::QuantType>(from.quant);
    to.outDataType = static_cast<aclDataType>(from.out_data_type);
    to.headNum = from.head_num;
    to.kvHeadNum = from.kv_head_num;
    to.qScale = from.q_scale;
    to.qkScale = from.qk_scale;
    to.batchRunStatusEnable = flag(from.batch_run_status_enable, "batch_run_status_enable");
    to.isTriuMask = from.is_triu_mask;
    to.calcType = static_cast<To::CalcType>(from.calc);
    to.kernelType = static_cast<To::KernelType>(from.kernel);
    to.clampType = flag(from.clamp, "clamp") ? To::CLAMP_TYPE_MIN_MAX : To::CLAMP_TYPE_UNDEFINED;
    to.clampMin = from.clamp_min;
    to.clampMax = from.clamp_max;
    to.maskType = static_cast<To::MaskType>(from.mask);
    to.kvcacheCfg = flag(from.bypass_cache, "bypass_cache") ? To::K_BYPASS_V_BYPASS : To::K_CACHE_V_CACHE;
    to.scaleType = static_cast<To::ScaleType>(from.scale);
    to.inputLayout = static_cast<atb::infer::InputLayout>(from.layout);
    to.mlaVHeadSize = from.mla_v_head_size;
    to.cacheType = flag(from.sliding_window_cache, "sliding_window_cache") ? To::CACHE_TYPE_SWA : To::CACHE_TYPE_NORM;
    to.windowSize = from.window_size;
    return to;
}

atb::infer::PagedAttentionParam convert(const spec_atb_paged_attention_param &from)
{
    using To = atb::infer::PagedAttentionParam;
    To to;
    to.headNum = from.head_num;
    to.qkScale = from.qk_scale;
    to.kvHeadNum = from.kv_head_num;
    to.maskType = static_cast<To::MaskType>(from.mask);
    to.batchRunStatusEnable = flag(from.batch_run_status_enable, "batch_run_status_enable");
    to.quantType = static_cast<To::QuantType>(from.quant);
    to.outDataType = static_cast<aclDataType>(from.out_data_type);
    to.hasQuantOffset = flag(from.has_quant_offset, "has_quant_offset");
    to.compressType = static_cast<To::CompressType>(from.compress);
    to.calcType = static_cast<To::CalcType>(from.calc);
    to.scaleType = static_cast<To::ScaleType>(from.scale);
    to.inputLayout = static_cast<atb::infer::InputLayout>(from.layout);
    to.mlaVHeadSize = from.mla_v_head_size;
    to.qScale = from.q_scale;
    return to;
}

atb::infer::ElewiseParam convert(const spec_atb_elewise_param &from)
{
    using To = atb::infer::ElewiseParam;
    To to;
    to.elewiseType = static_cast<To::ElewiseType>(from.type);
    to.outTensorType = static_cast<aclDataType>(from.out_data_type);
    to.mulsParam.varAttr = from.factor;
    to.quantParam.inputScale = from.quant_scale;
    to.quantParam.inputOffset = from.quant_offset;
    to.quantParam.asymmetric = flag(from.quant_asymmetric, "quant_asymmetric");
    return to;
}

template <size_t Length> void fill_axes(atb::SVector<int64_t> &to, const int64_t (&axes)[Length], uint64_t count)
{
    if (count > Length) {
        throw std::length_error("there are 8 axes at most");
    }
    fill(to, axes, count, [](int64_t axis) { return axis; });
}

atb::infer::SortParam convert(const spec_atb_sort_param &from)
{
    reserved(from.reserved);
    atb::infer::SortParam to;
    fill(to.num, &from.count, 1, [](int32_t count) { return count; });
    return to;
}

atb::infer::TopkToppSamplingParam convert(const spec_atb_sampling_param &from)
{
    using To = atb::infer::TopkToppSamplingParam;
    if (from.seeds == nullptr && from.seed_count != 0) {
        throw std::invalid_argument("seeds is null and seed_count is not 0");
    }
    To to;
    to.topkToppSamplingType = static_cast<To::TopkToppSamplingType>(from.type);
    to.randSeeds.assign(from.seeds, from.seeds + from.seed_count);
    to.randSeed = from.seed;
    to.topk = from.topk;
    to.logProbsSize = from.log_probs_size;
    return to;
}

template <typename From> auto converter()
{
    return [](const From &from) { return convert(from); };
}

} // namespace

extern "C" spec_atb_status spec_atb_create_gather(const spec_atb_gather_param *param, spec_atb_operation **operation)
{
    return create("Gather", param, operation, [](const spec_atb_gather_param &from) {
        atb::infer::GatherParam to;
        to.axis = from.axis;
        to.batchDims = from.batch_dims;
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_rms_norm(const spec_atb_rms_norm_param *param,
                                                    spec_atb_operation **operation)
{
    return create("RmsNorm", param, operation, converter<spec_atb_rms_norm_param>());
}

extern "C" spec_atb_status spec_atb_create_linear(const spec_atb_linear_param *param, spec_atb_operation **operation)
{
    return create("Linear", param, operation, converter<spec_atb_linear_param>());
}

extern "C" spec_atb_status spec_atb_create_rope(const spec_atb_rope_param *param, spec_atb_operation **operation)
{
    return create("Rope", param, operation, [](const spec_atb_rope_param &from) {
        atb::infer::RopeParam to;
        to.rotaryCoeff = from.rotary_coeff;
        to.cosFormat = from.cos_format;
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_reshape_and_cache(const spec_atb_reshape_and_cache_param *param,
                                                             spec_atb_operation **operation)
{
    return create("ReshapeAndCache", param, operation, [](const spec_atb_reshape_and_cache_param &from) {
        using To = atb::infer::ReshapeAndCacheParam;
        To to;
        to.compressType = static_cast<To::CompressType>(from.compress);
        to.kvCacheCfg = static_cast<To::KvCacheCfg>(from.cache);
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_self_attention(const spec_atb_self_attention_param *param,
                                                          spec_atb_operation **operation)
{
    return create("SelfAttention", param, operation, converter<spec_atb_self_attention_param>());
}

extern "C" spec_atb_status spec_atb_create_paged_attention(const spec_atb_paged_attention_param *param,
                                                           spec_atb_operation **operation)
{
    return create("PagedAttention", param, operation, converter<spec_atb_paged_attention_param>());
}

extern "C" spec_atb_status spec_atb_create_activation(const spec_atb_activation_param *param,
                                                      spec_atb_operation **operation)
{
    return create("Activation", param, operation, [](const spec_atb_activation_param &from) {
        using To = atb::infer::ActivationParam;
        To to;
        to.activationType = static_cast<atb::infer::ActivationType>(from.type);
        to.scale = from.scale;
        to.dim = from.dim;
        to.geluMode = flag(from.exact_gelu, "exact_gelu") ? To::NONE_MODE : To::TANH_MODE;
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_elewise(const spec_atb_elewise_param *param, spec_atb_operation **operation)
{
    return create("Elewise", param, operation, converter<spec_atb_elewise_param>());
}

extern "C" spec_atb_status spec_atb_create_softmax(const spec_atb_softmax_param *param, spec_atb_operation **operation)
{
    return create("Softmax", param, operation, [](const spec_atb_softmax_param &from) {
        atb::infer::SoftmaxParam to;
        fill_axes(to.axes, from.axes, from.axis_count);
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_sort(const spec_atb_sort_param *param, spec_atb_operation **operation)
{
    return create("Sort", param, operation, converter<spec_atb_sort_param>());
}

extern "C" spec_atb_status spec_atb_create_reduce(const spec_atb_reduce_param *param, spec_atb_operation **operation)
{
    return create("Reduce", param, operation, [](const spec_atb_reduce_param &from) {
        reserved(from.reserved);
        atb::infer::ReduceParam to;
        to.reduceType = static_cast<atb::infer::ReduceParam::ReduceType>(from.type);
        fill_axes(to.axis, from.axes, from.axis_count);
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_multinomial(const spec_atb_multinomial_param *param,
                                                       spec_atb_operation **operation)
{
    return create("Multinomial", param, operation, [](const spec_atb_multinomial_param &from) {
        atb::infer::MultinomialParam to;
        to.numSamples = from.sample_count;
        to.randSeed = from.seed;
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_sampling(const spec_atb_sampling_param *param,
                                                    spec_atb_operation **operation)
{
    return create("TopkToppSampling", param, operation, converter<spec_atb_sampling_param>());
}

extern "C" spec_atb_status spec_atb_create_split(const spec_atb_split_param *param, spec_atb_operation **operation)
{
    return create("Split", param, operation, [](const spec_atb_split_param &from) {
        atb::infer::SplitParam to;
        to.splitDim = from.dim;
        to.splitNum = from.count;
        if (from.count > 0 && from.count <= 3 && from.sizes[0] != 0) {
            fill(to.splitSizes, from.sizes, static_cast<uint64_t>(from.count), [](int32_t size) { return size; });
        }
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_transdata(const spec_atb_transdata_param *param,
                                                     spec_atb_operation **operation)
{
    return create("Transdata", param, operation, [](const spec_atb_transdata_param &from) {
        reserved(from.reserved);
        atb::infer::TransdataParam to;
        to.transdataType = static_cast<atb::infer::TransdataParam::TransdataType>(from.type);
        fill_axes(to.outCrops, from.out_crops, 2);
        return to;
    });
}

extern "C" spec_atb_status spec_atb_create_event(const spec_atb_event_param *param, spec_atb_operation **operation)
{
    return create("Event", param, operation, [](const spec_atb_event_param &from) {
        reserved(from.reserved);
        atb::common::EventParam to;
        to.event = from.event;
        to.operatorType = static_cast<atb::common::EventParam::OperatorType>(from.action);
        return to;
    });
}

extern "C" spec_atb_status spec_atb_update_sort(spec_atb_operation *operation, const spec_atb_sort_param *param)
{
    return update("Sort", operation, param, converter<spec_atb_sort_param>());
}

extern "C" spec_atb_status spec_atb_update_sampling(spec_atb_operation *operation,
                                                    const spec_atb_sampling_param *param)
{
    return update("TopkToppSampling", operation, param, converter<spec_atb_sampling_param>());
}
