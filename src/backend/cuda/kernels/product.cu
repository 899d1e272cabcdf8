// Products without cuBLAS, and the narrowing of their inputs.

// `out[r, o] = scale · Σ_i x[r, i] · w[o, i]`: a block makes 64 × 64 outputs, a
// thread 4 × 4 of them. Sums run in the order of `i`.
#define SIDE 64
#define DEPTH 16

template <typename T>
__device__ void multiply(float *out, i64 out_row, const typename T::Stored *x, i64 x_row,
                         const typename T::Stored *w, int n_rows, int n_out, int n_in,
                         float scale) {
  __shared__ float xs[DEPTH][SIDE + 1], ws[DEPTH][SIDE + 1];
  const int t = threadIdx.x, column = t % 16, row = t / 16;
  const i64 first_row = (i64)blockIdx.y * SIDE, first_out = (i64)blockIdx.x * SIDE;
  float sums[4][4] = {};
  for (int k = 0; k < n_in; k += DEPTH) {
    for (int i = t; i < DEPTH * SIDE; i += blockDim.x) {
      const int d = i % DEPTH, s = i / DEPTH;
      const bool inside = k + d < n_in;
      xs[d][s] = inside && first_row + s < n_rows ? T::load(x[(first_row + s) * x_row + k + d]) : 0.0f;
      ws[d][s] = inside && first_out + s < n_out ? T::load(w[(first_out + s) * n_in + k + d]) : 0.0f;
    }
    __syncthreads();
    for (int d = 0; d < DEPTH; d++) {
      for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
          sums[i][j] = fmaf(xs[d][row + 16 * i], ws[d][column + 16 * j], sums[i][j]);
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 4; j++) {
      const i64 r = first_row + row + 16 * i, o = first_out + column + 16 * j;
      if (r < n_rows && o < n_out) out[r * out_row + o] = scale * sums[i][j];
    }
  }
}

extern "C" __global__ void multiply_f32(float *out, i64 out_row, const float *x, i64 x_row,
                                        const float *w, int n_rows, int n_out, int n_in,
                                        float scale) {
  multiply<F32>(out, out_row, x, x_row, w, n_rows, n_out, n_in, scale);
}

extern "C" __global__ void multiply_f16(float *out, i64 out_row, const u16 *x, i64 x_row,
                                        const u16 *w, int n_rows, int n_out, int n_in,
                                        float scale) {
  multiply<F16>(out, out_row, x, x_row, w, n_rows, n_out, n_in, scale);
}

extern "C" __global__ void multiply_bf16(float *out, i64 out_row, const u16 *x, i64 x_row,
                                         const u16 *w, int n_rows, int n_out, int n_in,
                                         float scale) {
  multiply<Bf16>(out, out_row, x, x_row, w, n_rows, n_out, n_in, scale);
}

// Rows of `n` values, `x_row` apart, to rows side by side.
template <typename T>
__device__ void narrow(u16 *out, const float *x, i64 x_row, int n, i64 n_rows) {
  EACH(i, n_rows * n) out[i] = T::store(x[i / n * x_row + i % n]);
}

extern "C" __global__ void narrow_f16(u16 *out, const float *x, i64 x_row, int n, i64 n_rows) {
  narrow<F16>(out, x, x_row, n, n_rows);
}

extern "C" __global__ void narrow_bf16(u16 *out, const float *x, i64 x_row, int n, i64 n_rows) {
  narrow<Bf16>(out, x, x_row, n, n_rows);
}
