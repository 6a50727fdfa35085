// SPDX-License-Identifier: Apache-2.0
/* Matrices in NF4 with double quantisation (Dettmers et al. 2023, "QLoRA"), as bitsandbytes has
 * them.
 *
 * A block of TSR_NF4_BLOCK neighbours in a row has one scale, the largest magnitude in it; of each
 * element there is the nearest of the 16 levels of NF4, times the scale. The scales of a unit, less
 * their mean, are quantised in turn: TSR_NF4_GROUP of them at a time, in the order of their blocks,
 * to the nearest of 256 levels ("dynamic" 8-bit, Dettmers et al. 2022) times the largest magnitude
 * among them. That is 4.127 bits an element.
 *
 * A matrix is quantised unit by unit, each a rectangle that is quantised as a matrix of its own, so
 * parts of whole units have the same bytes wherever they are. A unit with a NaN is decoded to NaN.
 */
#ifndef TSR_BASE_NF4_LAYOUT_H
#define TSR_BASE_NF4_LAYOUT_H
#include <stdint.h>

enum { TSR_NF4_BLOCK = 64, TSR_NF4_GROUP = 256 };

/* (rows, cols) of units of (unit_rows, unit_cols), of which each divides; unit_cols is a multiple
 * of TSR_NF4_BLOCK. Units lie one behind the other, row-major, each: codes of 4 bits (the first of
 * two in the upper half of a byte), codes of scales (a byte each, padded to 4), scales of groups
 * (f32), the mean (f32). */
typedef struct {
  int64_t rows, cols, unit_rows, unit_cols;
} tsr_nf4_layout;

static inline int64_t tsr_nf4_unit_blocks(const tsr_nf4_layout *l) {
  return l->unit_rows * l->unit_cols / TSR_NF4_BLOCK;
}
/* Bytes of a unit before the scales of its groups. */
static inline int64_t tsr_nf4_codes_bytes(const tsr_nf4_layout *l) {
  int64_t blocks = tsr_nf4_unit_blocks(l);
  return blocks * TSR_NF4_BLOCK / 2 + (blocks + 3) / 4 * 4;
}
static inline int64_t tsr_nf4_unit_bytes(const tsr_nf4_layout *l) {
  int64_t groups = (tsr_nf4_unit_blocks(l) + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  return tsr_nf4_codes_bytes(l) + (groups + 1) * (int64_t)sizeof(float);
}
static inline int64_t tsr_nf4_bytes(const tsr_nf4_layout *l) {
  return l->rows / l->unit_rows * (l->cols / l->unit_cols) * tsr_nf4_unit_bytes(l);
}

#endif
