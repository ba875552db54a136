// A stand-in for AscendC's header of this name, on the host, with the calls that verify.cpp uses and no others: names and
// signatures are those of the public documentation. It computes at once, one block after another, and ends the process
// where the kernel would break a rule of the device:
// - more local memory than a vector core of an Atlas A2 has, or an access beyond a tensor;
// - a tensor of a queue that is used before it was taken from it, or given back twice;
// - a scalar that reads what vectors have not finished, vectors or copies that read what a scalar has not.
#ifndef SPEC_DECODE_STAND_IN_KERNEL_OPERATOR_H
#define SPEC_DECODE_STAND_IN_KERNEL_OPERATOR_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#define __aicore__
#define __global__
#define __gm__
using GM_ADDR = uint8_t *;

#define STAND_IN_RULE(holds, what)                         \
    do {                                                   \
        if (!(holds)) {                                    \
            std::fprintf(stderr, "the kernel %s\n", what); \
            std::abort();                                  \
        }                                                  \
    } while (0)

/// IEEE binary16.
struct half {
    uint16_t bits = 0;

    half() = default;
    explicit half(float value)
    {
        uint32_t wide;
        std::memcpy(&wide, &value, sizeof wide);
        const uint16_t sign = static_cast<uint16_t>(wide >> 16 & 0x8000u);
        const float magnitude = std::fabs(value);
        if (std::isnan(value)) {
            bits = 0x7E00;
        } else if (magnitude >= 65520.0f) {
            bits = static_cast<uint16_t>(sign | 0x7C00);
        } else {
            // In units of the last place, to the nearest, ties to even, as the default of nearbyint is.
            int exponent = 0;
            std::frexp(magnitude, &exponent);
            exponent = exponent - 1 < -14 ? -14 : exponent - 1;
            const uint32_t units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
            const uint32_t below = units < 1024 ? units : units - 1024 + (static_cast<uint32_t>(exponent + 15) << 10);
            bits = static_cast<uint16_t>(sign | below);
        }
    }
    explicit operator float() const
    {
        const int exponent = bits >> 10 & 0x1F;
        const float fraction = static_cast<float>(bits & 0x3FF);
        float magnitude;
        if (exponent == 0x1F) {
            magnitude = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
        } else if (exponent == 0) {
            magnitude = std::ldexp(fraction, -24);
        } else {
            magnitude = std::ldexp(fraction + 1024.0f, exponent - 25);
        }
        return bits & 0x8000 ? -magnitude : magnitude;
    }
};

namespace AscendC {

enum class TPosition { VECIN, VECOUT, VECCALC };
using QuePosition = TPosition;
enum class HardEvent { V_S, S_V, S_MTE3, MTE3_S };
enum class RoundMode { CAST_NONE };
using TEventID = int8_t;

/// Memory that one unit of the core has used, and another may not touch before it has waited for the first.
class StandInPending {
public:
    template <typename Element> void add(const Element *start, uint64_t count)
    {
        ranges_.push_back({reinterpret_cast<uintptr_t>(start), reinterpret_cast<uintptr_t>(start + count)});
    }
    template <typename Element> bool has(const Element *start, uint64_t count) const
    {
        const auto from = reinterpret_cast<uintptr_t>(start), to = reinterpret_cast<uintptr_t>(start + count);
        for (const Range &range : ranges_) {
            if (range.from < to && from < range.to) {
                return true;
            }
        }
        return false;
    }
    void clear() { ranges_.clear(); }

private:
    struct Range {
        uintptr_t from;
        uintptr_t to;
    };
    std::vector<Range> ranges_;
};

/// The core that the kernel runs on.
struct StandInCore {
    int64_t block = 0;
    int64_t blocks = 1;
    /// Used by vectors, and not for scalars yet; and so on.
    StandInPending vectors_to_scalars;
    StandInPending scalars_to_vectors;
    StandInPending scalars_to_copies;
    StandInPending copies_to_scalars;
};
inline StandInCore &stand_in_core()
{
    static StandInCore core;
    return core;
}

inline int64_t GetBlockIdx() { return stand_in_core().block; }
inline int64_t GetBlockNum() { return stand_in_core().blocks; }

template <HardEvent event> void SetFlag(int32_t) {}
template <HardEvent event> void WaitFlag(int32_t)
{
    StandInCore &core = stand_in_core();
    switch (event) {
        case HardEvent::V_S: core.vectors_to_scalars.clear(); break;
        case HardEvent::S_V: core.scalars_to_vectors.clear(); break;
        case HardEvent::S_MTE3: core.scalars_to_copies.clear(); break;
        case HardEvent::MTE3_S: core.copies_to_scalars.clear(); break;
    }
}

/// Vectors use memory.
template <typename Element> Element *stand_in_vector(Element *start, uint64_t count)
{
    StandInCore &core = stand_in_core();
    STAND_IN_RULE(!core.scalars_to_vectors.has(start, count), "lets vectors use what a scalar may not have finished");
    core.vectors_to_scalars.add(start, count);
    return start;
}

template <typename Element> class LocalTensor {
public:
    LocalTensor() = default;
    LocalTensor(Element *data, uint64_t size) : data_(data), size_(size) {}
    LocalTensor operator[](uint32_t offset) const
    {
        STAND_IN_RULE(offset < size_, "takes a part that a tensor does not have");
        return {data_ + offset, size_ - offset};
    }
    Element GetValue(uint32_t at) const
    {
        STAND_IN_RULE(at < size_, "reads beyond a tensor");
        STAND_IN_RULE(!stand_in_core().vectors_to_scalars.has(data_ + at, 1), "reads a scalar that vectors may be using");
        return data_[at];
    }
    void SetValue(uint32_t at, Element value) const
    {
        STAND_IN_RULE(at < size_, "writes beyond a tensor");
        StandInCore &core = stand_in_core();
        STAND_IN_RULE(!core.vectors_to_scalars.has(data_ + at, 1), "writes a scalar that vectors may be using");
        STAND_IN_RULE(!core.copies_to_scalars.has(data_ + at, 1), "writes a scalar that a copy may be reading");
        core.scalars_to_vectors.add(data_ + at, 1);
        core.scalars_to_copies.add(data_ + at, 1);
        data_[at] = value;
    }
    template <typename Other> LocalTensor<Other> ReinterpretCast() const
    {
        return {reinterpret_cast<Other *>(data_), size_ * sizeof(Element) / sizeof(Other)};
    }
    /// The stand-in's own: the elements, of which so many are used.
    Element *elements(uint64_t count) const
    {
        STAND_IN_RULE(count <= size_, "goes beyond a tensor");
        return data_;
    }

private:
    Element *data_ = nullptr;
    uint64_t size_ = 0;
};

template <typename Element> class GlobalTensor {
public:
    void SetGlobalBuffer(Element *data, uint64_t size)
    {
        data_ = data;
        size_ = size;
    }
    GlobalTensor operator[](uint64_t offset) const
    {
        STAND_IN_RULE(offset < size_, "takes a part that global memory does not have");
        GlobalTensor part;
        part.SetGlobalBuffer(data_ + offset, size_ - offset);
        return part;
    }
    Element GetValue(uint64_t at) const
    {
        STAND_IN_RULE(at < size_, "reads beyond global memory");
        return data_[at];
    }
    Element *elements(uint64_t count) const
    {
        STAND_IN_RULE(count <= size_, "goes beyond global memory");
        return data_;
    }

private:
    Element *data_ = nullptr;
    uint64_t size_ = 0;
};

/// A piece of local memory, full of NaN.
struct StandInBuffer {
    std::vector<uint64_t> memory;
    void allocate(uint32_t bytes)
    {
        memory.assign((bytes + 31) / 32 * 4, ~uint64_t{0});
    }
    template <typename Element> LocalTensor<Element> tensor()
    {
        return {reinterpret_cast<Element *>(memory.data()), memory.size() * sizeof(uint64_t) / sizeof(Element)};
    }
};

template <TPosition position, int32_t depth> class TQue {
public:
    template <typename Element> LocalTensor<Element> AllocTensor()
    {
        for (Slot &slot : slots_) {
            if (slot.state == State::Free) {
                slot.state = State::Taken;
                return slot.buffer.template tensor<Element>();
            }
        }
        STAND_IN_RULE(false, "takes more tensors than a queue has, which waits for ever");
        return {};
    }
    template <typename Element> void EnQue(const LocalTensor<Element> &tensor)
    {
        Slot &slot = find(tensor, State::Taken);
        slot.state = State::Queued;
        slot.number = next_++;
    }
    template <typename Element> LocalTensor<Element> DeQue()
    {
        Slot *first = nullptr;
        for (Slot &slot : slots_) {
            if (slot.state == State::Queued && (first == nullptr || slot.number < first->number)) {
                first = &slot;
            }
        }
        STAND_IN_RULE(first != nullptr, "waits for a queue that is empty");
        first->state = State::Used;
        return first->buffer.template tensor<Element>();
    }
    template <typename Element> void FreeTensor(const LocalTensor<Element> &tensor)
    {
        Slot &slot = find(tensor, State::Used);
        slot.state = State::Free;
        slot.buffer.allocate(static_cast<uint32_t>(slot.buffer.memory.size() * sizeof(uint64_t)));
    }
    void stand_in_init(uint8_t count, uint32_t bytes)
    {
        slots_.resize(count);
        for (Slot &slot : slots_) {
            slot.buffer.allocate(bytes);
        }
    }

private:
    enum class State { Free, Taken, Queued, Used };
    struct Slot {
        StandInBuffer buffer;
        State state = State::Free;
        uint64_t number = 0;
    };
    template <typename Element> Slot &find(const LocalTensor<Element> &tensor, State state)
    {
        for (Slot &slot : slots_) {
            if (static_cast<void *>(slot.buffer.memory.data()) == static_cast<void *>(tensor.elements(0))) {
                STAND_IN_RULE(slot.state == state, "hands a tensor to a queue out of turn");
                return slot;
            }
        }
        STAND_IN_RULE(false, "hands a queue a tensor of another");
        return slots_[0];
    }
    std::vector<Slot> slots_;
    uint64_t next_ = 0;
};

template <TPosition position> class TBuf {
public:
    template <typename Element> LocalTensor<Element> Get() { return buffer_.template tensor<Element>(); }
    void stand_in_init(uint32_t bytes) { buffer_.allocate(bytes); }

private:
    StandInBuffer buffer_;
};

class TPipe {
public:
    template <TPosition position, int32_t depth> void InitBuffer(TQue<position, depth> &queue, uint8_t count, uint32_t bytes)
    {
        take(static_cast<uint64_t>(count) * bytes);
        queue.stand_in_init(count, bytes);
    }
    template <TPosition position> void InitBuffer(TBuf<position> &buffer, uint32_t bytes)
    {
        take(bytes);
        buffer.stand_in_init(bytes);
    }
    TEventID FetchEventID(HardEvent) { return 0; }

private:
    void take(uint64_t bytes)
    {
        taken_ += (bytes + 31) / 32 * 32;
        STAND_IN_RULE(taken_ <= 192 * 1024, "takes more than the 192 KiB of local memory");
    }
    uint64_t taken_ = 0;
};

struct DataCopyExtParams {
    uint16_t blockCount;
    uint32_t blockLen;
    uint32_t srcStride;
    uint32_t dstStride;
    uint32_t rsv;
};
template <typename Element> struct DataCopyPadExtParams {
    bool isPad;
    uint8_t leftPadding;
    uint8_t rightPadding;
    Element paddingValue;
};

template <typename Element>
void DataCopyPad(const LocalTensor<Element> &to, const GlobalTensor<Element> &from, const DataCopyExtParams &copy,
                 const DataCopyPadExtParams<Element> &)
{
    const uint64_t count = copy.blockLen / sizeof(Element);
    std::memcpy(static_cast<void *>(to.elements(count)), from.elements(count), copy.blockLen);
}
template <typename Element>
void DataCopyPad(const GlobalTensor<Element> &to, const LocalTensor<Element> &from, const DataCopyExtParams &copy)
{
    const uint64_t count = copy.blockLen / sizeof(Element);
    StandInCore &core = stand_in_core();
    STAND_IN_RULE(!core.scalars_to_copies.has(from.elements(count), count), "copies what a scalar may not have written");
    core.copies_to_scalars.add(from.elements(count), count);
    std::memcpy(static_cast<void *>(to.elements(count)), from.elements(count), copy.blockLen);
}

template <typename Function>
void stand_in_each(const LocalTensor<float> &to, const LocalTensor<float> &from, int32_t count, Function function)
{
    const uint64_t elements = static_cast<uint64_t>(count);
    const float *in = stand_in_vector(from.elements(elements), elements);
    float *out = stand_in_vector(to.elements(elements), elements);
    for (int32_t at = 0; at < count; ++at) {
        out[at] = function(in[at]);
    }
}
inline void Adds(const LocalTensor<float> &to, const LocalTensor<float> &from, float scalar, int32_t count)
{
    stand_in_each(to, from, count, [scalar](float x) { return x + scalar; });
}
inline void Muls(const LocalTensor<float> &to, const LocalTensor<float> &from, float scalar, int32_t count)
{
    stand_in_each(to, from, count, [scalar](float x) { return x * scalar; });
}
inline void Exp(const LocalTensor<float> &to, const LocalTensor<float> &from, int32_t count)
{
    stand_in_each(to, from, count, [](float x) { return std::exp(x); });
}
inline void Cast(const LocalTensor<float> &to, const LocalTensor<half> &from, RoundMode, uint32_t count)
{
    const half *in = stand_in_vector(from.elements(count), count);
    float *out = stand_in_vector(to.elements(count), count);
    for (uint32_t at = 0; at < count; ++at) {
        out[at] = static_cast<float>(in[at]);
    }
}

/// The greatest and, as the bits of an integer behind it, where it is. NaN is passed over.
inline void ReduceMax(const LocalTensor<float> &to, const LocalTensor<float> &from, const LocalTensor<float> &, int32_t count,
                      bool calIndex)
{
    const uint64_t elements = static_cast<uint64_t>(count);
    const float *in = stand_in_vector(from.elements(elements), elements);
    float *out = stand_in_vector(to.elements(2), 2);
    float greatest = -std::numeric_limits<float>::infinity();
    int32_t place = 0;
    for (int32_t at = 0; at < count; ++at) {
        if (in[at] > greatest) {
            greatest = in[at];
            place = at;
        }
    }
    out[0] = greatest;
    if (calIndex) {
        std::memcpy(out + 1, &place, sizeof place);
    }
}

inline float stand_in_sum(const float *values, int32_t count)
{
    return count == 1 ? values[0] : stand_in_sum(values, count / 2) + stand_in_sum(values + count / 2, count - count / 2);
}
inline void ReduceSum(const LocalTensor<float> &to, const LocalTensor<float> &from, const LocalTensor<float> &, int32_t count)
{
    const uint64_t elements = static_cast<uint64_t>(count);
    const float *in = stand_in_vector(from.elements(elements), elements);
    *stand_in_vector(to.elements(1), 1) = stand_in_sum(in, count);
}

} // namespace AscendC

#endif
