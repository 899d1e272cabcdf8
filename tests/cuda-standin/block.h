// Runs one block of a kernel after the other on the calling host thread.
#pragma once
#include "thread_state.h"

#include <cstddef>
#include <string>

namespace standin {

struct Kernel {
    std::string name;
    void (*call)(void **parameters);
    // Static shared memory of the kernel's module on this host thread.
    void *(*static_shared)(void *module);
    void *module;
    size_t static_shared_bytes;
};

struct Launch {
    const Kernel *kernel;
    void **parameters;
    standin_index grid;
    standin_index block;
    size_t dynamic_shared;
};

// Why a launch failed: a CUresult and words for it.
struct Failure {
    int code = 0;
    std::string text;
    explicit operator bool() const { return code != 0; }
};

// Runs the block of this linear index.
Failure run_block(const Launch &launch, size_t block);

// Catches what kernels do to memory that is not theirs.
void install_fault_handler();

} // namespace standin
