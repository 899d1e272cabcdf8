// A blocked product: panels of op(A) and op(B) as f32, and a tile of C whose
// sums stay in registers.
#include "gemm.h"
#include "team.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace standin {

namespace {

constexpr size_t tile_rows = 16, tile_columns = 6, panel_depth = 256, panel_rows = 96;
typedef float Vector __attribute__((vector_size(32), aligned(4)));

float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
uint32_t to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

float from_half(uint16_t h) {
    uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // Scaled by a power of two, subnormals come out right.
    return from_bits(to_bits(from_bits(rest << 13) * 0x1p112f) | sign);
}

// To the nearest, ties to even.
uint16_t to_half(float f) {
    uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (rest >= 0x477ff000) return uint16_t(sign | 0x7c00);
    if (rest < 0x38800000) // subnormal: the addition rounds
        return uint16_t(sign | (to_bits(from_bits(rest) + 0.5f) - 0x3f000000));
    return uint16_t(sign | ((rest + 0xfff + (rest >> 13 & 1)) - 0x38000000) >> 13);
}
uint16_t to_bf16(float f) {
    uint32_t bits = to_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float load(const void *data, Number number, size_t at) {
    if (number == Number::f32) return static_cast<const float *>(data)[at];
    uint16_t bits = static_cast<const uint16_t *>(data)[at];
    return number == Number::f16 ? from_half(bits) : from_bits(uint32_t(bits) << 16);
}
void store(void *data, Number number, size_t at, float value) {
    if (number == Number::f32) static_cast<float *>(data)[at] = value;
    else static_cast<uint16_t *>(data)[at] = number == Number::f16 ? to_half(value) : to_bf16(value);
}

// Tiles of `width` rows (or columns), each depth-major, padded with zeros.
// Element (i, p) of the operand is at `i * across + p * along`.
void pack(const Matrix &x, size_t across, size_t along, size_t first, size_t count, size_t depth_first, size_t depth,
          size_t width, float *out) {
    for (size_t t = 0; t < count; t += width)
        for (size_t p = 0; p < depth; p++)
            for (size_t i = 0; i < width; i++)
                *out++ = t + i < count
                             ? load(x.data, x.number, (first + t + i) * across + (depth_first + p) * along)
                             : 0.0f;
}

void tile(size_t depth, const float *a, const float *b, float *sums) {
    Vector acc[tile_columns][2] = {};
    for (size_t p = 0; p < depth; p++, a += tile_rows, b += tile_columns) {
        Vector low = *reinterpret_cast<const Vector *>(a), high = *reinterpret_cast<const Vector *>(a + 8);
#pragma GCC unroll 6
        for (size_t j = 0; j < tile_columns; j++) {
            acc[j][0] += low * b[j];
            acc[j][1] += high * b[j];
        }
    }
    for (size_t j = 0; j < tile_columns; j++) {
        Vector *to = reinterpret_cast<Vector *>(sums + j * tile_rows);
        to[0] += acc[j][0];
        to[1] += acc[j][1];
    }
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

} // namespace

void multiply(size_t m, size_t n, size_t k, float alpha, Matrix a, Matrix b, float beta, void *c, Number of_c,
              size_t leading_c) {
    // All of op(B) packed once; op(A) a few rows at a time.
    size_t columns = round_up(n, tile_columns);
    std::vector<float> packed_b(columns * k);
    for (size_t p = 0; p < k; p += panel_depth)
        pack(b, b.transposed ? 1 : b.leading, b.transposed ? b.leading : 1, 0, n, p, std::min(panel_depth, k - p),
             tile_columns, &packed_b[columns * p]);
    auto rows_of_c = [&](size_t part) -> Failure {
        size_t i = part * panel_rows, rows = std::min(panel_rows, m - i), padded = round_up(rows, tile_rows);
        std::vector<float> packed_a(padded * k), sums;
        for (size_t p = 0; p < k; p += panel_depth)
            pack(a, a.transposed ? a.leading : 1, a.transposed ? 1 : a.leading, i, rows, p,
                 std::min(panel_depth, k - p), tile_rows, &packed_a[padded * p]);
        for (size_t j = 0; j < n; j += tile_columns) {
            sums.assign(padded * tile_columns, 0.0f);
            for (size_t p = 0; p < k; p += panel_depth) {
                size_t depth = std::min(panel_depth, k - p);
                for (size_t r = 0; r < padded; r += tile_rows)
                    tile(depth, &packed_a[padded * p + r * depth], &packed_b[columns * p + j * depth],
                         &sums[r * tile_columns]);
            }
            for (size_t jj = j; jj < std::min(j + tile_columns, n); jj++)
                for (size_t ii = 0; ii < rows; ii++) {
                    float sum = alpha * sums[(ii / tile_rows * tile_columns + jj - j) * tile_rows + ii % tile_rows];
                    size_t at = jj * leading_c + i + ii;
                    if (beta != 0) sum += beta * load(c, of_c, at);
                    store(c, of_c, at, sum);
                }
        }
        return {};
    };
    spread((m + panel_rows - 1) / panel_rows, rows_of_c);
}

} // namespace standin
