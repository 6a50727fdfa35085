// SPDX-License-Identifier: Apache-2.0
/* Rows of experts and their GEMMs on a GPU. What moves and combines rows has the bits of the CPU's
 * kernels, which tests/kernels compares with definitions. GEMMs are sums in double of the same
 * numbers, exactly where all sums are exact and else to rounding; an element's bits depend neither
 * on other rows, nor on where operands lie, nor on how batch units are divided among calls. All of
 * it with fetches that come early and late. */
#include "expert_case.h"

typedef struct {
  tsr_experts e;
  int64_t S, C, R, rows;
  integers plan;
} rows_case;

static rows_case make_rows(int64_t S, const tsr_experts &e, int64_t C) {
  rows_case r = {e, S, C, room_for(e, S), 0, {}};
  r.plan = cpu_plan(e, {0, 0}, random_choices(S, e.E, e.k), NULL, S, r.R, &r.rows);
  return r;
}

/* ---- rows ---- */

static tsr_leaf_type leaf_of(tsr_cuda_type type) {
  return type == TSR_CUDA_F32 ? TSR_LEAF_F32 : type == TSR_CUDA_BF16 ? TSR_LEAF_BF16 : TSR_LEAF_F16;
}

static void check_moves(const rows_case &r, tsr_cuda_type type) {
  numbers x = rounded(type, random_numbers(r.S * r.C, 1)), rows((size_t)(r.R * r.C));
  numbers bias = rounded(type, random_numbers(r.e.count * r.C, 1)), sums((size_t)(r.R * r.C));
  cpu->permute_rows(rows.data(), x.data(), r.plan.data(), r.e.k, r.C, 0, r.R);
  for (int64_t i = 0; i < r.rows * r.C; i++) {
    int64_t expert = r.plan[(size_t)(i / r.C * 2 + 1)] - r.e.first;
    sums[(size_t)i] = rows[(size_t)i] + bias[(size_t)(expert * r.C + i % r.C)];
  }
  auto got = run_all("rows", [&](call_arrays &c) {
    int32_t *plan = c.in(r.plan);
    void *in = c.in(type, x), *row = c.in(type, bias), *out = c.out(type, r.R * r.C);
    void *changed = c.changed(type, rows);
    tsr_cuda_permute_rows(NULL, out, in, plan, r.R, r.e.k, r.C * (int64_t)type_bytes(type));
    tsr_cuda_expert_add(NULL, type, changed, changed, row, plan, r.e.first, r.R, r.C);
  });
  check_same("permute_rows", got[0], rows);
  check_same("expert_add", got[1], rounded(type, sums));
}

static void check_combine(const rows_case &r, tsr_cuda_type type, tsr_cuda_type tokens) {
  int64_t slots = r.S * r.e.k;
  numbers rows = rounded(type, random_numbers(r.R * r.C, 1)), weights = random_numbers(slots, 1);
  numbers dy = rounded(tokens, random_numbers(r.S * r.C, 1));
  numbers y((size_t)(r.S * r.C)), dx = y, drows((size_t)(r.R * r.C)), dweights((size_t)slots);
  integers row_of((size_t)slots), experts((size_t)slots, -1);
  cpu->expert_row_of(row_of.data(), r.plan.data(), slots, r.R);
  for (int64_t row = 0; row < r.rows; row++)
    experts[(size_t)r.plan[(size_t)(2 * row)]] = r.plan[(size_t)(2 * row + 1)];
  cpu->combine_rows(
      &r.e, leaf_of(type), y.data(), rows.data(), weights.data(), experts.data(), row_of.data(),
      r.C, 0, r.S);
  cpu->combine_rows(
      &r.e, leaf_of(type), dx.data(), rows.data(), NULL, experts.data(), row_of.data(), r.C, 0,
      r.S);
  cpu->combine_rows_backward(
      &r.e, drows.data(), dweights.data(), dy.data(), rows.data(), weights.data(), row_of.data(),
      r.C, 0, r.S);
  auto got = run_all("combine", [&](call_arrays &c) {
    int32_t *plan = c.in(r.plan), *at = out_integers(c, slots);
    void *in = c.in(type, rows), *d = c.in(tokens, dy);
    float *w = c.in(weights);
    tsr_cuda_expert_row_of(NULL, at, plan, slots, r.R);
    void *out = c.out(tokens, r.S * r.C), *sum = c.out(tokens, r.S * r.C);
    tsr_cuda_combine_rows(NULL, &r.e, tokens, out, type, in, w, plan, at, r.S, r.C);
    tsr_cuda_combine_rows(NULL, &r.e, tokens, sum, type, in, NULL, plan, at, r.S, r.C);
    void *back = c.out(type, r.R * r.C);
    tsr_cuda_combine_rows_backward(
        NULL, type, back, c.out(slots), tokens, d, in, w, plan, r.S, r.e.k, r.R, r.C);
  });
  check_integers("expert_row_of", as_integers(got[0]), row_of);
  check_same("combine_rows", got[1], rounded(tokens, y));
  check_same("permute_rows_backward", got[2], rounded(tokens, dx));
  check_same("combine_rows_backward", got[3], rounded(type, drows));
  check_same("dweights", got[4], dweights);
}

static void test_rows() {
  static const tsr_experts cases[] = {{1, 1, 0, 1},  {8, 2, 0, 8},   {8, 2, 4, 2},
                                      {12, 5, 6, 6}, {12, 7, 0, 12}, {64, 6, 32, 32}};
  int call = 0;
  for (const tsr_experts &e : cases)
    for (int64_t C : {1, 40, 264}) {
      rows_case r = make_rows(11, e, C);
      tsr_cuda_type type = types[call++ % 3];
      check_moves(r, type);
      check_combine(r, type, type);
      if (type != TSR_CUDA_F32) check_combine(r, type, TSR_CUDA_F32);
    }
  /* Choices in several chunks, of which some are another rank's; columns in several passes. */
  check_combine(make_rows(2, {2600, 2300, 1300, 1300}, 40), TSR_CUDA_BF16, TSR_CUDA_BF16);
  check_combine(make_rows(2, {1200, 1030, 0, 1200}, 264), TSR_CUDA_F32, TSR_CUDA_F32);
  rows_case r = make_rows(5, cases[1], 24);
  check_combine(r, TSR_CUDA_F32, TSR_CUDA_BF16);
}

/* ---- GEMMs ---- */

static void set_fetches(bool late) {
#if defined(TSR_EMULATED)
  emulator::fetches_late = late;
#else
  (void)late;
#endif
}

/* Small whole numbers, whose sums are exact, or any. */
static numbers operand(tsr_cuda_type type, int64_t n, bool whole) {
  numbers x = random_numbers(n, 1);
  for (float &v : x) v = whole ? rintf(v * 3) : v;
  return rounded(type, x);
}

/* The sum and the sum of magnitudes of an element. */
typedef struct {
  double sum, size;
} exact;

static void check_exact(
    const char *what, const numbers &got, const std::vector<exact> &want, int64_t K, bool whole) {
  int64_t wrong = 0;
  double most = whole ? 0 : (2.0 * (double)K + 4) * 0x1p-23;
  for (size_t i = 0; i < want.size(); i++)
    wrong += !(fabs((double)got[i] - want[i].sum) <= most * want[i].size);
  CHECK_INT(got.size(), want.size());
  CHECK_AT(!wrong, "%s, n %d: %d are wrong", what, (int)want.size(), (int)wrong);
}

typedef struct {
  int64_t N, K, parts; /* the sum is over the last of so many parts */
  bool whole;
} gemm_case;

/* y of a plan's rows. */
static numbers linear(
    const rows_case &r, const gemm_case &g, bool forward, tsr_cuda_type type, tsr_cuda_type to,
    const numbers &x, const numbers &w) {
  int64_t all = g.K * g.parts, first = all - g.K;
  return run_all("expert_linear", [&](call_arrays &c) {
    int32_t *plan = c.in(r.plan);
    int32_t *starts = (int32_t *)c.scratch(4 * (r.e.count + 1));
    int32_t *tiles = (int32_t *)c.scratch(4 * (r.e.count + 1));
    tsr_cuda_expert_segments of = {r.e.first, r.e.count, 1, r.S * r.e.k, r.R, 0};
    of.tile_rows = type == TSR_CUDA_F32 ? 64 : 128;
    tsr_cuda_find_expert_segments(NULL, starts, tiles, plan, &of);
    tsr_cuda_expert_gemm p = {};
    p.form = forward ? TSR_CUDA_EXPERT_FORWARD : TSR_CUDA_EXPERT_DX;
    p.count = r.e.count, p.R = r.R, p.N = g.N, p.K = g.K;
    p.a = (char *)c.in(type, x) + first * (int64_t)type_bytes(type);
    p.b = (char *)c.in(type, w) + (forward ? first : first * g.N) * (int64_t)type_bytes(type);
    p.a_stride = all, p.b_stride = forward ? all : g.N, p.b_expert = all * g.N;
    p.c = c.out(to, r.R * g.N);
    p.c_is_f32 = to == TSR_CUDA_F32;
    p.starts = starts, p.tiles = tiles, p.units = p.end_unit = 1;
    tsr_cuda_run_expert_gemm(NULL, type, &p);
    tsr_cuda_clear_expert_rows(NULL, to, p.c, plan, r.R, g.N);
  })[0];
}

static std::vector<exact> exact_linear(
    const rows_case &r, const gemm_case &g, bool forward, const numbers &x, const numbers &w) {
  int64_t all = g.K * g.parts, first = all - g.K;
  std::vector<exact> y((size_t)(r.R * g.N));
  for (int64_t i = 0; i < r.rows * g.N; i++) {
    int64_t row = i / g.N, n = i % g.N, e = r.plan[(size_t)(2 * row + 1)] - r.e.first;
    for (int64_t k = first; k < all; k++) {
      int64_t at = e * all * g.N + (forward ? n * all + k : k * g.N + n);
      double term = (double)x[(size_t)(row * all + k)] * (double)w[(size_t)at];
      y[(size_t)i].sum += term, y[(size_t)i].size += fabs(term);
    }
  }
  return y;
}

static void check_linear(const rows_case &r, const gemm_case &g, tsr_cuda_type type) {
  int64_t all = g.K * g.parts;
  numbers x = operand(type, r.R * all, g.whole), w = operand(type, r.e.count * all * g.N, g.whole);
  for (int forward = 0; forward < 2; forward++) {
    numbers y = linear(r, g, forward, type, TSR_CUDA_F32, x, w);
    check_exact("expert_linear", y, exact_linear(r, g, forward, x, w), g.K, g.whole);
    set_fetches(true);
    check_same("late fetches", linear(r, g, forward, type, TSR_CUDA_F32, x, w), y);
    set_fetches(false);
    if (type != TSR_CUDA_F32)
      check_same("rounded", linear(r, g, forward, type, type, x, w), rounded(type, y));
    /* The last expert's rows alone. */
    rows_case last = r;
    int64_t first = r.rows, expert = r.e.first + r.e.count - 1;
    while (first > 0 && r.plan[(size_t)(2 * first - 1)] == expert) first--;
    last.plan = integers(r.plan.begin() + 2 * first, r.plan.end());
    last.R -= first, last.rows -= first;
    check_same(
        "rows alone",
        linear(last, g, forward, type, TSR_CUDA_F32, part(x, first * all, last.R * all), w),
        part(y, first * g.N, last.R * g.N));
  }
}

/* dw over batch units [cuts[i], cuts[i + 1]), one call after the other. */
static numbers gradient(
    const rows_case &r, int64_t units, const std::vector<int64_t> &cuts, tsr_cuda_type type,
    const numbers &dy, const numbers &x, int64_t N, int64_t K) {
  return run_all("expert_linear_dw", [&](call_arrays &c) {
    int32_t *plan = c.in(r.plan);
    int32_t *starts = (int32_t *)c.scratch(4 * (r.e.count * units + 1));
    tsr_cuda_expert_segments of = {r.e.first, r.e.count, units, r.S / units * r.e.k, r.R, 0};
    tsr_cuda_find_expert_segments(NULL, starts, NULL, plan, &of);
    tsr_cuda_expert_gemm p = {};
    p.form = TSR_CUDA_EXPERT_DW;
    p.count = r.e.count, p.R = r.R, p.M = N, p.N = K;
    p.a = c.in(type, dy), p.b = K ? c.in(type, x) : NULL;
    p.a_stride = N, p.b_stride = K;
    float *out = c.out(r.e.count * N * (K ? K : 1));
    p.c = out, p.c_is_f32 = true, p.starts = starts, p.units = units;
    for (size_t i = 0; i + 1 < cuts.size(); i++) {
      p.first_unit = cuts[i], p.end_unit = cuts[i + 1], p.adds = i > 0;
      if (K) tsr_cuda_run_expert_gemm(NULL, type, &p);
      else
        tsr_cuda_expert_row_sums(
            NULL, type, out, p.a, starts, r.e.count, N, units, cuts[i], cuts[i + 1], i > 0);
    }
  })[0];
}

/* K 0: the gradient of biases. */
static void check_gradient(
    const rows_case &r, int64_t units, int64_t N, int64_t K, tsr_cuda_type type, bool whole) {
  numbers dy = operand(type, r.R * N, whole), x = operand(type, r.R * K, whole);
  numbers got = gradient(r, units, {0, units}, type, dy, x, N, K);
  int64_t columns = K ? K : 1;
  std::vector<exact> want((size_t)(r.e.count * N * columns));
  for (int64_t row = 0; row < r.rows; row++)
    for (int64_t n = 0; n < N; n++)
      for (int64_t k = 0; k < columns; k++) {
        int64_t e = r.plan[(size_t)(2 * row + 1)] - r.e.first;
        double term = dy[(size_t)(row * N + n)] * (K ? (double)x[(size_t)(row * K + k)] : 1);
        exact *at = &want[(size_t)((e * N + n) * columns + k)];
        at->sum += term, at->size += fabs(term);
      }
  check_exact("expert_linear_dw", got, want, r.rows, whole);
  if (units == 1) return;
  set_fetches(true);
  check_same(
      "units in several calls", gradient(r, units, {0, 1, units / 2 + 1, units}, type, dy, x, N, K),
      got);
  set_fetches(false);
}

static void test_gemms() {
  rows_case one = make_rows(1, {1, 1, 0, 1}, 1), few = make_rows(24, {8, 2, 4, 4}, 1),
            many = make_rows(150, {3, 2, 0, 3}, 1), sparse = make_rows(6, {32, 1, 0, 32}, 1);
  for (tsr_cuda_type type : types) {
    check_linear(one, {1, 1, 1, true}, type);
    check_linear(few, {40, 24, 1, true}, type);
    check_linear(few, {33, 35, 2, true}, type);
    check_linear(many, {72, 136, 1, false}, type);
    check_linear(sparse, {130, 16, 2, false}, type);
    check_gradient(one, 1, 1, 1, type, true);
    check_gradient(few, 4, 40, 24, type, true);
    check_gradient(many, 3, 33, 136, type, false);
    check_gradient(sparse, 6, 5, 3, type, false);
    check_gradient(few, 4, 33, 0, type, true);
    check_gradient(many, 3, 5, 0, type, false);
  }
}

int main() {
  test_rows();
  test_gemms();
  return check_done("cuda.experts");
}
