// Routing of rows to experts, one warp a row.

#define SOFTMAX 0
#define SIGMOIDS 1
#define SOFTMAX_OF_CHOSEN 2

// A float's place in the total order, NaNs at the ends.
__device__ __forceinline__ int order(float x) {
  const int bits = (int)__float_as_uint(x);
  return bits ^ (int)((u32)(bits >> 31) >> 1);
}

// The entry of the warp with the largest `key`, the lowest `index` among equals.
__device__ __forceinline__ void warp_best(int *key, int *index) {
  for (int step = LANES / 2; step > 0; step /= 2) {
    const int k = __shfl_xor_sync(ALL_LANES, *key, step);
    const int i = __shfl_xor_sync(ALL_LANES, *index, step);
    if (k > *key || (k == *key && i < *index)) *key = k, *index = i;
  }
}

// The best of `n` values that is not taken, or `n`; takes it.
__device__ int take_best(const float *values, u8 *taken, int n) {
  int key = (int)0x80000000, index = n;
  for (int i = threadIdx.x; i < n; i += LANES) {
    if (taken[i]) continue;
    const int k = order(values[i]);
    if (index == n || k > key) key = k, index = i;
  }
  warp_best(&key, &index);
  __syncwarp();
  if (threadIdx.x == 0 && index < n) taken[index] = 1;
  __syncwarp();
  return index;
}

// The experts of each row, most wanted first, and their weights: `n_used` each.
// `logits` become probabilities. Dynamic shared memory: n_expert + n_group floats,
// then as many bytes.
extern "C" __global__ void route(int *chosen, float *weights, float *logits, const float *bias,
                                 int n_expert, int n_used, int gating, int n_group,
                                 int n_group_used, int normalized, float factor) {
  extern __shared__ float wanted[];
  float *groups = wanted + n_expert;
  u8 *taken = (u8 *)(groups + n_group), *group_taken = taken + n_expert;
  const int lane = threadIdx.x;
  logits += (i64)blockIdx.x * n_expert;
  chosen += (i64)blockIdx.x * n_used;
  weights += (i64)blockIdx.x * n_used;

  if (gating == SOFTMAX) {
    float max = -infinity();
    for (int e = lane; e < n_expert; e += LANES) max = fmaxf(max, logits[e]);
    max = warp_max(max);
    double sum = 0.0;
    for (int e = lane; e < n_expert; e += LANES) sum += (double)expf(logits[e] - max);
    const float inverse = (float)(1.0 / warp_sum(sum));
    for (int e = lane; e < n_expert; e += LANES) logits[e] = expf(logits[e] - max) * inverse;
  } else if (gating == SIGMOIDS) {
    for (int e = lane; e < n_expert; e += LANES) logits[e] = sigmoid(logits[e]);
  }
  for (int e = lane; e < n_expert; e += LANES) {
    wanted[e] = bias ? logits[e] + bias[e] : logits[e];
    taken[e] = 0;
  }
  __syncwarp();

  if (n_group > 0) {
    // A group counts as much as its two best experts.
    const int size = n_expert / n_group;
    for (int g = lane; g < n_group; g += LANES) {
      const float *w = wanted + g * size;
      int best = 0, second = -1;
      for (int e = 1; e < size; e++) {
        if (order(w[e]) > order(w[best])) {
          second = best, best = e;
        } else if (second < 0 || order(w[e]) > order(w[second])) {
          second = e;
        }
      }
      groups[g] = second < 0 ? w[best] : w[best] + w[second];
      group_taken[g] = 0;
    }
    __syncwarp();
    for (int n = 0; n < n_group_used; n++) take_best(groups, group_taken, n_group);
    for (int e = lane; e < n_expert; e += LANES) {
      if (!group_taken[e / size]) wanted[e] = -infinity();
    }
    __syncwarp();
  }

  for (int n = 0; n < n_used; n++) {
    const int e = take_best(wanted, taken, n_expert);
    if (lane == 0) chosen[n] = e, weights[n] = logits[e];
  }
  if (lane != 0) return;
  if (gating == SOFTMAX_OF_CHOSEN) {
    float max = -infinity();
    for (int n = 0; n < n_used; n++) max = fmaxf(max, weights[n]);
    double sum = 0.0;
    for (int n = 0; n < n_used; n++) sum += (double)expf(weights[n] - max);
    const float inverse = (float)(1.0 / sum);
    for (int n = 0; n < n_used; n++) weights[n] = expf(weights[n] - max) * inverse;
  }
  if (normalized) {
    float sum = 0.0f;
    for (int n = 0; n < n_used; n++) sum += weights[n];
    // llama.cpp's bound against a division by zero.
    const float least = 6.1035156e-5f;
    const float divisor = sum < least ? least : sum;
    for (int n = 0; n < n_used; n++) weights[n] /= divisor;
  }
  for (int n = 0; n < n_used; n++) weights[n] *= factor;
}
