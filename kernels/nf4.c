// SPDX-License-Identifier: Apache-2.0
#include "kernels/nf4.h"
#include <string.h>

/* Quantiles of a normal distribution, scaled to [-1, 1], with a zero (QLoRA, appendix E). */
const float tsr_nf4_levels[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f};

/* Of 2^i fractions with the exponent 10^(i - 6), i = 0 .. 6, the middles of as many parts of
 * [0.1, 1]; both signs, 0 and 1. */
float tsr_nf4_scale_level(uint8_t code) {
  static const double powers[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  enum { ZERO = 127, ONE = 255 };
  if (code == ZERO || code == ONE) return code == ONE;
  int i = 0, at = code < ZERO ? ZERO - code : code - ZERO; /* 1 .. 127 */
  while (at >> (i + 1)) i++;
  double parts = 1 << i, fraction = 0.1 + 0.9 * (at - parts + 0.5) / parts;
  float level = (float)(fraction * powers[i]);
  return code < ZERO ? -level : level;
}

/* The nearest of `count` ascending levels; of two equally near the lower one. */
static int nearest(const float *levels, int count, float x) {
  int low = 0, high = count - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (x > (float)(((double)levels[middle] + levels[middle + 1]) / 2)) low = middle + 1;
    else high = middle;
  }
  return low;
}

static float magnitude(float x) { return x < 0 ? -x : x; }

/* NaN where there is one: the mean of the scales is NaN then, and so is the unit. */
static float largest(const float *x, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) {
    if (x[i] != x[i]) return x[i];
    if (magnitude(x[i]) > most) most = magnitude(x[i]);
  }
  return most;
}

/* A block of neighbours; returns its scale. */
static float quantize_block(uint8_t *codes, const float *x) {
  float scale = largest(x, TSR_NF4_BLOCK), factor = scale > 0 ? 1 / scale : 0;
  for (int i = 0; i < TSR_NF4_BLOCK; i += 2) {
    int first = nearest(tsr_nf4_levels, 16, x[i] * factor);
    int second = nearest(tsr_nf4_levels, 16, x[i + 1] * factor);
    codes[i / 2] = (uint8_t)(first << 4 | second);
  }
  return scale;
}

/* ---- a unit: its scales are computed twice, so that no memory is needed for them ---- */

typedef struct {
  const tsr_nf4_layout *layout;
  const float *x; /* element (0, 0) of the unit, rows `cols` apart */
  uint8_t *codes, *scale_codes;
  float *groups; /* the mean behind them */
} unit;

static const float *block_at(const unit *u, int64_t block) {
  int64_t across = u->layout->unit_cols / TSR_NF4_BLOCK;
  return u->x + block / across * u->layout->cols + block % across * TSR_NF4_BLOCK;
}

static void quantize_group(const unit *u, int64_t first, int64_t count, const float *levels) {
  float scales[TSR_NF4_GROUP];
  int64_t groups = (tsr_nf4_unit_blocks(u->layout) + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  float mean = u->groups[groups];
  for (int64_t i = 0; i < count; i++)
    scales[i] = largest(block_at(u, first + i), TSR_NF4_BLOCK) - mean;
  float scale = u->groups[first / TSR_NF4_GROUP] = largest(scales, count);
  float factor = scale > 0 ? 1 / scale : 0;
  for (int64_t i = 0; i < count; i++)
    u->scale_codes[first + i] = (uint8_t)nearest(levels, 256, scales[i] * factor);
}

static void quantize_unit(const unit *u, const float *levels) {
  int64_t blocks = tsr_nf4_unit_blocks(u->layout);
  int64_t groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  double sum = 0;
  for (int64_t b = 0; b < blocks; b++)
    sum += quantize_block(u->codes + b * TSR_NF4_BLOCK / 2, block_at(u, b));
  u->groups[groups] = (float)(sum / (double)blocks);
  for (int64_t b = 0; b < blocks; b += TSR_NF4_GROUP)
    quantize_group(u, b, blocks - b < TSR_NF4_GROUP ? blocks - b : TSR_NF4_GROUP, levels);
}

void tsr_nf4_quantize(const tsr_nf4_layout *l, void *ret, const float *x) {
  float levels[256];
  int64_t across = l->cols / l->unit_cols, units = l->rows / l->unit_rows * across;
  for (int i = 0; i < 256; i++) levels[i] = tsr_nf4_scale_level((uint8_t)i);
  for (int64_t k = 0; k < units; k++) {
    char *bytes = (char *)ret + k * tsr_nf4_unit_bytes(l);
    unit u = {.layout = l, .codes = (uint8_t *)bytes};
    u.x = x + k / across * l->unit_rows * l->cols + k % across * l->unit_cols;
    memset(bytes, 0, (size_t)tsr_nf4_unit_bytes(l));
    u.scale_codes = u.codes + tsr_nf4_unit_blocks(l) * TSR_NF4_BLOCK / 2;
    u.groups = (float *)(void *)(bytes + tsr_nf4_codes_bytes(l));
    quantize_unit(&u, levels);
  }
}

float tsr_nf4_scale(const tsr_nf4_layout *l, const void *bytes, int64_t block) {
  int64_t blocks = tsr_nf4_unit_blocks(l), groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  const uint8_t *codes = (const uint8_t *)bytes + blocks * TSR_NF4_BLOCK / 2;
  const float *scales = (const float *)(const void *)((const char *)bytes + tsr_nf4_codes_bytes(l));
  float scaled = tsr_nf4_scale_level(codes[block]) * scales[block / TSR_NF4_GROUP];
  return scaled + scales[groups];
}
