// Kernels that the stand-in's own tests run, right ones and wrong ones.

extern "C" __global__ void add(float *__restrict__ sum, const float *__restrict__ a,
                               const float *__restrict__ b, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}

// One sum a block, by halves in shared memory.
extern "C" __global__ void __launch_bounds__(256) sum_shared(float *sums, const float *x, unsigned n) {
    __shared__ float part[256];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

template <typename T> static __device__ __forceinline__ T warp_sum(T v) {
    for (int lanes = 16; lanes; lanes /= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

// One sum a block, by warps; the dynamic shared memory holds one a warp.
extern "C" __global__ void sum_warps(float *sums, const float *x, unsigned n) {
    extern __shared__ __align__(16) float warps[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = warp_sum(i < n ? x[i] : 0.0f);
    if (threadIdx.x % warpSize == 0) warps[threadIdx.x / warpSize] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = warp_sum(threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) sums[blockIdx.x] = v;
    }
}

// What each lane of one warp gets from each warp operation.
extern "C" __global__ void warp_operations(int *out) {
    int lane = threadIdx.x;
    int *row = out + lane * 12;
    row[0] = __shfl_sync(0xffffffffu, lane * 10, 5);
    row[1] = __shfl_up_sync(0xffffffffu, lane, 3);
    row[2] = __shfl_down_sync(0xffffffffu, lane, 3);
    row[3] = __shfl_xor_sync(0xffffffffu, lane, 1);
    row[4] = __shfl_sync(0xffffffffu, lane, 2, 8);
    row[5] = __shfl_down_sync(0xffffffffu, lane, 1, 8);
    row[6] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
    row[7] = __any_sync(0xffffffffu, lane == 31);
    row[8] = __all_sync(0xffffffffu, lane < 31);
    row[9] = __reduce_add_sync(0xffffffffu, lane);
    row[10] = __reduce_min_sync(0xffffffffu, -lane);
    // A part of the warp, while the rest does something else.
    row[11] = -1;
    if (lane < 8) row[11] = __reduce_max_sync(0xffu, lane);
    __syncwarp();
}

__constant__ float scale[4];
__device__ unsigned counter;

extern "C" __global__ void atomics(int *out, float *sum, const int *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&out[0], x[i]);
    atomicMax(&out[1], x[i]);
    atomicMin(&out[2], x[i]);
    // A maximum by compare and swap.
    int seen = out[3];
    while (seen < x[i]) {
        int before = atomicCAS(&out[3], seen, x[i]);
        if (before == seen) break;
        seen = before;
    }
    atomicAdd(sum, scale[i % 4]);
    atomicAdd(&counter, 1u);
}

constexpr int TILE = 16;

// C = A B, row-major, in tiles.
extern "C" __global__ void matmul(float *c, const float *a, const float *b, int m, int n, int k) {
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int p = 0; p < k; p += TILE) {
        as[threadIdx.y][threadIdx.x] = row < m && p + (int)threadIdx.x < k ? a[row * k + p + threadIdx.x] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = column < n && p + (int)threadIdx.y < k ? b[(p + threadIdx.y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum = fmaf(as[threadIdx.y][i], bs[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

// Writes the index of each thread, by all three dimensions.
extern "C" __global__ void indices(uint4 *out) {
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] =
        make_uint4(block, threadIdx.x, threadIdx.y, threadIdx.z);
}

// Shared memory that nobody has written.
extern "C" __global__ void stale_shared(float *out) {
    __shared__ float s[32];
    extern __shared__ float d[];
    out[blockIdx.x * 2] = s[threadIdx.x];
    out[blockIdx.x * 2 + 1] = d[threadIdx.x];
    s[threadIdx.x] = d[threadIdx.x] = 1.0f;
}

extern "C" __global__ void spin(float *x, unsigned n, unsigned rounds) {
    for (unsigned r = 0; r < rounds; r++)
        for (unsigned i = 0; i < n; i++) x[i] += 1.0f;
}

// ------------------------------------------------------------ wrong kernels

extern "C" __global__ void half_at_barrier(float *x) {
    if (threadIdx.x < 16) __syncthreads();
    x[threadIdx.x] = 1.0f;
}

// Reads what its neighbour writes, without a barrier between.
extern "C" __global__ void races(float *out) {
    __shared__ float s[64];
    s[threadIdx.x] = 0.0f;
    __syncthreads();
    s[threadIdx.x] = threadIdx.x + 1.0f;
    out[threadIdx.x] = s[(threadIdx.x + 1) % 64];
}

extern "C" __global__ void two_barriers(float *x) {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncthreads();
    x[threadIdx.x] = 1.0f;
}

extern "C" __global__ void lost_lane(int *x) {
    // Lane 3 waits elsewhere.
    if (threadIdx.x == 3)
        __syncthreads();
    else
        x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
}

extern "C" __global__ void write_at(float *x, long long i) { x[i] = 1.0f; }
extern "C" __global__ void read_at(float *out, const float *x, long long i) { *out = x[i]; }
extern "C" __global__ void write_dynamic(int i) {
    extern __shared__ float d[];
    d[i] = 1.0f;
}
extern "C" __global__ void divide(int *x, int by) { *x = 7 / by; }
extern "C" __global__ void asserts(int x) { assert(x == 3); }
extern "C" __global__ void deep(float *out, int n) {
    volatile float local[100000];
    for (int i = 0; i < n; i++) local[i] = i;
    *out = local[n - 1];
}

__global__ void mangled(float *x) { *x = 1.0f; }
