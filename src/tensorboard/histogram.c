// SPDX-License-Identifier: Apache-2.0
#include "tensorboard/histogram.h"
#include <math.h>

void tsr_histogram_make(const float *numbers, int64_t count, tsr_histogram *ret) {
  tsr_histogram *h = ret;
  *h = (tsr_histogram){.buckets = 1};
  for (int64_t i = 0; i < count; i++) {
    double x = (double)numbers[i];
    if (!isfinite(x)) continue;
    if (!h->num || x < h->min) h->min = x;
    if (!h->num || x > h->max) h->max = x;
    h->num++;
    h->sum += x;
    h->sum_squares += x * x;
  }
  h->others = count - h->num;
  double width = (h->max - h->min) / TSR_HISTOGRAM_BUCKETS;
  if (width > 0) h->buckets = TSR_HISTOGRAM_BUCKETS;
  for (int b = 0; b < h->buckets; b++) h->limit[b] = h->min + width * (b + 1);
  h->limit[h->buckets - 1] = h->max;
  for (int64_t i = 0; i < count; i++) {
    double x = (double)numbers[i];
    if (!isfinite(x)) continue;
    int b = width > 0 ? (int)((x - h->min) / width) : 0;
    if (b >= h->buckets) b = h->buckets - 1;
    while (b && x <= h->limit[b - 1]) b--; /* the quotient is rounded; limits decide */
    while (b < h->buckets - 1 && x > h->limit[b]) b++;
    h->count[b]++;
  }
}
