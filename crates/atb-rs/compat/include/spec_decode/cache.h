// What was computed from a tensor, kept on the device until it is needed again.
#ifndef SPEC_DECODE_CACHE_H
#define SPEC_DECODE_CACHE_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "spec_decode/status.h"
#include "spec_decode/tensors.h"

namespace atb {
namespace spec_decode {

/// Values by the content of their keys: type, shape and bytes. What was used least recently goes first when room is short.
///
/// The cache owns the device memory of what it holds, and frees it when it goes: values are not the caller's to free once Put took
/// them. It has to go before AscendCL ends. One thread at a time.
template <class Tensor>
class Cache {
public:
    Cache() = default;
    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;
    ~Cache() { Clear(); }

    /// Empties it, and gives it a name, for the log, and room for so many bytes of keys and values.
    Status Init(const std::string &name, size_t bytes)
    {
        Clear();
        name_ = name;
        room_ = bytes;
        return bytes > 0 ? kOk : fail(kInit, kInvalidParam, "cache " + name + " has no room");
    }

    /// Whether there is a value for this key.
    bool Hit(const Tensor &key)
    {
        Key wanted;
        return ReadKey(kHit, key, wanted) == kOk && Find(wanted) != entries_.end();
    }

    /// The value for this key: the cache's own memory, valid until the value is evicted. An empty tensor when there is none.
    Tensor Get(const Tensor &key)
    {
        Key wanted;
        if (ReadKey(kGet, key, wanted) != kOk) {
            return Tensor{};
        }
        const auto found = Find(wanted);
        if (found == entries_.end()) {
            fail(kGet, kInvalidParam, "cache " + name_ + " has no value for this key; ask Hit first");
            return Tensor{};
        }
        entries_.splice(entries_.begin(), entries_, found);
        return entries_.front().value;
    }

    /// Keeps `value` for this key, in the place of an older one, and takes over its device memory. When it fails, the memory is still the
    /// caller's.
    Status Put(const Tensor &key, const Tensor &value)
    {
        Entry entry{{}, value};
        if (Status status = ReadKey(kPut, key, entry.key)) {
            return status;
        }
        if (value.deviceData == nullptr) {
            return fail(kPut, kInvalidTensorAddress, "the value has no device memory");
        }
        const auto is_same = [&value](const Entry &other) { return other.value.deviceData == value.deviceData; };
        if (std::any_of(entries_.begin(), entries_.end(), is_same)) {
            return fail(kPut, kInvalidParam, "cache " + name_ + " owns the value's memory already");
        }
        if (Bytes(entry) > room_) {
            return fail(kPut, kInvalidTensorSize,
                        std::to_string(Bytes(entry)) + " bytes in a cache of " + std::to_string(room_) + ": it stays the caller's");
        }
        if (const auto older = Find(entry.key); older != entries_.end()) {
            Evict(older);
        }
        while (used_ > room_ - Bytes(entry)) {
            Evict(std::prev(entries_.end()));
        }
        used_ += Bytes(entry);
        entries_.push_front(std::move(entry));
        return kOk;
    }

private:
    static constexpr const char *kInit = "atb::CacheManager::Init";
    static constexpr const char *kHit = "atb::CacheManager::Hit";
    static constexpr const char *kGet = "atb::CacheManager::Get";
    static constexpr const char *kPut = "atb::CacheManager::Put";

    struct Key {
        int dtype = 0;
        std::vector<int64_t> dims;
        std::vector<unsigned char> bytes;

        bool operator==(const Key &other) const
        {
            return dtype == other.dtype && dims == other.dims && bytes == other.bytes;
        }
    };

    struct Entry {
        Key key;
        Tensor value;
    };

    using Entries = std::list<Entry>;

    static Status ReadKey(const char *where, const Tensor &tensor, Key &key)
    {
        const auto &shape = tensor.desc.shape;
        if (shape.dimNum > std::size(shape.dims)) {
            return fail(where, kInvalidTensorDim, std::to_string(shape.dimNum) + " dimensions");
        }
        key.dtype = static_cast<int>(tensor.desc.dtype);
        key.dims.assign(shape.dims, shape.dims + shape.dimNum);
        return read(where, tensor, key.bytes);
    }

    static size_t Bytes(const Entry &entry) { return entry.key.bytes.size() + entry.value.dataSize; }

    typename Entries::iterator Find(const Key &key)
    {
        return std::find_if(entries_.begin(), entries_.end(), [&key](const Entry &entry) { return entry.key == key; });
    }

    void Evict(typename Entries::iterator entry)
    {
        used_ -= Bytes(*entry);
        check(kPut, aclrtFree(entry->value.deviceData), "aclrtFree");
        entries_.erase(entry);
    }

    void Clear()
    {
        while (!entries_.empty()) {
            Evict(entries_.begin());
        }
    }

    std::string name_;
    size_t room_ = 0;
    size_t used_ = 0;
    /// The one that was used last comes first.
    Entries entries_;
};

} // namespace spec_decode
} // namespace atb

#endif
