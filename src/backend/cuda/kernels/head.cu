// What the softmax says of targets, from tiles of logits: what is known of each
// row is folded tile by tile, in f64.

#define HEAD_THREADS 256

struct Row {
  // `Σ e^(l − max)` and `Σ e^(l − max) · (l − max)`.
  double sum, moment;
  float max;
  // The target's logit as the tiles have it, and as it was before them: ranks are
  // counted from that.
  float logit, own;
  // The first of the largest, and how many are greater than the target's.
  int top, above;
  int not_finite;
};

struct Score {
  double nll;
  u32 rank, top;
  float top_p, entropy;
};

struct Logits {
  const float *bias;
  float scale, softcap;

  __device__ __forceinline__ float at(float l, int id) const {
    if (bias) l += bias[id];
    l *= scale;
    // An infinite logit becomes NaN: capped it would look like any other.
    return softcap > 0.0f ? softcap * tanhf(l / softcap) + l * 0.0f : l;
  }
};

#define TO_F16 1
#define TO_BF16 2

// A value as products take it.
__device__ __forceinline__ float narrowed(int width, float x) {
  if (width == TO_F16) return f16_to_f32(f32_to_f16(x));
  if (width == TO_BF16) return bf16_to_f32(f32_to_bf16(x));
  return x;
}

// Begins rows, with the logit of each one's target; one warp a row.
extern "C" __global__ void begin_rows(Row *rows, const float *x, const u8 *blocks, i64 row_bytes,
                                      int type, int n_in, const int *targets, const i8 *grids,
                                      int width, const float *bias, float scale, float softcap,
                                      i64 n_rows) {
  const i64 row = (i64)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
  const int lane = threadIdx.x % LANES;
  if (row >= n_rows) return;
  const int target = targets[row];
  double sum = 0.0;
  for (int i = lane; i < n_in; i += LANES) {
    const float w = decode(type, blocks + target * row_bytes, i, grids);
    sum += (double)narrowed(width, x[row * n_in + i]) * (double)narrowed(width, w);
  }
  sum = warp_sum(sum);
  if (lane != 0) return;
  const Logits logits = {bias, scale, softcap};
  Row r = {};
  r.max = -infinity();
  r.own = logits.at((float)sum, target);
  rows[row] = r;
}

// Takes `n` products of each row, those of the ids from `first` on; a block takes
// a row.
extern "C" __global__ void fold_logits(Row *rows, const float *products, const float *bias,
                                       const int *targets, int first, int n, float scale,
                                       float softcap) {
  __shared__ float maxima[HEAD_THREADS / LANES];
  __shared__ double sums[HEAD_THREADS / LANES], moments[HEAD_THREADS / LANES];
  __shared__ int tops[HEAD_THREADS / LANES], counts[HEAD_THREADS / LANES];
  __shared__ int bad;
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const int target = targets[blockIdx.x];
  const Logits logits = {bias, scale, softcap};
  Row *row = rows + blockIdx.x;
  const float before = row->max, own = row->own;
  products += (i64)blockIdx.x * n;
  if (threadIdx.x == 0) bad = 0;
  __syncthreads();

  float max = before;
  for (int i = threadIdx.x; i < n; i += HEAD_THREADS) {
    const float l = logits.at(products[i], first + i);
    if (!is_finite(l)) bad = 1;
    if (first + i == target) row->logit = l;
    max = fmaxf(max, l);
  }
  max = warp_max(max);
  if (lane == 0) maxima[warp] = max;
  __syncthreads();
  for (int w = 0; w < HEAD_THREADS / LANES; w++) max = fmaxf(max, maxima[w]);

  double sum = 0.0, moment = 0.0;
  int top = n, above = 0;
  for (int i = threadIdx.x; i < n; i += HEAD_THREADS) {
    const float l = logits.at(products[i], first + i);
    const double below = (double)l - (double)max, e = exp(below);
    sum += e;
    moment += e * below;
    if (l == max && i < top) top = i;
    // Its own logit may come out otherwise here.
    if (l > own && first + i != target) above++;
  }
  sum = warp_sum(sum);
  moment = warp_sum(moment);
  above = warp_sum(above);
  for (int step = LANES / 2; step > 0; step /= 2) {
    const int other = __shfl_xor_sync(ALL_LANES, top, step);
    top = other < top ? other : top;
  }
  if (lane == 0) {
    sums[warp] = sum;
    moments[warp] = moment;
    tops[warp] = top;
    counts[warp] = above;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  Row r = *row;
  if (max > before) {
    // Nothing before the first tile: e^(−∞ − max) is 0, but −∞ − −∞ is no number.
    if (r.sum != 0.0) {
      const double step = (double)before - (double)max, factor = exp(step);
      r.moment = factor * (r.moment + step * r.sum);
      r.sum *= factor;
    }
    r.max = max;
    int best = n;
    for (int w = 0; w < HEAD_THREADS / LANES; w++) best = tops[w] < best ? tops[w] : best;
    r.top = first + best;
  }
  for (int w = 0; w < HEAD_THREADS / LANES; w++) {
    r.sum += sums[w];
    r.moment += moments[w];
    r.above += counts[w];
  }
  if (bad) r.not_finite = 1;
  *row = r;
}

// Turns products with the ids from `first` on, `n` a row, into logits.
extern "C" __global__ void finish_logits(float *products, const float *bias, int first, int n,
                                         float scale, float softcap, i64 total) {
  const Logits logits = {bias, scale, softcap};
  EACH(i, total) products[i] = logits.at(products[i], first + (int)(i % n));
}

// The NLL is NaN where a logit was not finite.
extern "C" __global__ void finish_rows(Score *scores, const Row *rows, i64 n) {
  EACH(i, n) {
    const Row r = rows[i];
    const double log_sum = log(r.sum), nll = (double)r.max + log_sum - (double)r.logit;
    const double entropy = log_sum - r.moment / r.sum;
    Score s;
    s.nll = r.not_finite ? __longlong_as_double(0x7ff8000000000000ll) : nll;
    s.rank = (u32)r.above;
    s.top = (u32)r.top;
    s.top_p = (float)(1.0 / r.sum);
    // Rounding may leave it below 0 where one logit is all.
    s.entropy = entropy < 0.0 ? 0.0f : (float)entropy;
    scores[i] = s;
  }
}
