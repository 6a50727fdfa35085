/* AdamW (Loshchilov & Hutter 2019) and SGD with PyTorch's order of operations. */
#include "kernels/cpu/level.h"
#include <math.h>
#include <stddef.h>

#define EACH _Pragma("omp simd") for (int64_t i = begin; i < end; i++)

/* The step's constants, once per call. */
typedef struct {
  float decay, beta2, rest1, rest2, rate, root, eps;
} adamw_constants;

static inline float adamw_moment(const adamw_constants *k, float *m, float *v, float g) {
  *m = *m + (g - *m) * k->rest1;
  *v = *v * k->beta2 + g * g * k->rest2;
  return *v;
}

static inline float adamw_update(const adamw_constants *k, float w, float m, float v) {
  return w * k->decay - k->rate * (m / (sqrtf(v) / k->root + k->eps));
}

void LEVEL(adamw)(
    const tsr_adamw *o, float *w, float *m, float *v, float *v_max, const float *grad,
    float grad_scale, int64_t begin, int64_t end) {
  const adamw_constants k = {
      1 - o->lr * o->weight_decay, o->beta2, 1 - o->beta1, 1 - o->beta2, o->lr / o->correction1,
      sqrtf(o->correction2),       o->eps};
  if (o->amsgrad) {
    EACH {
      float seen = adamw_moment(&k, &m[i], &v[i], grad[i] * grad_scale);
      seen = v_max[i] > seen ? v_max[i] : seen;
      v_max[i] = seen;
      w[i] = adamw_update(&k, w[i], m[i], seen);
    }
  } else {
    EACH {
      float seen = adamw_moment(&k, &m[i], &v[i], grad[i] * grad_scale);
      w[i] = adamw_update(&k, w[i], m[i], seen);
    }
  }
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
