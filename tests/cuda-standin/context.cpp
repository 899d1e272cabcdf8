#include "context.h"
#include "control.h"
#include "memory.h"
#include "status.h"

#include <map>
#include <mutex>

namespace standin {

namespace {

std::mutex &tables() {
    static auto *m = new std::mutex;
    return *m;
}
struct Streams {
    std::shared_ptr<Stream> standard, per_thread;
    std::map<StreamHandle, std::shared_ptr<Stream>> created;
};
Streams &streams() {
    static auto *s = new Streams; // workers may outlive statics
    return *s;
}

std::shared_ptr<Stream> find(StreamHandle handle) {
    Streams &s = streams();
    auto number = reinterpret_cast<uintptr_t>(handle);
    if (number <= 2) {
        auto &special = number == 2 ? s.per_thread : s.standard;
        if (!special) special = std::make_shared<Stream>(true);
        return special;
    }
    auto found = s.created.find(handle);
    return found == s.created.end() ? nullptr : found->second;
}

} // namespace

std::shared_ptr<Stream> stream_of(StreamHandle handle) {
    std::lock_guard<std::mutex> lock(tables());
    return find(handle);
}

StreamHandle create_stream(bool blocking) {
    std::lock_guard<std::mutex> lock(tables());
    auto stream = std::make_shared<Stream>(blocking);
    streams().created[stream.get()] = stream;
    return stream.get();
}

bool destroy_stream(StreamHandle handle) {
    std::shared_ptr<Stream> stream;
    {
        std::lock_guard<std::mutex> lock(tables());
        auto found = streams().created.find(handle);
        if (found == streams().created.end()) return false;
        stream = found->second;
        streams().created.erase(found);
    }
    stream->synchronize();
    return true;
}

void synchronize_all() {
    std::vector<std::shared_ptr<Stream>> all;
    {
        std::lock_guard<std::mutex> lock(tables());
        for (auto &s : streams().created) all.push_back(s.second);
        for (auto &s : {streams().standard, streams().per_thread})
            if (s) all.push_back(s);
    }
    for (auto &s : all) s->synchronize();
}

int enqueue(StreamHandle handle, std::function<Failure()> work, bool always) {
    std::lock_guard<std::mutex> lock(tables());
    auto stream = find(handle);
    if (!stream) return cuda_invalid_handle;
    auto standard = find(nullptr);
    if (stream == standard) {
        for (auto &s : streams().created)
            if (s.second->blocking && !s.second->idle()) standard->wait(s.second->mark());
        if (streams().per_thread && !streams().per_thread->idle())
            standard->wait(streams().per_thread->mark());
    } else if (stream->blocking && !standard->idle()) {
        stream->wait(standard->mark());
    }
    stream->submit(std::move(work), always);
    return cuda_success;
}

int enqueue_launch(StreamHandle handle, const std::string &name, std::function<Failure()> work) {
    if (launch_fails())
        work = [name]() -> Failure {
            return {cuda_launch_failed, "`" + name + "` failed, as the test asked for"};
        };
    return enqueue(handle, [name, work]() -> Failure {
        Failure failure = work();
        if (failure) return failure;
        std::string overrun = memory().overrun();
        if (overrun.empty()) return {};
        return {cuda_illegal_address, "`" + name + "` wrote past the bounds of " + overrun};
    });
}

} // namespace standin
