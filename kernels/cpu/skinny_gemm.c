// SPDX-License-Identifier: Apache-2.0
/* A product with few rows, y = x w^T: what decoding is made of. Reading w is all its work, so w is
 * read once for all rows, in the order in which it lies: a chunk of a panel of its rows is widened
 * and turned in registers, and stays in the first cache while the rows of x are multiplied by it.
 * gemm packs all of w first.
 *
 * While a chunk is loaded, the one that comes next is fetched, also from one panel to the next: a
 * panel's rows are more streams than a processor foresees, and what it computes is over before the
 * memory has answered. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp16.h"
#include "kernels/cpu/quantized_square.h"
#include "kernels/cpu/skinny_gemm.h"

enum {
  PANEL = 2 * WIDTH, /* rows of w, which are columns of y */
  CHUNK = 64         /* of K */
};
_Static_assert(TSR_GEMM_DEPTH % CHUNK == 0, "a chunk is of one chain");

/* Rows of x whose sums are in registers at once, two vectors each. */
#if defined(__AVX512F__)
enum { TOGETHER = 8 };
#else
enum { TOGETHER = 4 };
#endif

typedef struct {
  const tsr_skinny_gemm *p;
  int64_t n, columns; /* the first row of w; how many of PANEL are in use */
  bool is_last;
  quantized_row codes[PANEL]; /* of quantised rows; those that are not in use repeat row 0 */
} panel;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- a chunk of w in f32: (depth, PANEL) ---- */

/* As many elements of a row of w as fill a vector of 32-bit words; zeros follow. */
static inline __attribute__((always_inline)) vector
words_load(const void *row, int64_t elements, int in_word) {
  vector words = {0};
  if (elements >= WIDTH * in_word)
    memcpy(&words, row, sizeof words); /* 2-byte elements: unaligned */
  else memcpy(&words, row, (size_t)(elements * 4 / in_word));
  return words;
}

static inline __attribute__((always_inline)) vector halves_load(const uint16_t *row, int64_t wide) {
  uint16_t half[WIDTH] = {0};
  float part[WIDTH];
  memcpy(half, row, (size_t)least(wide, WIDTH) * sizeof *half);
#if defined(__AVX512F__)
  return (vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)half));
#elif defined(__F16C__)
  return (vector)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)half));
#endif
  for (int i = 0; i < WIDTH; i++) part[i] = fp16_value(half[i]);
  return lanes_load(part, 0);
}

/* Elements from the chunk at k to the one that is loaded after it, of the same rows or of the next
 * panel's; 0: there is none. */
static inline int64_t find_next(const panel *s, int64_t k) {
  if (k + CHUNK < s->p->K) return CHUNK;
  return s->is_last ? 0 : PANEL * s->p->w.cs - k;
}

/* May be outside of w, which is no access. */
static inline void fetch(const void *at, int64_t bytes) {
  __builtin_prefetch((const void *)((uintptr_t)at + (uintptr_t)bytes), 0, 3);
}

/* WIDTH rows of w from row `first` of the panel on; rows that are not in use repeat row 0. bf16 is
 * turned in pairs. */
static inline __attribute__((always_inline)) void
square_load(const panel *s, int first, int64_t k, int64_t depth, float *to, tsr_element type) {
  const tsr_matrix *w = &s->p->w;
  const int step = type == TSR_ELEMENT_BF16 ? 2 * WIDTH : WIDTH;
  const int64_t next = find_next(s, k) * tsr_element_bytes(type);
  for (int64_t i = 0; i < depth; i += step) {
    vector words[WIDTH];
    _Pragma("GCC unroll 16") for (int c = 0; c < WIDTH; c++) {
      int64_t row = first + c < s->columns ? first + c : 0;
      const void *at = tsr_element_at(w->data, type, w->first + (s->n + row) * w->cs + k + i);
      fetch(at, next);
      words[c] = type == TSR_ELEMENT_F16
                     ? halves_load(at, depth - i)
                     : words_load(at, depth - i, type == TSR_ELEMENT_BF16 ? 2 : 1);
    }
    transpose_square(words);
    float *out = to + i * PANEL + first;
    _Pragma("GCC unroll 16") for (int c = 0; c < WIDTH; c++) {
      if (type == TSR_ELEMENT_BF16) {
        vector_bits pair = (vector_bits)words[c];
        vector_store(out + 2 * c * PANEL, (vector)(pair << 16));
        vector_store(out + (2 * c + 1) * PANEL, (vector)(pair & 0xFFFF0000u));
      } else {
        vector_store(out + c * PANEL, words[c]);
      }
    }
  }
}

static inline __attribute__((always_inline)) void
chunk_load_type(const panel *s, int64_t k, int64_t depth, float *to, tsr_element type) {
  square_load(s, 0, k, depth, to, type);
  square_load(s, WIDTH, k, depth, to, type);
}

static void chunk_load(const panel *s, int64_t k, int64_t depth, float *to) {
  tsr_element type = s->p->w.type;
  if (type == TSR_ELEMENT_CODES) {
    const tsr_quantized *w = &s->p->w.quantized;
    int64_t column = s->p->w.first % w->layout.cols + k;
    for (int v = 0; v < 2; v++)
      quantized_square(w, s->codes + v * WIDTH, column, depth, to + v * WIDTH, PANEL);
  } else if (type == TSR_ELEMENT_F32) chunk_load_type(s, k, depth, to, TSR_ELEMENT_F32);
  else if (type == TSR_ELEMENT_BF16) chunk_load_type(s, k, depth, to, TSR_ELEMENT_BF16);
  else chunk_load_type(s, k, depth, to, TSR_ELEMENT_F16);
}

/* ---- a chunk times rows of x ---- */

typedef vector row_sums[2];

static inline __attribute__((always_inline)) void add_rows(
    const float *w, const float *x, int64_t stride, int64_t depth, row_sums *to, const int rows) {
  row_sums sums[TOGETHER];
  _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) sums[r][0] = to[r][0],
                                                         sums[r][1] = to[r][1];
  for (int64_t k = 0; k < depth; k++) {
    vector w0 = lanes_load(w + k * PANEL, 0), w1 = lanes_load(w + k * PANEL, 1);
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) {
      vector each = vector_all(x[r * stride + k]);
      sums[r][0] = vector_fused(each, w0, sums[r][0]);
      sums[r][1] = vector_fused(each, w1, sums[r][1]);
    }
  }
  _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) to[r][0] = sums[r][0],
                                                         to[r][1] = sums[r][1];
}

static void add_group(
    const float *w, const float *x, int64_t stride, int64_t depth, row_sums *to, int64_t rows) {
  switch (rows < TOGETHER ? rows : TOGETHER) {
#define ROWS(n)                                                                                    \
  case n:                                                                                          \
    add_rows(w, x, stride, depth, to, n);                                                          \
    break;
    ROWS(1)
    ROWS(2)
    ROWS(3)
    ROWS(4)
#if defined(__AVX512F__)
    ROWS(5) ROWS(6) ROWS(7) ROWS(8)
#endif
#undef ROWS
  }
}

/* The chain of gemm: sums of TSR_GEMM_DEPTH products, added to one another. */
static void complete(row_sums *all, row_sums *sums, int64_t rows, bool first) {
  for (int64_t r = 0; r < rows; r++)
    for (int v = 0; v < 2; v++) {
      all[r][v] = first ? sums[r][v] : all[r][v] + sums[r][v];
      sums[r][v] = (vector){0};
    }
}

/* y (rows, columns) = x (rows, K) times the panel, rows at most SKINNY_ROWS_MAX */
static void panel_run(const panel *s, float *y, const float *x, int64_t rows) {
  const tsr_skinny_gemm *p = s->p;
  float w[CHUNK * PANEL] __attribute__((aligned(64)));
  row_sums all[SKINNY_ROWS_MAX], sums[SKINNY_ROWS_MAX];
  memset(sums, 0, (size_t)rows * sizeof *sums);
  for (int64_t k = 0; k < p->K; k += CHUNK) {
    int64_t depth = least(p->K - k, CHUNK), end = k + depth;
    chunk_load(s, k, depth, w);
    for (int64_t r = 0; r < rows; r += TOGETHER)
      add_group(w, x + r * p->x_stride + k, p->x_stride, depth, sums + r, rows - r);
    if (end % TSR_GEMM_DEPTH == 0 || end == p->K) complete(all, sums, rows, k < TSR_GEMM_DEPTH);
  }
  float bias[PANEL] = {0};
  if (p->bias) memcpy(bias, p->bias + s->n, (size_t)s->columns * sizeof *bias);
  for (int64_t r = 0; r < rows; r++) {
    for (int v = 0; p->bias && v < 2; v++) all[r][v] += lanes_load(bias, v);
    memcpy(y + r * p->y_stride + s->n, &all[r], (size_t)s->columns * sizeof *y);
  }
}

static void
run_panels(const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; n += PANEL) {
    panel s = {.p = p, .n = n, .columns = least(end - n, PANEL), .is_last = n + PANEL >= end};
    for (int c = 0; p->w.type == TSR_ELEMENT_CODES && c < PANEL; c++)
      s.codes[c] = quantized_row_at(
          &p->w.quantized, p->w.first / p->w.quantized.layout.cols + n + (c < s.columns ? c : 0));
    panel_run(&s, y, x, p->R);
  }
}

/* Lanes without a row are multiplied all the same, so few may be idle. */
static void
run_part(const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end) {
#if defined(__AVX2__)
  int64_t idle = (WIDTH - p->R % WIDTH) % WIDTH;
  if (idle <= WIDTH / 4) {
    LEVEL(skinny_gemm_lanes)(p, y, x, begin, end);
    return;
  }
#endif
  run_panels(p, y, x, begin, end);
}

void LEVEL(skinny_gemm)(
    const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < p->R; r += SKINNY_ROWS_MAX) {
    tsr_skinny_gemm part = *p;
    part.R = least(p->R - r, SKINNY_ROWS_MAX);
    run_part(&part, y + r * p->y_stride, x + r * p->x_stride, begin, end);
  }
}
