/* The matrix product. One operand is packed before, by all threads; a call packs its part of the
 * other a block at a time, which stays in the second cache, and runs the micro-kernel over the
 * tiles.
 *
 * Every element is one chain, whatever the split and the shape: the products of TSR_PRODUCT_DEPTH
 * neighbours in K are added one after the other to zero, and these sums to one another. */
#include "kernels/cpu/product.h"

enum { DEPTH = TSR_PRODUCT_DEPTH };
/* Of a call's own part: as many as leave half of a cache of 512 KiB to the other operand. */
enum { BLOCK_LANES = 168, BLOCK_PANELS_A = BLOCK_LANES / ROWS };

static _Thread_local float own[DEPTH * BLOCK_LANES] __attribute__((aligned(64)));

typedef struct {
  const float *a, *b; /* panels: (depth, ROWS) and (depth, COLUMNS) */
  int64_t depth;
  bool adds;
} tile;

/* to (ROWS, COLUMNS), rows `stride` apart */
static inline __attribute__((always_inline)) void
tile_run(const tile *t, float *to, int64_t stride) {
  vector sums[ROWS][2];
  const float *a = t->a, *b = t->b;
  _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) {
    sums[i][0] = sums[i][1] = (vector){0};
    __builtin_prefetch(to + i * stride, 1);
    __builtin_prefetch(to + i * stride + COLUMNS - 1, 1);
  }
  _Pragma("GCC unroll 4") for (int64_t k = 0; k < t->depth; k++) {
    vector b0 = lanes_load(b, 0), b1 = lanes_load(b, 1);
    _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) {
      vector x = a[i] - (vector){0};
      sums[i][0] = vector_fused(x, b0, sums[i][0]);
      sums[i][1] = vector_fused(x, b1, sums[i][1]);
    }
    a += ROWS;
    b += COLUMNS;
  }
  _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) {
    vector_unaligned *row = (vector_unaligned *)(to + i * stride);
    if (t->adds) sums[i][0] = row[0] + sums[i][0], sums[i][1] = row[1] + sums[i][1];
    row[0] = sums[i][0];
    row[1] = sums[i][1];
  }
}

static __attribute__((noinline)) void tile_whole(const tile *t, float *to, int64_t stride) {
  tile_run(t, to, stride);
}

/* At the edges of C */
static __attribute__((noinline)) void
tile_part(const tile *t, float *to, int64_t stride, int64_t rows, int64_t columns) {
  float all[ROWS * COLUMNS] = {0};
  for (int64_t i = 0; i < rows && t->adds; i++)
    memcpy(all + i * COLUMNS, to + i * stride, (size_t)columns * sizeof *to);
  tile_run(t, all, COLUMNS);
  for (int64_t i = 0; i < rows; i++)
    memcpy(to + i * stride, all + i * COLUMNS, (size_t)columns * sizeof *to);
}

/* Panels of A and of B that meet: those of A stay in the second cache, one of B in the first. */
typedef struct {
  const float *a, *b;
  int64_t a_first, a_count, b_first, b_count, depth;
  bool adds;
} block;

static void block_run(const tsr_product *p, const block *k) {
  for (int64_t j = 0; j < k->b_count; j++)
    for (int64_t i = 0; i < k->a_count; i++) {
      tile t = {k->a + i * ROWS * k->depth, k->b + j * COLUMNS * k->depth, k->depth, k->adds};
      int64_t row = (k->a_first + i) * ROWS, column = (k->b_first + j) * COLUMNS;
      float *to = p->c + row * p->c_stride + column;
      if (row + ROWS <= p->M && column + COLUMNS <= p->N) tile_whole(&t, to, p->c_stride);
      else
        tile_part(
            &t, to, p->c_stride, p->M - row < ROWS ? p->M - row : ROWS,
            p->N - column < COLUMNS ? p->N - column : COLUMNS);
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The call's columns against all rows, whose panels are packed. */
static void run_columns(
    const tsr_product *p, const float *packed, int64_t k, int64_t depth, int64_t begin,
    int64_t end) {
  operand a = operand_a(p), b = operand_b(p);
  int64_t rows = operand_panels(&a);
  LEVEL(operand_pack)(&b, k, depth, begin, end, own);
  for (int64_t i = 0; i < rows; i += BLOCK_PANELS_A) {
    block part = {
        packed + i * ROWS * depth,
        own,
        i,
        least(rows - i, BLOCK_PANELS_A),
        begin,
        end - begin,
        depth,
        p->adds || k};
    block_run(p, &part);
  }
}

/* The call's rows against all columns, whose panels are packed. */
static void run_rows(
    const tsr_product *p, const float *packed, int64_t k, int64_t depth, int64_t begin,
    int64_t end) {
  operand a = operand_a(p), b = operand_b(p);
  LEVEL(operand_pack)(&a, k, depth, begin, end, own);
  block part = {own, packed, begin, end - begin, 0, operand_panels(&b), depth, p->adds || k};
  block_run(p, &part);
}

static operand packed_of(const tsr_product *p) { return p->by_rows ? operand_b(p) : operand_a(p); }
static operand dealt_of(const tsr_product *p) { return p->by_rows ? operand_a(p) : operand_b(p); }

static int64_t panels_of(int64_t count, int lanes_each) {
  return (count + lanes_each - 1) / lanes_each;
}

/* Enough for any level, so that plans say the same on every machine. */
int64_t LEVEL(product_bytes)(const tsr_product *p) {
  int64_t count = p->by_rows ? p->N : p->M,
          strip = p->by_rows ? TSR_PRODUCT_COLUMNS : TSR_PRODUCT_ROWS;
  _Static_assert(
      TSR_PRODUCT_COLUMNS % COLUMNS == 0 && TSR_PRODUCT_ROWS % ROWS == 0, "whole panels");
  return (count + strip - 1) / strip * strip * p->K * (int64_t)sizeof(float);
}

void LEVEL(product_pack)(const tsr_product *p, float *packed, int64_t begin, int64_t end) {
  operand o = packed_of(p);
  int64_t all = operand_panels(&o) * o.lanes, first = begin / o.lanes,
          until = panels_of(end, o.lanes);
  for (int64_t k = 0; k < o.K; k += DEPTH) {
    int64_t depth = least(o.K - k, DEPTH);
    LEVEL(operand_pack)(&o, k, depth, first, until, packed + k * all + first * o.lanes * depth);
  }
}

void LEVEL(product)(const tsr_product *p, const float *packed, int64_t begin, int64_t end) {
  operand o = packed_of(p), dealt = dealt_of(p);
  int64_t all = operand_panels(&o) * o.lanes, until = panels_of(end, dealt.lanes),
          most = BLOCK_LANES / dealt.lanes;
  for (int64_t i = begin / dealt.lanes; i < until; i += most)
    for (int64_t k = 0; k < p->K; k += DEPTH)
      (p->by_rows ? run_rows : run_columns)(
          p, packed + k * all, k, least(p->K - k, DEPTH), i, least(until, i + most));
}
