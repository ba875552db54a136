// Linked beside a program, with -Wl,--wrap=aclrtResetDevice: when the program gives its device back, which would free whatever is left
// there, and when it ends, nothing may be alive on the simulated device, and nothing may have happened that strict mode notes.
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <unistd.h>

extern "C" {
uint64_t ascend_sim_alive(char *buffer, uint64_t size);
uint64_t ascend_sim_leaks(char *buffer, uint64_t size);
uint64_t ascend_sim_violations(char *buffer, uint64_t size);
int __real_aclrtResetDevice(int32_t device);
int __wrap_aclrtResetDevice(int32_t device);
}

namespace {
using List = uint64_t (*)(char *, uint64_t);

void expect_nothing(const char *when, std::initializer_list<List> lists)
{
    static char text[4096];
    for (List list : lists) {
        if (list(text, sizeof text) != 0) {
            std::fprintf(stderr, "%s: %s\n", when, text);
            _exit(9);
        }
    }
}

struct AtExit {
    ~AtExit()
    {
        expect_nothing("at the end", {ascend_sim_alive, ascend_sim_leaks, ascend_sim_violations});
        std::fputs("at the end: nothing\n", stderr);
    }
} at_exit;
} // namespace

int __wrap_aclrtResetDevice(int32_t device)
{
    expect_nothing("giving the device back", {ascend_sim_alive});
    return __real_aclrtResetDevice(device);
}
