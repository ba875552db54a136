// The installed libatb: which one it is, and whether its C++ ABI is this shim's.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "internal.hpp"

namespace spec_atb {
namespace {

thread_local std::string last_error;

// `std::string Utils::GetAtbVersion()`: what it returns is part of its mangled name, and tells the two ABIs apart. Every
// other name that the shim uses is the same in both.
constexpr const char *VERSION_OF_NEW_ABI = "_ZN3atb5Utils13GetAtbVersionB5cxx11Ev";
constexpr const char *VERSION_OF_OLD_ABI = "_ZN3atb5Utils13GetAtbVersionEv";

struct Found {
    int32_t abi = -1;
    std::string path;
    /// Null unless the ABI is this shim's.
    std::string (*version)() = nullptr;
};

Found look()
{
    Found found;
    auto create = static_cast<atb::Status (*)(atb::Context **)>(&atb::CreateContext);
    Dl_info info{};
    if (!is_there(create) || dladdr(reinterpret_cast<void *>(create), &info) == 0 || info.dli_fname == nullptr) {
        return found;
    }
    found.path = info.dli_fname;
    // It is loaded already, and stays: the handle is only for asking.
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) {
        return found;
    }
    void *new_abi = dlsym(library, VERSION_OF_NEW_ABI);
    void *old_abi = dlsym(library, VERSION_OF_OLD_ABI);
    found.abi = new_abi != nullptr ? 1 : old_abi != nullptr ? 0 : -1;
    if (found.abi == _GLIBCXX_USE_CXX11_ABI) {
        found.version = reinterpret_cast<std::string (*)()>(found.abi == 1 ? new_abi : old_abi);
    }
    dlclose(library);
    return found;
}

const Found &library()
{
    static const Found found = look();
    return found;
}

spec_atb_status judge(const Found &found, const char *what) noexcept
{
    if (found.path.empty()) {
        return fail(SPEC_ATB_ERROR_LIBRARY, what, "no libatb.so is loaded: the shim was linked without it");
    }
    if (found.abi < 0) {
        return fail(SPEC_ATB_ERROR_LIBRARY, what, "libatb.so has neither of the version symbols that tell its C++ ABI");
    }
    if (found.abi != _GLIBCXX_USE_CXX11_ABI) {
        return fail(SPEC_ATB_ERROR_ABI, what,
                    found.abi == 1 ? "libatb.so is of cxx_abi_1, the shim of cxx_abi_0"
                                   : "libatb.so is of cxx_abi_0, the shim of cxx_abi_1");
    }
    return 0;
}

void copy(char *destination, size_t size, const std::string &text)
{
    const size_t length = std::min(size - 1, text.size());
    std::memcpy(destination, text.data(), length);
    std::memset(destination + length, 0, size - length);
}

} // namespace

spec_atb_status fail(spec_atb_status status, const char *what, const char *why) noexcept
{
    try {
        last_error = std::string(what) + ": " + why;
    } catch (...) {
        last_error.clear();
    }
    return status;
}

spec_atb_status from_atb(atb::Status status, const char *what) noexcept
{
    return status == 0 ? 0 : fail(status, what, "ATB refused; its log has the reason");
}

spec_atb_status usable(const char *what) noexcept
{
    try {
        last_error.clear();
        return judge(library(), what);
    } catch (...) {
        return fail(SPEC_ATB_ERROR_EXCEPTION, what, "looking for libatb failed");
    }
}

bool flag(uint32_t value, const char *name)
{
    if (value > 1) {
        throw std::invalid_argument(std::string(name) + " is a truth value, 0 or 1");
    }
    return value == 1;
}

uint8_t narrow(uint32_t value, const char *name)
{
    if (value > 127) {
        throw std::invalid_argument(std::string(name) + " does not fit the 8 bits that ATB keeps it in");
    }
    return static_cast<uint8_t>(value);
}

void reserved(uint32_t value)
{
    if (value != 0) {
        throw std::invalid_argument("a reserved field is not 0");
    }
}

} // namespace spec_atb

extern "C" uint32_t spec_atb_abi_version(void)
{
    return SPEC_ATB_ABI_VERSION;
}

extern "C" spec_atb_status spec_atb_probe(spec_atb_probe_result *result)
{
    using namespace spec_atb;
    if (result == nullptr) {
        return null("spec_atb_probe");
    }
    try {
        const Found &found = library();
        result->shim_cxx11_abi = _GLIBCXX_USE_CXX11_ABI;
        result->atb_cxx11_abi = found.abi;
        copy(result->atb_path, sizeof result->atb_path, found.path);
        copy(result->atb_version, sizeof result->atb_version, found.version == nullptr ? "" : found.version());
        return judge(found, "spec_atb_probe");
    } catch (const std::exception &exception) {
        return fail(SPEC_ATB_ERROR_EXCEPTION, "spec_atb_probe", exception.what());
    } catch (...) {
        return fail(SPEC_ATB_ERROR_EXCEPTION, "spec_atb_probe", "an exception that is no std::exception");
    }
}

// Megabytes; `cargo xtask build-atb --max-ws-size` sets it.
#ifndef SPEC_ATB_MAX_WS_SIZE
#define SPEC_ATB_MAX_WS_SIZE 2048
#endif

extern "C" uint64_t spec_atb_workspace_ceiling(void)
{
    return static_cast<uint64_t>(SPEC_ATB_MAX_WS_SIZE) << 20;
}

extern "C" const char *spec_atb_last_error(void)
{
    return spec_atb::last_error.c_str();
}
