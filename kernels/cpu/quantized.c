// SPDX-License-Identifier: Apache-2.0
/* Elements of quantised matrices. */
#include "kernels/cpu/level.h"
#include <string.h>

/* Where a matrix's element is. */
typedef struct {
  const uint8_t *unit;
  int64_t at;   /* in the unit, row-major */
  int64_t left; /* elements of the unit's row from it on */
} element;

static element element_at(const tsr_quantized *x, int64_t i) {
  const tsr_quantized_layout *l = &x->layout;
  int64_t row = i / l->cols, col = i % l->cols, across = l->cols / l->unit_cols;
  int64_t unit = row / l->unit_rows * across + col / l->unit_cols, in_row = col % l->unit_cols;
  return (element){
      (const uint8_t *)x->data + unit * tsr_quantized_unit_bytes(l),
      row % l->unit_rows * l->unit_cols + in_row, l->unit_cols - in_row};
}

/* n elements of a block, from element `at` of the unit on. */
static void
decode(float *out, const tsr_quantized_layout *l, const uint8_t *unit, int64_t at, int64_t n) {
  float levels[16], scale = tsr_quantized_scale(l, unit, at / TSR_QUANTIZED_BLOCK);
  if (l->format == TSR_QUANTIZED_INT8) {
    const int8_t *codes = (const int8_t *)unit + at;
    for (int64_t i = 0; i < n; i++) out[i] = (float)codes[i] * scale;
    return;
  }
  for (int i = 0; i < 16; i++) levels[i] = tsr_nf4_levels[i] * scale;
  if (at % 2 == 0 && n == TSR_QUANTIZED_BLOCK) {
    for (int64_t i = 0; i < TSR_QUANTIZED_BLOCK / 2; i++) {
      uint8_t two = unit[at / 2 + i];
      out[2 * i] = levels[two >> 4];
      out[2 * i + 1] = levels[two & 15];
    }
    return;
  }
  for (int64_t i = at; i < at + n; i++) {
    uint8_t two = unit[i / 2];
    *out++ = levels[i % 2 ? two & 15 : two >> 4];
  }
}

static void round_to(tsr_element type, float *x, int64_t n) {
  uint16_t half[TSR_QUANTIZED_BLOCK];
  if (type == TSR_ELEMENT_BF16) {
    LEVEL(f32_to_bf16)(half, x, 0, n);
    LEVEL(bf16_to_f32)(x, half, 0, n);
  } else if (type == TSR_ELEMENT_F16) {
    LEVEL(f32_to_fp16)(half, x, 0, n);
    LEVEL(fp16_to_f32)(x, half, 0, n);
  }
}

void LEVEL(quantized_to_f32)(float *out, const tsr_quantized *x, int64_t first, int64_t count) {
  for (int64_t i = 0, n; i < count; i += n) {
    element e = element_at(x, first + i);
    int64_t in_block = TSR_QUANTIZED_BLOCK - e.at % TSR_QUANTIZED_BLOCK;
    n = count - i < in_block ? count - i : in_block;
    if (n > e.left) n = e.left;
    decode(out + i, &x->layout, e.unit, e.at, n);
    round_to(x->rounds, out + i, n);
  }
}
