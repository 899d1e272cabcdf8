// The threads of the block that runs now on one host thread.
#pragma once
#include "block.h"
#include "fiber.h"

#include <csetjmp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace standin {

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
    ~Runner();
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
    std::unique_ptr<char[]> signal_stack_;
    char *shared_map_;
    void *dynamic_ = nullptr;
};

// This host thread's; null before its first block.
extern __thread Runner *runner;

} // namespace standin
