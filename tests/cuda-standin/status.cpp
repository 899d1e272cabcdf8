#include "status.h"

#include <map>
#include <mutex>

namespace standin {

namespace {
std::mutex words_mutex;
std::map<int, std::string> &words() {
    static auto *w = new std::map<int, std::string>;
    return *w;
}

const struct { int status; const char *name, *text; } errors[] = {
    {cuda_success, "CUDA_SUCCESS", "no error"},
    {cuda_invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {cuda_out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {cuda_not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {cuda_no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {cuda_invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {cuda_invalid_image, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {cuda_invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {cuda_invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {cuda_not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {cuda_not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {cuda_illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {cuda_launch_out_of_resources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {cuda_assert, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {cuda_illegal_instruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {cuda_launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {cuda_not_supported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {cuda_unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};
} // namespace

int explain(int status, std::string text) {
    std::lock_guard<std::mutex> lock(words_mutex);
    words()[status] = std::move(text);
    return status;
}

std::string explanation(int status) {
    std::lock_guard<std::mutex> lock(words_mutex);
    auto found = words().find(status);
    return found == words().end() ? "" : found->second;
}

void forget_explanations() {
    std::lock_guard<std::mutex> lock(words_mutex);
    words().clear();
}

} // namespace standin

using namespace standin;

extern "C" {

int cuGetErrorName(int status, const char **name) {
    for (auto &e : errors)
        if (e.status == status) return *name = e.name, cuda_success;
    return *name = nullptr, cuda_invalid_value;
}
// The driver's words, and what the stand-in knows besides.
int cuGetErrorString(int status, const char **text) {
    static thread_local std::string said;
    for (auto &e : errors) {
        if (e.status != status) continue;
        std::string why = explanation(status);
        said = why.empty() ? e.text : std::string(e.text) + " (stand-in: " + why + ")";
        return *text = said.c_str(), cuda_success;
    }
    return *text = nullptr, cuda_invalid_value;
}
}
