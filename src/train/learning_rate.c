// SPDX-License-Identifier: Apache-2.0
#include "train/learning_rate.h"
#include <assert.h>
#include <math.h>

static const double PI = 3.14159265358979323846;
static const double TT_TRAIN_LAST = 0.01;

/* How far `step` is from `begin` to `end`, 0 to 1; 1 where that stretch is empty. */
static double share(int64_t step, int64_t begin, int64_t end) {
  if (step >= end) return 1;
  return step <= begin ? 0 : (double)(step - begin) / (double)(end - begin);
}

static double line(double from, double to, double at) { return from + (to - from) * at; }

double tsr_learning_rate(const tsr_lr_curve *curve, int64_t step) {
  assert(step >= 0);
  double base = curve->base, min = curve->min;
  int64_t total = curve->total_steps, warmup = curve->warmup_steps;
  if (curve->kind == TSR_LR_WARMUP_LINEAR) {
    warmup = total / 10;
    min = TT_TRAIN_LAST * base;
  }
  if (step < warmup) return base * ((double)step / (double)warmup);
  if (curve->kind == TSR_LR_CONSTANT) return base;
  if (curve->kind == TSR_LR_COSINE)
    return min + (base - min) * (0.5 * (1 + cos(PI * share(step, warmup, total))));
  int64_t decay_begin = curve->kind == TSR_LR_WSD ? warmup + curve->stable_steps : warmup;
  return line(base, min, share(step, decay_begin, total));
}

tsr_lr_curve tsr_lr_curve_of(const tsr_config *c, int64_t steps) {
  return (tsr_lr_curve){
      .kind = (tsr_lr_kind)c->scheduler.type,
      .base = c->scheduler.max_lr,
      .min = c->scheduler.min_lr,
      .total_steps = steps,
      .warmup_steps = c->scheduler.warmup_steps,
      .stable_steps = c->scheduler.stable_steps};
}
