// SPDX-License-Identifier: Apache-2.0
/* GEMMs of two bf16 operands at the levels that have an instruction for them: the bits of the
 * instruction's pseudo code in the Intel SDM, element by element; for every split, layout and type
 * of storage, with few rows, with denormals, infinities and NaN. A machine without the instructions
 * runs the same GEMM compiled with their emulation (kernels/cpu/dot_emulated.h). */
#include "kernel_check.h"
#include <float.h>
#include <math.h>

static const tsr_kernels *k;
static bool pairs_in_turn; /* vdpbf16ps */

/* ---- reference ---- */

static float flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

/* Rounded once, to 24 bits; a result that is then below FLT_MIN is 0. The exact sum of a product,
 * of 16 bits, and c is a long double's where their exponents are near. */
static float fused(float a, float b, float c) {
  float x = flush(a), y = flush(b), z = flush(c), sum = fmaf(x, y, z);
  long double exact = (long double)x * y + z;
  if (fabsf(sum) == FLT_MIN && fabsl(exact) < FLT_MIN * (1 - 0x1p-25L)) return copysignf(0, sum);
  return flush(sum);
}

/* Numbers of a matrix by strides, as f32. */
typedef struct {
  const float *x;
  int64_t rs, cs;
} numbers;

static float at(numbers m, int64_t i, int64_t j) { return m.x[i * m.rs + j * m.cs]; }

/* A block's sum for element (i, j): filled up with zeros to 32 of K. */
static float block_sum(numbers a, numbers b, int64_t i, int64_t j, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t first = begin; first < end; first += 32) {
    float halves[2] = {0, 0};
    for (int64_t pair = first; pair < first + 32; pair += 2)
      for (int half = pairs_in_turn; half >= 0 && half < 2; half += pairs_in_turn ? -1 : 1) {
        int64_t n = pair + half;
        float x = n < end ? at(a, i, n) : 0, y = n < end ? at(b, n, j) : 0;
        float *to = pairs_in_turn ? &sum : &halves[half];
        *to = fused(x, y, *to);
      }
    if (!pairs_in_turn) sum = flush(flush(sum) + flush(halves[0] + halves[1]));
  }
  return sum;
}

static float element(const tsr_gemm *p, numbers a, numbers b, int64_t i, int64_t j, float c) {
  float sum = c;
  for (int64_t n = 0; n < p->K; n += TSR_GEMM_DEPTH) {
    int64_t end = n + TSR_GEMM_DEPTH < p->K ? n + TSR_GEMM_DEPTH : p->K;
    float block = block_sum(a, b, i, j, n, end);
    sum = n || p->adds ? sum + block : block;
  }
  return p->bias ? sum + p->bias[j] : sum;
}

/* ---- operands ---- */

typedef enum { USUAL, TINY, SPECIAL, ANY, KINDS } range;

static uint16_t draw_bf16(range of) {
  static const uint16_t specials[] = {0,      0x8000, 0x3F80, 0xBF80, 0x0001, 0x8001,
                                      0x007F, 0x0080, 0x8080, 0x7F7F, 0xFF7F, 0x7F80,
                                      0xFF80, 0x7FC0, 0x3F81, 0x2000};
  uint64_t bits = check_random();
  if (of == ANY) return (uint16_t)bits;
  if (of == SPECIAL && bits >> 60 == 0) return specials[bits % 16];
  if (of == TINY) return (uint16_t)((bits & 0x807F) | (60 + (bits >> 20) % 8) << 7);
  return (uint16_t)((bits & 0x807F) | (122 + (bits >> 20) % 6) << 7);
}

static float widened(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/* One matrix in bf16 and in f32. */
typedef struct {
  uint16_t *half;
  float *wide;
} values;

static values values_new(int64_t n, range of) {
  values v = {check_alloc((size_t)n * sizeof *v.half), check_alloc((size_t)n * sizeof *v.wide)};
  for (int64_t i = 0; i < n; i++) v.half[i] = draw_bf16(of), v.wide[i] = widened(v.half[i]);
  return v;
}
static void values_free(values v) { free(v.half), free(v.wide); }

/* f32 numbers that round to those of bf16. */
static void add_remainders(float *wide, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &wide[i], sizeof bits);
    bits += (uint32_t)check_random() & 0x7FFF;
    if (isfinite(wide[i])) memcpy(&wide[i], &bits, sizeof bits);
  }
}

/* As bf16, or as f32 with the numbers of bf16. */
static tsr_matrix matrix_of(values v, bool turned, int64_t rows, int64_t cols, bool wide) {
  tsr_matrix m = {.data = v.half, .rs = cols, .cs = 1, .type = TSR_ELEMENT_BF16};
  if (turned) m.rs = 1, m.cs = rows;
  if (wide) m.data = v.wide, m.type = TSR_ELEMENT_F32, m.bf16 = true;
  return m;
}

/* ---- checks ---- */

static int64_t strip_of(bool rows) { return rows ? TSR_GEMM_ROWS : TSR_GEMM_COLUMNS; }
static int64_t strips(int64_t n, bool rows) { return (n + strip_of(rows) - 1) / strip_of(rows); }

/* Packed in two parts, the later one first, into no more memory than is needed. */
static float *pack(const tsr_gemm *p) {
  float *packed = check_alloc((size_t)k->gemm_bytes(p));
  int64_t n = p->by_rows ? p->N : p->M, all = strips(n, !p->by_rows),
          half = (int64_t)(check_random() % (uint64_t)all) * strip_of(!p->by_rows);
  k->gemm_pack(p, packed, half, n);
  k->gemm_pack(p, packed, 0, half);
  return packed;
}

static bool is_same(float got, float want) {
  return (isnan(got) && isnan(want)) || !memcmp(&got, &want, sizeof got);
}

/* How many elements of c (M, N) differ from the reference. */
static void compare(const tsr_gemm *p, numbers a, numbers b, const float *start, const float *got) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < p->M; i++)
    for (int64_t j = 0; j < p->c_stride; j++) {
      float c = start[i * p->c_stride + j], want = j < p->N ? element(p, a, b, i, j, c) : c;
      wrong += !is_same(got[i * p->c_stride + j], want);
    }
  CHECK_AT(
      !wrong, "%s: (%lld, %lld, %lld), by rows %d, %lld wrong", k->isa, (long long)p->M,
      (long long)p->N, (long long)p->K, p->by_rows, (long long)wrong);
}

/* To the nearest bf16, half to even, a NaN to a NaN; with integers alone. */
static bool is_nearest(uint16_t got, float of) {
  uint32_t bits, low;
  memcpy(&bits, &of, sizeof bits);
  if (isnan(of)) return isnan(widened(got));
  low = bits & 0xFFFF, bits >>= 16;
  if (low > 0x8000 || (low == 0x8000 && bits % 2)) bits++;
  return got == bits;
}

/* C in bf16 is the result in f32, rounded; c has the room for sums that are not complete. */
static void check_bf16(tsr_gemm p, const float *packed, const float *start, const float *want) {
  int64_t n = p.by_rows ? p.M : p.N, cut = n / 2 / strip_of(p.by_rows) * strip_of(p.by_rows),
          wrong = 0;
  uint16_t *rounded = check_alloc((size_t)(p.M * p.c_stride) * sizeof *rounded);
  float *c = check_alloc((size_t)(p.M * p.c_stride) * sizeof *c);
  memset(rounded, 0x55, (size_t)(p.M * p.c_stride) * sizeof *rounded);
  memcpy(c, start, (size_t)(p.M * p.c_stride) * sizeof *c);
  CHECK(k->gemm_traits(&p).stores_bf16);
  p.c = c, p.c_bf16 = rounded;
  k->gemm(&p, packed, cut, n);
  k->gemm(&p, packed, 0, cut);
  for (int64_t i = 0; i < p.M * p.c_stride; i++)
    wrong += i % p.c_stride < p.N ? !is_nearest(rounded[i], want[i]) : rounded[i] != 0x5555;
  CHECK_AT(
      !wrong, "%s: in bf16, (%lld, %lld, %lld), by rows %d, %lld wrong", k->isa, (long long)p.M,
      (long long)p.N, (long long)p.K, p.by_rows, (long long)wrong);
  free(rounded), free(c);
}

static void check_splits(tsr_gemm p, numbers a, numbers b) {
  const float *start = p.c;
  output o = output_from(start, p.M * p.c_stride);
  float *packed = pack(&p);
  int64_t n = p.by_rows ? p.M : p.N, strip = strip_of(p.by_rows);
  RUN(strips(n, p.by_rows), p.c = o.pass[pass];
      k->gemm(&p, packed, begin * strip, end * strip < n ? end * strip : n));
  CHECK_OUTPUT(o, NULL, 0, 0);
  compare(&p, a, b, start, o.pass[0]);
  check_bf16(p, packed, start, o.pass[0]);
  free(packed), output_free(&o);
}

/* `variant`: which operands are turned (2 bits), which is stored in f32, adds, bias. */
static void check_gemm(int64_t M, int64_t N, int64_t K, int variant, range of) {
  bool turn_a = variant & 1, turn_b = variant & 2;
  int64_t stride = N + 3;
  values x = values_new(M * K, of), y = values_new(K * N, of);
  float *c = input_new(M * stride, 1), *bias = input_new(N, 1);
  tsr_gemm p = {.M = M, .N = N, .K = K, .c = c, .c_stride = stride, .adds = variant & 4};
  p.a = matrix_of(x, turn_a, M, K, variant & 8), p.b = matrix_of(y, turn_b, K, N, variant & 16);
  p.bias = variant & 32 ? bias : NULL;
  numbers a = {x.wide, p.a.rs, p.a.cs}, b = {y.wide, p.b.rs, p.b.cs};
  float *rounded = check_alloc((size_t)(M * K) * sizeof *rounded);
  if (p.a.bf16 && !p.b.bf16) { /* other numbers, which are rounded */
    memcpy(rounded, x.wide, (size_t)(M * K) * sizeof *rounded);
    add_remainders(x.wide, M * K);
    a.x = rounded, p.a.bf16 = false;
  }
  check_splits(p, a, b);
  p.by_rows = true;
  check_splits(p, a, b);
  values_free(x), values_free(y), free(c), free(bias), free(rounded);
}

/* The GEMM's bits; x, w and y are parts of larger ones. */
static void check_skinny(int64_t R, int64_t N, int64_t K, range of) {
  int64_t x_stride = K + 5, w_stride = K + 3, y_stride = N + 2;
  values x = values_new(R * x_stride, of), w = values_new(N * w_stride, of);
  float *start = input_new(R * y_stride, 1), *bias = input_new(N, 1);
  tsr_skinny_gemm few = {R, K, x_stride, y_stride, N % 2 ? bias : NULL, .x_bf16 = true};
  few.w = (tsr_matrix){w.half, 1, w_stride, TSR_ELEMENT_BF16};
  tsr_gemm p = {.M = R, .N = N, .K = K, .c_stride = y_stride, .bias = few.bias};
  output o = output_from(start, R * y_stride);
  RUN(N, k->skinny_gemm(&few, o.pass[pass], x.wide, begin, end));
  CHECK_OUTPUT(o, NULL, 0, 0);
  compare(&p, (numbers){x.wide, x_stride, 1}, (numbers){w.wide, 1, w_stride}, start, o.pass[0]);
  output_free(&o), values_free(x), values_free(w), free(start), free(bias);
}

static void check_level(const tsr_kernels *level, bool in_turn) {
  static const int64_t shapes[][3] = {{1, 1, 1},      {3, 7, 5},    {17, 33, 65},  {12, 32, 384},
                                      {65, 17, 100},  {64, 70, 32}, {32, 64, 385}, {1, 50, 800},
                                      {300, 35, 64},  {40, 300, 2}, {13, 24, 31},  {100, 96, 7},
                                      {33, 34, 1153}, {5, 3, 20000}};
  k = level, pairs_in_turn = in_turn;
  for (int i = 0; i < 14; i++)
    for (int v = 0; v < 4; v++)
      check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], v * 4 + v + 16 * (i % 4), USUAL);
  for (int kind = TINY; kind < KINDS; kind++)
    for (int v = 0; v < 4; v++) check_gemm(48, 40, 70 + 32 * v, v + 4 * kind, (range)kind);
  for (int64_t R = 1; R < 80; R += 13) check_skinny(R, R * 7 % 90 + 1, R * 61 % 1000 + 1, USUAL);
  check_skinny(16, 100, 1600, SPECIAL);
}

/* A difference of which only the rounding to 24 bits is below FLT_MIN; a sum of denormals; a
 * denormal operand. */
static void check_flushes(void) {
  float below = fused(0x1p-74f, -0x1.04p-77f, FLT_MIN);
  CHECK(below == 0 && !signbit(below));
  CHECK(fused(0x1p-74f, -0x1p-78f, FLT_MIN) == FLT_MIN);
  CHECK(fused(0x1p-127f, 0x1p10f, 1) == 1);
  CHECK(signbit(fused(-0x1p-70f, 0x1p-70f, 0)));
}

extern __typeof__(*((tsr_kernels *)0)->gemm_pack) tsr_gemm_pack_emulated_v4,
    tsr_gemm_pack_emulated_amx;
extern __typeof__(*((tsr_kernels *)0)->gemm) tsr_gemm_emulated_v4, tsr_gemm_emulated_amx;
extern __typeof__(*((tsr_kernels *)0)->gemm_traits) tsr_gemm_traits_emulated_v4,
    tsr_gemm_traits_emulated_amx;
extern __typeof__(*((tsr_kernels *)0)->skinny_gemm) tsr_skinny_gemm_emulated_v4,
    tsr_skinny_gemm_emulated_amx;

int main(void) {
  const char *const *levels = tsr_kernels_levels();
  while (levels[1]) levels++;
  tsr_kernels emulated = *tsr_kernels_get(*levels);
  check_flushes();
  emulated.isa = "vdpbf16ps, emulated", emulated.gemm_pack = tsr_gemm_pack_emulated_v4;
  emulated.gemm_traits = tsr_gemm_traits_emulated_v4;
  emulated.gemm = tsr_gemm_emulated_v4, emulated.skinny_gemm = tsr_skinny_gemm_emulated_v4;
  check_level(&emulated, true);
  emulated.isa = "tdpbf16ps, emulated", emulated.gemm_pack = tsr_gemm_pack_emulated_amx;
  emulated.gemm_traits = tsr_gemm_traits_emulated_amx;
  emulated.gemm = tsr_gemm_emulated_amx, emulated.skinny_gemm = tsr_skinny_gemm_emulated_amx;
  check_level(&emulated, false);
  const tsr_kernels *v4 = tsr_kernels_get("v4-bf16"), *amx = tsr_kernels_get("amx-bf16");
  if (v4) check_level(v4, true);
  else printf("level v4-bf16: not on this CPU\n");
  if (amx) check_level(amx, false);
  else printf("level amx-bf16: not on this CPU\n");
  return check_done("kernels.dot_gemm");
}
