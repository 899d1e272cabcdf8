// CUDA C++ as the host's g++ understands it: what NVRTC declares without any
// header, and nothing that it does not. Kernels are compiled with `-nostdinc`.
#pragma once
#include "thread_state.h"

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 800
#define __CUDA_STANDIN__ 1

// `__global__` is no macro: the kernels are found by it, and it goes then.
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __builtin_align__(n) __attribute__((aligned(n)))

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

// ---------------------------------------------------------------- vectors

#define STANDIN_VECTOR(T, name, align1, align2, align4)                                        \
    struct name##1 { T x; };                                                                   \
    struct __attribute__((aligned(align2))) name##2 { T x, y; };                               \
    struct name##3 { T x, y, z; };                                                             \
    struct __attribute__((aligned(align4))) name##4 { T x, y, z, w; };                         \
    static inline name##1 make_##name##1(T x) { return {x}; }                                  \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                          \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                  \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
STANDIN_VECTOR(signed char, char, 1, 2, 4)
STANDIN_VECTOR(unsigned char, uchar, 1, 2, 4)
STANDIN_VECTOR(short, short, 2, 4, 8)
STANDIN_VECTOR(unsigned short, ushort, 2, 4, 8)
STANDIN_VECTOR(int, int, 4, 8, 16)
STANDIN_VECTOR(unsigned int, uint, 4, 8, 16)
STANDIN_VECTOR(long long, longlong, 8, 16, 16)
STANDIN_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
STANDIN_VECTOR(float, float, 4, 8, 16)
STANDIN_VECTOR(double, double, 8, 16, 16)
#undef STANDIN_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define threadIdx (*(const uint3 *)&standin_self->thread_index)
#define blockIdx (*(const uint3 *)&standin_self->block_index)
#define blockDim (*(const dim3 *)&standin_self->block_size)
#define gridDim (*(const dim3 *)&standin_self->grid_size)
static const int warpSize = 32;

// ------------------------------------------------------- synchronization

static __forceinline__ void __syncthreads(int line = __builtin_LINE()) { standin_barrier(0, line); }
static __forceinline__ int __syncthreads_count(int p, int line = __builtin_LINE()) {
    return standin_barrier(p != 0, line);
}
static __forceinline__ int __syncthreads_or(int p, int line = __builtin_LINE()) {
    return standin_barrier(p != 0, line) != 0;
}
static __forceinline__ int __syncthreads_and(int p, int line = __builtin_LINE()) {
    return standin_barrier(p == 0, line) == 0;
}
static __forceinline__ void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    standin_warp(STANDIN_SYNC_WARP, mask, 0, 0, 32, line);
}
static __forceinline__ void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static __forceinline__ void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static __forceinline__ void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <typename T>
static __forceinline__ T standin_shuffle(int kind, unsigned mask, T value, unsigned argument,
                                         int width, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = standin_warp(kind, mask, bits, argument, (unsigned)width, line);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

// The types that CUDA has overloads for, and no others.
#define STANDIN_SHUFFLES(T)                                                                    \
    static __forceinline__ T __shfl_sync(unsigned mask, T v, int lane, int width = 32,         \
                                         int line = __builtin_LINE()) {                        \
        return standin_shuffle(STANDIN_SHUFFLE_INDEX, mask, v, lane, width, line);             \
    }                                                                                          \
    static __forceinline__ T __shfl_up_sync(unsigned mask, T v, unsigned delta,                \
                                            int width = 32, int line = __builtin_LINE()) {     \
        return standin_shuffle(STANDIN_SHUFFLE_UP, mask, v, delta, width, line);               \
    }                                                                                          \
    static __forceinline__ T __shfl_down_sync(unsigned mask, T v, unsigned delta,              \
                                              int width = 32, int line = __builtin_LINE()) {   \
        return standin_shuffle(STANDIN_SHUFFLE_DOWN, mask, v, delta, width, line);             \
    }                                                                                          \
    static __forceinline__ T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32,    \
                                             int line = __builtin_LINE()) {                    \
        return standin_shuffle(STANDIN_SHUFFLE_XOR, mask, v, lanes, width, line);              \
    }
STANDIN_SHUFFLES(int)
STANDIN_SHUFFLES(unsigned)
STANDIN_SHUFFLES(long)
STANDIN_SHUFFLES(unsigned long)
STANDIN_SHUFFLES(long long)
STANDIN_SHUFFLES(unsigned long long)
STANDIN_SHUFFLES(float)
STANDIN_SHUFFLES(double)
#undef STANDIN_SHUFFLES

static __forceinline__ unsigned __ballot_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return (unsigned)standin_warp(STANDIN_BALLOT, mask, p != 0, 0, 32, line);
}
static __forceinline__ int __any_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return standin_warp(STANDIN_BALLOT, mask, p != 0, 0, 32, line) != 0;
}
static __forceinline__ int __all_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return standin_warp(STANDIN_BALLOT, mask, p == 0, 0, 32, line) == 0;
}

#define STANDIN_REDUCE(T, name, kind)                                                          \
    static __forceinline__ T name(unsigned mask, T v, int line = __builtin_LINE()) {           \
        return (T)standin_warp(kind, mask, (unsigned)v, 0, 32, line);                          \
    }
STANDIN_REDUCE(int, __reduce_add_sync, STANDIN_REDUCE_ADD)
STANDIN_REDUCE(unsigned, __reduce_add_sync, STANDIN_REDUCE_ADD)
STANDIN_REDUCE(int, __reduce_min_sync, STANDIN_REDUCE_MIN_SIGNED)
STANDIN_REDUCE(unsigned, __reduce_min_sync, STANDIN_REDUCE_MIN_UNSIGNED)
STANDIN_REDUCE(int, __reduce_max_sync, STANDIN_REDUCE_MAX_SIGNED)
STANDIN_REDUCE(unsigned, __reduce_max_sync, STANDIN_REDUCE_MAX_UNSIGNED)
STANDIN_REDUCE(unsigned, __reduce_and_sync, STANDIN_REDUCE_AND)
STANDIN_REDUCE(unsigned, __reduce_or_sync, STANDIN_REDUCE_OR)
STANDIN_REDUCE(unsigned, __reduce_xor_sync, STANDIN_REDUCE_XOR)
#undef STANDIN_REDUCE

#include "prelude_math.h"
