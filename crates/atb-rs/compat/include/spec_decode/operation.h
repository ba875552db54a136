// Generation with drafts, from token ids on the device to token ids on the device, over libspec.
//
// It works with ATB's own Tensor and Context, and with those of atb/context.h and atb/spec_decode.h; those two headers bring it.
#ifndef SPEC_DECODE_OPERATION_H
#define SPEC_DECODE_OPERATION_H

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "spec.h"
#include "spec_decode/status.h"
#include "spec_decode/tensors.h"

namespace atb {

/// Which models, and how they generate.
struct SpecDecodeParam {
    /// A smaller model of the target's vocabulary; empty drafts nothing. GGUF or safetensors: what a file is, its content says, and not
    /// its name.
    std::string draft_model_path;
    std::string target_model_path;
    /// Tokens drafted a round, at least 1; also how many more tokens than the input an output has room for.
    int32_t max_spec_length = 5;
    /// 0 keeps every token that the target alone would give, the most probable ones. Above 0, LOSSY: tokens are drawn at temperature 1, and a
    /// drafted one stays when p >= q - epsilon.
    double epsilon = 0;
    /// Ends the text, and fills the output behind it. -1 is the model's own.
    int32_t eos_token_id = -1;
    /// Of the draws, where epsilon is above 0.
    uint64_t seed = 0;
};

/// What the last Forward did.
struct Stats {
    /// Accepted drafts over all drafts; 0 when nothing was drafted.
    double accept_rate = 0;
    /// Milliseconds of the whole call.
    double latency = 0;
    /// Passes of the target behind the one over the input.
    uint64_t rounds = 0;
    uint64_t drafted = 0;
    uint64_t accepted = 0;
    /// Ids in the output, the fill not counted.
    uint64_t generated = 0;
};

/// Generates with drafts.
///
/// Statuses of failures are returned, and logged on standard error, for programs that do not look at them. SPEC_DECODE_DEBUG=1 adds a
/// line for each Forward.
///
/// Models get streams and a context of their own on the device that is current in Init. The execute stream of the caller's context is
/// waited for before the input is read, and not used otherwise; destroying the operation touches no stream but its own, so that it may
/// outlive the caller's. It may not outlive AscendCL. One thread at a time.
class SpecDecodeOp {
public:
    SpecDecodeOp() = default;

    /// Loads the models. What was loaded before is freed first.
    template <class Context>
    Status Init(const SpecDecodeParam &param, Context *context)
    {
        constexpr const char *where = "atb::SpecDecodeOp::Init";
        engine_.reset();
        param_ = param;
        end_token_ = param.eos_token_id;
        stats_ = Stats{};
        if (context == nullptr) {
            return spec_decode::fail(where, spec_decode::kInvalidParam, "the context is null");
        }
        if (Status status = Validate(where, param)) {
            return status;
        }
        if (spec_abi_version() != SPEC_ABI_VERSION) {
            return spec_decode::fail(where, spec_decode::kInternalError,
                                     std::string("libspec ") + spec_version() + " does not go with this spec.h");
        }
        int32_t device = 0;
        if (Status status = spec_decode::check(where, aclrtGetDevice(&device), "aclrtGetDevice")) {
            return status;
        }
        // The library that this program is linked with has the device's state, so that libspec has to use the same.
        const bool is_simulator = dlsym(RTLD_DEFAULT, "ascend_sim_version") != nullptr;
        const std::string name = is_simulator ? "ascend-sim" : "ascend:" + std::to_string(device);
        Dl_info origin{};
        void *start = dlsym(RTLD_DEFAULT, "aclInit");
        spec_load_options options{};
        spec_load_options_init(&options);
        options.model = param.target_model_path.c_str();
        if (!param.draft_model_path.empty()) {
            options.draft_model = param.draft_model_path.c_str();
        }
        options.draft = param.draft_model_path.empty() ? "none" : "model";
        options.device = name.c_str();
        if (start != nullptr && dladdr(start, &origin) != 0) {
            options.library = origin.dli_fname;
        }
        spec_engine *engine = nullptr;
        if (spec_status status = spec_load(&options, &engine)) {
            return Failed(where, status);
        }
        engine_.reset(engine);
        spec_description description{};
        if (spec_status status = spec_describe(engine, &description)) {
            return Failed(where, status);
        }
        if (end_token_ < 0) {
            end_token_ = static_cast<int32_t>(description.end_token);
        }
        if (end_token_ < 0 || static_cast<uint64_t>(end_token_) >= description.vocab) {
            engine_.reset();
            return spec_decode::fail(where, spec_decode::kInvalidParam,
                                     "end token " + std::to_string(end_token_) + " is none of the model's " +
                                         std::to_string(description.vocab) + "; set eos_token_id");
        }
        return spec_decode::kOk;
    }

    /// Continues `input`, int32 [1, N]. `output` is int32 [1, N + max_spec_length] in fresh device memory, which is the caller's to free:
    /// the generated ids, then the end token up to the end; when the call fails, end tokens alone, or no memory when none could be had.
    /// What `output` had before is not freed. Done when it returns.
    template <class Tensor, class Context>
    Status Forward(const Tensor &input, Tensor &output, Context *context)
    {
        constexpr const char *where = "atb::SpecDecodeOp::Forward";
        const auto begun = std::chrono::steady_clock::now();
        stats_ = Stats{};
        std::vector<uint32_t> tokens;
        Status status = Prepare(where, input, context, tokens);
        const auto &shape = input.desc.shape;
        const int64_t length = shape.dimNum == 2 && shape.dims[1] > 0 ? shape.dims[1] : 0;
        std::vector<int32_t> ids;
        if (status == spec_decode::kOk) {
            status = Generate(where, tokens, ids);
        }
        stats_.generated = ids.size();
        ids.resize(static_cast<size_t>(length + std::max(param_.max_spec_length, 0)), end_token_);
        Tensor result{};
        Status copied = Upload(where, ids, result);
        output = result;
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
        stats_.latency = took.count();
        if (spec_decode::is_verbose()) {
            Describe(where);
        }
        return status != spec_decode::kOk ? status : copied;
    }

    /// Other values from the next Forward on. The paths stay those of Init.
    Status SetParam(const SpecDecodeParam &param)
    {
        constexpr const char *where = "atb::SpecDecodeOp::SetParam";
        if (Status status = Validate(where, param)) {
            return status;
        }
        if (param.draft_model_path != param_.draft_model_path || param.target_model_path != param_.target_model_path) {
            return spec_decode::fail(where, spec_decode::kInvalidParam, "other models are for Init to load");
        }
        if (param.eos_token_id != param_.eos_token_id) {
            return spec_decode::fail(where, spec_decode::kInvalidParam, "another end token is for Init to check");
        }
        param_ = param;
        return spec_decode::kOk;
    }

    const SpecDecodeParam &GetParam() const { return param_; }
    const Stats &GetStats() const { return stats_; }

private:
    struct Free {
        void operator()(spec_engine *engine) const { spec_free(engine); }
    };

    static Status Validate(const char *where, const SpecDecodeParam &param)
    {
        if (param.max_spec_length < 1) {
            return spec_decode::fail(where, spec_decode::kInvalidParam, "max_spec_length is at least 1");
        }
        if (!(param.epsilon >= 0 && param.epsilon <= 1)) {
            return spec_decode::fail(where, spec_decode::kInvalidParam, "epsilon is 0 to 1");
        }
        return spec_decode::kOk;
    }

    static Status Failed(const char *where, spec_status status)
    {
        const Status code = status == SPEC_STATUS_INVALID_ARGUMENT || status == SPEC_STATUS_MODEL ? spec_decode::kInvalidParam
                            : status == SPEC_STATUS_DEVICE                                     ? spec_decode::kRuntimeFailed
                                                                                               : spec_decode::kInternalError;
        return spec_decode::fail(where, code, spec_last_error());
    }

    template <class Tensor, class Context>
    Status Prepare(const char *where, const Tensor &input, Context *context, std::vector<uint32_t> &tokens) const
    {
        if (engine_ == nullptr) {
            return spec_decode::fail(where, spec_decode::kInvalidParam, "no models are loaded: Init failed, or was not called");
        }
        if (context == nullptr) {
            return spec_decode::fail(where, spec_decode::kInvalidParam, "the context is null");
        }
        // The input may still be on its way.
        if (aclrtStream stream = context->GetExecuteStream()) {
            if (Status status = spec_decode::check(where, aclrtSynchronizeStream(stream), "aclrtSynchronizeStream")) {
                return status;
            }
        }
        return spec_decode::read_tokens(where, input, tokens);
    }

    Status Generate(const char *where, const std::vector<uint32_t> &tokens, std::vector<int32_t> &ids)
    {
        spec_request request{};
        spec_request_init(&request);
        request.prompt_tokens = tokens.data();
        request.prompt_token_count = tokens.size();
        request.max_tokens = tokens.size() + static_cast<size_t>(param_.max_spec_length);
        request.draft_len = static_cast<size_t>(param_.max_spec_length);
        request.seed = param_.seed;
        const uint32_t end = static_cast<uint32_t>(end_token_);
        if (param_.eos_token_id >= 0) {
            request.end_tokens = &end;
            request.end_token_count = 1;
        }
        const std::string rule = Rule();
        if (param_.epsilon > 0) {
            request.rule = rule.c_str();
            request.temperature = 1;
        }
        // Room for all: a callback may not throw.
        ids.reserve(request.max_tokens);
        const auto take = [](void *data, const spec_token *token) {
            if (token->shown) {
                static_cast<std::vector<int32_t> *>(data)->push_back(static_cast<int32_t>(token->id));
            }
            return true;
        };
        spec_result result{};
        if (spec_status status = spec_generate(engine_.get(), &request, take, &ids, &result)) {
            ids.clear();
            return Failed(where, status);
        }
        stats_.rounds = result.rounds;
        stats_.drafted = result.drafted;
        stats_.accepted = result.accepted;
        if (result.drafted > 0) {
            stats_.accept_rate = static_cast<double>(result.accepted) / static_cast<double>(result.drafted);
        }
        return spec_decode::kOk;
    }

    std::string Rule() const
    {
        std::ostringstream rule;
        rule.imbue(std::locale::classic());
        rule << "epsilon:" << param_.epsilon;
        return rule.str();
    }

    template <class Tensor>
    static Status Upload(const char *where, const std::vector<int32_t> &ids, Tensor &result)
    {
        const std::vector<int64_t> dims = {1, static_cast<int64_t>(ids.size())};
        if (Status status = spec_decode::allocate(where, ACL_INT32, dims, result)) {
            return status;
        }
        const aclError copied =
            aclrtMemcpy(result.deviceData, result.dataSize, ids.data(), result.dataSize, ACL_MEMCPY_HOST_TO_DEVICE);
        return spec_decode::check(where, copied, "aclrtMemcpy");
    }

    void Describe(const char *where) const
    {
        std::ostringstream line;
        line.imbue(std::locale::classic());
        line << stats_.generated << " ids in " << stats_.rounds << " rounds, " << stats_.accepted << " of " << stats_.drafted
             << " drafted ids accepted, " << stats_.latency << " ms";
        spec_decode::log(where, line.str());
    }

    std::unique_ptr<spec_engine, Free> engine_;
    SpecDecodeParam param_;
    Stats stats_;
    int32_t end_token_ = -1;
};

} // namespace atb

#endif
