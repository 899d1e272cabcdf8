#include "fiber.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

namespace standin {

namespace {
constexpr size_t page = 4096;
// As much local memory as a thread's arrays may take here.
constexpr size_t stack_bytes = 256 * 1024;
} // namespace

#if defined(__x86_64__)
extern "C" void standin_switch(void **from, void *to);
asm(R"(
.text
.globl standin_switch
.hidden standin_switch
.type standin_switch, @function
standin_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size standin_switch, .-standin_switch
)");
#elif defined(__aarch64__)
extern "C" void standin_switch(void **from, void *to);
asm(R"(
.text
.globl standin_switch
.hidden standin_switch
.type standin_switch, %function
standin_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size standin_switch, .-standin_switch
)");
#endif

void switch_context(Context &from, Context &to) {
#if defined(__x86_64__) || defined(__aarch64__)
    standin_switch(&from.stack_pointer, to.stack_pointer);
#else
    swapcontext(&from.context, &to.context);
#endif
}

Fiber::Fiber(unsigned number) {
    void *map = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    map_ = static_cast<char *>(map);
    mprotect(map_, page, PROT_NONE);
    // The same frame of many threads would fall into one cache set otherwise.
    top_ = page + stack_bytes - (number % 16) * 192;
}

Fiber::~Fiber() { munmap(map_, page + stack_bytes); }

void Fiber::prepare(void (*entry)()) {
    uintptr_t top = reinterpret_cast<uintptr_t>(map_ + top_) & ~uintptr_t(15);
#if defined(__x86_64__)
    // As after a call: the return address at 16 n + 8.
    auto slots = reinterpret_cast<void **>(top - 64);
    for (int i = 0; i < 8; i++) slots[i] = nullptr;
    slots[6] = reinterpret_cast<void *>(entry);
    context.stack_pointer = slots;
#elif defined(__aarch64__)
    auto slots = reinterpret_cast<void **>(top - 160);
    for (int i = 0; i < 20; i++) slots[i] = nullptr;
    slots[11] = reinterpret_cast<void *>(entry); // x30
    context.stack_pointer = slots;
#else
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = map_ + page;
    context.context.uc_stack.ss_size = top_ - page;
    context.context.uc_link = nullptr;
    makecontext(&context.context, entry, 0);
    (void)top;
#endif
}

bool Fiber::guard_holds(const void *address) const {
    auto a = static_cast<const char *>(address);
    return a >= map_ && a < map_ + page;
}

} // namespace standin
