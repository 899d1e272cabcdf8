// The CUresult values that this driver returns, and the text of the last failure.
#pragma once
#include <string>

namespace standin {

enum Status {
    cuda_success = 0,
    cuda_invalid_value = 1,
    cuda_out_of_memory = 2,
    cuda_not_initialized = 3,
    cuda_no_device = 100,
    cuda_invalid_device = 101,
    cuda_invalid_image = 200,
    cuda_invalid_context = 201,
    cuda_invalid_handle = 400,
    cuda_not_found = 500,
    cuda_not_ready = 600,
    cuda_illegal_address = 700,
    cuda_launch_out_of_resources = 701,
    cuda_assert = 710,
    cuda_illegal_instruction = 715,
    cuda_launch_failed = 719,
    cuda_not_supported = 801,
    cuda_unknown = 999,
};

// Remembers what a status was returned for; `cuGetErrorString` tells it.
int explain(int status, std::string text);
std::string explanation(int status);
void forget_explanations();

} // namespace standin
