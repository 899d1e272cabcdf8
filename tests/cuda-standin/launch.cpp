// The driver's entry points of modules and launches.
#include "context.h"
#include "control.h"
#include "memory.h"
#include "module.h"
#include "status.h"
#include "team.h"

#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

using namespace standin;

#define ENTER(needs_context)                                                                   \
    if (int status = enter(needs_context)) return status

namespace {

constexpr size_t max_dynamic_shared = 163 * 1024;

// The values of a launch's parameters: they are the caller's until it returns.
struct Arguments {
    std::vector<std::vector<char>> bytes;
    std::vector<void *> pointers;
};

Failure run_grid(const Function &f, Arguments &arguments, standin_index grid, standin_index block, size_t shared) {
    Launch launch = {&f.kernel, arguments.pointers.data(), grid, block, shared};
    size_t blocks = size_t(grid.x) * grid.y * grid.z;
    bool reverse = reversed();
    return spread(blocks, [&](size_t b) { return run_block(launch, reverse ? blocks - 1 - b : b); });
}

int refuse(const Function &f, int status, const std::string &why) {
    return explain(status, "kernel `" + f.kernel.name + "`: " + why);
}

} // namespace

extern "C" {

int cuModuleLoadData(Module **module, const void *image) {
    ENTER(true);
    std::string error;
    auto m = Module::load(static_cast<const char *>(image), error);
    if (!m) return explain(cuda_invalid_image, error);
    return *module = m.release(), cuda_success;
}
int cuModuleLoadDataEx(Module **module, const void *image, unsigned, void *, void *) {
    return cuModuleLoadData(module, image);
}
int cuModuleLoad(Module **module, const char *path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return cuModuleLoadData(module, text.str().c_str());
}
int cuModuleUnload(Module *module) {
    ENTER(true);
    synchronize_all();
    delete module;
    return cuda_success;
}
int cuModuleGetFunction(Function **function, Module *module, const char *name) {
    ENTER(true);
    *function = module->function(name);
    return *function ? cuda_success : explain(cuda_not_found, std::string("no kernel `") + name + "` in the module");
}
int cuModuleGetGlobal_v2(unsigned long long *address, size_t *bytes, Module *module, const char *name) {
    ENTER(true);
    size_t n = 0;
    void *p = module->global(name, n);
    if (!p) return explain(cuda_not_found, std::string("no variable `") + name + "` in the module");
    if (address) *address = reinterpret_cast<unsigned long long>(p);
    if (bytes) *bytes = n;
    return cuda_success;
}
int cuFuncGetAttribute(int *value, int attribute, Function *f) {
    ENTER(true);
    switch (attribute) {
    case 0: *value = int(f->max_threads); break;
    case 1: *value = int(f->kernel.static_shared_bytes); break;
    case 4: *value = 32; break; // registers: unknown here
    case 5: case 6: *value = 80; break;
    case 8: *value = int(f->max_dynamic_shared); break;
    default: *value = 0; break;
    }
    return cuda_success;
}
int cuFuncSetAttribute(Function *f, int attribute, int value) {
    ENTER(true);
    if (attribute == 8) {
        if (value < 0 || size_t(value) > max_dynamic_shared)
            return refuse(*f, cuda_invalid_value, std::to_string(value) + " bytes of shared memory; the device has " +
                                                      std::to_string(max_dynamic_shared));
        f->max_dynamic_shared = size_t(value);
    }
    return cuda_success;
}
int cuFuncSetCacheConfig(Function *, int) {
    ENTER(true);
    return cuda_success;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *, int threads, size_t) {
    ENTER(true);
    if (threads < 1) return cuda_invalid_value;
    return *blocks = threads > 2048 ? 0 : 2048 / threads, cuda_success;
}

int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    ENTER(true);
    if (!f || extra) return cuda_invalid_value;
    if (!gx || !gy || !gz || gx > 2147483647u || gy > 65535 || gz > 65535)
        return refuse(*f, cuda_invalid_value, "a grid of " + std::to_string(gx) + " × " + std::to_string(gy) + " × " +
                                                  std::to_string(gz) + " blocks");
    if (!bx || !by || !bz || bx > 1024 || by > 1024 || bz > 64 || size_t(bx) * by * bz > 1024)
        return refuse(*f, cuda_invalid_value, "a block of " + std::to_string(bx) + " × " + std::to_string(by) + " × " +
                                                  std::to_string(bz) + " threads");
    if (bx * by * bz > f->max_threads)
        return refuse(*f, cuda_launch_out_of_resources, std::to_string(bx * by * bz) +
                                                            " threads, more than its launch bounds of " +
                                                            std::to_string(f->max_threads));
    if (shared > f->max_dynamic_shared)
        return refuse(*f, cuda_invalid_value, std::to_string(shared) + " bytes of dynamic shared memory, more than the " +
                                                  std::to_string(f->max_dynamic_shared) + " that it may use");
    auto arguments = std::make_shared<Arguments>();
    for (size_t i = 0; i < f->parameter_bytes.size(); i++) {
        auto p = static_cast<const char *>(parameters[i]);
        arguments->bytes.emplace_back(p, p + f->parameter_bytes[i]);
    }
    for (auto &b : arguments->bytes) arguments->pointers.push_back(b.data());
    standin_index grid = {gx, gy, gz}, block = {bx, by, bz};
    return enqueue_launch(stream, f->kernel.name,
                          [=] { return run_grid(*f, *arguments, grid, block, shared); });
}
}
