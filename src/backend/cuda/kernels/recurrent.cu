// What runs along a sequence: convolutions, blends with the row before, and
// scans. `positions` holds each row's position in its sequence, `spans` the first
// row and the length of each sequence.
//
// A scan's state is a matrix whose columns do not see each other: a thread keeps
// a column in shared memory (`n_rows × blockDim.x` floats) and walks along the
// sequence. Blocks are (sequence, head, run of columns).

// `y[t, c] = b[c] + Σ_j w[c, j] · x[t − (width − 1) + j, c]`.
extern "C" __global__ void convolve(float *y, const float *x, const float *weight,
                                    const float *bias, const int *positions, int width,
                                    int n_channels, i64 n) {
  EACH(i, n) {
    const i64 row = i / n_channels;
    const int c = (int)(i % n_channels);
    float sum = bias ? bias[c] : 0.0f;
    for (int j = 0; j < width; j++) {
      const int back = width - 1 - j;
      if (back <= positions[row]) {
        sum = fmaf(weight[(i64)c * width + j], x[(row - back) * n_channels + c], sum);
      }
    }
    y[i] = sum;
  }
}

// `out[t] ← x[t] + (x[t − 1] − x[t]) · lerp`, with a row of `lerp` for each of
// `x` or one for all.
extern "C" __global__ void blend_previous(float *out, const float *x, const float *lerp,
                                          const int *positions, int one_row, int width, i64 n) {
  EACH(i, n) {
    const float before = positions[i / width] > 0 ? x[i - width] : 0.0f;
    out[i] = fmaf(before - x[i], lerp[one_row ? i % width : i], x[i]);
  }
}

// `x ← x + (target − x) · t`.
extern "C" __global__ void interpolate(float *x, const float *target, const float *t, i64 n) {
  EACH(i, n) x[i] = fmaf(target[i] - x[i], t[i], x[i]);
}

// `x ← x · (1 + (rate − 1) · scale)`, `scale` being one row for all.
extern "C" __global__ void scale_by_rate(float *x, const float *rate, const float *scale, int width,
                                         i64 n) {
  EACH(i, n) x[i] *= fmaf(rate[i] - 1.0f, scale[i % width], 1.0f);
}

// `x ← x + v · Σ terms`, the sum running over each run of `width` values; one
// warp a run.
extern "C" __global__ void add_scaled_by_sums(float *x, const float *v, const float *terms,
                                              int width, i64 n_runs) {
  const i64 run = (i64)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
  const int lane = threadIdx.x % LANES;
  if (run >= n_runs) return;
  double sum = 0.0;
  for (int i = lane; i < width; i += LANES) sum += (double)terms[run * width + i];
  const float total = (float)warp_sum(sum);
  for (int i = lane; i < width; i += LANES) {
    x[run * width + i] = fmaf(total, v[run * width + i], x[run * width + i]);
  }
}

#define COLUMN (blockIdx.z * blockDim.x + threadIdx.x)
#define STATE(i) state[(i) * blockDim.x + threadIdx.x]

extern "C" __global__ void scan_mamba1(float *y, const float *u, const float *delta, const float *b,
                                       const float *c, const float *a, const float *d,
                                       const int *spans, int n_inner, int n_state) {
  extern __shared__ float state[];
  const int channel = COLUMN;
  if (channel >= n_inner) return;
  for (int n = 0; n < n_state; n++) STATE(n) = 0.0f;
  a += (i64)channel * n_state;
  const int start = spans[2 * blockIdx.x], end = start + spans[2 * blockIdx.x + 1];
  for (i64 t = start; t < end; t++) {
    const float input = u[t * n_inner + channel], step = delta[t * n_inner + channel];
    float sum = d[channel] * input;
    for (int n = 0; n < n_state; n++) {
      const float s = fmaf(b[t * n_state + n], step * input, STATE(n) * expf(step * a[n]));
      STATE(n) = s;
      sum = fmaf(s, c[t * n_state + n], sum);
    }
    y[t * n_inner + channel] = sum;
  }
}

// `ubc` rows hold `n_head·dim` values of `u`, then `n_group·n_state` of `B` and
// of `C`.
extern "C" __global__ void scan_mamba2(float *y, const float *ubc, const float *delta,
                                       const float *a, const float *d, const int *spans, int n_head,
                                       int dim, int n_group, int n_state) {
  extern __shared__ float state[];
  const int head = blockIdx.y, column = COLUMN;
  if (column >= dim) return;
  for (int n = 0; n < n_state; n++) STATE(n) = 0.0f;
  const int n = n_head * dim, shared = n_group * n_state, row = n + 2 * shared;
  const int group = head / (n_head / n_group) * n_state;
  const int start = spans[2 * blockIdx.x], end = start + spans[2 * blockIdx.x + 1];
  for (i64 t = start; t < end; t++) {
    const float *r = ubc + t * row, *b = r + n + group, *c = b + shared;
    const float input = r[head * dim + column], step = delta[t * n_head + head];
    const float decay = expf(step * a[head]);
    float sum = d[head] * input;
    for (int i = 0; i < n_state; i++) {
      const float s = fmaf(step * b[i], input, STATE(i) * decay);
      STATE(i) = s;
      sum = fmaf(s, c[i], sum);
    }
    y[t * n + head * dim + column] = sum;
  }
}

// `cyclic`: value head `h` reads key head `h mod n_k_head`, else a block of value
// heads shares one.
extern "C" __global__ void scan_delta_net(float *y, const float *q, const float *k, const float *v,
                                          const float *log_decay, const float *beta,
                                          const int *spans, int n_k_head, int n_v_head, int dim,
                                          int cyclic) {
  extern __shared__ float state[];
  const int head = blockIdx.y, column = COLUMN;
  if (column >= dim) return;
  for (int i = 0; i < dim; i++) STATE(i) = 0.0f;
  const int k_head = cyclic ? head % n_k_head : head / (n_v_head / n_k_head);
  const int start = spans[2 * blockIdx.x], end = start + spans[2 * blockIdx.x + 1];
  for (i64 t = start; t < end; t++) {
    const float *key = k + (t * n_k_head + k_head) * dim;
    const float *query = q + (t * n_k_head + k_head) * dim;
    const float decay = expf(log_decay[t * n_v_head + head]);
    float known = 0.0f;
    for (int i = 0; i < dim; i++) {
      const float s = STATE(i) * decay;
      STATE(i) = s;
      known = fmaf(s, key[i], known);
    }
    const i64 at = (t * n_v_head + head) * dim + column;
    const float update = beta[t * n_v_head + head] * (v[at] - known);
    float sum = 0.0f;
    for (int i = 0; i < dim; i++) {
      const float s = fmaf(key[i], update, STATE(i));
      STATE(i) = s;
      sum = fmaf(s, query[i], sum);
    }
    y[at] = sum;
  }
}

// Rows hold `n_head·dim` values.
extern "C" __global__ void scan_rwkv6(float *y, const float *r, const float *w, const float *k,
                                      const float *v, const float *bonus, const int *spans,
                                      int n_head, int dim) {
  extern __shared__ float state[];
  const int head = blockIdx.y, column = COLUMN;
  if (column >= dim) return;
  for (int i = 0; i < dim; i++) STATE(i) = 0.0f;
  bonus += head * dim;
  const int start = spans[2 * blockIdx.x], end = start + spans[2 * blockIdx.x + 1];
  for (i64 t = start; t < end; t++) {
    const i64 at = (t * n_head + head) * dim;
    const float value = v[at + column];
    float sum = 0.0f;
    for (int i = 0; i < dim; i++) {
      const float kv = k[at + i] * value, s = STATE(i);
      sum = fmaf(r[at + i], fmaf(bonus[i], kv, s), sum);
      STATE(i) = fmaf(w[at + i], s, kv);
    }
    y[at + column] = sum;
  }
}

// `removal` is at unit length in each head.
extern "C" __global__ void scan_rwkv7(float *y, const float *r, const float *w, const float *k,
                                      const float *v, const float *removal, const float *rate,
                                      const int *spans, int n_head, int dim) {
  extern __shared__ float state[];
  const int head = blockIdx.y, column = COLUMN;
  if (column >= dim) return;
  for (int i = 0; i < dim; i++) STATE(i) = 0.0f;
  const int start = spans[2 * blockIdx.x], end = start + spans[2 * blockIdx.x + 1];
  for (i64 t = start; t < end; t++) {
    const i64 at = (t * n_head + head) * dim;
    const float value = v[at + column];
    float removed = 0.0f;
    for (int i = 0; i < dim; i++) removed = fmaf(STATE(i), removal[at + i], removed);
    float sum = 0.0f;
    for (int i = 0; i < dim; i++) {
      const float back = -(removal[at + i] * rate[at + i]);
      const float s = fmaf(w[at + i], STATE(i), fmaf(back, removed, k[at + i] * value));
      STATE(i) = s;
      sum = fmaf(s, r[at + i], sum);
    }
    y[at + column] = sum;
  }
}
