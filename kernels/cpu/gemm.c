// SPDX-License-Identifier: Apache-2.0
/* The matrix product. One operand is packed before, by all threads; a call packs its part of the
 * other a block at a time, which stays in the second cache, and runs the micro-kernel over the
 * tiles.
 *
 * Every element is one chain, whatever the split and the shape: the products of TSR_GEMM_DEPTH
 * neighbours in K are added one after the other to zero, and these sums to one another; in FP8
 * those of TSR_FP8_BLOCK neighbours, times the scales of both blocks. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pack_buffer.h"

enum { DEPTH = TSR_GEMM_DEPTH };
_Static_assert(TSR_GEMM_DEPTH % TSR_FP8_BLOCK == 0, "pieces of rounds are whole blocks");
static inline int64_t depth_of(const tsr_gemm *p) { return p->scaled ? TSR_FP8_BLOCK : DEPTH; }
/* Of a call's own part: as many as leave half of a cache of 512 KiB to the other operand. */
enum { BLOCK_LANES = 168 };

#define own tsr_pack_buffer.numbers
_Static_assert((int)DEPTH *(int)BLOCK_LANES <= (int)TSR_PACK_BUFFER_WORDS, "room for a block");

/* Lines that are fetched while tiles are computed: packing waits for memory otherwise, for its rows
 * lie too far apart to be foreseen. */
typedef struct {
  const char *data; /* (rows, length) bytes, rows `stride` apart */
  int64_t rows, length, stride, at;
  int64_t each; /* lines beside FETCH_DEPTH of a tile */
} fetch;

enum { LINE = 64, FETCH_DEPTH = 32 };

static inline void fetch_some(fetch *f) {
  for (int64_t i = 0; i < f->each && f->rows > 0; i++) {
    __builtin_prefetch(f->data + f->at, 0, 2);
    f->at += LINE;
    if (f->at < f->length) continue;
    f->at = 0;
    f->data += f->stride;
    f->rows--;
  }
}

typedef struct {
  const float *a, *b; /* panels: (depth, ROWS) and (depth, COLUMNS) */
  const float *bias;  /* (COLUMNS), where the sums become complete; else NULL */
  int64_t depth;
  bool adds, scaled;
  fetch *ahead;
} tile;

/* to (rows, COLUMNS), rows `stride` apart; of a panel of A the first `rows` lanes are read */
static inline __attribute__((always_inline)) void
tile_run(const tile *t, float *to, int64_t stride, const int rows) {
  vector sums[ROWS][2];
  const float *a = t->a, *b = t->b;
  _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) {
    sums[i][0] = sums[i][1] = (vector){0};
    __builtin_prefetch(to + i * stride, 1);
    __builtin_prefetch(to + i * stride + COLUMNS - 1, 1);
  }
  for (int64_t k = 0, end; k < t->depth;) {
    end = k + FETCH_DEPTH < t->depth ? k + FETCH_DEPTH : t->depth;
    fetch_some(t->ahead);
    _Pragma("GCC unroll 8") for (; k < end; k++) {
      vector b0 = lanes_load(b, 0), b1 = lanes_load(b, 1);
      _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) {
        vector x = a[i] - (vector){0};
        sums[i][0] = vector_fused(x, b0, sums[i][0]);
        sums[i][1] = vector_fused(x, b1, sums[i][1]);
      }
      a += ROWS;
      b += COLUMNS;
    }
  }
  _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) {
    vector_unaligned *row = (vector_unaligned *)(to + i * stride);
    if (t->scaled) {
      sums[i][0] = sums[i][0] * a[i] * lanes_load(b, 0);
      sums[i][1] = sums[i][1] * a[i] * lanes_load(b, 1);
    }
    if (t->adds) sums[i][0] = row[0] + sums[i][0], sums[i][1] = row[1] + sums[i][1];
    if (t->bias) sums[i][0] += lanes_load(t->bias, 0), sums[i][1] += lanes_load(t->bias, 1);
    row[0] = sums[i][0];
    row[1] = sums[i][1];
  }
}

static __attribute__((noinline)) void tile_whole(const tile *t, float *to, int64_t stride) {
  tile_run(t, to, stride, ROWS);
}

/* The last rows of C cost as much as their number rounded up to a third of a whole tile: with few
 * rows, as experts have them, they are a good part of all. */
enum { THIRD = ROWS / 3 };
_Static_assert(ROWS % 3 == 0, "thirds of a tile are whole rows");

static __attribute__((noinline)) void tile_third(const tile *t, float *to, int64_t stride) {
  tile_run(t, to, stride, THIRD);
}
static __attribute__((noinline)) void tile_two_thirds(const tile *t, float *to, int64_t stride) {
  tile_run(t, to, stride, 2 * THIRD);
}

static void tile_thirds(const tile *t, float *to, int64_t stride, int64_t rows) {
  if (rows <= THIRD) tile_third(t, to, stride);
  else if (rows <= 2 * THIRD) tile_two_thirds(t, to, stride);
  else tile_whole(t, to, stride);
}

/* At the edges of C */
static __attribute__((noinline)) void
tile_part(const tile *whole, float *to, int64_t stride, int64_t rows, int64_t columns) {
  if (columns == COLUMNS && rows % THIRD == 0) {
    tile_thirds(whole, to, stride, rows);
    return;
  }
  float all[ROWS * COLUMNS] = {0}, bias[COLUMNS];
  tile t = *whole;
  if (t.bias) {
    memset(bias, 0, sizeof bias);
    t.bias = memcpy(bias, t.bias, (size_t)columns * sizeof *bias);
  }
  for (int64_t i = 0; i < rows && t.adds; i++)
    memcpy(all + i * COLUMNS, to + i * stride, (size_t)columns * sizeof *to);
  tile_thirds(&t, all, COLUMNS, rows);
  for (int64_t i = 0; i < rows; i++)
    memcpy(to + i * stride, all + i * COLUMNS, (size_t)columns * sizeof *to);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ratio_up(int64_t count, int64_t each) { return (count + each - 1) / each; }

/* Panels of a block: even, for one of few panels would read all of the other operand for little. */
static int64_t block_panels(int64_t panels, int lanes_each) {
  return ratio_up(panels, ratio_up(panels, BLOCK_LANES / lanes_each));
}

/* Panels of the operand that is dealt out, and which part of K. */
typedef struct {
  int64_t begin, end, k, depth;
} piece;

/* What packing this piece will read, over so many tiles. */
static fetch fetch_of(const operand *o, const piece *now, const piece *next, int64_t tiles) {
  int64_t first = next->begin * o->lanes, across = least(o->count, next->end * o->lanes) - first;
  bool turns = o->lane_stride != 1;
  int64_t bytes = tsr_element_bytes(o->type);
  if (o->type == TSR_ELEMENT_CODES) return (fetch){0}; /* decoding takes longer than memory */
  int64_t begin = o->first + first * o->lane_stride + next->k * o->k_stride;
  fetch f = {.data = tsr_element_at(o->data, o->type, begin)};
  f.rows = turns ? across : next->depth;
  f.length = (turns ? next->depth : across) * bytes;
  f.stride = (turns ? o->lane_stride : o->k_stride) * bytes;
  f.each = f.rows * (f.length / LINE + 1) / (tiles * ratio_up(now->depth, FETCH_DEPTH)) + 1;
  return f;
}

/* Panels of A and of B that meet: those of A stay in the second cache, one of B in the first. */
typedef struct {
  const float *a, *b;
  int64_t a_first, a_count, b_first, b_count, depth;
  bool adds, completes; /* the block of K is not the first; is the last */
} block;

static void block_run(const tsr_gemm *p, const block *k, fetch *ahead) {
  int64_t lines = panel_lines(p->scaled, k->depth);
  for (int64_t j = 0; j < k->b_count; j++)
    for (int64_t i = 0; i < k->a_count; i++) {
      int64_t row = (k->a_first + i) * ROWS, column = (k->b_first + j) * COLUMNS;
      tile t = {
          .a = k->a + i * ROWS * lines,
          .b = k->b + j * COLUMNS * lines,
          .bias = p->bias && k->completes ? p->bias + column : NULL,
          .depth = k->depth,
          .adds = k->adds,
          .scaled = p->scaled,
          .ahead = ahead};
      float *to = p->c + row * p->c_stride + column;
      if (row + ROWS <= p->M && column + COLUMNS <= p->N) tile_whole(&t, to, p->c_stride);
      else
        tile_part(
            &t, to, p->c_stride, p->M - row < ROWS ? p->M - row : ROWS,
            p->N - column < COLUMNS ? p->N - column : COLUMNS);
    }
}

/* The call's columns, which are in `own`, against all rows, whose panels are packed. */
static void run_columns(const tsr_gemm *p, const float *packed, const piece *now, fetch *ahead) {
  operand a = operand_a(p);
  int64_t rows = operand_panels(&a), columns = now->end - now->begin;
  int64_t most = block_panels(rows, ROWS);
  for (int64_t i = 0; i < rows; i += most) {
    block part = {
        packed + i * ROWS * panel_lines(p->scaled, now->depth),
        own,
        i,
        least(rows - i, most),
        now->begin,
        columns,
        now->depth,
        p->adds || now->k,
        now->k + now->depth == p->K};
    block_run(p, &part, ahead);
  }
}

/* The call's rows, which are in `own`, against all columns, whose panels are packed. */
static void run_rows(const tsr_gemm *p, const float *packed, const piece *now, fetch *ahead) {
  operand b = operand_b(p);
  block part = {
      own,
      packed,
      now->begin,
      now->end - now->begin,
      0,
      operand_panels(&b),
      now->depth,
      p->adds || now->k,
      now->k + now->depth == p->K};
  block_run(p, &part, ahead);
}

static operand packed_of(const tsr_gemm *p) { return p->by_rows ? operand_b(p) : operand_a(p); }
static operand dealt_of(const tsr_gemm *p) { return p->by_rows ? operand_a(p) : operand_b(p); }

/* Enough for any level, so that plans are the same on every machine. */
int64_t LEVEL(gemm_bytes)(const tsr_gemm *p) {
  int64_t count = p->by_rows ? p->N : p->M, strip = p->by_rows ? TSR_GEMM_COLUMNS : TSR_GEMM_ROWS;
  _Static_assert(TSR_GEMM_COLUMNS % COLUMNS == 0 && TSR_GEMM_ROWS % ROWS == 0, "whole panels");
  return (count + strip - 1) / strip * strip * panel_lines(p->scaled, p->K) *
         (int64_t)sizeof(float);
}

void LEVEL(gemm_pack)(const tsr_gemm *p, float *packed, int64_t begin, int64_t end) {
  operand o = packed_of(p);
  int64_t all = operand_panels(&o) * o.lanes, first = begin / o.lanes,
          until = ratio_up(end, o.lanes);
  for (int64_t k = 0; k < o.K; k += depth_of(p)) {
    int64_t depth = least(o.K - k, depth_of(p));
    float *to = packed + panel_lines(p->scaled, k) * all;
    LEVEL(operand_pack)
    (&o, k, depth, first, until, to + first * o.lanes * panel_lines(p->scaled, depth));
  }
}

/* A call's part of the operand that is dealt out: panels until `end`, `most` at a time. */
typedef struct {
  int64_t end, most, K, depth;
} share;

static piece piece_at(const share *s, int64_t begin, int64_t k) {
  return (piece){begin, least(s->end, begin + s->most), k, least(s->K - k, s->depth)};
}

static piece piece_after(const share *s, const piece *now) {
  int64_t k = now->k + now->depth;
  return k < s->K ? piece_at(s, now->begin, k) : piece_at(s, now->end, 0);
}

void LEVEL(gemm)(const tsr_gemm *p, const float *packed, int64_t begin, int64_t end) {
  if (begin >= end) return;
  operand o = packed_of(p), dealt = dealt_of(p);
  int64_t panels = operand_panels(&o), first = begin / dealt.lanes;
  share s = {.end = ratio_up(end, dealt.lanes), .K = p->K, .depth = depth_of(p)};
  s.most = block_panels(s.end - first, dealt.lanes);
  for (piece now = piece_at(&s, first, 0), next; now.begin < s.end; now = next) {
    next = piece_after(&s, &now);
    fetch ahead = {0};
    if (next.begin < s.end) ahead = fetch_of(&dealt, &now, &next, (now.end - now.begin) * panels);
    LEVEL(operand_pack)(&dealt, now.k, now.depth, now.begin, now.end, own);
    const float *before = packed + panel_lines(p->scaled, now.k) * panels * o.lanes;
    (p->by_rows ? run_rows : run_columns)(p, before, &now, &ahead);
  }
}

/* Sums of blocks of K are added in C, which is therefore in f32. */
tsr_gemm_traits LEVEL(gemm_traits)(const tsr_gemm *p) {
  (void)p;
  return (tsr_gemm_traits){.tile_rows = TSR_GEMM_ROWS};
}
