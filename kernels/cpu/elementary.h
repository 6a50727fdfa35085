// SPDX-License-Identifier: Apache-2.0
/* The one exp, tanh, sigmoid, normal distribution, log and sine of all kernels: branch-free plain
 * C, so that the compiler turns a loop over them into vectors of any width with the same bits.
 * Nothing here may be contracted or reordered by the compiler (-ffp-contract=off); `fused` is the
 * only place where a level with hardware multiply-add differs from one without. */
#ifndef TSR_KERNELS_CPU_ELEMENTARY_H
#define TSR_KERNELS_CPU_ELEMENTARY_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static inline float fused(float a, float b, float c) { return a * b + c; }
#endif

static inline int32_t float_bits(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float bits_float(int32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* e^x within 2 ulp; results below the smallest normal number are 0. x = n ln2 + r with |r| <=
 * ln2/2, ln2 in two parts of which n times the first is exact; a minimax polynomial for e^r; n is
 * added to the exponent (the bits of a quiet NaN give n = 0 there, so a NaN stays one). */
static inline float real_exp(float x) {
  const float magic = 0x1.8p23f; /* adding it rounds to an integer in the low bits */
  float shifted = x * 0x1.715476p+0f + magic;
  float n = shifted - magic;
  float r = fused(n, -0.693359375f, x);
  r = fused(n, 2.12194440e-4f, r);
  float p = 0.00139262508f;
  p = fused(p, r, 0.00836323288f);
  p = fused(p, r, 0.0416665542f);
  p = fused(p, r, 0.166665766f);
  p = fused(p, r, 0.5f);
  p = fused(p, r * r, r) + 1.0f;
  uint32_t bits = (uint32_t)float_bits(p) + ((uint32_t)float_bits(shifted) << 23);
  float y = bits_float((int32_t)bits);
  y = x < -87.33654f ? 0.0f : y;
  return x > 88.72283f ? INFINITY : y;
}

static inline float real_sigmoid(float x) { return 1.0f / (1.0f + real_exp(-x)); }

/* sigmoid(x) and its slope s(1-s), without the cancellation of 1 - s where s is near 1. */
static inline float real_sigmoid_slope(float x, float *ret_sigmoid) {
  float e = real_exp(-fabsf(x)), larger = 1.0f / (1.0f + e), smaller = e * larger;
  *ret_sigmoid = x < 0 ? smaller : larger;
  return larger * smaller;
}

/* An odd polynomial near 0, where 1 - 2/(e^2x + 1) cancels. */
static inline float real_tanh(float x) {
  float a = fabsf(x), s = x * x;
  float p = 0.00229274482f;
  p = fused(p, s, -0.00834394552f);
  p = fused(p, s, 0.0217689187f);
  p = fused(p, s, -0.0539592596f);
  p = fused(p, s, 0.133333036f);
  p = fused(p, s, -0.333333332f);
  float small = fused(p * s, x, x);
  float large = 1.0f - 2.0f / (real_exp(2.0f * a) + 1.0f);
  large = copysignf(large, x);
  return a < 0.625f ? small : large;
}

/* The normal distribution function Phi(x) = erfc(-x/sqrt2)/2, by erfc(t) = e^(-t^2) y P(y) with
 * y = 1/(1 + t/2): relative precision in the lower tail too (to the rounding of x^2/2). */
static inline float real_phi(float x) {
  float t = fabsf(x) * 0.707106781f;
  float y = 1.0f / fused(t, 0.5f, 1.0f);
  float p = 0.0323986522f;
  p = fused(p, y, -0.171628901f);
  p = fused(p, y, 0.332568661f);
  p = fused(p, y, -0.218993285f);
  p = fused(p, y, -0.0866494420f);
  p = fused(p, y, 0.0745679474f);
  p = fused(p, y, 0.0390575179f);
  p = fused(p, y, 0.189795469f);
  p = fused(p, y, 0.244479109f);
  p = fused(p, y, 0.282318428f);
  p = fused(p, y, 0.282085846f);
  float tail = 0.5f * y * p * real_exp(-0.5f * x * x);
  return x < 0 ? tail : 1.0f - tail;
}

/* ln x for normal x > 0: x = 2^n m with m in [sqrt(1/2), sqrt2), ln m = 2 atanh((m-1)/(m+1)). */
static inline double double_log(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int64_t above = bits - 0x3FE6A09E667F3BCC; /* sqrt(1/2) */
  int64_t n = above >> 52;
  bits -= (int64_t)((uint64_t)n << 52);
  double m;
  memcpy(&m, &bits, sizeof m);
  double s = (m - 1) / (m + 1), z = s * s;
  double p = 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  return (double)(int32_t)n * 0.69314718055994530942 + 2 * (s + s * z * p);
}

/* Sine and cosine of f quarter turns, |f| <= 1/2, then turned by `quarters` more. */
static inline void double_sincos(double f, int32_t quarters, double *ret_sin, double *ret_cos) {
  double x = f * 1.57079632679489661923, z = x * x;
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = x + x * z * s;
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = 1 - 0.5 * z + z * z * c;
  double sine = quarters & 1 ? c : s, cosine = quarters & 1 ? s : c;
  *ret_sin = quarters & 2 ? -sine : sine;
  *ret_cos = (quarters + 1) & 2 ? -cosine : cosine;
}

#endif
