#include "module.h"
#include "memory.h"

#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

namespace standin {

namespace {

const char header[] = "// a kernel module of the CUDA stand-in\n// ";

// As the prelude writes it into a module.
struct Entry {
    void (*call)(void **);
    const unsigned *sizes;
    unsigned parameters;
    unsigned max_threads;
};

struct TlsQuery {
    const void *base;
    size_t bytes;
};

int find_tls(dl_phdr_info *info, size_t, void *data) {
    auto query = static_cast<TlsQuery *>(data);
    if (reinterpret_cast<const void *>(info->dlpi_addr) != query->base) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) query->bytes = info->dlpi_phdr[i].p_memsz;
    return 1;
}

void *static_shared(void *module) {
    auto m = static_cast<Module *>(module);
    m->touch(); // allocates this host thread's copy
    void *data = nullptr;
    dlinfo(m->handle, RTLD_DI_TLS_DATA, &data);
    return data;
}

} // namespace

std::string module_image(const std::string &path) { return header + path + "\n"; }

Module::~Module() {
    if (handle) dlclose(handle);
}

std::unique_ptr<Module> Module::load(const char *image, std::string &error) {
    if (strncmp(image, header, sizeof header - 1) != 0) {
        error = "an image that the stand-in's NVRTC has not made";
        return nullptr;
    }
    const char *start = image + sizeof header - 1;
    std::string path(start, strcspn(start, "\n"));
    std::unique_ptr<Module> m(new Module);
    m->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!m->handle) {
        error = dlerror();
        return nullptr;
    }
    link_map *map = nullptr;
    dlinfo(m->handle, RTLD_DI_LINKMAP, &map);
    m->touch = reinterpret_cast<void *(*)()>(dlsym(m->handle, "standin_touch_shared"));
    TlsQuery query = {reinterpret_cast<const void *>(map->l_addr), 0};
    dl_iterate_phdr(find_tls, &query);
    m->shared_bytes = query.bytes;
    return m;
}

Function *Module::function(const std::string &name) {
    auto found = functions.find(name);
    if (found != functions.end()) return found->second.get();
    auto entry = static_cast<const Entry *>(dlsym(handle, ("standin_entry_" + name).c_str()));
    // A kernel without `extern "C"` is there under a mangled name only.
    if (!entry || !dlsym(handle, name.c_str())) return nullptr;
    std::unique_ptr<Function> f(new Function);
    f->kernel = {name, entry->call, static_shared, this, shared_bytes};
    f->parameter_bytes.assign(entry->sizes, entry->sizes + entry->parameters);
    if (entry->max_threads) f->max_threads = entry->max_threads;
    f->module = this;
    return (functions[name] = std::move(f)).get();
}

void *Module::global(const char *name, size_t &bytes) {
    void *address = dlsym(handle, name);
    Dl_info info;
    ElfW(Sym) *symbol = nullptr;
    if (!address || !dladdr1(address, &info, reinterpret_cast<void **>(&symbol), RTLD_DL_SYMENT) || !symbol ||
        ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT)
        return nullptr;
    bytes = symbol->st_size;
    memory().add_global(address, bytes);
    return address;
}

} // namespace standin
