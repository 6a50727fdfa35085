// SPDX-License-Identifier: Apache-2.0
/* Blockwise FP8: codes and scales of every bf16 number, against the formats worked out in double and
 * against PyTorch's casts (scripts/make_fp8_casts); blocks in units of odd sizes; the GEMM of codes
 * against exact sums, within the bound of base/fp8_layout.h. All of it has the same bits on every
 * level and for every split. */
#include "base/sha256.h"
#include "half_check.h"
#include <stdio.h>

/* Saturating: `top` is the largest finite number. */
static const format FORMATS[] = {{1, 3, 7, 0x7E}, {1, 2, 15, 0x7B}};
enum { BLOCK = TSR_FP8_BLOCK };

/* ---- the definition ---- */

static float want_scale(const tsr_fp8_layout *l, double amax) {
  if (!isfinite(amax)) return NAN;
  float scale = (float)amax / tsr_fp8_largest(l->format);
  if (!(scale > 0x1p-126f)) return 0x1p-126f;
  int exponent;
  float digits = frexpf(scale, &exponent);
  return l->power_of_two ? ldexpf(digits == 0.5f ? 0.5f : 1, exponent) : scale;
}

static double code_value(tsr_fp8_format f, uint8_t code) {
  if ((code & 0x7F) > FORMATS[f].top) return NAN;
  double x = format_value(&FORMATS[f], code & 0x7F);
  return code & 0x80 ? -x : x;
}

/* The block of an index in a dimension of units. */
static int64_t block_of(int64_t i, int64_t unit, int64_t block) {
  return i / unit * ((unit + block - 1) / block) + i % unit / block;
}

static int64_t scale_index(const tsr_fp8_layout *l, int64_t row, int64_t col) {
  return block_of(row, l->unit_rows, l->block_rows) * tsr_fp8_scale_cols(l) +
         block_of(col, l->unit_cols, l->block_cols);
}

typedef struct {
  uint8_t *codes;
  float *scales;
} quantized;

static quantized quantized_new(const tsr_fp8_layout *l) {
  quantized q = {
      check_alloc((size_t)(l->rows * l->cols)),
      check_alloc((size_t)tsr_fp8_scales(l) * sizeof(float))};
  memset(q.codes, 0xA5, (size_t)(l->rows * l->cols));
  memset(q.scales, 0xA5, (size_t)tsr_fp8_scales(l) * sizeof(float));
  return q;
}
static void quantized_free(quantized *q) { free(q->codes), free(q->scales); }

static quantized want_quantized(const tsr_fp8_layout *l, const float *x) {
  quantized q = quantized_new(l);
  double *amax = reference_new(tsr_fp8_scales(l));
  for (int64_t i = 0; i < l->rows * l->cols; i++) {
    double *m = &amax[scale_index(l, i / l->cols, i % l->cols)];
    if (isnan(x[i]) || fabs((double)x[i]) > *m) *m = isnan(*m) ? *m : fabs((double)x[i]);
  }
  for (int64_t i = 0; i < tsr_fp8_scales(l); i++) q.scales[i] = want_scale(l, amax[i]);
  for (int64_t i = 0; i < l->rows * l->cols; i++) {
    float y = x[i] / q.scales[scale_index(l, i / l->cols, i % l->cols)];
    q.codes[i] = isnan(y) ? 0x7F : (uint8_t)format_nearest(&FORMATS[l->format], y);
  }
  free(amax);
  return q;
}

/* ---- quantised ---- */

static void
check_same(const tsr_kernels *k, const tsr_fp8_layout *l, quantized got, quantized want) {
  int64_t codes = 0, scales = 0;
  for (int64_t i = 0; i < tsr_fp8_scales(l); i++)
    scales += isnan(want.scales[i]) ? !isnan(got.scales[i])
                                    : float_word(got.scales[i]) != float_word(want.scales[i]);
  for (int64_t i = 0; i < l->rows * l->cols; i++) codes += got.codes[i] != want.codes[i];
  CHECK_AT(
      !codes && !scales, "%s: (%lld, %lld) in blocks of %d x %d: %lld codes and %lld scales differ",
      k->isa, (long long)l->rows, (long long)l->cols, l->block_rows, l->block_cols,
      (long long)codes, (long long)scales);
}

/* x has numbers of bf16, which is how half of the calls read it. */
static void check_quantize(const tsr_kernels *k, const tsr_fp8_layout *l, const float *x) {
  int64_t n = l->rows * l->cols, tiles = tsr_fp8_tiles(l);
  uint16_t *half = check_alloc((size_t)n * sizeof *half);
  k->f32_to_bf16(half, x, 0, n);
  quantized want = want_quantized(l, x);
  for (int bf16 = 0; bf16 < 2; bf16++) {
    quantized got = quantized_new(l);
    int64_t split = (int64_t)(check_random() % (uint64_t)(tiles + 1));
    const void *from = bf16 ? (const void *)half : x;
    tsr_element type = bf16 ? TSR_ELEMENT_BF16 : TSR_ELEMENT_F32;
    k->fp8_quantize(l, got.codes, got.scales, from, type, split, tiles);
    k->fp8_quantize(l, got.codes, got.scales, from, type, 0, split);
    check_same(k, l, got, want);
    quantized_free(&got);
  }
  quantized_free(&want);
  free(half);
}

/* All bf16 numbers up to a magnitude, each in a row of a block that begins with that. */
static int64_t rows_up_to(float amax, float *x) {
  int64_t n = 0;
  for (uint32_t bits = 0; bits < 1 << 16; bits++) {
    float y = bf16_float((uint16_t)bits);
    if (!(fabsf(y) <= amax)) continue;
    if (n % BLOCK == 0) x[n++] = amax;
    x[n++] = y;
  }
  while (n % BLOCK) x[n++] = 0;
  return n / BLOCK;
}

static void test_exhaustive(const tsr_kernels *k) {
  static const float largest[] = {1, 448,      460,       3.140625f, 57344,
                                  0, 0x1p-20f, 0x1p-117f, 0x1p-133f, INFINITY};
  float *x = check_alloc(sizeof *x * (1 << 17));
  for (int i = 0; i < (int)(sizeof largest / sizeof *largest); i++)
    for (int how = 0; how < 4; how++) {
      int64_t rows = rows_up_to(largest[i], x);
      tsr_fp8_layout l = {rows, BLOCK, rows, BLOCK, 1, BLOCK, how & 1, how & 2};
      check_quantize(k, &l, x);
    }
  free(x);
}

/* ---- PyTorch ---- */

static void check_cast(const tsr_kernels *k, tsr_sha256 *sha, const char *line) {
  char name[8], kind[16], want[TSR_SHA256_TEXT_BYTES], got[TSR_SHA256_TEXT_BYTES];
  unsigned amax, scale;
  int words = sscanf(line, "%7s %15s %x %x %64s", name, kind, &amax, &scale, want);
  CHECK_INT(words, 5);
  if (words != 5) return;
  float *x = check_alloc(sizeof *x * (1 << 17));
  int64_t rows = rows_up_to(bf16_float((uint16_t)amax), x);
  tsr_fp8_layout l = {rows, BLOCK, rows, BLOCK, 1, BLOCK, .format = !strcmp(name, "e5m2")};
  l.power_of_two = !strcmp(kind, "power_of_two");
  quantized q = quantized_new(&l);
  k->fp8_quantize(&l, q.codes, q.scales, x, TSR_ELEMENT_F32, 0, tsr_fp8_tiles(&l));
  int64_t wrong = 0, numbers = 0, n = 0;
  for (int64_t i = 0; i < rows; i++) wrong += float_word(q.scales[i]) != scale;
  for (uint32_t bits = 0; bits < 1 << 16; bits++)
    numbers += fabsf(bf16_float((uint16_t)bits)) <= bf16_float((uint16_t)amax);
  for (int64_t i = 0; n < numbers; i++)
    if (i % BLOCK) q.codes[n++] = q.codes[i];
  tsr_sha256_update(sha, q.codes, (size_t)numbers);
  tsr_sha256_final(sha, got);
  CHECK_INT(wrong, 0);
  CHECK_STR(got, want);
  quantized_free(&q), free(x);
}

static void test_casts(const tsr_kernels *k) {
  tsr_arena *arena = tsr_arena_new();
  char line[128];
  int lines = 0;
  FILE *f = fopen("tests/kernels/data/fp8_casts.txt", "r");
  for (; f && fgets(line, sizeof line, f); lines++) check_cast(k, tsr_sha256_new(arena), line);
  if (f) fclose(f);
  CHECK_INT(lines, 48);
  tsr_arena_free(arena);
}

/* ---- shapes of blocks and units ---- */

static void round_all(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = bf16_float(bf16_of(x[i]));
}

/* With magnitudes that differ from block to block, and (odd calls) a NaN and an infinity. */
static float *numbers_new(int64_t n, bool special) {
  float *x = input_new(n, 1);
  for (int64_t i = 0; i < n; i++) x[i] = ldexpf(x[i], (int)(i / 37 % 23) - 11);
  round_all(x, n);
  if (special && n > 5) x[n / 2] = NAN, x[n / 3] = -INFINITY;
  return x;
}

static void test_blocks(const tsr_kernels *k) {
  static const int64_t shapes[][4] = {
      {1, 1, 1, 1},         {3, 130, 3, 130},   {256, 256, 256, 256}, {130, 7, 65, 7},
      {400, 300, 200, 150}, {384, 96, 192, 48}, {129, 257, 129, 257}, {48, 640, 16, 160}};
  static const int blocks[][2] = {{1, BLOCK}, {BLOCK, 1}, {BLOCK, BLOCK}};
  int call = 0;
  for (int i = 0; i < 8; i++)
    for (int b = 0; b < 3; b++, call++) {
      const int64_t *s = shapes[i];
      tsr_fp8_layout l = {s[0],         s[1],         s[2],         s[3],
                          blocks[b][0], blocks[b][1], call / 2 % 2, call / 4 % 2 > 0};
      float *x = numbers_new(l.rows * l.cols, call % 2);
      check_quantize(k, &l, x);
      free(x);
    }
}

static void test_values(const tsr_kernels *k) {
  uint8_t codes[256];
  float x[256];
  for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
  k->e5m2_to_f32(x, codes, 0, 256);
  for (int i = 0; i < 256; i++) {
    uint8_t rest = i & 0x7F;
    float want = rest > 0x7C    ? NAN
                 : rest == 0x7C ? INFINITY
                                : (float)code_value(TSR_FP8_E5M2, rest);
    if (i & 0x80) want = -want;
    CHECK(isnan(want) ? isnan(x[i]) : float_word(x[i]) == float_word(want));
  }
}

/* ---- the GEMM of codes ---- */

/* An operand with K along its rows or its columns, of one scale a block of neighbours in K, or of a
 * square. */
typedef struct {
  tsr_fp8_layout layout;
  quantized q;
  bool k_is_cols;
} operand;

static operand operand_new(const tsr_kernels *k, int64_t lanes, int64_t K, int how, bool special) {
  operand o = {.k_is_cols = how & 1};
  bool square = how & 2;
  int64_t unit = lanes % 3 ? lanes : lanes / 3;
  o.layout = o.k_is_cols ? (tsr_fp8_layout){lanes, K, unit, K, square ? BLOCK : 1, BLOCK}
                         : (tsr_fp8_layout){K, lanes, K, unit, BLOCK, square ? BLOCK : 1};
  o.layout.format = how & 4 ? TSR_FP8_E5M2 : TSR_FP8_E4M3;
  float *x = numbers_new(lanes * K, special);
  o.q = quantized_new(&o.layout);
  k->fp8_quantize(
      &o.layout, o.q.codes, o.q.scales, x, TSR_ELEMENT_F32, 0, tsr_fp8_tiles(&o.layout));
  free(x);
  return o;
}

static double operand_value(const operand *o, int64_t lane, int64_t n) {
  int64_t row = o->k_is_cols ? lane : n, col = o->k_is_cols ? n : lane;
  double scale = o->q.scales[scale_index(&o->layout, row, col)];
  return code_value(o->layout.format, o->q.codes[row * o->layout.cols + col]) * scale;
}

static tsr_matrix matrix_of(const operand *o, bool is_a) {
  const tsr_fp8_layout *l = &o->layout;
  bool neighbours = o->k_is_cols == is_a; /* of a row of the GEMM's matrix */
  tsr_matrix m = {
      .data = o->q.codes, .rs = neighbours ? l->cols : 1, .cs = neighbours ? 1 : l->cols};
  m.type = l->format == TSR_FP8_E5M2 ? TSR_ELEMENT_E5M2 : TSR_ELEMENT_E4M3;
  int64_t across = tsr_fp8_scale_cols(l);
  m.scales =
      (tsr_fp8_operand_scales){o->q.scales, o->k_is_cols ? 1 : across, o->k_is_cols ? across : 1};
  if (l->block_rows == l->block_cols)
    m.scales.lane_unit = o->k_is_cols ? l->unit_rows : l->unit_cols;
  return m;
}

static void *aligned(int64_t bytes) {
  void *memory;
  if (posix_memalign(&memory, 64, (size_t)bytes)) abort();
  return memory;
}

/* In two parts, packed in two parts. */
static float *multiplied(const tsr_kernels *k, tsr_gemm p, const float *start) {
  int64_t n = p.by_rows ? p.M : p.N, strip = p.by_rows ? TSR_GEMM_ROWS : TSR_GEMM_COLUMNS;
  int64_t other = p.by_rows ? p.N : p.M, packs = p.by_rows ? TSR_GEMM_COLUMNS : TSR_GEMM_ROWS;
  int64_t half = n / strip / 2 * strip, pack = other / packs / 2 * packs;
  float *packed = aligned(k->gemm_bytes(&p));
  p.c = check_alloc((size_t)(p.M * p.N) * sizeof *p.c);
  memcpy(p.c, start, (size_t)(p.M * p.N) * sizeof *p.c);
  k->gemm_pack(&p, packed, pack, other);
  k->gemm_pack(&p, packed, 0, pack);
  k->gemm(&p, packed, half, n);
  k->gemm(&p, packed, 0, half);
  free(packed);
  return p.c;
}

static void check_bound(
    const tsr_kernels *k, const tsr_gemm *p, const operand *a, const operand *b, const float *start,
    const float *got) {
  double blocks = (double)((p->K + BLOCK - 1) / BLOCK), unit = (BLOCK + 3 + blocks) * 0x1p-24;
  int64_t wrong = 0;
  for (int64_t i = 0; i < p->M; i++)
    for (int64_t j = 0; j < p->N; j++) {
      double sum = p->adds ? (double)start[i * p->N + j] : 0, sizes = fabs(sum);
      for (int64_t n = 0; n < p->K; n++) {
        double x = operand_value(a, i, n) * operand_value(b, j, n);
        sum += x, sizes += fabs(x);
      }
      double y = got[i * p->N + j];
      wrong += isnan(sum) ? !isnan(y) : !(fabs(y - sum) <= unit * sizes);
    }
  CHECK_AT(
      !wrong, "%s: (%lld, %lld, %lld): %lld elements are beyond the bound", k->isa, (long long)p->M,
      (long long)p->N, (long long)p->K, (long long)wrong);
}

/* By rows or by columns, and on every level: the same bits. */
static void
check_gemm(const tsr_kernels *k, const int64_t *size, int how_a, int how_b, bool special) {
  int64_t M = size[0], N = size[1], K = size[2];
  operand a = operand_new(k, M, K, how_a, special), b = operand_new(k, N, K, how_b, false);
  float *start = input_new(M * N, 1);
  tsr_gemm p = {M, N, K, matrix_of(&a, true), matrix_of(&b, false), .c_stride = N};
  p.adds = how_a & 1, p.scaled = true;
  float *columns = multiplied(k, p, start);
  check_bound(k, &p, &a, &b, start, columns);
  p.by_rows = true;
  for (const char *const *level = tsr_kernels_levels(); *level; level++) {
    const tsr_kernels *other = tsr_kernels_get(*level);
    if (!other) continue;
    float *rows = multiplied(other, p, start);
    int64_t wrong = 0;
    for (int64_t i = 0; i < M * N; i++)
      wrong += isnan(rows[i]) ? !isnan(columns[i]) : float_word(rows[i]) != float_word(columns[i]);
    CHECK_AT(!wrong, "%s and %s: %lld elements differ", k->isa, *level, (long long)wrong);
    free(rows);
  }
  quantized_free(&a.q), quantized_free(&b.q);
  free(start), free(columns);
}

static void test_gemm(const tsr_kernels *k) {
  static const int64_t sizes[][3] = {{1, 1, 1},      {5, 33, 130},   {13, 31, 128}, {40, 65, 700},
                                     {192, 48, 257}, {150, 258, 64}, {7, 300, 385}};
  for (int i = 0; i < 7; i++)
    for (int how = 0; how < 8; how++) check_gemm(k, sizes[i], how, (how * 3 + i) % 8, i == 3);
}

int main(void) {
  each_level(test_exhaustive);
  each_level(test_casts);
  each_level(test_blocks);
  each_level(test_values);
  each_level(test_gemm);
  return check_done("kernels.fp8");
}
