// Stacks that threads of a block run on, and the switch between them.
#pragma once
#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace standin {

// Where a stack stands while another one runs.
struct Context {
#if defined(__x86_64__) || defined(__aarch64__)
    void *stack_pointer = nullptr;
#else
    ucontext_t context;
#endif
};

// Saves into `from`, goes on at `to`.
void switch_context(Context &from, Context &to);

class Fiber {
public:
    explicit Fiber(unsigned number);
    ~Fiber();
    Fiber(const Fiber &) = delete;
    // The next switch to it calls `entry`, which must never return.
    void prepare(void (*entry)());
    bool guard_holds(const void *address) const;
    Context context;

private:
    char *map_;
    size_t top_;
};

} // namespace standin
