// SPDX-License-Identifier: Apache-2.0
/* Cross entropy over a vocabulary that may be sharded, and squared error. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduction_tree.cuh"
#include <assert.h>

enum { W = pack_of<float>::width };

static __host__ __device__ inline int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/* A run of the vocabulary: a maximum, and the sum of exp(x - maximum). */
typedef struct {
  float max, sum;
} run_stats;

/* A thread's part of a row in one pass: where the maximum rises, the sum so far is taken down. What
 * is -infinity adds nothing; a NaN makes the sum one. */
static __device__ inline run_stats thread_stats(const float *x, int64_t n, bool packed) {
  run_stats s = {-INFINITY, 0};
  EACH_PACK(c, n, W) {
    float v[W], most = s.max;
    row_load(v, x, c, n, packed, -INFINITY);
    EACH_LANE(k, W) most = larger(most, v[k]);
    if (most > s.max) {
      s.sum *= s.max == -INFINITY && s.sum == 0 ? 1 : expf(s.max - most);
      s.max = most;
    }
    EACH_LANE(k, W) s.sum += v[k] == -INFINITY ? 0 : expf(v[k] - s.max);
  }
  return s;
}

/* A block has one run of columns of one row. */
static __global__ void softmax_stats(
    float *stats, const float *logits, const int32_t *targets, int64_t V_local, int64_t v_begin,
    int64_t v_valid, int64_t units, bool packed) {
  __shared__ float scratch[TSR_WARP];
  int64_t row = blockIdx.x / units, unit = blockIdx.x % units, run = V_local / units;
  int64_t first = v_begin + unit * run, valid = clamp(v_valid - first, 0, run);
  const float *x = logits + row * V_local + unit * run;
  run_stats s = thread_stats(x, valid, packed);
  float most = block_max(s.max, scratch);
  float sum = block_sum(s.max == -INFINITY ? s.sum : s.sum * expf(s.max - most), scratch);
  if (threadIdx.x > 0) return;
  float *out = stats + ((int64_t)blockIdx.x) * 3;
  int64_t target = targets[row] - first;
  out[0] = most;
  out[1] = valid > 0 && most == -INFINITY ? NAN : sum; /* as exp(-infinity + infinity) is */
  out[2] = targets[row] >= 0 && target >= 0 && target < valid ? x[target] : 0;
}

extern "C" void tsr_cuda_softmax_stats(
    tsr_cuda_stream s, float *stats, const float *logits, const int32_t *targets, int64_t R,
    int64_t V_local, int64_t v_begin, int64_t v_valid, int64_t units) {
  assert(units > 0 && V_local % units == 0);
  if (R <= 0 || V_local <= 0) return;
  bool packed = is_aligned(logits, 16) && V_local % W == 0 && V_local / units % W == 0;
  TSR_LAUNCH(
      softmax_stats, launch_rows(R * units, V_local / units), s, stats, logits, targets, V_local,
      v_begin, v_valid, units, packed);
}

typedef struct {
  float max, sum, target;
} unit_stats;

static __device__ inline unit_stats merge(unit_stats a, unit_stats b) {
  unit_stats c = {larger(a.max, b.max), 0, a.target + b.target};
  float left = a.sum == 0 ? 0 : a.sum * expf(a.max - c.max); /* all padding: -inf - -inf */
  float right = b.sum == 0 ? 0 : b.sum * expf(b.max - c.max);
  c.sum = left + right;
  return c;
}

static __global__ void softmax_loss(
    float *row_loss, float *row_stats, const float *stats, const int32_t *targets, int64_t R,
    int64_t units) {
  unit_stats stack[TSR_TREE_DEPTH_MAX];
  for (int64_t r = map_thread(); r < R; r += map_threads()) {
    tsr_tree_stack tree = {};
    for (int64_t unit = 0; unit < units; unit++) {
      const float *s = stats + (r * units + unit) * 3;
      stack[tsr_tree_push(&tree, tsr_tree_merges(units, unit))] = {s[0], s[1], s[2]};
      for (int low; tsr_tree_merge(&tree, &low);) stack[low] = merge(stack[low], stack[low + 1]);
    }
    unit_stats all = stack[0];
    row_stats[r * 2] = all.max;
    row_stats[r * 2 + 1] = all.sum;
    double loss = (double)all.max + log((double)all.sum) - (double)all.target;
    bool real = all.sum > 0 && all.sum < INFINITY;
    row_loss[r] = targets[r] < 0 ? 0 : real ? (float)loss : NAN;
  }
}

extern "C" void tsr_cuda_softmax_loss(
    tsr_cuda_stream s, float *row_loss, float *row_stats, const float *stats,
    const int32_t *targets, int64_t R, int64_t units) {
  assert(units > 0);
  if (R > 0)
    TSR_LAUNCH(softmax_loss, launch_map(R), s, row_loss, row_stats, stats, targets, R, units);
}

/* A block a row; a thread reads its elements before it writes them, for dlogits may be logits. */
template <typename T>
static __global__ void softmax_loss_backward(
    T *dlogits, const float *logits, const float *row_stats, const int32_t *targets,
    const float *factor, const float *more, int64_t V_local, int64_t v_begin, int64_t v_valid,
    bool packed) {
  int64_t r = blockIdx.x, target = targets[r] - v_begin;
  int64_t valid = targets[r] < 0 ? 0 : clamp(v_valid - v_begin, 0, V_local);
  float most = row_stats[r * 2], share = 1.0f / row_stats[r * 2 + 1];
  float times = more ? *factor * *more : *factor;
  EACH_PACK(c, V_local, W) {
    float x[W];
    row_load(x, logits + r * V_local, c, V_local, packed);
    EACH_LANE(k, W) {
      float p = expf(x[k] - most) * share;
      x[k] = c + k < valid ? (c + k == target ? p - 1 : p) * times : 0;
    }
    row_store(dlogits + r * V_local, x, c, V_local, packed);
  }
}

extern "C" void tsr_cuda_softmax_loss_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dlogits, const float *logits,
    const float *row_stats, const int32_t *targets, const float *factor, const float *more,
    int64_t R, int64_t V_local, int64_t v_begin, int64_t v_valid) {
  if (R <= 0 || V_local <= 0) return;
  bool packed = is_aligned(logits, 16) && is_aligned(dlogits, 16) && V_local % W == 0;
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          softmax_loss_backward<T>, launch_rows(R, V_local), s, (T *)dlogits, logits, row_stats,
          targets, factor, more, V_local, v_begin, v_valid, packed));
}

static __global__ void
squared_error(float *row_loss, const float *x, const float *y, int64_t C, bool packed) {
  __shared__ float scratch[TSR_WARP];
  int64_t first = (int64_t)blockIdx.x * C;
  float sum = 0;
  EACH_PACK(c, C, W) {
    float a[W], b[W];
    row_load(a, x + first, c, C, packed);
    row_load(b, y + first, c, C, packed);
    EACH_LANE(k, W) sum += (a[k] - b[k]) * (a[k] - b[k]);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) row_loss[blockIdx.x] = sum;
}

extern "C" void tsr_cuda_squared_error(
    tsr_cuda_stream s, float *row_loss, const float *x, const float *y, int64_t R, int64_t C) {
  bool packed = is_aligned(x, 16) && is_aligned(y, 16) && C % W == 0;
  if (R > 0) TSR_LAUNCH(squared_error, launch_rows(R, C), s, row_loss, x, y, C, packed);
}

static __global__ void squared_error_backward(
    float *dx, const float *x, const float *y, float factor, const float *more, int64_t n) {
  float times = more ? factor * *more : factor;
  for (int64_t i = map_thread(); i < n; i += map_threads()) dx[i] = 2 * (x[i] - y[i]) * times;
}

extern "C" void tsr_cuda_squared_error_backward(
    tsr_cuda_stream s, float *dx, const float *x, const float *y, float factor, const float *more,
    int64_t n) {
  if (n > 0) TSR_LAUNCH(squared_error_backward, launch_map(n), s, dx, x, y, factor, more, n);
}
