// SPDX-License-Identifier: Apache-2.0
/* FP8 on a GPU. Codes and scales have the bits of the CPU's (which tests/kernels/test_fp8.c compares
 * with the definition and with PyTorch), and zeros behind a unit of K. The GEMM is within the bound
 * of kernels/cuda/kernels.h of sums in double of the same codes, has the CPU's bits where all its
 * sums are exact, and the bits of an element do not depend on what else is computed. All of it with
 * tensor cores for codes and for halves, and with fetches that come early and late. */
#include "fp8_case.h"
#include "kernels/cuda/fp8_shape.h"
#include "kernels/cuda/gemm.h"

typedef std::vector<uint8_t> bytes;
enum { BLOCK = TSR_FP8_BLOCK };

static int64_t scale_index(const tsr_fp8_layout &l, int64_t row, int64_t col) {
  return tsr_fp8_block_of(row, l.unit_rows, l.block_rows) * tsr_fp8_scale_cols(&l) +
         tsr_fp8_block_of(col, l.unit_cols, l.block_cols);
}

/* ---- codes and scales ---- */

/* An operand, (rows, K) or (K, rows), by the CPU: codes as a GPU has them. */
typedef struct {
  tsr_fp8_layout layout;
  bool sums_rows;
  bytes codes;
  numbers scales;
} operand;

/* Of a GPU's codes, the place of element (row, col). */
static int64_t code_index(const operand &o, int64_t row, int64_t col) {
  const tsr_fp8_layout &l = o.layout;
  int64_t k = o.sums_rows ? row : col, unit = o.sums_rows ? l.unit_rows : l.unit_cols;
  int64_t at = k / unit * ((unit + 15) / 16 * 16) + k % unit;
  return (o.sums_rows ? col : row) * tsr_cuda_fp8_stride(&l, o.sums_rows) + at;
}

static operand quantized(const tsr_fp8_layout &l, bool sums_rows, const numbers &x) {
  operand o = {l, sums_rows, {}, {}};
  bytes codes((size_t)(l.rows * l.cols));
  o.scales.resize((size_t)tsr_fp8_scales(&l));
  cpu->fp8_quantize(
      &l, codes.data(), o.scales.data(), x.data(), TSR_ELEMENT_F32, 0, tsr_fp8_tiles(&l));
  o.codes.resize((size_t)((sums_rows ? l.cols : l.rows) * tsr_cuda_fp8_stride(&l, sums_rows)));
  for (int64_t i = 0; i < l.rows * l.cols; i++)
    o.codes[(size_t)code_index(o, i / l.cols, i % l.cols)] = codes[(size_t)i];
  return o;
}

static int64_t other_scales(const numbers &want, const float *got) {
  int64_t others = 0;
  for (size_t i = 0; i < want.size(); i++)
    others += std::isnan(want[i]) ? !std::isnan(got[i]) : memcmp(&want[i], &got[i], 4) != 0;
  return others;
}

static void
check_quantize(const tsr_fp8_layout &l, bool sums_rows, tsr_cuda_type type, const numbers &exact) {
  numbers x = rounded(type, exact);
  operand want = quantized(l, sums_rows, x);
  for (int pass = 0; pass < 4; pass++) {
    call_arrays arrays;
    arrays.shift = pass / 2;
    run_backwards(pass % 2);
    uint8_t *codes = (uint8_t *)arrays.scratch((int64_t)want.codes.size());
    float *scales = arrays.out((int64_t)want.scales.size());
    tsr_cuda_fp8_operand of = {l, sums_rows, false, 1, NULL};
    tsr_cuda_fp8_quantize(NULL, type, codes, scales, arrays.in(type, x), &of);
    finish_work();
    for (const array &a : arrays.all) CHECK(array_intact(&a));
    int64_t others = 0;
    for (size_t i = 0; i < want.codes.size(); i++) others += codes[i] != want.codes[i];
    CHECK_AT(
        !others && !other_scales(want.scales, scales),
        "(%lld, %lld) in units of (%lld, %lld) and blocks of %d x %d, type %d: %lld codes and %lld "
        "scales differ",
        (long long)l.rows, (long long)l.cols, (long long)l.unit_rows, (long long)l.unit_cols,
        l.block_rows, l.block_cols, (int)type, (long long)others,
        (long long)other_scales(want.scales, scales));
  }
  run_backwards(false);
}

/* All bf16 numbers up to a magnitude, each in a block that begins with that. */
static numbers all_numbers(float amax) {
  numbers x;
  for (uint32_t bits = 0; bits < 1 << 16; bits++) {
    uint32_t word = bits << 16;
    float y;
    memcpy(&y, &word, 4);
    if (!(fabsf(y) <= amax)) continue;
    if (x.size() % BLOCK == 0) x.push_back(amax);
    x.push_back(y);
  }
  while (x.size() % BLOCK) x.push_back(0);
  return x;
}

static void test_all_numbers() {
  for (float amax :
       {1.0f, 448.0f, 460.0f, 3.140625f, 57344.0f, 0.0f, 0x1p-20f, 0x1p-117f, 0x1p-133f,
        INFINITY}) {
    numbers x = all_numbers(amax);
    for (int how = 0; how < 4; how++) {
      int64_t rows = (int64_t)x.size() / BLOCK;
      tsr_fp8_format format = how & 1 ? TSR_FP8_E5M2 : TSR_FP8_E4M3;
      check_quantize({rows, BLOCK, rows, BLOCK, 1, BLOCK, format, how > 1}, false, TSR_CUDA_F32, x);
    }
  }
}

/* With magnitudes that differ from block to block, and in `special` ones a NaN, an infinity, zeros
 * and numbers below the smallest normal one. */
static numbers some_numbers(int64_t n, bool special) {
  numbers x = random_numbers(n, 1);
  for (int64_t i = 0; i < n; i++) x[(size_t)i] = ldexpf(x[(size_t)i], (int)(i / 37 % 23) - 11);
  if (special && n > 5) x[(size_t)n / 2] = NAN, x[(size_t)n / 3] = -INFINITY;
  for (int64_t i = n / 4; special && i < n / 4 + n / 16; i++) x[(size_t)i] = i % 3 ? 0 : 0x1p-140f;
  return x;
}

static void test_blocks() {
  static const int64_t shapes[][4] = {
      {1, 1, 1, 1},         {3, 130, 3, 130},   {256, 256, 256, 256}, {130, 7, 65, 7},
      {400, 300, 200, 150}, {384, 96, 192, 48}, {129, 257, 129, 257}, {48, 640, 16, 160}};
  int call = 0;
  for (const int64_t *s : shapes)
    for (int how = 0; how < 4; how++, call++) {
      bool sums_rows = how & 1, square = how & 2;
      tsr_fp8_layout l = {
          s[0],
          s[1],
          s[2],
          s[3],
          sums_rows || square ? BLOCK : 1,
          !sums_rows || square ? BLOCK : 1,
          call / 4 % 2 ? TSR_FP8_E5M2 : TSR_FP8_E4M3,
          call / 8 % 2 > 0};
      numbers x = some_numbers(l.rows * l.cols, call % 2);
      for (tsr_cuda_type type : types) check_quantize(l, sums_rows, type, x);
    }
}

/* ---- the GEMM ---- */

typedef struct {
  int64_t M, N, K, units; /* of K there are so many units, of which the last one is multiplied */
  bool e5m2, squares, adds, power_of_two, special;
} problem;

/* Rows in units of a third of them, if that can be. K lies along the rows of every other one. */
static operand make_operand(const problem &p, bool is_a, numbers x) {
  int64_t rows = is_a ? p.M : p.N, K = p.K * p.units, unit = rows % 3 ? rows : rows / 3;
  bool sums_rows = (rows + p.K) % 2, square = p.squares && !is_a;
  if (x.empty()) x = some_numbers(rows * K, p.special && is_a);
  tsr_fp8_layout l = {};
  l.rows = sums_rows ? K : rows, l.cols = sums_rows ? rows : K;
  l.unit_rows = sums_rows ? p.K : unit, l.unit_cols = sums_rows ? unit : p.K;
  l.block_rows = sums_rows || square ? BLOCK : 1;
  l.block_cols = !sums_rows || square ? BLOCK : 1;
  l.format = p.e5m2 && is_a ? TSR_FP8_E5M2 : TSR_FP8_E4M3;
  l.power_of_two = p.power_of_two;
  return quantized(l, sums_rows, x);
}

static tsr_cuda_fp8_matrix matrix_of(
    const operand &o, const problem &p, const uint8_t *codes, const float *scales, int64_t row) {
  const tsr_fp8_layout &l = o.layout;
  int64_t across = tsr_fp8_scale_cols(&l), first = (p.units - 1) * p.K;
  bool square = l.block_rows == l.block_cols;
  tsr_cuda_fp8_matrix m = {
      codes + code_index(o, o.sums_rows ? first : row, o.sums_rows ? row : first),
      tsr_cuda_fp8_stride(&l, o.sums_rows),
      scales + (p.units - 1) * ((p.K + BLOCK - 1) / BLOCK) * (o.sums_rows ? across : 1),
      o.sums_rows ? across : 1,
      o.sums_rows ? 1 : across,
      0};
  if (square) m.row_unit = o.sums_rows ? l.unit_cols : l.unit_rows;
  else m.scales += row * m.row_stride;
  return m;
}

/* Element (m, n) of c alone, or from there on all. */
static numbers multiplied(
    const problem &p, tsr_cuda_type type, const operand &a, const operand &b, const numbers &start,
    int64_t m, int64_t M) {
  call_arrays arrays;
  arrays.shift = 0;
  uint8_t *codes_a = (uint8_t *)arrays.add((int64_t)a.codes.size(), 1, a.codes.data())->data;
  uint8_t *codes_b = (uint8_t *)arrays.add((int64_t)b.codes.size(), 1, b.codes.data())->data;
  float *scales_a = arrays.in(a.scales), *scales_b = arrays.in(b.scales);
  tsr_cuda_fp8_gemm g = {};
  g.M = M, g.N = p.N, g.K = p.K;
  g.a = matrix_of(a, p, codes_a, scales_a, m);
  g.b = matrix_of(b, p, codes_b, scales_b, 0);
  g.a_format = a.layout.format;
  g.c = arrays.changed(type, part(start, m * p.N, M * p.N));
  g.adds = p.adds;
  tsr_cuda_run_fp8_gemm(NULL, type, &g);
  finish_work();
  for (const array &x : arrays.all) CHECK(array_intact(&x));
  return numbers_get(type, g.c, M * p.N);
}

static double value_of(const operand &o, const problem &p, int64_t i, int64_t k) {
  k += (p.units - 1) * p.K;
  int64_t row = o.sums_rows ? k : i, col = o.sums_rows ? i : k;
  uint8_t code = o.codes[(size_t)code_index(o, row, col)];
  float value;
  if (o.layout.format == TSR_FP8_E5M2) cpu->e5m2_to_f32(&value, &code, 0, 1);
  else cpu->e4m3_to_f32(&value, &code, 0, 1);
  return (double)value * o.scales[(size_t)scale_index(o.layout, row, col)];
}

static void check_bound(
    const problem &p, const operand &a, const operand &b, const numbers &start,
    const numbers &got) {
  double blocks = (double)((p.K + BLOCK - 1) / BLOCK);
  double most = (steps_of_device() + 3 + blocks) * 0x1p-24;
  int64_t wrong = 0, i = 0;
  for (int64_t m = 0; m < p.M; m++)
    for (int64_t n = 0; n < p.N; n++, i++) {
      double sum = p.adds ? (double)start[(size_t)i] : 0, sizes = fabs(sum);
      for (int64_t k = 0; k < p.K; k++) {
        double x = value_of(a, p, m, k) * value_of(b, p, n, k);
        sum += x, sizes += fabs(x);
      }
      double y = got[(size_t)i];
      wrong += std::isnan(sum) ? !std::isnan(y) : !(fabs(y - sum) <= most * sizes);
    }
  CHECK_AT(
      !wrong, "(%lld, %lld, %lld): %lld elements are beyond the bound", (long long)p.M,
      (long long)p.N, (long long)p.K, (long long)wrong);
}

/* The same numbers, NaNs too. */
static void
check_equal(const char *what, const problem &p, const numbers &got, const numbers &want) {
  int64_t others = 0;
  for (size_t i = 0; i < want.size(); i++)
    others += std::isnan(want[i]) ? !std::isnan(got[i]) : memcmp(&want[i], &got[i], 4) != 0;
  CHECK_AT(
      got.size() == want.size() && !others, "(%lld, %lld, %lld): %lld elements are not those of %s",
      (long long)p.M, (long long)p.N, (long long)p.K, (long long)others, what);
}

static void check_gemm(const problem &p) {
  operand a = make_operand(p, true, {}), b = make_operand(p, false, {});
  numbers start = random_numbers(p.M * p.N, 1), first[2];
  for (int way = 0; way < WAYS; way++) {
    if (!set_way(way)) continue;
    numbers got = multiplied(p, TSR_CUDA_F32, a, b, start, 0, p.M);
    if (way < 2) {
      check_bound(p, a, b, start, got);
      first[way] = got;
    } else {
      check_equal("early fetches", p, got, first[way % 2]);
    }
    int64_t m = p.M * 2 / 3, M = p.M - m < 5 ? p.M - m : 5;
    if (!p.squares || a.layout.block_rows != a.layout.block_cols)
      check_equal(
          "all rows", p, multiplied(p, TSR_CUDA_F32, a, b, start, m, M),
          part(got, m * p.N, M * p.N));
    if (p.adds) continue;
    for (tsr_cuda_type type : {TSR_CUDA_BF16, TSR_CUDA_F16})
      check_equal("f32, rounded", p, multiplied(p, type, a, b, start, 0, p.M), rounded(type, got));
  }
  set_way(0);
}

static void test_gemm() {
  check_gemm({1, 1, 1, 1, false, false, false, true, false});
  check_gemm({3, 130, 130, 1, false, true, false, true, true});
  check_gemm({129, 65, 257, 1, true, true, false, false, false});
  check_gemm({64, 48, 48, 3, false, true, true, true, false});
  check_gemm({30, 384, 96, 2, true, false, true, true, true});
  check_gemm({200, 7, 400, 2, false, false, false, false, false});
  check_gemm({33, 35, 33, 2, true, false, true, true, false});
}

/* ---- sums that are exact ---- */

/* Small whole numbers; each block's largest one is that of the format, so that scales are 1. Those
 * of A and of B are not multiplied by each other, so that sums are below 2^24. */
static numbers whole_numbers(const problem &p, bool is_a) {
  int64_t rows = is_a ? p.M : p.N;
  bool sums_rows = (rows + p.K) % 2;
  numbers x((size_t)(rows * p.K));
  for (int64_t row = 0; row < rows; row++)
    for (int64_t k = 0; k < p.K; k++) {
      float y = (float)((int)(check_random() % 15) - 7);
      if (k % BLOCK == is_a) y = is_a && p.e5m2 ? 57344 : 448;
      x[(size_t)(sums_rows ? k * rows + row : row * p.K + k)] = y;
    }
  return x;
}

static tsr_matrix cpu_matrix(
    const tsr_fp8_layout &l, bool sums_rows, const uint8_t *codes, const float *scales, bool is_a) {
  bool rows = sums_rows != is_a; /* of the operand are those of the GEMM's matrix */
  int64_t across = tsr_fp8_scale_cols(&l);
  tsr_matrix m = {};
  m.data = codes;
  m.type = l.format == TSR_FP8_E5M2 ? TSR_ELEMENT_E5M2 : TSR_ELEMENT_E4M3;
  m.rs = rows ? l.cols : 1, m.cs = rows ? 1 : l.cols;
  m.scales = {scales, sums_rows ? across : 1, sums_rows ? 1 : across, 0};
  return m;
}

static numbers cpu_multiplied(
    const problem &p, const operand &a, const operand &b, const numbers &x, const numbers &y) {
  numbers c((size_t)(p.M * p.N)), scales_a(a.scales.size()), scales_b(b.scales.size());
  bytes codes_a(x.size()), codes_b(y.size());
  cpu->fp8_quantize(
      &a.layout, codes_a.data(), scales_a.data(), x.data(), TSR_ELEMENT_F32, 0,
      tsr_fp8_tiles(&a.layout));
  cpu->fp8_quantize(
      &b.layout, codes_b.data(), scales_b.data(), y.data(), TSR_ELEMENT_F32, 0,
      tsr_fp8_tiles(&b.layout));
  tsr_gemm g = {};
  g.M = p.M, g.N = p.N, g.K = p.K;
  g.a = cpu_matrix(a.layout, a.sums_rows, codes_a.data(), scales_a.data(), true);
  g.b = cpu_matrix(b.layout, b.sums_rows, codes_b.data(), scales_b.data(), false);
  g.c = c.data();
  g.c_stride = p.N;
  g.scaled = g.by_rows = true;
  void *packed = NULL;
  if (posix_memalign(&packed, 64, (size_t)cpu->gemm_bytes(&g))) abort();
  cpu->gemm_pack(&g, (float *)packed, 0, p.N);
  cpu->gemm(&g, (const float *)packed, 0, p.M);
  free(packed);
  return c;
}

static void check_exact(const problem &p) {
  numbers x = whole_numbers(p, true), y = whole_numbers(p, false);
  operand a = make_operand(p, true, x), b = make_operand(p, false, y);
  numbers want = cpu_multiplied(p, a, b, x, y), start((size_t)(p.M * p.N));
  for (int way = 0; way < 2; way++)
    if (set_way(way))
      check_equal("the CPU", p, multiplied(p, TSR_CUDA_F32, a, b, start, 0, p.M), want);
  set_way(0);
}

int main() {
  test_all_numbers();
  test_blocks();
  test_gemm();
  check_exact({50, 70, 100, 1, false, false, false, true, false});
  check_exact({17, 129, 300, 1, false, false, false, true, false});
  check_exact({40, 33, 270, 1, true, false, false, true, false});
  return check_done("cuda.fp8");
}
