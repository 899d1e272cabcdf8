// ggml blocks to elements, one element a thread: `decode_T(block, i)` is element
// `i` of a block. Each follows its twin in `src/quant`, to the bit.

// Codebooks of the IQ types, as `quant::grids` lays them out.
#define GRID_IQ2_XXS 0
#define GRID_IQ2_XS (GRID_IQ2_XXS + 8 * 256)
#define GRID_IQ2_S (GRID_IQ2_XS + 8 * 512)
#define GRID_IQ3_XXS (GRID_IQ2_S + 8 * 1024)
#define GRID_IQ3_S (GRID_IQ3_XXS + 4 * 256)
#define GRID_IQ1_S (GRID_IQ3_S + 4 * 512)

__device__ __forceinline__ u16 u16_at(const u8 *b, int at) {
  return (u16)(b[at] | b[at + 1] << 8);
}

__device__ __forceinline__ u32 u32_at(const u8 *b, int at) {
  return (u32)u16_at(b, at) | (u32)u16_at(b, at + 2) << 16;
}

__device__ __forceinline__ float f16_at(const u8 *b, int at) { return f16_to_f32(u16_at(b, at)); }

__device__ __forceinline__ int nibble(u8 byte, int i) { return byte >> (4 * i) & 0xf; }

// Element `i` of 32 whose low halves come first.
__device__ __forceinline__ int halves(const u8 *qs, int i) { return nibble(qs[i % 16], i / 16); }

__device__ float decode_q1_0(const u8 *b, int i) {
  const float d = f16_at(b, 0);
  return b[2 + i / 8] >> (i % 8) & 1 ? d : -d;
}

__device__ float decode_q2_0(const u8 *b, int i) {
  return f16_at(b, 0) * (float)((b[2 + i / 4] >> (2 * (i % 4)) & 3) - 1);
}

__device__ float decode_q4_0(const u8 *b, int i) {
  return f16_at(b, 0) * (float)(halves(b + 2, i) - 8);
}

__device__ float decode_q4_1(const u8 *b, int i) {
  return f16_at(b, 0) * (float)halves(b + 4, i) + f16_at(b, 2);
}

__device__ float decode_q5_0(const u8 *b, int i) {
  const int q = halves(b + 6, i) | (int)(u32_at(b, 2) >> i & 1) << 4;
  return f16_at(b, 0) * (float)(q - 16);
}

__device__ float decode_q5_1(const u8 *b, int i) {
  const int q = halves(b + 8, i) | (int)(u32_at(b, 4) >> i & 1) << 4;
  return f16_at(b, 0) * (float)q + f16_at(b, 2);
}

__device__ float decode_q8_0(const u8 *b, int i) { return f16_at(b, 0) * (float)(i8)b[2 + i]; }

__device__ float decode_tq1_0(const u8 *b, int i) {
  int digit, byte;
  if (i < 160) {
    digit = i / 32, byte = i % 32;
  } else if (i < 240) {
    digit = (i - 160) / 16, byte = 32 + (i - 160) % 16;
  } else {
    digit = (i - 240) / 4, byte = 48 + (i - 240) % 4;
  }
  u32 power = 1;
  for (int n = 0; n < digit; n++) power *= 3;
  const u32 q = b[byte] * power & 0xffu;
  return f16_at(b, 52) * (float)((int)(q * 3 >> 8) - 1);
}

__device__ float decode_tq2_0(const u8 *b, int i) {
  const int half = i / 128, n = i % 128 / 32, j = i % 32;
  return f16_at(b, 64) * (float)((b[32 * half + j] >> (2 * n) & 3) - 1);
}

// Twice the value of an E2M1 float.
__device__ __forceinline__ float e2m1_doubled(int code) {
  const int q = code & 7;
  const int magnitude = q + (q > 4 ? q - 4 : 0) + 2 * (q > 6 ? q - 6 : 0);
  return (float)(code & 8 ? -magnitude : magnitude);
}

__device__ float decode_mxfp4(const u8 *b, int i) {
  // Half the power of two, since the values are doubled.
  const u32 e = b[0];
  const float half = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  return half * e2m1_doubled(halves(b + 1, i));
}

__device__ float decode_nvfp4(const u8 *b, int i) {
  const u8 x = b[i / 16];
  const u32 exponent = x >> 3 & 0xf, mantissa = x & 7;
  const float ulp = __uint_as_float((116 + (exponent ? exponent : 1)) << 23);
  const float half = x == 0x7f ? 0.0f : ulp * (float)((exponent ? 8 : 0) + mantissa);
  const int j = i % 16;
  return half * e2m1_doubled(nibble(b[4 + 8 * (i / 16) + j % 8], j / 8));
}

__device__ float decode_q2_k(const u8 *b, int i) {
  const u8 scale = b[i / 16];
  const int q = b[16 + 32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
  return f16_at(b, 80) * (float)(scale & 0xf) * (float)q - f16_at(b, 82) * (float)(scale >> 4);
}

__device__ float decode_q3_k(const u8 *b, int i) {
  const int g = i / 16;
  const int low = nibble(b[96 + g % 8], g / 8), high = b[104 + g % 4] >> (2 * (g / 4)) & 3;
  const float d = f16_at(b, 108) * (float)((low | high << 4) - 32);
  const int q = b[32 + 32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
  return d * (float)(q - (b[i % 32] >> (i / 32) & 1 ? 0 : 4));
}

// Scale and minimum `j` of 8, in 6 bits each.
__device__ __forceinline__ void scale_min(const u8 *s, int j, float *scale, float *min) {
  if (j < 4) {
    *scale = (float)(s[j] & 0x3f);
    *min = (float)(s[j + 4] & 0x3f);
  } else {
    *scale = (float)((s[j + 4] & 0xf) | s[j - 4] >> 6 << 4);
    *min = (float)(s[j + 4] >> 4 | s[j] >> 6 << 4);
  }
}

__device__ float decode_q4_k(const u8 *b, int i) {
  const int j = i / 32;
  float scale, min;
  scale_min(b + 4, j, &scale, &min);
  const float q = (float)nibble(b[16 + j / 2 * 32 + i % 32], j % 2);
  return f16_at(b, 0) * scale * q - f16_at(b, 2) * min;
}

__device__ float decode_q5_k(const u8 *b, int i) {
  const int j = i / 32;
  float scale, min;
  scale_min(b + 4, j, &scale, &min);
  const int q = nibble(b[48 + j / 2 * 32 + i % 32], j % 2) | (b[16 + i % 32] >> j & 1) << 4;
  return f16_at(b, 0) * scale * (float)q - f16_at(b, 2) * min;
}

__device__ float decode_q6_k(const u8 *b, int i) {
  const int half = i / 128, j = i % 128 / 32, l = i % 32;
  const float d = f16_at(b, 208) * (float)(i8)b[192 + i / 16];
  const int low = nibble(b[64 * half + 32 * (j % 2) + l], j / 2);
  const int q = low | (b[128 + 32 * half + l] >> (2 * j) & 3) << 4;
  return d * (float)(q - 32);
}

__device__ float decode_q8_k(const u8 *b, int i) {
  return __uint_as_float(u32_at(b, 0)) * (float)(i8)b[4 + i];
}

// Bit `j` of eight sign bits from seven, whose number is even.
__device__ __forceinline__ bool even_sign(u32 sevens, int group, int j) {
  const u32 seven = sevens >> (7 * group) & 0x7f;
  return (j < 7 ? seven >> j : (u32)__popc(seven)) & 1;
}

__device__ __forceinline__ float with_sign(float x, bool negative) { return negative ? -x : x; }

__device__ float decode_iq2_xxs(const u8 *b, int i, const i8 *grids) {
  const int g = i / 32, l = i % 32 / 8, j = i % 8;
  const u32 rest = u32_at(b, 6 + 8 * g);
  const float d = f16_at(b, 0) * (0.5f + (float)(rest >> 28)) * 0.25f;
  const float q = (float)grids[GRID_IQ2_XXS + 8 * b[2 + 8 * g + l] + j];
  return with_sign(d * q, even_sign(rest, l, j));
}

// The scale of a half of 32 elements, from 4 bits.
__device__ __forceinline__ float quarter_scale(float d, u8 scales, int half) {
  return d * (0.5f + (float)nibble(scales, half)) * 0.25f;
}

__device__ float decode_iq2_xs(const u8 *b, int i, const i8 *grids) {
  const u32 bits = u16_at(b, 2 + 2 * (i / 8));
  const float d = quarter_scale(f16_at(b, 0), b[66 + i / 32], i % 32 / 16);
  const float q = (float)grids[GRID_IQ2_XS + 8 * (bits & 511) + i % 8];
  return with_sign(d * q, even_sign(bits >> 9, 0, i % 8));
}

__device__ float decode_iq2_s(const u8 *b, int i, const i8 *grids) {
  const int g = i / 32, l = i % 32 / 8;
  const int index = b[2 + i / 8] | (b[66 + g] >> (2 * l) & 3) << 8;
  const float d = quarter_scale(f16_at(b, 0), b[74 + g], i % 32 / 16);
  const float q = (float)grids[GRID_IQ2_S + 8 * index + i % 8];
  return with_sign(d * q, b[34 + i / 8] >> (i % 8) & 1);
}

__device__ float decode_iq3_xxs(const u8 *b, int i, const i8 *grids) {
  const u32 rest = u32_at(b, 66 + 4 * (i / 32));
  const float d = f16_at(b, 0) * (0.5f + (float)(rest >> 28)) * 0.5f;
  const float q = (float)grids[GRID_IQ3_XXS + 4 * b[2 + i / 4] + i % 4];
  return with_sign(d * q, even_sign(rest, i % 32 / 8, i % 8));
}

__device__ float decode_iq3_s(const u8 *b, int i, const i8 *grids) {
  const int g = i / 32;
  const int index = b[2 + i / 4] | (b[66 + g] >> (i % 32 / 4) & 1) << 8;
  const float d = f16_at(b, 0) * (1.0f + 2.0f * (float)nibble(b[106 + g / 2], g % 2));
  const float q = (float)grids[GRID_IQ3_S + 4 * index + i % 4];
  return with_sign(d * q, b[74 + i / 8] >> (i % 8) & 1);
}

__device__ float decode_iq1_s(const u8 *b, int i, const i8 *grids) {
  const u32 rest = u16_at(b, 34 + 2 * (i / 32));
  const float d = f16_at(b, 0) * (float)(2 * (rest >> 12 & 7) + 1);
  const int index = b[2 + i / 8] | (rest >> (3 * (i % 32 / 8)) & 7) << 8;
  const float shift = rest & 0x8000 ? -0.125f : 0.125f;
  return d * ((float)grids[GRID_IQ1_S + 8 * index + i % 8] + shift);
}

__device__ float decode_iq1_m(const u8 *b, int i, const i8 *grids) {
  // The scale of the scales lies in the high nibbles of four u16.
  u32 bits = 0;
  for (int n = 0; n < 4; n++) bits |= (u32)(b[49 + 2 * n] >> 4) << (4 * n);
  const int g = i / 32, l = i % 32 / 8;
  const u32 rest = (u32)u16_at(b, 32 + 2 * g) >> (4 * l);
  const u32 scale = (u32)u16_at(b, 48 + 2 * (g / 2)) >> (6 * (g % 2) + 3 * (l / 2)) & 7;
  const float d = f16_to_f32((u16)bits) * (float)(2 * scale + 1);
  const int index = b[4 * g + l] | (rest & 7) << 8;
  const float shift = rest & 8 ? -0.125f : 0.125f;
  return d * ((float)grids[GRID_IQ1_S + 8 * index + i % 8] + shift);
}

__device__ __forceinline__ float level(int code) {
  const i8 levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                         1,    13,   25,  38,  53,  69,  89,  113};
  return (float)levels[code];
}

__device__ float decode_iq4_nl(const u8 *b, int i) { return f16_at(b, 0) * level(halves(b + 2, i)); }

__device__ float decode_iq4_xs(const u8 *b, int i) {
  const int g = i / 32;
  const int high = u16_at(b, 2) >> (2 * g) & 3;
  const float scale = (float)(nibble(b[4 + g / 2], g % 2) + 16 * high - 32);
  return f16_at(b, 0) * scale * level(halves(b + 8 + 16 * g, i % 32));
}

// `type` is the number that a GGUF file stores.
__device__ float decode(int type, const u8 *blocks, i64 e, const i8 *grids) {
#define BLOCK(elements, bytes) blocks + e / elements * bytes, (int)(e % elements)
  switch (type) {
  case 0: return ((const float *)blocks)[e];
  case 1: return f16_to_f32(((const u16 *)blocks)[e]);
  case 2: return decode_q4_0(BLOCK(32, 18));
  case 3: return decode_q4_1(BLOCK(32, 20));
  case 6: return decode_q5_0(BLOCK(32, 22));
  case 7: return decode_q5_1(BLOCK(32, 24));
  case 8: return decode_q8_0(BLOCK(32, 34));
  case 10: return decode_q2_k(BLOCK(256, 84));
  case 11: return decode_q3_k(BLOCK(256, 110));
  case 12: return decode_q4_k(BLOCK(256, 144));
  case 13: return decode_q5_k(BLOCK(256, 176));
  case 14: return decode_q6_k(BLOCK(256, 210));
  case 15: return decode_q8_k(BLOCK(256, 292));
  case 16: return decode_iq2_xxs(BLOCK(256, 66), grids);
  case 17: return decode_iq2_xs(BLOCK(256, 74), grids);
  case 18: return decode_iq3_xxs(BLOCK(256, 98), grids);
  case 19: return decode_iq1_s(BLOCK(256, 50), grids);
  case 20: return decode_iq4_nl(BLOCK(32, 18));
  case 21: return decode_iq3_s(BLOCK(256, 110), grids);
  case 22: return decode_iq2_s(BLOCK(256, 82), grids);
  case 23: return decode_iq4_xs(BLOCK(256, 136));
  case 29: return decode_iq1_m(BLOCK(256, 56), grids);
  case 30: return bf16_to_f32(((const u16 *)blocks)[e]);
  case 34: return decode_tq1_0(BLOCK(256, 54));
  case 35: return decode_tq2_0(BLOCK(256, 66));
  case 39: return decode_mxfp4(BLOCK(32, 17));
  case 40: return decode_nvfp4(BLOCK(64, 36));
  case 41: return decode_q1_0(BLOCK(128, 18));
  case 42: return decode_q2_0(BLOCK(64, 18));
  }
#undef BLOCK
  // The host refuses other types; if one came through, no score would.
  return __uint_as_float(0x7fc00000u);
}

template <typename T>
__device__ void dequantize(typename T::Stored *out, const u8 *blocks, int type, i64 n,
                           const i8 *grids) {
  EACH(e, n) out[e] = T::store(decode(type, blocks, e, grids));
}

extern "C" __global__ void dequantize_f32(float *out, const u8 *blocks, int type, i64 n,
                                          const i8 *grids) {
  dequantize<F32>(out, blocks, type, n, grids);
}

extern "C" __global__ void dequantize_f16(u16 *out, const u8 *blocks, int type, i64 n,
                                          const i8 *grids) {
  dequantize<F16>(out, blocks, type, n, grids);
}

extern "C" __global__ void dequantize_bf16(u16 *out, const u8 *blocks, int type, i64 n,
                                           const i8 *grids) {
  dequantize<Bf16>(out, blocks, type, n, grids);
}
