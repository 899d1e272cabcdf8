#include "stream.h"
#include "status.h"

#include <atomic>

namespace standin {

namespace {
std::mutex &mutex() {
    static auto *m = new std::mutex;
    return *m;
}
std::condition_variable &changed() {
    static auto *c = new std::condition_variable;
    return *c;
}
std::atomic<int> sticky_status{0};
} // namespace

int sticky() { return sticky_status.load(); }

void set_sticky(const Failure &failure) {
    int none = 0;
    if (sticky_status.compare_exchange_strong(none, failure.code)) explain(failure.code, failure.text);
}

void clear_sticky() { sticky_status.store(0); }

Stream::Stream(bool blocking) : blocking(blocking), worker_([this] { loop(); }) {}

Stream::~Stream() {
    {
        std::lock_guard<std::mutex> lock(mutex());
        stop_ = true;
    }
    changed().notify_all();
    worker_.join();
}

void Stream::loop() {
    std::unique_lock<std::mutex> lock(mutex());
    for (;;) {
        changed().wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        Work work = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        if (work.always || !sticky()) {
            Failure failure = work.run();
            if (failure) set_sticky(failure);
        }
        work.run = nullptr;
        lock.lock();
        completed_++;
        changed().notify_all();
    }
}

void Stream::submit(std::function<Failure()> work, bool always) {
    {
        std::lock_guard<std::mutex> lock(mutex());
        queue_.push_back(Work{std::move(work), always});
        submitted_++;
    }
    changed().notify_all();
}

std::shared_ptr<Mark> Stream::mark() {
    auto mark = std::make_shared<Mark>();
    submit(
        [mark]() -> Failure {
            std::lock_guard<std::mutex> lock(mutex());
            mark->time = std::chrono::steady_clock::now();
            mark->done = true;
            return {};
        },
        true);
    return mark;
}

void Stream::wait(std::shared_ptr<Mark> mark) {
    submit(
        [mark]() -> Failure {
            wait_for(mark);
            return {};
        },
        true);
}

void Stream::synchronize() {
    std::unique_lock<std::mutex> lock(mutex());
    uint64_t until = submitted_;
    changed().wait(lock, [&] { return completed_ >= until; });
}

bool Stream::idle() {
    std::lock_guard<std::mutex> lock(mutex());
    return completed_ == submitted_;
}

void wait_for(const std::shared_ptr<Mark> &mark) {
    std::unique_lock<std::mutex> lock(mutex());
    changed().wait(lock, [&] { return mark->done; });
}

bool reached(const std::shared_ptr<Mark> &mark) {
    std::lock_guard<std::mutex> lock(mutex());
    return mark->done;
}

} // namespace standin
