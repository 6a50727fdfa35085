// SPDX-License-Identifier: Apache-2.0
/* Where a part of a tensor lies in the whole one. Random numbers are a function of the global
 * index, so every device needs it. */
#ifndef TSR_BASE_TENSOR_SLICE_H
#define TSR_BASE_TENSOR_SLICE_H
#include <stdint.h>

enum { TSR_SLICE_DIMS_MAX = 5 };
typedef struct {
  int ndim;                           /* 1..5 */
  int64_t shape[TSR_SLICE_DIMS_MAX];  /* of the part */
  int64_t global[TSR_SLICE_DIMS_MAX]; /* of the whole */
  int64_t offset[TSR_SLICE_DIMS_MAX]; /* of the part's first element in the whole */
} tsr_tensor_slice;

/* Rows of the part: the product of all dimensions but the last. */
static inline int64_t tsr_slice_rows(const tsr_tensor_slice *slice) {
  int64_t rows = 1;
  for (int d = 0; d < slice->ndim - 1; d++) rows *= slice->shape[d];
  return rows;
}

#endif
