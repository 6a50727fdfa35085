// SPDX-License-Identifier: Apache-2.0
/* A few new tokens against a cache (attention_cached.c): one group of one sequence, and the numbers
 * of one token. */
#ifndef TSR_KERNELS_CPU_ATTENTION_FEW_H
#define TSR_KERNELS_CPU_ATTENTION_FEW_H
#include "kernels/cpu/attention.h"

/* One group of one sequence. */
typedef struct {
  const tsr_attention_cached *c;
  int64_t b, g, first; /* the first new token's position */
  int64_t heads, rows; /* of the group; real new tokens */
  int64_t q_stride, k_stride, out_stride, v_stride, Dv;
  const number *q, *keys, *values; /* (T, H, D) of the group's first head; pools (rows, G, D), Dv */
  const int32_t *pages;            /* of the sequence */
  number *out;
} group;

/* The row of the pools that has a position. */
static inline int64_t row_at(const group *s, int64_t position) {
  int64_t page = s->c->page;
  return s->pages[position / page] * page + position % page;
}

/* The end of a run of rows that follow each other from this position on, at most `end`. */
static inline int64_t run_end(const group *s, int64_t position, int64_t end) {
  int64_t next = (position / s->c->page + 1) * s->c->page;
  return next < end ? next : end;
}

/* A thread's numbers for one token: of each head of the group its query and its scores; of bf16 a
 * head's sums too. */
typedef struct {
  float *queries, *scores, *sums;
  int64_t scores_width;
} few;

#endif
