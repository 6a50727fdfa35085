// SPDX-License-Identifier: Apache-2.0
/* Cross entropy over a vocabulary that may be sharded, and squared error. */
#include "base/reduction_tree.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/level.h"
#include <assert.h>

enum { PIECE = 512 };

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/* As row_exp_sum, but nothing is kept. */
static float exp_sum(const float *x, float max, int64_t n) {
  float buffer[PIECE];
  lanes sum = {{{0}}};
  int64_t i = 0;
  for (; i + PIECE <= n; i += PIECE) {
#pragma omp simd
    for (int j = 0; j < PIECE; j++) buffer[j] = real_exp(x[i + j] - max);
    for (int j = 0; j < PIECE; j += LANES) lanes_add(&sum, buffer + j);
  }
  int64_t rest = n - i, whole = rest / LANES * LANES;
#pragma omp simd
  for (int64_t j = 0; j < rest; j++) buffer[j] = real_exp(x[i + j] - max);
  for (int64_t j = 0; j < whole; j += LANES) lanes_add(&sum, buffer + j);
  return lanes_finish_sum(&sum, buffer + whole, rest - whole);
}

void LEVEL(softmax_stats)(
    float *stats, const float *logits, const int32_t *targets, int64_t V_local, int64_t v_begin,
    int64_t v_valid, int64_t units, int64_t begin, int64_t end) {
  assert(units > 0 && V_local % units == 0);
  int64_t run = V_local / units;
  for (int64_t r = begin; r < end; r++)
    for (int64_t unit = 0; unit < units; unit++) {
      int64_t first = v_begin + unit * run, valid = clamp(v_valid - first, 0, run);
      const float *x = logits + r * V_local + unit * run;
      float *out = stats + (r * units + unit) * 3;
      int64_t target = targets[r] - first;
      out[0] = row_max(x, valid);
      out[1] = valid > 0 ? exp_sum(x, out[0], valid) : 0;
      out[2] = targets[r] >= 0 && target >= 0 && target < valid ? x[target] : 0;
    }
}

typedef struct {
  float max, sum, target;
} unit_stats;

static unit_stats merge(unit_stats a, unit_stats b) {
  unit_stats c = {a.max > b.max ? a.max : b.max, 0, a.target + b.target};
  float left = a.sum == 0 ? 0 : a.sum * real_exp(a.max - c.max); /* all padding: -inf - -inf */
  float right = b.sum == 0 ? 0 : b.sum * real_exp(b.max - c.max);
  c.sum = left + right;
  return c;
}

static unit_stats merge_units(const float *stats, int64_t units) {
  unit_stats stack[TSR_TREE_DEPTH_MAX];
  tsr_tree_stack tree = {0};
  for (int64_t unit = 0; unit < units; unit++) {
    const float *s = stats + unit * 3;
    stack[tsr_tree_push(&tree, tsr_tree_merges(units, unit))] = (unit_stats){s[0], s[1], s[2]};
    for (int low; tsr_tree_merge(&tree, &low);) stack[low] = merge(stack[low], stack[low + 1]);
  }
  assert(tree.entries == 1);
  return stack[0];
}

void LEVEL(softmax_loss)(
    float *row_loss, float *row_stats, const float *stats, const int32_t *targets, int64_t units,
    int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    unit_stats s = merge_units(stats + r * units * 3, units);
    row_stats[r * 2] = s.max;
    row_stats[r * 2 + 1] = s.sum;
    double loss = (double)s.max + double_log(s.sum) - (double)s.target;
    row_loss[r] = targets[r] < 0 ? 0 : isfinite(s.sum) && s.sum > 0 ? (float)loss : NAN;
  }
}

void LEVEL(softmax_loss_backward)(
    float *dlogits, const float *logits, const float *row_stats, const int32_t *targets,
    float factor, int64_t V_local, int64_t v_begin, int64_t v_valid, int64_t begin, int64_t end) {
  int64_t valid = clamp(v_valid - v_begin, 0, V_local);
  for (int64_t r = begin; r < end; r++) {
    const float *x = logits + r * V_local;
    float *out = dlogits + r * V_local;
    if (targets[r] < 0) {
      memset(out, 0, (size_t)V_local * sizeof *out);
      continue;
    }
    float max = row_stats[r * 2], share = 1.0f / row_stats[r * 2 + 1];
    int64_t target = targets[r] - v_begin;
    bool here = target >= 0 && target < valid;
    float logit = here ? x[target] : 0; /* dlogits may be logits */
#pragma omp simd
    for (int64_t c = 0; c < valid; c++) out[c] = real_exp(x[c] - max) * share * factor;
    if (here) out[target] = (real_exp(logit - max) * share - 1) * factor;
    memset(out + valid, 0, (size_t)(V_local - valid) * sizeof *out);
  }
}

void LEVEL(squared_error)(
    float *row_loss, const float *x, const float *y, int64_t C, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const float *a = x + r * C, *b = y + r * C;
    lanes sum = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= C; i += LANES) EACH_VECTOR(k) {
        vector d = lanes_load(a + i, k) - lanes_load(b + i, k);
        sum.v[k] += d * d;
      }
    float t[LANES];
    memcpy(t, &sum, sizeof t);
    for (int64_t l = 0; l < C - i; l++) t[l] += (a[i + l] - b[i + l]) * (a[i + l] - b[i + l]);
    row_loss[r] = lanes_fold_sum(t);
  }
}

void LEVEL(squared_error_backward)(
    float *dx, const float *x, const float *y, float factor, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; i++) dx[i] = 2 * (x[i] - y[i]) * factor;
}
