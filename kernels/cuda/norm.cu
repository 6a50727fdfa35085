// SPDX-License-Identifier: Apache-2.0
/* Layer norm (Ba et al. 2016), RMS norm (Zhang & Sennrich 2019), each with the residual that is
 * added before it, and softmax: a warp or a block a row, with a number of threads that depends on
 * its length alone. A row is read again for every pass over it, from the nearest cache. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/number.cuh"

/* What a norm's row is a sum of; from NULL: the row is given. */
template <typename T> struct summands { const T *from, *row, *plus; };

/* Each thread adds the elements that it then reads. */
template <typename T>
static __device__ inline void
row_sum(T *x, const summands<T> &sum, int64_t first, int64_t C, bool packed) {
  enum { W = pack_of<T>::width };
  if (!sum.from) return;
  EACH_PACK(c, C, W) {
    float v[W];
    row_load(v, sum.from + first, c, C, packed);
    row_add(v, sum.row, c, C, packed);
    row_add(v, sum.plus + first, c, C, packed);
    row_store(x + first, v, c, C, packed);
  }
}

/* A gradient that is rounded before another one is added to it; plus NULL: as it is. */
template <int W, typename T>
static __device__ inline void
row_plus(float (&v)[W], const T *plus, int64_t first, int64_t c, int64_t C, bool packed) {
  if (!plus) return;
  EACH_LANE(k, W) v[k] = rounded<T>(v[k]);
  row_add(v, plus + first, c, C, packed);
}

/* A block that has several rows has a warp for each, and no barriers. */
#define ROW_BEGINS                                                                                 \
  enum { W = pack_of<T>::width };                                                                  \
  __shared__ float scratch[TSR_WARP];                                                              \
  const int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;                                \
  if (r >= R) return

template <typename T>
static __global__ void layernorm(
    T *y, float *mean, float *rstd, T *x, const summands<T> added, const T *w, const T *b,
    int64_t R, int64_t C, float eps, bool packed) {
  ROW_BEGINS;
  row_sum(x, added, r * C, C, packed);
  const T *in = x + r * C;
  float v[W], scale[W], shift[W], sum = 0, squares = 0;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    EACH_LANE(k, W) sum += v[k];
  }
  float center = block_sum(sum, scratch) / (float)C;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed, center);
    EACH_LANE(k, W) squares += (v[k] - center) * (v[k] - center);
  }
  float factor = 1.0f / sqrtf(block_sum(squares, scratch) / (float)C + eps);
  if (threadIdx.x == 0) mean[r] = center, rstd[r] = factor;
  EACH_LANE(k, W) shift[k] = 0;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    row_load(scale, w, c, C, packed);
    if (b) row_load(shift, b, c, C, packed);
    EACH_LANE(k, W) v[k] = (v[k] - center) * factor * scale[k] + shift[k];
    row_store(y + r * C, v, c, C, packed);
  }
}

/* With g = dy w and n = (x - mean) rstd: dx = rstd (g - mean(g) - n mean(g n)). */
template <typename T>
static __global__ void layernorm_backward(
    T *dx, const T *dy, const T *x, const T *w, const float *mean, const float *rstd, const T *plus,
    int64_t R, int64_t C, bool packed) {
  ROW_BEGINS;
  const T *in = x + r * C, *d = dy + r * C;
  float center = mean[r], factor = rstd[r];
  float v[W], g[W], scale[W], sum = 0, dot = 0;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed, center);
    row_load(g, d, c, C, packed);
    row_load(scale, w, c, C, packed);
    EACH_LANE(k, W) {
      g[k] *= scale[k];
      sum += g[k];
      dot += g[k] * ((v[k] - center) * factor);
    }
  }
  float mean_g = block_sum(sum, scratch) / (float)C, mean_gn = block_sum(dot, scratch) / (float)C;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    row_load(g, d, c, C, packed);
    row_load(scale, w, c, C, packed);
    EACH_LANE(k, W) {
      v[k] = factor * (g[k] * scale[k] - mean_g - (v[k] - center) * factor * mean_gn);
    }
    row_plus(v, plus, r * C, c, C, packed);
    row_store(dx + r * C, v, c, C, packed);
  }
}

template <typename T>
static __global__ void rmsnorm(
    T *y, float *rstd, T *x, const summands<T> added, const T *w, float offset, int64_t R,
    int64_t C, float eps, bool packed) {
  ROW_BEGINS;
  row_sum(x, added, r * C, C, packed);
  const T *in = x + r * C;
  float v[W], scale[W], squares = 0;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    EACH_LANE(k, W) squares += v[k] * v[k];
  }
  float factor = 1.0f / sqrtf(block_sum(squares, scratch) / (float)C + eps);
  if (threadIdx.x == 0) rstd[r] = factor;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    row_load(scale, w, c, C, packed);
    EACH_LANE(k, W) v[k] = v[k] * factor * (scale[k] + offset);
    row_store(y + r * C, v, c, C, packed);
  }
}

template <typename T>
static __global__ void rmsnorm_backward(
    T *dx, const T *dy, const T *x, const T *w, float offset, const float *rstd, const T *plus,
    int64_t R, int64_t C, bool packed) {
  ROW_BEGINS;
  const T *in = x + r * C, *d = dy + r * C;
  float factor = rstd[r], v[W], g[W], scale[W], dot = 0;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    row_load(g, d, c, C, packed);
    row_load(scale, w, c, C, packed);
    EACH_LANE(k, W) dot += g[k] * (scale[k] + offset) * (v[k] * factor);
  }
  float mean_gn = block_sum(dot, scratch) / (float)C;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    row_load(g, d, c, C, packed);
    row_load(scale, w, c, C, packed);
    EACH_LANE(k, W) v[k] = factor * (g[k] * (scale[k] + offset) - v[k] * factor * mean_gn);
    row_plus(v, plus, r * C, c, C, packed);
    row_store(dx + r * C, v, c, C, packed);
  }
}

template <typename T>
static __global__ void softmax(T *y, const T *x, int64_t R, int64_t C, bool packed) {
  ROW_BEGINS;
  const T *in = x + r * C;
  float v[W], most = -INFINITY, sum = 0;
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed, -INFINITY);
    EACH_LANE(k, W) most = larger(most, v[k]);
  }
  most = block_max(most, scratch);
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    EACH_LANE(k, W) sum += c + k < C ? expf(v[k] - most) : 0;
  }
  float factor = 1.0f / block_sum(sum, scratch);
  EACH_PACK(c, C, W) {
    row_load(v, in, c, C, packed);
    EACH_LANE(k, W) v[k] = expf(v[k] - most) * factor;
    row_store(y + r * C, v, c, C, packed);
  }
}

/* dx = y (dy - sum(dy y)) */
template <typename T>
static __global__ void
softmax_backward(T *dx, const T *dy, const T *y, int64_t R, int64_t C, bool packed) {
  ROW_BEGINS;
  float d[W], p[W], dot = 0;
  EACH_PACK(c, C, W) {
    row_load(d, dy + r * C, c, C, packed);
    row_load(p, y + r * C, c, C, packed);
    EACH_LANE(k, W) dot += d[k] * p[k];
  }
  dot = block_sum(dot, scratch);
  EACH_PACK(c, C, W) {
    row_load(d, dy + r * C, c, C, packed);
    row_load(p, y + r * C, c, C, packed);
    EACH_LANE(k, W) d[k] = p[k] * (d[k] - dot);
    row_store(dx + r * C, d, c, C, packed);
  }
}

static bool
is_packed(int64_t C, const void *a, const void *b, const void *c = NULL, const void *d = NULL) {
  return C % 8 == 0 && is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(c, 16) &&
         is_aligned(d, 16);
}

/* The kernel for the type. */
#define ROWS_LAUNCH(kernel, ...)                                                                   \
  if (R > 0 && C > 0)                                                                              \
  TSR_BY_TYPE(type, T, TSR_LAUNCH(kernel<T>, launch_norm_rows(R, C), s, __VA_ARGS__))

/* No summands: the rows are given. */
template <typename T> static summands<T> summands_of(const tsr_cuda_summands *sum) {
  summands<T> none = {};
  if (!sum) return none;
  return {(const T *)sum->from, (const T *)sum->row, (const T *)sum->plus};
}

static bool are_aligned(const tsr_cuda_summands *sum) {
  if (!sum) return true;
  return is_aligned(sum->from, 16) && is_aligned(sum->row, 16) && is_aligned(sum->plus, 16);
}

extern "C" void tsr_cuda_layernorm(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, float *mean, float *rstd, void *x,
    const tsr_cuda_summands *sum, const void *w, const void *b, int64_t R, int64_t C, float eps) {
  bool packed = is_packed(C, y, x, w, b) && are_aligned(sum);
  ROWS_LAUNCH(
      layernorm, (T *)y, mean, rstd, (T *)x, summands_of<T>(sum), (const T *)w, (const T *)b, R, C,
      eps, packed)
}

extern "C" void tsr_cuda_layernorm_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *x, const void *w,
    const float *mean, const float *rstd, const void *plus, int64_t R, int64_t C) {
  bool packed = is_packed(C, dx, dy, x, w) && is_aligned(plus, 16);
  ROWS_LAUNCH(
      layernorm_backward, (T *)dx, (const T *)dy, (const T *)x, (const T *)w, mean, rstd,
      (const T *)plus, R, C, packed)
}

extern "C" void tsr_cuda_rmsnorm(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, float *rstd, void *x,
    const tsr_cuda_summands *sum, const void *w, float offset, int64_t R, int64_t C, float eps) {
  bool packed = is_packed(C, y, x, w) && are_aligned(sum);
  ROWS_LAUNCH(
      rmsnorm, (T *)y, rstd, (T *)x, summands_of<T>(sum), (const T *)w, offset, R, C, eps, packed)
}

extern "C" void tsr_cuda_rmsnorm_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *x, const void *w,
    float offset, const float *rstd, const void *plus, int64_t R, int64_t C) {
  bool packed = is_packed(C, dx, dy, x, w) && is_aligned(plus, 16);
  ROWS_LAUNCH(
      rmsnorm_backward, (T *)dx, (const T *)dy, (const T *)x, (const T *)w, offset, rstd,
      (const T *)plus, R, C, packed)
}

extern "C" void tsr_cuda_softmax(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, int64_t R, int64_t C) {
  bool packed = is_packed(C, y, x);
  ROWS_LAUNCH(softmax, (T *)y, (const T *)x, R, C, packed)
}

extern "C" void tsr_cuda_softmax_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *y, int64_t R,
    int64_t C) {
  bool packed = is_packed(C, dx, dy, y);
  ROWS_LAUNCH(softmax_backward, (T *)dx, (const T *)dy, (const T *)y, R, C, packed)
}
