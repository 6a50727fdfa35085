// SPDX-License-Identifier: Apache-2.0
/* Two arrays of numbers, element by element. */
#ifndef TSR_COMPARE_ELEMENTS_H
#define TSR_COMPARE_ELEMENTS_H
#include <stdint.h>

typedef struct {
  int64_t count, differing;
  int64_t first;    /* the first element whose bits differ; -1: none */
  double values[2]; /* of that one */
  double most;      /* the largest absolute difference; infinite where a NaN stands for a number */
  double largest;   /* the largest finite magnitude in the second array */
  double apart;     /* the root mean square of the differences; infinite as `most` is */
  double size;      /* that of the finite numbers of the second array */
} tsr_element_difference;

/* Every NaN is the same one. */
void tsr_elements_compare(
    const float *a, const float *b, int64_t count, tsr_element_difference *ret_difference);

/* The largest difference relative to the largest magnitude; 0 where nothing differs. */
double tsr_elements_deviation(const tsr_element_difference *difference);

#endif
