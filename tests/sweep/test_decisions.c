// SPDX-License-Identifier: Apache-2.0
/* Rankings, rungs and how many go on, against counts that no sort makes. */
#include "sweep/halving.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>

static uint32_t state = 1;
static int draw(int below) {
  state = state * 1664525u + 1013904223u;
  return (int)((state >> 8) % (uint32_t)below);
}

static bool is_better(const tsr_sweep_score *a, const tsr_sweep_score *b) {
  double x = isfinite(a->objective) ? a->objective : INFINITY;
  double y = isfinite(b->objective) ? b->objective : INFINITY;
  return x < y || (x == y && a->run < b->run);
}

/* Runs with few different objectives, so that many are equal, in any order. */
static int make(tsr_sweep_score *scores) {
  static const double values[] = {0, -0.0, 1, 1.5, -2, NAN, INFINITY, -INFINITY};
  int count = 1 + draw(12);
  for (int i = 0; i < count; i++) scores[i] = (tsr_sweep_score){i + 1, values[draw(8)]};
  for (int i = count - 1; i > 0; i--) {
    int k = draw(i + 1);
    tsr_sweep_score other = scores[i];
    scores[i] = scores[k];
    scores[k] = other;
  }
  return count;
}

static void test_ranking(void) {
  for (int number = 0; number < 2000; number++) {
    tsr_sweep_score before[12], after[12];
    int count = make(before), eta = 2 + draw(4), wanted[12], finite = 0;
    for (int i = 0; i < count; i++) {
      int better = 0;
      for (int k = 0; k < count; k++) better += is_better(&before[k], &before[i]);
      wanted[better] = before[i].run;
      finite += isfinite(before[i].objective) != 0;
      after[i] = before[i];
    }
    tsr_sweep_rank(after, count);
    for (int i = 0; i < count; i++) CHECK_INT(after[i].run, wanted[i]);
    int most = 0; /* the largest number of which eta times as many are there */
    while ((most + 1) * eta <= count) most++;
    if (!most) most = 1;
    CHECK_INT(tsr_halving_kept(after, count, eta), most < finite ? most : finite);
  }
}

static void test_rungs(void) {
  int64_t rungs[64];
  int count;
  CHECK(tsr_halving_rungs(3, 30, 270, rungs, &count));
  CHECK_INT(count, 3);
  CHECK_INT(rungs[1], 90);
  CHECK_INT(rungs[2], 270);
  CHECK(tsr_halving_rungs(4, 7, 7, rungs, &count));
  CHECK_INT(count, 1);
  CHECK(!tsr_halving_rungs(3, 30, 300, rungs, &count));
  CHECK_INT(rungs[count - 1], 270);
  CHECK(!tsr_halving_rungs(2, 1, INT64_MAX, rungs, &count));
  CHECK_INT(count, 63);
  CHECK_INT(rungs[62], INT64_C(1) << 62);
}

int main(void) {
  test_ranking();
  test_rungs();
  return check_done("sweep.decisions");
}
