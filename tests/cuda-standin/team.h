// The host threads that blocks of a grid and parts of a product are spread over.
#pragma once
#include "block.h"

#include <cstddef>
#include <functional>

namespace standin {

// Calls `part` for 0..count, from this thread and helpers. After a failure no
// further part begins; the first that was seen is returned.
Failure spread(size_t count, const std::function<Failure(size_t)> &part);

// How many host threads one launch may take, this one included.
void set_host_threads(size_t n);

} // namespace standin
