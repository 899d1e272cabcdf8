// RoPE from tables of cosines and sines, `positions × n_pairs` each: turns the
// pairs of every head, from element `at` of the head on.

extern "C" __global__ void rotate(float *x, i64 x_row, int head_dim, int at, int n_head,
                                  const float *cosines, const float *sines, const int *positions,
                                  int n_pairs, int adjacent, i64 n_rows) {
  EACH(i, n_rows * n_head * n_pairs) {
    const int pair = (int)(i % n_pairs), head = (int)(i / n_pairs % n_head);
    const i64 row = i / n_pairs / n_head;
    float *h = x + row * x_row + (i64)head * head_dim + at;
    float *first = h + (adjacent ? 2 * pair : pair);
    float *second = h + (adjacent ? 2 * pair + 1 : pair + n_pairs);
    const i64 angle = (i64)positions[row] * n_pairs + pair;
    const float c = cosines[angle], s = sines[angle], a = *first, b = *second;
    *first = a * c - b * s;
    *second = a * s + b * c;
  }
}
