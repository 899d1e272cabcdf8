// Element by element.

extern "C" __global__ void add(float *x, const float *y, i64 n) { EACH(i, n) x[i] += y[i]; }

extern "C" __global__ void multiply_by(float *x, const float *y, i64 n) { EACH(i, n) x[i] *= y[i]; }

extern "C" __global__ void scale(float *x, float a, i64 n) { EACH(i, n) x[i] *= a; }

// One row of `width` values for all rows of `x`.
extern "C" __global__ void add_row(float *x, const float *row, int width, i64 n) {
  EACH(i, n) x[i] += row[i % width];
}

extern "C" __global__ void multiply_row(float *x, const float *row, int width, i64 n) {
  EACH(i, n) x[i] *= row[i % width];
}

// One factor for each row of `width` values, by the row's position where
// `positions` are given.
extern "C" __global__ void scale_rows(float *x, const float *factors, const int *positions,
                                      int width, i64 n) {
  EACH(i, n) {
    const i64 row = i / width;
    x[i] *= factors[positions ? positions[row] : row];
  }
}

// `x ← σ(gate) · x`.
extern "C" __global__ void sigmoid_gate(float *x, const float *gate, i64 n) {
  EACH(i, n) x[i] *= sigmoid(gate[i]);
}

// Functions of one value, by number; `a` is their parameter.
#define SIGMOID 0
#define SOFTPLUS 1
#define TANH 2
#define EXP_SCALED_EXP 3
#define EXP_SCALED_SIGMOID 4

extern "C" __global__ void apply_function(float *x, int function, float a, i64 n) {
  EACH(i, n) {
    const float v = x[i];
    float y = v;
    switch (function) {
    case SIGMOID: y = sigmoid(v); break;
    // Beyond 20 the difference to `v` is below half an ulp; NaN stays NaN.
    case SOFTPLUS: y = v > 20.0f ? v : log1pf(expf(v)); break;
    case TANH: y = tanhf(v); break;
    case EXP_SCALED_EXP: y = expf(a * expf(v)); break;
    case EXP_SCALED_SIGMOID: y = expf(a * sigmoid(v)); break;
    }
    x[i] = y;
  }
}

// Activations, by number; `p` are xIELU's parameters. NaN stays NaN.
#define SILU 0
#define GELU_TANH 1
#define RELU_SQUARED 2
#define CLAMPED_SWIGLU 3
#define XIELU 4

struct Parameters {
  float a, b, c, d;
};

__device__ float activate(int activation, float x, Parameters p) {
  switch (activation) {
  case SILU: return x * sigmoid(x);
  case GELU_TANH: return x * sigmoid(1.595769f * fmaf(0.044715f * x * x, x, x));
  case RELU_SQUARED: return x < 0.0f ? 0.0f : x * x;
  case XIELU: {
    const float positive = p.a, negative = p.b, beta = p.c, eps = p.d;
    const float bounded = x > eps ? eps : x;
    const float below = negative * (expf(bounded) - 1.0f - x);
    return fmaf(beta, x, x > 0.0f ? positive * x * x : below);
  }
  }
  return __uint_as_float(0x7fc00000u);
}

__device__ float clamped_swiglu(float g, float u) {
  const float limit = 7.0f;
  const float x = g > limit ? limit : g;
  const float v = u > limit ? limit : u < -limit ? -limit : u;
  return x * sigmoid(1.702f * x) * (v + 1.0f);
}

// `x ← act(x)`.
extern "C" __global__ void activation(float *x, int activation, float p0, float p1, float p2,
                                      float p3, i64 n) {
  const Parameters p = {p0, p1, p2, p3};
  EACH(i, n) x[i] = activate(activation, x[i], p);
}

// `gate ← act(gate) · up`.
extern "C" __global__ void gated_activation(float *gate, const float *up, int activation, float p0,
                                            float p1, float p2, float p3, i64 n) {
  const Parameters p = {p0, p1, p2, p3};
  EACH(i, n) {
    gate[i] = activation == CLAMPED_SWIGLU ? clamped_swiglu(gate[i], up[i])
                                           : activate(activation, gate[i], p) * up[i];
  }
}

// Columns of rows: for each row and group, `n` values from column
// `from_at + group · from_step` to column `to_at + group · to_step`.
extern "C" __global__ void copy_columns(float *to, i64 to_row, int to_step, const float *from,
                                        i64 from_row, int from_step, int n_group, int n,
                                        i64 n_rows) {
  EACH(i, n_rows * n_group * n) {
    const i64 row = i / ((i64)n_group * n);
    const int group = (int)(i / n % n_group), column = (int)(i % n);
    to[row * to_row + (i64)group * to_step + column] =
        from[row * from_row + (i64)group * from_step + column];
  }
}

// `out[i] ← factors[i] · x[rows[i]]` for rows of `width` values.
extern "C" __global__ void gather_rows(float *out, const float *x, const int *rows,
                                       const float *factors, int width, i64 n) {
  EACH(i, n) {
    const i64 r = i / width;
    const float v = x[(i64)rows[r] * width + i % width];
    out[i] = factors ? factors[r] * v : v;
  }
}

// `out[rows[i]] ← out[rows[i]] + factors[i] · x[i]`; no row twice.
extern "C" __global__ void scatter_add_rows(float *out, const float *x, const int *rows,
                                            const float *factors, int width, i64 n) {
  EACH(i, n) {
    const i64 r = i / width;
    float *o = out + (i64)rows[r] * width + i % width;
    *o = factors ? fmaf(factors[r], x[i], *o) : *o + x[i];
  }
}

// The lowest number of a row, at position `from` or later, with a value that is
// not finite, if it is below `*first`.
extern "C" __global__ void find_not_finite(int *first, const float *x, const int *positions,
                                           int from, int width, i64 n) {
  EACH(i, n) {
    const int row = (int)(i / width);
    if (!is_finite(x[i]) && positions[row] >= from) atomicMin(first, row);
  }
}
