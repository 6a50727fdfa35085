// SPDX-License-Identifier: Apache-2.0
/* Numbers to codes of FP8 with the bits of the CPU's (kernels/cpu/fp8.h), in plain arithmetic,
 * which is that of every architecture. */
#ifndef TSR_KERNELS_CUDA_FP8_CUH
#define TSR_KERNELS_CUDA_FP8_CUH
#include "base/fp8_layout.h"
#include "kernels/cuda/number.cuh"

static const uint32_t FP8_NAN = 0x7F, F32_NAN_BITS = 0x7FC00000, F32_INFINITY_BITS = 0x7F800000;

/* The magnitude's bits, whose order is that of the numbers; an infinity and NaN are above all. */
static __device__ inline uint32_t fp8_magnitude(float x) { return float_bits(x) & 0x7FFFFFFF; }

/* The scale of a block with that largest magnitude. */
static __device__ inline float fp8_scale(const tsr_fp8_layout &l, uint32_t amax) {
  if (amax >= F32_INFINITY_BITS) return bits_float(F32_NAN_BITS);
  float scale = bits_float(amax) / tsr_fp8_largest(l.format);
  if (scale < 0x1p-126f) return 0x1p-126f;
  return l.power_of_two ? bits_float((float_bits(scale) + 0x7FFFFF) & F32_INFINITY_BITS) : scale;
}

/* What a format's numbers are rounded with. */
typedef struct {
  int dropped;       /* bits of f32's fraction that it lacks */
  uint32_t biases;   /* apart, as f32's bits have them */
  uint32_t largest;  /* finite number's bits */
  uint32_t smallest; /* normal number's bits */
  uint32_t magic;    /* bits of a number whose neighbours are as far apart as subnormal ones */
} fp8_rounding;

static __device__ inline fp8_rounding fp8_rounding_of(tsr_fp8_format format) {
  bool e5m2 = format == TSR_FP8_E5M2;
  fp8_rounding r;
  r.dropped = e5m2 ? 21 : 20;
  r.biases = (e5m2 ? 112u : 120u) << 23;
  r.largest = float_bits(tsr_fp8_largest(format));
  r.smallest = r.biases + (1u << 23);
  r.magic = float_bits(e5m2 ? 0x1p7f : 0x1p14f);
  return r;
}

/* To nearest even; beyond the largest finite number it is that one. */
static __device__ inline uint32_t fp8_nearest(const fp8_rounding &r, float x) {
  uint32_t whole = fp8_magnitude(x), size = whole > r.largest ? r.largest : whole;
  uint32_t half = (1u << (r.dropped - 1)) - 1 + (size >> r.dropped & 1);
  uint32_t normal = (size - r.biases + half) >> r.dropped;
  uint32_t subnormal = float_bits(bits_float(size) + bits_float(r.magic)) - r.magic;
  uint32_t code = (size < r.smallest ? subnormal : normal) | (float_bits(x) >> 24 & 0x80);
  return whole > F32_INFINITY_BITS ? FP8_NAN : code;
}

#endif
