// SPDX-License-Identifier: Apache-2.0
/* A GEMM with few rows, y = x w^T, of so many rows that they fill SIMD vectors: lane r of a sum is
 * row r of y. Elements of w are then the same in all lanes, so that w is converted in the order in
 * which it lies, and only x is transposed, once for all columns. With fewer rows, and with vectors
 * of four f32, columns of y are the lanes, and w is transposed (skinny_gemm.c).
 *
 * The multiplications bound the time, so nothing else should use their ports: converted elements go
 * through the first-level cache, from where each is broadcast to all lanes. */
#include "kernels/cpu/fp16.h"
#include "kernels/cpu/pack_buffer.h"
#include "kernels/cpu/quantized_square.h"
#include "kernels/cpu/skinny_gemm.h"

#if defined(__AVX2__)

/* Columns of y for which elements of x are loaded once: a tile. Of its sums so many columns' are in
 * registers at once, with one vector of rows or with two. */
#if defined(__AVX512F__)
enum { TILE = 16, GROUP_OF_ONE = 16, GROUP_OF_TWO = 8 };
#else
enum { TILE = 12, GROUP_OF_ONE = 12, GROUP_OF_TWO = 6 };
#endif
enum {
  DEPTH = TSR_GEMM_DEPTH,
  CHUNK = TSR_QUANTIZED_BLOCK,                     /* of K, of which a tile is converted at once */
  TRANSPOSED_FLOATS = 5 * DEPTH * SKINNY_ROWS_MAX, /* of x: what stays in the second cache */
  CHUNKS_AHEAD = 2,                                /* so many chunks later is what is fetched */
  LINE = 64
};
_Static_assert(DEPTH % CHUNK == 0, "a chunk is of one chain");
_Static_assert(TILE % GROUP_OF_ONE == 0 && TILE % GROUP_OF_TWO == 0, "groups fill a tile");

#define transposed tsr_pack_buffer.numbers
_Static_assert(TRANSPOSED_FLOATS <= (int)TSR_PACK_BUFFER_WORDS, "room for the rows");

/* How a chunk is converted: row by row while the one before is multiplied, or, as OTHER, before. */
typedef enum { F32, BF16, F16, INT8, INT8_TO_BF16, NF4, NF4_TO_BF16, OTHER } conversion;

/* A part of K, of which x is transposed: (depth, vectors * WIDTH). */
typedef struct {
  const tsr_skinny_gemm *p;
  int64_t rows, vectors, k, depth;
  const float *x;
  conversion how;
} part;

typedef struct {
  int64_t n, columns;        /* the first row of w; how many of TILE are in use */
  const char *w[TILE];       /* rows of w, of which those that are not in use repeat row 0 */
  quantized_row codes[TILE]; /* the same of quantised ones */
} tile;

/* (TILE, CHUNK) in f32. Of BF16 and of NF4 the even ones of 2 WIDTH elements lie before the odd
 * ones. */
typedef float chunk[TILE * CHUNK] __attribute__((aligned(64)));

/* What a whole chunk is converted from. */
typedef struct {
  const char *const *rows, *const *later; /* of w; those of what is fetched */
  int64_t at, later_at;                   /* in them, in bytes */
  const quantized_row *codes;
  quantized_column column;
} source;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- a chunk of w in f32 ---- */

static conversion conversion_of(const tsr_matrix *w) {
  const tsr_quantized *q = &w->quantized;
  bool rounds = q->rounds == TSR_ELEMENT_BF16;
  if (w->type == TSR_ELEMENT_F32) return F32;
  if (w->type == TSR_ELEMENT_BF16) return BF16;
  if (w->type == TSR_ELEMENT_F16) return F16;
  if (!in_registers(q, w->first % q->layout.cols, CHUNK)) return OTHER;
  if (q->layout.format == TSR_QUANTIZED_NF4) return rounds ? NF4_TO_BF16 : NF4;
  return rounds ? INT8_TO_BF16 : INT8;
}

static source source_of(const part *s, const tile *t, const tile *next, int64_t k) {
  const tsr_matrix *w = &s->p->w;
  if (w->type == TSR_ELEMENT_CODES)
    return (source){
        .codes = t->codes,
        .column = quantized_column_at(
            &w->quantized, w->first % w->quantized.layout.cols + k, s->how >= NF4)};
  int64_t bytes = tsr_element_bytes(w->type), end = s->k + s->depth;
  int64_t later = k + CHUNKS_AHEAD * CHUNK;
  source from = {.rows = t->w, .later = t->w, .at = k * bytes};
  if (later >= end && next) from.later = next->w, later -= s->depth;
  from.later_at = least(later, end - 1) * bytes;
  return from;
}

static inline void convert_pairs(const char *row, float *to) {
  vector_bits two;
  memcpy(&two, row, sizeof two);
  vector_store(to, (vector)(two << 16));
  vector_store(to + WIDTH, (vector)(two & 0xFFFF0000u));
}

static inline void convert_halves(const char *row, float *to) {
#if defined(__AVX512F__)
  vector_store(to, (vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)row)));
#else
  vector_store(to, (vector)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)row)));
#endif
}

static inline __attribute__((always_inline)) void
convert_plain(const char *row, const char *later, float *to, const conversion how) {
  const int bytes = how == F32 ? 4 : 2, step = how == BF16 ? 2 * WIDTH : WIDTH;
  for (int i = 0; i < CHUNK * bytes; i += LINE) __builtin_prefetch(later + i, 0, 2);
  _Pragma("GCC unroll 8") for (int i = 0; i < CHUNK; i += step) {
    if (how == F32) vector_store(to + i, lanes_load((const float *)(const void *)row + i, 0));
    else if (how == BF16) convert_pairs(row + 2 * i, to + i);
    else convert_halves(row + 2 * i, to + i);
  }
}

static inline __attribute__((always_inline)) void
convert_row(const source *from, int c, float *to, const conversion how) {
  const bool nf4 = how == NF4 || how == NF4_TO_BF16;
  const bool rounds = how == INT8_TO_BF16 || how == NF4_TO_BF16;
  float scale;
  if (how == OTHER) return;
  if (how == F32 || how == BF16 || how == F16) {
    const char *row = from->rows[c] + from->at, *later = from->later[c] + from->later_at;
    convert_plain(row, later, to + c * CHUNK, how);
    return;
  }
  const uint8_t *codes = quantized_block_of(&from->column, &from->codes[c], &scale, nf4, rounds);
  quantized_block_row(codes, scale, to + c * CHUNK, nf4, rounds);
}

static void rest_load(const char *row, int64_t depth, float *to, tsr_element type) {
  uint16_t half[CHUNK];
  if (type == TSR_ELEMENT_F32) {
    memcpy(to, row, (size_t)depth * sizeof *to);
    return;
  }
  memcpy(half, row, (size_t)depth * sizeof *half);
  for (int64_t i = 0; i < depth; i++)
    to[i] = type == TSR_ELEMENT_F16 ? fp16_value(half[i])
                                    : bits_float((int32_t)((uint32_t)half[i] << 16));
}

/* One that is not whole, or of a kind that is not converted row by row. */
static void chunk_load(const part *s, const tile *t, int64_t k, int64_t depth, float *to) {
  const tsr_matrix *w = &s->p->w;
  const tsr_quantized *q = &w->quantized;
  for (int c = 0; c < TILE; c++, to += CHUNK) {
    if (w->type != TSR_ELEMENT_CODES) {
      rest_load(t->w[c] + k * tsr_element_bytes(w->type), depth, to, w->type);
      continue;
    }
    int64_t first = t->codes[c].row * q->layout.cols + w->first % q->layout.cols;
    LEVEL(quantized_to_f32)(to, q, first + k, depth);
  }
}

/* ---- a chunk times rows of x ---- */

static inline __attribute__((always_inline)) void
add_element(const float *w, const float *x, vector *sums, const int columns, const int vectors) {
  vector rows[2];
  _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) rows[v] = lanes_load(x, v);
  _Pragma("GCC unroll 16") for (int c = 0; c < columns; c++) {
    vector each = vector_all(w[c * CHUNK]);
    _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) sums[c * vectors + v] =
        vector_fused(each, rows[v], sums[c * vectors + v]);
  }
}

/* What a call multiplies, and what it converts meanwhile; next NULL: nothing. */
typedef struct {
  const float *w, *x;
  int64_t x_stride, depth;
  vector *sums; /* of a column `sums_stride` apart */
  int64_t sums_stride;
  const source *next;
  float *converted;
} group;

static inline __attribute__((always_inline)) void
add_group(const group *s, int first, const int columns, const int vectors, const conversion how) {
  enum { STEPS_MAX = 16 };
  const int steps = columns > STEPS_MAX / 2 ? STEPS_MAX : STEPS_MAX / 2, each = CHUNK / steps;
  const bool pairs = how == BF16 || how == NF4 || how == NF4_TO_BF16;
  const float *w = s->w + first * CHUNK, *x = s->x;
  const int64_t x_stride = s->x_stride;
  const source *next = s->next;
  vector sums[16];
  _Pragma("GCC unroll 16") for (int c = 0; c < columns; c++)
      _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) sums[c * vectors + v] =
          s->sums[(first + c) * s->sums_stride + v];
  for (int step = 0; step < steps && how != OTHER; step++) {
    int k = step * each;
    const float *even = w + (pairs ? k / (2 * WIDTH) * (2 * WIDTH) + k % (2 * WIDTH) / 2 : k);
    if (next && step < columns) convert_row(next, first + step, s->converted, how);
    for (int i = 0; i < each / 2; i++, even += pairs ? 1 : 2, x += 2 * x_stride) {
      add_element(even, x, sums, columns, vectors);
      add_element(even + (pairs ? WIDTH : 1), x + x_stride, sums, columns, vectors);
    }
  }
  for (int64_t k = 0; k < s->depth && how == OTHER; k++, x += x_stride)
    add_element(w + k, x, sums, columns, vectors);
  _Pragma("GCC unroll 16") for (int c = 0; c < columns; c++)
      _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)
          s->sums[(first + c) * s->sums_stride + v] = sums[c * vectors + v];
}

static inline __attribute__((always_inline)) void
add_chunk(group s, int64_t vectors, const conversion how) {
  for (; vectors >= 2; vectors -= 2, s.x += 2 * WIDTH, s.sums += 2, s.next = NULL)
    for (int c = 0; c < TILE; c += GROUP_OF_TWO) add_group(&s, c, GROUP_OF_TWO, 2, how);
  for (int c = 0; vectors && c < TILE; c += GROUP_OF_ONE) add_group(&s, c, GROUP_OF_ONE, 1, how);
}

static void add_chunk_of(const group *s, int64_t vectors, conversion of) {
  if (of == F32) add_chunk(*s, vectors, F32);
  else if (of == BF16) add_chunk(*s, vectors, BF16);
  else if (of == F16) add_chunk(*s, vectors, F16);
  else if (of == INT8) add_chunk(*s, vectors, INT8);
  else if (of == INT8_TO_BF16) add_chunk(*s, vectors, INT8_TO_BF16);
  else if (of == NF4) add_chunk(*s, vectors, NF4);
  else if (of == NF4_TO_BF16) add_chunk(*s, vectors, NF4_TO_BF16);
  else add_chunk(*s, vectors, OTHER);
}

static void convert_rows(const source *from, float *to, conversion of) {
  for (int c = 0; c < TILE; c++) {
    if (of == F32) convert_row(from, c, to, F32);
    else if (of == BF16) convert_row(from, c, to, BF16);
    else if (of == F16) convert_row(from, c, to, F16);
    else if (of == INT8) convert_row(from, c, to, INT8);
    else if (of == INT8_TO_BF16) convert_row(from, c, to, INT8_TO_BF16);
    else if (of == NF4) convert_row(from, c, to, NF4);
    else convert_row(from, c, to, NF4_TO_BF16);
  }
}

/* ---- tiles ---- */

static tile tile_at(const part *s, int64_t n, int64_t end) {
  const tsr_matrix *w = &s->p->w;
  tile t = {.n = n, .columns = least(end - n, TILE)};
  for (int c = 0; c < TILE; c++) {
    int64_t row = n + (c < t.columns ? c : 0);
    if (w->type == TSR_ELEMENT_CODES)
      t.codes[c] = quantized_row_at(&w->quantized, w->first / w->quantized.layout.cols + row);
    else t.w[c] = tsr_element_at(w->data, w->type, w->first + row * w->cs);
  }
  return t;
}

typedef vector tile_sums[TILE * SKINNY_ROWS_MAX / WIDTH];

/* What the parts before left in y. */
static void sums_load(const part *s, const tile *t, const float *y, vector *all) {
  float *to = (float *)all;
  for (int64_t c = 0; c < t->columns; c++)
    for (int64_t r = 0; r < s->rows; r++)
      to[c * s->vectors * WIDTH + r] = y[r * s->p->y_stride + t->n + c];
}

/* Columns [first, first + WIDTH) of y's rows [row, row + WIDTH), as far as there are any. */
static void square_store(
    const part *s, const tile *t, float *y, const vector *all, const float *bias, int first,
    int64_t row) {
  vector square[WIDTH];
  int64_t wide = least(t->columns - first, WIDTH), rows = least(s->rows - row, WIDTH);
  for (int c = 0; c < WIDTH; c++)
    square[c] = first + c < TILE ? all[(first + c) * s->vectors + row / WIDTH] : (vector){0};
  transpose_square(square);
  for (int64_t r = 0; r < rows; r++) {
    float *to = y + (row + r) * s->p->y_stride + t->n + first;
    if (bias) square[r] += wide == WIDTH ? lanes_load(bias, 0) : vector_part(bias, wide);
    if (wide == WIDTH) vector_store(to, square[r]);
    else
      for (int64_t c = 0; c < wide; c++) to[c] = square[r][c];
  }
}

static void sums_store(const part *s, const tile *t, float *y, const vector *all) {
  bool is_complete = s->k + s->depth == s->p->K;
  const float *bias = is_complete && s->p->bias ? s->p->bias + t->n : NULL;
  for (int64_t row = 0; row < s->rows; row += WIDTH)
    for (int c = 0; c < t->columns; c += WIDTH)
      square_store(s, t, y, all, bias ? bias + c : NULL, c, row);
}

/* The chain of gemm: sums of DEPTH products, added to one another. */
static void complete(const part *s, vector *all, vector *sums, bool first) {
  for (int64_t i = 0; i < TILE * s->vectors; i++) {
    all[i] = first ? sums[i] : all[i] + sums[i];
    sums[i] = (vector){0};
  }
}

/* Two chunks that take turns; which one has the chunk that is next. */
typedef struct {
  chunk w[2];
  int now;
  bool is_ready;
} chunks;

/* Whether there is a chunk from k on that is converted while another is multiplied. */
static bool is_steady(const part *s, int64_t k) {
  return s->how != OTHER && s->k + s->depth - k >= CHUNK;
}

static void tile_run(const part *s, const tile *t, const tile *next, float *y, chunks *w) {
  tile_sums all = {{0}}, sums;
  memset(sums, 0, sizeof *sums * (size_t)(TILE * s->vectors));
  if (s->k) sums_load(s, t, y, all);
  int64_t until = s->k + s->depth;
  for (int64_t k = s->k; k < until; k += CHUNK) {
    int64_t depth = least(until - k, CHUNK), end = k + depth;
    const tile *later = end < until ? t : next;
    int64_t later_k = end < until ? end : s->k;
    source from;
    float *numbers = w->w[w->now];
    conversion of = w->is_ready || is_steady(s, k) ? s->how : OTHER;
    if (of == OTHER) chunk_load(s, t, k, depth, numbers);
    else if (!w->is_ready) from = source_of(s, t, next, k), convert_rows(&from, numbers, of);
    group g = {
        .w = numbers,
        .x = s->x + (k - s->k) * s->vectors * WIDTH,
        .x_stride = s->vectors * WIDTH,
        .depth = depth,
        .sums = sums,
        .sums_stride = s->vectors,
        .converted = w->w[1 - w->now]};
    w->is_ready = of != OTHER && later && is_steady(s, later_k);
    if (w->is_ready) from = source_of(s, later, next, later_k), g.next = &from;
    add_chunk_of(&g, s->vectors, of);
    w->now = 1 - w->now;
    if (end % DEPTH == 0 || end == s->p->K) complete(s, all, sums, k < DEPTH);
  }
  sums_store(s, t, y, all);
}

/* to (depth, vectors * WIDTH); rows behind the last are zeros. */
static void transpose_x(const part *s, const float *x, float *to) {
  int64_t stride = s->vectors * WIDTH;
  for (int64_t r = 0; r < stride; r += WIDTH)
    for (int64_t k = 0; k < s->depth; k += WIDTH) {
      int64_t wide = least(s->depth - k, WIDTH);
      vector square[WIDTH];
      for (int i = 0; i < WIDTH; i++) {
        const float *row = x + (r + i) * s->p->x_stride + s->k + k;
        square[i] = r + i >= s->rows ? (vector){0}
                    : wide == WIDTH  ? lanes_load(row, 0)
                                     : vector_part(row, wide);
      }
      transpose_square(square);
      for (int64_t i = 0; i < wide; i++) vector_store(to + (k + i) * stride + r, square[i]);
    }
}

void LEVEL(skinny_gemm_lanes)(
    const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end) {
  part s = {
      .p = p,
      .rows = p->R,
      .vectors = (p->R + WIDTH - 1) / WIDTH,
      .x = transposed,
      .how = conversion_of(&p->w)};
  chunks w = {.now = 0};
  int64_t most = TRANSPOSED_FLOATS / (s.vectors * WIDTH) / DEPTH * DEPTH;
  for (s.k = 0; s.k < p->K; s.k += s.depth) {
    s.depth = least(p->K - s.k, most);
    transpose_x(&s, x, transposed);
    tile t = tile_at(&s, begin, end), next;
    w.is_ready = false;
    for (int64_t n = begin; n < end; n += TILE, t = next) {
      bool is_last = n + TILE >= end;
      if (!is_last) next = tile_at(&s, n + TILE, end);
      tile_run(&s, &t, is_last ? NULL : &next, y, &w);
    }
  }
}

#endif
