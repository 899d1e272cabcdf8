// Compiled kernels: shared objects that NVRTC's stand-in has made.
#pragma once
#include "block.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace standin {

struct Module;

struct Function {
    Kernel kernel;
    std::vector<unsigned> parameter_bytes;
    unsigned max_threads = 1024;
    size_t max_dynamic_shared = 48 * 1024;
    Module *module = nullptr;
};

struct Module {
    void *handle = nullptr;
    void *(*touch)() = nullptr;
    size_t shared_bytes = 0; // of the module's static shared variables
    std::map<std::string, std::unique_ptr<Function>> functions;
    ~Module();

    // From the text that stands for PTX and cubin; null with `error` set if
    // it is something else.
    static std::unique_ptr<Module> load(const char *image, std::string &error);
    Function *function(const std::string &name);
    // A `__device__` or `__constant__` variable.
    void *global(const char *name, size_t &bytes);
};

// What a compiled program is given out as: text, for it may be cached as PTX.
std::string module_image(const std::string &path);

} // namespace standin
