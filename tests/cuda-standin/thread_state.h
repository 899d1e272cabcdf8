// What a kernel knows of its own thread. Shared by the prelude, which kernels
// are compiled with, and the executor, which sets it before a thread runs.
#pragma once

struct standin_index {
    unsigned x, y, z;
};

struct standin_thread {
    standin_index thread_index;
    standin_index block_index;
    standin_index block_size;
    standin_index grid_size;
    void *dynamic_shared;
};

extern "C" {
// The thread that runs now on this host thread. `__thread` and not
// `thread_local`: no initializer is looked for at each use.
extern __thread standin_thread *standin_self __attribute__((tls_model("initial-exec")));

enum standin_collective {
    STANDIN_SHUFFLE_INDEX,
    STANDIN_SHUFFLE_UP,
    STANDIN_SHUFFLE_DOWN,
    STANDIN_SHUFFLE_XOR,
    STANDIN_BALLOT,
    STANDIN_REDUCE_ADD,
    STANDIN_REDUCE_MIN_SIGNED,
    STANDIN_REDUCE_MAX_SIGNED,
    STANDIN_REDUCE_MIN_UNSIGNED,
    STANDIN_REDUCE_MAX_UNSIGNED,
    STANDIN_REDUCE_AND,
    STANDIN_REDUCE_OR,
    STANDIN_REDUCE_XOR,
    STANDIN_SYNC_WARP,
};

// Waits for all threads of the block; returns how many of them came with a
// predicate that is not zero.
int standin_barrier(int predicate, int line);
// Waits for the lanes of `mask` and combines their values.
unsigned long long standin_warp(int collective, unsigned mask, unsigned long long value,
                                unsigned argument, unsigned width, int line);
// Ends the launch as a failed assertion.
void standin_assert_failed(const char *expression, int line) __attribute__((noreturn));
void *standin_dynamic_shared(void);
}
