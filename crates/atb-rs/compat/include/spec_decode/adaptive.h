// Parameters that follow what was measured.
#ifndef SPEC_DECODE_ADAPTIVE_H
#define SPEC_DECODE_ADAPTIVE_H

#include <algorithm>

#include "spec_decode/operation.h"

namespace atb {

/// The longest draft that AdaptiveSpecDecode goes to.
constexpr int32_t MAX_LEN = 8;

/// A tolerance for a load: 0, which loses nothing, while a call takes no longer than `wanted` milliseconds, then more in proportion, up to
/// `most` at twice as long. LOSSY above 0.
inline double compute_epsilon(double latency, double wanted = 50, double most = 0.05)
{
    if (!(wanted > 0)) {
        return 0;
    }
    return most * std::clamp((latency - wanted) / wanted, 0.0, 1.0);
}

/// One token more a round while more than 80 % are accepted, else one less; a tolerance that follows the load. `params` is what comes of
/// it, for SpecDecodeOp::SetParam.
class AdaptiveSpecDecode {
public:
    AdaptiveSpecDecode() = default;
    explicit AdaptiveSpecDecode(const SpecDecodeParam &start) : params(start) {}

    void AdjustStrategy(const Stats &stats)
    {
        const int32_t step = stats.accept_rate > 0.8 ? 1 : -1;
        params.max_spec_length = std::clamp(params.max_spec_length + step, 1, MAX_LEN);
        params.epsilon = compute_epsilon(stats.latency);
    }

    SpecDecodeParam params;
};

} // namespace atb

#endif
