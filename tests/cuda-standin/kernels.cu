// Kernels that the stand-in's own tests run.

extern "C" __global__ void add(float *__restrict__ sum, const float *__restrict__ a,
                               const float *__restrict__ b, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}
