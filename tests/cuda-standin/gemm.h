// Products for the stand-in of cuBLAS.
#pragma once
#include <cstddef>

namespace standin {

enum class Number { f32, f16, bf16 };

inline size_t bytes_of(Number n) { return n == Number::f32 ? 4 : 2; }

// A matrix in memory, column-major; `transposed` is of how it is read.
struct Matrix {
    const void *data;
    Number number;
    bool transposed;
    size_t leading;
};

// C ← α op(A) op(B) + β C with f32 sums, op(A) being m × k and op(B) k × n.
// C is not read where β is 0. The order of the sums depends on k alone.
void multiply(size_t m, size_t n, size_t k, float alpha, Matrix a, Matrix b, float beta, void *c, Number of_c,
              size_t leading_c);

} // namespace standin
