// SPDX-License-Identifier: Apache-2.0
/* A GEMM with few rows, y = x w^T: what decoding is made of. Reading w is all its work, so a panel
 * of rows of w is transposed in registers and multiplied there by rows of x; gemm packs all of w
 * first.
 *
 * The next panel is prefetched into L2 meanwhile, in the order of its addresses: rows of a panel
 * lie far apart, and a hardware prefetcher follows one stream better than one for each row. What is
 * quantised is decoded into L1 first, and so are the ends of w. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp16.h"
#include "kernels/cpu/quantized_square.h"
#include "kernels/cpu/skinny_gemm.h"

/* Squares of WIDTH rows of w side by side: 16 sums at least. With vectors of 8 and of 4 the chains
 * of two squares overlap; with 16 the transposition of a square takes longer than its chain. */
enum {
  SQUARES = WIDTH == 16 ? 1 : 2,
  PANEL = SQUARES * WIDTH, /* rows of w, which are columns of y */
  CHUNK = 64,              /* of K, of which a panel is decoded at once */
  LINE = 64
};
_Static_assert(TSR_GEMM_DEPTH % CHUNK == 0, "a chunk is of one chain");
_Static_assert(TSR_GEMM_DEPTH % (2 * WIDTH) == 0, "a square of pairs is of one chain");

/* Rows of x that are multiplied while a square is in registers. */
#if defined(__AVX512F__)
enum { TOGETHER = 8 };
#else
enum { TOGETHER = 4 };
#endif

typedef struct {
  const tsr_skinny_gemm *p;
  int64_t n, columns;         /* the first row of w; how many of PANEL are in use */
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

/* WIDTH rows of w from row `first` of the panel on; rows that are not in use repeat row 0. bf16 is
 * transposed in pairs. */
static inline __attribute__((always_inline)) void
square_load(const panel *s, int first, int64_t k, int64_t depth, float *to, tsr_element type) {
  const tsr_matrix *w = &s->p->w;
  const int step = type == TSR_ELEMENT_BF16 ? 2 * WIDTH : WIDTH;
  for (int64_t i = 0; i < depth; i += step) {
    vector words[WIDTH];
    _Pragma("GCC unroll 16") for (int c = 0; c < WIDTH; c++) {
      int64_t row = first + c < s->columns ? first + c : 0;
      const void *at = tsr_element_at(w->data, type, w->first + (s->n + row) * w->cs + k + i);
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
  for (int v = 0; v < SQUARES; v++) square_load(s, v * WIDTH, k, depth, to, type);
}

static void chunk_load(const panel *s, int64_t k, int64_t depth, float *to) {
  tsr_element type = s->p->w.type;
  if (type == TSR_ELEMENT_CODES) {
    const tsr_quantized *w = &s->p->w.quantized;
    int64_t column = s->p->w.first % w->layout.cols + k;
    for (int v = 0; v < SQUARES; v++)
      quantized_square(w, s->codes + v * WIDTH, column, depth, to + v * WIDTH, PANEL);
  } else if (type == TSR_ELEMENT_F32) chunk_load_type(s, k, depth, to, TSR_ELEMENT_F32);
  else if (type == TSR_ELEMENT_BF16) chunk_load_type(s, k, depth, to, TSR_ELEMENT_BF16);
  else chunk_load_type(s, k, depth, to, TSR_ELEMENT_F16);
}

/* ---- a panel times rows of x ---- */

typedef vector row_sums[SQUARES];

/* What is prefetched next: a row of w, and the byte of it. */
typedef struct {
  uintptr_t row;
  int64_t stride, row_bytes, at; /* in bytes */
} prefetching;

/* Begins with the panel behind this one, which may be outside of w: no access. */
static prefetching prefetching_of(const panel *s) {
  const tsr_matrix *w = &s->p->w;
  int64_t bytes = w->type == TSR_ELEMENT_CODES ? 0 : tsr_element_bytes(w->type);
  prefetching f = {(uintptr_t)w->data, w->cs * bytes, s->p->K * bytes, 0};
  f.row += (uintptr_t)((w->first + (s->n + PANEL) * w->cs) * bytes);
  return f;
}

static inline __attribute__((always_inline)) void prefetch(prefetching *f, const int bytes) {
  const uintptr_t from = f->row + (uintptr_t)f->at;
  _Pragma("GCC unroll 16") for (int i = 0; i < bytes; i += LINE)
      __builtin_prefetch((const void *)(from + (uintptr_t)i), 0, 2);
  f->at += bytes;
  if (f->at < f->row_bytes) return;
  f->at -= f->row_bytes;
  f->row += (uintptr_t)f->stride;
}

/* A square's columns; of bf16 two in each word. */
static inline __attribute__((always_inline)) void
columns_load(const panel *s, int64_t n, int64_t k, vector words[WIDTH], const tsr_element type) {
  const tsr_matrix *w = &s->p->w;
  const void *at = tsr_element_at(w->data, type, w->first + n * w->cs + k);
  const int64_t stride = w->cs * tsr_element_bytes(type);
  if (type == TSR_ELEMENT_F16) {
    _Pragma("GCC unroll 16") for (int c = 0; c < WIDTH; c++) words[c] =
        halves_load((const uint16_t *)(const void *)((const char *)at + c * stride), WIDTH);
    transpose_square(words);
  } else {
    transpose_loaded(at, stride, words);
  }
}

/* A square, or one of pairs, times rows of x from column k on. */
static inline __attribute__((always_inline)) void square_add(
    const vector words[WIDTH], const float *x, int64_t stride, row_sums *to, int square,
    const int rows, const tsr_element type) {
  _Pragma("GCC unroll 16") for (int c = 0; c < WIDTH; c++) {
    vector_bits bits = (vector_bits)words[c];
    vector even = type == TSR_ELEMENT_BF16 ? (vector)(bits << 16) : words[c];
    vector odd = (vector)(bits & 0xFFFF0000u);
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) {
      const float *at = x + r * stride + (type == TSR_ELEMENT_BF16 ? 2 * c : c);
      to[r][square] = vector_fused(vector_all(at[0]), even, to[r][square]);
      if (type == TSR_ELEMENT_BF16)
        to[r][square] = vector_fused(vector_all(at[1]), odd, to[r][square]);
    }
  }
}

/* Adds `depth` products from column k on, by way of a chunk in L1. */
static inline __attribute__((always_inline)) void
chunks_add(const panel *s, const float *x, int64_t k, int64_t depth, row_sums *to, const int rows) {
  float w[CHUNK * PANEL] __attribute__((aligned(64)));
  for (int64_t end = k + depth; k < end; k += CHUNK) {
    chunk_load(s, k, least(end - k, CHUNK), w);
    for (int64_t i = 0; i < least(end - k, CHUNK); i++)
      _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
          _Pragma("GCC unroll 2") for (int v = 0; v < SQUARES; v++) to[r][v] = vector_fused(
              vector_all(x[r * s->p->x_stride + k + i]), lanes_load(w + i * PANEL, v), to[r][v]);
  }
}

/* The chain of gemm: sums of TSR_GEMM_DEPTH products, added to one another. f: NULL for rows of x
 * behind the first ones, which find the next panel prefetched. */
static inline __attribute__((always_inline)) void panel_add(
    const panel *s, const float *x, prefetching *f, row_sums *all, const int rows,
    const tsr_element type) {
  const int step = type == TSR_ELEMENT_BF16 ? 2 * WIDTH : WIDTH;
  const bool in_registers = type != TSR_ELEMENT_CODES;
  for (int64_t k = 0; k < s->p->K; k += TSR_GEMM_DEPTH) {
    row_sums sums[TOGETHER] = {0};
    int64_t depth = least(s->p->K - k, TSR_GEMM_DEPTH), i = 0;
    for (; in_registers && s->columns == PANEL && i + step <= depth; i += step) {
      if (f) prefetch(f, PANEL * step * (type == TSR_ELEMENT_F32 ? 4 : 2));
      _Pragma("GCC unroll 2") for (int v = 0; v < SQUARES; v++) {
        vector words[WIDTH];
        columns_load(s, s->n + v * WIDTH, k + i, words, type);
        square_add(words, x + k + i, s->p->x_stride, sums, v, rows, type);
      }
    }
    if (i < depth) chunks_add(s, x, k + i, depth - i, sums, rows);
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 2") for (int v = 0; v < SQUARES; v++) all[r][v] =
            k ? all[r][v] + sums[r][v] : sums[r][v];
  }
}

static inline __attribute__((always_inline)) void
panel_add_type(const panel *s, const float *x, prefetching *f, row_sums *all, const int rows) {
  tsr_element type = s->p->w.type;
  if (type == TSR_ELEMENT_F32) panel_add(s, x, f, all, rows, TSR_ELEMENT_F32);
  else if (type == TSR_ELEMENT_BF16) panel_add(s, x, f, all, rows, TSR_ELEMENT_BF16);
  else if (type == TSR_ELEMENT_F16) panel_add(s, x, f, all, rows, TSR_ELEMENT_F16);
  else panel_add(s, x, f, all, rows, TSR_ELEMENT_CODES);
}

static void
panel_add_rows(const panel *s, const float *x, prefetching *f, row_sums *all, int64_t rows) {
  switch (rows) {
#define ROWS(n)                                                                                    \
  case n:                                                                                          \
    panel_add_type(s, x, f, all, n);                                                               \
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

/* y (rows, columns) = x (rows, K) times the panel; rows at most TOGETHER */
static void panel_run(const panel *s, float *y, const float *x, prefetching *f, int64_t rows) {
  const tsr_skinny_gemm *p = s->p;
  row_sums all[TOGETHER];
  panel_add_rows(s, x, f, all, rows);
  float bias[PANEL] = {0};
  if (p->bias) memcpy(bias, p->bias + s->n, (size_t)s->columns * sizeof *bias);
  for (int64_t r = 0; r < rows; r++) {
    for (int v = 0; p->bias && v < SQUARES; v++) all[r][v] += lanes_load(bias, v);
    memcpy(y + r * p->y_stride + s->n, &all[r], (size_t)s->columns * sizeof *y);
  }
}

static void
run_panels(const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; n += PANEL) {
    panel s = {.p = p, .n = n, .columns = least(end - n, PANEL)};
    for (int c = 0; p->w.type == TSR_ELEMENT_CODES && c < PANEL; c++)
      s.codes[c] = quantized_row_at(
          &p->w.quantized, p->w.first / p->w.quantized.layout.cols + n + (c < s.columns ? c : 0));
    prefetching f = prefetching_of(&s);
    for (int64_t r = 0; r < p->R; r += TOGETHER)
      panel_run(
          &s, y + r * p->y_stride, x + r * p->x_stride, r ? NULL : &f, least(p->R - r, TOGETHER));
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
