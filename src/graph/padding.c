// SPDX-License-Identifier: Apache-2.0
#include "graph/padding.h"
#include <string.h>

/* Of block b. */
static int64_t real_size(const tsr_padding *p, int64_t b) {
  return tsr_padding_begin(p, b + 1) - tsr_padding_begin(p, b);
}

bool tsr_padding_next(
    const tsr_padding *p, int64_t stored, int64_t first, int64_t size, tsr_real_run *run) {
  int64_t length = stored / p->blocks, end = first + size, at = first + run->at + run->size;
  int64_t b = at / length;
  if (at < end && at - b * length >= real_size(p, b)) at = ++b * length;
  while (at < end && real_size(p, b) == 0) at = ++b * length;
  if (at >= end) return false;
  int64_t stop = b * length + real_size(p, b);
  run->at = at - first;
  run->begin = tsr_padding_begin(p, b) + at - b * length;
  while (stop < end && stop == (b + 1) * length) {
    b++;
    stop = b * length + real_size(p, b);
  }
  run->size = (stop < end ? stop : end) - at;
  return true;
}

void tsr_padding_remove(const tsr_padding *p, int ndim, const int64_t *stored, float *x) {
  int64_t outer = 1, inner = 1, length = stored[p->dim];
  if (p->real == length) return;
  for (int d = 0; d < p->dim; d++) outer *= stored[d];
  for (int d = p->dim + 1; d < ndim; d++) inner *= stored[d];
  for (int64_t o = 0; o < outer; o++)
    for (tsr_real_run run = {0}; tsr_padding_next(p, length, 0, length, &run);)
      memmove(
          x + (o * p->real + run.begin) * inner, x + (o * length + run.at) * inner,
          sizeof *x * (size_t)(run.size * inner));
}

void tsr_padding_add(
    const tsr_padding *p, int ndim, const int64_t *stored, const float *real, float *ret) {
  int64_t outer = 1, inner = 1, length = stored[p->dim];
  for (int d = 0; d < p->dim; d++) outer *= stored[d];
  for (int d = p->dim + 1; d < ndim; d++) inner *= stored[d];
  memset(ret, 0, sizeof *ret * (size_t)(outer * length * inner));
  for (int64_t o = 0; o < outer; o++)
    for (tsr_real_run run = {0}; tsr_padding_next(p, length, 0, length, &run);)
      memcpy(
          ret + (o * length + run.at) * inner, real + (o * p->real + run.begin) * inner,
          sizeof *ret * (size_t)(run.size * inner));
}
