// SPDX-License-Identifier: Apache-2.0
/* AdamW (Loshchilov & Hutter 2019), Adam (Kingma & Ba 2015) and SGD with PyTorch's order of
 * operations. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/level.h"
#include <assert.h>
#include <math.h>
#include <stddef.h>

#define EACH _Pragma("omp simd") for (int64_t i = begin; i < end; i++)

/* The step's constants, once per call. */
typedef struct {
  float decay, l2, beta2, rest1, rest2, rate, root, eps;
} adamw_constants;

static inline float adamw_moment(const adamw_constants *k, float *m, float *v, float g) {
  *m = *m + (g - *m) * k->rest1;
  *v = *v * k->beta2 + g * g * k->rest2;
  return *v;
}

static inline float adamw_update(const adamw_constants *k, float w, float m, float v) {
  return w * k->decay - k->rate * (m / (sqrtf(v) / k->root + k->eps));
}

/* `amsgrad` and `coupled` are constants of each caller's loop. */
static inline __attribute__((always_inline)) void adamw_loop(
    const adamw_constants *k, bool amsgrad, bool coupled, float *w, float *m, float *v,
    float *v_max, const float *grad, float grad_scale, int64_t begin, int64_t end) {
  EACH {
    float g = grad[i] * grad_scale;
    if (coupled) g += k->l2 * w[i];
    float seen = adamw_moment(k, &m[i], &v[i], g);
    if (amsgrad) v_max[i] = seen = v_max[i] > seen ? v_max[i] : seen;
    w[i] = adamw_update(k, w[i], m[i], seen);
  }
}

void LEVEL(adamw)(
    const tsr_adamw *o, float *w, float *m, float *v, float *v_max, const float *grad,
    float grad_scale, int64_t begin, int64_t end) {
  const adamw_constants k = {
      .decay = o->coupled ? 1 : 1 - o->lr * o->weight_decay,
      .l2 = o->weight_decay,
      .beta2 = o->beta2,
      .rest1 = 1 - o->beta1,
      .rest2 = 1 - o->beta2,
      .rate = o->lr / o->correction1,
      .root = sqrtf(o->correction2),
      .eps = o->eps};
  if (o->amsgrad && o->coupled)
    adamw_loop(&k, true, true, w, m, v, v_max, grad, grad_scale, begin, end);
  else if (o->amsgrad) adamw_loop(&k, true, false, w, m, v, v_max, grad, grad_scale, begin, end);
  else if (o->coupled) adamw_loop(&k, false, true, w, m, v, v_max, grad, grad_scale, begin, end);
  else adamw_loop(&k, false, false, w, m, v, v_max, grad, grad_scale, begin, end);
}

void LEVEL(sgd)(
    const tsr_sgd *o, float *w, float *buffer, const float *grad, float grad_scale, int64_t begin,
    int64_t end) {
  const float lr = o->lr, decay = o->weight_decay, momentum = o->momentum;
  const float fresh = 1 - o->dampening;
  const bool first = o->first, nesterov = o->nesterov;
  if (!buffer) {
    EACH w[i] = w[i] - lr * (grad[i] * grad_scale + decay * w[i]);
    return;
  }
  EACH {
    float g = grad[i] * grad_scale + decay * w[i];
    float b = first ? g : momentum * buffer[i] + fresh * g;
    buffer[i] = b;
    w[i] = w[i] - lr * (nesterov ? g + momentum * b : b);
  }
}

/* ---- weights in bf16: blocks of them are widened, updated as f32 weights are, and rounded ---- */

enum { BLOCK = 1024 };

static void kahan_store(uint16_t *w, uint16_t *c, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float old = bf16_value(w[i]);
    float t = bf16_value(c[i]) + (x[i] - old);
    uint16_t rounded = bf16_nearest(old + t);
    w[i] = rounded;
    c[i] = bf16_nearest(t - (bf16_value(rounded) - old));
  }
}

/* The new values x of the n weights from element `at` on; w is still the old ones. */
static void
weights_store(const tsr_rounding *rounding, uint16_t *w, const float *x, int64_t at, int64_t n) {
  switch (rounding->kind) {
  case TSR_ROUND_NEAREST:
    LEVEL(f32_to_bf16)(w + at, x, 0, n);
    return;
  case TSR_ROUND_STOCHASTIC:
    bf16_stochastic(w + at, x, rounding->key, rounding->slice, at, n);
    return;
  case TSR_ROUND_KAHAN:
    kahan_store(w + at, rounding->compensation + at, x, n);
    return;
  }
  assert(!"a rounding");
}

void LEVEL(adamw_bf16)(
    const tsr_adamw *o, const tsr_rounding *rounding, uint16_t *w, float *m, float *v, float *v_max,
    const float *grad, float grad_scale, int64_t begin, int64_t end) {
  float x[BLOCK];
  for (int64_t at = begin, n; at < end; at += n) {
    n = end - at < BLOCK ? end - at : BLOCK;
    LEVEL(bf16_to_f32)(x, w + at, 0, n);
    float *seen = o->amsgrad ? v_max + at : NULL;
    LEVEL(adamw)(o, x, m + at, v + at, seen, grad + at, grad_scale, 0, n);
    weights_store(rounding, w, x, at, n);
  }
}

void LEVEL(sgd_bf16)(
    const tsr_sgd *o, const tsr_rounding *rounding, uint16_t *w, float *buffer, const float *grad,
    float grad_scale, int64_t begin, int64_t end) {
  float x[BLOCK];
  for (int64_t at = begin, n; at < end; at += n) {
    n = end - at < BLOCK ? end - at : BLOCK;
    LEVEL(bf16_to_f32)(x, w + at, 0, n);
    LEVEL(sgd)(o, x, buffer ? buffer + at : NULL, grad + at, grad_scale, 0, n);
    weights_store(rounding, w, x, at, n);
  }
}
