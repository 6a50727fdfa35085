// SPDX-License-Identifier: Apache-2.0
/* IEEE half precision, for the conversions and for summands rounded to it: branch-free plain C, as
 * in bf16.h. The bits are computed with integers, and one f32 addition where the result is
 * subnormal: adding a power of two whose last bit is the smallest number of the narrow type makes
 * the addition round (F. Giesen, "Float->half variants", 2012). */
#ifndef TSR_KERNELS_CPU_FP16_H
#define TSR_KERNELS_CPU_FP16_H
#include "kernels/cpu/bf16.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

/* 1 sign, 5 exponent bits of bias 15, 10 of fraction; the biases are 112 apart. */
static inline float fp16_value(uint16_t x) {
  int32_t magnitude = (x & 0x7FFF) << 13, sign = (int32_t)((uint32_t)(x & 0x8000) << 16);
  int32_t normal = magnitude + (112 << 23);
  int32_t subnormal = float_bits(bits_float(magnitude + (113 << 23)) - 0x1p-14f);
  int32_t special = magnitude | F32_INFINITY | ((x & 0x3FF) > 0 ? F32_QUIET : 0);
  int32_t bits = magnitude < 1 << 23 ? subnormal : normal;
  return bits_float((magnitude >= 31 << 23 ? special : bits) | sign);
}

static inline uint16_t fp16_nearest(float x) {
  uint32_t bits = (uint32_t)float_bits(x);
  int32_t magnitude = (int32_t)(bits & F32_MAGNITUDE), sign = (int32_t)(bits >> 16 & 0x8000);
  int32_t normal = (magnitude - (112 << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  int32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
  int32_t special = magnitude > F32_INFINITY ? 0x7E00 | (magnitude >> 13 & 0x3FF) : 0x7C00;
  int32_t half = magnitude < float_bits(0x1p-14f) ? subnormal : normal;
  return (uint16_t)((magnitude >= float_bits(0x1p16f) ? special : half) | sign);
}

/* Rounds x (n) in place. The CPU's own conversion, where it has one, gives the same bits. */
static inline void fp16_round(float *x, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_ps(x + i, _mm256_cvtph_ps(half));
  }
#endif
#pragma omp simd
  for (int64_t j = i; j < n; j++) x[j] = fp16_value(fp16_nearest(x[j]));
}

#endif
