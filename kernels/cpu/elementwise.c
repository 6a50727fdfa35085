/* Elementwise maps. All loops are plain and without contraction, so an element's bits do not depend
 * on where a range begins. `omp simd` says that an output may be an input itself but not overlap
 * it. */
#include "kernels/cpu/elementary.h"
#include "kernels/cpu/level.h"
#include <assert.h>
#include <string.h>

#define EACH _Pragma("omp simd") for (int64_t i = begin; i < end; i++)

void LEVEL(fill)(float *out, float value, int64_t begin, int64_t end) { EACH out[i] = value; }

void LEVEL(copy)(float *out, const float *x, int64_t begin, int64_t end) {
  if (out != x && end > begin) memcpy(out + begin, x + begin, (size_t)(end - begin) * sizeof *out);
}

void LEVEL(add)(float *out, const float *a, const float *b, int64_t begin, int64_t end) {
  EACH out[i] = a[i] + b[i];
}

void LEVEL(sub)(float *out, const float *a, const float *b, int64_t begin, int64_t end) {
  EACH out[i] = a[i] - b[i];
}

void LEVEL(mul)(float *out, const float *a, const float *b, int64_t begin, int64_t end) {
  EACH out[i] = a[i] * b[i];
}

void LEVEL(scale)(float *out, const float *x, float factor, int64_t begin, int64_t end) {
  EACH out[i] = x[i] * factor;
}

/* gelu_new(x) = x sigmoid(2u), u = sqrt(2/pi)(x + 0.044715 x^3), because (1 + tanh u)/2 =
 * sigmoid(2u); its derivative is s + x s (1 - s) 2u'. */
static const float gelu_linear = 1.59576912f;     /* 2 sqrt(2/pi) */
static const float gelu_cubic = 0.0713548162726f; /* 2 sqrt(2/pi) 0.044715 */

static inline float gelu_tanh(float x) {
  return x * real_sigmoid(x * fused(gelu_cubic, x * x, gelu_linear));
}

static inline float gelu_tanh_slope(float x) {
  float s, slope = real_sigmoid_slope(x * fused(gelu_cubic, x * x, gelu_linear), &s);
  return fused(x * fused(3 * gelu_cubic, x * x, gelu_linear), slope, s);
}

static inline float gelu_erf(float x) { return x * real_phi(x); }

/* Phi(x) + x phi(x) */
static inline float gelu_erf_slope(float x) {
  return fused(x * 0.398942280f, real_exp(-0.5f * x * x), real_phi(x));
}

static inline float silu(float x) { return x * real_sigmoid(x); }

static inline float silu_slope(float x) {
  float s, slope = real_sigmoid_slope(x, &s);
  return fused(x, slope, s);
}

static inline float relu(float x) { return x < 0 ? 0 : x; } /* a NaN stays */

static inline float relu_slope(float x) { return x > 0 ? 1 : 0; }

static inline float tanh_slope(float x) {
  float t = real_tanh(x);
  return fused(-t, t, 1);
}

static inline float sigmoid_slope(float x) {
  float s;
  return real_sigmoid_slope(x, &s);
}

void LEVEL(unary)(tsr_unary kind, float *out, const float *x, int64_t begin, int64_t end) {
  switch (kind) {
  case TSR_UNARY_GELU_TANH:
    EACH out[i] = gelu_tanh(x[i]);
    return;
  case TSR_UNARY_GELU_ERF:
    EACH out[i] = gelu_erf(x[i]);
    return;
  case TSR_UNARY_RELU:
    EACH out[i] = relu(x[i]);
    return;
  case TSR_UNARY_SILU:
    EACH out[i] = silu(x[i]);
    return;
  case TSR_UNARY_TANH:
    EACH out[i] = real_tanh(x[i]);
    return;
  case TSR_UNARY_SIGMOID:
    EACH out[i] = real_sigmoid(x[i]);
    return;
  case TSR_UNARY_COUNT:
    break;
  }
  assert(!"a unary function");
}

void LEVEL(unary_backward)(
    tsr_unary kind, float *dx, const float *dy, const float *x, int64_t begin, int64_t end) {
  switch (kind) {
  case TSR_UNARY_GELU_TANH:
    EACH dx[i] = dy[i] * gelu_tanh_slope(x[i]);
    return;
  case TSR_UNARY_GELU_ERF:
    EACH dx[i] = dy[i] * gelu_erf_slope(x[i]);
    return;
  case TSR_UNARY_RELU:
    EACH dx[i] = dy[i] * relu_slope(x[i]);
    return;
  case TSR_UNARY_SILU:
    EACH dx[i] = dy[i] * silu_slope(x[i]);
    return;
  case TSR_UNARY_TANH:
    EACH dx[i] = dy[i] * tanh_slope(x[i]);
    return;
  case TSR_UNARY_SIGMOID:
    EACH dx[i] = dy[i] * sigmoid_slope(x[i]);
    return;
  case TSR_UNARY_COUNT:
    break;
  }
  assert(!"a unary function");
}

void LEVEL(swiglu)(float *out, const float *gate, const float *up, int64_t begin, int64_t end) {
  EACH out[i] = silu(gate[i]) * up[i];
}

void LEVEL(swiglu_backward)(
    float *dgate, float *dup, const float *dout, const float *gate, const float *up, int64_t begin,
    int64_t end) {
  EACH {
    float s, d = dout[i], g = gate[i], u = up[i], slope = real_sigmoid_slope(g, &s);
    dgate[i] = d * u * fused(g, slope, s);
    dup[i] = d * (g * s);
  }
}
