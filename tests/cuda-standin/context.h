// The one device's context: its streams, and the order among them.
#pragma once
#include "block.h"
#include "stream.h"

#include <functional>
#include <memory>

namespace standin {

typedef void *StreamHandle; // null, 1: the default stream; 2: the thread's own

// Null where the handle is of no stream.
std::shared_ptr<Stream> stream_of(StreamHandle handle);
StreamHandle create_stream(bool blocking);
bool destroy_stream(StreamHandle handle);
void synchronize_all();

// Queues work on a stream; where the default stream and a blocking one meet,
// after what the other has queued. A CUresult.
int enqueue(StreamHandle handle, std::function<Failure()> work, bool always = false);

// Counts a launch, and queues it or the failure that a test asked for.
int enqueue_launch(StreamHandle handle, const std::string &name, std::function<Failure()> work);

// A CUresult: whether a function of the driver may go on.
int enter(bool needs_context);

} // namespace standin
