// Streams: one worker thread each, in order; what is not ordered by an event
// or a synchronization really runs at the same time.
#pragma once
#include "block.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace standin {

// The work of a stream up to a point; done when the stream has passed it.
struct Mark {
    bool done = false;
    std::chrono::steady_clock::time_point time;
};

class Stream {
public:
    explicit Stream(bool blocking);
    ~Stream();
    // Queues work. A failure of it is the context's from then on, and work
    // that follows is dropped, except `always` (freeing).
    void submit(std::function<Failure()> work, bool always = false);
    std::shared_ptr<Mark> mark();
    void wait(std::shared_ptr<Mark> mark);
    void synchronize();
    bool idle();
    // Whether it waits for the default stream, and that one for it.
    const bool blocking;

private:
    struct Work {
        std::function<Failure()> run;
        bool always;
    };
    void loop();
    std::deque<Work> queue_;
    uint64_t submitted_ = 0, completed_ = 0;
    bool stop_ = false;
    std::thread worker_;
};

// Waits for it on the host.
void wait_for(const std::shared_ptr<Mark> &mark);
bool reached(const std::shared_ptr<Mark> &mark);

// The first failure of any work since the last `clear_failure`: sticky, as a
// context's is.
int sticky();
void set_sticky(const Failure &failure);
void clear_sticky();

} // namespace standin
