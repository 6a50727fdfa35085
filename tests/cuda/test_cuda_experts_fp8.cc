// SPDX-License-Identifier: Apache-2.0
/* GEMMs of experts in FP8 on a GPU. Codes and scales of rows, of weights and of the runs that a
 * gradient sums have the bits of the CPU's, each matrix and run quantised by itself, and zeros
 * behind a unit of what is summed. GEMMs are within the bound of kernels/cuda/kernels.h of sums in
 * double of the same codes, and exact where those sums are. An element's bits depend neither on
 * other rows nor on how batch units are divided among calls. All of it with tensor cores for codes
 * and for halves, and with fetches that come early and late. */
#include "expert_case.h"
#include "fp8_case.h"
#include "kernels/cuda/fp8_shape.h"

typedef std::vector<uint8_t> bytes;
enum { BLOCK = TSR_FP8_BLOCK };

typedef struct {
  bool e5m2, power_of_two;
} recipe;

/* ---- operands, by the CPU ---- */

/* A matrix (rows, cols) and what its codes stand for. */
typedef struct {
  bytes codes;
  numbers scales;
  std::vector<double> values;
} quantized;

static quantized quantize(const tsr_fp8_layout &l, const numbers &x) {
  quantized q;
  numbers of_codes(x.size());
  q.codes.resize(x.size());
  q.scales.resize((size_t)tsr_fp8_scales(&l));
  cpu->fp8_quantize(
      &l, q.codes.data(), q.scales.data(), x.data(), TSR_ELEMENT_F32, 0, tsr_fp8_tiles(&l));
  if (l.format == TSR_FP8_E5M2)
    cpu->e5m2_to_f32(of_codes.data(), q.codes.data(), 0, (int64_t)x.size());
  else cpu->e4m3_to_f32(of_codes.data(), q.codes.data(), 0, (int64_t)x.size());
  for (int64_t i = 0; i < (int64_t)x.size(); i++) {
    int64_t row = tsr_fp8_block_of(i / l.cols, l.unit_rows, l.block_rows),
            col = tsr_fp8_block_of(i % l.cols, l.unit_cols, l.block_cols);
    float scale = q.scales[(size_t)(row * tsr_fp8_scale_cols(&l) + col)];
    q.values.push_back((double)of_codes[(size_t)i] * scale);
  }
  return q;
}

static tsr_fp8_layout layout_of(
    int64_t rows, int64_t cols, int64_t unit_rows, int64_t unit_cols, bool by_rows, bool by_cols,
    const recipe &how) {
  tsr_fp8_layout l = {};
  l.rows = rows, l.cols = cols, l.unit_rows = unit_rows, l.unit_cols = unit_cols;
  l.block_rows = by_rows ? BLOCK : 1, l.block_cols = by_cols ? BLOCK : 1;
  l.format = how.e5m2 ? TSR_FP8_E5M2 : TSR_FP8_E4M3;
  l.power_of_two = how.power_of_two;
  return l;
}

/* ---- operands, by the device ---- */

typedef struct {
  tsr_cuda_fp8_operand of;
  uint8_t *codes;
  float *scales;
} operand;

static operand
quantize_to(call_arrays &c, tsr_cuda_fp8_operand of, tsr_cuda_type type, const numbers &x) {
  int64_t matrices = of.has_runs ? 1 : of.count;
  operand o = {of, (uint8_t *)c.scratch(matrices * tsr_cuda_fp8_operand_codes(&of)), NULL};
  o.scales = (float *)c.scratch(matrices * tsr_cuda_fp8_operand_scales(&of) * 4);
  tsr_cuda_fp8_quantize(NULL, type, o.codes, o.scales, c.in(type, x), &of);
  return o;
}

/* Whether the device has the codes and scales of a matrix (rows, cols): its first code lies at
 * `codes` of a row of codes, its first scale at `scales`. */
static bool
has(const operand &o, const tsr_fp8_layout &l, const quantized &want, const uint8_t *codes,
    const float *scales) {
  int64_t stride = tsr_cuda_fp8_operand_stride(&o.of), wrong = 0;
  bool sums_rows = o.of.sums_rows;
  int64_t size = sums_rows ? l.rows : l.cols, unit = sums_rows ? l.unit_rows : l.unit_cols;
  for (int64_t line = 0; line < (sums_rows ? l.cols : l.rows); line++)
    for (int64_t u = 0; u < size / unit; u++)
      for (int64_t k = 0; k < tsr_cuda_fp8_unit(unit); k++) {
        int64_t at = u * unit + k, i = sums_rows ? at * l.cols + line : line * l.cols + at;
        uint8_t is = codes[line * stride + u * tsr_cuda_fp8_unit(unit) + k];
        wrong += is != (k < unit ? want.codes[(size_t)i] : 0);
      }
  for (size_t i = 0; i < want.scales.size(); i++)
    wrong += memcmp(&want.scales[i], &scales[i], 4) != 0;
  return !wrong;
}

/* ---- cases ---- */

typedef struct {
  tsr_experts e;
  int64_t S, R, rows, units; /* of the batch */
  integers plan, starts;     /* of experts and units */
} rows_case;

static rows_case make_rows(int64_t S, const tsr_experts &e, int64_t units) {
  rows_case r = {e, S, room_for(e, S), 0, units, {}, {}};
  r.plan = cpu_plan(e, {0, 0}, random_choices(S, e.E, e.k), NULL, S, r.R, &r.rows);
  for (int64_t run = 0; run <= e.count * units; run++) {
    int64_t expert = e.first + run / units, slot = run % units * (S / units) * e.k, row = 0;
    while (row < r.rows &&
           (r.plan[(size_t)(2 * row + 1)] < expert ||
            (r.plan[(size_t)(2 * row + 1)] == expert && r.plan[(size_t)(2 * row)] < slot)))
      row++;
    r.starts.push_back((int32_t)row);
  }
  return r;
}

static numbers some_numbers(int64_t n, bool whole) {
  numbers x = rounded(TSR_CUDA_BF16, random_numbers(n, 1));
  for (int64_t i = 0; i < n; i++)
    x[(size_t)i] = whole ? rintf(x[(size_t)i] * 3) : ldexpf(x[(size_t)i], (int)(i / 37 % 13) - 6);
  return x;
}

/* The sum and the sum of magnitudes of an element. */
typedef struct {
  double sum, size;
} exact;

static void check_bound(
    const char *what, const numbers &got, const std::vector<exact> &want, double blocks,
    bool whole) {
  double most = whole ? 0 : (steps_of_device() + 3 + blocks) * 0x1p-24;
  int64_t wrong = 0;
  for (size_t i = 0; i < want.size(); i++)
    wrong += !(fabs((double)got[i] - want[i].sum) <= most * want[i].size);
  CHECK_INT(got.size(), want.size());
  CHECK_AT(!wrong, "%s, n %d: %d are beyond the bound", what, (int)want.size(), (int)wrong);
}

static void
take_segments(call_arrays &c, const rows_case &r, int64_t units, tsr_cuda_expert_gemm *ret) {
  int32_t *starts = (int32_t *)c.scratch(4 * (r.e.count * units + 1));
  int32_t *tiles = (int32_t *)c.scratch(4 * (r.e.count + 1));
  tsr_cuda_expert_segments of = {r.e.first, r.e.count, units, r.S / units * r.e.k, r.R, FP8_TILE_M};
  tsr_cuda_find_expert_segments(NULL, starts, tiles, c.in(r.plan), &of);
  ret->count = r.e.count, ret->R = r.R, ret->units = units, ret->end_unit = units;
  ret->starts = starts, ret->tiles = tiles;
}

/* ---- y (R, N) = x (R, K) w[e] (N, K)^T, and dx (R, N) = dy (R, K) w[e] (K, N) ---- */

typedef struct {
  int64_t N, K, parts, w_parts; /* of K the last of so many is multiplied; units of N in w */
  bool whole;
} linear_case;

static operand rows_of(
    call_arrays &c, const rows_case &r, const linear_case &g, const recipe &how,
    const int32_t *starts, const numbers &x) {
  int64_t all = g.K * g.parts;
  tsr_fp8_layout l = layout_of(r.R, all, r.R, g.K, false, true, how);
  operand o = quantize_to(c, {l, false, true, r.e.count, starts}, TSR_CUDA_BF16, x);
  finish_work();
  tsr_fp8_layout used = layout_of(r.rows, all, r.rows, g.K, false, true, how);
  CHECK(!r.rows || has(o, used, quantize(used, part(x, 0, r.rows * all)), o.codes, o.scales));
  return o;
}

static tsr_fp8_layout weight_layout(const linear_case &g, bool forward, const recipe &how) {
  int64_t all = g.K * g.parts, unit = g.N / g.w_parts;
  recipe of_weight = {false, how.power_of_two};
  return forward ? layout_of(g.N, all, unit, g.K, true, true, of_weight)
                 : layout_of(all, g.N, g.K, unit, true, true, of_weight);
}

static operand weights_of(
    call_arrays &c, const rows_case &r, const tsr_fp8_layout &l, bool forward, const numbers &w) {
  operand o = quantize_to(c, {l, !forward, false, r.e.count, NULL}, TSR_CUDA_BF16, w);
  int64_t each = l.rows * l.cols;
  finish_work();
  for (int64_t e = 0; e < r.e.count; e++)
    CHECK(has(
        o, l, quantize(l, part(w, e * each, each)), o.codes + e * tsr_cuda_fp8_operand_codes(&o.of),
        o.scales + e * tsr_cuda_fp8_operand_scales(&o.of)));
  return o;
}

static numbers linear(
    const rows_case &r, const linear_case &g, bool forward, const recipe &how, tsr_cuda_type to,
    const numbers &x, const numbers &w) {
  int64_t unit = g.parts - 1, blocks = (g.K + BLOCK - 1) / BLOCK;
  tsr_fp8_layout l = weight_layout(g, forward, how);
  return run_all("expert_linear in FP8", [&](call_arrays &c) {
    tsr_cuda_expert_fp8_gemm p = {};
    take_segments(c, r, 1, &p.of);
    p.of.form = forward ? TSR_CUDA_EXPERT_FORWARD : TSR_CUDA_EXPERT_DX;
    p.of.N = g.N, p.of.K = g.K;
    p.of.c = c.out(to, r.R * g.N);
    operand a = rows_of(c, r, g, how, p.of.starts, x), b = weights_of(c, r, l, forward, w);
    int64_t first = unit * tsr_cuda_fp8_unit(g.K), across = tsr_fp8_scale_cols(&l);
    p.a = {a.codes + first,          tsr_cuda_fp8_operand_stride(&a.of),
           a.scales + unit * blocks, 1,
           g.parts * blocks,         0};
    p.b.codes = b.codes + first, p.b.stride = tsr_cuda_fp8_operand_stride(&b.of);
    p.b.k_stride = forward ? 1 : across, p.b.row_stride = forward ? across : 1;
    p.b.scales = b.scales + unit * blocks * p.b.k_stride;
    p.b.row_unit = g.N / g.w_parts;
    p.b_codes = tsr_cuda_fp8_operand_codes(&b.of);
    p.b_scales = tsr_cuda_fp8_operand_scales(&b.of);
    p.a_format = a.of.layout.format;
    tsr_cuda_run_expert_fp8_gemm(NULL, to, &p);
    tsr_cuda_clear_expert_rows(NULL, to, p.of.c, c.in(r.plan), r.R, g.N);
  })[0];
}

static std::vector<exact> exact_linear(
    const rows_case &r, const linear_case &g, bool forward, const recipe &how, const numbers &x,
    const numbers &w) {
  int64_t all = g.K * g.parts, each = all * g.N;
  tsr_fp8_layout l = weight_layout(g, forward, how);
  std::vector<double> a = quantize(layout_of(r.R, all, r.R, g.K, false, true, how), x).values, b;
  for (int64_t e = 0; e < r.e.count; e++) {
    std::vector<double> of_expert = quantize(l, part(w, e * each, each)).values;
    b.insert(b.end(), of_expert.begin(), of_expert.end());
  }
  std::vector<exact> y((size_t)(r.R * g.N));
  for (int64_t i = 0; i < r.rows * g.N; i++) {
    int64_t row = i / g.N, n = i % g.N, e = r.plan[(size_t)(2 * row + 1)] - r.e.first;
    for (int64_t k = all - g.K; k < all; k++) {
      double term = a[(size_t)(row * all + k)] *
                    b[(size_t)(e * each + (forward ? n * all + k : k * g.N + n))];
      y[(size_t)i].sum += term, y[(size_t)i].size += fabs(term);
    }
  }
  return y;
}

static void check_linear(const rows_case &r, const linear_case &g, bool forward, recipe how) {
  int64_t all = g.K * g.parts, blocks = (g.K + BLOCK - 1) / BLOCK;
  numbers x = some_numbers(r.R * all, g.whole), w = some_numbers(r.e.count * all * g.N, g.whole);
  std::vector<exact> want = exact_linear(r, g, forward, how, x, w);
  numbers first[2];
  for (int way = 0; way < WAYS; way++) {
    if (!set_way(way)) continue;
    numbers y = linear(r, g, forward, how, TSR_CUDA_F32, x, w);
    if (way < 2) first[way] = y;
    check_bound("expert_linear in FP8", y, want, (double)blocks, g.whole);
    check_same("late fetches", y, first[way % 2]);
  }
  set_way(0);
  check_same(
      "rounded", linear(r, g, forward, how, TSR_CUDA_BF16, x, w), rounded(TSR_CUDA_BF16, first[0]));
  /* The last expert's rows alone. */
  rows_case last = r;
  int64_t rows = r.starts[(size_t)((r.e.count - 1) * r.units)];
  last.plan = integers(r.plan.begin() + 2 * rows, r.plan.end());
  last.R -= rows, last.rows -= rows;
  check_same(
      "rows alone",
      linear(last, g, forward, how, TSR_CUDA_F32, part(x, rows * all, last.R * all), w),
      part(first[0], rows * g.N, last.R * g.N));
}

/* ---- dw[e] (N, K) = dy (rows, N)^T x (rows, K), run by run ---- */

static operand runs_of(
    call_arrays &c, const rows_case &r, int64_t cols, const recipe &how, const int32_t *starts,
    const numbers &x) {
  tsr_fp8_layout all = layout_of(r.R, cols, r.R, cols, true, false, how);
  operand o = quantize_to(c, {all, true, true, r.e.count * r.units, starts}, TSR_CUDA_BF16, x);
  finish_work();
  for (int64_t run = 0; run < r.e.count * r.units; run++) {
    int64_t first = r.starts[(size_t)run], rows = r.starts[(size_t)run + 1] - first;
    if (!rows) continue;
    tsr_fp8_layout l = layout_of(rows, cols, rows, cols, true, false, how);
    CHECK(
        has(o, l, quantize(l, part(x, first * cols, rows * cols)),
            o.codes + tsr_cuda_fp8_run_codes(first, run),
            o.scales + tsr_cuda_fp8_run_block(first, run) * cols));
  }
  return o;
}

/* Over batch units [cuts[i], cuts[i + 1]), one call after the other. */
static numbers gradient(
    const rows_case &r, const std::vector<int64_t> &cuts, int64_t N, int64_t K, const recipe &how,
    const numbers &dy, const numbers &x) {
  return run_all("expert_linear_dw in FP8", [&](call_arrays &c) {
    tsr_cuda_expert_fp8_gemm p = {};
    take_segments(c, r, r.units, &p.of);
    p.of.form = TSR_CUDA_EXPERT_DW;
    p.of.M = N, p.of.N = K;
    p.of.c = c.out(r.e.count * N * K);
    operand a = runs_of(c, r, N, how, p.of.starts, dy),
            b = runs_of(c, r, K, {false, how.power_of_two}, p.of.starts, x);
    p.a = {a.codes, tsr_cuda_fp8_operand_stride(&a.of), a.scales, N, 1, 0};
    p.b = {b.codes, tsr_cuda_fp8_operand_stride(&b.of), b.scales, K, 1, 0};
    p.a_format = a.of.layout.format;
    for (size_t i = 0; i + 1 < cuts.size(); i++) {
      p.of.first_unit = cuts[i], p.of.end_unit = cuts[i + 1], p.of.adds = i > 0;
      tsr_cuda_run_expert_fp8_gemm(NULL, TSR_CUDA_F32, &p);
    }
  })[0];
}

static void check_gradient(const rows_case &r, int64_t N, int64_t K, recipe how, bool whole) {
  numbers dy = some_numbers(r.R * N, whole), x = some_numbers(r.R * K, whole);
  std::vector<exact> want((size_t)(r.e.count * N * K));
  double blocks = 0;
  for (int64_t run = 0; run < r.e.count * r.units; run++) {
    int64_t first = r.starts[(size_t)run], rows = r.starts[(size_t)run + 1] - first;
    if (!rows) continue;
    tsr_fp8_layout of_dy = layout_of(rows, N, rows, N, true, false, how),
                   of_x = layout_of(rows, K, rows, K, true, false, {false, how.power_of_two});
    std::vector<double> a = quantize(of_dy, part(dy, first * N, rows * N)).values,
                        b = quantize(of_x, part(x, first * K, rows * K)).values;
    exact *at = &want[(size_t)(run / r.units * N * K)];
    for (int64_t i = 0; i < N * K; i++)
      for (int64_t row = 0; row < rows; row++) {
        double term = a[(size_t)(row * N + i / K)] * b[(size_t)(row * K + i % K)];
        at[i].sum += term, at[i].size += fabs(term);
      }
    blocks += (double)((rows + BLOCK - 1) / BLOCK);
  }
  numbers first[2];
  for (int way = 0; way < WAYS; way++) {
    if (!set_way(way)) continue;
    std::vector<int64_t> cuts = {0, r.units};
    if (way > 1 && r.units > 1) cuts = {0, 1, r.units / 2 + 1, r.units};
    numbers got = gradient(r, cuts, N, K, how, dy, x);
    if (way < 2) first[way] = got;
    check_bound("expert_linear_dw in FP8", got, want, blocks, whole);
    check_same("units in several calls", got, first[way % 2]);
  }
  set_way(0);
}

int main() {
  const recipe plain = {false, true}, e5m2 = {true, true}, f32_scales = {true, false};
  rows_case one = make_rows(1, {1, 1, 0, 1}, 1), few = make_rows(24, {8, 2, 4, 4}, 4),
            many = make_rows(300, {3, 2, 0, 3}, 3), sparse = make_rows(6, {32, 1, 0, 32}, 6);
  check_linear(one, {1, 1, 1, 1, true}, true, plain);
  check_linear(few, {40, 24, 1, 1, true}, true, plain);
  check_linear(few, {40, 24, 2, 2, false}, true, plain);
  check_linear(few, {33, 35, 2, 1, false}, false, e5m2);
  check_linear(many, {66, 260, 1, 3, false}, true, f32_scales);
  check_linear(many, {132, 136, 2, 1, false}, false, plain);
  check_linear(sparse, {130, 16, 2, 2, false}, false, f32_scales);
  check_gradient(one, 1, 1, plain, true);
  check_gradient(few, 40, 24, plain, true);
  check_gradient(few, 36, 20, e5m2, false);
  check_gradient(many, 33, 136, f32_scales, false);
  check_gradient(sparse, 5, 3, e5m2, false);
  return check_done("cuda.experts_fp8");
}
