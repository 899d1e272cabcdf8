#include "control.h"
#include "memory.h"
#include "status.h"
#include "stream.h"
#include "team.h"

#include <atomic>
#include <cstdlib>

namespace standin {

namespace {
std::atomic<long long> calls_left{0}; // until the device is lost; 0: never
std::atomic<long long> launches_left{0};
std::atomic<unsigned long long> launches{0};
std::atomic<bool> lost{false};
std::atomic<bool> reverse_order{false};

unsigned long long number(const char *variable) {
    const char *text = getenv(variable);
    return text ? strtoull(text, nullptr, 10) : 0;
}
} // namespace

int enter_call() {
    if (calls_left && --calls_left == 0) lost = true;
    if (lost) return explain(cuda_unknown, "the device was lost, as the test asked for");
    return sticky();
}

bool reversed() { return reverse_order; }

bool launch_fails() {
    launches++;
    return launches_left && --launches_left == 0;
}

} // namespace standin

using namespace standin;

extern "C" {
void standin_set_memory(uint64_t bytes) { memory().set_size(bytes); }
uint64_t standin_used_memory(void) { return memory().used(); }
uint64_t standin_peak_memory(void) { return memory().peak(); }
void standin_reset_peak(void) { memory().reset_peak(); }
uint64_t standin_live_allocations(void) { return memory().live(); }
uint64_t standin_allocations(void) { return memory().allocations(); }
uint64_t standin_launches(void) { return launches; }
// What a kernel computes must not depend on these two.
void standin_set_reverse(uint64_t on) { reverse_order = on != 0; }
void standin_set_host_threads(uint64_t n) { set_host_threads(n); }
// The n-th from now on, 1 being the next; 0 takes it back.
void standin_fail_allocation(uint64_t n) { memory().fail_allocation(n); }
void standin_fail_launch(uint64_t n) { launches_left = (long long)n; }
void standin_lose_device(uint64_t after_calls) { calls_left = (long long)after_calls; }
// A device as new: no failure is set or remembered. What is allocated stays.
void standin_recover(void) {
    calls_left = 0, launches_left = 0, lost = false;
    memory().fail_allocation(0);
    memory().reset_peak();
    clear_sticky();
    forget_explanations();
}
}

namespace {
// For programs that a test starts.
struct FromEnvironment {
    FromEnvironment() {
        if (auto n = number("STANDIN_MEMORY")) standin_set_memory(n);
        standin_fail_allocation(number("STANDIN_FAIL_ALLOCATION"));
        standin_fail_launch(number("STANDIN_FAIL_LAUNCH"));
        standin_lose_device(number("STANDIN_LOSE_DEVICE"));
    }
} from_environment;
} // namespace
