// Norms over runs of `width` values, one warp a run. `weight` and `bias` are as
// long as `n_weights` runs that differ.

#define RMS 0
#define LAYER 1
// To unit length: `eps` is added to the squared length, `floor` bounds the length.
#define LENGTH 2

extern "C" __global__ void normalize(float *out, i64 out_step, const float *x, i64 x_step,
                                     const float *weight, const float *bias, int n_weights,
                                     int kind, int width, float eps, float floor, i64 n_runs) {
  const i64 run = (i64)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
  const int lane = threadIdx.x % LANES;
  // Whole warps leave together.
  if (run >= n_runs) return;
  const float *in = x + run * x_step;
  float *to = out + run * out_step;
  double mean = 0.0;
  if (kind == LAYER) {
    for (int i = lane; i < width; i += LANES) mean += (double)in[i];
    mean = warp_sum(mean) / width;
  }
  double squares = 0.0;
  for (int i = lane; i < width; i += LANES) {
    const double v = (double)in[i] - mean;
    squares += v * v;
  }
  squares = warp_sum(squares);
  float inverse;
  if (kind == LENGTH) {
    const double length = sqrt(squares + (double)eps);
    inverse = (float)(1.0 / (length < (double)floor ? (double)floor : length));
  } else {
    inverse = (float)(1.0 / sqrt(squares / width + (double)eps));
  }
  const i64 at = run % n_weights * width;
  for (int i = lane; i < width; i += LANES) {
    float v = (in[i] - (float)mean) * inverse;
    if (weight) v *= weight[at + i];
    if (bias) v += bias[at + i];
    to[i] = v;
  }
}
