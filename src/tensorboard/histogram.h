// SPDX-License-Identifier: Apache-2.0
/* How the numbers of a tensor are distributed: buckets of equal width from the least to the largest
 * number. TensorBoard draws histograms in such buckets too. */
#ifndef TSR_TENSORBOARD_HISTOGRAM_H
#define TSR_TENSORBOARD_HISTOGRAM_H
#include <stdint.h>

enum { TSR_HISTOGRAM_BUCKETS = 64 };

/* Of finite numbers; `others` are NaN and infinities, which no bucket counts. Without a finite
 * number all is 0. limit[i] is the largest number of bucket i; limit[buckets - 1] is max. */
typedef struct {
  int64_t num, others;
  double min, max, sum, sum_squares;
  int buckets; /* 1 where all numbers are equal, or there are none */
  double limit[TSR_HISTOGRAM_BUCKETS], count[TSR_HISTOGRAM_BUCKETS];
} tsr_histogram;

void tsr_histogram_make(const float *numbers, int64_t count, tsr_histogram *ret_histogram);

#endif
