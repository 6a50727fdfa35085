// SPDX-License-Identifier: Apache-2.0
/* Every code of the narrow formats, and what lies at, between and beside two of them, against the
 * formats worked out in double: the same bits on every level. */
#include "half_check.h"

static const format FP16 = {2, 10, 15, 0x7C00}, E4M3 = {1, 3, 7, 0x7E};

static void narrow(
    const tsr_kernels *k, const format *f, void *out, const float *x, int64_t begin, int64_t end) {
  if (f == &BF16) k->f32_to_bf16(out, x, begin, end);
  if (f == &FP16) k->f32_to_fp16(out, x, begin, end);
  if (f == &E4M3) k->f32_to_e4m3(out, x, begin, end);
}

static void widen(
    const tsr_kernels *k, const format *f, float *out, const void *x, int64_t begin, int64_t end) {
  if (f == &BF16) k->bf16_to_f32(out, x, begin, end);
  if (f == &FP16) k->fp16_to_f32(out, x, begin, end);
  if (f == &E4M3) k->e4m3_to_f32(out, x, begin, end);
}

static uint32_t code_at(const void *codes, const format *f, int64_t i) {
  return f->bytes == 2 ? ((const uint16_t *)codes)[i] : ((const uint8_t *)codes)[i];
}

static uint32_t want_code(const format *f, float x) {
  if (!isnan(x)) return format_nearest(f, x);
  uint32_t bits = float_word(x), sign = bits >> 31;
  if (f == &E4M3) return 0x7F;
  if (f == &BF16) return bits >> 16 | 0x40;
  return sign << 15 | 0x7E00 | (bits >> 13 & 0x3FF);
}

/* ---- to a narrower type ---- */

enum { GUARD_BYTE = 0xA5 };

typedef struct {
  unsigned char *bytes[2]; /* of both passes, with GUARD bytes before and after */
  int64_t n;
} codes;

static codes codes_new(const format *f, int64_t n) {
  codes c = {.n = n * f->bytes};
  for (int p = 0; p < 2; p++) {
    c.bytes[p] = check_alloc((size_t)c.n + 2 * GUARD);
    memset(c.bytes[p], GUARD_BYTE, (size_t)c.n + 2 * GUARD);
    c.bytes[p] += GUARD;
  }
  return c;
}

static void codes_free(codes *c) {
  for (int p = 0; p < 2; p++) {
    for (int64_t i = -GUARD; i < 0; i++) CHECK_INT(c->bytes[p][i], GUARD_BYTE);
    for (int64_t i = 0; i < GUARD; i++) CHECK_INT(c->bytes[p][c->n + i], GUARD_BYTE);
    free(c->bytes[p] - GUARD);
  }
}

static void check_narrow(const tsr_kernels *k, const format *f, const float *x, int64_t n) {
  codes got = codes_new(f, n);
  RUN(n, narrow(k, f, got.bytes[pass], x, begin, end));
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t want = want_code(f, x[i]), one = code_at(got.bytes[0], f, i);
    uint32_t other = code_at(got.bytes[1], f, i);
    if ((want != one || want != other) && !wrong++)
      CHECK_AT(
          false, "%s, fraction of %d: %.9g (%08x) is %x and %x, not %x", k->isa, f->fraction, x[i],
          float_word(x[i]), one, other, want);
  }
  CHECK_INT(wrong, 0);
  codes_free(&got);
}

/* A number of the format, the middle between it and the next, and the nearest floats of both. */
static void check_between(const tsr_kernels *k, const format *f) {
  float *x = check_alloc(sizeof *x * 12 * f->top);
  int64_t n = 0;
  for (uint32_t code = 0; code < f->top; code++) {
    double value = format_value(f, code), next = format_value(f, code + 1);
    const float two[2] = {(float)value, (float)((value + next) / 2)};
    for (int i = 0; i < 2; i++)
      for (int sign = -1; sign <= 1; sign += 2) {
        x[n++] = (float)sign * two[i];
        x[n++] = (float)sign * nextafterf(two[i], INFINITY);
        x[n++] = (float)sign * nextafterf(two[i], -INFINITY);
      }
  }
  check_narrow(k, f, x, n);
  free(x);
}

static void check_random_bits(const tsr_kernels *k, const format *f) {
  enum { COUNT = 200000 };
  static float x[COUNT];
  for (int i = 0; i < COUNT; i++) {
    uint32_t bits = (uint32_t)(check_random() >> 32);
    if (i % 64 == 0) bits |= 0x7F800000; /* NaN */
    if (i % 2)                           /* near the format's own exponents */
      bits = (bits & 0x807FFFFFu) | (uint32_t)(127 - f->bias - 5 + i / 2 % (2 * f->bias + 8)) << 23;
    x[i] = word_float(bits);
  }
  check_narrow(k, f, x, COUNT);
}

static void check_specials(const tsr_kernels *k, const format *f) {
  static const uint32_t bits[] = {
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF,
      0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFF800001, 0x7FBFFFFF, 0x7FC00000,
      0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x477FEFFF, 0x477FF000, 0xC77FF000, 0x7F7F8000};
  float x[sizeof bits / sizeof *bits];
  memcpy(x, bits, sizeof bits);
  check_narrow(k, f, x, (int64_t)(sizeof bits / sizeof *bits));
}

/* ---- to f32 ---- */

static uint32_t want_word(const format *f, uint32_t code) {
  uint32_t sign = code >> (8 * f->bytes - 1), rest = code & ((1u << (8 * f->bytes - 1)) - 1);
  if (rest <= f->top && (rest < f->top || f == &E4M3))
    return sign << 31 | float_word((float)format_value(f, rest));
  if (f == &E4M3) return sign << 31 | 0x7FC00000;
  uint32_t fraction = (rest - f->top) << (23 - f->fraction);
  return sign << 31 | 0x7F800000 | fraction | (fraction ? 0x00400000 : 0);
}

static void check_widen(const tsr_kernels *k, const format *f) {
  int64_t n = 1 << (8 * f->bytes), wrong = 0;
  uint16_t *x16 = check_alloc((size_t)n * 2);
  uint8_t *x8 = check_alloc((size_t)n);
  for (int64_t i = 0; i < n; i++) x16[i] = (uint16_t)i, x8[i] = (uint8_t)i;
  output y = output_new(n);
  RUN(n, widen(k, f, y.pass[pass], f->bytes == 2 ? (void *)x16 : x8, begin, end));
  CHECK_OUTPUT(y, NULL, 0, 0);
  for (int64_t i = 0; i < n; i++)
    if (float_word(y.pass[0][i]) != want_word(f, (uint32_t)i) && !wrong++)
      CHECK_AT(
          false, "%s, fraction of %d: code %x is %08x, not %08x", k->isa, f->fraction, (unsigned)i,
          float_word(y.pass[0][i]), want_word(f, (uint32_t)i));
  CHECK_INT(wrong, 0);
  output_free(&y);
  free(x16), free(x8);
}

static void test_formats(const tsr_kernels *k) {
  const format *formats[] = {&BF16, &FP16, &E4M3};
  for (int i = 0; i < 3; i++) {
    check_between(k, formats[i]);
    check_random_bits(k, formats[i]);
    check_specials(k, formats[i]);
    check_widen(k, formats[i]);
  }
}

/* Worked out by hand. */
static void test_known(const tsr_kernels *k) {
  static const float x[] = {448,   464,    480,      1e9f,     INFINITY, -600, 1.1875f, 3.9f,
                            0.01f, 0.002f, 0x1p-10f, 0x3p-10f, NAN,      -NAN, -0.0f};
  static const uint8_t want[] = {0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x3A, 0x48,
                                 0x05, 0x01, 0x00, 0x02, 0x7F, 0x7F, 0x80};
  enum { COUNT = sizeof want };
  uint8_t got[COUNT];
  k->f32_to_e4m3(got, x, 0, COUNT);
  for (int i = 0; i < COUNT; i++) CHECK_INT(got[i], want[i]);
  static const float y[] = {1.00390625f, 1.01171875f, 3.4e38f,  65519.996f,
                            65520,       0x1p-24f,    0x1p-25f, 0x3p-26f};
  uint16_t bf16[8], fp16[8];
  k->f32_to_bf16(bf16, y, 0, 8);
  k->f32_to_fp16(fp16, y, 0, 8);
  CHECK_INT(bf16[0], 0x3F80);
  CHECK_INT(bf16[1], 0x3F82);
  CHECK_INT(bf16[2], 0x7F80);
  CHECK_INT(fp16[3], 0x7BFF);
  CHECK_INT(fp16[4], 0x7C00);
  CHECK_INT(fp16[5], 0x0001);
  CHECK_INT(fp16[6], 0x0000);
  CHECK_INT(fp16[7], 0x0001);
}

/* ---- stochastic rounding ---- */

static void check_slice(const tsr_kernels *k, const tsr_tensor_slice *slice, uint64_t key) {
  int64_t n = slice_size(slice), wrong = 0;
  float *x = input_new(n, 3);
  codes got = codes_new(&BF16, n);
  RUN(n, k->f32_to_bf16_stochastic((uint16_t *)got.bytes[pass], x, key, slice, begin, end));
  for (int64_t i = 0; i < n; i++) {
    uint32_t want = bf16_by_word(x[i], slice_word(slice, i, key));
    wrong += code_at(got.bytes[0], &BF16, i) != want || code_at(got.bytes[1], &BF16, i) != want;
  }
  CHECK_INT(wrong, 0);
  codes_free(&got);
  free(x);
}

static void test_slices(const tsr_kernels *k) {
  static const tsr_tensor_slice slices[] = {
      {1, {1}, {1}, {0}},
      {1, {1037}, {5000}, {3}},
      {1, {700}, {1LL << 40}, {(1LL << 35) - 301}},
      {2, {9, 1}, {9, 7}, {0, 5}},
      {2, {5, 300}, {10, 300}, {5, 0}},
      {2, {5, 130}, {5, 300}, {0, 130}},
      {3, {3, 4, 17}, {6, 4, 17}, {3, 0, 0}},
      {3, {3, 4, 17}, {6, 9, 17}, {1, 5, 0}},
      {5, {2, 3, 2, 5, 7}, {4, 3, 6, 5, 9}, {2, 0, 3, 0, 1}},
      {5, {2, 3, 2, 5, 7}, {2, 3, 6, 5, 7}, {0, 0, 3, 0, 0}}};
  for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
    check_slice(k, &slices[i], tsr_random_key(7, "slice", i));
}

/* A share of `up` / 65536 is rounded up, within 5 standard deviations. */
static void check_share(const tsr_kernels *k, float from, uint32_t up) {
  enum { COUNT = 1 << 16 };
  static float x[COUNT];
  static uint16_t got[COUNT];
  const tsr_tensor_slice slice = {1, {COUNT}, {COUNT}, {0}};
  uint32_t low = float_word(from) >> 16;
  int64_t count_up = 0, other = 0;
  k->fill(x, word_float(float_word(from) | up), 0, COUNT);
  k->f32_to_bf16_stochastic(got, x, tsr_random_key(3, "share", up), &slice, 0, COUNT);
  for (int i = 0; i < COUNT; i++) {
    count_up += got[i] == low + 1;
    other += got[i] != low && got[i] != low + 1;
  }
  CHECK_INT(other, 0);
  double share = up * 0x1p-16;
  CHECK(fabs((double)count_up - share * COUNT) <= 5 * sqrt(COUNT * share * (1 - share)));
}

static void test_stochastic(const tsr_kernels *k) {
  static const uint32_t ups[] = {0, 1, 0x1000, 0x4CCC, 0x8000, 0xFFFF};
  for (size_t i = 0; i < sizeof ups / sizeof *ups; i++) {
    check_share(k, 1, ups[i]);
    check_share(k, -0x1.FEp-90f, ups[i]); /* into the next exponent */
    check_share(k, 0x1.FEp127f, ups[i]);  /* and to infinity */
    check_share(k, 0x1p-133f, ups[i]);
    check_share(k, 0, ups[i]);
  }
  static const uint32_t words[] = {0x7F800000, 0xFF800000, 0x7F800001, 0xFF80FFFF, 0x7FFFFFFF};
  static const uint16_t want[] = {0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7FFF};
  for (int i = 0; i < 5; i++) {
    float x[500];
    uint16_t got[500];
    const tsr_tensor_slice slice = {1, {500}, {500}, {0}};
    for (int j = 0; j < 500; j++) memcpy(&x[j], &words[i], sizeof *x);
    k->f32_to_bf16_stochastic(got, x, 5, &slice, 0, 500);
    for (int j = 0; j < 500; j++) CHECK_INT(got[j], want[i]);
  }
}

int main(void) {
  each_level(test_formats);
  each_level(test_known);
  each_level(test_slices);
  each_level(test_stochastic);
  return check_done("kernels.convert");
}
