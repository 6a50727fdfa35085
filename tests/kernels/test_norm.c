// SPDX-License-Identifier: Apache-2.0
/* Row kernels against references in double; gradients against central differences of those. */
#include "kernel_check.h"

typedef enum { LAYERNORM, RMSNORM, SOFTMAX } row_kind;

typedef struct {
  row_kind kind;
  int64_t C;
  const float *w, *b, *dy;
} row_context;

static const double eps = 1e-5;

static void
row_forward(const row_context *c, const double *x, double *y, double *mean, double *rstd) {
  double center = 0, squares = 0, max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < c->C; i++) center += x[i] / (double)c->C;
  if (c->kind != LAYERNORM) center = 0;
  for (int64_t i = 0; i < c->C; i++) squares += (x[i] - center) * (x[i] - center) / (double)c->C;
  for (int64_t i = 0; i < c->C; i++) max = fmax(max, x[i]);
  for (int64_t i = 0; i < c->C; i++) sum += exp(x[i] - max);
  *mean = center;
  *rstd = 1 / sqrt(squares + (double)(float)eps);
  for (int64_t i = 0; i < c->C; i++)
    y[i] = c->kind == SOFTMAX ? exp(x[i] - max) / sum
                              : (x[i] - center) * *rstd * c->w[i] + (c->b ? c->b[i] : 0);
}

static double row_loss(const double *x, void *context) {
  const row_context *c = context;
  static double y[4096];
  double mean, rstd, loss = 0;
  row_forward(c, x, y, &mean, &rstd);
  for (int64_t i = 0; i < c->C; i++) loss += y[i] * c->dy[i];
  return loss;
}

typedef struct {
  double *y, *mean, *rstd, *dx;
} row_reference;

static row_reference reference_make(row_context c, const float *x, const float *dy, int64_t R) {
  row_reference want = {
      reference_new(R * c.C), reference_new(R), reference_new(R), reference_new(R * c.C)};
  double *in = to_double(x, R * c.C);
  for (int64_t r = 0; r < R; r++) {
    c.dy = dy + r * c.C;
    row_forward(&c, in + r * c.C, want.y + r * c.C, &want.mean[r], &want.rstd[r]);
    for (int64_t i = 0; i < c.C; i++)
      want.dx[r * c.C + i] = slope_at(row_loss, in + r * c.C, i, &c);
  }
  free(in);
  return want;
}

static void reference_free(row_reference *want) {
  free(want->y), free(want->mean), free(want->rstd), free(want->dx);
}

static void check_layernorm(const tsr_kernels *k, int64_t R, int64_t C, bool bias) {
  float *x = input_new(R * C, 3), *w = input_new(C, 2), *b = input_new(C, 1);
  float *dy = input_new(R * C, 1);
  row_context c = {LAYERNORM, C, w, bias ? b : NULL, NULL};
  row_reference want = reference_make(c, x, dy, R);
  output y = output_new(R * C), mean = output_new(R), rstd = output_new(R), dx = output_new(R * C);
  RUN(R, k->layernorm(
             y.pass[pass], mean.pass[pass], rstd.pass[pass], x, w, c.b, C, 1e-5f, begin, end));
  RUN(R, k->layernorm_backward(dx.pass[pass], dy, x, w, mean.pass[0], rstd.pass[0], C, begin, end));
  double rounding = C == 1 ? 1 : 1e-5; /* one column: 0 times a huge rstd */
  CHECK_OUTPUT(y, want.y, rounding, 1);
  CHECK_OUTPUT(mean, want.mean, 1e-6, 1);
  CHECK_OUTPUT(rstd, want.rstd, 1e-5, 1e-3);
  if (C > 1) CHECK_OUTPUT(dx, want.dx, 3e-5, 1);
  output_free(&y), output_free(&mean), output_free(&rstd), output_free(&dx);
  reference_free(&want);
  free(x), free(w), free(b), free(dy);
}

/* The reference has the weights that are stored, plus the offset. */
static void check_rmsnorm(const tsr_kernels *k, int64_t R, int64_t C, float offset) {
  float *x = input_new(R * C, 3), *w = input_new(C, 2), *dy = input_new(R * C, 1);
  float *whole = input_new(C, 2);
  for (int64_t c = 0; c < C; c++) whole[c] = w[c] + offset;
  row_reference want = reference_make((row_context){RMSNORM, C, whole, NULL, NULL}, x, dy, R);
  output y = output_new(R * C), rstd = output_new(R), dx = output_new(R * C);
  RUN(R, k->rmsnorm(y.pass[pass], rstd.pass[pass], x, w, offset, C, 1e-5f, begin, end));
  RUN(R, k->rmsnorm_backward(dx.pass[pass], dy, x, w, offset, rstd.pass[0], C, begin, end));
  CHECK_OUTPUT(y, want.y, 2e-6, 1);
  CHECK_OUTPUT(rstd, want.rstd, 1e-6, 1e-3);
  CHECK_OUTPUT(dx, want.dx, 1e-5, 1);
  output_free(&y), output_free(&rstd), output_free(&dx);
  reference_free(&want);
  free(x), free(w), free(whole), free(dy);
}

static void check_softmax(const tsr_kernels *k, int64_t R, int64_t C) {
  float *x = input_new(R * C, 10), *dy = input_new(R * C, 1);
  row_reference want = reference_make((row_context){SOFTMAX, C, NULL, NULL, NULL}, x, dy, R);
  output y = output_new(R * C), dx = output_new(R * C), in_place = output_from(x, R * C);
  RUN(R, k->softmax(y.pass[pass], x, C, begin, end));
  RUN(R, k->softmax(in_place.pass[pass], in_place.pass[pass], C, begin, end));
  RUN(R, k->softmax_backward(dx.pass[pass], dy, y.pass[0], C, begin, end));
  CHECK_OUTPUT(y, want.y, 2e-6, 1e-6);
  CHECK_OUTPUT(in_place, want.y, 2e-6, 1e-6);
  CHECK_OUTPUT(dx, want.dx, 2e-6, 0.1);
  output_free(&y), output_free(&dx), output_free(&in_place);
  reference_free(&want);
  free(x), free(dy);
}

static void test_rows(const tsr_kernels *k) {
  static const int64_t widths[] = {1, 3, 7, 17, 33, 65, 100, 257};
  for (int i = 0; i < 8; i++) {
    int64_t R = 1 + i * 7 % 12, C = widths[i];
    check_layernorm(k, R, C, true);
    check_layernorm(k, R, C, false);
    check_rmsnorm(k, R, C, 0);
    check_rmsnorm(k, R, C, 1);
    check_softmax(k, R, C);
  }
}

static void test_broadcast(const tsr_kernels *k) {
  EACH_SIZE(C) {
    int64_t R = 5, n = R * C;
    float *x = input_new(n, 3), *row = input_new(C, 2);
    double *want_sum = reference_new(n), *want_mul = reference_new(n);
    for (int64_t i = 0; i < n; i++) want_sum[i] = x[i] + row[i % C];
    for (int64_t i = 0; i < n; i++) want_mul[i] = x[i] * row[i % C];
    output sum = output_new(n), mul = output_new(n);
    RUN(R, k->add_row(sum.pass[pass], x, row, C, begin, end));
    RUN(R, k->mul_row(mul.pass[pass], x, row, C, begin, end));
    CHECK_OUTPUT(sum, want_sum, 0, 0);
    CHECK_OUTPUT(mul, want_mul, 0, 0);
    output_free(&sum), output_free(&mul);
    free(x), free(row), free(want_sum), free(want_mul);
  }
}

/* Rows first, first + step, … of (R, C); the running sum in float gives the very bits. */
static void check_sums(const tsr_kernels *k, int64_t R, int64_t C, int64_t first, int64_t step) {
  int64_t rows = (R - first + step - 1) / step;
  float *x = input_new(R * C, 3), *dy = input_new(R * C, 1);
  float *mean = input_new(R, 1), *rstd = input_new(R, 2);
  double *want_sum = reference_new(C), *want_dw = reference_new(C), *want_rms = reference_new(C);
  for (int64_t c = 0; c < C; c++) {
    float running = 0;
    for (int64_t r = first; r < R; r += step) {
      running += x[r * C + c];
      want_dw[c] += (double)dy[r * C + c] * ((double)x[r * C + c] - mean[r]) * rstd[r];
      want_rms[c] += (double)dy[r * C + c] * x[r * C + c] * rstd[r];
    }
    want_sum[c] = running;
  }
  output sum = output_new(C), dw = output_new(C), rms = output_new(C);
  RUN(C, k->sum_rows(sum.pass[pass], x, C, first, step, rows, begin, end));
  RUN(C, k->norm_dw(dw.pass[pass], dy, x, mean, rstd, C, first, step, rows, begin, end));
  RUN(C, k->norm_dw(rms.pass[pass], dy, x, NULL, rstd, C, first, step, rows, begin, end));
  CHECK_OUTPUT(sum, want_sum, 0, 0);
  CHECK_OUTPUT(dw, want_dw, 1e-5, 1);
  CHECK_OUTPUT(rms, want_rms, 1e-5, 1);
  output_free(&sum), output_free(&dw), output_free(&rms);
  free(x), free(dy), free(mean), free(rstd), free(want_sum), free(want_dw), free(want_rms);
}

static void test_sums(const tsr_kernels *k) {
  EACH_SIZE(C) {
    check_sums(k, 1, C, 0, 1);
    check_sums(k, 29, C, 0, 1);
    check_sums(k, 30, C, 2, 5);
  }
  check_sums(k, 3, 2500, 0, 1);
}

int main(void) {
  each_level(test_rows);
  each_level(test_broadcast);
  each_level(test_sums);
  return check_done("kernels.norm");
}
