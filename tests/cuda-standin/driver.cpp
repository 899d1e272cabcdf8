// The driver's entry points: devices, contexts, streams, events, memory.
// Those of modules and launches are in launch.cpp.
#include "context.h"
#include "control.h"
#include "memory.h"
#include "status.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <vector>

namespace standin {

namespace {
std::atomic<bool> initialized{false};
std::atomic<int> retained{0};
char primary; // its address is the context's handle
thread_local std::vector<void *> current;

struct Event {
    std::shared_ptr<Mark> mark;
    bool timing;
};

typedef unsigned long long Pointer;
void *host(Pointer p) { return reinterpret_cast<void *>(p); }

Failure gone(const char *what) {
    return {cuda_illegal_address, std::string(what) + ": its memory was freed while it was queued"};
}
int outside(const char *what, Pointer p) {
    return explain(cuda_invalid_value, std::string(what) + ": not within one allocation: " + memory().describe(host(p)));
}
} // namespace

int enter(bool needs_context) {
    if (!initialized) return cuda_not_initialized;
    if (int status = enter_call()) return status;
    if (needs_context && (current.empty() || !current.back() || !retained))
        return explain(cuda_invalid_context, "no context is current on this thread");
    return cuda_success;
}

} // namespace standin

using namespace standin;

#define ENTER(needs_context)                                                                   \
    if (int status = enter(needs_context)) return status

extern "C" {

// ---------------------------------------------------------------- general

int cuInit(unsigned) {
    if (int status = enter_call()) return status;
    if (!initialized.exchange(true)) install_fault_handler();
    return cuda_success;
}
int cuDriverGetVersion(int *version) { return *version = 12099, cuda_success; }

// ----------------------------------------------------------------- device

int cuDeviceGetCount(int *count) {
    ENTER(false);
    return *count = 1, cuda_success;
}
int cuDeviceGet(int *device, int ordinal) {
    ENTER(false);
    if (ordinal != 0) return cuda_invalid_device;
    return *device = 0, cuda_success;
}
int cuDeviceGetName(char *name, int size, int device) {
    ENTER(false);
    if (device != 0) return cuda_invalid_device;
    snprintf(name, (size_t)size, "CUDA stand-in (CPU)");
    return cuda_success;
}
int cuDeviceGetUuid(unsigned char *uuid, int) {
    ENTER(false);
    memcpy(uuid, "pplx CUDA standin", 16);
    return cuda_success;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceTotalMem_v2(size_t *bytes, int) {
    ENTER(false);
    return *bytes = memory().size(), cuda_success;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER(false);
    if (device != 0) return cuda_invalid_device;
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break; // threads of a block, of its x and y
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break; // blocks of a grid
    case 6: case 7: *value = 65535; break;
    case 8: *value = 48 * 1024; break; // shared memory of a block
    case 9: *value = 64 * 1024; break;
    case 10: *value = 32; break; // warp
    case 12: case 82: *value = 65536; break; // registers
    case 13: *value = 1000000; break; // kHz
    case 16: *value = 2; break; // multiprocessors: what grids are sized by
    case 36: *value = 1000000; break;
    case 37: *value = 256; break;
    case 38: *value = 4 << 20; break;
    case 39: *value = 2048; break; // threads of a multiprocessor
    case 40: *value = 2; break;
    case 41: case 31: *value = 1; break;
    case 75: *value = 8; break; // compute capability 8.0
    case 76: *value = 0; break;
    case 81: *value = 164 * 1024; break; // shared memory of a multiprocessor
    case 97: *value = 163 * 1024; break; // of a block that asks for it
    case 106: *value = 32; break;
    case 111: *value = 1024; break;
    case 115: *value = 1; break; // stream-ordered allocation
    default: *value = 0; break;
    }
    return cuda_success;
}

// ---------------------------------------------------------------- context

int cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER(false);
    if (device != 0) return cuda_invalid_device;
    retained++;
    return *context = &primary, cuda_success;
}
// The last release frees what the context holds, and forgets its failure.
int cuDevicePrimaryCtxRelease_v2(int) {
    if (retained == 0) return cuda_invalid_context;
    if (--retained == 0) {
        synchronize_all();
        memory().clear();
        clear_sticky();
    }
    return cuda_success;
}
// As if the process had ended: cudarc leaves a context retained where a call
// right after fails, and on a lost device nothing can be freed.
void standin_end_contexts(void) {
    synchronize_all();
    memory().clear();
    retained = 0;
}
int cuCtxGetCurrent(void **context) {
    *context = current.empty() ? nullptr : current.back();
    return initialized ? cuda_success : cuda_not_initialized;
}
int cuCtxSetCurrent(void *context) {
    if (!initialized) return cuda_not_initialized;
    if (context && context != &primary) return cuda_invalid_context;
    if (current.empty()) current.push_back(context);
    current.back() = context;
    return cuda_success;
}
int cuCtxPushCurrent_v2(void *context) {
    if (context != &primary) return cuda_invalid_context;
    current.push_back(context);
    return cuda_success;
}
int cuCtxPopCurrent_v2(void **context) {
    if (current.empty()) return cuda_invalid_context;
    if (context) *context = current.back();
    current.pop_back();
    return cuda_success;
}
int cuCtxGetDevice(int *device) {
    ENTER(true);
    return *device = 0, cuda_success;
}
int cuCtxSynchronize(void) {
    ENTER(true);
    synchronize_all();
    return sticky();
}
int cuCtxSetFlags(unsigned) {
    ENTER(true);
    return cuda_success;
}
int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(true);
    *least = 0, *greatest = -5;
    return cuda_success;
}

// ---------------------------------------------------------------- streams

int cuStreamCreate(void **stream, unsigned flags) {
    ENTER(true);
    return *stream = create_stream((flags & 1) == 0), cuda_success;
}
int cuStreamCreateWithPriority(void **stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
int cuStreamDestroy_v2(void *stream) {
    ENTER(true);
    return destroy_stream(stream) ? cuda_success : cuda_invalid_handle;
}
int cuStreamSynchronize(void *stream) {
    ENTER(true);
    auto s = stream_of(stream);
    if (!s) return cuda_invalid_handle;
    s->synchronize();
    return sticky();
}
int cuStreamQuery(void *stream) {
    ENTER(true);
    auto s = stream_of(stream);
    if (!s) return cuda_invalid_handle;
    return s->idle() ? sticky() : cuda_not_ready;
}
int cuStreamIsCapturing(void *, int *status) {
    ENTER(true);
    return *status = 0, cuda_success;
}
int cuStreamWaitEvent(void *stream, Event *event, unsigned) {
    ENTER(true);
    auto s = stream_of(stream);
    if (!s || !event) return cuda_invalid_handle;
    if (event->mark) s->wait(event->mark);
    return cuda_success;
}
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    ENTER(true);
    return enqueue(stream, [=]() -> Failure {
        function(data);
        return {};
    });
}

// ----------------------------------------------------------------- events

int cuEventCreate(Event **event, unsigned flags) {
    ENTER(true);
    return *event = new Event{nullptr, (flags & 2) == 0}, cuda_success;
}
int cuEventDestroy_v2(Event *event) {
    ENTER(true);
    delete event;
    return cuda_success;
}
int cuEventRecord(Event *event, void *stream) {
    ENTER(true);
    auto s = stream_of(stream);
    if (!s || !event) return cuda_invalid_handle;
    event->mark = s->mark();
    return cuda_success;
}
int cuEventSynchronize(Event *event) {
    ENTER(true);
    if (event->mark) wait_for(event->mark);
    return sticky();
}
int cuEventQuery(Event *event) {
    ENTER(true);
    return !event->mark || reached(event->mark) ? sticky() : cuda_not_ready;
}
int cuEventElapsedTime(float *ms, Event *start, Event *end) {
    ENTER(true);
    if (!start->timing || !end->timing || !start->mark || !end->mark) return cuda_invalid_handle;
    if (!reached(start->mark) || !reached(end->mark)) return cuda_not_ready;
    *ms = std::chrono::duration<float, std::milli>(end->mark->time - start->mark->time).count();
    return cuda_success;
}
int cuEventElapsedTime_v2(float *ms, Event *start, Event *end) { return cuEventElapsedTime(ms, start, end); }

// ----------------------------------------------------------------- memory

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER(true);
    *total = memory().size();
    *free = *total - std::min(*total, memory().used());
    return cuda_success;
}
int cuMemAlloc_v2(Pointer *p, size_t bytes) {
    ENTER(true);
    if (bytes == 0) return explain(cuda_invalid_value, "an allocation of no bytes");
    void *address = memory().allocate(bytes);
    *p = reinterpret_cast<Pointer>(address);
    if (address) return cuda_success;
    return explain(cuda_out_of_memory, std::to_string(bytes) + " bytes asked for, " + std::to_string(memory().used()) +
                                           " of " + std::to_string(memory().size()) + " in use");
}
int cuMemFree_v2(Pointer p) {
    ENTER(true);
    if (!p) return cuda_success;
    if (!memory().retire(host(p))) return outside("free", p);
    synchronize_all();
    memory().release(host(p));
    return sticky();
}
// Counted in the order of the calls, which is the order of the stream.
int cuMemAllocAsync(Pointer *p, size_t bytes, void *) { return cuMemAlloc_v2(p, bytes); }
int cuMemAllocFromPoolAsync(Pointer *p, size_t bytes, void *, void *) { return cuMemAlloc_v2(p, bytes); }
int cuMemFreeAsync(Pointer p, void *stream) {
    ENTER(true);
    if (!stream_of(stream)) return cuda_invalid_handle;
    if (!memory().retire(host(p))) return outside("free", p);
    return enqueue(stream, [p]() -> Failure { return memory().release(host(p)), Failure{}; }, true);
}
int cuMemHostAlloc(void **p, size_t bytes, unsigned) {
    ENTER(true);
    *p = memory().allocate_pinned(bytes);
    return *p ? cuda_success : cuda_out_of_memory;
}
int cuMemAllocHost_v2(void **p, size_t bytes) { return cuMemHostAlloc(p, bytes, 0); }
int cuMemFreeHost(void *p) {
    ENTER(true);
    synchronize_all();
    return memory().free_pinned(p) ? cuda_success : cuda_invalid_value;
}
// The one pool of the device; it keeps nothing back.
int cuDeviceGetDefaultMemPool(void **pool, int) {
    ENTER(false);
    return *pool = &primary, cuda_success;
}
int cuDeviceGetMemPool(void **pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }
int cuMemPoolSetAttribute(void *, int, void *) {
    ENTER(false);
    return cuda_success;
}
int cuMemPoolTrimTo(void *, size_t) {
    ENTER(false);
    return cuda_success;
}

int cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *stream) {
    ENTER(true);
    if (!memory().holds(host(to), bytes)) return outside("a copy to the device", to);
    // Pageable memory is staged by the driver; page-locked memory is read when
    // the copy runs.
    std::shared_ptr<std::vector<char>> staged;
    if (!memory().pinned(from)) {
        auto p = static_cast<const char *>(from);
        staged = std::make_shared<std::vector<char>>(p, p + bytes);
    }
    return enqueue(stream, [=]() -> Failure {
        if (!memory().mapped(host(to), bytes)) return gone("a copy to the device");
        memcpy(host(to), staged ? staged->data() : from, bytes);
        return {};
    });
}
int cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *stream) {
    ENTER(true);
    if (!memory().holds(host(from), bytes)) return outside("a copy from the device", from);
    int status = enqueue(stream, [=]() -> Failure {
        if (!memory().mapped(host(from), bytes)) return gone("a copy from the device");
        memcpy(to, host(from), bytes);
        return {};
    });
    if (status || memory().pinned(to)) return status;
    stream_of(stream)->synchronize();
    return sticky();
}
int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *stream) {
    ENTER(true);
    if (!memory().holds(host(to), bytes)) return outside("a copy's target", to);
    if (!memory().holds(host(from), bytes)) return outside("a copy's source", from);
    return enqueue(stream, [=]() -> Failure {
        if (!memory().mapped(host(to), bytes) || !memory().mapped(host(from), bytes)) return gone("a copy");
        memmove(host(to), host(from), bytes);
        return {};
    });
}
int cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void *stream) {
    ENTER(true);
    if (!memory().holds(host(to), bytes)) return outside("a fill", to);
    return enqueue(stream, [=]() -> Failure {
        if (!memory().mapped(host(to), bytes)) return gone("a fill");
        memset(host(to), value, bytes);
        return {};
    });
}
static int and_wait(int status) {
    if (status) return status;
    stream_of(nullptr)->synchronize();
    return sticky();
}
int cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) {
    return and_wait(cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr));
}
int cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) {
    return and_wait(cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr));
}
int cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t bytes) {
    return and_wait(cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr));
}
int cuMemsetD8_v2(Pointer to, unsigned char value, size_t bytes) {
    return and_wait(cuMemsetD8Async(to, value, bytes, nullptr));
}
}
