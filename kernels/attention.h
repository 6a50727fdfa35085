// SPDX-License-Identifier: Apache-2.0
/* What the kernels of attention (kernels.h) compute with. */
#ifndef TSR_KERNELS_ATTENTION_H
#define TSR_KERNELS_ATTENTION_H
#include <stdbool.h>
#include <stdint.h>

/* The positions of a sequence that a member of cp computes, where it has the inputs of all: `runs`
 * (1 or 2) runs of `each` positions, ascending. runs 0: all positions. */
typedef struct {
  int runs;
  int64_t each, first[2];
} tsr_attention_rows;

/* Attention over whole sequences. q (B,T,H*D), k (B,T,G*D), v (B,T,G*Dv), out (B,T,H*Dv), where
 * heads of values may have a width of their own; query head h reads key/value head h/(H/G). stats
 * (B,H,T,2): a row's maximum and its sum of exp(score - maximum). score = q.k * scale; causal: key
 * j is seen by query i when j <= i, and with a window (Beltagy et al. 2020) when i - j < window as
 * well. Dropout of the probabilities: keep with 1-p, scale kept ones by 1/(1-p); the element index
 * in the stream `key` is (((b + batch_offset) * heads_global + h + head_offset) * T + i) * T + j,
 * with head_gap added to h from H/2 on; p = 0 switches it off. stats are those of the softmax
 * before dropout. With sinks (Xiao et al. 2023, Agarwal et al. 2025: gpt-oss) the softmax of a row
 * has one term more in its denominator, exp(sinks[h]), and stats include it. With a soft cap
 * (Gemma Team 2024) a score is soft_cap * tanh(score / soft_cap), before the mask and the sinks.
 *
 * With `positions` (B,T), those of each token in its document, a sequence is several documents: one
 * begins at token 0 and at each token of position 0. A query sees keys of its own document only,
 * and all blocks of queries and keys count from the document's first token: its numbers have the
 * same bits alone in a sequence and anywhere in a longer one, but for dropout. */
typedef struct {
  int64_t B, T, H, G, D;
  float scale;
  bool causal;
  int64_t window; /* of a causal one: how many keys a query sees, its own the last; 0: all */
  int64_t behind; /* of one unit's queries and another one's keys: how far apart they begin */
  float dropout;
  uint64_t key;
  int64_t batch_offset, head_offset, heads_global;
  int64_t head_gap; /* heads of other ranks between the two halves of these; 0: they are one run */
  int64_t Dv;       /* 0: D */
  float soft_cap;   /* 0: none */
  const float *sinks;       /* (H), read by what completes rows of out; NULL: none */
  const int32_t *positions; /* NULL: a sequence is one document */
  tsr_attention_rows rows;
  /* q, k, v, out and their gradients are numbers of bf16. Levels with an instruction for pairs of
   * them read and write them in bf16 (tsr_kernels.attention_bf16), the others in f32. */
  bool bf16;
} tsr_attention;

/* Of how many positions of a sequence results are computed, and where the i-th of them is. */
static inline int64_t tsr_attention_own(const tsr_attention *a) {
  return a->rows.runs ? a->rows.runs * a->rows.each : a->T;
}

static inline int64_t tsr_attention_value_size(const tsr_attention *a) {
  return a->Dv ? a->Dv : a->D;
}

/* Context-parallel attention (ring attention, Liu et al. 2023): a sequence of `length` positions,
 * of which each of `members` holds a.T = length/members, as `units` equal runs
 * (kernels/ring_attention_merge.h has the layouts and who holds what at which step). A sum over
 * keys (softmax, out, dq) or over queries (dk, dv) is made of one partial result per unit,
 * computed by calls of fixed shape, and merged in base/reduction_tree.h's tree over the units; a
 * unit that causality hides wholly is left out. So the bits depend on length, units and data, and
 * not on members, zigzag or items; with one unit they are those of `attention`. Dropout's elements
 * are those of a sequence of `length`. */
typedef struct {
  tsr_attention a; /* T: positions of a member, in q as in k and v */
  int64_t length, units;
  int members, coord, step;
  bool zigzag;
} tsr_attention_ring;

/* Attention of new tokens to themselves and to what a cache holds: causal, without dropout. q and
 * out (B,T,H*D) are of T new tokens a sequence; of sequence b the first counts[b] are real and
 * stand at positions[b] and on. keys (pages,page,G*D) and values (pages,page,G*Dv) are pools of
 * pages that hold all positions, the new ones too: position p of sequence b is in page
 * pages[b * pages_each + p / page]. out is (B,T,H*Dv). */
typedef struct {
  tsr_attention a;
  int64_t page, pages_each; /* page: a multiple of 16 */
  const int32_t *positions, *counts, *pages;
} tsr_attention_cached;

/* Of keys before those that a window shows, kernels may read as many, but no number depends on
 * finite ones. */
enum { TSR_ATTENTION_CACHED_BEFORE = 96 };

/* Positions that a sequence may have. */
static inline int64_t tsr_attention_cached_length(const tsr_attention_cached *c) {
  return c->page * c->pages_each;
}

/* The sums that wait between the steps: of queries softmax and out, or dq; of keys dk and dv. */
typedef enum { TSR_ATTENTION_OUT, TSR_ATTENTION_DQ, TSR_ATTENTION_DKV } tsr_attention_sum;

#endif
