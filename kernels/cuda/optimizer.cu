// SPDX-License-Identifier: Apache-2.0
/* AdamW (Loshchilov & Hutter 2019), Adam (Kingma & Ba 2015) and SGD with PyTorch's order of
 * operations, each in one pass, over many weights at once. A thread has four neighbours. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/philox.cuh"

enum { W = 4 };

/* The result of the norm: the gradient's factor, and whether the weights are updated. */
static __device__ inline bool clip_says(const float *clip, float *ret_factor) {
  *ret_factor = clip ? clip[1] : 1;
  return !clip || clip[2] != 0;
}

/* ---- many weights in one launch: blocks have pieces of them, in their order ---- */

/* A kernel's parameter, of which there are 4 KiB. */
template <typename T> struct weight_batch { /* f32 */
  enum { MOST = launch_weights_max(false) };
  int count;
  unsigned first[MOST]; /* block of each */
  bool packed[MOST];
  tsr_cuda_weight of[MOST];
};

template <> struct weight_batch<uint16_t> { /* bf16 */
  enum { MOST = launch_weights_max(true) };
  int count;
  unsigned first[MOST];
  bool packed[MOST];
  tsr_cuda_weight of[MOST];
  tsr_cuda_rounding rounding[MOST];
};

/* The weight that a block has a piece of. */
template <typename T> static __device__ inline int weight_here(const weight_batch<T> &b) {
  int low = 0, high = b.count;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (b.first[middle] <= blockIdx.x) low = middle;
    else high = middle;
  }
  return low;
}

/* The block's elements of weight `at`, W at a time. */
#define EACH_OF_PIECE(i, b, at)                                                                    \
  for (int64_t i = (int64_t)(blockIdx.x - (b).first[at]) * LAUNCH_UPDATE_PIECE + threadIdx.x * W,  \
               end = i + LAUNCH_UPDATE_PIECE;                                                      \
       i < end && i < (b).of[at].n; i += blockDim.x * W)

/* ---- how new values are stored: f32 as they are, bf16 by the rounding ---- */

static __device__ inline float weight_value(float w) { return w; }
static __device__ inline float weight_value(uint16_t w) { return bf16_value(w); }

static __device__ inline void weights_store(
    const weight_batch<float> &b, int at, const float (&)[W], const float (&x)[W], int64_t i) {
  raw_store((float *)b.of[at].w, x, i, b.of[at].n, b.packed[at]);
}

/* x are the new values of the weights that were `old`. */
static __device__ inline void weights_store(
    const weight_batch<uint16_t> &b, int at, const uint16_t (&old)[W], const float (&x)[W],
    int64_t i) {
  const tsr_cuda_rounding &rounding = b.rounding[at];
  const int64_t n = b.of[at].n;
  const bool packed = b.packed[at];
  uint16_t to[W], lost[W];
  uint32_t words[W];
  if (rounding.kind == TSR_ROUND_NEAREST) {
    for (int k = 0; k < W; k++) to[k] = bf16_nearest(x[k]);
  } else if (rounding.kind == TSR_ROUND_STOCHASTIC) {
    slice_words(words, rounding.slice, i, n, *rounding.key);
    for (int k = 0; k < W; k++) to[k] = bf16_truncate(x[k], words[k] >> 16);
  } else {
    raw_load(lost, rounding.compensation, i, n, packed, (uint16_t)0);
    for (int k = 0; k < W; k++) {
      float before = bf16_value(old[k]), t = bf16_value(lost[k]) + (x[k] - before);
      to[k] = bf16_nearest(before + t);
      lost[k] = bf16_nearest(t - (bf16_value(to[k]) - before));
    }
    raw_store(rounding.compensation, lost, i, n, packed);
  }
  raw_store((uint16_t *)b.of[at].w, to, i, n, packed);
}

/* ---- AdamW ---- */

template <typename T, bool MAX>
static __global__ void
adamw(const tsr_cuda_adamw_options o, const __grid_constant__ weight_batch<T> b) {
  float scale;
  if (!clip_says(o.clip, &scale)) return;
  const int at = weight_here(b);
  const tsr_cuda_weight &u = b.of[at];
  const bool packed = b.packed[at];
  const float decay = o.coupled ? 1 : 1 - *o.lr * u.weight_decay;
  const float rest1 = 1 - o.beta1, rest2 = 1 - o.beta2;
  const float rate = *o.lr / *o.correction1, root = sqrtf(*o.correction2);
  EACH_OF_PIECE(i, b, at) {
    T old[W];
    float x[W], g[W], first[W], second[W], seen[W];
    raw_load(old, (const T *)u.w, i, u.n, packed, (T)0);
    raw_load(g, u.grad, i, u.n, packed, 0.0f);
    raw_load(first, u.m, i, u.n, packed, 0.0f);
    raw_load(second, u.v, i, u.n, packed, 0.0f);
    if (MAX) raw_load(seen, u.v_max, i, u.n, packed, 0.0f);
#pragma unroll
    for (int k = 0; k < W; k++) {
      g[k] *= scale;
      if (o.coupled) g[k] += u.weight_decay * weight_value(old[k]);
      first[k] = first[k] + (g[k] - first[k]) * rest1;
      second[k] = second[k] * o.beta2 + g[k] * g[k] * rest2;
      seen[k] = MAX && seen[k] > second[k] ? seen[k] : second[k];
      x[k] = weight_value(old[k]) * decay - rate * (first[k] / (sqrtf(seen[k]) / root + o.eps));
    }
    raw_store(u.m, first, i, u.n, packed);
    raw_store(u.v, second, i, u.n, packed);
    if (MAX) raw_store(u.v_max, seen, i, u.n, packed);
    weights_store(b, at, old, x, i);
  }
}

/* ---- SGD ---- */

template <typename T>
static __global__ void
sgd(const tsr_cuda_sgd_options o, const __grid_constant__ weight_batch<T> b) {
  float scale;
  if (!clip_says(o.clip, &scale)) return;
  const int at = weight_here(b);
  const tsr_cuda_weight &u = b.of[at];
  const bool packed = b.packed[at];
  const float lr = *o.lr, fresh = 1 - o.dampening;
  const bool begins = u.m && *o.first != 0;
  EACH_OF_PIECE(i, b, at) {
    T old[W];
    float x[W], g[W], m[W];
    raw_load(old, (const T *)u.w, i, u.n, packed, (T)0);
    raw_load(g, u.grad, i, u.n, packed, 0.0f);
    if (u.m) raw_load(m, u.m, i, u.n, packed, 0.0f);
#pragma unroll
    for (int k = 0; k < W; k++) {
      g[k] = g[k] * scale + u.weight_decay * weight_value(old[k]);
      if (u.m) m[k] = begins ? g[k] : o.momentum * m[k] + fresh * g[k];
      float step = !u.m ? g[k] : o.nesterov ? g[k] + o.momentum * m[k] : m[k];
      x[k] = weight_value(old[k]) - lr * step;
    }
    if (u.m) raw_store(u.m, m, i, u.n, packed);
    weights_store(b, at, old, x, i);
  }
}

/* ---- launches ---- */

static void add_rounding(weight_batch<float> &, const tsr_cuda_rounding *) {}

/* With its slice in as few dimensions as can be. */
static void add_rounding(weight_batch<uint16_t> &b, const tsr_cuda_rounding *rounding) {
  tsr_cuda_rounding &to = b.rounding[b.count];
  to = *rounding;
  if (to.kind == TSR_ROUND_STOCHASTIC) to.slice = slice_folded(&rounding->slice);
  if (to.kind == TSR_ROUND_KAHAN) b.packed[b.count] &= is_aligned(to.compensation, 16);
}

/* Calls launch(batch, shape) with the weights, as many at a time as a batch holds. */
template <typename T, typename LAUNCH>
static void in_batches(
    const tsr_cuda_weight *weights, const tsr_cuda_rounding *roundings, int count, LAUNCH launch) {
  weight_batch<T> b;
  static_assert(sizeof b <= 4000, "a batch is a kernel's parameter");
  int64_t blocks = b.count = 0;
  for (int i = 0; i < count; i++) {
    const tsr_cuda_weight &u = weights[i];
    if (u.n <= 0) continue;
    b.first[b.count] = (unsigned)blocks;
    b.of[b.count] = u;
    b.packed[b.count] = is_aligned(u.w, 16) && is_aligned(u.m, 16) && is_aligned(u.v, 16) &&
                        is_aligned(u.v_max, 16) && is_aligned(u.grad, 16);
    add_rounding(b, roundings ? roundings + i : NULL);
    b.count++;
    blocks += launch_update_blocks(u.n);
    if (b.count < weight_batch<T>::MOST) continue;
    launch(b, launch_updates(blocks));
    blocks = b.count = 0;
  }
  if (b.count) launch(b, launch_updates(blocks));
}

template <typename T>
static void adamw_launch(
    tsr_cuda_stream s, const tsr_cuda_adamw_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  bool max = count && weights->v_max;
  in_batches<T>(weights, roundings, count, [&](const weight_batch<T> &b, tsr_launch_shape shape) {
    if (max) TSR_LAUNCH((adamw<T, true>), shape, s, *o, b);
    else TSR_LAUNCH((adamw<T, false>), shape, s, *o, b);
  });
}

template <typename T>
static void sgd_launch(
    tsr_cuda_stream s, const tsr_cuda_sgd_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  in_batches<T>(weights, roundings, count, [&](const weight_batch<T> &b, tsr_launch_shape shape) {
    TSR_LAUNCH(sgd<T>, shape, s, *o, b);
  });
}

extern "C" void tsr_cuda_adamw(
    tsr_cuda_stream s, const tsr_cuda_adamw_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  if (roundings) adamw_launch<uint16_t>(s, o, weights, roundings, count);
  else adamw_launch<float>(s, o, weights, roundings, count);
}

extern "C" void tsr_cuda_sgd(
    tsr_cuda_stream s, const tsr_cuda_sgd_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  if (roundings) sgd_launch<uint16_t>(s, o, weights, roundings, count);
  else sgd_launch<float>(s, o, weights, roundings, count);
}
