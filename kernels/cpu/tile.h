/* Small products for attention, from operands packed once per head and used for every block of
 * queries; tsr_gemm packs at each call, which costs as much as these products.
 *
 * C (M,N) = A (M,K) B (K,N): A's element (i,k) is at i*rs + k*cs; B lies in panels of PANEL
 * columns, each panel (K, PANEL), the last one only as wide as N, a multiple of WIDTH; C's rows are
 * contiguous. A tile is TILE_ROWS by PANEL: M is a multiple of TILE_ROWS, the rows too many being
 * the caller's padding. Every element of C is one chain over k from 0 up, whatever the tile. */
#ifndef TSR_KERNELS_CPU_TILE_H
#define TSR_KERNELS_CPU_TILE_H
#include "kernels/cpu/lanes.h"
#include <stdbool.h>

enum { TILE_ROWS = 6, TILE_VECTORS = WIDTH == 16 ? 4 : 2, PANEL = TILE_VECTORS * WIDTH };
enum { DEPTH = 256 }; /* of the products between two visits of a tile: a panel's part in cache */

/* What causality leaves of a product, where `first` is the block's first query. */
typedef enum {
  BAND_ALL,
  BAND_COLUMNS, /* rows are queries, columns keys: a tile wholly above the diagonal is not needed */
  BAND_DEPTH,   /* rows are queries, k keys: the sum ends at the tile's last query */
  BAND_QUERIES  /* rows are keys, k queries: the sum starts at the tile's first key */
} band;

typedef struct {
  int64_t M, N, K;
  const float *a;
  int64_t a_rs, a_cs;
  const float *b;
  float *c;
  int64_t c_rs;
  bool add; /* to C, else C is overwritten */
  band band;
  int64_t first;
} product;

static inline int64_t round_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

#define EACH_ROW(i) _Pragma("GCC unroll 6") for (int i = 0; i < TILE_ROWS; i++)
#define EACH_COLUMN(v) _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)

static inline __attribute__((always_inline)) void tile_run(
    const int vectors, const product *p, const float *a, const float *b, float *c, int64_t depth,
    bool add) {
  vector sums[TILE_ROWS][TILE_VECTORS];
  const int64_t rs = p->a_rs, cs = p->a_cs, c_rs = p->c_rs;
  EACH_ROW(i)
  EACH_COLUMN(v) sums[i][v] = add ? lanes_load(c + i * c_rs, v) : (vector){0};
  for (int64_t k = 0; k < depth; k++, a += cs, b += vectors * WIDTH) {
    vector row[TILE_VECTORS];
    EACH_COLUMN(v) row[v] = lanes_load(b, v);
    EACH_ROW(i) {
      vector value = a[i * rs] - (vector){0}; /* in every lane */
      EACH_COLUMN(v) sums[i][v] = vector_fused(value, row[v], sums[i][v]);
    }
  }
  EACH_ROW(i)
  EACH_COLUMN(v) * (vector_unaligned *)(c + i * c_rs + v * WIDTH) = sums[i][v];
}

static void tile_any(
    int vectors, const product *p, const float *a, const float *b, float *c, int64_t depth,
    bool add) {
  switch (vectors) {
  case 1:
    tile_run(1, p, a, b, c, depth, add);
    return;
  case 2:
    tile_run(2, p, a, b, c, depth, add);
    return;
#if defined(__AVX512F__)
  case 3:
    tile_run(3, p, a, b, c, depth, add);
    return;
  case 4:
    tile_run(4, p, a, b, c, depth, add);
    return;
#endif
  }
}

/* The tiles of one panel over one piece [k, k_end) of the depth. */
static void product_panel(const product *p, int64_t column, int vectors, int64_t k, int64_t k_end) {
  const float *panel = p->b + column * p->K;
  for (int64_t i = 0; i < p->M; i += TILE_ROWS) {
    int64_t begin = k, end = k_end, last = p->first + i + TILE_ROWS;
    if (p->band == BAND_COLUMNS && column >= last) continue;
    if (p->band == BAND_DEPTH && end > last) end = last;
    if (p->band == BAND_QUERIES && begin < i - p->first) begin = i - p->first;
    bool add = p->add || k > 0;
    if (begin >= end && add) continue;
    tile_any(
        vectors, p, p->a + i * p->a_rs + begin * p->a_cs, panel + begin * vectors * WIDTH,
        p->c + i * p->c_rs + column, begin < end ? end - begin : 0, add);
  }
}

static void product_run(const product *p) {
  for (int64_t column = 0; column < p->N; column += PANEL) {
    int64_t left = (p->N - column) / WIDTH;
    int vectors = left < TILE_VECTORS ? (int)left : TILE_VECTORS;
    for (int64_t k = 0; k < p->K; k += DEPTH)
      product_panel(p, column, vectors, k, p->K - k < DEPTH ? p->K : k + DEPTH);
  }
}

/* Panels of B (K,N) with B(k,n) = x[k*stride + n], zeros from N on. */
static void pack_rows(float *to, const float *x, int64_t stride, int64_t K, int64_t N) {
  for (int64_t column = 0; column < N; column += PANEL) {
    int64_t wide = N - column < PANEL ? N - column : PANEL, padded = round_to(wide, WIDTH);
    for (int64_t k = 0; k < K; k++, to += padded) {
      memcpy(to, x + k * stride + column, (size_t)wide * sizeof *to);
      memset(to + wide, 0, (size_t)(padded - wide) * sizeof *to);
    }
  }
}

/* The same with B(k,n) = x[n*stride + k]. */
static void pack_columns(float *to, const float *x, int64_t stride, int64_t K, int64_t N) {
  for (int64_t column = 0; column < N; column += PANEL) {
    int64_t wide = N - column < PANEL ? N - column : PANEL, padded = round_to(wide, WIDTH);
    for (int64_t n = 0; n < wide; n++)
      for (int64_t k = 0; k < K; k++) to[k * padded + n] = x[(column + n) * stride + k];
    for (int64_t n = wide; n < padded; n++)
      for (int64_t k = 0; k < K; k++) to[k * padded + n] = 0;
    to += K * padded;
  }
}

#endif
