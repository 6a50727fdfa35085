// SPDX-License-Identifier: Apache-2.0
/* Small products for attention, from operands that stay in the first caches; the general product
 * packs at each call, which costs as much as these products.
 *
 * C (M,N) = A (M,K) B (K,N): B lies in panels of PANEL columns, each panel (K, PANEL). A tile is
 * TILE_ROWS by PANEL, of which the first `vectors` vectors are computed. Rows that pad M to tiles
 * are the caller's. Every element of C is one chain over k from 0 up, whatever the tile.
 *
 * One side of a product is a block of QUERIES queries. Strides that follow from that are constants,
 * so that the compiler has registers left for what matters. */
#ifndef TSR_KERNELS_CPU_ATTENTION_GEMM_H
#define TSR_KERNELS_CPU_ATTENTION_GEMM_H
#include "kernels/cpu/attention_rows.h"

enum { TILE_ROWS = F32_TILE, TILE_VECTORS = WIDTH == 16 ? 4 : 2, PANEL = TILE_VECTORS * WIDTH };
enum { HEAD_UNIT = WIDTH, SCORES_ARE_SCALED = true };
enum { QUERIES = F32_QUERIES }; /* a multiple of TILE_ROWS and of WIDTH */
_Static_assert(WIDEST % WIDTH == 0 && WIDEST_PANEL % PANEL == 0, "whole vectors and panels");

/* What operands are stored in. */
typedef float number;
static inline float numbers_dot(const number *x, const number *y, int64_t n) {
  return row_dot(x, y, n);
}
static inline void numbers_store(number *to, const float *x, float factor, int64_t n) {
  row_scale(to, x, factor, n);
}

/* Before the first GEMM of a call, and after its last one. */
static inline void gemms_begin(void) {}
static inline void gemms_end(void) {}

#define EACH_ROW(i) _Pragma("GCC unroll 6") for (int i = 0; i < TILE_ROWS; i++)
#define EACH_COLUMN(v) _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)

/* A's element (i,k) is at i*rs + k*cs; C's rows are c_rs apart. `max`, or NULL: the columns' maxima
 * until now, and then with these rows too. */
static inline __attribute__((always_inline)) void tile_run(
    const int vectors, const bool add, const float *a, const int64_t rs, const int64_t cs,
    const float *b, float *c, const int64_t c_rs, int64_t depth, float *max) {
  vector sums[TILE_ROWS][TILE_VECTORS];
  EACH_ROW(i)
  EACH_COLUMN(v) sums[i][v] = add ? lanes_load(c + i * c_rs, v) : (vector){0};
  _Pragma("GCC unroll 4") for (int64_t k = 0; k < depth; k++, a += cs, b += PANEL) {
    vector row[TILE_VECTORS];
    EACH_COLUMN(v) row[v] = lanes_load(b, v);
    EACH_ROW(i) {
      vector value = a[i * rs] - (vector){0}; /* in every lane */
      EACH_COLUMN(v) sums[i][v] = vector_fused(value, row[v], sums[i][v]);
    }
  }
  EACH_ROW(i)
  EACH_COLUMN(v) vector_store(c + i * c_rs + v * WIDTH, sums[i][v]);
  if (!max) return;
  EACH_COLUMN(v) {
    vector first = vector_max(sums[0][v], sums[1][v]), second = vector_max(sums[2][v], sums[3][v]);
    vector third = vector_max(sums[4][v], sums[5][v]), old = lanes_load(max, v);
    vector_store(max + v * WIDTH, vector_max(vector_max(first, second), vector_max(third, old)));
  }
}

#if defined(__AVX512F__)
#define EACH_WIDTH(vectors, RUN)                                                                   \
  switch (vectors) {                                                                               \
  case 1:                                                                                          \
    RUN(1);                                                                                        \
    return;                                                                                        \
  case 2:                                                                                          \
    RUN(2);                                                                                        \
    return;                                                                                        \
  case 3:                                                                                          \
    RUN(3);                                                                                        \
    return;                                                                                        \
  case 4:                                                                                          \
    RUN(4);                                                                                        \
    return;                                                                                        \
  }
#else
#define EACH_WIDTH(vectors, RUN)                                                                   \
  switch (vectors) {                                                                               \
  case 1:                                                                                          \
    RUN(1);                                                                                        \
    return;                                                                                        \
  case 2:                                                                                          \
    RUN(2);                                                                                        \
    return;                                                                                        \
  }
#endif

/* c (keys, QUERIES) = a (keys, depth) b (depth, queries), and the maxima */
static __attribute__((noinline)) void
tile_dot(int vectors, const float *a, const float *b, float *c, int64_t depth, float *max) {
#define RUN(n) tile_run(n, false, a, depth, 1, b, c, QUERIES, depth, max)
  EACH_WIDTH(vectors, RUN)
#undef RUN
}

/* c (queries, D) += a (keys, QUERIES)^T b (keys, D) */
static __attribute__((noinline)) void
tile_weigh(int vectors, const float *a, const float *b, float *c, int64_t c_rs, int64_t depth) {
#define RUN(n) tile_run(n, true, a, 1, QUERIES, b, c, c_rs, depth, NULL)
  EACH_WIDTH(vectors, RUN)
#undef RUN
}

/* c (keys, D) += a (keys, QUERIES) b (queries, D) */
static __attribute__((noinline)) void
tile_spread(int vectors, const float *a, const float *b, float *c, int64_t c_rs, int64_t depth) {
#define RUN(n) tile_run(n, true, a, QUERIES, 1, b, c, c_rs, depth, NULL)
  EACH_WIDTH(vectors, RUN)
#undef RUN
}

/* C (M, N) of `panels` of B, `panel` floats apart; N is a multiple of WIDTH. */
typedef struct {
  int64_t M, N, K;
  const float *a, *b;
  int64_t panel;
  float *c;
  int64_t c_rs;
  bool causal;   /* a query and a key after it give nothing */
  int64_t shift; /* the first query's position less the first key's */
} gemm;

static inline int gemm_vectors(const gemm *p, int64_t column) {
  int64_t left = (p->N - column) / WIDTH;
  return left < TILE_VECTORS ? (int)left : TILE_VECTORS;
}

/* Rows are queries, k keys: the sum ends at the tile's last query. */
static inline void gemm_weigh(const gemm *p) {
  for (int64_t column = 0; column < p->N; column += PANEL)
    for (int64_t i = 0; i < p->M; i += TILE_ROWS) {
      int64_t end = p->K, last = p->shift + i + TILE_ROWS;
      if (p->causal && last < end) end = last;
      if (end <= 0) continue;
      tile_weigh(
          gemm_vectors(p, column), p->a + i, p->b + column / PANEL * p->panel,
          p->c + i * p->c_rs + column, p->c_rs, end);
    }
}

/* Rows are keys, k queries: the sum starts at the tile's first key. */
static inline void gemm_spread(const gemm *p) {
  for (int64_t column = 0; column < p->N; column += PANEL)
    for (int64_t i = 0; i < p->M; i += TILE_ROWS) {
      int64_t begin = p->causal && i > p->shift ? i - p->shift : 0;
      if (begin >= p->K) break;
      tile_spread(
          gemm_vectors(p, column), p->a + i * QUERIES + begin,
          p->b + column / PANEL * p->panel + begin * PANEL, p->c + i * p->c_rs + column, p->c_rs,
          p->K - begin);
    }
}

/* to (K, N) = x (K, stride). */
static inline void pack_lines(float *to, const float *x, int64_t stride, int64_t K, int64_t N) {
  for (int64_t k = 0; k < K; k++) {
    if (k + AHEAD < K) row_ahead(x + (k + AHEAD) * stride, N * (int64_t)sizeof *x);
    memcpy(to + k * N, x + k * stride, (size_t)N * sizeof *to);
  }
}

/* Panels of B (K,N), `panel` floats apart, with B(k,n) = x[k*stride + n] * factor; zeros from N
 * on. */
static inline void pack_rows(
    float *to, int64_t panel, const float *x, int64_t stride, float factor, int64_t K, int64_t N) {
  int64_t whole = N / PANEL * PANEL;
  for (int64_t k = 0; k < K; k++, to += PANEL, x += stride) {
    if (k + AHEAD < K) row_ahead(x + AHEAD * stride, N * (int64_t)sizeof *x);
    float *line = to;
    for (int64_t n = 0; n < whole; n += PANEL, line += panel)
      _Pragma("GCC unroll 4") for (int v = 0; v < TILE_VECTORS; v++)
          vector_store(line + v * WIDTH, lanes_load(x + n, v) * factor);
    if (whole == N) continue;
    row_scale(line, x + whole, factor, N - whole);
    row_zero(line, N - whole, PANEL);
  }
}

/* Up to WIDTH rows and columns from x, turned: to[k*PANEL + n] = x[n*stride + k] * factor. */
static inline void
pack_square(float *to, const float *x, int64_t stride, float factor, int64_t K, int64_t N) {
  vector square[WIDTH];
  for (int n = 0; n < WIDTH; n++) {
    square[n] = (vector){0};
    if (n < N) square[n] = vector_part(x + n * stride, K) * factor;
  }
  transpose_square(square);
  for (int k = 0; k < K; k++) vector_store(to + k * PANEL, square[k]);
}

/* Panels of B (K,N) with B(k,n) = x[n*stride + k] * factor; zeros from N to the end of a tile
 * and then of a vector. */
static inline void
pack_columns(float *to, const float *x, int64_t stride, float factor, int64_t K, int64_t N) {
  for (int64_t n = 0; n < round_to(N, TILE_ROWS); n += WIDTH) {
    float *column = to + n / PANEL * K * PANEL + n % PANEL;
    const float *rows = x + n * stride;
    int64_t k = 0;
    for (; N - n >= WIDTH && k + WIDTH <= K; k += WIDTH) {
      vector square[WIDTH];
      _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) square[i] =
          lanes_load(rows + i * stride + k, 0) * factor;
      transpose_square(square);
      _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++)
          vector_store(column + (k + i) * PANEL, square[i]);
    }
    for (; k < K; k += WIDTH)
      pack_square(
          column + k * PANEL, rows + k, stride, factor, K - k < WIDTH ? K - k : WIDTH, N - n);
  }
}

#endif
