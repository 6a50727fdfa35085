// SPDX-License-Identifier: Apache-2.0
#include "compare/elements.h"
#include <math.h>
#include <string.h>

void tsr_elements_compare(
    const float *a, const float *b, int64_t count, tsr_element_difference *ret) {
  double apart = 0, squares = 0;
  *ret = (tsr_element_difference){.count = count, .first = -1};
  for (int64_t i = 0; i < count; i++) {
    double x = (double)a[i], y = (double)b[i], far = fabs(x - y);
    if (isfinite(y)) squares += y * y;
    if (isfinite(y) && fabs(y) > ret->largest) ret->largest = fabs(y);
    if (!memcmp(&a[i], &b[i], sizeof a[i]) || (isnan(x) && isnan(y))) continue;
    if (!ret->differing++) ret->first = i, ret->values[0] = x, ret->values[1] = y;
    if (isnan(far)) far = INFINITY;
    if (far > ret->most) ret->most = far;
    apart += far * far;
  }
  if (!count) return;
  ret->apart = sqrt(apart / (double)count);
  ret->size = sqrt(squares / (double)count);
}

double tsr_elements_deviation(const tsr_element_difference *d) {
  if (!d->most) return 0;
  return d->largest > 0 ? d->most / d->largest : INFINITY;
}
