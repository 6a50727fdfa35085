// SPDX-License-Identifier: Apache-2.0
/* The CPU's kernels: math on plain pointers; they know nothing of graphs or ranks.
 *
 * One source is compiled for several instruction-set levels; each gives a table like this one, and
 * `tsr_kernels_get` picks a level. All tensors are contiguous and row-major unless strides are
 * given. Every kernel works on a range [begin, end) of independent items (rows, columns, heads…),
 * so that a caller may split the items over threads: an output element is computed in an order that
 * depends on neither the split nor the other items, so the bits are the same for every split. No
 * kernel allocates; scratch is the caller's, and its size is given by a function beside the kernel.
 *
 * Letters: B batch, T sequence, C embedding, V vocabulary, H query heads, G key/value heads, D head
 * size, R rows (any leading dimensions), U units. */
#ifndef TSR_KERNELS_H
#define TSR_KERNELS_H
#include "base/reduction_tree.h"
#include "base/tensor_slice.h"
#include "kernels/attention.h"
#include "kernels/experts.h"
#include "kernels/matrix.h"
#include <stdbool.h>
#include <stdint.h>

/* X(ID, name): the functions of unary and gated kernels; ID is that of the op.
 *   gelu_tanh: 0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3))), GPT-2's gelu_new; gelu_erf: x*Phi(x);
 *   relu2: max(x,0)^2 (So et al. 2021); silu: x*sigmoid(x) */
#define TSR_UNARY_LIST(X)                                                                          \
  X(GELU, gelu_tanh)                                                                               \
  X(GELU_ERF, gelu_erf)                                                                            \
  X(RELU, relu)                                                                                    \
  X(RELU2, relu2)                                                                                  \
  X(SILU, silu)                                                                                    \
  X(TANH, tanh)                                                                                    \
  X(SIGMOID, sigmoid)

#define TSR_UNARY_ID(ID, name) TSR_UNARY_##ID,
typedef enum { TSR_UNARY_LIST(TSR_UNARY_ID) TSR_UNARY_COUNT } tsr_unary;
#undef TSR_UNARY_ID

/* Rotary positions (Su et al. 2021) of x (B,T,H*D): of each head the `rotary` features from
 * `offset` on are turned, the rest stays. The angles' pairs are the halves (i, i + rotary/2) as in
 * Hugging Face's Llama, or `interleaved` neighbours (2i, 2i + 1) as in GPT-J. sign 1 turns, -1
 * turns back (the backward). */
typedef struct {
  int64_t T, H, D, rotary, offset;
  bool interleaved;
  float sign;
} tsr_rope;

/* How the angles of rotary positions differ from position * theta^(-2i/D). Llama 3's rule by
 * wavelength (factor 0: none); YaRN's by the number of rotations in the original context (Peng et
 * al. 2023; yarn_factor 0: none): between those of beta_fast and of beta_slow the frequencies pass
 * from theirs to a yarn_factor-th, with `truncate` between whole pairs. Frequencies are
 * divided by `linear` (0: none), and that of each pair by its one of the D/2 `factors` (LongRoPE,
 * Ding et al. 2024; NULL: none). cos and sin are multiplied by `attention`; 0: by 1. */
typedef struct {
  double factor, low_freq, high_freq, original_context;
  double yarn_factor, beta_fast, beta_slow;
  bool truncate;
  double attention, linear;
  const double *factors;
} tsr_rope_scaling;

typedef struct {
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2; /* 1 - beta^t */
  bool amsgrad;
  bool coupled; /* Adam: the decay is added to the gradient, not taken off the weight */
} tsr_adamw;

typedef struct {
  float lr, momentum, dampening, weight_decay;
  bool nesterov, first; /* first: the momentum buffer takes the gradient as it is */
} tsr_sgd;

/* How an update ends in a weight w that is kept in bf16 alone, without a copy in f32. The optimizer
 * computes the new value x in f32 from w, with the bits that it has for an f32 weight; then
 *   nearest:    w = bf16(x). Changes below 2^-9 |w| are always lost, above 2^-8 |w| never.
 *   stochastic: w = x rounded up or down by chance, as f32_to_bf16_stochastic does, so that w is x
 *               on average. `key` must be another one in every step.
 *   kahan:      (Kahan 1965, as in low-precision AdamW) c, zeros at first, is bf16 too:
 *                 t  = c + (x - w)           the update goes to the compensation first
 *                 w' = bf16(w + t)
 *                 c' = bf16(t - (w' - w))    c carries what the rounding lost
 *               with f32 between. w + c is the weight to 16 bits: a step's error in it is at most
 *               2^-17 |w| (and f32's own), so changes below that may be lost. Gradients and decay
 *               are those of w. */
typedef enum { TSR_ROUND_NEAREST, TSR_ROUND_STOCHASTIC, TSR_ROUND_KAHAN } tsr_rounding_kind;
typedef struct {
  tsr_rounding_kind kind;
  uint64_t key;                  /* stochastic */
  const tsr_tensor_slice *slice; /* stochastic: where w lies */
  uint16_t *compensation;        /* kahan: c, one for each weight */
} tsr_rounding;

typedef struct {
  const char *isa; /* "x86-64", "x86-64-v3", "x86-64-v4", "v4-bf16", "amx-bf16", "generic" */

  /* ---- elementwise: items are elements; an output may be one of the inputs ---- */
  void (*fill)(float *out, float value, int64_t begin, int64_t end);
  void (*copy)(float *out, const float *x, int64_t begin, int64_t end);
  void (*add)(float *out, const float *a, const float *b, int64_t begin, int64_t end);
  void (*sub)(float *out, const float *a, const float *b, int64_t begin, int64_t end);
  void (*mul)(float *out, const float *a, const float *b, int64_t begin, int64_t end);
  void (*scale)(float *out, const float *x, float factor, int64_t begin, int64_t end);
  void (*unary)(tsr_unary kind, float *out, const float *x, int64_t begin, int64_t end);
  void (*unary_backward)(
      tsr_unary kind, float *dx, const float *dy, const float *x, int64_t begin, int64_t end);
  /* out = function(gate) * up; dgate and dup from dout */
  void (*gated)(
      tsr_unary kind, float *out, const float *gate, const float *up, int64_t begin, int64_t end);
  void (*gated_backward)(
      tsr_unary kind, float *dgate, float *dup, const float *dout, const float *gate,
      const float *up, int64_t begin, int64_t end);

  /* out = x sigmoid(alpha x) (u + 1) of x = min(gate, limit) and u = up within [-limit, limit]; the
   * gradient of what is clamped is 0 */
  void (*clamped_swiglu)(
      float alpha, float limit, float *out, const float *gate, const float *up, int64_t begin,
      int64_t end);
  void (*clamped_swiglu_backward)(
      float alpha, float limit, float *dgate, float *dup, const float *dout, const float *gate,
      const float *up, int64_t begin, int64_t end);

  /* ---- rows (R, C): items are rows; y may be x, dx may be dy ---- */
  /* x (R,C) + row (C), x * row */
  void (*add_row)(
      float *out, const float *x, const float *row, int64_t C, int64_t begin, int64_t end);
  void (*mul_row)(
      float *out, const float *x, const float *row, int64_t C, int64_t begin, int64_t end);
  /* y = (x - mean) * rstd * w + b; mean, rstd (R); b may be NULL. Two passes, fixed order. */
  void (*layernorm)(
      float *y, float *mean, float *rstd, const float *x, const float *w, const float *b, int64_t C,
      float eps, int64_t begin, int64_t end);
  void (*layernorm_backward)(
      float *dx, const float *dy, const float *x, const float *w, const float *mean,
      const float *rstd, int64_t C, int64_t begin, int64_t end);
  /* y = x * rstd * (w + offset), rstd = 1/sqrt(mean(x^2) + eps) */
  void (*rmsnorm)(
      float *y, float *rstd, const float *x, const float *w, float offset, int64_t C, float eps,
      int64_t begin, int64_t end);
  void (*rmsnorm_backward)(
      float *dx, const float *dy, const float *x, const float *w, float offset, const float *rstd,
      int64_t C, int64_t begin, int64_t end);
  void (*softmax)(float *y, const float *x, int64_t C, int64_t begin, int64_t end);
  void (*softmax_backward)(
      float *dx, const float *dy, const float *y, int64_t C, int64_t begin, int64_t end);

  /* ---- adapters: items are rows ---- */
  /* of rows [begin, end) of w + scale * b a the sums of squares over `columns` columns from `first`
   * on; w (…, in) in f32 or NF4, whose rows are neighbours, a (rank, in), b (…, rank) */
  void (*adapted_squares)(
      float *out, const tsr_matrix *w, const float *a, const float *b, int64_t in, int64_t rank,
      float scale, int64_t first, int64_t columns, int64_t begin, int64_t end);
  /* y = x / sqrt(squares), 0 where squares is */
  void (*divide_root)(float *y, const float *x, const float *squares, int64_t begin, int64_t end);

  /* ---- sums over rows: items are columns; rows are added in their order, one running sum per
   * column. Row r of the sum is row row_first + r*row_step of the tensor, so that one head of
   * (R,H,D) can be summed: `rows` of them. ---- */
  void (*sum_rows)(
      float *out, const float *x, int64_t C, int64_t row_first, int64_t row_step, int64_t rows,
      int64_t begin, int64_t end);
  /* out = sum of dy * (x - mean) * rstd; mean NULL for rmsnorm */
  void (*norm_dw)(
      float *out, const float *dy, const float *x, const float *mean, const float *rstd, int64_t C,
      int64_t row_first, int64_t row_step, int64_t rows, int64_t begin, int64_t end);

  /* ---- GEMMs. All of gemm_pack comes before any of gemm: its items are rows of A, or columns of B
   * where by_rows, and those of gemm are of the other one; a range begins at a multiple of
   * TSR_GEMM_ROWS or TSR_GEMM_COLUMNS. `packed` has gemm_bytes, best aligned to 64. K > 0
   * ---- */
  int64_t (*gemm_bytes)(const tsr_gemm *p);
  void (*gemm_pack)(const tsr_gemm *p, float *packed, int64_t begin, int64_t end);
  void (*gemm)(const tsr_gemm *p, const float *packed, int64_t begin, int64_t end);
  /* by the operands' types alone */
  tsr_gemm_traits (*gemm_traits)(const tsr_gemm *p);
  /* with few rows, in the time that it takes to read w: items are columns of y. The bits are
   * those of gemm */
  void (*skinny_gemm)(
      const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end);

  /* ---- embedding ---- */
  /* out (R,C): table row tokens[r] - v_begin where v_begin <= tokens[r] < v_end, else zeros; -0
   * becomes +0, so that adding the other shards' zeros changes no bit. Items are rows. */
  void (*embedding)(
      float *out, const int32_t *tokens, const float *table, int64_t C, int64_t v_begin,
      int64_t v_end, int64_t begin, int64_t end);
  /* dtable (v_end - v_begin, C), wholly written: row v is the sum of dout rows r (in their order)
   * with tokens[r] == v_begin + v, and that of `padding` 0, over `units` equal runs of rows, unit
   * sums merged by base/reduction_tree.h's stack machine (the tree over units / inner runs of
   * `inner` units each; a unit without that token adds 0). `plus` (the same shape, and it may be
   * dtable) is added, unless it is NULL. Items are table rows. `row_of` (R), or NULL: the row of
   * dout that the r-th token that was sorted is of. Scratch per call: embedding_scratch() bytes,
   * for a tree of that depth; it holds a counting sort of the tokens made by embedding_sort, which
   * runs once per op before the ranges. */
  int64_t (*embedding_scratch)(
      int64_t R, int64_t v_begin, int64_t v_end, int64_t C, int depth, int threads);
  void (*embedding_sort)(
      void *scratch, const int32_t *tokens, int64_t R, int64_t v_begin, int64_t v_end,
      int64_t padding);
  void (*embedding_backward)(
      float *dtable, const float *plus, const float *dout, const int32_t *row_of, void *scratch,
      int thread, int64_t R, int64_t C, int64_t v_begin, int64_t v_end, tsr_tree_shape tree,
      int64_t units, int64_t inner, int64_t begin, int64_t end);

  /* ---- rotary positions ---- */
  /* table (T, D/2, 2) of D features that are turned: cos and sin, for positions
   * position_offset... Computed in double. */
  void (*rope_table)(
      float *table, int64_t T, int64_t D, int64_t position_offset, double theta,
      const tsr_rope_scaling *scaling);
  /* table (T, rotary/2, 2); items are (b,t) rows. y may be x. */
  void (*rope)(
      const tsr_rope *r, float *y, const float *x, const float *table, int64_t begin, int64_t end);

  /* ---- attention: items are b*H + h (forward) or b*G + g (backward) ---- */
  /* whether the level has operands without a type in bf16 where tsr_attention.bf16; else in f32 */
  bool (*attention_bf16)(void);
  /* bytes per thread, both directions */
  int64_t (*attention_scratch)(const tsr_attention *a);
  void (*attention)(
      const tsr_attention *a, void *out, float *stats, const void *q, const void *k, const void *v,
      void *scratch, int64_t begin, int64_t end);
  void (*attention_backward)(
      const tsr_attention *a, void *dq, void *dk, void *dv, const void *dout, const void *q,
      const void *k, const void *v, const void *out, const float *stats, void *scratch,
      int64_t begin, int64_t end);
  /* d (B,T,H) by the sink of each row's head, for the sum over rows: -exp(sink - maximum) / sum *
   * dout . out. Items are b*T + t. */
  void (*attention_sinks_backward)(
      const tsr_attention *a, float *d, const void *dout, const void *out, const float *stats,
      int64_t begin, int64_t end);

  /* ---- attention with a cache: items are b*G + g ---- */
  int64_t (*attention_cached_scratch)(const tsr_attention_cached *c); /* bytes per thread */
  /* What is not real becomes 0. The bits of a position are those of `attention` over the whole
   * sequence, however many tokens are new and wherever its pages are. */
  void (*attention_cached)(
      const tsr_attention_cached *c, void *out, const void *q, const void *keys, const void *values,
      void *scratch, int64_t begin, int64_t end);

  /* ---- context-parallel attention. `acc` is kept from step 0, which begins the sum, through step
   * members-1 to `finish`; it holds every item's parts at fixed places. ---- */
  /* bytes of an acc, the same for every coord and step; bytes of scratch per thread, all passes */
  int64_t (*attention_ring_acc)(const tsr_attention_ring *r, tsr_attention_sum sum);
  int64_t (*attention_ring_scratch)(const tsr_attention_ring *r);
  /* q is the member's own, k and v those of member (coord - step) mod members, in that member's
   * order. Items are b*H + h. */
  void (*attention_ring)(
      const tsr_attention_ring *r, float *acc, const void *q, const void *k, const void *v,
      void *scratch, int64_t begin, int64_t end);
  void (*attention_ring_finish)(
      const tsr_attention_ring *r, void *out, float *stats, const float *acc, int64_t begin,
      int64_t end);
  /* rows (B,H,T,3) = maximum, sum, delta = dout . out, which the gradients need. Items are b*H + h.
   */
  void (*attention_ring_rows)(
      const tsr_attention_ring *r, float *rows, const void *dout, const void *out,
      const float *stats, int64_t begin, int64_t end);
  /* dout, q and rows are the member's own, k and v those of member (coord - step) mod members.
   * Items are b*H + h. */
  void (*attention_ring_dq)(
      const tsr_attention_ring *r, float *acc, const void *dout, const void *q, const void *k,
      const void *v, const float *rows, void *scratch, int64_t begin, int64_t end);
  void (*attention_ring_dq_finish)(
      const tsr_attention_ring *r, void *dq, const float *acc, int64_t begin, int64_t end);
  /* k and v are the member's own, dout, q and rows those of member (coord + step) mod members.
   * Items are b*G + g; inside a unit the group's heads are added in their order. */
  void (*attention_ring_dkv)(
      const tsr_attention_ring *r, float *acc, const void *dout, const void *q, const float *rows,
      const void *k, const void *v, void *scratch, int64_t begin, int64_t end);
  void (*attention_ring_dkv_finish)(
      const tsr_attention_ring *r, void *dk, void *dv, const float *acc, int64_t begin,
      int64_t end);

  /* ---- mixture of experts ---- */
  /* experts (S,k): the choice in ascending order of expert. scores (S,E), bias (E) or NULL. Returns
   * the rows with a NaN score, or all if the bias has a NaN. Items are tokens. */
  int64_t (*choose_experts)(
      const tsr_choice *r, int32_t *experts, const float *scores, const float *bias, int64_t begin,
      int64_t end);
  /* weights (S,k) of scores (S,E) and the choice; sums are one chain over choices. And dscores from
   * dweights: a choice has no gradient. Items are tokens. */
  void (*expert_weights)(
      const tsr_choice_weights *w, float *weights, const float *scores, const int32_t *experts,
      int64_t begin, int64_t end);
  void (*expert_weights_backward)(
      const tsr_choice_weights *w, float *dscores, const float *dweights, const float *scores,
      const int32_t *experts, int64_t begin, int64_t end);
  /* counts (S/each, E): how many of each run of `each` tokens chose each expert. Items are runs. */
  void (*expert_counts)(
      float *counts, const int32_t *experts, int64_t each, int64_t k, int64_t E, int64_t begin,
      int64_t end);
  /* The gradient by scores s (S,E) of factor * sum of count * s, whose counts (S/each, E) are those
   * of a token's run: dscores = factor * count; normalizes: of s / sum(s), (factor * count - sum of
   * that over s / sum) / sum. Items are tokens. */
  void (*balance_backward)(
      float *dscores, const float *counts, const float *scores, int64_t each, int64_t E,
      float factor, bool normalizes, int64_t begin, int64_t end);
  /* dlogits (S,E) = factor * logsumexp(logits) * softmax(logits). Items are tokens. */
  void (*router_z_backward)(
      float *dlogits, const float *logits, int64_t E, float factor, int64_t begin, int64_t end);
  /* plan (R,2) from experts (S,k); R has room. Returns the rows in use. With a capacity an expert
   * has at most `slots` rows of each run of unit_tokens tokens: of the first, or with priority
   * (S,k) of those where that is largest (equal ones, and NaN as the smallest: the first). */
  int64_t (*expert_plan_scratch)(
      int64_t count, int64_t slots, int64_t k, const tsr_capacity *capacity); /* bytes */
  int64_t (*expert_plan)(
      const tsr_experts *e, const tsr_capacity *capacity, int32_t *plan, const int32_t *experts,
      const float *priority, int64_t S, int64_t R, void *scratch);
  /* row_of (S,k): where a slot's row is, -1: not here. */
  void (*expert_row_of)(int32_t *row_of, const int32_t *plan, int64_t slots, int64_t R);
  /* rows (R,C) = x (S,C) of each row's token; unused rows are 0. Items are rows. */
  void (*permute_rows)(
      float *rows, const float *x, const int32_t *plan, int64_t k, int64_t C, int64_t begin,
      int64_t end);
  /* y (S,C): the sum over a token's rows that are here of weight * row, each rounded to `leaf`, in
   * the tree over the indices of all E experts, whose absent leaves are skipped, plus +0.0 (so that
   * a sum without rows adds nothing to others'); 0 without rows. weights (S,k), or NULL: 1, without
   * rounding. Items are tokens. */
  void (*combine_rows)(
      const tsr_experts *e, tsr_leaf_type leaf, float *y, const float *rows, const float *weights,
      const int32_t *experts, const int32_t *row_of, int64_t C, int64_t begin, int64_t end);
  /* drows (R,C) = weight * dy of the row's token, for rows in use; dweights (S,k) = dy . row, or 0
   * where the row is not here; the dot product in a fixed order (16 lanes, then their tree).
   * Items are tokens; the caller zeroes unused rows. */
  void (*combine_rows_backward)(
      const tsr_experts *e, float *drows, float *dweights, const float *dy, const float *rows,
      const float *weights, const int32_t *row_of, int64_t C, int64_t begin, int64_t end);

  /* ---- losses. targets < 0 (ignore_index -100) give 0 loss and gradient ---- */
  /* logits (R, V_local), columns v_begin.. of the vocabulary, of which those below v_valid count
   * (the rest is padding). For each of `units` equal runs of columns: stats (R, units, 3) =
   * maximum, sum of exp(x - maximum), and the target's logit (0 where the target lies elsewhere). A
   * unit that is all padding: maximum -INFINITY, sum 0. Items are rows. */
  void (*softmax_stats)(
      float *stats, const float *logits, const int32_t *targets, int64_t V_local, int64_t v_begin,
      int64_t v_valid, int64_t units, int64_t begin, int64_t end);
  /* stats (R, units, 3) of all units, combined by the tree of base/reduction_tree.h:
   * (m,s,t)+(m',s',t') = (M, s*exp(m-M)+s'*exp(m'-M), t+t'). row_loss (R) = M + log(s) - t, 0 if
   * ignored; row_stats (R,2) = M, s. Items are rows. */
  void (*softmax_loss)(
      float *row_loss, float *row_stats, const float *stats, const int32_t *targets, int64_t units,
      int64_t begin, int64_t end);
  /* dlogits (R, V_local) = (exp(x - M)/s - [column == target]) * factor; padding and ignored rows
   * are 0. dlogits may be logits. */
  void (*softmax_loss_backward)(
      float *dlogits, const float *logits, const float *row_stats, const int32_t *targets,
      float factor, int64_t V_local, int64_t v_begin, int64_t v_valid, int64_t begin, int64_t end);
  /* row_loss (R) = sum over C of (x - y)^2, in a fixed order; dx = 2 (x - y) * factor */
  void (*squared_error)(
      float *row_loss, const float *x, const float *y, int64_t C, int64_t begin, int64_t end);
  void (*squared_error_backward)(
      float *dx, const float *x, const float *y, float factor, int64_t begin, int64_t end);

  /* ---- sums to one number: in blocks of TSR_SUM_BLOCK elements, blocks added by the tree ---- */
  /* x is (rows, cols) with row stride `stride`; sums in double, in blocks of the row-major order of
   * (rows, cols): the stride changes no bit. */
  double (*sum)(const float *x, int64_t rows, int64_t cols, int64_t stride);
  double (*sum_squares)(const float *x, int64_t rows, int64_t cols, int64_t stride);

  /* ---- random: Philox4x32-10, element index = row-major index in slice->global; items are rows of
   * the slice (all dims but the last) ---- */
  void (*random_normal)(
      float *out, float mean, float std, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
      int64_t end);
  void (*random_uniform)(
      float *out, float low, float high, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
      int64_t end);
  /* keep with 1-p, scaled by 1/(1-p); the backward is the same call on dy. y may be x. */
  void (*dropout)(
      float *y, const float *x, float p, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
      int64_t end);

  /* ---- optimizer: items are elements; the gradient is multiplied by grad_scale first ---- */
  /* PyTorch's AdamW: w -= lr*weight_decay*w; m, v; w -= lr/correction1 * m /
   * (sqrt(v)/sqrt(correction2) + eps). v_max is NULL without amsgrad. `coupled`: PyTorch's Adam,
   * where the gradient becomes grad + weight_decay*w instead. */
  void (*adamw)(
      const tsr_adamw *o, float *w, float *m, float *v, float *v_max, const float *grad,
      float grad_scale, int64_t begin, int64_t end);
  /* PyTorch's SGD; buffer NULL when momentum is 0 */
  void (*sgd)(
      const tsr_sgd *o, float *w, float *buffer, const float *grad, float grad_scale, int64_t begin,
      int64_t end);
  /* The same on weights in bf16; everything else stays in f32. */
  void (*adamw_bf16)(
      const tsr_adamw *o, const tsr_rounding *rounding, uint16_t *w, float *m, float *v,
      float *v_max, const float *grad, float grad_scale, int64_t begin, int64_t end);
  void (*sgd_bf16)(
      const tsr_sgd *o, const tsr_rounding *rounding, uint16_t *w, float *buffer, const float *grad,
      float grad_scale, int64_t begin, int64_t end);

  /* ---- half precision: items are elements; out and x must not overlap; the bits are the same on
   * every level. To a narrower type: to nearest, ties to even; subnormal numbers are exact; a NaN
   * stays a (quiet) NaN with its sign; what is too large becomes infinity. ---- */
  void (*bf16_to_f32)(float *out, const uint16_t *x, int64_t begin, int64_t end);
  void (*f32_to_bf16)(uint16_t *out, const float *x, int64_t begin, int64_t end);
  /* Away from zero with a probability that is the discarded part of the fraction, else towards
   * zero: the upper 16 bits of the element's Philox word are added below the last bit that stays.
   * Element index as for `random_normal`; items are elements in the slice's local row-major
   * order. */
  void (*f32_to_bf16_stochastic)(
      uint16_t *out, const float *x, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
      int64_t end);
  void (*fp16_to_f32)(float *out, const uint16_t *x, int64_t begin, int64_t end);
  void (*f32_to_fp16)(uint16_t *out, const float *x, int64_t begin, int64_t end);
  /* out[i] is element first + i of a matrix, row-major; the bits are the same on every level. */
  void (*quantized_to_f32)(float *out, const tsr_quantized *x, int64_t first, int64_t count);
  /* FP8 E4M3 (OCP's: no infinities). Saturating: above 448, infinity too, becomes 448; a NaN of
   * either sign becomes 0x7F. */
  void (*e4m3_to_f32)(float *out, const uint8_t *x, int64_t begin, int64_t end);
  void (*f32_to_e4m3)(uint8_t *out, const float *x, int64_t begin, int64_t end);
  void (*e5m2_to_f32)(float *out, const uint8_t *x, int64_t begin, int64_t end);
  /* Codes and scales (base/fp8_layout.h) of x (rows, cols) in f32 or bf16. Items are tiles. */
  void (*fp8_quantize)(
      const tsr_fp8_layout *layout, uint8_t *codes, float *scales, const void *x, tsr_element type,
      int64_t begin, int64_t end);
  /* ---- end of half precision ---- */

  /* The hash of elements [first, first + count) of a tensor, which x has (base/tensor_hash.h): the
   * same on every level. */
  uint64_t (*hash)(const float *x, int64_t first, int64_t count);

  /* ---- what the level can do at most, to compare kernels with ---- */
  /* That many turns of fused multiplications and additions that never leave the registers; how many
   * operations that was. |factor| < 1 */
  int64_t (*limit_fused)(int64_t turns, float factor, float *ret_sum);
  /* the same of what multiplies two matrices in bf16 */
  int64_t (*limit_dot)(int64_t turns, float *ret_sum);
  float (*limit_read)(const float *x, int64_t n); /* each of them once; n is a multiple of 128 */
} tsr_kernels;

enum { TSR_SUM_BLOCK = 4096 };

/* The table of a level ("x86-64", "x86-64-v3", …); when `isa` is NULL, of the one that TESSERA_ISA
 * names, and without it of the best that this CPU runs in f32. NULL when the level is unknown or
 * the CPU lacks it. tsr_kernels_levels lists those built in, best first, NULL-terminated. */
const tsr_kernels *tsr_kernels_get(const char *isa);
/* The same as of NULL, but the best for GEMMs in bf16. */
const tsr_kernels *tsr_kernels_get_for_bf16(void);
/* The value of TESSERA_ISA, or NULL. */
const char *tsr_kernels_requested(void);
const char *const *tsr_kernels_levels(void);

/* Philox4x32-10 (Salmon et al., SC11): 4 words from a 128-bit counter and a 64-bit key. */
void tsr_philox(uint64_t counter_low, uint64_t counter_high, uint64_t key, uint32_t ret_words[4]);
/* A stream's key from the seed, a name and a number (a step, say): FNV-1a 64 folded by splitmix. */
uint64_t tsr_random_key(uint64_t seed, const char *name, uint64_t number);

#endif
