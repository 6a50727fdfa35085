// SPDX-License-Identifier: Apache-2.0
/* Conversions between f32 and the narrower types. FP8 is computed as fp16 is (fp16.h). */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp16.h"
#include "kernels/cpu/level.h"

#define EACH _Pragma("omp simd") for (int64_t i = begin; i < end; i++)

void LEVEL(bf16_to_f32)(float *out, const uint16_t *x, int64_t begin, int64_t end) {
  EACH out[i] = bf16_value(x[i]);
}

void LEVEL(f32_to_bf16)(uint16_t *out, const float *x, int64_t begin, int64_t end) {
  EACH out[i] = bf16_nearest(x[i]);
}

void LEVEL(f32_to_bf16_stochastic)(
    uint16_t *out, const float *x, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
    int64_t end) {
  if (begin < end) bf16_stochastic(out + begin, x + begin, key, slice, begin, end - begin);
}

/* The CPU's own conversion, where it has one, gives the same bits; the rest of a range is not a
 * vector. */
void LEVEL(fp16_to_f32)(float *out, const uint16_t *x, int64_t begin, int64_t end) {
#if defined(__F16C__)
  for (; end - begin >= 8; begin += 8)
    _mm256_storeu_ps(out + begin, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + begin))));
#endif
  EACH out[i] = fp16_value(x[i]);
}

void LEVEL(f32_to_fp16)(uint16_t *out, const float *x, int64_t begin, int64_t end) {
#if defined(__F16C__)
  for (; end - begin >= 8; begin += 8)
    _mm_storeu_si128(
        (__m128i *)(out + begin),
        _mm256_cvtps_ph(_mm256_loadu_ps(x + begin), _MM_FROUND_TO_NEAREST_INT));
#endif
  EACH out[i] = fp16_nearest(x[i]);
}

/* 1 sign, 4 exponent bits of bias 7, 3 of fraction; the biases are 120 apart. Of the largest
 * exponent only the largest fraction is special (Micikevicius et al., "FP8 formats for deep
 * learning", 2022). */
static inline float e4m3_value(uint8_t x) {
  int32_t magnitude = (x & 0x7F) << 20, sign = (int32_t)((uint32_t)(x & 0x80) << 24);
  int32_t normal = magnitude + (120 << 23);
  int32_t subnormal = float_bits(bits_float(magnitude + (121 << 23)) - 0x1p-6f);
  int32_t bits = magnitude < 1 << 23 ? subnormal : normal;
  return bits_float(((x & 0x7F) == 0x7F ? F32_INFINITY | F32_QUIET : bits) | sign);
}

static inline uint8_t e4m3_nearest(float x) {
  uint32_t bits = (uint32_t)float_bits(x);
  int32_t whole = (int32_t)(bits & F32_MAGNITUDE), sign = (int32_t)(bits >> 24 & 0x80);
  int32_t magnitude = whole > float_bits(448) ? float_bits(448) : whole;
  int32_t normal = (magnitude - (120 << 23) + 0x7FFFF + (magnitude >> 20 & 1)) >> 20;
  int32_t subnormal = float_bits(bits_float(magnitude) + 0x1p14f) - float_bits(0x1p14f);
  int32_t small = magnitude < float_bits(0x1p-6f) ? subnormal : normal;
  return (uint8_t)(whole > F32_INFINITY ? 0x7F : small | sign);
}

void LEVEL(e4m3_to_f32)(float *out, const uint8_t *x, int64_t begin, int64_t end) {
  EACH out[i] = e4m3_value(x[i]);
}

void LEVEL(f32_to_e4m3)(uint8_t *out, const float *x, int64_t begin, int64_t end) {
  EACH out[i] = e4m3_nearest(x[i]);
}
