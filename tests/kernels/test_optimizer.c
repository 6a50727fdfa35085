/* AdamW and SGD over some steps against PyTorch's order of operations in double. */
#include "kernel_check.h"

enum { STEPS = 4 };

static void
adamw_reference(const tsr_adamw *o, double *w, double *m, double *v, double *v_max, double g) {
  *w -= (double)o->lr * o->weight_decay * *w;
  *m = o->beta1 * *m + (1 - o->beta1) * g;
  *v = o->beta2 * *v + (1 - o->beta2) * g * g;
  if (*v > *v_max) *v_max = *v;
  double seen = o->amsgrad ? *v_max : *v;
  *w -= o->lr / o->correction1 * *m / (sqrt(seen) / sqrt(o->correction2) + o->eps);
}

static void check_adamw(const tsr_kernels *k, int64_t n, bool amsgrad) {
  float *start = input_new(n, 1), *zero = input_new(n, 0);
  output w = output_from(start, n), m = output_from(zero, n), v = output_from(zero, n);
  output v_max = output_from(zero, n);
  double *want_w = to_double(start, n), *want_m = reference_new(n), *want_v = reference_new(n);
  double *want_max = reference_new(n);
  for (int step = 1; step <= STEPS; step++) {
    tsr_adamw o = {
        1e-2f,  0.9f, 0.95f, 1e-8f, 0.1f, 1 - powf(0.9f, (float)step), 1 - powf(0.95f, (float)step),
        amsgrad};
    float *grad = input_new(n, step == 2 ? 3 : 0.2f);
    for (int64_t i = 0; i < n; i++)
      adamw_reference(&o, &want_w[i], &want_m[i], &want_v[i], &want_max[i], grad[i] * 0.5);
    RUN(n, k->adamw(
               &o, w.pass[pass], m.pass[pass], v.pass[pass], amsgrad ? v_max.pass[pass] : NULL,
               grad, 0.5f, begin, end));
    free(grad);
  }
  CHECK_OUTPUT(w, want_w, 3e-6, 0.1);
  CHECK_OUTPUT(m, want_m, 3e-6, 0.1);
  CHECK_OUTPUT(v, want_v, 3e-6, 1e-3);
  if (amsgrad) CHECK_OUTPUT(v_max, want_max, 3e-6, 1e-3);
  output_free(&w), output_free(&m), output_free(&v), output_free(&v_max);
  free(start), free(zero), free(want_w), free(want_m), free(want_v), free(want_max);
}

static void check_sgd(const tsr_kernels *k, int64_t n, float momentum, bool nesterov) {
  float *start = input_new(n, 1);
  output w = output_from(start, n), buffer = output_new(n);
  double *want_w = to_double(start, n), *want_buffer = reference_new(n);
  for (int step = 0; step < STEPS; step++) {
    tsr_sgd o = {0.05f, momentum, nesterov ? 0 : 0.1f, 0.01f, nesterov, step == 0};
    float *grad = input_new(n, 1);
    for (int64_t i = 0; i < n; i++) {
      double g = grad[i] * 0.5 + o.weight_decay * want_w[i];
      double b = step ? momentum * want_buffer[i] + (1 - o.dampening) * g : g;
      want_buffer[i] = b;
      want_w[i] -= o.lr * (momentum == 0 ? g : nesterov ? g + momentum * b : b);
    }
    RUN(n,
        k->sgd(&o, w.pass[pass], momentum == 0 ? NULL : buffer.pass[pass], grad, 0.5f, begin, end));
    free(grad);
  }
  CHECK_OUTPUT(w, want_w, 1e-6, 0.1);
  CHECK_OUTPUT(buffer, momentum == 0 ? NULL : want_buffer, 2e-6, 1);
  output_free(&w), output_free(&buffer);
  free(start), free(want_w), free(want_buffer);
}

static void test_optimizers(const tsr_kernels *k) {
  EACH_SIZE(n) {
    check_adamw(k, n, false);
    check_adamw(k, n, true);
    check_sgd(k, n, 0, false);
    check_sgd(k, n, 0.9f, false);
    check_sgd(k, n, 0.9f, true);
  }
}

int main(void) {
  each_level(test_optimizers);
  return check_done("kernels.optimizer");
}
