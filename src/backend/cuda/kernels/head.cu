// Log-likelihoods of targets from tiles of logits: what is known of each row is
// folded tile by tile, in f64.

#define HEAD_THREADS 256

// Takes `n` logits of each row, those of the ids from `first` on, into the row's
// running maximum and sum; a block takes a row.
extern "C" __global__ void fold_logits(float *maxima, double *sums, float *target_logits,
                                       int *not_finite, const float *logits, const float *bias,
                                       const int *targets, int first, int n, float scale,
                                       float softcap) {
  __shared__ float largest[HEAD_THREADS / LANES];
  __shared__ double totals[HEAD_THREADS / LANES];
  __shared__ int bad;
  const i64 row = blockIdx.x;
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const int target = targets[row] - first;
  logits += row * n;
  if (threadIdx.x == 0) bad = 0;
  __syncthreads();

  float max = -infinity();
  for (int i = threadIdx.x; i < n; i += HEAD_THREADS) {
    float l = logits[i];
    if (bias) l += bias[first + i];
    l *= scale;
    // An infinite logit becomes NaN: capped it would look like any other.
    if (softcap > 0.0f) l = softcap * tanhf(l / softcap) + l * 0.0f;
    if (!is_finite(l)) bad = 1;
    max = fmaxf(max, l);
    if (i == target) target_logits[row] = l;
  }
  max = warp_max(max);
  if (lane == 0) largest[warp] = max;
  __syncthreads();
  for (int w = 0; w < HEAD_THREADS / LANES; w++) max = fmaxf(max, largest[w]);
  const float before = maxima[row];
  max = fmaxf(max, before);

  double sum = 0.0;
  for (int i = threadIdx.x; i < n; i += HEAD_THREADS) {
    float l = logits[i];
    if (bias) l += bias[first + i];
    l *= scale;
    if (softcap > 0.0f) l = softcap * tanhf(l / softcap) + l * 0.0f;
    sum += exp((double)l - (double)max);
  }
  sum = warp_sum(sum);
  if (lane == 0) totals[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = sums[row];
    // Nothing before the first tile: e^(−∞ − max) is 0, but −∞ − −∞ is no number.
    if (total != 0.0) total *= exp((double)before - (double)max);
    for (int w = 0; w < HEAD_THREADS / LANES; w++) total += totals[w];
    sums[row] = total;
    maxima[row] = max;
    if (bad) not_finite[row] = 1;
  }
}

extern "C" __global__ void begin_rows(float *maxima, double *sums, float *target_logits,
                                      int *not_finite, i64 n) {
  EACH(i, n) {
    maxima[i] = -infinity();
    sums[i] = 0.0;
    target_logits[i] = 0.0f;
    not_finite[i] = 0;
  }
}

// `−ln p(target)`; NaN where a logit was not finite.
extern "C" __global__ void finish_rows(double *nll, const float *maxima, const double *sums,
                                       const float *target_logits, const int *not_finite, i64 n) {
  EACH(i, n) {
    const double value = (double)maxima[i] + log(sums[i]) - (double)target_logits[i];
    nll[i] = not_finite[i] ? __longlong_as_double(0x7ff8000000000000ll) : value;
  }
}
