// Causal attention with grouped KV heads and a running softmax: no score matrix
// is stored. A block takes 16 queries of one sequence and one head, a warp four
// of them. 32 keys are met at a time, one a lane; their dimensions come through
// shared memory in chunks, so that heads of any width fit.

#define QUERIES 16
#define PER_WARP 4
#define CHUNK 32

#define SPAN_ALL 0
#define SPAN_WINDOW 1
#define SPAN_CHUNK 2

// The first key that query `i` sees.
__device__ __forceinline__ int first_key(int span, int span_n, int i) {
  if (span == SPAN_WINDOW) return i + 1 > span_n ? i + 1 - span_n : 0;
  if (span == SPAN_CHUNK) return i - i % span_n;
  return 0;
}

// `tiles` holds, for each block, the first row and the length of a sequence and
// the first query. Dynamic shared memory: 16 × dim_v floats.
extern "C" __global__ void attend(float *mixed, const float *q, const float *k, const float *v,
                                  const float *sinks, const int *tiles, int n_head, int n_head_kv,
                                  int dim, int dim_v, float scale, float softcap, int span,
                                  int span_n) {
  __shared__ float keys[LANES][CHUNK + 1], queries[QUERIES][CHUNK], weights[QUERIES][LANES];
  extern __shared__ float sums[];
  const int start = tiles[3 * blockIdx.x], len = tiles[3 * blockIdx.x + 1];
  const int first = tiles[3 * blockIdx.x + 2], head = blockIdx.y;
  const int kv = head / (n_head / n_head_kv);
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const i64 q_row = (i64)n_head * dim, k_row = (i64)n_head_kv * dim;
  const i64 v_row = (i64)n_head_kv * dim_v;
  q += (i64)start * q_row + (i64)head * dim;
  k += (i64)start * k_row + (i64)kv * dim;
  v += (i64)start * v_row + (i64)kv * dim_v;
  mixed += (i64)start * n_head * dim_v + (i64)head * dim_v;

  for (int i = threadIdx.x; i < QUERIES * dim_v; i += blockDim.x) sums[i] = 0.0f;
  float max[PER_WARP], total[PER_WARP], shrink[PER_WARP];
  for (int r = 0; r < PER_WARP; r++) {
    // A sink takes part in the denominator only.
    max[r] = sinks ? sinks[head] : -infinity();
    total[r] = sinks ? 1.0f : 0.0f;
  }
  const int end = first + QUERIES < len ? first + QUERIES : len;
  for (int tile = first_key(span, span_n, first); tile < end; tile += LANES) {
    float scores[PER_WARP] = {};
    for (int c = 0; c < dim; c += CHUNK) {
      __syncthreads();
      for (int i = threadIdx.x; i < LANES * CHUNK; i += blockDim.x) {
        const int row = i / CHUNK, d = i % CHUNK;
        const bool inside = c + d < dim;
        keys[row][d] = inside && tile + row < end ? k[(tile + row) * k_row + c + d] : 0.0f;
        if (row < QUERIES) {
          queries[row][d] = inside && first + row < end ? q[(first + row) * q_row + c + d] : 0.0f;
        }
      }
      __syncthreads();
      for (int d = 0; d < CHUNK; d++) {
        const float key = keys[lane][d];
        for (int r = 0; r < PER_WARP; r++) {
          scores[r] = fmaf(queries[PER_WARP * warp + r][d], key, scores[r]);
        }
      }
    }
    for (int r = 0; r < PER_WARP; r++) {
      const int query = first + PER_WARP * warp + r, key = tile + lane;
      const bool visible = query < end && key <= query && key >= first_key(span, span_n, query);
      float s = scores[r] * scale;
      // An infinite score becomes NaN: capped it would look like any other.
      if (softcap > 0.0f) s = softcap * tanhf(s / softcap) + s * 0.0f;
      const float largest = fmaxf(max[r], warp_max(visible ? s : -infinity()));
      const float p = visible ? expf(s - largest) : 0.0f;
      shrink[r] = max[r] == largest ? 1.0f : expf(max[r] - largest);
      total[r] = total[r] * shrink[r] + warp_sum(p);
      max[r] = largest;
      weights[PER_WARP * warp + r][lane] = p;
    }
    __syncwarp();
    const int n_keys = end - tile < LANES ? end - tile : LANES;
    for (int d = lane; d < dim_v; d += LANES) {
      float sum[PER_WARP];
      for (int r = 0; r < PER_WARP; r++) sum[r] = sums[(PER_WARP * warp + r) * dim_v + d] * shrink[r];
      for (int j = 0; j < n_keys; j++) {
        const float value = v[(tile + j) * v_row + d];
        for (int r = 0; r < PER_WARP; r++) {
          sum[r] = fmaf(weights[PER_WARP * warp + r][j], value, sum[r]);
        }
      }
      for (int r = 0; r < PER_WARP; r++) sums[(PER_WARP * warp + r) * dim_v + d] = sum[r];
    }
    __syncwarp();
  }
  for (int r = 0; r < PER_WARP; r++) {
    const int query = first + PER_WARP * warp + r;
    if (query >= end) break;
    for (int d = lane; d < dim_v; d += LANES) {
      mixed[(i64)query * n_head * dim_v + d] = sums[(PER_WARP * warp + r) * dim_v + d] / total[r];
    }
  }
}
