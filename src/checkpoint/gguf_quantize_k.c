// SPDX-License-Identifier: Apache-2.0
/* The types of 256 elements. Scales are found by trying several and fitting each by least squares;
 * the order of all sums is that of llama.cpp, and so are the bits. */
#include "checkpoint/gguf_quantize_k.h"
#include <math.h>
#include <string.h>

enum { ALL = 256, WIDE = 32, NARROW = 16 }; /* elements of a block and of its sub-blocks */
enum { SUBS_WIDE = ALL / WIDE, SUBS_NARROW = ALL / NARROW };

static int clamp(int x, int least, int most) { return x < least ? least : x > most ? most : x; }

/* To the nearest whole number, to even ones between two. */
static int nearest(float x) { return (int)lrintf(x); }

/* d as f16 into the bytes; what it is there. */
static float store_half(const tsr_kernels *kernels, float d, uint8_t *ret) {
  uint16_t half;
  float stored;
  kernels->f32_to_fp16(&half, &d, 0, 1);
  kernels->fp16_to_f32(&stored, &half, 0, 1);
  ret[0] = (uint8_t)(half & 0xff);
  ret[1] = (uint8_t)(half >> 8);
  return stored;
}

/* ---- scale and minimum: Q4_K, Q5_K ---- */

/* x is about scale * q - minimum, with 0 <= q <= levels. */
typedef struct {
  float scale, minimum;
} affine;

typedef struct {
  int levels;
  float first; /* trial k divides the range into levels + first + 0.1 k */
  int trials;
} search;

/* Sums over a sub-block with its weights w. */
typedef struct {
  float w, x, q, qq, qx;
} sums;

static float
weighted_error(const float *x, const float *weights, const uint8_t *q, float scale, float offset) {
  float error = 0;
  for (int i = 0; i < WIDE; i++) {
    float difference = scale * (float)q[i] + offset - x[i];
    error += weights[i] * (difference * difference);
  }
  return error;
}

static void
round_to_levels(const float *x, float least, float inverse, int levels, uint8_t *ret_q) {
  for (int i = 0; i < WIDE; i++)
    ret_q[i] = (uint8_t)clamp(nearest(inverse * (x[i] - least)), 0, levels);
}

/* The least-squares scale and offset for these q, whose offset is at most 0; false: q is one
 * number. */
static bool
fit(const float *x, const float *weights, const uint8_t *q, sums s, float *ret_scale,
    float *ret_offset) {
  s.q = s.qq = s.qx = 0;
  for (int i = 0; i < WIDE; i++) {
    float l = (float)q[i], w = weights[i];
    s.q += w * l;
    s.qq += w * l * l;
    s.qx += w * l * x[i];
  }
  float determinant = s.w * s.qq - s.q * s.q;
  if (!(determinant > 0)) return false;
  *ret_scale = (s.w * s.qx - s.x * s.q) / determinant;
  *ret_offset = (s.qq * s.x - s.q * s.qx) / determinant;
  if (*ret_offset > 0) {
    *ret_offset = 0;
    *ret_scale = s.qx / s.qq;
  }
  return true;
}

static affine find_affine(const float *x, search how, uint8_t ret_q[WIDE]) {
  float weights[WIDE], squares = 0, least = x[0], most = x[0];
  for (int i = 0; i < WIDE; i++) squares += x[i] * x[i];
  float mean = sqrtf(squares / WIDE);
  sums s = {0};
  for (int i = 0; i < WIDE; i++) {
    weights[i] = mean + fabsf(x[i]);
    least = fminf(least, x[i]);
    most = fmaxf(most, x[i]);
    s.w += weights[i];
    s.x += weights[i] * x[i];
  }
  if (least > 0) least = 0;
  memset(ret_q, 0, WIDE);
  if (most == least) return (affine){0, -least};
  float inverse = (float)how.levels / (most - least), scale = 1 / inverse, offset = least;
  round_to_levels(x, least, inverse, how.levels, ret_q);
  float best = weighted_error(x, weights, ret_q, scale, offset);
  for (int k = 0; k <= how.trials; k++) {
    uint8_t q[WIDE];
    float scale_k, offset_k;
    /* the range begins at the best offset so far */
    inverse = (how.first + 0.1f * (float)k + (float)how.levels) / (most - offset);
    round_to_levels(x, offset, inverse, how.levels, q);
    if (!fit(x, weights, q, s, &scale_k, &offset_k)) continue;
    float error = weighted_error(x, weights, q, scale_k, offset_k);
    if (!(error < best)) continue;
    memcpy(ret_q, q, WIDE);
    best = error;
    scale = scale_k;
    offset = offset_k;
  }
  return (affine){scale, -offset};
}

/* Eight scales and eight minima of 6 bits in 12 bytes: those of 0 to 3 in the low bits of bytes 0
 * to 7, of 4 to 7 the low halves in bytes 8 to 11 and the upper two bits above those of 0 to 3. */
static void pack_scales(const uint8_t *scales, const uint8_t *minima, uint8_t ret[12]) {
  for (int j = 0; j < 4; j++) {
    ret[j] = (uint8_t)(scales[j] | scales[j + 4] >> 4 << 6);
    ret[j + 4] = (uint8_t)(minima[j] | minima[j + 4] >> 4 << 6);
    ret[j + 8] = (uint8_t)((scales[j + 4] & 15) | (minima[j + 4] & 15) << 4);
  }
}

/* Scales and minima of all sub-blocks in 6 bits with one f16 factor each, into 16 bytes; then q by
 * what these became. */
static void quantize_affine(
    const tsr_kernels *kernels, const float *x, search how, uint8_t *ret_head, uint8_t ret_q[ALL]) {
  affine found[SUBS_WIDE];
  uint8_t scales[SUBS_WIDE], minima[SUBS_WIDE];
  float scale_max = 0, minimum_max = 0;
  for (int j = 0; j < SUBS_WIDE; j++) {
    found[j] = find_affine(x + j * WIDE, how, ret_q + j * WIDE);
    scale_max = fmaxf(scale_max, found[j].scale);
    minimum_max = fmaxf(minimum_max, found[j].minimum);
  }
  float by_scale = scale_max > 0 ? 63.f / scale_max : 0;
  float by_minimum = minimum_max > 0 ? 63.f / minimum_max : 0;
  for (int j = 0; j < SUBS_WIDE; j++) {
    int scale = (uint8_t)nearest(by_scale * found[j].scale);
    int minimum = (uint8_t)nearest(by_minimum * found[j].minimum);
    scales[j] = (uint8_t)(scale < 63 ? scale : 63);
    minima[j] = (uint8_t)(minimum < 63 ? minimum : 63);
  }
  float d = store_half(kernels, scale_max / 63.f, ret_head);
  float dmin = store_half(kernels, minimum_max / 63.f, ret_head + 2);
  pack_scales(scales, minima, ret_head + 4);
  for (int j = 0; j < SUBS_WIDE; j++) {
    float scale = d * (float)scales[j], minimum = dmin * (float)minima[j];
    if (scale == 0) continue;
    for (int i = j * WIDE; i < (j + 1) * WIDE; i++)
      ret_q[i] = (uint8_t)clamp(nearest((x[i] + minimum) / scale), 0, how.levels);
  }
}

void tsr_gguf_quantize_q4_k(const tsr_kernels *kernels, const float *x, uint8_t *ret) {
  static const search how = {15, -1.f, 20};
  uint8_t q[ALL];
  quantize_affine(kernels, x, how, ret, q);
  for (int j = 0; j < ALL; j += 2 * WIDE)
    for (int i = 0; i < WIDE; i++) ret[16 + j / 2 + i] = (uint8_t)(q[j + i] | q[j + WIDE + i] << 4);
}

void tsr_gguf_quantize_q5_k(const tsr_kernels *kernels, const float *x, uint8_t *ret) {
  static const search how = {31, -0.5f, 15};
  uint8_t q[ALL], *high = ret + 16, *low = ret + 16 + WIDE;
  quantize_affine(kernels, x, how, ret, q);
  memset(high, 0, WIDE);
  for (int j = 0; j < SUBS_WIDE; j++)
    for (int i = 0; i < WIDE; i++) high[i] = (uint8_t)(high[i] | q[j * WIDE + i] >> 4 << j);
  for (int j = 0; j < ALL; j += 2 * WIDE)
    for (int i = 0; i < WIDE; i++)
      low[j / 2 + i] = (uint8_t)((q[j + i] & 15) | (q[j + WIDE + i] & 15) << 4);
}

/* ---- a scale alone: Q6_K ---- */

enum { HALF = 32 }; /* q - 32 is from -32 to 31 */

/* Sums of x² x q and x² q² for q by this inverse scale. */
static void sum_symmetric(const float *x, float inverse, float *ret_qx, float *ret_qq) {
  *ret_qx = *ret_qq = 0;
  for (int i = 0; i < NARROW; i++) {
    float l = (float)clamp(nearest(inverse * x[i]), -HALF, HALF - 1), w = x[i] * x[i];
    *ret_qx += w * x[i] * l;
    *ret_qq += w * l * l;
  }
}

static void round_symmetric(const float *x, float inverse, uint8_t *ret_q) {
  for (int i = 0; i < NARROW; i++)
    ret_q[i] = (uint8_t)(HALF + clamp(nearest(inverse * x[i]), -HALF, HALF - 1));
}

static const float zero_below = 1e-15f;

/* The scale, and q + 32. The element with the largest magnitude is about -32 - 0.1 k. */
static float find_scale(const float *x, uint8_t ret_q[NARROW]) {
  float largest = 0, magnitude = 0, qx, qq;
  for (int i = 0; i < NARROW; i++)
    if (fabsf(x[i]) > magnitude) magnitude = fabsf(x[i]), largest = x[i];
  memset(ret_q, 0, NARROW);
  if (magnitude < zero_below) return 0;
  float inverse = -(float)HALF / largest;
  round_symmetric(x, inverse, ret_q);
  sum_symmetric(x, inverse, &qx, &qq);
  float scale = qq != 0 ? qx / qq : 0, best = scale * qx;
  for (int k = -9; k <= 9; k++) {
    if (!k) continue;
    inverse = -((float)HALF + 0.1f * (float)k) / largest;
    sum_symmetric(x, inverse, &qx, &qq);
    if (!(qq > 0 && qx * qx > best * qq)) continue;
    round_symmetric(x, inverse, ret_q);
    scale = qx / qq;
    best = scale * qx;
  }
  return scale;
}

/* 128 bytes of low halves, 64 of upper two bits, 16 scales, d. */
static void pack_q6_k(const uint8_t *q, uint8_t *ret) {
  for (int half = 0; half < 2; half++, q += ALL / 2)
    for (int i = 0; i < WIDE; i++) {
      uint8_t *low = ret + half * 64, *high = ret + 128 + half * 32;
      low[i] = (uint8_t)((q[i] & 15) | (q[i + 64] & 15) << 4);
      low[i + 32] = (uint8_t)((q[i + 32] & 15) | (q[i + 96] & 15) << 4);
      high[i] =
          (uint8_t)(q[i] >> 4 | q[i + 32] >> 4 << 2 | q[i + 64] >> 4 << 4 | q[i + 96] >> 4 << 6);
    }
}

void tsr_gguf_quantize_q6_k(const tsr_kernels *kernels, const float *x, uint8_t *ret) {
  float scales[SUBS_NARROW], largest = 0, magnitude = 0;
  uint8_t q[ALL];
  for (int j = 0; j < SUBS_NARROW; j++) {
    scales[j] = find_scale(x + j * NARROW, q + j * NARROW);
    if (fabsf(scales[j]) > magnitude) magnitude = fabsf(scales[j]), largest = scales[j];
  }
  memset(ret, 0, 210);
  if (magnitude < zero_below) return;
  float inverse = -128.f / largest, d = store_half(kernels, 1 / inverse, ret + 208);
  for (int j = 0; j < SUBS_NARROW; j++) {
    int scale = nearest(inverse * scales[j]);
    int8_t byte = (int8_t)(scale < 127 ? scale : 127);
    ret[192 + j] = (uint8_t)byte;
    float step = d * (float)byte;
    if (step == 0) continue;
    for (int i = j * NARROW; i < (j + 1) * NARROW; i++)
      q[i] = (uint8_t)(HALF + clamp(nearest(x[i] / step), -HALF, HALF - 1));
  }
  pack_q6_k(q, ret);
}
