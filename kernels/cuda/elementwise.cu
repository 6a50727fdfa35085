// SPDX-License-Identifier: Apache-2.0
/* Elementwise maps, and rows that one row is added to. A thread has packs of neighbours. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/number.cuh"
#include <assert.h>

/* The functions of TSR_UNARY_LIST that have kernels: value_<name> and slope_<name>. */
typedef enum { ADD, SUB, MUL, SCALE, GATED, FUNCTION, SLOPE } map_kind;

static __device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Its slope s(1-s), without the cancellation of 1 - s where s is near 1. */
static __device__ inline float sigmoid_slope(float x, float *ret_sigmoid) {
  float e = expf(-fabsf(x)), greater = 1.0f / (1.0f + e), smaller = e * greater;
  *ret_sigmoid = x < 0 ? smaller : greater;
  return greater * smaller;
}

/* gelu_new(x) = x sigmoid(2u), u = sqrt(2/pi)(x + 0.044715 x^3), because (1 + tanh u)/2 =
 * sigmoid(2u); its derivative is s + x s (1 - s) 2u'. */
#define GELU_LINEAR 1.59576912f     /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.0713548162726f /* 2 sqrt(2/pi) 0.044715 */

static __device__ inline float value_gelu_tanh(float x) {
  return x * sigmoid(x * fmaf(GELU_CUBIC, x * x, GELU_LINEAR));
}
static __device__ inline float slope_gelu_tanh(float x, float *ret_value) {
  float s, slope = sigmoid_slope(x * fmaf(GELU_CUBIC, x * x, GELU_LINEAR), &s);
  *ret_value = x * s;
  return fmaf(x * fmaf(3 * GELU_CUBIC, x * x, GELU_LINEAR), slope, s);
}

/* The normal distribution function, with relative precision in the lower tail too. */
static __device__ inline float phi(float x) { return 0.5f * erfcf(-0.707106781f * x); }

static __device__ inline float value_gelu_erf(float x) { return x * phi(x); }
/* Phi(x) + x phi(x) */
static __device__ inline float slope_gelu_erf(float x, float *ret_value) {
  float p = phi(x);
  *ret_value = x * p;
  return fmaf(x * 0.398942280f, expf(-0.5f * x * x), p);
}

static __device__ inline float value_relu(float x) { return x < 0 ? 0 : x; } /* a NaN stays */
static __device__ inline float slope_relu(float x, float *ret_value) {
  *ret_value = value_relu(x);
  return x > 0 ? 1 : 0;
}

static __device__ inline float value_relu2(float x) { return value_relu(x) * value_relu(x); }
static __device__ inline float slope_relu2(float x, float *ret_value) {
  float r = value_relu(x);
  *ret_value = r * r;
  return 2 * r;
}

static __device__ inline float value_silu(float x) { return x * sigmoid(x); }
static __device__ inline float slope_silu(float x, float *ret_value) {
  float s, slope = sigmoid_slope(x, &s);
  *ret_value = x * s;
  return fmaf(x, slope, s);
}

static __device__ inline float value_tanh(float x) { return tanhf(x); }
static __device__ inline float slope_tanh(float x, float *ret_value) {
  float t = *ret_value = tanhf(x);
  return fmaf(-t, t, 1);
}

static __device__ inline float value_sigmoid(float x) { return sigmoid(x); }
static __device__ inline float slope_sigmoid(float x, float *ret_value) {
  return sigmoid_slope(x, ret_value);
}

template <int UNARY> static __device__ inline float value_at(float x) {
  switch (UNARY) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    return value_##name(x);
    TSR_CUDA_UNARY_LIST(CASE)
#undef CASE
  }
  return 0;
}

template <int UNARY> static __device__ inline float slope_at(float x, float *ret_value) {
  switch (UNARY) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    return slope_##name(x, ret_value);
    TSR_CUDA_UNARY_LIST(CASE)
#undef CASE
  }
  return 0;
}

template <int KIND, int UNARY> static __device__ inline float map_at(float a, float b, float f) {
  float value;
  switch (KIND) {
  case ADD:
    return a + b;
  case SUB:
    return a - b;
  case MUL:
    return a * b;
  case SCALE:
    return a * f;
  case GATED:
    return value_at<UNARY>(a) * b;
  case FUNCTION:
    return value_at<UNARY>(a);
  default:
    return a * slope_at<UNARY>(b, &value);
  }
}

/* out = f(a, b), or of a alone. */
template <typename T, int KIND, int UNARY>
static __global__ void map(T *out, const T *a, const T *b, float factor, int64_t n, bool packed) {
  enum { W = pack_of<T>::width };
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    float x[W], y[W];
    row_load(x, a, i, n, packed);
    if (KIND == SCALE || KIND == FUNCTION) EACH_LANE(k, W) y[k] = 0;
    else row_load(y, b, i, n, packed);
    EACH_LANE(k, W) x[k] = map_at<KIND, UNARY>(x[k], y[k], factor);
    row_store(out, x, i, n, packed);
  }
}

template <int KIND, int UNARY>
static void map_launch(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, float factor,
    int64_t n) {
  if (n <= 0) return;
  bool packed = is_aligned(out, 16) && is_aligned(a, 16) && is_aligned(b, 16);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          (map<T, KIND, UNARY>), launch_elements(n, type), s, (T *)out, (const T *)a, (const T *)b,
          factor, n, packed))
}

extern "C" void tsr_cuda_add(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n) {
  map_launch<ADD, 0>(s, type, out, a, b, 0, n);
}

extern "C" void tsr_cuda_sub(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n) {
  map_launch<SUB, 0>(s, type, out, a, b, 0, n);
}

extern "C" void tsr_cuda_mul(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n) {
  map_launch<MUL, 0>(s, type, out, a, b, 0, n);
}

extern "C" void tsr_cuda_scale(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, float factor, int64_t n) {
  map_launch<SCALE, 0>(s, type, out, x, NULL, factor, n);
}

template <int KIND>
static void unary_launch(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *out, const void *a, const void *b,
    int64_t n) {
  switch ((int)kind) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    map_launch<KIND, TSR_UNARY_##ID>(s, type, out, a, b, 0, n);                                    \
    return;
    TSR_CUDA_UNARY_LIST(CASE)
#undef CASE
  }
  assert(!"a unary function");
}

extern "C" void tsr_cuda_unary(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *out, const void *x, int64_t n) {
  unary_launch<FUNCTION>(s, type, kind, out, x, NULL, n);
}

extern "C" void tsr_cuda_unary_backward(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *dx, const void *dy, const void *x,
    int64_t n) {
  unary_launch<SLOPE>(s, type, kind, dx, dy, x, n);
}

extern "C" void tsr_cuda_gated(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *out, const void *gate,
    const void *up, int64_t n) {
  unary_launch<GATED>(s, type, kind, out, gate, up, n);
}

template <typename T, int UNARY>
static __global__ void gated_backward(
    T *dgate, T *dup, const T *dout, const T *gate, const T *up, int64_t n, bool packed) {
  enum { W = pack_of<T>::width };
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    float d[W], g[W], u[W];
    row_load(d, dout, i, n, packed);
    row_load(g, gate, i, n, packed);
    row_load(u, up, i, n, packed);
    EACH_LANE(k, W) {
      float value, slope = slope_at<UNARY>(g[k], &value);
      u[k] = d[k] * u[k] * slope;
      d[k] = d[k] * value;
    }
    row_store(dgate, u, i, n, packed);
    row_store(dup, d, i, n, packed);
  }
}

template <int UNARY>
static void gated_backward_launch(
    tsr_cuda_stream s, tsr_cuda_type type, void *dgate, void *dup, const void *dout,
    const void *gate, const void *up, int64_t n) {
  if (n <= 0) return;
  bool packed = is_aligned(dgate, 16) && is_aligned(dup, 16) && is_aligned(dout, 16) &&
                is_aligned(gate, 16) && is_aligned(up, 16);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          (gated_backward<T, UNARY>), launch_elements(n, type), s, (T *)dgate, (T *)dup,
          (const T *)dout, (const T *)gate, (const T *)up, n, packed))
}

extern "C" void tsr_cuda_gated_backward(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *dgate, void *dup, const void *dout,
    const void *gate, const void *up, int64_t n) {
  switch ((int)kind) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    gated_backward_launch<TSR_UNARY_##ID>(s, type, dgate, dup, dout, gate, up, n);                 \
    return;
    TSR_CUDA_UNARY_LIST(CASE)
#undef CASE
  }
  assert(!"a unary function");
}

/* ---- gpt-oss's gate: a NaN stays ---- */

static __device__ inline float at_most(float x, float limit) { return x > limit ? limit : x; }
static __device__ inline float within(float x, float limit) {
  return x < -limit ? -limit : at_most(x, limit);
}

template <typename T>
static __global__ void clamped_swiglu(
    float alpha, float limit, T *out, const T *gate, const T *up, int64_t n, bool packed) {
  enum { W = pack_of<T>::width };
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    float g[W], u[W];
    row_load(g, gate, i, n, packed);
    row_load(u, up, i, n, packed);
    EACH_LANE(k, W) {
      float x = at_most(g[k], limit);
      u[k] = x * sigmoid(alpha * x) * (within(u[k], limit) + 1);
    }
    row_store(out, u, i, n, packed);
  }
}

extern "C" void tsr_cuda_clamped_swiglu(
    tsr_cuda_stream s, tsr_cuda_type type, float alpha, float limit, void *out, const void *gate,
    const void *up, int64_t n) {
  if (n <= 0) return;
  bool packed = is_aligned(out, 16) && is_aligned(gate, 16) && is_aligned(up, 16);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          clamped_swiglu<T>, launch_elements(n, type), s, alpha, limit, (T *)out, (const T *)gate,
          (const T *)up, n, packed))
}

/* d/dx of x s(alpha x): s + x alpha s' */
template <typename T>
static __global__ void clamped_swiglu_backward(
    float alpha, float limit, T *dgate, T *dup, const T *dout, const T *gate, const T *up,
    int64_t n, bool packed) {
  enum { W = pack_of<T>::width };
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    float d[W], g[W], u[W];
    row_load(d, dout, i, n, packed);
    row_load(g, gate, i, n, packed);
    row_load(u, up, i, n, packed);
    EACH_LANE(k, W) {
      float x = at_most(g[k], limit), s, slope = sigmoid_slope(alpha * x, &s);
      float of_gate = d[k] * (within(u[k], limit) + 1) * fmaf(alpha * x, slope, s);
      float of_up = d[k] * (x * s);
      g[k] = g[k] > limit ? 0 : of_gate;
      u[k] = u[k] > limit || u[k] < -limit ? 0 : of_up;
    }
    row_store(dgate, g, i, n, packed);
    row_store(dup, u, i, n, packed);
  }
}

extern "C" void tsr_cuda_clamped_swiglu_backward(
    tsr_cuda_stream s, tsr_cuda_type type, float alpha, float limit, void *dgate, void *dup,
    const void *dout, const void *gate, const void *up, int64_t n) {
  if (n <= 0) return;
  bool packed = is_aligned(dgate, 16) && is_aligned(dup, 16) && is_aligned(dout, 16) &&
                is_aligned(gate, 16) && is_aligned(up, 16);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          clamped_swiglu_backward<T>, launch_elements(n, type), s, alpha, limit, (T *)dgate,
          (T *)dup, (const T *)dout, (const T *)gate, (const T *)up, n, packed))
}

/* A block a row. */
template <typename T, int KIND>
static __global__ void row_map(T *out, const T *x, const T *row, int64_t C, bool packed) {
  enum { W = pack_of<T>::width };
  int64_t first = (int64_t)blockIdx.x * C;
  EACH_PACK(c, C, W) {
    float a[W], b[W];
    row_load(a, x + first, c, C, packed);
    row_load(b, row, c, C, packed);
    EACH_LANE(k, W) a[k] = map_at<KIND, 0>(a[k], b[k], 0);
    row_store(out + first, a, c, C, packed);
  }
}

template <int KIND>
static void row_map_launch(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C) {
  if (R <= 0 || C <= 0) return;
  bool packed = is_aligned(out, 16) && is_aligned(x, 16) && is_aligned(row, 16) && C % 8 == 0;
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          (row_map<T, KIND>), launch_rows(R, C), s, (T *)out, (const T *)x, (const T *)row, C,
          packed))
}

extern "C" void tsr_cuda_add_row(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C) {
  row_map_launch<ADD>(s, type, out, x, row, R, C);
}

extern "C" void tsr_cuda_mul_row(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C) {
  row_map_launch<MUL>(s, type, out, x, row, R, C);
}

/* A block a row. */
template <typename T>
static __global__ void row_epilogue(
    T *out, T *sum, const T *x, const T *row, const T *plus, bool gelu, int64_t C, bool packed) {
  enum { W = pack_of<T>::width };
  int64_t first = (int64_t)blockIdx.x * C;
  EACH_PACK(c, C, W) {
    float a[W];
    row_load(a, x + first, c, C, packed);
    row_add(a, row, c, C, packed);
    if (sum) row_store(sum + first, a, c, C, packed);
    row_add(a, plus ? plus + first : NULL, c, C, packed);
    if (gelu) EACH_LANE(k, W) a[k] = value_gelu_tanh(a[k]);
    row_store(out + first, a, c, C, packed);
  }
}

extern "C" void tsr_cuda_epilogue(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, void *sum, const void *x, const void *row,
    const void *plus, bool gelu, int64_t R, int64_t C) {
  if (R <= 0 || C <= 0) return;
  bool packed = is_aligned(out, 16) && is_aligned(sum, 16) && is_aligned(x, 16) &&
                is_aligned(row, 16) && is_aligned(plus, 16) && C % 8 == 0;
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          row_epilogue<T>, launch_rows(R, C), s, (T *)out, (T *)sum, (const T *)x, (const T *)row,
          (const T *)plus, gelu, C, packed))
}
