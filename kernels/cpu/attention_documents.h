// SPDX-License-Identifier: Apache-2.0
/* The documents of a sequence (tsr_attention.positions), each of which the two directions of
 * attention treat as a sequence of its own, and the rows of each that a rank computes. */
#ifndef TSR_KERNELS_CPU_ATTENTION_DOCUMENTS_H
#define TSR_KERNELS_CPU_ATTENTION_DOCUMENTS_H
#include "kernels/cpu/attention.h"

typedef struct {
  tsr_attention a;       /* of a sequence of the document's tokens alone */
  int64_t first, length; /* the document's first token in the sequence, and the sequence's length */
} document;

/* The document of sample b that begins there. */
static inline document document_at(const tsr_attention *a, int64_t b, int64_t first) {
  const int32_t *positions = a->positions ? a->positions + b * a->T : NULL; // (T)
  int64_t end = positions ? first + 1 : a->T;
  while (end < a->T && positions[end]) end++;
  document d = {.a = *a, .first = first, .length = a->T};
  d.a.T = end - first;
  return d;
}

/* A head of the document, in tensors that have all positions of a sequence. */
static inline head document_head(const document *d, int64_t b, int64_t h) {
  tsr_attention whole = d->a;
  whole.T = d->length;
  head at = head_at(&whole, b, h);
  at.q_start += d->first * at.q_stride;
  at.out_start += d->first * at.out_stride;
  at.k_start += d->first * at.k_stride;
  at.v_start += d->first * at.v_stride;
  return at;
}

/* Rows [begin, end) of a document that a rank computes. `own` is the first of them among all the
 * positions of the sequence that the rank computes, of which there are `count`. */
typedef struct {
  int64_t begin, end, own, count;
} own_rows;

/* Those in its i-th run of positions; the end is not above the begin where there are none. */
static inline own_rows own_rows_at(const document *d, int run) {
  const tsr_attention_rows *rows = &d->a.rows;
  if (!rows->runs) return (own_rows){0, d->a.T, d->first, d->length};
  int64_t begin = rows->first[run] - d->first, end = begin + rows->each, own = run * rows->each;
  if (begin < 0) own -= begin;
  return (own_rows){
      begin > 0 ? begin : 0, end < d->a.T ? end : d->a.T, own, rows->runs * rows->each};
}
static inline int own_runs(const tsr_attention *a) { return a->rows.runs ? a->rows.runs : 1; }

/* The queries [first, end) of a document, or as many of them as a block has. */
static inline block document_block(const document *d, head at, int64_t first, int64_t end) {
  block part = block_at(&d->a, at, first);
  if (part.rows > end - first) part.rows = end - first;
  if (d->a.causal) part.keys = first + part.rows;
  part.element = dropout_element(&d->a, at, d->length, d->first + first, d->first);
  part.element_step = (uint64_t)d->length;
  return part;
}

#endif
