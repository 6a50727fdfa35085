/* AdamW (Loshchilov & Hutter 2019) and SGD with PyTorch's order of operations, each in one pass,
 * and the factor that the gradients' norm gives. A thread has four neighbours. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/tree.cuh"

enum { W = 4 };

/* What the norm says: the gradient's factor; whether there is an update. */
static __device__ inline bool clip_says(const float *clip, float *ret_factor) {
  *ret_factor = clip ? clip[1] : 1;
  return !clip || clip[2] != 0;
}

/* ---- how new values are stored: f32 as they are, bf16 as the rounding says ---- */

static __device__ inline float weight_value(float w) { return w; }
static __device__ inline float weight_value(uint16_t w) { return bf16_value(w); }

static __device__ inline void weights_store(
    const tsr_cuda_rounding &, float *w, const float (&)[W], const float (&x)[W], int64_t i,
    int64_t n, bool packed) {
  raw_store(w, x, i, n, packed);
}

/* x are the new values of the weights that were `old`. */
static __device__ inline void weights_store(
    const tsr_cuda_rounding &rounding, uint16_t *w, const uint16_t (&old)[W], const float (&x)[W],
    int64_t i, int64_t n, bool packed) {
  uint16_t to[W], lost[W];
  uint32_t words[W];
  if (rounding.kind == TSR_ROUND_NEAREST) {
    for (int k = 0; k < W; k++) to[k] = bf16_nearest(x[k]);
  } else if (rounding.kind == TSR_ROUND_STOCHASTIC) {
    box_words(words, rounding.box, i, n, *rounding.key);
    for (int k = 0; k < W; k++) to[k] = bf16_cut(x[k], words[k] >> 16);
  } else {
    raw_load(lost, rounding.compensation, i, n, packed, (uint16_t)0);
    for (int k = 0; k < W; k++) {
      float before = bf16_value(old[k]), t = bf16_value(lost[k]) + (x[k] - before);
      to[k] = bf16_nearest(before + t);
      lost[k] = bf16_nearest(t - (bf16_value(to[k]) - before));
    }
    raw_store(rounding.compensation, lost, i, n, packed);
  }
  raw_store(w, to, i, n, packed);
}

/* ---- AdamW ---- */

template <typename T, bool MAX>
static __global__ void adamw(
    tsr_cuda_adamw_options o, const __grid_constant__ tsr_cuda_rounding rounding, T *w, float *m,
    float *v, float *v_max, const float *grad, int64_t n, bool packed) {
  float scale;
  if (!clip_says(o.clip, &scale)) return;
  const float decay = 1 - *o.lr * o.weight_decay, rest1 = 1 - o.beta1, rest2 = 1 - o.beta2;
  const float rate = *o.lr / *o.correction1, root = sqrtf(*o.correction2);
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    T old[W];
    float x[W], g[W], first[W], second[W], seen[W];
    raw_load(old, w, i, n, packed, (T)0);
    raw_load(g, grad, i, n, packed, 0.0f);
    raw_load(first, m, i, n, packed, 0.0f);
    raw_load(second, v, i, n, packed, 0.0f);
    if (MAX) raw_load(seen, v_max, i, n, packed, 0.0f);
#pragma unroll
    for (int k = 0; k < W; k++) {
      g[k] *= scale;
      first[k] = first[k] + (g[k] - first[k]) * rest1;
      second[k] = second[k] * o.beta2 + g[k] * g[k] * rest2;
      seen[k] = MAX && seen[k] > second[k] ? seen[k] : second[k];
      x[k] = weight_value(old[k]) * decay - rate * (first[k] / (sqrtf(seen[k]) / root + o.eps));
    }
    raw_store(m, first, i, n, packed);
    raw_store(v, second, i, n, packed);
    if (MAX) raw_store(v_max, seen, i, n, packed);
    weights_store(rounding, w, old, x, i, n, packed);
  }
}

template <typename T>
static void adamw_launch(
    tsr_cuda_stream s, const tsr_cuda_adamw_options *o, const tsr_cuda_rounding &rounding, T *w,
    float *m, float *v, float *v_max, const float *grad, int64_t n) {
  if (n <= 0) return;
  unsigned blocks = map_blocks((n + W - 1) / W);
  bool packed = is_aligned(w, 16) && is_aligned(m, 16) && is_aligned(v, 16) &&
                is_aligned(v_max, 16) && is_aligned(grad, 16) &&
                is_aligned(rounding.compensation, 16);
  tsr_cuda_adamw_options options = *o;
  if (v_max)
    TSR_LAUNCH(
        (adamw<T, true>), blocks, TSR_MAP_THREADS, 0, s, options, rounding, w, m, v, v_max, grad, n,
        packed);
  else
    TSR_LAUNCH(
        (adamw<T, false>), blocks, TSR_MAP_THREADS, 0, s, options, rounding, w, m, v, v_max, grad,
        n, packed);
}

/* The rounding with its box in as few dimensions as can be. */
static tsr_cuda_rounding rounding_folded(const tsr_cuda_rounding *rounding) {
  tsr_cuda_rounding folded = *rounding;
  if (rounding->kind == TSR_ROUND_STOCHASTIC) folded.box = box_folded(&rounding->box);
  if (rounding->kind != TSR_ROUND_KAHAN) folded.compensation = NULL;
  return folded;
}

extern "C" void tsr_cuda_adamw(
    tsr_cuda_stream s, const tsr_cuda_adamw_options *o, float *w, float *m, float *v, float *v_max,
    const float *grad, int64_t n) {
  tsr_cuda_rounding none = {};
  adamw_launch(s, o, none, w, m, v, v_max, grad, n);
}

extern "C" void tsr_cuda_adamw_bf16(
    tsr_cuda_stream s, const tsr_cuda_adamw_options *o, const tsr_cuda_rounding *rounding,
    uint16_t *w, float *m, float *v, float *v_max, const float *grad, int64_t n) {
  adamw_launch(s, o, rounding_folded(rounding), w, m, v, v_max, grad, n);
}

/* ---- SGD ---- */

template <typename T>
static __global__ void
sgd(tsr_cuda_sgd_options o, const __grid_constant__ tsr_cuda_rounding rounding, T *w, float *buffer,
    const float *grad, int64_t n, bool packed) {
  float scale;
  if (!clip_says(o.clip, &scale)) return;
  const float lr = *o.lr, fresh = 1 - o.dampening;
  const bool begins = buffer && *o.first != 0;
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    T old[W];
    float x[W], g[W], b[W];
    raw_load(old, w, i, n, packed, (T)0);
    raw_load(g, grad, i, n, packed, 0.0f);
    if (buffer) raw_load(b, buffer, i, n, packed, 0.0f);
#pragma unroll
    for (int k = 0; k < W; k++) {
      g[k] = g[k] * scale + o.weight_decay * weight_value(old[k]);
      if (buffer) b[k] = begins ? g[k] : o.momentum * b[k] + fresh * g[k];
      float step = !buffer ? g[k] : o.nesterov ? g[k] + o.momentum * b[k] : b[k];
      x[k] = weight_value(old[k]) - lr * step;
    }
    if (buffer) raw_store(buffer, b, i, n, packed);
    weights_store(rounding, w, old, x, i, n, packed);
  }
}

template <typename T>
static void sgd_launch(
    tsr_cuda_stream s, const tsr_cuda_sgd_options *o, const tsr_cuda_rounding &rounding, T *w,
    float *buffer, const float *grad, int64_t n) {
  if (n <= 0) return;
  bool packed = is_aligned(w, 16) && is_aligned(buffer, 16) && is_aligned(grad, 16) &&
                is_aligned(rounding.compensation, 16);
  tsr_cuda_sgd_options options = *o;
  TSR_LAUNCH(
      sgd<T>, map_blocks((n + W - 1) / W), TSR_MAP_THREADS, 0, s, options, rounding, w, buffer,
      grad, n, packed);
}

extern "C" void tsr_cuda_sgd(
    tsr_cuda_stream s, const tsr_cuda_sgd_options *o, float *w, float *buffer, const float *grad,
    int64_t n) {
  tsr_cuda_rounding none = {};
  sgd_launch(s, o, none, w, buffer, grad, n);
}

extern "C" void tsr_cuda_sgd_bf16(
    tsr_cuda_stream s, const tsr_cuda_sgd_options *o, const tsr_cuda_rounding *rounding,
    uint16_t *w, float *buffer, const float *grad, int64_t n) {
  sgd_launch(s, o, rounding_folded(rounding), w, buffer, grad, n);
}

/* ---- the norm: PyTorch's clip_grad_norm_. A thread has a column, whose pieces it adds by the
 * tree; the columns are added one after the other ---- */

enum { CLIP_THREADS = 256 };

static __global__ void clip_factor(
    float *clip, const float *stats, int64_t pieces, int64_t n, float max_norm,
    const float *loss_scale) {
  __shared__ double columns[CLIP_THREADS];
  double stack[TSR_TREE_STACK], sum = 0;
  for (int64_t first = 0; first < n; first += CLIP_THREADS) {
    int64_t c = first + threadIdx.x;
    int depth = 0;
    for (int64_t i = 0; c < n && i < pieces; i++) {
      stack[depth++] = (double)stats[i * n + c];
      for (int merges = tsr_tree_merges(pieces, i); merges > 0; merges--, depth--)
        stack[depth - 2] += stack[depth - 1];
    }
    columns[threadIdx.x] = depth ? stack[0] : 0;
    __syncthreads();
    for (int i = 0; threadIdx.x == 0 && i < CLIP_THREADS && first + i < n; i++) sum += columns[i];
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  double scale = loss_scale ? (double)*loss_scale : 1;
  double norm = sqrt(sum) / scale, factor = max_norm > 0 ? (double)max_norm / (norm + 1e-6) : 1;
  clip[0] = (float)norm;
  clip[1] = (float)((factor < 1 ? factor : 1) / scale);
  clip[2] = !loss_scale || norm < INFINITY ? 1 : 0; /* an overflow is no update */
}

extern "C" void tsr_cuda_clip(
    tsr_cuda_stream s, float *clip, const float *stats, int64_t pieces, int64_t n, float max_norm,
    const float *loss_scale) {
  TSR_LAUNCH(clip_factor, 1, CLIP_THREADS, 0, s, clip, stats, pieces, n, max_norm, loss_scale);
}
