// The article's adaptive strategy (section 5.2), completed to a program: between the lines of dashes stands what the article has.
#include "atb/spec_decode.h"
#include "atb/context.h"
#include <algorithm>
#include <iostream>

namespace article {
using atb::compute_epsilon;
using atb::MAX_LEN;
using atb::Stats;
using std::max;
using std::min;
static atb::SpecDecodeParam params;
// ----------------------------------------------------------------
class AdaptiveSpecDecode {
public:
void AdjustStrategy(const Stats& stats) {
// 根据历史接受率动态调整推测长度
if (stats.accept_rate > 0.8) {
params.max_spec_length = min(params.max_spec_length + 1, MAX_LEN);
} else {
params.max_spec_length = max(params.max_spec_length - 1, 1);
}
// 根据负载情况调整epsilon
params.epsilon = compute_epsilon(stats.latency);
}
};
// ----------------------------------------------------------------
} // namespace article

int main()
{
    atb::Context context;
    aclrtStream stream;
    aclrtCreateStream(&stream);
    context.SetExecuteStream(stream);
    article::params.draft_model_path = "models/draft_bert.onnx";
    article::params.target_model_path = "models/target_bert.onnx";
    article::params.max_spec_length = 4;
    atb::SpecDecodeOp spec_op;
    spec_op.Init(article::params, &context);
    article::AdaptiveSpecDecode strategy;
    atb::AdaptiveSpecDecode ours(article::params);

    const std::vector<int32_t> input_ids = {101, 2043, 2003};
    atb::Tensor input_tokens;
    atb::CreateTensor(ACL_INT32, {1, static_cast<int64_t>(input_ids.size())}, input_tokens);
    aclrtMemcpy(input_tokens.deviceData, input_tokens.deviceSize, input_ids.data(), input_ids.size() * sizeof(int32_t),
                ACL_MEMCPY_HOST_TO_DEVICE);
    bool is_right = true;
    for (int round = 0; round < 10; ++round) {
        atb::Tensor output_tokens;
        is_right &= spec_op.Forward(input_tokens, output_tokens, &context) == 0;
        is_right &= output_tokens.deviceSize == 4 * (input_ids.size() + article::params.max_spec_length);
        aclrtFree(output_tokens.deviceData);
        atb::Stats stats = spec_op.GetStats();
        is_right &= stats.drafted > 0 && stats.latency > 0;
        // Each of both ways, on a machine that is never too slow.
        stats.accept_rate = round < 6 ? 0.81 : 0.8;
        stats.latency = 50;
        strategy.AdjustStrategy(stats);
        ours.AdjustStrategy(stats);
        is_right &= ours.params.max_spec_length == article::params.max_spec_length && ours.params.epsilon == 0;
        is_right &= spec_op.SetParam(article::params) == 0;
        std::cout << article::params.max_spec_length << " ";
    }
    // Twice as slow as wanted, and slower still.
    is_right &= atb::compute_epsilon(75) == 0.025 && atb::compute_epsilon(1000) == 0.05;
    std::cout << (is_right ? "as it should" : "wrong") << std::endl;
    aclrtFree(input_tokens.deviceData);
    aclrtDestroyStream(stream);
    return 0;
}
