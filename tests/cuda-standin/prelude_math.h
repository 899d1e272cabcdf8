// Arithmetic of the prelude: atomics, bits, and the functions of CUDA's math API.
#pragma once

// ---------------------------------------------------------------- atomics

template <typename T, typename Combine>
static __forceinline__ T standin_atomic(T *at, Combine combine) {
    T old, next;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do {
        next = combine(old);
    } while (!__atomic_compare_exchange(at, &old, &next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}

#define STANDIN_ATOMIC(T, name, expression)                                                    \
    static __forceinline__ T name(T *at, T v) {                                                \
        return standin_atomic(at, [v](T old) -> T { return expression; });                     \
    }
#define STANDIN_ATOMICS(T)                                                                     \
    STANDIN_ATOMIC(T, atomicAdd, old + v)                                                      \
    STANDIN_ATOMIC(T, atomicExch, ((void)old, v))
#define STANDIN_INTEGER_ATOMICS(T)                                                             \
    STANDIN_ATOMICS(T)                                                                         \
    STANDIN_ATOMIC(T, atomicSub, old - v)                                                      \
    STANDIN_ATOMIC(T, atomicMin, old < v ? old : v)                                            \
    STANDIN_ATOMIC(T, atomicMax, old > v ? old : v)                                            \
    STANDIN_ATOMIC(T, atomicAnd, old & v)                                                      \
    STANDIN_ATOMIC(T, atomicOr, old | v)                                                       \
    STANDIN_ATOMIC(T, atomicXor, old ^ v)                                                      \
    static __forceinline__ T atomicCAS(T *at, T expected, T v) {                               \
        return standin_atomic(at, [=](T old) -> T { return old == expected ? v : old; });      \
    }
STANDIN_INTEGER_ATOMICS(int)
STANDIN_INTEGER_ATOMICS(unsigned)
STANDIN_INTEGER_ATOMICS(unsigned long long)
STANDIN_ATOMICS(float)
STANDIN_ATOMIC(double, atomicAdd, old + v)
STANDIN_ATOMIC(unsigned, atomicInc, old >= v ? 0u : old + 1u)
STANDIN_ATOMIC(unsigned, atomicDec, (old == 0u || old > v) ? v : old - 1u)
#undef STANDIN_INTEGER_ATOMICS
#undef STANDIN_ATOMICS
#undef STANDIN_ATOMIC

// ------------------------------------------------------------------- bits

template <typename To, typename From>
static __forceinline__ To standin_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "a cast of bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
static __forceinline__ int __float_as_int(float v) { return standin_bits<int>(v); }
static __forceinline__ unsigned __float_as_uint(float v) { return standin_bits<unsigned>(v); }
static __forceinline__ float __int_as_float(int v) { return standin_bits<float>(v); }
static __forceinline__ float __uint_as_float(unsigned v) { return standin_bits<float>(v); }
static __forceinline__ long long __double_as_longlong(double v) { return standin_bits<long long>(v); }
static __forceinline__ double __longlong_as_double(long long v) { return standin_bits<double>(v); }

static __forceinline__ int __popc(unsigned v) { return __builtin_popcount(v); }
static __forceinline__ int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static __forceinline__ int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static __forceinline__ int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static __forceinline__ int __ffs(int v) { return __builtin_ffs(v); }
static __forceinline__ int __ffsll(long long v) { return __builtin_ffsll(v); }
static __forceinline__ unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= ((v >> i) & 1u) << (31 - i);
    return r;
}
static __forceinline__ unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = (selector >> (4 * i)) & 0xf;
        unsigned byte = (unsigned)(both >> (8 * (s & 7))) & 0xff;
        r |= ((s & 8) ? ((byte & 0x80) ? 0xffu : 0u) : byte) << (8 * i);
    }
    return r;
}
static __forceinline__ int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return c;
}
static __forceinline__ unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++) c += ((a >> (8 * i)) & 0xff) * ((b >> (8 * i)) & 0xff);
    return c;
}
static __forceinline__ int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static __forceinline__ unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)(((unsigned long long)a * b) >> 32);
}
template <typename T> static __forceinline__ T __ldg(const T *at) { return *at; }
template <typename T> static __forceinline__ T __ldcs(const T *at) { return *at; }
template <typename T> static __forceinline__ T __ldcg(const T *at) { return *at; }
template <typename T> static __forceinline__ void __stcs(T *at, T v) { *at = v; }

// ------------------------------------------------------------------- math

extern "C" {
int printf(const char *format, ...);
void sincosf(float, float *, float *);
void sincos(double, double *, double *);
}
#define assert(e) ((e) ? (void)0 : standin_assert_failed(#e, __LINE__))

#define STANDIN_UNARY(name)                                                                    \
    extern "C" double name(double) noexcept;                                                   \
    extern "C" float name##f(float) noexcept;                                                  \
    static __forceinline__ float name(float v) { return name##f(v); }
#define STANDIN_BINARY(name)                                                                   \
    extern "C" double name(double, double) noexcept;                                           \
    extern "C" float name##f(float, float) noexcept;                                           \
    static __forceinline__ float name(float a, float b) { return name##f(a, b); }
STANDIN_UNARY(exp) STANDIN_UNARY(exp2) STANDIN_UNARY(exp10) STANDIN_UNARY(expm1)
STANDIN_UNARY(log) STANDIN_UNARY(log2) STANDIN_UNARY(log10) STANDIN_UNARY(log1p)
STANDIN_UNARY(sin) STANDIN_UNARY(cos) STANDIN_UNARY(tan) STANDIN_UNARY(asin)
STANDIN_UNARY(acos) STANDIN_UNARY(atan) STANDIN_UNARY(sinh) STANDIN_UNARY(cosh)
STANDIN_UNARY(tanh) STANDIN_UNARY(erf) STANDIN_UNARY(erfc) STANDIN_UNARY(sqrt)
STANDIN_UNARY(cbrt) STANDIN_UNARY(fabs) STANDIN_UNARY(floor) STANDIN_UNARY(ceil)
STANDIN_UNARY(trunc) STANDIN_UNARY(round) STANDIN_UNARY(rint) STANDIN_UNARY(nearbyint)
STANDIN_BINARY(pow) STANDIN_BINARY(fmod) STANDIN_BINARY(fmax) STANDIN_BINARY(fmin)
STANDIN_BINARY(atan2) STANDIN_BINARY(copysign) STANDIN_BINARY(hypot)
#undef STANDIN_UNARY
#undef STANDIN_BINARY
extern "C" {
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
float ldexpf(float, int) noexcept;
double ldexp(double, int) noexcept;
}
static __forceinline__ float fma(float a, float b, float c) { return fmaf(a, b, c); }
static __forceinline__ float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static __forceinline__ double rsqrt(double v) { return 1.0 / sqrt(v); }
static __forceinline__ float rsqrt(float v) { return rsqrtf(v); }
static __forceinline__ bool isnan(float v) { return __builtin_isnan(v); }
static __forceinline__ bool isnan(double v) { return __builtin_isnan(v); }
static __forceinline__ bool isinf(float v) { return __builtin_isinf(v); }
static __forceinline__ bool isinf(double v) { return __builtin_isinf(v); }
static __forceinline__ bool isfinite(float v) { return __builtin_isfinite(v); }
static __forceinline__ bool isfinite(double v) { return __builtin_isfinite(v); }
static __forceinline__ bool signbit(float v) { return __builtin_signbit(v); }

// Rounded on its own: never joined with a neighbour into a fused product.
static __forceinline__ float standin_rounded(float v) {
#if defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
    return v;
}
static __forceinline__ float __fadd_rn(float a, float b) { return standin_rounded(standin_rounded(a) + standin_rounded(b)); }
static __forceinline__ float __fsub_rn(float a, float b) { return standin_rounded(standin_rounded(a) - standin_rounded(b)); }
static __forceinline__ float __fmul_rn(float a, float b) { return standin_rounded(a * b); }
static __forceinline__ float __fdiv_rn(float a, float b) { return a / b; }
static __forceinline__ float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static __forceinline__ float __frcp_rn(float v) { return 1.0f / v; }
static __forceinline__ float __fsqrt_rn(float v) { return sqrtf(v); }
static __forceinline__ float __frsqrt_rn(float v) { return (float)(1.0 / sqrt((double)v)); }
static __forceinline__ float __saturatef(float v) { return fminf(fmaxf(v, 0.0f), 1.0f); }
// The fast functions, as exact ones: their errors are the device's own.
static __forceinline__ float __expf(float v) { return expf(v); }
static __forceinline__ float __exp10f(float v) { return exp10f(v); }
static __forceinline__ float __logf(float v) { return logf(v); }
static __forceinline__ float __log2f(float v) { return log2f(v); }
static __forceinline__ float __powf(float a, float b) { return powf(a, b); }
static __forceinline__ float __sinf(float v) { return sinf(v); }
static __forceinline__ float __cosf(float v) { return cosf(v); }
static __forceinline__ float __tanf(float v) { return tanf(v); }
static __forceinline__ float __fdividef(float a, float b) { return a / b; }
static __forceinline__ int __float2int_rn(float v) { return (int)rintf(v); }
static __forceinline__ int __float2int_rz(float v) { return (int)v; }
static __forceinline__ int __float2int_rd(float v) { return (int)floorf(v); }
static __forceinline__ unsigned __float2uint_rn(float v) { return (unsigned)rintf(v); }
static __forceinline__ float __int2float_rn(int v) { return (float)v; }
static __forceinline__ float __uint2float_rn(unsigned v) { return (float)v; }

#define STANDIN_MIN_MAX(T)                                                                     \
    static __forceinline__ constexpr T min(T a, T b) { return b < a ? b : a; }                 \
    static __forceinline__ constexpr T max(T a, T b) { return a < b ? b : a; }
STANDIN_MIN_MAX(int) STANDIN_MIN_MAX(unsigned) STANDIN_MIN_MAX(long) STANDIN_MIN_MAX(unsigned long)
STANDIN_MIN_MAX(long long) STANDIN_MIN_MAX(unsigned long long)
#undef STANDIN_MIN_MAX
static __forceinline__ unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static __forceinline__ unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static __forceinline__ unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static __forceinline__ unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static __forceinline__ float min(float a, float b) { return fminf(a, b); }
static __forceinline__ float max(float a, float b) { return fmaxf(a, b); }
static __forceinline__ double min(double a, double b) { return fmin(a, b); }
static __forceinline__ double max(double a, double b) { return fmax(a, b); }
static __forceinline__ double min(float a, double b) { return fmin(a, b); }
static __forceinline__ double max(float a, double b) { return fmax(a, b); }
extern "C" int abs(int) noexcept;
static __forceinline__ float abs(float v) { return fabsf(v); }
static __forceinline__ double abs(double v) { return fabs(v); }
static __forceinline__ long long abs(long long v) { return v < 0 ? -v : v; }

// --------------------------------------------------------- kernel entries

template <typename... A> struct standin_kernel {
    void (*function)(A...);
    static constexpr unsigned n = sizeof...(A);
    static const unsigned *sizes() {
        static const unsigned s[] = {(unsigned)sizeof(A)..., 0};
        return s;
    }
    template <unsigned... I> struct indices {};
    template <unsigned N, unsigned... I> struct up_to : up_to<N - 1, N - 1, I...> {};
    template <unsigned... I> struct up_to<0, I...> { typedef indices<I...> type; };
    template <unsigned... I> static void call(void (*f)(A...), void **p, indices<I...>) {
        f(*(A *)p[I]...);
    }
};
template <typename... A> static constexpr unsigned standin_arity(void (*)(A...)) { return sizeof...(A); }
template <typename... A> static const unsigned *standin_sizes(void (*)(A...)) {
    return standin_kernel<A...>::sizes();
}
template <typename... A> static __forceinline__ void standin_call(void (*f)(A...), void **p) {
    standin_kernel<A...>::call(f, p, typename standin_kernel<A...>::template up_to<sizeof...(A)>::type());
}
struct standin_entry {
    void (*call)(void **parameters);
    const unsigned *sizes; // of its parameters, in bytes
    unsigned parameters;
    unsigned max_threads; // of its launch bounds; 0 where it has none
};
