// SPDX-License-Identifier: Apache-2.0
/* Rows: norms and softmax, and sums over rows and to one number. */
#include "cuda_check.h"
#include "base/reduction_tree.h"

enum { R = 3 };

/* The rows of a kernel once more, each alone. */
template <typename CALL>
static void check_alone(
    const char *what, const std::vector<numbers> &together, const std::vector<int64_t> &widths,
    CALL call) {
  if (widths[0] > 2000) return; /* of several warps there are shorter ones */
  for (int64_t r = 0; r < R; r++) {
    auto alone = run_all(what, [&](call_arrays &c) { call(c, r, 1); });
    for (size_t i = 0; i < alone.size(); i++)
      check_same(what, alone[i], part(together[i], r * widths[i], widths[i]));
  }
}

static void check_layernorm(tsr_cuda_type type, int64_t C, bool bias) {
  numbers x = rounded(type, random_numbers(R * C, 3)), dy = rounded(type, random_numbers(R * C, 1));
  numbers w = rounded(type, random_numbers(C, 2)), b = rounded(type, random_numbers(C, 1));
  numbers y((size_t)(R * C)), mean(R), rstd(R), dx((size_t)(R * C));
  cpu->layernorm(
      y.data(), mean.data(), rstd.data(), x.data(), w.data(), bias ? b.data() : NULL, C, 0.01f, 0,
      R);
  cpu->layernorm_backward(
      dx.data(), dy.data(), x.data(), w.data(), mean.data(), rstd.data(), C, 0, R);
  auto forward = [&](call_arrays &c, int64_t r, int64_t rows) {
    void *in = c.in(type, part(x, r * C, rows * C)), *scale = c.in(type, w);
    void *shift = bias ? c.in(type, b) : NULL, *out = c.out(type, rows * C);
    float *out_mean = c.out(rows), *out_rstd = c.out(rows);
    tsr_cuda_layernorm(NULL, type, out, out_mean, out_rstd, in, NULL, scale, shift, rows, C, 0.01f);
  };
  auto backward = [&](call_arrays &c, int64_t r, int64_t rows) {
    void *in = c.in(type, part(x, r * C, rows * C)), *scale = c.in(type, w);
    float *m = c.in(part(mean, r, rows)), *f = c.in(part(rstd, r, rows));
    void *d = c.changed(type, part(dy, r * C, rows * C)); /* in place */
    tsr_cuda_layernorm_backward(NULL, type, d, d, in, scale, m, f, NULL, rows, C);
  };
  auto got = run_all("layernorm", [&](call_arrays &c) { forward(c, 0, R); });
  auto slope = run_all("layernorm_backward", [&](call_arrays &c) { backward(c, 0, R); });
  check_near("layernorm", type, got[0], y);
  check_near("mean", TSR_CUDA_F32, got[1], mean);
  check_near("rstd", TSR_CUDA_F32, got[2], rstd);
  check_near("layernorm_backward", type, slope[0], dx, 3e-5);
  check_alone("layernorm", got, {C, 1, 1}, forward);
  check_alone("layernorm_backward", slope, {C}, backward);
}

static void check_rmsnorm(tsr_cuda_type type, int64_t C, float offset) {
  numbers x = rounded(type, random_numbers(R * C, 3)), dy = rounded(type, random_numbers(R * C, 1));
  numbers w = rounded(type, random_numbers(C, 2));
  numbers y((size_t)(R * C)), rstd(R), dx((size_t)(R * C));
  cpu->rmsnorm(y.data(), rstd.data(), x.data(), w.data(), offset, C, 0.01f, 0, R);
  cpu->rmsnorm_backward(dx.data(), dy.data(), x.data(), w.data(), offset, rstd.data(), C, 0, R);
  auto forward = [&](call_arrays &c, int64_t r, int64_t rows) {
    void *in = c.changed(type, part(x, r * C, rows * C)), *scale = c.in(type, w);
    tsr_cuda_rmsnorm(NULL, type, in, c.out(rows), in, NULL, scale, offset, rows, C, 0.01f);
  };
  auto backward = [&](call_arrays &c, int64_t r, int64_t rows) {
    void *in = c.in(type, part(x, r * C, rows * C)), *scale = c.in(type, w);
    float *f = c.in(part(rstd, r, rows));
    void *d = c.in(type, part(dy, r * C, rows * C));
    tsr_cuda_rmsnorm_backward(
        NULL, type, c.out(type, rows * C), d, in, scale, offset, f, NULL, rows, C);
  };
  auto got = run_all("rmsnorm", [&](call_arrays &c) { forward(c, 0, R); });
  auto slope = run_all("rmsnorm_backward", [&](call_arrays &c) { backward(c, 0, R); });
  check_near("rmsnorm", type, got[0], y);
  check_near("rstd", TSR_CUDA_F32, got[1], rstd);
  check_near("rmsnorm_backward", type, slope[0], dx, 3e-5);
  check_alone("rmsnorm", got, {C, 1}, forward);
  check_alone("rmsnorm_backward", slope, {C}, backward);
}

/* A norm that adds the residual, and backward the other gradient, with the bits of one kernel after
 * the other. */
static void check_norm_sums(tsr_cuda_type type, int64_t C, bool layernorm, bool with_row) {
  numbers from = rounded(type, random_numbers(R * C, 3)), row = rounded(type, random_numbers(C, 1));
  numbers plus = rounded(type, random_numbers(R * C, 2)), w = rounded(type, random_numbers(C, 2));
  auto norm = [&](call_arrays &c, void *y, void *x, const tsr_cuda_summands *sum) {
    float *mean = c.out(R), *rstd = c.out(R);
    void *scale = c.in(type, w);
    if (layernorm) tsr_cuda_layernorm(NULL, type, y, mean, rstd, x, sum, scale, NULL, R, C, 0.01f);
    else tsr_cuda_rmsnorm(NULL, type, y, rstd, x, sum, scale, 0, R, C, 0.01f);
  };
  auto slope = [&](call_arrays &c, void *dx, const void *plus) {
    void *x = c.in(type, from), *dy = x, *scale = c.in(type, w);
    float *mean = c.in(numbers(R, 0.25f)), *rstd = c.in(numbers(R, 0.5f));
    if (layernorm)
      tsr_cuda_layernorm_backward(NULL, type, dx, dy, x, scale, mean, rstd, plus, R, C);
    else tsr_cuda_rmsnorm_backward(NULL, type, dx, dy, x, scale, 0, rstd, plus, R, C);
  };
  auto apart = run_all("a sum, then a norm", [&](call_arrays &c) {
    void *x = c.out(type, R * C), *y = c.out(type, R * C), *a = c.in(type, from);
    tsr_cuda_epilogue(
        NULL, type, x, NULL, a, with_row ? c.in(type, row) : NULL, c.in(type, plus), false, R, C);
    norm(c, y, x, NULL);
    void *dx = c.out(type, R * C);
    slope(c, dx, NULL);
    tsr_cuda_add(NULL, type, dx, dx, c.in(type, plus), R * C);
  });
  /* x is `plus`, y is `from`, dx is the gradient that is added */
  auto together = run_all("a norm that adds", [&](call_arrays &c) {
    void *x = c.changed(type, plus), *y = c.changed(type, from);
    tsr_cuda_summands sum = {y, with_row ? c.in(type, row) : NULL, x};
    norm(c, y, x, &sum);
    void *dx = c.changed(type, plus);
    slope(c, dx, dx);
  });
  CHECK_INT(together.size(), apart.size());
  for (size_t i = 0; i < apart.size(); i++) check_same("a norm that adds", together[i], apart[i]);
}

static void check_softmax(tsr_cuda_type type, int64_t C) {
  numbers x = rounded(type, random_numbers(R * C, 8)), dy = rounded(type, random_numbers(R * C, 1));
  if (C > 2) x[1] = -INFINITY;
  numbers y((size_t)(R * C)), dx((size_t)(R * C));
  cpu->softmax(y.data(), x.data(), C, 0, R);
  numbers kept = rounded(type, y);
  cpu->softmax_backward(dx.data(), dy.data(), kept.data(), C, 0, R);
  auto forward = [&](call_arrays &c, int64_t r, int64_t rows) {
    void *in = c.changed(type, part(x, r * C, rows * C));
    tsr_cuda_softmax(NULL, type, in, in, rows, C);
  };
  auto backward = [&](call_arrays &c, int64_t r, int64_t rows) {
    void *p = c.in(type, part(kept, r * C, rows * C));
    void *d = c.in(type, part(dy, r * C, rows * C));
    tsr_cuda_softmax_backward(NULL, type, c.out(type, rows * C), d, p, rows, C);
  };
  auto got = run_all("softmax", [&](call_arrays &c) { forward(c, 0, R); });
  auto slope = run_all("softmax_backward", [&](call_arrays &c) { backward(c, 0, R); });
  check_near("softmax", type, got[0], y);
  if (C > 1) check_near("softmax_backward", type, slope[0], dx);
  check_alone("softmax", got, {C}, forward);
  check_alone("softmax_backward", slope, {C}, backward);
}

/* The header's contract: runs of TSR_CUDA_ROWS rows in their order, added by the stack machine. */
static float
sum_of(const numbers &x, int64_t C, int64_t c, int64_t first, int64_t step, int64_t n) {
  int64_t runs = (n + TSR_CUDA_ROWS - 1) / TSR_CUDA_ROWS;
  float stack[64] = {0};
  int depth = 0;
  for (int64_t run = 0; run < runs; run++) {
    float sum = 0;
    for (int64_t i = run * TSR_CUDA_ROWS; i < n && i < (run + 1) * TSR_CUDA_ROWS; i++)
      sum += x[(size_t)((first + i * step) * C + c)];
    stack[depth++] = sum;
    for (int m = tsr_tree_merges(runs, run); m > 0; m--, depth--)
      stack[depth - 2] += stack[depth - 1];
  }
  return stack[0];
}

static void
check_sum_rows(tsr_cuda_type type, int64_t C, int64_t rows, int64_t first, int64_t step) {
  int64_t n = first + rows * step;
  numbers x = rounded(type, random_numbers(n * C, 1)), want((size_t)C);
  for (int64_t c = 0; c < C; c++) want[(size_t)c] = sum_of(x, C, c, first, step, rows);
  auto got = run_all("sum_rows", [&](call_arrays &c) {
    void *in = c.in(type, x), *scratch = c.scratch(tsr_cuda_sum_rows_scratch(rows, C));
    tsr_cuda_sum_rows(NULL, type, c.out(C), in, scratch, C, first, step, rows);
  });
  check_same("sum_rows", got[0], want);
}

static void check_norm_dw(tsr_cuda_type type, int64_t C, int64_t rows, bool has_mean) {
  int64_t first = 1, step = 2, n = first + rows * step;
  numbers x = rounded(type, random_numbers(n * C, 2)), dy = rounded(type, random_numbers(n * C, 1));
  numbers mean = random_numbers(n, 1), rstd = random_numbers(n, 1), want((size_t)C), all = x;
  for (int64_t i = 0; i < n * C; i++) {
    size_t r = (size_t)(i / C), e = (size_t)i;
    all[e] = dy[e] * ((x[e] - (has_mean ? mean[r] : 0)) * rstd[r]);
  }
  for (int64_t c = 0; c < C; c++) want[(size_t)c] = sum_of(all, C, c, first, step, rows);
  auto got = run_all("norm_dw", [&](call_arrays &c) {
    void *in = c.in(type, x), *d = c.in(type, dy);
    float *m = has_mean ? c.in(mean) : NULL, *f = c.in(rstd);
    void *scratch = c.scratch(tsr_cuda_sum_rows_scratch(rows, C));
    tsr_cuda_norm_dw(NULL, type, c.out(C), d, in, m, f, scratch, C, first, step, rows);
  });
  check_same("norm_dw", got[0], want);
  cpu->norm_dw(
      want.data(), dy.data(), x.data(), has_mean ? mean.data() : NULL, rstd.data(), C, first, step,
      rows, 0, C);
  check_near("norm_dw", TSR_CUDA_F32, got[0], want);
}

/* The sum of units [first, first + count) of heads: the two halves of an even number of units, or
 * three units from left to right. */
static float units_sum(const float *x, int64_t D, int64_t heads, bool flat, int64_t n) {
  float sum = x[0];
  if (n == 1) {
    for (int64_t h = 1; h < heads; h++) sum += x[h * D];
    return sum;
  }
  int64_t lower = flat || n % 2 ? n - 1 : n / 2;
  float before = units_sum(x, D, heads, flat, lower);
  return before + units_sum(x + lower * heads * D, D, heads, flat, n - lower);
}

static void check_sum_heads(tsr_cuda_type type, int64_t D, int64_t heads, int64_t units) {
  int64_t R = 5, C = D * heads * units;
  numbers x = rounded(type, random_numbers(R * C, 1)),
          want[2] = {numbers((size_t)(R * D)), numbers((size_t)(R * D))};
  for (int flat = 0; flat < 2; flat++)
    for (int64_t i = 0; i < R * D; i++)
      want[flat][(size_t)i] = units_sum(&x[(size_t)(i / D * C + i % D)], D, heads, flat, units);
  auto got = run_all("sum_heads", [&](call_arrays &c) {
    void *in = c.in(type, x);
    tsr_cuda_sum_heads(NULL, type, c.out(type, R * D), in, R, D, heads, TSR_TREE_BINARY, units);
    tsr_cuda_sum_heads(NULL, type, c.out(type, R * D), in, R, D, heads, TSR_TREE_FLAT, units);
  });
  for (size_t flat = 0; flat < 2; flat++)
    check_same("sum_heads", got[flat], rounded(type, want[flat]));
}

/* With the bits of the CPU's. */
static void check_sum(int64_t n) {
  numbers x = random_numbers(n, 1);
  numbers sum = {(float)cpu->sum(x.data(), 1, n, n)};
  auto got = run_all("sum", [&](call_arrays &c) {
    float *in = c.in(x);
    tsr_cuda_sum(NULL, c.out(1), in, c.scratch(tsr_cuda_sum_scratch(n)), n);
  });
  check_same("sum", got[0], sum);
}

int main(void) {
  for (int64_t C : odd_sizes)
    for (tsr_cuda_type type : types) {
      check_layernorm(type, C, C % 2);
      check_rmsnorm(type, C, 0);
      check_rmsnorm(type, C, 1);
      for (int i = 0; i < 4; i++) check_norm_sums(type, C, i % 2, i / 2);
      check_softmax(type, C);
      check_sum_rows(type, C, 70, 2, 3);
      check_norm_dw(type, C, 67, C % 2);
    }
  for (int64_t runs = 0; runs <= 50; runs++)
    check_sum_rows(TSR_CUDA_F32, 3, runs * TSR_CUDA_ROWS - runs % 3, 0, 1);
  static const int64_t units[] = {1, 2, 3, 4, 6, 8, 12};
  for (tsr_cuda_type type : types)
    for (int64_t n : units) {
      check_sum_heads(type, 8, 1, n);
      check_sum_heads(type, 13, 3, n);
      check_sum_heads(type, 64, 2, n);
    }
  for (int64_t blocks = 0; blocks <= 14; blocks++) check_sum(blocks * 4096);
  check_sum(70 * 4096 + 11);
  check_sum(77 * 131);
  check_sum(1);
  return check_done("cuda.rows");
}
