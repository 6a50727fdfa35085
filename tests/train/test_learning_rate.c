// SPDX-License-Identifier: Apache-2.0
/* The learning-rate curves against values worked out by hand. */
#include "tests/check.h"
#include "train/learning_rate.h"

typedef struct {
  int64_t step;
  double rate;
} point;

static void check_curve(const tsr_lr_curve *curve, const point *points, int count) {
  for (int i = 0; i < count; i++)
    CHECK_NEAR(tsr_learning_rate(curve, points[i].step), points[i].rate, 1e-15);
}
#define CHECK_CURVE(curve, ...)                                                                    \
  do {                                                                                             \
    const point points_[] = {__VA_ARGS__};                                                         \
    check_curve(&(curve), points_, (int)(sizeof points_ / sizeof *points_));                       \
  } while (0)

int main(void) {
  tsr_lr_curve constant = {
      .kind = TSR_LR_CONSTANT, .base = 3, .total_steps = 10, .warmup_steps = 6};
  CHECK_CURVE(constant, {0, 0}, {1, 0.5}, {5, 2.5}, {6, 3}, {9, 3}, {1000, 3});
  constant.warmup_steps = 0;
  CHECK_CURVE(constant, {0, 3}, {9, 3}, {1000, 3});

  tsr_lr_curve linear = {.kind = TSR_LR_LINEAR, .base = 8, .total_steps = 12, .warmup_steps = 4};
  CHECK_CURVE(linear, {0, 0}, {1, 2}, {3, 6}, {4, 8}, {5, 7}, {11, 1}, {12, 0}, {13, 0});
  linear.min = 4;
  linear.warmup_steps = 0;
  CHECK_CURVE(linear, {0, 8}, {3, 7}, {6, 6}, {11, 4 + 1.0 / 3}, {12, 4}, {99, 4});

  /* tt-train's: 10 % up, then down to a hundredth. */
  tsr_lr_curve tt = {
      .kind = TSR_LR_WARMUP_LINEAR, .base = 100, .min = 7, .total_steps = 109, .warmup_steps = 50};
  CHECK_CURVE(tt, {0, 0}, {1, 10}, {9, 90}, {10, 100}, {11, 99}, {60, 50}, {109, 1}, {200, 1});
  tt.total_steps = 9; /* too short for a warm-up step */
  CHECK_CURVE(tt, {0, 100}, {1, 89}, {9, 1});

  tsr_lr_curve cosine = {
      .kind = TSR_LR_COSINE, .base = 10, .min = 2, .total_steps = 22, .warmup_steps = 10};
  CHECK_CURVE(
      cosine, {0, 0}, {5, 5}, {10, 10}, {13, 6 + 4 * 0.70710678118654752}, {14, 8}, {16, 6},
      {18, 4}, {22, 2}, {23, 2});
  cosine.min = 0; /* transformers: 0.5 * (1 + cos(pi * progress)) */
  CHECK_CURVE(cosine, {12, 10 * 0.9330127018922193}, {14, 7.5}, {22, 0});

  tsr_lr_curve wsd = {
      .kind = TSR_LR_WSD,
      .base = 6,
      .min = 2,
      .total_steps = 11,
      .warmup_steps = 3,
      .stable_steps = 4};
  CHECK_CURVE(wsd, {0, 0}, {2, 4}, {3, 6}, {7, 6}, {8, 5}, {10, 3}, {11, 2}, {12, 2});
  wsd.stable_steps = 100; /* never decays within the run */
  CHECK_CURVE(wsd, {10, 6}, {11, 2});
  return check_done("learning_rate");
}
