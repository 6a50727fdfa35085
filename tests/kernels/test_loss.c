// SPDX-License-Identifier: Apache-2.0
/* Cross entropy over shards of a padded vocabulary, squared error, and the sums in double. */
#include "kernel_check.h"
#include "base/reduction_tree.h"

typedef struct {
  int64_t R, V, valid, units; /* columns, of which the first `valid` count */
  float *logits;
  int32_t *targets;
  double *loss, *gradient;
} loss_case;

static const double factor = 0.125;

static double row_loss(const double *x, int64_t valid, int64_t target) {
  double max = -INFINITY, sum = 0;
  for (int64_t v = 0; v < valid; v++) max = fmax(max, x[v]);
  for (int64_t v = 0; v < valid; v++) sum += exp(x[v] - max);
  return max + log(sum) - x[target];
}

typedef struct {
  int64_t valid, target;
} row_context;

static double row_loss_at(const double *x, void *context) {
  const row_context *row = context;
  return row_loss(x, row->valid, row->target);
}

static loss_case case_new(int64_t R, int64_t V, int64_t valid, int64_t units) {
  loss_case c = {
      R,
      V,
      valid,
      units,
      input_new(R * V, 20),
      check_alloc((size_t)R * 4),
      reference_new(R),
      reference_new(R * V)};
  double *x = to_double(c.logits, R * V);
  for (int64_t r = 0; r < R; r++) {
    c.targets[r] = r % 5 == 3 ? -100 : (int32_t)(check_random() % (uint64_t)valid);
    if (c.targets[r] < 0) continue;
    row_context row = {valid, c.targets[r]};
    c.loss[r] = row_loss(x + r * V, valid, c.targets[r]);
    for (int64_t v = 0; v < valid; v++)
      c.gradient[r * V + v] = factor * slope_at(row_loss_at, x + r * V, v, &row);
  }
  free(x);
  return c;
}

static void case_free(loss_case *c) {
  free(c->logits), free(c->targets), free(c->loss), free(c->gradient);
}

static void case_check(const tsr_kernels *k, const loss_case *c) {
  int64_t R = c->R, V = c->V;
  output stats = output_new(R * c->units * 3), loss = output_new(R), rows = output_new(2 * R);
  output gradient = output_new(R * V), in_place = output_from(c->logits, R * V);
  RUN(R, k->softmax_stats(
             stats.pass[pass], c->logits, c->targets, V, 0, c->valid, c->units, begin, end));
  RUN(R, k->softmax_loss(
             loss.pass[pass], rows.pass[pass], stats.pass[0], c->targets, c->units, begin, end));
  RUN(R, k->softmax_loss_backward(
             gradient.pass[pass], c->logits, rows.pass[0], c->targets, (float)factor, V, 0,
             c->valid, begin, end));
  RUN(R, k->softmax_loss_backward(
             in_place.pass[pass], in_place.pass[pass], rows.pass[0], c->targets, (float)factor, V,
             0, c->valid, begin, end));
  CHECK_OUTPUT(stats, NULL, 0, 0);
  CHECK_OUTPUT(rows, NULL, 0, 0);
  CHECK_OUTPUT(loss, c->loss, 2e-6, 1);
  CHECK_OUTPUT(gradient, c->gradient, 2e-6, 0.1);
  CHECK_OUTPUT(in_place, c->gradient, 2e-6, 0.1);
  output_free(&stats), output_free(&rows), output_free(&loss), output_free(&gradient);
  output_free(&in_place);
}

/* Each unit as a shard of its own gives the bits of its part of the whole. */
static void check_shards(const tsr_kernels *k, const loss_case *c) {
  int64_t R = c->R, V = c->V, run = V / c->units;
  output whole = output_new(R * c->units * 3), part = output_new(R * 3), rows = output_new(2 * R);
  output loss = output_new(R), gradient = output_new(R * V), shard = output_new(R * run);
  float *columns = check_alloc((size_t)(R * run) * sizeof *columns);
  k->softmax_stats(whole.pass[0], c->logits, c->targets, V, 0, c->valid, c->units, 0, R);
  k->softmax_loss(loss.pass[0], rows.pass[0], whole.pass[0], c->targets, c->units, 0, R);
  k->softmax_loss_backward(
      gradient.pass[0], c->logits, rows.pass[0], c->targets, 1, V, 0, c->valid, 0, R);
  for (int64_t unit = 0; unit < c->units; unit++) {
    for (int64_t i = 0; i < R * run; i++)
      columns[i] = c->logits[i / run * V + unit * run + i % run];
    k->softmax_stats(part.pass[0], columns, c->targets, run, unit * run, c->valid, 1, 0, R);
    k->softmax_loss_backward(
        shard.pass[0], columns, rows.pass[0], c->targets, 1, run, unit * run, c->valid, 0, R);
    for (int64_t r = 0; r < R; r++) {
      CHECK(!memcmp(
          part.pass[0] + r * 3, whole.pass[0] + (r * c->units + unit) * 3, 3 * sizeof(float)));
      CHECK(!memcmp(
          shard.pass[0] + r * run, gradient.pass[0] + r * V + unit * run,
          (size_t)run * sizeof(float)));
    }
  }
  output_free(&whole), output_free(&part), output_free(&rows), output_free(&loss);
  output_free(&gradient), output_free(&shard);
  free(columns);
}

static void test_softmax_loss(const tsr_kernels *k) {
  static const int64_t shapes[][4] = {{1, 1, 1, 1},   {7, 17, 17, 1},     {6, 36, 33, 4},
                                      {5, 96, 20, 3}, {3, 1560, 1501, 2}, {11, 100, 100, 5}};
  for (int i = 0; i < 6; i++) {
    loss_case c = case_new(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
    case_check(k, &c);
    check_shards(k, &c);
    case_free(&c);
  }
}

static void test_squared_error(const tsr_kernels *k) {
  EACH_SIZE(C) {
    int64_t R = 4;
    float *x = input_new(R * C, 2), *y = input_new(R * C, 2);
    double *want = reference_new(R), *want_dx = reference_new(R * C);
    for (int64_t i = 0; i < R * C; i++) {
      double d = (double)x[i] - y[i];
      want[i / C] += d * d;
      want_dx[i] = 2 * d * factor;
    }
    output loss = output_new(R), dx = output_new(R * C);
    RUN(R, k->squared_error(loss.pass[pass], x, y, C, begin, end));
    RUN(R * C, k->squared_error_backward(dx.pass[pass], x, y, (float)factor, begin, end));
    CHECK_OUTPUT(loss, want, 1e-6, 1e-3);
    CHECK_OUTPUT(dx, want_dx, 1e-6, 1);
    output_free(&loss), output_free(&dx);
    free(x), free(y), free(want), free(want_dx);
  }
}

static void check_sum(const tsr_kernels *k, int64_t rows, int64_t cols, int64_t stride) {
  float *x = input_new(rows * stride, 2), *packed = input_new(rows * cols, 1);
  double want = 0, want_squares = 0;
  for (int64_t i = 0; i < rows * cols; i++) {
    packed[i] = x[i / cols * stride + i % cols];
    want += packed[i];
    want_squares += (double)packed[i] * packed[i];
  }
  CHECK_NEAR(k->sum(x, rows, cols, stride), want, 1e-12);
  CHECK_NEAR(k->sum_squares(x, rows, cols, stride), want_squares, 1e-12);
  CHECK(k->sum(x, rows, cols, stride) == k->sum(packed, 1, rows * cols, rows * cols));
  CHECK(k->sum_squares(x, rows, cols, stride) == k->sum_squares(packed, rows, cols, cols));
  /* aligned blocks are subtrees */
  int64_t total = rows * cols, blocks = total / TSR_SUM_BLOCK;
  if (total % TSR_SUM_BLOCK == 0 && blocks % 2 == 0) {
    double left = k->sum(packed, 1, total / 2, total / 2);
    double right = k->sum(packed + total / 2, 1, total / 2, total / 2);
    CHECK(left + right == k->sum(packed, 1, total, total));
  }
  free(x), free(packed);
}

static void test_sum(const tsr_kernels *k) {
  EACH_SIZE(n) check_sum(k, 1, n, n);
  check_sum(k, 33, 257, 300);
  check_sum(k, 130, 100, 100);
  check_sum(k, 8, 4096, 4100);
  check_sum(k, 3, 9000, 9001);
  check_sum(k, 0, 5, 5);
}

int main(void) {
  each_level(test_softmax_loss);
  each_level(test_squared_error);
  each_level(test_sum);
  return check_done("kernels.loss");
}
