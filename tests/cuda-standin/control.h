// What tests set and read: the device's size, failures to come, counters.
#pragma once

namespace standin {

// Counts a call of the driver. A status that is not zero is what it returns.
int enter_call();
// Whether the launch that is made now is to fail.
bool launch_fails();
// Whether blocks, and threads of a block, run from the last to the first.
bool reversed();

} // namespace standin
