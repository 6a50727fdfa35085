// SPDX-License-Identifier: Apache-2.0
#include "prove/size_rule.h"
#include <stdbool.h>
#include <stddef.h>

static int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

int64_t tsr_size_lcm(const tsr_size_split *splits, int count) {
  int64_t lcm = 1;
  for (int i = 0; i < count; i++)
    if (__builtin_mul_overflow(
            lcm / greatest_divisor(lcm, splits[i].reduced), splits[i].reduced, &lcm))
      return INT64_MAX;
  return lcm;
}

static bool divides_alike(int64_t full, int64_t n, const tsr_size_split *c) {
  return (full % c->full == 0) == (n % c->reduced == 0);
}

static bool is_congruent(int64_t full, int64_t n, const tsr_size_split *c) {
  return c->full % c->reduced || full % c->reduced == n % c->reduced;
}

static bool
keeps(int64_t full, int64_t n, const tsr_size_split *splits, int count, bool congruent) {
  for (int i = 0; i < count; i++)
    if (!divides_alike(full, n, &splits[i]) || (congruent && !is_congruent(full, n, &splits[i])))
      return false;
  return true;
}

/* All conditions repeat with the period lcm. */
int64_t tsr_size_reduce(int64_t full, const tsr_size_split *splits, int count, int64_t least) {
  int64_t lcm = tsr_size_lcm(splits, count), from = lcm > least ? lcm : least;
  for (int congruent = 1; congruent >= 0; congruent--)
    for (int64_t n = from; n <= full && n - from < lcm; n++)
      if (keeps(full, n, splits, count, congruent)) return n;
  return full;
}

static bool divides_same(int64_t n, int64_t divisor, const int64_t *sizes, int count) {
  for (int i = 0; i < count; i++)
    if ((sizes[i] % n == 0) != (sizes[i] % divisor == 0)) return false;
  return true;
}

int64_t tsr_axis_reduce_alike(int64_t n, const int64_t *sizes, int count) {
  int64_t most = count ? 16 : n; /* more ranks cost more than a size that stays */
  if (n <= 4) return n;
  for (int64_t divisor = 3; divisor < n && divisor <= most; divisor++)
    if (n % divisor == 0 && divides_same(n, divisor, sizes, count)) return divisor;
  return count ? tsr_axis_reduce(n) : n;
}

int64_t tsr_axis_reduce(int64_t n) { return tsr_axis_reduce_alike(n, NULL, 0); }
