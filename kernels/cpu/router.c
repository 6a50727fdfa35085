// SPDX-License-Identifier: Apache-2.0
/* The routing of a mixture of experts: scores, top-k choice, weights, and their gradient.
 *
 * Only the exp of a row is vectorised. Sums are one chain in ascending order of expert, so that the
 * bits do not depend on the vector width. There is no scratch: the running top k lie in the token's
 * own `weights` and `experts`. */
#include "kernels/cpu/elementary.h"
#include "kernels/cpu/level.h"
#include <assert.h>

/* ---- keys ---- */

typedef struct {
  const float *scores, *bias; /* key = score + bias */
} router_keys;

/* A key that is no number counts as the smallest, so that keys are totally ordered. */
static inline float key_of(const router_keys *keys, int64_t e) {
  float key = keys->scores[e] + (keys->bias ? keys->bias[e] : 0.0f);
  return keys->scores[e] > -INFINITY && key > -INFINITY ? key : -INFINITY;
}

typedef struct {
  float key;
  int64_t index;
} candidate;

static inline bool is_before(candidate a, candidate b) {
  return a.key > b.key || (a.key == b.key && a.index < b.index);
}

static const candidate before_all = {INFINITY, -1}, after_all = {-INFINITY, INT64_MAX};

/* ---- groups ---- */

/* The sum of the largest keys of a group: each pass finds the one that follows the last. */
static float group_key(const tsr_choice *r, const router_keys *keys, int64_t group) {
  int64_t size = r->E / r->groups, first = group * size;
  candidate last = before_all;
  float sum = 0;
  for (int64_t n = 0; n < r->group_top; n++) {
    candidate best = after_all;
    for (int64_t e = first; e < first + size; e++) {
      candidate next = {key_of(keys, e), e};
      if (is_before(last, next) && is_before(next, best)) best = next;
    }
    sum = n == 0 ? best.key : sum + best.key;
    last = best;
  }
  return sum > -INFINITY ? sum : -INFINITY;
}

/* Keys of the first groups; those of more groups are computed again whenever they are read. */
enum { STORED_GROUPS = 64 };

typedef struct {
  const tsr_choice *r;
  const router_keys *keys;
  float stored[STORED_GROUPS];
  candidate last; /* of the groups that are kept, in order of their keys */
} group_limit;

static inline candidate group_candidate(const group_limit *g, int64_t group) {
  bool stored = group < STORED_GROUPS;
  return (candidate){stored ? g->stored[group] : group_key(g->r, g->keys, group), group};
}

static void limit_groups(group_limit *g, const tsr_choice *r, const router_keys *keys) {
  g->r = r;
  g->keys = keys;
  for (int64_t group = 0; group < r->groups && group < STORED_GROUPS; group++)
    g->stored[group] = group_key(r, keys, group);
  g->last = before_all;
  for (int64_t n = 0; n < r->kept_groups; n++) {
    candidate best = after_all;
    for (int64_t group = 0; group < r->groups; group++) {
      candidate next = group_candidate(g, group);
      if (is_before(g->last, next) && is_before(next, best)) best = next;
    }
    g->last = best;
  }
}

/* ---- choice ---- */

/* The `filled` best so far, from the best on. */
typedef struct {
  int32_t *experts;
  int64_t filled, k;
} top_k;

/* Experts come in ascending order, so that of equal keys the lower expert stays before. */
static inline void top_k_add(top_k *top, const router_keys *keys, int64_t expert) {
  float key = key_of(keys, expert);
  int32_t *list = top->experts;
  if (top->filled == top->k && !(key > key_of(keys, list[top->k - 1]))) return;
  int64_t at = top->filled < top->k ? top->filled++ : top->k - 1;
  for (; at > 0 && key > key_of(keys, list[at - 1]); at--) list[at] = list[at - 1];
  list[at] = (int32_t)expert;
}

static void sort_ascending(int32_t *experts, int64_t k) {
  for (int64_t i = 1; i < k; i++) {
    int32_t expert = experts[i];
    int64_t at = i;
    for (; at > 0 && experts[at - 1] > expert; at--) experts[at] = experts[at - 1];
    experts[at] = expert;
  }
}

static void choose(const tsr_choice *r, int32_t *experts, const router_keys *keys) {
  bool limited = r->groups > 1 && r->kept_groups < r->groups;
  group_limit limit;
  if (limited) limit_groups(&limit, r, keys);
  int64_t size = r->E / r->groups;
  top_k top = {experts, 0, r->k};
  for (int64_t group = 0; group < r->groups; group++) {
    if (limited && is_before(limit.last, group_candidate(&limit, group))) continue;
    for (int64_t e = group * size; e < (group + 1) * size; e++) top_k_add(&top, keys, e);
  }
  assert(top.filled == r->k);
  sort_ascending(experts, r->k);
}

static bool has_nan(const float *x, int64_t n) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = 0; i < n; i++) found |= x[i] != x[i];
  return found;
}

int64_t LEVEL(choose_experts)(
    const tsr_choice *r, int32_t *experts, const float *scores, const float *bias, int64_t begin,
    int64_t end) {
  int64_t nan_rows = 0;
  assert(r->k >= 1 && r->k <= r->E && r->groups >= 1 && r->E % r->groups == 0);
  assert(r->groups == 1 || (r->group_top >= 1 && r->group_top <= r->E / r->groups));
  assert(r->groups == 1 || r->k <= r->kept_groups * (r->E / r->groups));
  bool every = bias && has_nan(bias, r->E);
  for (int64_t s = begin; s < end; s++) {
    router_keys keys = {scores + s * r->E, bias};
    nan_rows += every || has_nan(keys.scores, r->E);
    choose(r, experts + s * r->k, &keys);
  }
  return nan_rows;
}

/* ---- weights ---- */

static float chain_sum(const float *x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

static void row_softmax(float *x, int64_t n) {
  float max = x[0];
  for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = real_exp(x[i] - max);
  float sum = chain_sum(x, n);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = x[i] / sum;
}

/* p (k): the chosen scores, or their softmax. Returns what they are divided by. */
static float
chosen_of(const tsr_choice_weights *w, float *p, const float *scores, const int32_t *experts) {
  for (int64_t j = 0; j < w->k; j++) p[j] = scores[experts[j]];
  if (w->softmax) row_softmax(p, w->k);
  return w->normalizes ? chain_sum(p, w->k) + 1e-20f : 1;
}

void LEVEL(expert_weights)(
    const tsr_choice_weights *w, float *weights, const float *scores, const int32_t *experts,
    int64_t begin, int64_t end) {
  for (int64_t s = begin; s < end; s++) {
    float *out = weights + s * w->k;
    float divisor = chosen_of(w, out, scores + s * w->E, experts + s * w->k);
#pragma omp simd
    for (int64_t j = 0; j < w->k; j++) out[j] = out[j] / divisor * w->scale;
  }
}

/* weight_j = scale p_j / sum: with g = scale dweight, dp_j = (g_j - sum of g_i p_i / sum) / sum;
 * and where p is a softmax, ds_j = p_j (dp_j - sum of dp_i p_i). p_j lies in ds[e_j] meanwhile. */
static void weights_backward(
    const tsr_choice_weights *w, float *ds, const float *dweights, const float *scores,
    const int32_t *experts) {
  float max = -INFINITY, sum = 0, dot = 0, inner = 0;
  for (int64_t j = 0; j < w->k; j++) max = scores[experts[j]] > max ? scores[experts[j]] : max;
  for (int64_t j = 0; j < w->k; j++) {
    float *p = &ds[experts[j]];
    *p = w->softmax ? real_exp(scores[experts[j]] - max) : scores[experts[j]];
    sum += *p;
  }
  for (int64_t j = 0; j < w->k && w->softmax; j++) ds[experts[j]] /= sum;
  if (w->softmax) sum = 1;
  float divisor = w->normalizes ? sum + 1e-20f : 1;
  for (int64_t j = 0; j < w->k && w->normalizes; j++)
    dot += w->scale * dweights[j] * (ds[experts[j]] / divisor);
  for (int64_t j = 0; j < w->k && w->softmax; j++)
    inner += (w->scale * dweights[j] - dot) / divisor * ds[experts[j]];
  for (int64_t j = 0; j < w->k; j++) {
    float *p = &ds[experts[j]], dp = (w->scale * dweights[j] - dot) / divisor;
    *p = w->softmax ? *p * (dp - inner) : dp;
  }
}

void LEVEL(expert_weights_backward)(
    const tsr_choice_weights *w, float *dscores, const float *dweights, const float *scores,
    const int32_t *experts, int64_t begin, int64_t end) {
  memset(dscores + begin * w->E, 0, (size_t)((end - begin) * w->E) * sizeof *dscores);
  for (int64_t s = begin; s < end; s++)
    weights_backward(
        w, dscores + s * w->E, dweights + s * w->k, scores + s * w->E, experts + s * w->k);
}
