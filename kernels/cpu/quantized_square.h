// SPDX-License-Identifier: Apache-2.0
/* Rows of a quantised matrix (base/quantized_layout.h), decoded and transposed in registers. The
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

/* The bits of f32_to_bf16 and back, of what is no NaN or one of clean_scale's: then no carry makes
 * it another number. */
static inline vector vector_bf16(vector x) {
  vector_bits bits = (vector_bits)x;
  return (vector)((bits + 0x7FFFu + (bits >> 16 & 1)) & 0xFFFF0000u);
}

/* A scale that is no number, as what it makes of codes is after it is rounded to bf16. */
static inline float clean_scale(float scale) {
  return isnan(scale) ? bf16_value(bf16_nearest(scale)) : scale;
}

/* Blocks of a row that are fetched before they are needed. */
enum { AHEAD = 4 };

/* Where a block of TSR_QUANTIZED_BLOCK columns is, alike in all rows. */
typedef struct {
  int64_t unit, numbers_at; /* bytes to the unit; in it, to its numbers in f32 */
  uint64_t first, blocks, block_bytes, groups;
} quantized_column;

static inline __attribute__((always_inline)) quantized_column
quantized_column_at(const tsr_quantized *x, int64_t column, const bool nf4) {
  const tsr_quantized_layout *l = &x->layout;
  uint64_t blocks = (uint64_t)tsr_quantized_unit_blocks(l);
  return (quantized_column){
      .unit = column / l->unit_cols * tsr_quantized_unit_bytes(l),
      .numbers_at = tsr_quantized_codes_bytes(l),
      .first = (uint64_t)(column % l->unit_cols) / TSR_QUANTIZED_BLOCK,
      .blocks = blocks,
      .block_bytes = nf4 ? TSR_QUANTIZED_BLOCK / 2 : TSR_QUANTIZED_BLOCK,
      .groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP};
}

/* The codes of a row's block, and its scale. */
static inline __attribute__((always_inline)) const uint8_t *quantized_block_of(
    const quantized_column *at, const quantized_row *row, float *ret_scale, const bool nf4,
    const bool rounds) {
  const uint8_t *bytes = row->units + at->unit;
  const float *numbers = (const float *)(const void *)(bytes + at->numbers_at);
  uint64_t block = row->block + at->first;
  const uint8_t *codes = bytes + block * at->block_bytes;
  float scale;
  __builtin_prefetch(codes + AHEAD * at->block_bytes); /* of the row, but for its last ones */
  if (nf4) {
    scale = tsr_nf4_scale_levels[bytes[at->blocks * at->block_bytes + block]] *
            numbers[block / TSR_NF4_GROUP];
    scale += numbers[at->groups];
  } else {
    scale = numbers[block];
  }
  *ret_scale = rounds ? clean_scale(scale) : scale;
  return codes;
}

/* A block of TSR_QUANTIZED_BLOCK elements of WIDTH rows, of which `codes` are the bytes. */
typedef struct {
  const uint8_t *codes[WIDTH];
  vector scales;
} quantized_block;

static inline __attribute__((always_inline)) quantized_block quantized_block_at(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, const bool nf4,
    const bool rounds) {
  quantized_column at = quantized_column_at(x, column, nf4);
  quantized_block b;
  float scales[WIDTH];
  _Pragma("GCC unroll 16") for (int r = 0; r < WIDTH; r++) b.codes[r] =
      quantized_block_of(&at, &rows[r], &scales[r], nf4, rounds);
  b.scales = lanes_load(scales, 0);
  return b;
}

#if defined(__AVX2__)
enum { QUANTIZED_IN_REGISTERS = 1 };

/* Of 16 levels that of `code & 15` in each lane. */
static inline vector nf4_look_up(const vector levels[16 / WIDTH], vector_bits codes) {
#if defined(__AVX512F__)
  return (vector)_mm512_permutexvar_ps((__m512i)codes, (__m512)levels[0]);
#else
  __m256 low = _mm256_permutevar8x32_ps((__m256)levels[0], (__m256i)codes);
  __m256 high = _mm256_permutevar8x32_ps((__m256)levels[1], (__m256i)codes);
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
  vector words[WIDTH], levels[16 / WIDTH];
  for (int i = 0; i < 16 / WIDTH; i++) levels[i] = lanes_load(tsr_nf4_levels, i);
  _Pragma("GCC unroll 16") for (int r = 0; r < WIDTH; r++) {
    words[r] = (vector){0};
    memcpy(&words[r], b->codes[r] + 4 * first, (size_t)count * 4);
  }
  transpose_square(words);
  _Pragma("GCC unroll 16") for (int w = 0; w < count; w++) {
    _Pragma("GCC unroll 8") for (int i = 0; i < in_word; i++) {
      vector_bits word = (vector_bits)words[w];
      vector x = nf4 ? nf4_look_up(levels, word >> (4 * (i ^ 1))) : int8_look_up(word, i);
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

static inline __attribute__((always_inline)) void quantized_transpose_as(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, float *to, int64_t stride,
    const bool nf4, const bool rounds) {
  quantized_block b = quantized_block_at(x, rows, column, nf4, rounds);
  quantized_block_turn(&b, to, stride, nf4, rounds);
}

static inline void quantized_transpose(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, float *to, int64_t stride) {
  bool nf4 = x->layout.format == TSR_QUANTIZED_NF4, rounds = x->rounds == TSR_ELEMENT_BF16;
  if (nf4 && rounds) quantized_transpose_as(x, rows, column, to, stride, true, true);
  else if (nf4) quantized_transpose_as(x, rows, column, to, stride, true, false);
  else if (rounds) quantized_transpose_as(x, rows, column, to, stride, false, true);
  else quantized_transpose_as(x, rows, column, to, stride, false, false);
}

/* ---- a block of a row by itself ---- */

/* WIDTH bytes as words: without a sign, and with one. */
static inline vector_bits bytes_load(const uint8_t *codes) {
#if defined(__AVX512F__)
  return (vector_bits)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes));
#else
  return (vector_bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
#endif
}

static inline vector_mask integers_load(const uint8_t *codes) {
#if defined(__AVX512F__)
  return (vector_mask)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes));
#else
  return (vector_mask)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
#endif
}

static inline __attribute__((always_inline)) void
int8_row(const uint8_t *codes, float scale, float *to, const bool rounds) {
  _Pragma("GCC unroll 8") for (int i = 0; i < TSR_QUANTIZED_BLOCK; i += WIDTH) {
    vector x = __builtin_convertvector(integers_load(codes + i), vector) * scale;
    vector_store(to + i, rounds ? vector_bf16(x) : x);
  }
}

/* The levels are scaled before they are looked up. Of each 2 WIDTH elements the even ones lie
 * before the odd ones, as the upper halves of bytes lie before the lower ones. */
static inline __attribute__((always_inline)) void
nf4_row(const uint8_t *codes, float scale, float *to, const bool rounds) {
  vector levels[16 / WIDTH];
  for (int i = 0; i < 16 / WIDTH; i++) {
    levels[i] = lanes_load(tsr_nf4_levels, i) * scale;
    if (rounds) levels[i] = vector_bf16(levels[i]);
  }
  _Pragma("GCC unroll 4") for (int i = 0; i < TSR_QUANTIZED_BLOCK / 2; i += WIDTH) {
    vector_bits twos = bytes_load(codes + i);
    vector_store(to + 2 * i, nf4_look_up(levels, twos >> 4));
    vector_store(to + 2 * i + WIDTH, nf4_look_up(levels, twos));
  }
}

static inline __attribute__((always_inline)) void quantized_block_row(
    const uint8_t *codes, float scale, float *to, const bool nf4, const bool rounds) {
  if (nf4) nf4_row(codes, scale, to, rounds);
  else int8_row(codes, scale, to, rounds);
}
#else
enum { QUANTIZED_IN_REGISTERS = 0 };
static inline void quantized_transpose(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, float *to, int64_t stride) {
  (void)x, (void)rows, (void)column, (void)to, (void)stride;
}
static inline void
quantized_block_row(const uint8_t *codes, float scale, float *to, bool nf4, bool rounds) {
  (void)codes, (void)scale, (void)to, (void)nf4, (void)rounds;
}
#endif

/* Whether elements [column, column + depth) are a block that is decoded in registers. */
static inline bool in_registers(const tsr_quantized *x, int64_t column, int64_t depth) {
  return QUANTIZED_IN_REGISTERS && column % TSR_QUANTIZED_BLOCK == 0 &&
         depth == TSR_QUANTIZED_BLOCK && x->rounds != TSR_ELEMENT_F16;
}

/* Elements [column, column + depth) of WIDTH rows, transposed: to (depth, WIDTH), rows `stride`
 * apart; depth is at most TSR_QUANTIZED_BLOCK. */
static inline void quantized_square(
    const tsr_quantized *x, const quantized_row *rows, int64_t column, int64_t depth, float *to,
    int64_t stride) {
  float numbers[TSR_QUANTIZED_BLOCK];
  if (in_registers(x, column, depth)) {
    quantized_transpose(x, rows, column, to, stride);
    return;
  }
  for (int r = 0; r < WIDTH; r++) {
    LEVEL(quantized_to_f32)(numbers, x, rows[r].row * x->layout.cols + column, depth);
    for (int64_t k = 0; k < depth; k++) to[k * stride + r] = numbers[k];
  }
}

#endif
