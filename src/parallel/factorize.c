// SPDX-License-Identifier: Apache-2.0
/* Mesh shapes for a count of devices: as balanced as can be, never increasing. */
#include "parallel/rules.h"
#include <assert.h>
#include <limits.h>
#include <string.h>

int tsr_divisors(int n, int ret_divisors[TSR_DIVISORS_MAX]) {
  int low = 0, high = TSR_DIVISORS_MAX;
  for (int64_t d = 1; d * d <= n; d++) {
    if (n % d) continue;
    ret_divisors[low++] = (int)d;
    if (d * d != n) ret_divisors[--high] = n / (int)d;
  }
  int count = TSR_DIVISORS_MAX - high;
  memmove(ret_divisors + low, ret_divisors + high, sizeof(int) * (size_t)count);
  return low + count;
}

typedef struct {
  int divisors[TSR_DIVISORS_MAX], count; /* ascending */
  int ndim, shape[TSR_AXES], best[TSR_AXES];
  int64_t best_sum;
} search;

/* Tries every non-increasing product of the dimensions from `dim` on that makes `rest`. */
static void search_from(search *s, int dim, int rest, int64_t sum) {
  int largest = dim > 0 ? s->shape[dim - 1] : rest;
  if (sum >= s->best_sum) return;
  if (dim == s->ndim - 1) {
    s->shape[dim] = rest;
    if (rest > largest || sum + rest >= s->best_sum) return;
    s->best_sum = sum + rest;
    memcpy(s->best, s->shape, sizeof s->best);
    return;
  }
  for (int i = 0; i < s->count && s->divisors[i] <= largest; i++) {
    if (rest % s->divisors[i]) continue;
    s->shape[dim] = s->divisors[i];
    search_from(s, dim + 1, rest / s->divisors[i], sum + s->divisors[i]);
  }
}

void tsr_parallel_factorize(int devices, int ndim, int *ret_shape) {
  assert(devices > 0 && ndim > 0 && ndim <= TSR_AXES);
  search s = {.ndim = ndim, .best_sum = INT64_MAX};
  s.count = tsr_divisors(devices, s.divisors);
  search_from(&s, 0, devices, 0);
  memcpy(ret_shape, s.best, sizeof(int) * (size_t)ndim);
}
