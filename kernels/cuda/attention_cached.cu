// SPDX-License-Identifier: Apache-2.0
/* Attention of new tokens to a cache. A block has one token and some heads of one group. Its warps
 * take splits of SPLIT keys in turn; a split's softmax and weighted values are merged with the
 * others' by base/reduction_tree.h's tree over the splits that the token sees. So the bits of a
 * token depend on its position, not on how many tokens are new or how long the cache may become. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduction_tree.cuh"

enum { WARPS = CACHED_WARPS, THREADS = WARPS * TSR_WARP, STACK = 32 };
enum { SPLIT = CACHED_SPLIT, WIDTH_MAX = CACHED_WIDTH };
static_assert(
    (int)SPLIT <= (int)TSR_ATTENTION_CACHED_BEFORE, "keys are read from where a split begins");
enum { KEY_LANES = 8, KEYS_AT_ONCE = TSR_WARP / KEY_LANES };

/* A block's place: `heads` of the group from the one that q and out point to. */
template <typename N> struct token {
  const N *q, *keys, *values;
  N *out;
  int64_t begin, seen; /* it sees the keys [begin, seen); 0 where the token is not real */
  int64_t stride, value_stride, D, Dv; /* of the cache */
  float soft_cap;                      /* 0: none */
  const int32_t *pages;
  int page;
  int heads;
  int64_t head; /* the first of them */
};

template <typename N, int HEADS>
static __device__ inline token<N>
token_at(const tsr_attention_cached &c, N *out, const N *q, const N *keys, const N *values) {
  const tsr_attention &a = c.a;
  int64_t group = a.H / a.G, chunks = (group + HEADS - 1) / HEADS;
  int64_t chunk = blockIdx.x % chunks, g = blockIdx.x / chunks % a.G;
  int64_t row = blockIdx.x / chunks / a.G, b = row / a.T, t = row % a.T;
  int64_t h = chunk * HEADS, left = group - h, position = c.positions[b];
  bool real = t < c.counts[b] && position + t < c.page * c.pages_each;
  int64_t at = row * a.H + g * group + h;
  token<N> x;
  x.q = q + at * a.D;
  x.out = out + at * a.Dv;
  x.keys = keys + g * a.D;
  x.values = values + g * a.Dv;
  x.pages = c.pages + b * c.pages_each;
  x.page = (int)c.page;
  x.seen = real ? position + t + 1 : 0;
  x.begin = a.window && x.seen > a.window ? x.seen - a.window : 0;
  x.stride = a.G * a.D;
  x.value_stride = a.G * a.Dv;
  x.D = a.D;
  x.Dv = a.Dv;
  x.soft_cap = a.soft_cap;
  x.heads = (int)(left < HEADS ? left : HEADS);
  x.head = g * group + h;
  return x;
}

/* Which row of the pools a position has. */
template <typename N> static __device__ inline int64_t row_at(const token<N> &x, int64_t position) {
  int at = (int)position;
  return (int64_t)x.pages[at / x.page] * x.page + at % x.page;
}

/* A split's numbers for one head, in shared memory. */
struct split_part {
  float max, sum, out[WIDTH_MAX];
};

template <int HEADS> struct cached_shared {
  float queries[HEADS][WIDTH_MAX]; /* times the scale, zeros behind D */
  float scores[WARPS][HEADS][SPLIT];
  split_part parts[WARPS][HEADS];
};

/* Whether 4 or more neighbours can be read at once from every row. */
template <int W, typename N> static __device__ inline bool packs(const N *x, int64_t D) {
  return D % W == 0 && (uintptr_t)x % (W * sizeof(N)) == 0;
}

/* A warp's scores of the split's keys; KEY_LANES lanes a key, which add their parts crosswise. */
template <typename N, int HEADS>
static __device__ inline void split_scores(
    const token<N> &x, float (*scores)[SPLIT], const float (*queries)[WIDTH_MAX], int64_t first) {
  const int W = pack_of<N>::width;
  int lane = (int)threadIdx.x % TSR_WARP, part = lane % KEY_LANES;
  bool packed = packs<W>(x.keys, x.D);
#pragma unroll 4
  for (int i = 0; i < SPLIT; i += KEYS_AT_ONCE) {
    int key = i + lane / KEY_LANES;
    bool seen = first + key >= x.begin && first + key < x.seen;
    const N *row = x.keys + row_at(x, seen ? first + key : x.seen - 1) * x.stride;
    float sums[HEADS] = {0};
    for (int64_t d = part * W; d < x.D; d += KEY_LANES * W) {
      float k[W];
      row_load<W>(k, row, d, x.D, packed);
#pragma unroll
      for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int w = 0; w < W; w++) sums[h] = fmaf(queries[h][d + w], k[w], sums[h]);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      for (int n = KEY_LANES / 2; n; n /= 2) sums[h] += __shfl_xor_sync(~0u, sums[h], n);
      if (x.soft_cap != 0) sums[h] = x.soft_cap * tanhf(sums[h] / x.soft_cap);
      if (part == 0) scores[h][key] = seen ? sums[h] : -INFINITY;
    }
  }
}

/* Scores to exp(score - maximum). */
template <int HEADS>
static __device__ inline void split_softmax(float (*scores)[SPLIT], split_part *parts) {
  int lane = (int)threadIdx.x % TSR_WARP;
  for (int h = 0; h < HEADS; h++) {
    float first = scores[h][lane], second = scores[h][lane + TSR_WARP];
    float max = warp_max(fmaxf(first, second));
    first = expf(first - max), second = expf(second - max);
    scores[h][lane] = first, scores[h][lane + TSR_WARP] = second;
    float sum = warp_sum(first + second);
    if (lane == 0) parts[h].max = max, parts[h].sum = sum;
  }
}

/* The weighted values, which each lane has 4 neighbouring columns of, and those 128 behind. */
template <typename N, int HEADS>
static __device__ inline void
split_values(const token<N> &x, const float (*scores)[SPLIT], split_part *parts, int64_t first) {
  int64_t left = x.seen - first;
  int keys = left < SPLIT ? (int)left : SPLIT;
  bool packed = packs<4>(x.values, x.Dv);
  for (int d = (int)threadIdx.x % TSR_WARP * 4; d < x.Dv; d += 4 * TSR_WARP) {
    float sums[HEADS][4] = {{0}};
#pragma unroll 4
    for (int key = 0; key < keys; key++) {
      float v[4];
      row_load<4>(v, x.values + row_at(x, first + key) * x.value_stride, d, x.Dv, packed);
#pragma unroll
      for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[h][i] = fmaf(scores[h][key], v[i], sums[h][i]);
    }
    for (int h = 0; h < HEADS; h++)
      for (int i = 0; i < 4; i++) parts[h].out[d + i] = sums[h][i];
  }
}

/* What a thread has of a merged split: its head's maximum and sum, and some of its columns. */
template <int E> struct merged { float max, sum, out[E]; };

/* a += b */
template <int E> static __device__ inline void merge(merged<E> *a, const merged<E> *b) {
  float max = fmaxf(a->max, b->max), x = expf(a->max - max), y = expf(b->max - max);
  a->max = max;
  a->sum = a->sum * x + b->sum * y;
  for (int e = 0; e < E; e++) a->out[e] = a->out[e] * x + b->out[e] * y;
}

/* THREADS / HEADS threads have a head's columns. Every thread has its own stack: no barrier. */
template <typename N, int HEADS>
static __global__ void __launch_bounds__(THREADS)
    attention_cached(tsr_attention_cached c, N *out, const N *q, const N *keys, const N *values) {
  const int E = WIDTH_MAX * HEADS / THREADS, IN_HEAD = THREADS / HEADS;
  TSR_SHARED(cached_shared<HEADS>, shared);
  token<N> x = token_at<N, HEADS>(c, out, q, keys, values);
  int warp = (int)threadIdx.x / TSR_WARP;
  int head = (int)threadIdx.x / IN_HEAD, column = (int)threadIdx.x % IN_HEAD;
  int64_t begin = x.begin / SPLIT, splits = (x.seen + SPLIT - 1) / SPLIT;
  merged<E> stack[STACK];
  int depth = 0;
  for (int i = (int)threadIdx.x; i < HEADS * WIDTH_MAX; i += THREADS) {
    int h = i / WIDTH_MAX, d = i % WIDTH_MAX;
    bool real = h < x.heads && d < x.D;
    shared->queries[h][d] = real ? number_load(x.q + h * x.D + d) * c.a.scale : 0.0f;
  }
  __syncthreads();
  for (int64_t from = begin; from < splits; from += WARPS) {
    int64_t split = from + warp, first = split * SPLIT;
    if (split < splits) {
      split_scores<N, HEADS>(x, shared->scores[warp], shared->queries, first);
      __syncwarp();
      split_softmax<HEADS>(shared->scores[warp], shared->parts[warp]);
      __syncwarp();
      split_values<N, HEADS>(x, shared->scores[warp], shared->parts[warp], first);
    }
    __syncthreads();
    for (int64_t i = from; i < splits && i < from + WARPS; i++) {
      const split_part *part = &shared->parts[i - from][head];
      stack[depth].max = part->max;
      stack[depth].sum = part->sum;
      for (int e = 0; e < E; e++) {
        int d = column + e * IN_HEAD;
        stack[depth].out[e] = d < x.Dv ? part->out[d] : 0.0f;
      }
      depth++;
      for (int n = tsr_tree_merges(splits - begin, i - begin); n; n--, depth--)
        merge(&stack[depth - 2], &stack[depth - 1]);
    }
    __syncthreads();
  }
  if (head >= x.heads) return;
  float shrunk = splits ? attention_sink(c.a, x.head + head, &stack[0].max, &stack[0].sum) : 1;
  for (int e = 0; e < E; e++) {
    int d = column + e * IN_HEAD;
    if (d < x.Dv)
      number_store(
          x.out + head * x.Dv + d, splits ? stack[0].out[e] * shrunk / stack[0].sum : 0.0f);
  }
}

template <typename N, int HEADS>
static void cached(
    tsr_cuda_stream s, const tsr_attention_cached *c, void *out, const void *q, const void *keys,
    const void *values) {
  const tsr_launch_shape shape = launch_attention_cached(&c->a);
  static_assert(sizeof(cached_shared<HEADS>) == cached_shared_bytes(HEADS), "what is launched");
  TSR_ALLOW_SHARED((attention_cached<N, HEADS>), shape.shared_bytes);
  TSR_LAUNCH(
      (attention_cached<N, HEADS>), shape, s, *c, (N *)out, (const N *)q, (const N *)keys,
      (const N *)values);
}

template <typename N>
static void cached_heads(
    tsr_cuda_stream s, const tsr_attention_cached *c, void *out, const void *q, const void *keys,
    const void *values) {
  int heads = cached_heads_of(&c->a);
  if (heads == 1) cached<N, 1>(s, c, out, q, keys, values);
  else if (heads == 2) cached<N, 2>(s, c, out, q, keys, values);
  else cached<N, 4>(s, c, out, q, keys, values);
}

extern "C" void tsr_cuda_attention_cached(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_cached *of, void *out, const void *q,
    const void *keys, const void *values) {
  tsr_attention_cached c = *of;
  c.a = attention_with_value_size(&of->a);
  if (c.a.B * c.a.T * c.a.H * c.a.D == 0) return;
  TSR_BY_TYPE(type, N, cached_heads<N>(s, &c, out, q, keys, values))
}
