// SPDX-License-Identifier: Apache-2.0
/* The two formats of FP8 (base/fp8_layout.h), computed as fp16 is (fp16.h): branch-free plain C. */
#ifndef TSR_KERNELS_CPU_FP8_H
#define TSR_KERNELS_CPU_FP8_H
#include "kernels/cpu/fp16.h"

/* 1 sign, 4 exponent bits of bias 7, 3 of fraction; the biases are 120 apart. Of the largest
 * exponent only the largest fraction is special. */
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

/* 1 sign, 5 exponent bits of bias 15, 2 of fraction: the upper byte of fp16. */
static inline float e5m2_value(uint8_t x) { return fp16_value((uint16_t)(x << 8)); }

/* Saturating, as E4M3's is: an infinity becomes the largest finite number. */
static inline uint8_t e5m2_nearest(float x) {
  uint32_t bits = (uint32_t)float_bits(x);
  int32_t whole = (int32_t)(bits & F32_MAGNITUDE), sign = (int32_t)(bits >> 24 & 0x80);
  int32_t magnitude = whole > float_bits(57344) ? float_bits(57344) : whole;
  int32_t normal = (magnitude - (112 << 23) + 0xFFFFF + (magnitude >> 21 & 1)) >> 21;
  int32_t subnormal = float_bits(bits_float(magnitude) + 0x1p7f) - float_bits(0x1p7f);
  int32_t small = magnitude < float_bits(0x1p-14f) ? subnormal : normal;
  return (uint8_t)(whole > F32_INFINITY ? 0x7F : small | sign);
}

#endif
