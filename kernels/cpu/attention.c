/* Attention forward, and the scratch of both directions. */
#include "kernels/cpu/attention.h"
#include <assert.h>
#include <stddef.h>

int64_t LEVEL(attention_scratch)(const tsr_attention *a) {
  attention_parts p;
  int64_t floats = attention_layout(a, 1, NULL, &p);
  int64_t sums = QUERIES + 2 * round_to(a->T, TILE_ROWS); /* out or dq; dk, dv */
  return (floats + sums * p.head_width) * (int64_t)sizeof(float);
}

void LEVEL(attention)(
    const tsr_attention *a, float *out, float *stats, const float *q, const float *k,
    const float *v, void *scratch, int64_t begin, int64_t end) {
  assert(a->H % a->G == 0);
  attention_parts p;
  attention_layout(a, 1, scratch, &p);
  for (int64_t item = begin; item < end; item++) {
    head at = head_at(a, item / a->H, item % a->H);
    pack_columns(p.keys_columns, k + at.k_start, at.k_stride, a->D, a->T);
    pack_rows(p.values_rows, v + at.k_start, at.k_stride, a->T, a->D);
    for (int64_t first = 0; first < a->T; first += QUERIES) {
      block part = block_at(a, at, first);
      int64_t start = at.q_start + first * at.q_stride;
      float *block_stats = stats + (item * a->T + first) * 2;
      pack_block(p.queries, q + start, at.q_stride, a->scale, part.rows, a->D);
      block_scores(a, &p, part, p.scores, p.queries, p.keys_columns);
      block_softmax(a, &p, part, block_stats, 2);
      block_weigh(a, &p, part, p.sums, p.head_width, p.scores, p.values_rows);
      for (int64_t r = 0; r < part.rows; r++)
        row_scale(
            out + start + r * at.q_stride, p.sums + r * p.head_width, 1.0f / block_stats[2 * r + 1],
            a->D);
    }
  }
}
