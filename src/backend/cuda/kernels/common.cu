// What all kernels share. The files of this folder are one translation unit, in
// the order of `kernels.rs`. They include no header, so that NVRTC alone compiles
// them, and are compiled without contraction: `fmaf` stands where it is meant.
//
// Rows are row-major f32 unless a name says otherwise. Kernels that run over
// elements take any grid: each thread steps by the number of threads.

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define EACH(i, n)                                                             \
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);            \
       i += (i64)gridDim.x * blockDim.x)

#define ALL_LANES 0xffffffffu
#define LANES 32

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

template <typename T>
__device__ __forceinline__ T warp_sum(T x) {
  for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
  return x;
}

// NaNs are passed over.
__device__ __forceinline__ float warp_max(float x) {
  for (int step = LANES / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
  }
  return x;
}

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Exact.
__device__ __forceinline__ float f16_to_f32(u16 h) {
  const u32 sign = (u32)(h & 0x8000) << 16;
  const u32 exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  if (exponent == 0) {
    // 2^-24 is the place of the last bit of a subnormal.
    return __uint_as_float(__float_as_uint((float)mantissa * 5.9604644775390625e-8f) | sign);
  }
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
  return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

// To the nearest, ties to even; what is beyond the largest becomes infinite.
__device__ __forceinline__ u16 f32_to_f16(float f) {
  u32 x = __float_as_uint(f);
  const u32 sign = x >> 16 & 0x8000u;
  x &= 0x7fffffffu;
  if (x > 0x7f800000u) return (u16)(sign | 0x7e00u);
  if (x >= 0x47800000u) return (u16)(sign | 0x7c00u);
  if (x < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves the rounded subnormal in the low bits.
    return (u16)(sign | (__float_as_uint(__uint_as_float(x) + 0.5f) - 0x3f000000u));
  }
  x += 0xfffu + (x >> 13 & 1u) - (112u << 23);
  return (u16)(sign | x >> 13);
}

__device__ __forceinline__ float bf16_to_f32(u16 b) { return __uint_as_float((u32)b << 16); }

__device__ __forceinline__ u16 f32_to_bf16(float f) {
  const u32 x = __float_as_uint(f);
  if ((x & 0x7fffffffu) > 0x7f800000u) return (u16)(x >> 16 | 0x40u);
  return (u16)((x + 0x7fffu + (x >> 16 & 1u)) >> 16);
}

// The element types of products.
struct F32 {
  typedef float Stored;
  static __device__ __forceinline__ float load(float x) { return x; }
  static __device__ __forceinline__ float store(float x) { return x; }
};
struct F16 {
  typedef u16 Stored;
  static __device__ __forceinline__ float load(u16 x) { return f16_to_f32(x); }
  static __device__ __forceinline__ u16 store(float x) { return f32_to_f16(x); }
};
struct Bf16 {
  typedef u16 Stored;
  static __device__ __forceinline__ float load(u16 x) { return bf16_to_f32(x); }
  static __device__ __forceinline__ u16 store(float x) { return f32_to_bf16(x); }
};
