// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"
#include <stdbool.h>
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
/* clang-format off */
const float tsr_nf4_scale_levels[256] = {
    -0.992968738f, -0.978906274f, -0.96484375f, -0.950781226f, -0.936718762f, -0.922656238f,
    -0.908593774f, -0.89453125f, -0.880468726f, -0.866406262f, -0.852343738f, -0.838281274f,
    -0.82421875f, -0.810156226f, -0.796093762f, -0.782031238f, -0.767968774f, -0.75390625f,
    -0.739843726f, -0.725781262f, -0.711718738f, -0.697656274f, -0.68359375f, -0.669531226f,
    -0.655468762f, -0.641406238f, -0.627343774f, -0.61328125f, -0.599218726f, -0.585156262f,
    -0.571093738f, -0.557031274f, -0.54296875f, -0.528906226f, -0.514843762f, -0.500781238f,
    -0.486718744f, -0.47265625f, -0.458593756f, -0.444531262f, -0.430468738f, -0.416406244f,
    -0.40234375f, -0.388281256f, -0.374218762f, -0.360156238f, -0.346093744f, -0.33203125f,
    -0.317968756f, -0.303906262f, -0.289843738f, -0.275781244f, -0.26171875f, -0.247656256f,
    -0.233593747f, -0.219531253f, -0.205468744f, -0.19140625f, -0.177343756f, -0.163281247f,
    -0.149218753f, -0.135156244f, -0.12109375f, -0.107031249f, -0.0985937491f, -0.0957812518f,
    -0.092968747f, -0.0901562497f, -0.0873437524f, -0.0845312476f, -0.0817187503f, -0.078906253f,
    -0.0760937482f, -0.0732812509f, -0.0704687536f, -0.0676562488f, -0.0648437515f,
    -0.0620312504f, -0.0592187494f, -0.0564062484f, -0.053593751f, -0.05078125f, -0.047968749f,
    -0.0451562516f, -0.0423437506f, -0.0395312496f, -0.0367187485f, -0.0339062512f,
    -0.0310937501f, -0.0282812491f, -0.0254687499f, -0.0226562507f, -0.0198437497f,
    -0.0170312505f, -0.0142187504f, -0.0114062503f, -0.00971874967f, -0.00915625039f,
    -0.00859375019f, -0.00803124998f, -0.00746874977f, -0.00690625003f, -0.00634374982f,
    -0.00578125007f, -0.00521874987f, -0.00465625012f, -0.00409374991f, -0.00353124994f,
    -0.00296874996f, -0.00240624999f, -0.00184375001f, -0.00128125004f, -0.000943750027f,
    -0.000831249985f, -0.000718750001f, -0.000606250018f, -0.000493749976f, -0.000381249993f,
    -0.000268750009f, -0.000156249997f, -8.87499991e-05f, -6.62500024e-05f, -4.37499984e-05f,
    -2.12499999e-05f, -7.7499999e-06f, -3.24999996e-06f, -5.49999982e-07f, 0.0f, 5.49999982e-07f,
    3.24999996e-06f, 7.7499999e-06f, 2.12499999e-05f, 4.37499984e-05f, 6.62500024e-05f,
    8.87499991e-05f, 0.000156249997f, 0.000268750009f, 0.000381249993f, 0.000493749976f,
    0.000606250018f, 0.000718750001f, 0.000831249985f, 0.000943750027f, 0.00128125004f,
    0.00184375001f, 0.00240624999f, 0.00296874996f, 0.00353124994f, 0.00409374991f,
    0.00465625012f, 0.00521874987f, 0.00578125007f, 0.00634374982f, 0.00690625003f,
    0.00746874977f, 0.00803124998f, 0.00859375019f, 0.00915625039f, 0.00971874967f, 0.0114062503f,
    0.0142187504f, 0.0170312505f, 0.0198437497f, 0.0226562507f, 0.0254687499f, 0.0282812491f,
    0.0310937501f, 0.0339062512f, 0.0367187485f, 0.0395312496f, 0.0423437506f, 0.0451562516f,
    0.047968749f, 0.05078125f, 0.053593751f, 0.0564062484f, 0.0592187494f, 0.0620312504f,
    0.0648437515f, 0.0676562488f, 0.0704687536f, 0.0732812509f, 0.0760937482f, 0.078906253f,
    0.0817187503f, 0.0845312476f, 0.0873437524f, 0.0901562497f, 0.092968747f, 0.0957812518f,
    0.0985937491f, 0.107031249f, 0.12109375f, 0.135156244f, 0.149218753f, 0.163281247f,
    0.177343756f, 0.19140625f, 0.205468744f, 0.219531253f, 0.233593747f, 0.247656256f,
    0.26171875f, 0.275781244f, 0.289843738f, 0.303906262f, 0.317968756f, 0.33203125f,
    0.346093744f, 0.360156238f, 0.374218762f, 0.388281256f, 0.40234375f, 0.416406244f,
    0.430468738f, 0.444531262f, 0.458593756f, 0.47265625f, 0.486718744f, 0.500781238f,
    0.514843762f, 0.528906226f, 0.54296875f, 0.557031274f, 0.571093738f, 0.585156262f,
    0.599218726f, 0.61328125f, 0.627343774f, 0.641406238f, 0.655468762f, 0.669531226f,
    0.68359375f, 0.697656274f, 0.711718738f, 0.725781262f, 0.739843726f, 0.75390625f,
    0.767968774f, 0.782031238f, 0.796093762f, 0.810156226f, 0.82421875f, 0.838281274f,
    0.852343738f, 0.866406262f, 0.880468726f, 0.89453125f, 0.908593774f, 0.922656238f,
    0.936718762f, 0.950781226f, 0.96484375f, 0.978906274f, 0.992968738f, 1.0f,
};
/* clang-format on */

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
  float scale = largest(x, TSR_QUANTIZED_BLOCK), factor = scale > 0 ? 1 / scale : 0;
  for (int i = 0; i < TSR_QUANTIZED_BLOCK; i += 2) {
    int first = nearest(tsr_nf4_levels, 16, x[i] * factor);
    int second = nearest(tsr_nf4_levels, 16, x[i + 1] * factor);
    codes[i / 2] = (uint8_t)(first << 4 | second);
  }
  return scale;
}

/* ---- a unit: its scales are computed twice, so that no memory is needed for them ---- */

typedef struct {
  const tsr_quantized_layout *layout;
  const float *x; /* element (0, 0) of the unit, rows `cols` apart */
  uint8_t *codes, *scale_codes;
  float *groups; /* the mean behind them; of INT8 the scales of blocks */
} unit;

static const float *block_at(const unit *u, int64_t block) {
  int64_t across = u->layout->unit_cols / TSR_QUANTIZED_BLOCK;
  return u->x + block / across * u->layout->cols + block % across * TSR_QUANTIZED_BLOCK;
}

static void quantize_group(const unit *u, int64_t first, int64_t count) {
  float scales[TSR_NF4_GROUP];
  int64_t groups = (tsr_quantized_unit_blocks(u->layout) + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  float mean = u->groups[groups];
  for (int64_t i = 0; i < count; i++)
    scales[i] = largest(block_at(u, first + i), TSR_QUANTIZED_BLOCK) - mean;
  float scale = u->groups[first / TSR_NF4_GROUP] = largest(scales, count);
  float factor = scale > 0 ? 1 / scale : 0;
  for (int64_t i = 0; i < count; i++)
    u->scale_codes[first + i] = (uint8_t)nearest(tsr_nf4_scale_levels, 256, scales[i] * factor);
}

static void quantize_unit(const unit *u) {
  int64_t blocks = tsr_quantized_unit_blocks(u->layout);
  int64_t groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  double sum = 0;
  for (int64_t b = 0; b < blocks; b++)
    sum += quantize_block(u->codes + b * TSR_QUANTIZED_BLOCK / 2, block_at(u, b));
  u->groups[groups] = (float)(sum / (double)blocks);
  for (int64_t b = 0; b < blocks; b += TSR_NF4_GROUP)
    quantize_group(u, b, blocks - b < TSR_NF4_GROUP ? blocks - b : TSR_NF4_GROUP);
}

/* A block of neighbours; returns its scale. What is not finite has no code: its scale is not finite
 * either. */
static float quantize_block_int8(int8_t *codes, const float *x) {
  float most = largest(x, TSR_QUANTIZED_BLOCK), factor = most > 0 ? 127 / most : 0;
  for (int i = 0; i < TSR_QUANTIZED_BLOCK; i++) {
    float code = x[i] * factor;
    bool fits = code >= -127.5f && code <= 127.5f;
    code = !fits ? 0 : code < 0 ? code - 0.5f : code + 0.5f;
    codes[i] = (int8_t)(code < -127 ? -127 : code > 127 ? 127 : (int)code);
  }
  return most / 127;
}

static void quantize_unit_int8(const unit *u) {
  int64_t blocks = tsr_quantized_unit_blocks(u->layout);
  int8_t *codes = (int8_t *)u->codes;
  for (int64_t b = 0; b < blocks; b++)
    u->groups[b] = quantize_block_int8(codes + b * TSR_QUANTIZED_BLOCK, block_at(u, b));
}

void tsr_quantize(const tsr_quantized_layout *l, void *ret, const float *x) {
  int64_t across = l->cols / l->unit_cols, units = l->rows / l->unit_rows * across;
  for (int64_t k = 0; k < units; k++) {
    char *bytes = (char *)ret + k * tsr_quantized_unit_bytes(l);
    unit u = {.layout = l, .codes = (uint8_t *)bytes};
    u.x = x + k / across * l->unit_rows * l->cols + k % across * l->unit_cols;
    memset(bytes, 0, (size_t)tsr_quantized_unit_bytes(l));
    u.scale_codes = u.codes + tsr_quantized_unit_blocks(l) * TSR_QUANTIZED_BLOCK / 2;
    u.groups = (float *)(void *)(bytes + tsr_quantized_codes_bytes(l));
    if (l->format == TSR_QUANTIZED_INT8) quantize_unit_int8(&u);
    else quantize_unit(&u);
  }
}

float tsr_quantized_scale(const tsr_quantized_layout *l, const void *bytes, int64_t block) {
  int64_t blocks = tsr_quantized_unit_blocks(l);
  int64_t groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  const uint8_t *codes = (const uint8_t *)bytes + blocks * TSR_QUANTIZED_BLOCK / 2;
  const char *numbers = (const char *)bytes + tsr_quantized_codes_bytes(l);
  const float *scales = (const float *)(const void *)numbers;
  if (l->format == TSR_QUANTIZED_INT8) return scales[block];
  float scaled = tsr_nf4_scale_levels[codes[block]] * scales[block / TSR_NF4_GROUP];
  return scaled + scales[groups];
}
