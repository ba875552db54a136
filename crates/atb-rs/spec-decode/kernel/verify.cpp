// Verify as one AscendC kernel: each row of logits is read once, tile by tile, and nothing of it goes back to memory but
// the verdict. Softmax is kept as a running maximum and a running sum, which a greater maximum rescales.
//
// NOT COMPILED BY THE VENDOR'S COMPILER YET, AND NOT RUN ON AN NPU. It is written after the public documentation of
// AscendC and compiled for the host against stand-in/kernel_operator.h, which has the calls used here and no others.
// Interface and results are those of spec_decode.h; libspec_atb.so composes the operation of ATB's own instead.
//
// Blocks take rows in turn, so that a launch wants as many blocks as there are rows, or cores.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

/// Logits of a tile. Two tiles of f32, their f32 copy and what reductions need fit the 192 KiB of a vector core.
constexpr int32_t TILE = 8192;
constexpr int32_t TILES_AHEAD = 2;
/// Bytes that addresses in a core's memory are a multiple of, and f32 of them.
constexpr int32_t ALIGNMENT = 32;
constexpr int32_t LANES = ALIGNMENT / sizeof(float);

constexpr float NO_LOGIT = -__builtin_inff();

/// One unit of the core waits for another: V the vectors, S the scalars, MTE3 copies to global memory.
template <HardEvent event> __aicore__ inline void Wait(TPipe &pipe)
{
    const int32_t id = static_cast<int32_t>(pipe.FetchEventID(event));
    SetFlag<event>(id);
    WaitFlag<event>(id);
}

template <typename Logit> class Rows {
public:
    __aicore__ inline void Init(GM_ADDR logits, int32_t rows, int32_t vocabulary, float inverseTemperature)
    {
        logits_.SetGlobalBuffer(reinterpret_cast<__gm__ Logit *>(logits), static_cast<uint64_t>(rows) * vocabulary);
        vocabulary_ = vocabulary;
        inverseTemperature_ = inverseTemperature;
        pipe_.InitBuffer(tiles_, TILES_AHEAD, TILE * sizeof(Logit));
        pipe_.InitBuffer(wide_, TILE * sizeof(float));
        pipe_.InitBuffer(work_, TILE * sizeof(float));
        pipe_.InitBuffer(few_, 2 * ALIGNMENT);
        pipe_.InitBuffer(results_, 1, 4 * ALIGNMENT);
    }

protected:
    /// Goes through a row. `drafted` is the token whose logit is kept, or -1.
    __aicore__ inline void Scan(int32_t row, int32_t drafted)
    {
        first_ = second_ = {-1, NO_LOGIT};
        max_ = NO_LOGIT;
        sum_ = 0.0f;
        drafted_ = drafted;
        draftedLogit_ = NO_LOGIT;
        const int32_t tiles = (vocabulary_ + TILE - 1) / TILE;
        CopyIn(row, 0);
        for (int32_t tile = 0; tile < tiles; ++tile) {
            // The next tile is under way while this one is looked at.
            if (tile + 1 < tiles) {
                CopyIn(row, tile + 1);
            }
            Look(tile);
        }
    }

    /// exp((logit - max) / temperature) over the sum of all.
    __aicore__ inline float Probability(float logit)
    {
        return Exponential(logit * inverseTemperature_ - max_) / sum_;
    }

    struct Best {
        int32_t token;
        float logit;
    };
    Best first_;
    Best second_;
    float draftedLogit_;
    TPipe pipe_;
    TQue<QuePosition::VECOUT, 1> results_;

private:
    __aicore__ inline int32_t Length(int32_t tile)
    {
        const int32_t left = vocabulary_ - tile * TILE;
        return left < TILE ? left : TILE;
    }

    __aicore__ inline void CopyIn(int32_t row, int32_t tile)
    {
        LocalTensor<Logit> local = tiles_.template AllocTensor<Logit>();
        const uint32_t bytes = static_cast<uint32_t>(Length(tile) * sizeof(Logit));
        const DataCopyExtParams copy{1, bytes, 0, 0, 0};
        const DataCopyPadExtParams<Logit> pad{false, 0, 0, static_cast<Logit>(0.0f)};
        DataCopyPad(local, logits_[static_cast<uint64_t>(row) * vocabulary_ + tile * TILE], copy, pad);
        tiles_.EnQue(local);
    }

    __aicore__ inline void Look(int32_t tile)
    {
        const int32_t count = Length(tile);
        const int32_t start = tile * TILE;
        LocalTensor<float> wide = wide_.template Get<float>();
        LocalTensor<Logit> local = tiles_.template DeQue<Logit>();
        if constexpr (sizeof(Logit) == sizeof(float)) {
            Adds(wide, local, 0.0f, count);
        } else {
            Cast(wide, local, RoundMode::CAST_NONE, count);
        }
        tiles_.FreeTensor(local);
        if (drafted_ >= start && drafted_ < start + count) {
            Wait<HardEvent::V_S>(pipe_);
            draftedLogit_ = wide.GetValue(drafted_ - start);
        }

        // The greatest, then the greatest of the others.
        const Best greatest = Greatest(wide, count);
        Offer(greatest, start);
        if (count > 1) {
            wide.SetValue(greatest.token, NO_LOGIT);
            Wait<HardEvent::S_V>(pipe_);
            Offer(Greatest(wide, count), start);
            wide.SetValue(greatest.token, greatest.logit);
            Wait<HardEvent::S_V>(pipe_);
        }
        Add(wide, count, greatest.logit * inverseTemperature_);
    }

    /// The greatest of the first logits of a tensor, and its place.
    __aicore__ inline Best Greatest(const LocalTensor<float> &values, int32_t count)
    {
        LocalTensor<float> found = few_.template Get<float>();
        LocalTensor<float> work = work_.template Get<float>();
        ReduceMax(found, values, work, count, true);
        Wait<HardEvent::V_S>(pipe_);
        // The place comes as the bits of an integer.
        const int32_t place = found.template ReinterpretCast<int32_t>().GetValue(1);
        return {place, found.GetValue(0)};
    }

    /// Tiles come in the order of tokens: of equals the earlier one stays. NaN is above nothing.
    __aicore__ inline void Offer(const Best &found, int32_t start)
    {
        const Best offered{found.token + start, found.logit};
        if (offered.logit > first_.logit || first_.token < 0) {
            second_ = first_;
            first_ = offered;
        } else if (offered.logit > second_.logit || second_.token < 0) {
            second_ = offered;
        }
    }

    /// Adds the exponentials of a tile to the sum, which NaN and plus infinity make NaN.
    __aicore__ inline void Add(const LocalTensor<float> &values, int32_t count, float greatest)
    {
        // All are masked so far: the sum stays 0, or NaN is among them.
        const bool masked = greatest == NO_LOGIT && max_ == NO_LOGIT;
        const float known = greatest > max_ || max_ == NO_LOGIT ? greatest : max_;
        const float max = masked ? 0.0f : known;
        if (sum_ != 0.0f) {
            sum_ *= Exponential(max_ - max);
        }
        max_ = masked ? NO_LOGIT : max;
        Muls(values, values, inverseTemperature_, count);
        Adds(values, values, -max, count);
        Exp(values, values, count);
        LocalTensor<float> found = few_.template Get<float>();
        LocalTensor<float> work = work_.template Get<float>();
        ReduceSum(found, values, work, count);
        Wait<HardEvent::V_S>(pipe_);
        sum_ += found.GetValue(0);
    }

    /// Scalars have no exponential of their own: a vector of one takes its way.
    __aicore__ inline float Exponential(float x)
    {
        LocalTensor<float> one = few_.template Get<float>()[LANES];
        one.SetValue(0, x);
        Wait<HardEvent::S_V>(pipe_);
        Exp(one, one, 1);
        Wait<HardEvent::V_S>(pipe_);
        return one.GetValue(0);
    }

    GlobalTensor<Logit> logits_;
    TQue<QuePosition::VECIN, TILES_AHEAD> tiles_;
    TBuf<TPosition::VECCALC> wide_;
    TBuf<TPosition::VECCALC> work_;
    /// Results of reductions, and behind them a scalar on its way through a vector.
    TBuf<TPosition::VECCALC> few_;
    int32_t vocabulary_;
    float inverseTemperature_;
    /// Of the row so far, over the temperature.
    float max_;
    float sum_;
    int32_t drafted_;
};

/// One result to global memory.
template <typename Queue, typename Element>
__aicore__ inline void CopyOut(TPipe &pipe, Queue &results, const GlobalTensor<Element> &to, const Element *values,
                               int32_t count)
{
    LocalTensor<Element> local = results.template AllocTensor<Element>();
    for (int32_t at = 0; at < count; ++at) {
        local.SetValue(at, values[at]);
    }
    // The queue orders vectors and copies, and these were scalars.
    Wait<HardEvent::S_MTE3>(pipe);
    results.EnQue(local);
    local = results.template DeQue<Element>();
    const DataCopyExtParams copy{1, static_cast<uint32_t>(count * sizeof(Element)), 0, 0, 0};
    DataCopyPad(to, local, copy);
    Wait<HardEvent::MTE3_S>(pipe);
    results.FreeTensor(local);
}

template <typename Logit> class GreedyRows : public Rows<Logit> {
public:
    __aicore__ inline void Run(GM_ADDR tokens, GM_ADDR logits, GM_ADDR probabilities, int32_t rows)
    {
        const uint64_t count = 2 * static_cast<uint64_t>(rows);
        GlobalTensor<int32_t> tokensOut;
        GlobalTensor<Logit> logitsOut;
        GlobalTensor<Logit> probabilitiesOut;
        tokensOut.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(tokens), count);
        logitsOut.SetGlobalBuffer(reinterpret_cast<__gm__ Logit *>(logits), count);
        probabilitiesOut.SetGlobalBuffer(reinterpret_cast<__gm__ Logit *>(probabilities), count);
        for (int32_t row = GetBlockIdx(); row < rows; row += GetBlockNum()) {
            this->Scan(row, -1);
            const int32_t two[] = {this->first_.token, this->second_.token};
            const Logit values[] = {static_cast<Logit>(this->first_.logit), static_cast<Logit>(this->second_.logit)};
            const Logit shares[] = {static_cast<Logit>(this->Probability(this->first_.logit)),
                                    static_cast<Logit>(this->Probability(this->second_.logit))};
            CopyOut(this->pipe_, this->results_, tokensOut[2 * row], two, 2);
            CopyOut(this->pipe_, this->results_, logitsOut[2 * row], values, 2);
            CopyOut(this->pipe_, this->results_, probabilitiesOut[2 * row], shares, 2);
        }
    }
};

template <typename Logit> class RejectionRows : public Rows<Logit> {
public:
    __aicore__ inline void Run(GM_ADDR drafted, GM_ADDR thresholds, GM_ADDR accepted, GM_ADDR probabilities, int32_t rows)
    {
        GlobalTensor<int32_t> draftedIn;
        GlobalTensor<float> thresholdsIn;
        GlobalTensor<int8_t> acceptedOut;
        GlobalTensor<float> probabilitiesOut;
        draftedIn.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(drafted), rows);
        thresholdsIn.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(thresholds), rows);
        acceptedOut.SetGlobalBuffer(reinterpret_cast<__gm__ int8_t *>(accepted), rows);
        probabilitiesOut.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(probabilities), rows);
        for (int32_t row = GetBlockIdx(); row < rows; row += GetBlockNum()) {
            this->Scan(row, draftedIn.GetValue(row));
            const float probability = this->Probability(this->draftedLogit_);
            const int8_t stands = thresholdsIn.GetValue(row) < probability ? 1 : 0;
            CopyOut(this->pipe_, this->results_, acceptedOut[row], &stands, 1);
            CopyOut(this->pipe_, this->results_, probabilitiesOut[row], &probability, 1);
        }
    }
};

} // namespace

#define VERIFY_GREEDY(name, Logit)                                                                              \
    extern "C" __global__ __aicore__ void name(GM_ADDR logits, GM_ADDR tokens, GM_ADDR values, GM_ADDR shares, \
                                               int32_t rows, int32_t vocabulary)                                \
    {                                                                                                           \
        GreedyRows<Logit> kernel;                                                                               \
        kernel.Init(logits, rows, vocabulary, 1.0f);                                                            \
        kernel.Run(tokens, values, shares, rows);                                                               \
    }

#define VERIFY_REJECTION(name, Logit)                                                                              \
    extern "C" __global__ __aicore__ void name(GM_ADDR logits, GM_ADDR drafted, GM_ADDR thresholds,               \
                                               GM_ADDR accepted, GM_ADDR probabilities, int32_t rows,              \
                                               int32_t vocabulary, float inverseTemperature)                      \
    {                                                                                                              \
        RejectionRows<Logit> kernel;                                                                               \
        kernel.Init(logits, rows, vocabulary, inverseTemperature);                                                 \
        kernel.Run(drafted, thresholds, accepted, probabilities, rows);                                            \
    }

VERIFY_GREEDY(verify_greedy_f16, half)
VERIFY_GREEDY(verify_greedy_f32, float)
VERIFY_REJECTION(verify_rejection_f16, half)
VERIFY_REJECTION(verify_rejection_f32, float)
