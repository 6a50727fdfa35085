// SPDX-License-Identifier: Apache-2.0
/* Rows of a quantised matrix (base/quantized_layout.h), decoded and turned in registers. The
 * numbers are those of quantized_to_f32. */
#ifndef TSR_KERNELS_CPU_QUANTIZED_SQUARE_H
#define TSR_KERNELS_CPU_QUANTIZED_SQUARE_H
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/transpose.h"

/* Where a row of the matrix is. */
typedef struct {
  const uint8_t *units; /* the first unit across */
  uint64_t block;       /* its first one in each unit */
  int64_t row;
} quantized_row;

static inline quantized_row quantized_row_at(const tsr_quantized *x, int64_t row) {
  const tsr_quantized_layout *l = &x->layout;
  int64_t down = row / l->unit_rows, across = l->cols / l->unit_cols;
  const uint8_t *data = x->data;
  return (quantized_row){
      data + down * across * tsr_quantized_unit_bytes(l),
      (uint64_t)(row % l->unit_rows * (l->unit_cols / TSR_QUANTIZED_BLOCK)), row};
}

/* The bits of f32_to_bf16 and back. */
static inline vector vector_bf16(vector x) {
  vector_bits bits = (vector_bits)x;
  vector_bits nan = (vector_bits)((vector_mask)(bits & F32_MAGNITUDE) > (int32_t)F32_INFINITY);
  vector_bits rounded = bits + 0x7FFFu + (bits >> 16 & 1), quiet = bits | (uint32_t)F32_QUIET;
  return (vector)(((rounded & ~nan) | (quiet & nan)) & 0xFFFF0000u);
}

/* Blocks of a row that are fetched before they are needed. */
enum { AHEAD = 4 };

/* A block of TSR_QUANTIZED_BLOCK elements of WIDTH rows, of which `codes` are the bytes. */
typedef struct {
  const uint8_t *codes[WIDTH];
  vector scales;
} quantized_block;

static inline __attribute__((always_inline)) quantized_block quantized_block_at(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, const bool nf4) {
  const tsr_quantized_layout *l = &x->layout;
  const uint64_t block_bytes = nf4 ? TSR_QUANTIZED_BLOCK / 2 : TSR_QUANTIZED_BLOCK;
  int64_t unit = column / l->unit_cols * tsr_quantized_unit_bytes(l);
  uint64_t first = (uint64_t)(column % l->unit_cols) / TSR_QUANTIZED_BLOCK;
  uint64_t blocks = (uint64_t)tsr_quantized_unit_blocks(l);
  int64_t numbers_at = tsr_quantized_codes_bytes(l);
  uint64_t groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  quantized_block b;
  float scales[WIDTH];
  _Pragma("GCC unroll 16") for (int r = 0; r < WIDTH; r++) {
    const uint8_t *bytes = rows[r].units + unit;
    const float *numbers = (const float *)(const void *)(bytes + numbers_at);
    uint64_t block = rows[r].block + first;
    b.codes[r] = bytes + block * block_bytes;
    __builtin_prefetch(b.codes[r] + AHEAD * block_bytes); /* of the row, but for its last ones */
    if (nf4) {
      uint8_t code = bytes[blocks * block_bytes + block];
      scales[r] = tsr_nf4_scale_levels[code] * numbers[block / TSR_NF4_GROUP];
      scales[r] += numbers[groups];
    } else {
      scales[r] = numbers[block];
    }
  }
  b.scales = lanes_load(scales, 0);
  return b;
}

#if defined(__AVX__)
enum { QUANTIZED_IN_REGISTERS = 1 };

/* Level `code & 15` of each lane. */
static inline vector nf4_look_up(vector_bits codes) {
#if defined(__AVX512F__)
  return (vector)_mm512_permutexvar_ps((__m512i)codes, _mm512_loadu_ps(tsr_nf4_levels));
#else
  __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(tsr_nf4_levels), (__m256i)codes);
  __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(tsr_nf4_levels + 8), (__m256i)codes);
  return (vector)_mm256_blendv_ps(low, high, (__m256)(codes << 28));
#endif
}

/* Integers of -127 .. 127 in byte `b` of each lane. */
static inline vector int8_look_up(vector_bits codes, int b) {
  vector_mask x = (vector_mask)(codes << (24 - 8 * b)) >> 24;
  return __builtin_convertvector(x, vector);
}

/* A word has 8 codes of 4 bits, in each byte the upper half first, or 4 of a byte. */
static inline __attribute__((always_inline)) void quantized_words(
    const quantized_block *b, int64_t first, int count, float *to, int64_t stride, const bool nf4,
    const bool rounds) {
  const int in_word = nf4 ? 8 : 4;
  vector words[WIDTH];
  _Pragma("GCC unroll 16") for (int r = 0; r < WIDTH; r++) {
    words[r] = (vector){0};
    memcpy(&words[r], b->codes[r] + 4 * first, (size_t)count * 4);
  }
  turn_square(words);
  _Pragma("GCC unroll 16") for (int w = 0; w < count; w++) {
    _Pragma("GCC unroll 8") for (int i = 0; i < in_word; i++) {
      vector_bits word = (vector_bits)words[w];
      vector x = nf4 ? nf4_look_up(word >> (4 * (i ^ 1))) : int8_look_up(word, i);
      x *= b->scales;
      if (rounds) x = vector_bf16(x);
      vector_store(to + ((first + w) * in_word + i) * stride, x);
    }
  }
}

static inline __attribute__((always_inline)) void
quantized_block_turn(const quantized_block *b, float *to, int64_t stride, bool nf4, bool rounds) {
  const int words = nf4 ? 8 : 16, each = words < WIDTH ? words : WIDTH;
  for (int first = 0; first < words; first += each)
    quantized_words(b, first, each, to, stride, nf4, rounds);
}

static inline void quantized_turn(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, float *to, int64_t stride) {
  bool rounds = x->rounds == TSR_ELEMENT_BF16;
  if (x->layout.format == TSR_QUANTIZED_NF4) {
    quantized_block b = quantized_block_at(x, rows, column, true);
    if (rounds) quantized_block_turn(&b, to, stride, true, true);
    else quantized_block_turn(&b, to, stride, true, false);
  } else {
    quantized_block b = quantized_block_at(x, rows, column, false);
    if (rounds) quantized_block_turn(&b, to, stride, false, true);
    else quantized_block_turn(&b, to, stride, false, false);
  }
}
#else
enum { QUANTIZED_IN_REGISTERS = 0 };
static inline void quantized_turn(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, float *to, int64_t stride) {
  (void)x, (void)rows, (void)column, (void)to, (void)stride;
}
#endif

/* Elements [column, column + depth) of WIDTH rows, turned: to (depth, WIDTH), rows `stride` apart;
 * depth is at most TSR_QUANTIZED_BLOCK. */
static inline void quantized_square(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, int64_t depth, float *to,
    int64_t stride) {
  float numbers[TSR_QUANTIZED_BLOCK];
  bool whole = column % TSR_QUANTIZED_BLOCK == 0 && depth == TSR_QUANTIZED_BLOCK;
  if (QUANTIZED_IN_REGISTERS && whole && x->rounds != TSR_ELEMENT_F16) {
    quantized_turn(x, rows, column, to, stride);
    return;
  }
  for (int r = 0; r < WIDTH; r++) {
    LEVEL(quantized_to_f32)(numbers, x, rows[r].row * x->layout.cols + column, depth);
    for (int64_t k = 0; k < depth; k++) to[k * stride + r] = numbers[k];
  }
}

#endif
