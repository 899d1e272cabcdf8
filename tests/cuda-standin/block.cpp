// Threads of a block as fibres. A thread runs until it must wait for others;
// one that never waits costs no switch: the next starts on the same stack.
#include "block.h"
#include "control.h"
#include "fiber.h"
#include "memory.h"
#include "status.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <vector>

__attribute__((tls_model("initial-exec"))) __thread standin_thread *standin_self;

namespace standin {

namespace {

enum class Waits : uint8_t { no, barrier, warp, exited };

struct Thread {
    standin_thread state;
    Fiber *fiber;
    Waits waits;
    int line;
    // Of the warp operation that it waits in.
    int collective;
    unsigned mask, argument, width;
    uint64_t value; // and then its result
};

struct Warp {
    unsigned ready;   // may run: not started yet, or released
    unsigned alive;   // exist and have not returned
    unsigned arrived; // wait in a warp operation
};

class Runner {
public:
    Runner();
    Failure run(const Launch &launch, size_t block);
    int barrier(int predicate, int line);
    uint64_t warp(int collective, unsigned mask, uint64_t value, unsigned argument, unsigned width,
                  int line);
    [[noreturn]] void fail(int code, std::string text);
    void *dynamic_shared() const { return dynamic_; }
    bool active = false;
    sigjmp_buf fault;
    Failure failure;
    const void *fault_address = nullptr;
    int fault_signal = 0;

private:
    static void fiber_main();
    void thread_loop();
    void wait(Waits what);
    void resume(unsigned t);
    int pick();
    void release(unsigned w, unsigned group);
    void release_complete(unsigned w);
    void combine(unsigned w, unsigned group);
    Fiber *take_fiber();
    void reset_fibers();
    std::string where() const;
    std::string deadlock() const;
    Failure fault_failure() const;

    const Launch *launch_ = nullptr;
    Context host_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber *> idle_;
    std::vector<Thread> threads_;
    std::vector<Warp> warps_;
    unsigned n_ = 0, live_ = 0, waiting_ = 0, current_ = 0;
    int predicates_ = 0, barrier_result_ = 0;
    bool reverse_ = false;
    char *shared_map_;
    void *dynamic_ = nullptr;
};

constexpr size_t shared_bytes = 256 * 1024;
thread_local Runner *runner = nullptr;

Runner &this_runner() {
    static thread_local std::unique_ptr<Runner> mine;
    if (!mine) mine.reset(new Runner);
    runner = mine.get();
    return *mine;
}

Runner::Runner() {
    // Signals come on a stack of their own: the fibre's may be the fault.
    static thread_local std::unique_ptr<char[]> signal_stack(new char[65536]);
    stack_t stack = {};
    stack.ss_sp = signal_stack.get();
    stack.ss_size = 65536;
    sigaltstack(&stack, nullptr);
    // Ends at a page that cannot be touched, as dynamic shared memory does.
    shared_map_ = static_cast<char *>(mmap(nullptr, shared_bytes + 4096, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mprotect(shared_map_ + shared_bytes, 4096, PROT_NONE);
}

Fiber *Runner::take_fiber() {
    if (idle_.empty()) {
        fibers_.emplace_back(new Fiber(unsigned(fibers_.size())));
        fibers_.back()->prepare(fiber_main);
        return fibers_.back().get();
    }
    Fiber *f = idle_.back();
    idle_.pop_back();
    return f;
}

// After a failure the fibres stand in the middle of kernels.
void Runner::reset_fibers() {
    idle_.clear();
    for (auto &f : fibers_) {
        f->prepare(fiber_main);
        idle_.push_back(f.get());
    }
}

void Runner::fiber_main() { runner->thread_loop(); }

void Runner::thread_loop() {
    for (;;) {
        Thread &t = threads_[current_];
        standin_self = &t.state;
        launch_->kernel->call(launch_->parameters);
        unsigned ended = current_, w = ended / 32;
        Fiber *mine = threads_[ended].fiber;
        threads_[ended].waits = Waits::exited;
        warps_[w].alive &= ~(1u << (ended % 32));
        live_--;
        if (warps_[w].arrived) release_complete(w);
        int next = pick();
        if (next < 0) {
            if (live_) fail(cuda_launch_failed, deadlock());
            idle_.push_back(mine);
            switch_context(mine->context, host_);
            continue;
        }
        current_ = unsigned(next);
        Thread &n = threads_[current_];
        if (!n.fiber) {
            n.fiber = mine;
        } else {
            idle_.push_back(mine);
            standin_self = &n.state;
            switch_context(mine->context, n.fiber->context);
        }
    }
}

// A thread that may run: of the current warp if there is one, else of the next.
int Runner::pick() {
    unsigned count = unsigned(warps_.size()), first = current_ / 32;
    for (unsigned i = 0; i < count; i++) {
        unsigned w = reverse_ ? (first + count - i) % count : (first + i) % count;
        unsigned ready = warps_[w].ready;
        if (!ready) continue;
        unsigned lane = reverse_ ? 31 - unsigned(__builtin_clz(ready)) : unsigned(__builtin_ctz(ready));
        warps_[w].ready &= ~(1u << lane);
        return int(w * 32 + lane);
    }
    return -1;
}

void Runner::resume(unsigned t) {
    Thread &from = threads_[current_];
    current_ = t;
    Thread &to = threads_[t];
    if (!to.fiber) to.fiber = take_fiber();
    standin_self = &to.state;
    switch_context(from.fiber->context, to.fiber->context);
}

void Runner::wait(Waits what) {
    threads_[current_].waits = what;
    int next = pick();
    if (next < 0) fail(cuda_launch_failed, deadlock());
    resume(unsigned(next));
}

int Runner::barrier(int predicate, int line) {
    Thread &t = threads_[current_];
    t.line = line;
    predicates_ += predicate;
    if (++waiting_ < n_) {
        wait(Waits::barrier);
        return barrier_result_;
    }
    for (unsigned i = 0; i < n_; i++) {
        if (threads_[i].line != line)
            fail(cuda_launch_failed, where() + "threads met at different __syncthreads: thread " +
                                         std::to_string(i) + " at line " +
                                         std::to_string(threads_[i].line) + ", thread " +
                                         std::to_string(current_) + " at line " + std::to_string(line));
        threads_[i].waits = Waits::no;
    }
    for (auto &w : warps_) w.ready = w.alive;
    warps_[current_ / 32].ready &= ~(1u << (current_ % 32));
    waiting_ = 0;
    barrier_result_ = predicates_;
    predicates_ = 0;
    return barrier_result_;
}

uint64_t Runner::warp(int collective, unsigned mask, uint64_t value, unsigned argument,
                      unsigned width, int line) {
    Thread &t = threads_[current_];
    unsigned w = current_ / 32, lane = 1u << (current_ % 32);
    if (!(mask & lane))
        fail(cuda_illegal_instruction, where() + "line " + std::to_string(line) +
                                           ": a thread that is not in its own mask");
    if (!width || width > 32 || (width & (width - 1)))
        fail(cuda_illegal_instruction, where() + "line " + std::to_string(line) +
                                           ": the width of a shuffle is no power of two up to 32");
    t.collective = collective, t.mask = mask, t.value = value;
    t.argument = argument, t.width = width, t.line = line;
    t.waits = Waits::warp;
    warps_[w].arrived |= lane;
    unsigned group = mask & warps_[w].alive;
    if ((warps_[w].arrived & group) == group) {
        release(w, group);
        warps_[w].ready &= ~lane; // goes on at once
    } else {
        wait(Waits::warp);
    }
    return t.value;
}

void Runner::release(unsigned w, unsigned group) {
    combine(w, group);
    warps_[w].arrived &= ~group;
    warps_[w].ready |= group;
}

// After a lane has returned: others may have waited for it alone.
void Runner::release_complete(unsigned w) {
    for (unsigned left = warps_[w].arrived; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        unsigned group = threads_[w * 32 + lane].mask & warps_[w].alive;
        if ((warps_[w].arrived & group) == group && (warps_[w].arrived >> lane & 1)) release(w, group);
    }
}

namespace {

// `v` joined to what the lanes before it came to.
uint64_t reduce(int collective, uint64_t so_far, uint64_t v, bool first) {
    auto u = uint32_t(v), past = uint32_t(so_far);
    if (first) return u;
    switch (collective) {
    case STANDIN_REDUCE_ADD: return uint32_t(past + u);
    case STANDIN_REDUCE_MIN_SIGNED: return uint32_t(std::min(int32_t(past), int32_t(u)));
    case STANDIN_REDUCE_MAX_SIGNED: return uint32_t(std::max(int32_t(past), int32_t(u)));
    case STANDIN_REDUCE_MIN_UNSIGNED: return std::min(past, u);
    case STANDIN_REDUCE_MAX_UNSIGNED: return std::max(past, u);
    case STANDIN_REDUCE_AND: return past & u;
    case STANDIN_REDUCE_OR: return past | u;
    default: return past ^ u;
    }
}

unsigned source_lane(int collective, unsigned lane, unsigned argument, unsigned width) {
    unsigned base = lane & ~(width - 1), end = base + width;
    switch (collective) {
    case STANDIN_SHUFFLE_INDEX: return base + (argument & (width - 1));
    case STANDIN_SHUFFLE_UP: return lane < base + argument ? lane : lane - argument;
    case STANDIN_SHUFFLE_DOWN: return argument < end - lane ? lane + argument : lane;
    default: return (lane ^ argument) < end ? lane ^ argument : lane;
    }
}

} // namespace

void Runner::combine(unsigned w, unsigned group) {
    Thread *t = &threads_[w * 32];
    const Thread &first = t[__builtin_ctz(group)];
    int collective = first.collective;
    uint64_t values[32], total = 0;
    for (unsigned m = group; m; m &= m - 1) {
        unsigned lane = unsigned(__builtin_ctz(m));
        if (t[lane].collective != collective || t[lane].line != first.line || t[lane].mask != first.mask)
            fail(cuda_illegal_instruction,
                 where() + "lanes of a warp met in different operations, at lines " +
                     std::to_string(first.line) + " and " + std::to_string(t[lane].line));
        values[lane] = t[lane].value;
        t[lane].waits = Waits::no;
        if (collective == STANDIN_BALLOT)
            total |= uint64_t(values[lane] != 0) << lane;
        else if (collective > STANDIN_BALLOT)
            total = reduce(collective, total, values[lane], m == group);
    }
    for (unsigned m = group; m; m &= m - 1) {
        unsigned lane = unsigned(__builtin_ctz(m));
        if (collective > STANDIN_SHUFFLE_XOR) {
            t[lane].value = total;
            continue;
        }
        unsigned source = source_lane(collective, lane, t[lane].argument, t[lane].width);
        // From a lane that takes no part: undefined on the device, poison here.
        t[lane].value = group >> source & 1 ? values[source] : ~uint64_t(0);
    }
}

std::string Runner::where() const {
    const standin_index &b = threads_[current_].state.block_index;
    return "kernel `" + launch_->kernel->name + "`, block (" + std::to_string(b.x) + ", " +
           std::to_string(b.y) + ", " + std::to_string(b.z) + "): ";
}

std::string Runner::deadlock() const {
    unsigned barrier = 0, warp = 0, exited = 0;
    int barrier_line = 0, warp_line = 0;
    for (unsigned i = 0; i < n_; i++) {
        const Thread &t = threads_[i];
        if (t.waits == Waits::barrier) barrier++, barrier_line = t.line;
        if (t.waits == Waits::warp) warp++, warp_line = t.line;
        if (t.waits == Waits::exited) exited++;
    }
    std::string text = where() + "its threads wait for ever: of " + std::to_string(n_);
    if (barrier)
        text += ", " + std::to_string(barrier) + " in __syncthreads (line " + std::to_string(barrier_line) + ")";
    if (warp)
        text += ", " + std::to_string(warp) + " in a warp operation (line " + std::to_string(warp_line) + ")";
    return text + ", " + std::to_string(exited) + " have returned";
}

void Runner::fail(int code, std::string text) {
    failure = {code, std::move(text)};
    Context never_resumed;
    switch_context(never_resumed, host_);
    abort();
}

Failure Runner::fault_failure() const {
    if (fault_signal == SIGFPE)
        return {cuda_launch_failed, where() + "an integer division by zero"};
    if (fault_signal == SIGILL)
        return {cuda_illegal_instruction, where() + "a trap"};
    for (auto &f : fibers_)
        if (f->guard_holds(fault_address))
            return {cuda_launch_failed, where() + "a thread's local arrays overflow its stack of 256 KiB"};
    auto a = static_cast<const char *>(fault_address);
    if (a >= shared_map_ + shared_bytes && a < shared_map_ + shared_bytes + 4096)
        return {cuda_illegal_address,
                where() + "an access past the " + std::to_string(launch_->dynamic_shared) +
                    " bytes of its dynamic shared memory"};
    return {cuda_illegal_address, where() + "an illegal access: " + memory().describe(fault_address)};
}

Failure Runner::run(const Launch &launch, size_t block) {
    launch_ = &launch;
    reverse_ = reversed();
    n_ = launch.block.x * launch.block.y * launch.block.z;
    if (threads_.size() < n_) threads_.resize(n_);
    warps_.assign((n_ + 31) / 32, Warp{});
    standin_index at = {unsigned(block % launch.grid.x), unsigned(block / launch.grid.x % launch.grid.y),
                        unsigned(block / launch.grid.x / launch.grid.y)};
    dynamic_ = shared_map_ + shared_bytes - (launch.dynamic_shared + 15) / 16 * 16;
    for (unsigned i = 0; i < n_; i++) {
        Thread &t = threads_[i];
        t.state = {{i % launch.block.x, i / launch.block.x % launch.block.y,
                    i / launch.block.x / launch.block.y},
                   at, launch.block, launch.grid, dynamic_};
        t.fiber = nullptr;
        t.waits = Waits::no;
        warps_[i / 32].alive |= 1u << (i % 32);
    }
    for (auto &w : warps_) w.ready = w.alive;
    live_ = n_, waiting_ = 0, predicates_ = 0;
    current_ = reverse_ ? n_ - 1 : 0;
    // Shared memory holds nothing that a block may count on.
    memset(dynamic_, 0xff, size_t(shared_map_ + shared_bytes - static_cast<char *>(dynamic_)));
    if (size_t bytes = launch.kernel->static_shared_bytes)
        memset(launch.kernel->static_shared(launch.kernel->module), 0xff, bytes);

    failure = {};
    fault_signal = 0;
    if (sigsetjmp(fault, 1)) {
        active = false;
        if (fault_signal) failure = fault_failure();
        reset_fibers();
        standin_self = nullptr;
        return failure;
    }
    active = true;
    int first = pick();
    current_ = unsigned(first);
    Fiber *f = threads_[current_].fiber = take_fiber();
    switch_context(host_, f->context);
    active = false;
    standin_self = nullptr;
    if (failure) reset_fibers();
    return failure;
}

struct sigaction previous[65];

void on_fault(int signal, siginfo_t *info, void *context) {
    if (runner && runner->active) {
        runner->fault_signal = signal;
        runner->fault_address = info->si_addr;
        siglongjmp(runner->fault, 1);
    }
    // Not a kernel's: as if this handler were not there.
    const struct sigaction &old = previous[signal];
    if (old.sa_flags & SA_SIGINFO)
        old.sa_sigaction(signal, info, context);
    else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN)
        old.sa_handler(signal);
    else
        sigaction(signal, &old, nullptr);
}

} // namespace

Failure run_block(const Launch &launch, size_t block) { return this_runner().run(launch, block); }

void install_fault_handler() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &action, &previous[s]);
}

} // namespace standin

extern "C" {
int standin_barrier(int predicate, int line) { return standin::runner->barrier(predicate, line); }
unsigned long long standin_warp(int collective, unsigned mask, unsigned long long value,
                                unsigned argument, unsigned width, int line) {
    return standin::runner->warp(collective, mask, value, argument, width, line);
}
void standin_assert_failed(const char *expression, int line) {
    standin::runner->fail(standin::cuda_assert,
                          "an assertion failed at line " + std::to_string(line) + ": " + expression);
}
void *standin_dynamic_shared(void) {
    return standin::runner && standin::runner->active ? standin::runner->dynamic_shared() : nullptr;
}
}
