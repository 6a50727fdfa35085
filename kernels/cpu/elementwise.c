// SPDX-License-Identifier: Apache-2.0
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

/* ---- the functions of TSR_UNARY_LIST: value_<name>, and slope_<name>, which finds the value on
 * its way to the derivative ---- */

/* gelu_new(x) = x sigmoid(2u), u = sqrt(2/pi)(x + 0.044715 x^3), because (1 + tanh u)/2 =
 * sigmoid(2u); its derivative is s + x s (1 - s) 2u'. */
static const float gelu_linear = 1.59576912f;     /* 2 sqrt(2/pi) */
static const float gelu_cubic = 0.0713548162726f; /* 2 sqrt(2/pi) 0.044715 */

static inline float value_gelu_tanh(float x) {
  return x * real_sigmoid(x * fused(gelu_cubic, x * x, gelu_linear));
}

static inline float slope_gelu_tanh(float x, float *ret_value) {
  float s, slope = real_sigmoid_slope(x * fused(gelu_cubic, x * x, gelu_linear), &s);
  *ret_value = x * s;
  return fused(x * fused(3 * gelu_cubic, x * x, gelu_linear), slope, s);
}

static inline float value_gelu_erf(float x) { return x * real_phi(x); }

/* Phi(x) + x phi(x) */
static inline float slope_gelu_erf(float x, float *ret_value) {
  float phi = real_phi(x);
  *ret_value = x * phi;
  return fused(x * 0.398942280f, real_exp(-0.5f * x * x), phi);
}

static inline float value_relu(float x) { return x < 0 ? 0 : x; } /* a NaN stays */

static inline float slope_relu(float x, float *ret_value) {
  *ret_value = value_relu(x);
  return x > 0 ? 1 : 0;
}

static inline float value_relu2(float x) { return value_relu(x) * value_relu(x); }

static inline float slope_relu2(float x, float *ret_value) {
  float r = value_relu(x);
  *ret_value = r * r;
  return 2 * r;
}

static inline float value_silu(float x) { return x * real_sigmoid(x); }

static inline float slope_silu(float x, float *ret_value) {
  float s, slope = real_sigmoid_slope(x, &s);
  *ret_value = x * s;
  return fused(x, slope, s);
}

static inline float value_tanh(float x) { return real_tanh(x); }

static inline float slope_tanh(float x, float *ret_value) {
  float t = *ret_value = real_tanh(x);
  return fused(-t, t, 1);
}

static inline float value_sigmoid(float x) { return real_sigmoid(x); }

static inline float slope_sigmoid(float x, float *ret_value) {
  return real_sigmoid_slope(x, ret_value);
}

/* ---- a loop for each of them ---- */

void LEVEL(unary)(tsr_unary kind, float *out, const float *x, int64_t begin, int64_t end) {
  switch (kind) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    EACH out[i] = value_##name(x[i]);                                                              \
    return;
    TSR_UNARY_LIST(CASE)
#undef CASE
  case TSR_UNARY_COUNT:
    break;
  }
  assert(!"a unary function");
}

void LEVEL(unary_backward)(
    tsr_unary kind, float *dx, const float *dy, const float *x, int64_t begin, int64_t end) {
  switch (kind) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    EACH {                                                                                         \
      float value, slope = slope_##name(x[i], &value);                                             \
      dx[i] = dy[i] * slope;                                                                       \
    }                                                                                              \
    return;
    TSR_UNARY_LIST(CASE)
#undef CASE
  case TSR_UNARY_COUNT:
    break;
  }
  assert(!"a unary function");
}

void LEVEL(gated)(
    tsr_unary kind, float *out, const float *gate, const float *up, int64_t begin, int64_t end) {
  switch (kind) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    EACH out[i] = value_##name(gate[i]) * up[i];                                                   \
    return;
    TSR_UNARY_LIST(CASE)
#undef CASE
  case TSR_UNARY_COUNT:
    break;
  }
  assert(!"a unary function");
}

void LEVEL(gated_backward)(
    tsr_unary kind, float *dgate, float *dup, const float *dout, const float *gate, const float *up,
    int64_t begin, int64_t end) {
  switch (kind) {
#define CASE(ID, name)                                                                             \
  case TSR_UNARY_##ID:                                                                             \
    EACH {                                                                                         \
      float d = dout[i], u = up[i], value, slope = slope_##name(gate[i], &value);                  \
      dgate[i] = d * u * slope;                                                                    \
      dup[i] = d * value;                                                                          \
    }                                                                                              \
    return;
    TSR_UNARY_LIST(CASE)
#undef CASE
  case TSR_UNARY_COUNT:
    break;
  }
  assert(!"a unary function");
}

/* ---- gpt-oss's: a NaN stays ---- */

static inline float at_most(float x, float limit) { return x > limit ? limit : x; }
static inline float within(float x, float limit) { return x < -limit ? -limit : at_most(x, limit); }

void LEVEL(clamped_swiglu)(
    float alpha, float limit, float *out, const float *gate, const float *up, int64_t begin,
    int64_t end) {
  EACH {
    float x = at_most(gate[i], limit);
    out[i] = x * real_sigmoid(alpha * x) * (within(up[i], limit) + 1);
  }
}

/* d/dx of x s(alpha x): s + x alpha s' */
void LEVEL(clamped_swiglu_backward)(
    float alpha, float limit, float *dgate, float *dup, const float *dout, const float *gate,
    const float *up, int64_t begin, int64_t end) {
  EACH {
    float d = dout[i], g = gate[i], u = up[i], x = at_most(g, limit), s;
    float slope = real_sigmoid_slope(alpha * x, &s);
    float of_gate = d * (within(u, limit) + 1) * fused(alpha * x, slope, s), of_up = d * (x * s);
    dgate[i] = g > limit ? 0 : of_gate;
    dup[i] = u > limit || u < -limit ? 0 : of_up;
  }
}
