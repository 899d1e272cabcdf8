#include "team.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace standin {

namespace {

struct Job {
    Job(size_t count, const std::function<Failure(size_t)> &part) : part(part), count(count) {}
    const std::function<Failure(size_t)> &part;
    size_t count;
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    size_t helpers = 0; // at work; guarded by the team's mutex
    Failure failure;

    void work(std::mutex &mutex) {
        for (size_t i; !failed && (i = next++) < count;) {
            Failure f = part(i);
            if (!f) continue;
            std::lock_guard<std::mutex> lock(mutex);
            if (!failed.exchange(true)) failure = f;
        }
    }
};

class Team {
public:
    Failure run(size_t count, const std::function<Failure(size_t)> &part) {
        Job job(count, part);
        size_t help = std::min(size_.load() - 1, count - 1);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            while (helpers_ < help) {
                std::thread([this] { loop(); }).detach();
                helpers_++;
            }
            for (size_t i = 0; i < help; i++) calls_.push_back(&job);
        }
        if (help) changed_.notify_all();
        job.work(mutex_);
        if (!help) return job.failure;
        std::unique_lock<std::mutex> lock(mutex_);
        calls_.erase(std::remove(calls_.begin(), calls_.end(), &job), calls_.end());
        changed_.wait(lock, [&] { return job.helpers == 0; });
        return job.failure;
    }
    std::atomic<size_t> size_{std::min<size_t>(2, std::max(1u, std::thread::hardware_concurrency()))};

private:
    void loop() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return !calls_.empty(); });
            Job *job = calls_.front();
            calls_.pop_front();
            job->helpers++;
            lock.unlock();
            job->work(mutex_);
            lock.lock();
            job->helpers--;
            changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job *> calls_;
    size_t helpers_ = 0;
};

Team &team() {
    static auto *t = new Team; // helpers outlive statics
    return *t;
}

} // namespace

Failure spread(size_t count, const std::function<Failure(size_t)> &part) {
    return count ? team().run(count, part) : Failure{};
}

void set_host_threads(size_t n) { team().size_ = std::max<size_t>(n, 1); }

} // namespace standin
