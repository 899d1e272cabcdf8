// Threads of a block as fibres. A thread runs until it must wait for others;
// one that never waits costs no switch: the next starts on the same stack.
#include "control.h"
#include "memory.h"
#include "runner.h"
#include "status.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

__attribute__((tls_model("initial-exec"))) __thread standin_thread *standin_self;

namespace standin {

__thread Runner *runner;

namespace {
constexpr size_t page = 4096, shared_bytes = 256 * 1024, signal_stack_bytes = 64 * 1024;

Runner &this_runner() {
    static thread_local std::unique_ptr<Runner> mine;
    if (!mine) mine.reset(new Runner);
    runner = mine.get();
    return *mine;
}

} // namespace

Runner::Runner() : signal_stack_(new char[signal_stack_bytes]) {
    // Signals come on a stack of their own: the fibre's may be the fault.
    stack_t stack = {};
    stack.ss_sp = signal_stack_.get();
    stack.ss_size = signal_stack_bytes;
    sigaltstack(&stack, nullptr);
    // Ends at a page that cannot be touched, as dynamic shared memory does.
    shared_map_ = static_cast<char *>(mmap(nullptr, shared_bytes + page, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mprotect(shared_map_ + shared_bytes, page, PROT_NONE);
}

Runner::~Runner() {
    runner = nullptr;
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(shared_map_, shared_bytes + page);
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
    if (a >= shared_map_ + shared_bytes && a < shared_map_ + shared_bytes + page)
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

namespace {

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
void standin_assert_failed(const char *expression, int line) {
    standin::runner->fail(standin::cuda_assert,
                          "an assertion failed at line " + std::to_string(line) + ": " + expression);
}
void *standin_dynamic_shared(void) {
    return standin::runner && standin::runner->active ? standin::runner->dynamic_shared() : nullptr;
}
}
