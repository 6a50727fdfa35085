// SPDX-License-Identifier: Apache-2.0
/* NF4: the levels are those of the papers, each element becomes the nearest level of its block, the
 * scales stay within half a level of what they were, and GEMMs give the bits that they have with the
 * decoded matrix. Numbers of bitsandbytes are compared in tests/reference. */
#include "kernel_check.h"

static void test_levels(void) {
  for (int i = 1; i < 16; i++) CHECK(tsr_nf4_levels[i] > tsr_nf4_levels[i - 1]);
  for (int i = 1; i < 256; i++) CHECK(tsr_nf4_scale_levels[i] > tsr_nf4_scale_levels[(i - 1)]);
  /* create_dynamic_map() of bitsandbytes 0.50 */
  static const struct {
    int code;
    float level;
  } some[] = {{0, -0.992968738f}, {1, -0.978906214f},    {126, -5.5e-7f},     {127, 0},
              {128, 5.5e-7f},     {129, 3.24999994e-6f}, {254, 0.992968738f}, {255, 1}};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    float level = tsr_nf4_scale_levels[some[i].code];
    CHECK_AT(
        fabsf(level - some[i].level) <= 1e-7f * fabsf(some[i].level), "level %d is %.9g, not %.9g",
        some[i].code, (double)level, (double)some[i].level);
  }
}

static void *quantized(const tsr_quantized_layout *l, const float *x) {
  void *bytes = check_alloc((size_t)tsr_quantized_bytes(l));
  tsr_quantize(l, bytes, x);
  return bytes;
}

static float *decoded(const tsr_kernels *k, const tsr_quantized *w) {
  int64_t n = w->layout.rows * w->layout.cols;
  float *x = check_alloc((size_t)n * sizeof *x);
  k->quantized_to_f32(x, w, 0, n);
  return x;
}

static double nearest_level(double x) {
  double best = 10;
  for (int i = 0; i < 16; i++)
    if (fabs(tsr_nf4_levels[i] - x) < fabs(best - x)) best = tsr_nf4_levels[i];
  return best;
}

/* In plain double: the scale of each block, and the nearest level of each element. A scale may be
 * off by half the distance of two of its levels, 0.7 % of the largest difference from the mean. */
static void check_values(const tsr_kernels *k, const tsr_quantized_layout *l, const float *x) {
  tsr_quantized w = {quantized(l, x), *l, TSR_ELEMENT_F32};
  float *got = decoded(k, &w);
  double most = 0;
  for (int64_t i = 0; i < l->rows * l->cols; i++) most = fmax(most, fabs((double)x[i]));
  for (int64_t b = 0; b < l->rows * l->cols; b += TSR_QUANTIZED_BLOCK) {
    double scale = 0;
    for (int64_t i = b; i < b + TSR_QUANTIZED_BLOCK; i++) scale = fmax(scale, fabs((double)x[i]));
    for (int64_t i = b; i < b + TSR_QUANTIZED_BLOCK; i++) {
      double want = scale > 0 ? nearest_level(x[i] / scale) * scale : 0;
      CHECK_AT(
          fabs(got[i] - want) <= 0.008 * most, "%s: element %lld is %.9g, not %.9g", k->isa,
          (long long)i, (double)got[i], want);
    }
  }
  free((void *)(uintptr_t)w.data), free(got);
}

/* The unit in the middle has the bytes that it has as a matrix of its own. */
/* Of INT8 each element is within half a step of what it was, and the largest of a block is itself. */
static void check_integers(const tsr_kernels *k, const tsr_quantized_layout *l, const float *x) {
  tsr_quantized w = {quantized(l, x), *l, TSR_ELEMENT_F32};
  float *got = decoded(k, &w);
  for (int64_t b = 0; b < l->rows * l->cols; b += TSR_QUANTIZED_BLOCK) {
    double most = 0;
    for (int64_t i = b; i < b + TSR_QUANTIZED_BLOCK; i++) most = fmax(most, fabs((double)x[i]));
    for (int64_t i = b; i < b + TSR_QUANTIZED_BLOCK; i++) {
      double step = most / 127, code = step > 0 ? (double)got[i] / step : 0;
      CHECK(fabs((double)got[i] - (double)x[i]) <= step * 0.50001);
      CHECK(fabs(code - nearbyint(code)) < 1e-4 && fabs(code) < 127.001);
    }
  }
  free((void *)(uintptr_t)w.data), free(got);
}

static void check_units(const tsr_quantized_layout *l, const float *x) {
  int64_t across = l->cols / l->unit_cols, units = l->rows / l->unit_rows * across, u = units / 2;
  tsr_quantized_layout one = {l->unit_rows, l->unit_cols, l->unit_rows, l->unit_cols, l->format};
  float *part = check_alloc((size_t)(one.rows * one.cols) * sizeof *part);
  for (int64_t r = 0; r < one.rows; r++)
    memcpy(
        part + r * one.cols,
        x + (u / across * l->unit_rows + r) * l->cols + u % across * l->unit_cols,
        (size_t)one.cols * sizeof *part);
  char *whole = quantized(l, x), *alone = quantized(&one, part);
  CHECK(
      !memcmp(whole + u * tsr_quantized_unit_bytes(l), alone, (size_t)tsr_quantized_unit_bytes(l)));
  free(part), free(whole), free(alone);
}

static void check_parts(const tsr_kernels *k, const tsr_quantized *w) {
  int64_t n = w->layout.rows * w->layout.cols;
  float *all = decoded(k, w);
  for (int i = 0; i < 50; i++) {
    int64_t first = (int64_t)(check_random() % (uint64_t)n);
    int64_t count = (int64_t)(check_random() % (uint64_t)(n - first));
    float *part = check_alloc((size_t)(count + 1) * sizeof *part);
    part[count] = 7;
    k->quantized_to_f32(part, w, first, count);
    CHECK(!memcmp(part, all + first, (size_t)count * sizeof *part) && part[count] == 7);
    free(part);
  }
  free(all);
}

static float *product(const tsr_kernels *k, tsr_gemm p) {
  float *packed, *c = check_alloc((size_t)(p.M * p.N) * sizeof *c);
  if (posix_memalign((void **)&packed, 64, (size_t)k->gemm_bytes(&p))) abort();
  p.c = c;
  p.c_stride = p.N;
  k->gemm_pack(&p, packed, 0, p.by_rows ? p.N : p.M);
  k->gemm(&p, packed, 0, p.by_rows ? p.M : p.N);
  free(packed);
  return c;
}

/* x w^T over a part of K, and x w, of either operand packed before. */
static void check_gemm(const tsr_kernels *k, const tsr_quantized *w) {
  int64_t N = w->layout.rows, K = w->layout.cols, M = 37, skipped = K / 4;
  float *plain = decoded(k, w), *x = input_new(M * (K > N ? K : N), 1);
  for (int which = 0; which < 4; which++) {
    bool turned = which & 1;
    tsr_gemm p = {.M = M, .by_rows = which & 2};
    p.N = turned ? N : K;
    p.K = turned ? K - skipped : N;
    p.a = (tsr_matrix){x, p.K, 1, TSR_ELEMENT_F32};
    p.b = (tsr_matrix){plain, turned ? 1 : K, turned ? K : 1, TSR_ELEMENT_F32};
    p.b.first = turned ? skipped : 0;
    p.b.bf16 = w->rounds == TSR_ELEMENT_BF16;
    float *want = product(k, p);
    p.b.quantized = *w;
    p.b.type = TSR_ELEMENT_CODES;
    float *got = product(k, p);
    CHECK_AT(
        !memcmp(got, want, (size_t)(p.M * p.N) * sizeof *got), "%s: product %d", k->isa, which);
    free(want), free(got);
  }
  free(plain), free(x);
}

/* Few rows have the bits of the product with the decoded matrix. */
static void check_skinny_gemm(const tsr_kernels *k, const tsr_quantized *w) {
  int64_t N = w->layout.rows, cols = w->layout.cols;
  static const int64_t rows[] = {1, 5, 8, 16, 19, 31};
  float *plain = decoded(k, w), *x = input_new(31 * cols, 1);
  for (int which = 0; which < 18; which++) {
    int64_t R = rows[which % 6], first = cols / 4 * (which / 6);
    tsr_skinny_gemm p = {R, cols - first, cols, N, NULL, {plain, 1, cols}};
    output want = output_new(R * N), got = output_new(R * N);
    p.w.first = first;
    p.w.bf16 = w->rounds == TSR_ELEMENT_BF16;
    RUN(N, k->skinny_gemm(&p, want.pass[pass], x, begin, end));
    p.w.type = TSR_ELEMENT_CODES;
    p.w.quantized = *w;
    RUN(N, k->skinny_gemm(&p, got.pass[pass], x, begin, end));
    CHECK_OUTPUT(got, NULL, 0, 0);
    CHECK_AT(
        !memcmp(got.pass[0], want.pass[0], (size_t)(R * N) * sizeof *x), "%s: %d of (%d, %d)",
        k->isa, which, (int)N, (int)cols);
    output_free(&want), output_free(&got);
  }
  free(plain), free(x);
}

static void check_layout(const tsr_kernels *k, tsr_quantized_layout l) {
  float *x = input_new(l.rows * l.cols, 0.1f);
  for (int64_t i = 0; i < TSR_QUANTIZED_BLOCK; i++) x[i] = 0; /* a block of zeros */
  if (l.format == TSR_QUANTIZED_NF4) check_values(k, &l, x);
  else check_integers(k, &l, x);
  check_units(&l, x);
  for (int type = 0; type <= TSR_ELEMENT_F16; type++) {
    tsr_quantized w = {quantized(&l, x), l, (tsr_element)type};
    check_parts(k, &w);
    check_gemm(k, &w);
    check_skinny_gemm(k, &w);
    free((void *)(uintptr_t)w.data);
  }
  free(x);
}

static void test_layouts(const tsr_kernels *k) {
  check_layout(k, (tsr_quantized_layout){6, 128, 6, 128, TSR_QUANTIZED_INT8});
  check_layout(k, (tsr_quantized_layout){97, 320, 97, 320, TSR_QUANTIZED_INT8});
  check_layout(k, (tsr_quantized_layout){30, 384, 15, 192, TSR_QUANTIZED_INT8});
  check_layout(k, (tsr_quantized_layout){13, 4032, 13, 4032, TSR_QUANTIZED_INT8});
  check_layout(k, (tsr_quantized_layout){13, 4032, 13, 4032});
  check_layout(k, (tsr_quantized_layout){1, 64, 1, 64});
  check_layout(k, (tsr_quantized_layout){6, 128, 6, 128});
  check_layout(k, (tsr_quantized_layout){96, 320, 96, 320});
  check_layout(k, (tsr_quantized_layout){96, 320, 24, 320});
  check_layout(k, (tsr_quantized_layout){30, 384, 30, 128});
  check_layout(k, (tsr_quantized_layout){30, 384, 15, 192});
}

static void test_not_a_number(const tsr_kernels *k) {
  tsr_quantized_layout l = {16, 128, 8, 128};
  float *x = input_new(l.rows * l.cols, 1);
  x[9 * l.cols + 70] = NAN;
  tsr_quantized w = {quantized(&l, x), l, TSR_ELEMENT_F32};
  float *got = decoded(k, &w);
  for (int64_t i = 0; i < l.rows * l.cols; i++) CHECK(!isnan(got[i]) == (i < 8 * l.cols));
  free((void *)(uintptr_t)w.data), free(got), free(x);
}

/* A scale whose fraction is all ones, which would carry into the sign if it were rounded as a number
 * is: of the last block of INT8, or as the mean of NF4 of all blocks. */
static void test_rounded_not_a_number(const tsr_kernels *k) {
  static const tsr_quantized_format formats[] = {TSR_QUANTIZED_NF4, TSR_QUANTIZED_INT8};
  for (int f = 0; f < 2; f++) {
    tsr_quantized_layout l = {16, 128, 16, 128, formats[f]};
    float *x = input_new(l.rows * l.cols, 1);
    uint8_t *bytes = quantized(&l, x);
    uint32_t ones = 0x7FFFFFFF;
    memcpy(bytes + tsr_quantized_bytes(&l) - sizeof ones, &ones, sizeof ones);
    for (int type = 0; type <= TSR_ELEMENT_BF16; type++)
      check_skinny_gemm(k, &(tsr_quantized){bytes, l, (tsr_element)type});
    free(bytes), free(x);
  }
}

int main(void) {
  test_levels();
  each_level(test_layouts);
  each_level(test_not_a_number);
  each_level(test_rounded_not_a_number);
  return check_done("kernels.nf4");
}
