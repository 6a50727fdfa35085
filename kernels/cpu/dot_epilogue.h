// SPDX-License-Identifier: Apache-2.0
/* What becomes of a tile's sums over a block of K: they are added to those of the blocks before, or
 * to C, and where K is complete the bias is added and the result stored in C. It is done a few rows
 * at a time between the instructions of the next tile, during which vector units are idle. */
#ifndef TSR_KERNELS_CPU_DOT_EPILOGUE_H
#define TSR_KERNELS_CPU_DOT_EPILOGUE_H
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/dot_gemm.h"
#include <string.h>

typedef struct {
  const float *sums;   /* (DOT_TILE, DOT_TILE): of the block */
  const float *before; /* (rows, columns), to which they are added; NULL: nothing */
  const float *bias;   /* (columns); NULL: none, or not yet */
  float *to;           /* (rows, columns) */
  uint16_t *to_bf16;   /* rounded to nearest, in place of `to`; NULL: `to` */
  int64_t before_stride, to_stride;
  int64_t rows, columns;
  int64_t row; /* the first that is not done */
} dot_epilogue;

typedef float dot_vector
    __attribute__((vector_size(4 * DOT_LANES), aligned(sizeof(float)), may_alias));
typedef uint32_t dot_bits __attribute__((vector_size(4 * DOT_LANES)));
typedef int32_t dot_mask __attribute__((vector_size(4 * DOT_LANES)));
typedef uint16_t dot_halves
    __attribute__((vector_size(2 * DOT_LANES), aligned(sizeof(uint16_t)), may_alias));

static inline dot_vector dot_load(const float *x) { return *(const dot_vector *)x; }

/* bf16_nearest (bf16.h) of a vector, as 16 bits each. */
static inline __attribute__((always_inline)) dot_halves dot_nearest(dot_vector x) {
  dot_bits bits = (dot_bits)x, rounded = bits + 0x7FFF + (bits >> 16 & 1);
  dot_bits is_nan = (dot_bits)((dot_mask)(bits & F32_MAGNITUDE) > F32_INFINITY);
  rounded = ((bits | F32_QUIET) & is_nan) | (rounded & ~is_nan);
  return __builtin_convertvector(rounded >> 16, dot_halves);
}

/* The next n rows of a tile with all its columns. There is one copy of the code, because which
 * operand's NaN an addition returns is the compiler's choice. */
static __attribute__((noinline)) void dot_epilogue_whole(dot_epilogue *e, int64_t n) {
  for (int64_t end = dot_least(e->row + n, e->rows); e->row < end; e->row++) {
    const float *sums = e->sums + e->row * DOT_TILE;
    dot_vector low = dot_load(sums), high = dot_load(sums + DOT_LANES);
    if (e->before) {
      const float *before = e->before + e->row * e->before_stride;
      low = dot_load(before) + low;
      high = dot_load(before + DOT_LANES) + high;
    }
    if (e->bias) low += dot_load(e->bias), high += dot_load(e->bias + DOT_LANES);
    if (e->to_bf16) {
      uint16_t *to = e->to_bf16 + e->row * e->to_stride;
      *(dot_halves *)to = dot_nearest(low);
      *(dot_halves *)(to + DOT_LANES) = dot_nearest(high);
    } else {
      float *to = e->to + e->row * e->to_stride;
      *(dot_vector *)to = low;
      *(dot_vector *)(to + DOT_LANES) = high;
    }
  }
}

/* At the right edge of C: rows of copies that have all columns. */
static void dot_epilogue_part(dot_epilogue *e, int64_t n) {
  size_t columns = (size_t)e->columns;
  for (int64_t end = dot_least(e->row + n, e->rows); e->row < end; e->row++) {
    float before[DOT_TILE] = {0}, bias[DOT_TILE] = {0}, to[DOT_TILE];
    uint16_t to_bf16[DOT_TILE];
    int64_t at = e->row * e->to_stride;
    dot_epilogue row = {.sums = e->sums + e->row * DOT_TILE, .to = to, .rows = 1};
    if (e->before)
      row.before = memcpy(before, e->before + e->row * e->before_stride, columns * sizeof *before);
    if (e->bias) row.bias = memcpy(bias, e->bias, columns * sizeof *bias);
    if (e->to_bf16) row.to_bf16 = to_bf16;
    dot_epilogue_whole(&row, 1);
    if (e->to_bf16) memcpy(e->to_bf16 + at, to_bf16, columns * sizeof *to_bf16);
    else memcpy(e->to + at, to, columns * sizeof *to);
  }
}

static inline void dot_epilogue_rows(dot_epilogue *e, int64_t n) {
  if (e->columns == DOT_TILE) dot_epilogue_whole(e, n);
  else dot_epilogue_part(e, n);
}

#endif
