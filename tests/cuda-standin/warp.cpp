// Operations of a warp: its lanes wait for each other and exchange values.
#include "runner.h"
#include "status.h"

#include <algorithm>

namespace standin {

uint64_t Runner::warp(int collective, unsigned mask, uint64_t value, unsigned argument,
                      unsigned width, int line) {
    Thread &t = threads_[current_];
    unsigned w = current_ / 32, lane = 1u << (current_ % 32);
    if (!(mask & lane))
        fail(cuda_illegal_instruction, where() + "line " + std::to_string(line) +
                                           ": a thread that is not in its own mask");
    if (!width || width > 32 || (width & (width - 1)))
        fail(cuda_illegal_instruction, where() + "line " + std::to_string(line) +
                                           ": the width of a shuffle is no power of two up to 32");
    t.collective = collective, t.mask = mask, t.value = value;
    t.argument = argument, t.width = width, t.line = line;
    t.waits = Waits::warp;
    warps_[w].arrived |= lane;
    unsigned group = mask & warps_[w].alive;
    if ((warps_[w].arrived & group) == group) {
        release(w, group);
        warps_[w].ready &= ~lane; // goes on at once
    } else {
        wait(Waits::warp);
    }
    return t.value;
}

void Runner::release(unsigned w, unsigned group) {
    combine(w, group);
    warps_[w].arrived &= ~group;
    warps_[w].ready |= group;
}

// After a lane has returned: others may have waited for it alone.
void Runner::release_complete(unsigned w) {
    for (unsigned left = warps_[w].arrived; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        unsigned group = threads_[w * 32 + lane].mask & warps_[w].alive;
        if ((warps_[w].arrived & group) == group && (warps_[w].arrived >> lane & 1)) release(w, group);
    }
}

namespace {

// `v` joined to what the lanes before it came to.
uint64_t reduce(int collective, uint64_t so_far, uint64_t v, bool first) {
    auto u = uint32_t(v), past = uint32_t(so_far);
    if (first) return u;
    switch (collective) {
    case STANDIN_REDUCE_ADD: return uint32_t(past + u);
    case STANDIN_REDUCE_MIN_SIGNED: return uint32_t(std::min(int32_t(past), int32_t(u)));
    case STANDIN_REDUCE_MAX_SIGNED: return uint32_t(std::max(int32_t(past), int32_t(u)));
    case STANDIN_REDUCE_MIN_UNSIGNED: return std::min(past, u);
    case STANDIN_REDUCE_MAX_UNSIGNED: return std::max(past, u);
    case STANDIN_REDUCE_AND: return past & u;
    case STANDIN_REDUCE_OR: return past | u;
    default: return past ^ u;
    }
}

unsigned source_lane(int collective, unsigned lane, unsigned argument, unsigned width) {
    unsigned base = lane & ~(width - 1), end = base + width;
    switch (collective) {
    case STANDIN_SHUFFLE_INDEX: return base + (argument & (width - 1));
    case STANDIN_SHUFFLE_UP: return lane < base + argument ? lane : lane - argument;
    case STANDIN_SHUFFLE_DOWN: return argument < end - lane ? lane + argument : lane;
    default: return (lane ^ argument) < end ? lane ^ argument : lane;
    }
}

} // namespace

void Runner::combine(unsigned w, unsigned group) {
    Thread *t = &threads_[w * 32];
    const Thread &first = t[__builtin_ctz(group)];
    int collective = first.collective;
    uint64_t values[32], total = 0;
    for (unsigned m = group; m; m &= m - 1) {
        unsigned lane = unsigned(__builtin_ctz(m));
        if (t[lane].collective != collective || t[lane].line != first.line || t[lane].mask != first.mask)
            fail(cuda_illegal_instruction,
                 where() + "lanes of a warp met in different operations, at lines " +
                     std::to_string(first.line) + " and " + std::to_string(t[lane].line));
        values[lane] = t[lane].value;
        t[lane].waits = Waits::no;
        if (collective == STANDIN_BALLOT)
            total |= uint64_t(values[lane] != 0) << lane;
        else if (collective > STANDIN_BALLOT)
            total = reduce(collective, total, values[lane], m == group);
    }
    for (unsigned m = group; m; m &= m - 1) {
        unsigned lane = unsigned(__builtin_ctz(m));
        if (collective > STANDIN_SHUFFLE_XOR) {
            t[lane].value = total;
            continue;
        }
        unsigned source = source_lane(collective, lane, t[lane].argument, t[lane].width);
        // From a lane that takes no part: undefined on the device, poison here.
        t[lane].value = group >> source & 1 ? values[source] : ~uint64_t(0);
    }
}

} // namespace standin

unsigned long long standin_warp(int collective, unsigned mask, unsigned long long value, unsigned argument,
                                unsigned width, int line) {
    return standin::runner->warp(collective, mask, value, argument, width, line);
}
