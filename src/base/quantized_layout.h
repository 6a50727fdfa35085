// SPDX-License-Identifier: Apache-2.0
/* Quantised matrices. A block of TSR_QUANTIZED_BLOCK neighbours in a row has one scale.
 *
 * NF4 with double quantisation (Dettmers et al. 2023, "QLoRA"), as bitsandbytes has it: the scale
 * is the largest magnitude in the block; of each element there is the nearest of the 16 levels of
 * NF4, times the scale. The scales of a unit, less their mean, are quantised in turn:
 * TSR_NF4_GROUP of them at a time, in the order of their blocks, to the nearest of 256 levels
 * ("dynamic" 8-bit, Dettmers et al. 2022) times the largest magnitude among them. That is 4.127
 * bits an element.
 *
 * INT8: the scale is the largest magnitude in the block divided by 127, in f32; of each element
 * there is the nearest integer of -127 .. 127, times the scale. That is 8.5 bits an element.
 *
 * A matrix is quantised unit by unit, each a rectangle that is quantised as a matrix of its own, so
 * parts of whole units have the same bytes wherever they are. A unit with a NaN is decoded to NaN,
 * of INT8 a block. */
#ifndef TSR_BASE_QUANTIZED_LAYOUT_H
#define TSR_BASE_QUANTIZED_LAYOUT_H
#include <stdint.h>

enum { TSR_QUANTIZED_BLOCK = 64, TSR_NF4_GROUP = 256 };

/* (rows, cols) of units of (unit_rows, unit_cols), of which each divides; unit_cols is a multiple
 * of TSR_QUANTIZED_BLOCK. Units lie one behind the other, row-major, each: of NF4 codes of 4 bits
 * (the first of two in the upper half of a byte), codes of scales (a byte each, padded to 4),
 * scales of groups (f32), the mean (f32); of INT8 codes (a byte each), scales (f32). */
typedef enum { TSR_QUANTIZED_NF4, TSR_QUANTIZED_INT8 } tsr_quantized_format;
typedef struct {
  int64_t rows, cols, unit_rows, unit_cols;
  tsr_quantized_format format;
} tsr_quantized_layout;

static inline int64_t tsr_quantized_unit_blocks(const tsr_quantized_layout *l) {
  return l->unit_rows * l->unit_cols / TSR_QUANTIZED_BLOCK;
}
/* Bytes of a unit before its numbers in f32. */
static inline int64_t tsr_quantized_codes_bytes(const tsr_quantized_layout *l) {
  int64_t blocks = tsr_quantized_unit_blocks(l);
  if (l->format == TSR_QUANTIZED_INT8) return blocks * TSR_QUANTIZED_BLOCK;
  return blocks * TSR_QUANTIZED_BLOCK / 2 + (blocks + 3) / 4 * 4;
}
static inline int64_t tsr_quantized_unit_bytes(const tsr_quantized_layout *l) {
  int64_t blocks = tsr_quantized_unit_blocks(l),
          groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  int64_t numbers = l->format == TSR_QUANTIZED_INT8 ? blocks : groups + 1;
  return tsr_quantized_codes_bytes(l) + numbers * (int64_t)sizeof(float);
}
static inline int64_t tsr_quantized_bytes(const tsr_quantized_layout *l) {
  return l->rows / l->unit_rows * (l->cols / l->unit_cols) * tsr_quantized_unit_bytes(l);
}

#endif
