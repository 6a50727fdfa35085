// SPDX-License-Identifier: Apache-2.0
/* The routing of a mixture of experts: choice, weights, counts of choices, what balances them, and
 * the gradients. Sums over a token's experts are one chain, as the CPU's: a token is a thread's. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/expert_shape.h"
#include <assert.h>

/* ---- choice ---- */

typedef struct {
  const float *scores, *bias; /* key = score + bias */
} router_keys;

/* A key that is no number counts as the smallest, so that keys are totally ordered. -0 is 0. */
static __device__ inline float key_of(const router_keys &keys, int64_t e) {
  float score = keys.scores[e], key = score + (keys.bias ? keys.bias[e] : 0.0f);
  return score > -INFINITY && key > -INFINITY ? key + 0.0f : -INFINITY;
}

/* A key and its index as one number: the larger one is chosen before; 0 is behind all. */
static __device__ inline uint64_t candidate(float key, int64_t index) {
  uint32_t bits = __float_as_uint(key), order = bits >> 31 ? ~bits : bits | 0x80000000u;
  return (uint64_t)order << 32 | (uint32_t)~index;
}
static __device__ inline float candidate_key(uint64_t c) {
  uint32_t order = (uint32_t)(c >> 32);
  return __uint_as_float(order >> 31 ? order & 0x7FFFFFFFu : ~order);
}

/* Of the candidates [begin, end) the first one after `last`, in all threads of the warp. */
template <typename OF>
static __device__ inline uint64_t
warp_next(int64_t begin, int64_t end, uint64_t last, const OF &candidate_of) {
  uint64_t best = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += TSR_WARP) {
    uint64_t c = candidate_of(i);
    if (c < last && c > best) best = c;
  }
  for (int distance = TSR_WARP / 2; distance; distance /= 2) {
    uint64_t other = __shfl_xor_sync(~0u, best, distance);
    if (other > best) best = other;
  }
  return best;
}

/* How many of the candidates [0, n) are not behind `last`, in all threads of the warp. */
template <typename OF>
static __device__ inline int64_t warp_count(int64_t n, uint64_t last, const OF &candidate_of) {
  int64_t count = 0;
  for (int64_t i = threadIdx.x; i < n; i += TSR_WARP) count += candidate_of(i) >= last;
  return warp_sum(count);
}

/* The `count`-th of the candidates [0, n): one after the other, or of many by the bits of the
 * largest number that so many are not behind. */
template <typename OF>
static __device__ inline uint64_t warp_last(int64_t n, int64_t count, const OF &candidate_of) {
  uint64_t last = UINT64_MAX;
  if (count <= 64) {
    for (int64_t i = 0; i < count; i++) last = warp_next(0, n, last, candidate_of);
    return last;
  }
  last = 0;
  for (int bit = 63; bit >= 0; bit--) {
    uint64_t more = last | (uint64_t)1 << bit;
    if (warp_count(n, more, candidate_of) >= count) last = more;
  }
  return last;
}

/* The sum of the largest keys of a group, from the largest down. */
static __device__ inline float
group_key(const tsr_choice &r, const router_keys &keys, int64_t group) {
  int64_t size = r.E / r.groups, first = group * size;
  uint64_t last = UINT64_MAX;
  float sum = 0;
  for (int64_t n = 0; n < r.group_top; n++) {
    last = warp_next(
        first, first + size, last, [&](int64_t e) { return candidate(key_of(keys, e), e); });
    sum = n == 0 ? candidate_key(last) : sum + candidate_key(last);
  }
  return sum > -INFINITY ? sum + 0.0f : -INFINITY;
}

/* Writes the chosen experts in ascending order: those that are not behind the k-th. */
template <typename OF>
static __device__ inline void
write_chosen(int32_t *experts, int64_t E, uint64_t last, const OF &candidate_of) {
  int64_t count = 0;
  for (int64_t first = 0; first < E; first += TSR_WARP) {
    int64_t e = first + threadIdx.x;
    unsigned chosen = __ballot_sync(~0u, e < E && candidate_of(e) >= last);
    unsigned before = chosen & ((1u << threadIdx.x) - 1);
    if (chosen >> threadIdx.x & 1) experts[count + __popc(before)] = (int32_t)e;
    count += __popc(chosen);
  }
}

/* A warp a token. Keys of its groups lie in shared memory, or of many groups in the scratch. */
static __global__ void choose_experts(
    int32_t *experts, const float *scores, const float *bias, tsr_choice r, int64_t S,
    uint64_t place, unsigned long long *nan_place, float *scratch) {
  TSR_SHARED(float, shared);
  int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, size = r.E / r.groups;
  float *group_keys = scratch ? scratch + token * r.groups : shared + threadIdx.y * r.groups;
  if (token >= S) return;
  router_keys keys = {scores + token * r.E, bias};
  bool limited = r.groups > 1 && r.kept_groups < r.groups, nan = false;
  for (int64_t e = threadIdx.x; e < r.E && nan_place; e += TSR_WARP)
    nan |= keys.scores[e] != keys.scores[e] || (bias && bias[e] != bias[e]);
  if (nan) atomicMin(nan_place, (unsigned long long)place);
  uint64_t last_group = 0;
  auto group_candidate = [&](int64_t group) { return candidate(group_keys[group], group); };
  if (limited) {
    for (int64_t group = 0; group < r.groups; group++) {
      float key = group_key(r, keys, group);
      if (threadIdx.x == 0) group_keys[group] = key;
    }
    __syncwarp();
    last_group = warp_last(r.groups, r.kept_groups, group_candidate);
  }
  auto expert_candidate = [&](int64_t e) {
    if (limited && group_candidate(e / size) < last_group) return (uint64_t)0;
    return candidate(key_of(keys, e), e);
  };
  uint64_t last = warp_last(r.E, r.k, expert_candidate);
  write_chosen(experts + token * r.k, r.E, last, expert_candidate);
}

extern "C" void tsr_cuda_choose_experts(
    tsr_cuda_stream s, const tsr_choice *r, int32_t *experts, const float *scores,
    const float *bias, int64_t S, uint64_t place, uint64_t *nan_place, void *scratch) {
  float *keys = tsr_cuda_choose_experts_scratch(S, r->groups) ? (float *)scratch : NULL;
  if (S > 0)
    TSR_LAUNCH(
        choose_experts, launch_choose_experts(S, r->groups), s, experts, scores, bias, *r, S, place,
        (unsigned long long *)nan_place, keys);
}

/* ---- weights ---- */

/* p (k), of which `max` is the largest, becomes its softmax. */
static __device__ inline void softmax_chain(float *p, int64_t k, float max) {
  float sum = 0;
  for (int64_t j = 0; j < k; j++) {
    p[j] = expf(p[j] - max);
    sum += p[j];
  }
  for (int64_t j = 0; j < k; j++) p[j] = p[j] / sum;
}

static __global__ void expert_weights(
    float *weights, const float *scores, const int32_t *experts, tsr_choice_weights w, int64_t S) {
  for (int64_t s = map_thread(); s < S; s += map_threads()) {
    float *p = weights + s * w.k, max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < w.k; j++) {
      p[j] = scores[s * w.E + experts[s * w.k + j]];
      max = p[j] > max ? p[j] : max;
    }
    if (w.softmax) softmax_chain(p, w.k, max);
    for (int64_t j = 0; j < w.k && w.normalizes; j++) sum += p[j];
    float divisor = w.normalizes ? sum + 1e-20f : 1;
    for (int64_t j = 0; j < w.k; j++) p[j] = p[j] / divisor * w.scale;
  }
}

extern "C" void tsr_cuda_expert_weights(
    tsr_cuda_stream s, const tsr_choice_weights *w, float *weights, const float *scores,
    const int32_t *experts, int64_t S) {
  if (S > 0) TSR_LAUNCH(expert_weights, launch_map(S), s, weights, scores, experts, *w, S);
}

/* weight_j = scale p_j / sum: with g = scale dweight, dp_j = (g_j - sum of g_i p_i / sum) / sum;
 * and where p is a softmax, ds_j = p_j (dp_j - sum of dp_i p_i). p_j lies in ds[e_j] meanwhile. */
static __device__ inline void weights_backward(
    const tsr_choice_weights &w, float *ds, const float *dweights, const float *scores,
    const int32_t *experts) {
  float max = -INFINITY, sum = 0, dot = 0, inner = 0;
  for (int64_t j = 0; j < w.k; j++) max = scores[experts[j]] > max ? scores[experts[j]] : max;
  for (int64_t j = 0; j < w.k; j++) {
    float p = scores[experts[j]];
    if (w.softmax) p = expf(p - max);
    ds[experts[j]] = p;
    sum += p;
  }
  for (int64_t j = 0; j < w.k && w.softmax; j++) ds[experts[j]] /= sum;
  if (w.softmax) sum = 1;
  float divisor = w.normalizes ? sum + 1e-20f : 1;
  for (int64_t j = 0; j < w.k && w.normalizes; j++)
    dot += w.scale * dweights[j] * (ds[experts[j]] / divisor);
  for (int64_t j = 0; j < w.k && w.softmax; j++)
    inner += (w.scale * dweights[j] - dot) / divisor * ds[experts[j]];
  for (int64_t j = 0; j < w.k; j++) {
    float p = ds[experts[j]], dp = (w.scale * dweights[j] - dot) / divisor;
    ds[experts[j]] = w.softmax ? p * (dp - inner) : dp;
  }
}

/* dscores are zeros. */
static __global__ void expert_weights_backward(
    float *dscores, const float *dweights, const float *scores, const int32_t *experts,
    tsr_choice_weights w, int64_t S) {
  for (int64_t s = map_thread(); s < S; s += map_threads())
    weights_backward(w, dscores + s * w.E, dweights + s * w.k, scores + s * w.E, experts + s * w.k);
}

extern "C" void tsr_cuda_expert_weights_backward(
    tsr_cuda_stream s, const tsr_choice_weights *w, float *dscores, const float *dweights,
    const float *scores, const int32_t *experts, int64_t S) {
  if (S <= 0) return;
  tsr_cuda_zero(s, dscores, S * w->E * (int64_t)sizeof *dscores);
  TSR_LAUNCH(expert_weights_backward, launch_map(S), s, dscores, dweights, scores, experts, *w, S);
}

/* ---- counts, and what balances ---- */

static __global__ void
expert_counts(float *counts, const int32_t *experts, tsr_cuda_expert_counting of) {
  __shared__ int32_t scratch[TSR_WARP];
  int64_t run = blockIdx.x / of.E, expert = blockIdx.x % of.E;
  const int32_t *chosen = experts + run * of.each * of.step;
  int32_t count = 0;
  for (int64_t i = threadIdx.x; i < of.each; i += blockDim.x)
    count += chosen[i * of.step] == expert;
  count = block_sum(count, scratch);
  if (threadIdx.x > 0) return;
  counts[blockIdx.x] = (float)(of.digit ? count % of.digit : count);
  if (of.digit) counts[of.E + expert] = (float)(count / of.digit);
}

extern "C" void tsr_cuda_expert_counts(
    tsr_cuda_stream s, float *counts, const int32_t *experts, const tsr_cuda_expert_counting *of) {
  assert(of->runs == 1 || !of->digit);
  TSR_LAUNCH(expert_counts, launch_expert_counts(of), s, counts, experts, *of);
}

/* A count of all tokens, from its digits (2, E). */
static __device__ inline double total(const float *counts, int64_t E, int64_t expert, int digit) {
  return (double)counts[expert] + (double)digit * (double)counts[E + expert];
}

static __global__ void balance_backward(
    float *dscores, const float *counts, const float *scores, int64_t S, int64_t E,
    tsr_cuda_balance b) {
  float factor = b.more ? b.factor * *b.more : b.factor;
  for (int64_t t = map_thread(); t < S; t += map_threads()) {
    const float *of_run = b.digit ? counts : counts + t / b.each * E, *s = scores + t * E;
    auto count = [&](int64_t e) {
      return b.digit ? (float)total(counts, E, e, b.digit) : of_run[e];
    };
    float *d = dscores + t * E, sum = 0, inner = 0;
    for (int64_t e = 0; e < E && b.normalizes; e++) sum += s[e];
    if (!b.normalizes) sum = 1;
    for (int64_t e = 0; e < E && b.normalizes; e++) inner += factor * count(e) * (s[e] / sum);
    for (int64_t e = 0; e < E; e++) d[e] = (factor * count(e) - inner) / sum;
  }
}

extern "C" void tsr_cuda_balance_backward(
    tsr_cuda_stream s, float *dscores, const float *counts, const float *scores, int64_t S,
    int64_t E, const tsr_cuda_balance *b) {
  if (S > 0) TSR_LAUNCH(balance_backward, launch_map(S), s, dscores, counts, scores, S, E, *b);
}

static __global__ void router_z_backward(
    float *dlogits, const float *logits, int64_t S, int64_t E, float factor, const float *more) {
  float times = more ? factor * *more : factor;
  for (int64_t t = map_thread(); t < S; t += map_threads()) {
    const float *x = logits + t * E;
    float *d = dlogits + t * E, max = x[0], sum = 0;
    for (int64_t e = 1; e < E; e++) max = x[e] > max ? x[e] : max;
    for (int64_t e = 0; e < E; e++) {
      d[e] = expf(x[e] - max);
      sum += d[e];
    }
    float z = (float)((double)max + log((double)sum)), scale = times * z / sum;
    for (int64_t e = 0; e < E; e++) d[e] *= scale;
  }
}

extern "C" void tsr_cuda_router_z_backward(
    tsr_cuda_stream s, float *dlogits, const float *logits, int64_t S, int64_t E, float factor,
    const float *more) {
  if (S > 0) TSR_LAUNCH(router_z_backward, launch_map(S), s, dlogits, logits, S, E, factor, more);
}

/* ---- updates ---- */

static __global__ void expert_bias(
    float *bias, const float *counts, int64_t E, int digit, double rate, bool centre,
    const float *clip) {
  __shared__ double sums[TSR_WARP];
  __shared__ int32_t changes[TSR_WARP];
  if (clip && clip[2] == 0) return;
  double sum = 0; /* of whole numbers: exact in any order */
  int32_t signs = 0;
  for (int64_t e = threadIdx.x; e < E; e += blockDim.x) sum += total(counts, E, e, digit);
  sum = block_sum(sum, sums);
  auto sign = [&](int64_t e) {
    double has = total(counts, E, e, digit) * (double)E;
    return (has < sum) - (has > sum);
  };
  for (int64_t e = threadIdx.x; e < E; e += blockDim.x) signs += sign(e);
  signs = block_sum(signs, changes);
  for (int64_t e = threadIdx.x; e < E; e += blockDim.x)
    bias[e] += (float)(rate * (sign(e) - (centre ? (double)signs / (double)E : 0)));
}

extern "C" void tsr_cuda_expert_bias(
    tsr_cuda_stream s, float *bias, const float *counts, int64_t E, int digit, double rate,
    bool centre, const float *clip) {
  TSR_LAUNCH(expert_bias, launch_expert_update(), s, bias, counts, E, digit, rate, centre, clip);
}

static __global__ void
expert_load(float *load, const float *counts, int64_t E, int digit, const float *clip) {
  if (clip && clip[2] == 0) return;
  for (int64_t e = threadIdx.x; e < E; e += blockDim.x) load[e] = (float)total(counts, E, e, digit);
}

extern "C" void tsr_cuda_expert_load(
    tsr_cuda_stream s, float *load, const float *counts, int64_t E, int digit, const float *clip) {
  TSR_LAUNCH(expert_load, launch_expert_update(), s, load, counts, E, digit, clip);
}
