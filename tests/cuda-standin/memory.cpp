#include "memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace standin {

namespace {
constexpr size_t page = 4096;
// Addresses on both sides of an allocation that belong to nothing.
constexpr size_t guard = 1 << 20;
// What cudaMalloc promises, and what an allocation is counted in.
constexpr size_t alignment = 256;
// A pattern that floats and halves read as NaN and indices as far out.
constexpr unsigned char poison = 0xff;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
} // namespace

Memory &memory() {
    static Memory *m = new Memory; // never destroyed: workers outlive statics
    return *m;
}

void *Memory::allocate(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    allocations_++;
    if (failing_ && --failing_ == 0) return nullptr;
    size_t counted = round_up(std::max<size_t>(bytes, 1), alignment);
    if (counted > size_ - std::min(used_, size_)) return nullptr;
    // The end meets the guard; what the last page has before it is a canary.
    size_t pages = round_up(counted + alignment, page), map_bytes = pages + 2 * guard;
    void *map = mmap(nullptr, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return nullptr;
    char *start = static_cast<char *>(map);
    char *address = start + guard + pages - counted;
    mprotect(start + guard, pages, PROT_READ | PROT_WRITE);
    memset(address - alignment, poison, counted + alignment);
    blocks_[address] = Block{bytes, start, map_bytes, allocations_, false};
    used_ += counted;
    peak_ = std::max(peak_, used_);
    return address;
}

Memory::Blocks::iterator Memory::find(const void *address) {
    char *a = static_cast<char *>(const_cast<void *>(address));
    auto it = blocks_.upper_bound(a);
    if (it == blocks_.begin()) return blocks_.end();
    --it;
    return a <= it->first + it->second.bytes ? it : blocks_.end();
}

bool Memory::retire(void *address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = blocks_.find(static_cast<char *>(address));
    if (it == blocks_.end() || it->second.retired) return false;
    it->second.retired = true;
    used_ -= round_up(std::max<size_t>(it->second.bytes, 1), alignment);
    return true;
}

bool Memory::intact(char *address, const Block &b) {
    for (size_t i = 1; i <= alignment; i++)
        if (static_cast<unsigned char>(address[-ptrdiff_t(i)]) != poison) return false;
    char *end = b.map + b.map_bytes - guard;
    for (char *p = address + b.bytes; p < end; p++)
        if (static_cast<unsigned char>(*p) != poison) return false;
    return true;
}

void Memory::unmap(char *address, const Block &b) {
    if (overrun_.empty() && !intact(address, b))
        overrun_ = "allocation " + std::to_string(b.number) + " (" + std::to_string(b.bytes) + " bytes)";
    munmap(b.map, b.map_bytes);
    freed_.emplace_back(address, b);
    if (freed_.size() > 256) freed_.erase(freed_.begin());
}

void Memory::release(void *address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = blocks_.find(static_cast<char *>(address));
    if (it == blocks_.end()) return;
    unmap(it->first, it->second);
    blocks_.erase(it);
}

void *Memory::allocate_pinned(size_t bytes) {
    void *p = aligned_alloc(page, round_up(std::max<size_t>(bytes, 1), page));
    if (!p) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    memset(p, poison, bytes);
    pinned_[static_cast<char *>(p)] = bytes;
    return p;
}

bool Memory::free_pinned(void *address) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!pinned_.erase(static_cast<char *>(address))) return false;
    free(address);
    return true;
}

void Memory::add_global(void *address, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    globals_[static_cast<char *>(address)] = bytes;
}

namespace {
bool within(std::map<char *, size_t> &ranges, const void *address, size_t bytes) {
    char *a = static_cast<char *>(const_cast<void *>(address));
    auto it = ranges.upper_bound(a);
    if (it == ranges.begin()) return false;
    --it;
    size_t offset = size_t(a - it->first);
    return offset <= it->second && bytes <= it->second - offset;
}
} // namespace

bool Memory::holds(const void *address, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = find(address);
    if (it != blocks_.end() && !it->second.retired) {
        size_t offset = size_t(static_cast<const char *>(address) - it->first);
        return bytes <= it->second.bytes - offset;
    }
    return within(globals_, address, bytes);
}

bool Memory::mapped(const void *address, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = find(address);
    if (it == blocks_.end()) return within(globals_, address, bytes);
    return bytes <= it->second.bytes - size_t(static_cast<const char *>(address) - it->first);
}

bool Memory::pinned(const void *address) {
    std::lock_guard<std::mutex> lock(mutex_);
    return within(pinned_, address, 1);
}

std::string Memory::overrun() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string found;
    found.swap(overrun_);
    for (auto &b : blocks_) {
        if (!found.empty()) break;
        if (!intact(b.first, b.second))
            found = "allocation " + std::to_string(b.second.number) + " (" +
                    std::to_string(b.second.bytes) + " bytes)";
    }
    return found;
}

std::string Memory::describe(const void *address) {
    std::lock_guard<std::mutex> lock(mutex_);
    char *a = static_cast<char *>(const_cast<void *>(address));
    auto words = [&](char *start, const Block &b, const char *state) {
        std::string what = std::string(state) + "allocation " + std::to_string(b.number) + " of " +
                           std::to_string(b.bytes) + " bytes";
        if (a < start) return std::to_string(start - a) + " bytes before " + what;
        if (a < start + b.bytes) return std::to_string(a - start) + " bytes into " + what;
        return std::to_string(a - start - ptrdiff_t(b.bytes)) + " bytes past the end of " + what;
    };
    for (auto &b : blocks_)
        if (a >= b.second.map && a < b.second.map + b.second.map_bytes) return words(b.first, b.second, "");
    for (auto f = freed_.rbegin(); f != freed_.rend(); ++f)
        if (a >= f->second.map && a < f->second.map + f->second.map_bytes)
            return words(f->first, f->second, "the freed ");
    if (within(pinned_, address, 1)) return "page-locked host memory";
    char text[40];
    snprintf(text, sizeof text, "address %p of no allocation", address);
    return text;
}

void Memory::set_size(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_ = bytes;
}
size_t Memory::size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return size_;
}
size_t Memory::used() {
    std::lock_guard<std::mutex> lock(mutex_);
    return used_;
}
size_t Memory::peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    return peak_;
}
size_t Memory::live() {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t n = 0;
    for (auto &b : blocks_) n += !b.second.retired;
    return n;
}
uint64_t Memory::allocations() {
    std::lock_guard<std::mutex> lock(mutex_);
    return allocations_;
}
void Memory::reset_peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    peak_ = used_;
}
void Memory::fail_allocation(uint64_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    failing_ = n;
}

size_t Memory::clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto &b : blocks_) unmap(b.first, b.second);
    blocks_.clear();
    overrun_.clear();
    size_t leaked = used_;
    used_ = 0;
    return leaked;
}

} // namespace standin
