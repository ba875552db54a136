// Statuses with ATB's numbers, and a log: programs that ignore statuses should still be told.
#ifndef SPEC_DECODE_STATUS_H
#define SPEC_DECODE_STATUS_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "spec_decode/acl.h"

namespace atb {

/// As in ATB: 0, one of ATB's error numbers, or from 100000 on one of AscendCL's.
using Status = int32_t;

namespace spec_decode {

constexpr Status kOk = 0;
constexpr Status kInvalidParam = 1;
constexpr Status kInternalError = 3;
constexpr Status kRuntimeFailed = 4;
constexpr Status kInvalidTensorDtype = 6;
constexpr Status kInvalidTensorDim = 8;
constexpr Status kInvalidTensorSize = 9;
constexpr Status kInvalidTensorAddress = 14;

/// A line on standard error.
inline void log(const char *where, const std::string &text)
{
    std::fprintf(stderr, "[spec_decode] %s: %s\n", where, text.c_str());
}

/// Logs a failure, and gives its status.
inline Status fail(const char *where, Status status, const std::string &text)
{
    log(where, text + " (status " + std::to_string(status) + ")");
    return status;
}

/// Logs a call of AscendCL that failed, with the library's own words, and gives its status.
inline Status check(const char *where, aclError status, const char *call)
{
    if (status == 0) {
        return kOk;
    }
    const char *words = aclGetRecentErrMsg();
    return fail(where, status, std::string(call) + " failed" + (words != nullptr ? std::string(": ") + words : ""));
}

/// Whether SPEC_DECODE_DEBUG asks for a line about each generation.
inline bool is_verbose()
{
    const char *value = std::getenv("SPEC_DECODE_DEBUG");
    return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

} // namespace spec_decode
} // namespace atb

#endif
