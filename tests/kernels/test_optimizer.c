// SPDX-License-Identifier: Apache-2.0
/* AdamW, Adam and SGD over some steps against PyTorch's order of operations in double; weights in
 * bf16 against f32 weights, by the bits over some steps and by the way they go over many. */
#include "half_check.h"

enum { STEPS = 4 };

static void
adamw_reference(const tsr_adamw *o, double *w, double *m, double *v, double *v_max, double g) {
  if (o->coupled) g += o->weight_decay * *w;
  else *w -= (double)o->lr * o->weight_decay * *w;
  *m = o->beta1 * *m + (1 - o->beta1) * g;
  *v = o->beta2 * *v + (1 - o->beta2) * g * g;
  if (*v > *v_max) *v_max = *v;
  double seen = o->amsgrad ? *v_max : *v;
  *w -= o->lr / o->correction1 * *m / (sqrt(seen) / sqrt(o->correction2) + o->eps);
}

static void check_adamw(const tsr_kernels *k, int64_t n, bool amsgrad, bool coupled) {
  float *start = input_new(n, 1), *zero = input_new(n, 0);
  output w = output_from(start, n), m = output_from(zero, n), v = output_from(zero, n);
  output v_max = output_from(zero, n);
  double *want_w = to_double(start, n), *want_m = reference_new(n), *want_v = reference_new(n);
  double *want_max = reference_new(n);
  for (int step = 1; step <= STEPS; step++) {
    tsr_adamw o = {1e-2f,
                   0.9f,
                   0.95f,
                   1e-8f,
                   0.1f,
                   1 - powf(0.9f, (float)step),
                   1 - powf(0.95f, (float)step),
                   amsgrad,
                   coupled};
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

/* ---- weights in bf16 ---- */

enum { ADAMW, ADAMW_MAX, ADAM, SGD, SGD_MOMENTUM, UPDATES };

/* One optimizer's weights, in f32 or in bf16, with its state. */
typedef struct {
  float *wide; /* f32 */
  uint16_t *w, *c;
  float *m, *v, *v_max;
  int64_t n;
} weights;

static void *zeros_new(size_t bytes) { return memset(check_alloc(bytes), 0, bytes); }

static weights weights_new(const uint16_t *start, int64_t n) {
  size_t count = (size_t)n;
  weights s = {.wide = check_alloc(count * 4), .w = check_alloc(count * 2), .n = n};
  s.c = zeros_new(count * 2), s.m = zeros_new(count * 4), s.v = zeros_new(count * 4);
  s.v_max = zeros_new(count * 4);
  memcpy(s.w, start, count * 2);
  for (int64_t i = 0; i < n; i++) s.wide[i] = bf16_float(start[i]);
  return s;
}

static void weights_free(weights *s) {
  free(s->wide), free(s->w), free(s->c), free(s->m), free(s->v), free(s->v_max);
}

/* An update number `step`, from 1 on, of bf16 weights, or of f32 ones where `rounding` is NULL. */
static void update(
    const tsr_kernels *k, int kind, float lr, int step, const tsr_rounding *rounding, weights *s,
    const float *grad, int64_t begin, int64_t end) {
  float t = (float)step, momentum = kind == SGD ? 0 : 0.9f;
  tsr_adamw adamw = {lr,
                     0.9f,
                     0.95f,
                     1e-8f,
                     0.01f,
                     1 - powf(0.9f, t),
                     1 - powf(0.95f, t),
                     kind == ADAMW_MAX,
                     kind == ADAM};
  tsr_sgd sgd = {lr, momentum, 0, 0.01f, false, step == 1};
  float *v_max = kind == ADAMW_MAX ? s->v_max : NULL, *buffer = kind == SGD ? NULL : s->m;
  if (kind <= ADAM && rounding)
    k->adamw_bf16(&adamw, rounding, s->w, s->m, s->v, v_max, grad, 0.5f, begin, end);
  else if (kind <= ADAM) k->adamw(&adamw, s->wide, s->m, s->v, v_max, grad, 0.5f, begin, end);
  else if (rounding) k->sgd_bf16(&sgd, rounding, s->w, buffer, grad, 0.5f, begin, end);
  else k->sgd(&sgd, s->wide, buffer, grad, 0.5f, begin, end);
}

static uint16_t *start_new(int64_t n, float low, float high) {
  uint16_t *w = check_alloc((size_t)n * sizeof *w);
  for (int64_t i = 0; i < n; i++) w[i] = bf16_of(low + (high - low) * (check_uniform() + 1) / 2);
  return w;
}

/* What the header says of a rounding; x is the f32 update of the weight w. */
static uint16_t rounded(const tsr_rounding *rounding, uint16_t w, uint16_t *c, float x, int64_t i) {
  if (rounding->kind == TSR_ROUND_NEAREST) return bf16_of(x);
  if (rounding->kind == TSR_ROUND_STOCHASTIC)
    return bf16_by_word(x, slice_word(rounding->slice, i, rounding->key));
  float t = bf16_float(*c) + (x - bf16_float(w));
  uint16_t after = bf16_of(bf16_float(w) + t);
  *c = bf16_of(t - (bf16_float(after) - bf16_float(w)));
  return after;
}

static bool same_bits(const void *a, const void *b, int64_t count, size_t size) {
  return !memcmp(a, b, (size_t)count * size);
}

/* Some steps, over the whole range and over splits, against the f32 update of the same weights. */
static void check_rounding(const tsr_kernels *k, int kind, tsr_rounding_kind how, int64_t n) {
  uint16_t *start = start_new(n, -1, 1);
  weights got[2] = {weights_new(start, n), weights_new(start, n)}, want = weights_new(start, n);
  const tsr_tensor_slice slice = {2, {1, n}, {3, n + 5}, {1, 2}};
  for (int step = 1; step <= STEPS; step++) {
    tsr_rounding rounding = {how, tsr_random_key(1, "w", (uint64_t)step), &slice, NULL};
    float *grad = input_new(n, 1);
    RUN(n, rounding.compensation = how == TSR_ROUND_KAHAN ? got[pass].c : NULL;
        update(k, kind, 1e-2f, step, &rounding, &got[pass], grad, begin, end));
    update(k, kind, 1e-2f, step, NULL, &want, grad, 0, n);
    for (int64_t i = 0; i < n; i++) {
      want.w[i] = rounded(&rounding, want.w[i], &want.c[i], want.wide[i], i);
      want.wide[i] = bf16_float(want.w[i]);
    }
    free(grad);
  }
  for (int pass = 0; pass < 2; pass++) {
    CHECK(same_bits(got[pass].w, want.w, n, sizeof *want.w));
    CHECK(same_bits(got[pass].c, want.c, n, sizeof *want.c));
    CHECK(same_bits(got[pass].m, want.m, n, sizeof *want.m));
    CHECK(same_bits(got[pass].v, want.v, n, sizeof *want.v));
    CHECK(same_bits(got[pass].v_max, want.v_max, n, sizeof *want.v_max));
    weights_free(&got[pass]);
  }
  weights_free(&want);
  free(start);
}

static void test_roundings(const tsr_kernels *k) {
  EACH_SIZE(n)
  for (int kind = 0; kind < UPDATES; kind++)
    for (int how = TSR_ROUND_NEAREST; how <= TSR_ROUND_KAHAN; how++)
      check_rounding(k, kind, (tsr_rounding_kind)how, n);
}

/* Many updates of about 2^-13 of the weights' size, which is under half a step of bf16. */
enum { LONG_STEPS = 2000, LONG_N = 512 };

typedef struct {
  double moved, sum_apart, squares_apart, most_apart; /* from f32 weights */
  int64_t stuck;
} journey;

/* The bf16 weights, with their compensation, beside f32 weights with the same gradients. */
static journey travel(const tsr_kernels *k, int kind, tsr_rounding_kind how) {
  uint16_t *start = start_new(LONG_N, 1.25f, 1.75f);
  weights narrow = weights_new(start, LONG_N), wide = weights_new(start, LONG_N);
  const tsr_tensor_slice slice = {1, {LONG_N}, {LONG_N}, {0}};
  for (int step = 1; step <= LONG_STEPS; step++) {
    tsr_rounding rounding = {how, tsr_random_key(5, "w", (uint64_t)step), &slice, narrow.c};
    float *grad = input_new(LONG_N, 1), lr = kind == SGD_MOMENTUM ? 4e-5f : 2e-4f;
    for (int64_t i = 0; i < LONG_N; i++) grad[i] += 1;
    update(k, kind, lr, step, &rounding, &narrow, grad, 0, LONG_N);
    update(k, kind, lr, step, NULL, &wide, grad, 0, LONG_N);
    free(grad);
  }
  journey j = {0};
  for (int64_t i = 0; i < LONG_N; i++) {
    double apart = (double)bf16_float(narrow.w[i]) + bf16_float(narrow.c[i]) - wide.wide[i];
    j.moved += (bf16_float(start[i]) - wide.wide[i]) / LONG_N;
    j.sum_apart += apart;
    j.squares_apart += apart * apart;
    j.most_apart = fmax(j.most_apart, fabs(apart));
    j.stuck += narrow.w[i] == start[i];
  }
  weights_free(&narrow), weights_free(&wide);
  free(start);
  return j;
}

static void test_long(const tsr_kernels *k) {
  for (int kind = 0; kind < UPDATES; kind++) {
    journey nearest = travel(k, kind, TSR_ROUND_NEAREST);
    CHECK(nearest.moved > 0.1);
    CHECK_INT(nearest.stuck, LONG_N);

    /* at most 2^-17 |w| per step; roundings up and down make it the square root of the steps */
    journey kahan = travel(k, kind, TSR_ROUND_KAHAN);
    CHECK_INT(kahan.stuck, 0);
    CHECK(kahan.most_apart <= LONG_STEPS * 0x1p-17 * 1.75);
    CHECK(sqrt(kahan.squares_apart / LONG_N) <= sqrt(LONG_STEPS) * 0x1p-17 * 1.75);

    journey chance = travel(k, kind, TSR_ROUND_STOCHASTIC);
    double deviation = sqrt(chance.squares_apart / LONG_N);
    CHECK(fabs(chance.sum_apart / LONG_N) <= 5 * deviation / sqrt(LONG_N));
    CHECK(deviation < chance.moved / 2);
  }
}

static void test_optimizers(const tsr_kernels *k) {
  EACH_SIZE(n) {
    check_adamw(k, n, false, false);
    check_adamw(k, n, true, false);
    check_adamw(k, n, false, true);
    check_adamw(k, n, true, true);
    check_sgd(k, n, 0, false);
    check_sgd(k, n, 0.9f, false);
    check_sgd(k, n, 0.9f, true);
  }
}

int main(void) {
  each_level(test_optimizers);
  each_level(test_roundings);
  each_level(test_long);
  return check_done("kernels.optimizer");
}
