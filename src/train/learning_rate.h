// SPDX-License-Identifier: Apache-2.0
/* The learning rate as a function of the step.
 *
 * Step s counts from 0: tsr_learning_rate(curve, s) is what update number s+1 uses, as torch's
 * LambdaLR sets it before that update. W, N: warmup_steps, total_steps. Every curve but
 * `warmup_linear` begins with the warm-up, rate(s) = base * s / W for s < W, so with a warm-up the
 * first update's rate is 0, as in transformers' get_cosine_schedule_with_warmup. After step N the
 * rate stays what it is at N. */
#ifndef TSR_TRAIN_LEARNING_RATE_H
#define TSR_TRAIN_LEARNING_RATE_H
#include "config/config.h"
#include <stdint.h>

typedef enum {
  /* base from W on, transformers' get_constant_schedule_with_warmup; with W = 0 tt-train's
     `identity` */
  TSR_LR_CONSTANT,
  /* from base at W to min at N in a straight line; with min 0 transformers'
     get_linear_schedule_with_warmup */
  TSR_LR_LINEAR,
  /* tt-train's: W = N / 10 (rounded down; warmup_steps is not read): base * s / W before W, then a
   * straight line from base at W to 0.01 * base at N (min is not read) */
  TSR_LR_WARMUP_LINEAR,
  /* min + (base - min) * (1 + cos(pi * (s - W) / (N - W))) / 2 */
  TSR_LR_COSINE,
  /* warm-up, stable, decay: base for stable_steps after W, then a straight line to min at N;
   * tt-train's scheduler_config {max_lr, min_lr, warmup_steps, hold_steps} */
  TSR_LR_WSD,
} tsr_lr_kind;

typedef struct {
  tsr_lr_kind kind;
  double base, min;
  int64_t total_steps;
  int64_t warmup_steps; /* of total_steps at most */
  int64_t stable_steps; /* wsd */
} tsr_lr_curve;

/* Of a run of so many steps. */
tsr_lr_curve tsr_lr_curve_of(const tsr_config *config, int64_t steps);

/* step >= 0 */
double tsr_learning_rate(const tsr_lr_curve *curve, int64_t step);

#endif
