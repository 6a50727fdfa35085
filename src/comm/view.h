// SPDX-License-Identifier: Apache-2.0
/* Where the elements of a slice lie in a tensor: rows of `inner` runs of `run` elements each. The
 * slice's own order is row-major, so element i is in run i / run. */
#ifndef TSR_COMM_VIEW_H
#define TSR_COMM_VIEW_H
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int64_t run;               /* elements that lie one after the other */
  int64_t inner, inner_step; /* runs of a row, and the distance from one to the next */
  int64_t outer_step;        /* from row to row */
} tsr_view;

/* The whole slice is one run. */
static inline tsr_view tsr_view_contiguous(int64_t elements) {
  return (tsr_view){.run = elements > 0 ? elements : 1, .inner = 1};
}
static inline int64_t tsr_view_place(const tsr_view *v, int64_t i) {
  if (i < v->run) return i;
  int64_t run = i / v->run;
  if (v->inner == 1) return run * v->outer_step + i % v->run;
  return run / v->inner * v->outer_step + run % v->inner * v->inner_step + i % v->run;
}
/* Elements from i on that lie one after the other. */
static inline int64_t tsr_view_left(const tsr_view *v, int64_t i) { return v->run - i % v->run; }
static inline bool tsr_view_joins(const tsr_view *v, int64_t begin, int64_t end) {
  return end <= v->run || begin / v->run == (end - 1) / v->run;
}

#endif
