// Device memory: pages of the host between addresses that cannot be touched,
// and a count of what is in use.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace standin {

class Memory {
public:
    // The address, or null where the device has not that much left.
    void *allocate(size_t bytes);
    // Takes it out of the count and makes it an error to name it; its pages
    // stay until `release`, for work that is still queued.
    bool retire(void *address);
    void release(void *address);
    // Page-locked memory of the host.
    void *allocate_pinned(size_t bytes);
    bool free_pinned(void *address);
    // Memory that belongs to a module: `__device__` and `__constant__`.
    void add_global(void *address, size_t bytes);

    // Whether all of it lies in one live allocation or module variable.
    bool holds(const void *address, size_t bytes);
    // The same of memory that is still mapped, retired or not.
    bool mapped(const void *address, size_t bytes);
    bool pinned(const void *address);
    // Empty, or which allocation was written past its bounds.
    std::string overrun();
    std::string describe(const void *address);

    void set_size(size_t bytes);
    size_t size();
    size_t used();
    size_t peak();
    size_t live();
    uint64_t allocations();
    void reset_peak();
    // Fails the n-th allocation from now on (1 is the next one); 0 fails none.
    void fail_allocation(uint64_t n);
    // Frees all; returns how many bytes were still in use.
    size_t clear();

private:
    struct Block {
        size_t bytes;
        char *map;
        size_t map_bytes;
        uint64_t number;
        bool retired;
    };
    typedef std::map<char *, Block> Blocks;
    Blocks::iterator find(const void *address);
    bool intact(char *address, const Block &b);
    void unmap(char *address, const Block &b);

    std::mutex mutex_;
    Blocks blocks_;
    std::map<char *, size_t> pinned_, globals_;
    std::vector<std::pair<char *, Block>> freed_; // the last ones, for words
    std::string overrun_;
    size_t size_ = size_t(8) << 30, used_ = 0, peak_ = 0;
    uint64_t allocations_ = 0, failing_ = 0;
};

Memory &memory();

} // namespace standin
