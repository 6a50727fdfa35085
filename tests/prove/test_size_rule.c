// SPDX-License-Identifier: Apache-2.0
/* The size rule beside a search over all smaller sizes. */
#include "prove/size_rule.h"
#include "tests/check.h"
#include <stdbool.h>

enum { FULL_MAX = 260, COUNTS = 12 };

static int64_t lcm_by_search(const int64_t *counts, int n) {
  for (int64_t lcm = 1;; lcm++) {
    bool all = true;
    for (int i = 0; i < n; i++) all = all && lcm % counts[i] == 0;
    if (all) return lcm;
  }
}

/* The rule: the smallest n' >= L with n' = n mod L; counts that stay as they are. */
static int64_t smallest_congruent(int64_t full, int64_t lcm, int64_t least) {
  for (int64_t n = 1; n < full; n++)
    if (n >= lcm && n >= least && n % lcm == full % lcm) return n;
  return full;
}

static void check_same_counts(int64_t full, const int64_t *counts, int n, int64_t least) {
  tsr_size_split splits[3];
  for (int i = 0; i < n; i++) splits[i] = (tsr_size_split){"", counts[i], counts[i]};
  int64_t lcm = lcm_by_search(counts, n), got = tsr_size_reduce(full, splits, n, least);
  CHECK_INT(tsr_size_lcm(splits, n), lcm);
  int64_t want = smallest_congruent(full, lcm, least);
  CHECK_AT(
      got == want, "%d split by %d counts, %d and so on, at least %d: %d, not %d", (int)full, n,
      (int)counts[0], (int)least, (int)got, (int)want);
  for (int i = 0; i < n; i++)
    CHECK_AT(
        (full % counts[i] == 0) == (got % counts[i] == 0), "%d to %d: %d divides otherwise",
        (int)full, (int)got, (int)counts[i]);
}

static bool
keeps(int64_t full, int64_t n, const tsr_size_split *splits, int count, bool congruent) {
  bool ok = true;
  for (int i = 0; i < count; i++) {
    ok = ok && (full % splits[i].full == 0) == (n % splits[i].reduced == 0);
    bool divides = splits[i].full % splits[i].reduced == 0;
    ok = ok && (!congruent || !divides || full % splits[i].reduced == n % splits[i].reduced);
  }
  return ok;
}

/* Counts that shrink: the smallest n with the properties that the header promises. */
static void check_shrinking(int64_t full, const tsr_size_split *splits, int count, int *relaxed) {
  int64_t lcm = tsr_size_lcm(splits, count), got = tsr_size_reduce(full, splits, count, 3);
  int64_t want = 0;
  for (int congruent = 1; congruent >= 0 && !want; congruent--)
    for (int64_t n = 3; n <= full && !want; n++)
      if (n >= lcm && keeps(full, n, splits, count, congruent)) want = n, *relaxed += !congruent;
  if (!want) want = full;
  CHECK_AT(
      got == want, "%d split by %d (%d) and %d (%d): %d, not %d", (int)full, (int)splits[0].full,
      (int)splits[0].reduced, (int)splits[1].full, (int)splits[1].reduced, (int)got, (int)want);
}

static void check_rule(void) {
  static const int64_t counts[COUNTS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 31};
  for (int64_t full = 1; full <= FULL_MAX; full++)
    for (int i = 0; i < COUNTS; i++)
      for (int k = i; k < COUNTS; k++) {
        int64_t three[] = {counts[i], counts[k], counts[(i + k) % COUNTS]};
        check_same_counts(full, three, 1, 1);
        check_same_counts(full, three, 2, 3);
        check_same_counts(full, three, 3, 3);
      }
}

static void check_counts_that_shrink(void) {
  static const int64_t pairs[][2] = {{8, 4}, {128, 4}, {6, 3}, {12, 3}, {25, 3}, {16, 16}, {2, 2}};
  enum { PAIRS = sizeof pairs / sizeof *pairs };
  int relaxed = 0;
  for (int64_t full = 1; full <= 4 * FULL_MAX; full++)
    for (int i = 0; i < PAIRS; i++)
      for (int k = 0; k < PAIRS; k++) {
        tsr_size_split splits[] = {{"", pairs[i][0], pairs[i][1]}, {"", pairs[k][0], pairs[k][1]}};
        check_shrinking(full, splits, 2, &relaxed);
      }
  CHECK(relaxed > 0);
}

static void check_axes(void) {
  static const int64_t want[][2] = {{1, 1},  {2, 2},   {3, 3},  {4, 4},   {5, 5},     {6, 3},
                                    {7, 7},  {8, 4},   {9, 3},  {10, 5},  {12, 3},    {14, 7},
                                    {16, 4}, {22, 11}, {64, 4}, {128, 4}, {16384, 4}, {62, 31}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    CHECK_INT(tsr_axis_reduce(want[i][0]), want[i][1]);
  for (int64_t n = 1; n < 3000; n++) {
    int64_t reduced = tsr_axis_reduce(n);
    CHECK_AT(n % reduced == 0 && (n <= 4 || reduced >= 3), "%d to %d", (int)n, (int)reduced);
    for (int64_t d = 3; d < reduced && n > 4; d++)
      CHECK_AT(n % d, "%d: %d is smaller", (int)n, (int)d);
  }
}

/* What ZeRO splits, and what it leaves whole, stays so. */
static void check_axes_alike(void) {
  static const struct {
    int64_t n, sizes[2], want;
  } cases[] = {
      {1000, {16384, 53248}, 5}, {1024, {16384, 53248}, 4}, {20, {64, 8}, 5}, {20, {64, 40}, 5},
      {60, {4, 100}, 3},         {1024, {256, 256}, 4},     {4, {6, 8}, 4},   {7, {6, 14}, 7}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK_INT(tsr_axis_reduce_alike(cases[i].n, cases[i].sizes, 2), cases[i].want);
}

static void check_overflow(void) {
  tsr_size_split splits[] = {{"", 1, ((int64_t)1 << 62) - 1}, {"", 1, ((int64_t)1 << 61) - 1}};
  CHECK(tsr_size_lcm(splits, 2) == INT64_MAX);
  CHECK_INT(tsr_size_reduce(1000, splits, 2, 3), 1000);
}

int main(void) {
  check_rule();
  check_counts_that_shrink();
  check_axes();
  check_axes_alike();
  check_overflow();
  return check_done("size_rule");
}
