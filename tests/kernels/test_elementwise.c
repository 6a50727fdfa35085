// SPDX-License-Identifier: Apache-2.0
/* Elementwise kernels against libm in double; their slopes against central differences. */
#include "kernel_check.h"

static double reference(tsr_unary kind, double x) {
  switch (kind) {
  case TSR_UNARY_GELU:
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case TSR_UNARY_GELU_ERF:
    return 0.5 * x * erfc(-x / sqrt(2));
  case TSR_UNARY_RELU:
    return x > 0 ? x : 0;
  case TSR_UNARY_RELU2:
    return x > 0 ? x * x : 0;
  case TSR_UNARY_SILU:
    return x / (1 + exp(-x));
  case TSR_UNARY_TANH:
    return tanh(x);
  case TSR_UNARY_SIGMOID:
    return 1 / (1 + exp(-x));
  case TSR_UNARY_COUNT:
    break;
  }
  abort();
}

static double slope(tsr_unary kind, double x) {
  double step = 1e-5;
  if (kind == TSR_UNARY_RELU) return x > 0;
  if (kind == TSR_UNARY_RELU2) return x > 0 ? 2 * x : 0; /* differences are wrong at 0 */
  return (reference(kind, x + step) - reference(kind, x - step)) / (2 * step);
}

/* Inputs of all sizes; the first few are the hard ones. */
static float *unary_input(int64_t n) {
  static const float hard[] = {0,  -0.0f, 1e-30f, -1e-30f, 0.6249f, 0.6251f, -0.6249f, 20, -20,
                               88, -88,   1e-4f,  -1e-4f,  5,       -5,      9,        -9};
  float *x = input_new(n, 6);
  for (int64_t i = 0; i < n && n > 17 && i < (int64_t)(sizeof hard / sizeof hard[0]); i++)
    x[i] = hard[i];
  return x;
}

static void test_unary(const tsr_kernels *k) {
  EACH_SIZE(n) for (tsr_unary kind = 0; kind < TSR_UNARY_COUNT; kind++) {
    float *x = unary_input(n), *dy = input_new(n, 2);
    double *want = reference_new(n), *want_dx = reference_new(n);
    for (int64_t i = 0; i < n; i++) want[i] = reference(kind, x[i]);
    for (int64_t i = 0; i < n; i++) want_dx[i] = dy[i] * slope(kind, x[i]);
    output y = output_new(n), dx = output_new(n), in_place = output_from(x, n);
    RUN(n, k->unary(kind, y.pass[pass], x, begin, end));
    RUN(n, k->unary(kind, in_place.pass[pass], in_place.pass[pass], begin, end));
    RUN(n, k->unary_backward(kind, dx.pass[pass], dy, x, begin, end));
    CHECK_OUTPUT(y, want, 5e-7, 0.1);
    CHECK_OUTPUT(in_place, want, 5e-7, 0.1);
    CHECK_OUTPUT(dx, want_dx, 1e-6, 1);
    CHECK(!memcmp(y.pass[0], in_place.pass[0], (size_t)n * sizeof(float)));
    output_free(&y), output_free(&dx), output_free(&in_place);
    free(x), free(dy), free(want), free(want_dx);
  }
}

/* Worst error in units of the last place of the float nearest to the right value. */
static double worst_ulp(const tsr_kernels *k, tsr_unary kind, double low, double high) {
  enum { N = 200000 };
  static float x[N], y[N];
  for (int i = 0; i < N; i++) x[i] = (float)(low + (high - low) * i / N);
  k->unary(kind, y, x, 0, N);
  double worst = 0;
  for (int i = 0; i < N; i++) {
    double want = reference(kind, x[i]);
    int exponent;
    frexp(want, &exponent);
    double ulp = fabs(y[i] - want) / ldexp(1, exponent - 24);
    if (ulp > worst) worst = ulp;
  }
  return worst;
}

static void test_accuracy(const tsr_kernels *k) {
  double tanh_ulp = worst_ulp(k, TSR_UNARY_TANH, -12, 12);
  double tanh_small_ulp = worst_ulp(k, TSR_UNARY_TANH, 1e-6, 1e-1);
  double sigmoid_ulp = worst_ulp(k, TSR_UNARY_SIGMOID, -80, 20);
  double gelu_ulp = worst_ulp(k, TSR_UNARY_GELU_ERF, -1.5, 20);
  printf(
      "%s: worst ulp: tanh %.2f and %.2f, sigmoid %.2f, gelu_erf %.2f\n", k->isa, tanh_ulp,
      tanh_small_ulp, sigmoid_ulp, gelu_ulp);
  CHECK(tanh_ulp <= 4);
  CHECK(tanh_small_ulp <= 4);
  CHECK(sigmoid_ulp <= 4);
  CHECK(gelu_ulp <= 6);
  float odd[4] = {NAN, INFINITY, -INFINITY, 1e30f}, y[4];
  k->unary(TSR_UNARY_SIGMOID, y, odd, 0, 4);
  CHECK(isnan(y[0]) && y[1] == 1 && y[2] == 0 && y[3] == 1);
  k->unary(TSR_UNARY_TANH, y, odd, 0, 4);
  CHECK(isnan(y[0]) && y[1] == 1 && y[2] == -1 && y[3] == 1);
  k->unary(TSR_UNARY_RELU, y, odd, 0, 4);
  CHECK(isnan(y[0]) && y[1] == INFINITY && y[2] == 0);
}

static void test_arithmetic(const tsr_kernels *k) {
  EACH_SIZE(n) {
    float *a = input_new(n, 3), *b = input_new(n, 3);
    output sum = output_new(n), sub = output_new(n), mul = output_new(n), scale = output_new(n);
    output fill = output_new(n), copy = output_new(n), in_place = output_from(b, n);
    RUN(n, k->add(sum.pass[pass], a, b, begin, end));
    RUN(n, k->add(in_place.pass[pass], a, in_place.pass[pass], begin, end));
    RUN(n, k->sub(sub.pass[pass], a, b, begin, end));
    RUN(n, k->mul(mul.pass[pass], a, b, begin, end));
    RUN(n, k->scale(scale.pass[pass], a, 1.7f, begin, end));
    RUN(n, k->fill(fill.pass[pass], 2.5f, begin, end));
    RUN(n, k->copy(copy.pass[pass], a, begin, end));
    double *want = reference_new(n);
#define EXPECT(o, value)                                                                           \
  for (int64_t i = 0; i < n; i++) want[i] = (float)(value);                                        \
  CHECK_OUTPUT(o, want, 0, 0)
    EXPECT(sum, a[i] + b[i]);
    EXPECT(in_place, a[i] + b[i]);
    EXPECT(sub, a[i] - b[i]);
    EXPECT(mul, a[i] * b[i]);
    EXPECT(scale, a[i] * 1.7f);
    EXPECT(fill, 2.5);
    EXPECT(copy, a[i]);
    output_free(&sum), output_free(&sub), output_free(&mul), output_free(&scale);
    output_free(&fill), output_free(&copy), output_free(&in_place);
    free(a), free(b), free(want);
  }
}

static void check_gated(const tsr_kernels *k, tsr_unary kind, int64_t n) {
  float *gate = input_new(n, 8), *up = input_new(n, 3), *dout = input_new(n, 2);
  double *want = reference_new(n), *want_dgate = reference_new(n), *want_dup = reference_new(n);
  for (int64_t i = 0; i < n; i++) {
    double g = gate[i], u = up[i], d = dout[i];
    want[i] = reference(kind, g) * u;
    want_dgate[i] = d * slope(kind, g) * u;
    want_dup[i] = d * reference(kind, g);
  }
  output out = output_new(n), dgate = output_new(n), dup = output_new(n);
  RUN(n, k->gated(kind, out.pass[pass], gate, up, begin, end));
  RUN(n, k->gated_backward(kind, dgate.pass[pass], dup.pass[pass], dout, gate, up, begin, end));
  CHECK_OUTPUT(out, want, 1e-6, 0.1);
  CHECK_OUTPUT(dgate, want_dgate, 2e-6, 1);
  CHECK_OUTPUT(dup, want_dup, 1e-6, 0.1);
  output_free(&out), output_free(&dgate), output_free(&dup);
  free(gate), free(up), free(dout), free(want), free(want_dgate), free(want_dup);
}

static void test_gated(const tsr_kernels *k) {
  EACH_SIZE(n) for (tsr_unary kind = 0; kind < TSR_UNARY_COUNT; kind++) check_gated(k, kind, n);
}

enum { GPT_OSS_LIMIT = 7 };

static double clamped_reference(double gate, double up) {
  double x = fmin(gate, GPT_OSS_LIMIT), u = fmax(fmin(up, GPT_OSS_LIMIT), -GPT_OSS_LIMIT);
  return x / (1 + exp(-1.702 * x)) * (u + 1);
}

/* Gates and ups on both sides of the limit; differences that stay on one side of it. */
static void check_clamped(const tsr_kernels *k, int64_t n) {
  float *gate = input_new(n, 12), *up = input_new(n, 12), *dout = input_new(n, 2);
  double *want = reference_new(n), *want_dgate = reference_new(n), *want_dup = reference_new(n);
  const double step = 1e-5;
  for (int64_t i = 0; i < n; i++) {
    double g = gate[i], u = up[i];
    bool near = fabs(fabs(g) - GPT_OSS_LIMIT) < step || fabs(fabs(u) - GPT_OSS_LIMIT) < step;
    if (near) gate[i] = up[i] = 1, g = u = 1;
    want[i] = clamped_reference(g, u);
    want_dgate[i] =
        dout[i] * (clamped_reference(g + step, u) - clamped_reference(g - step, u)) / (2 * step);
    want_dup[i] =
        dout[i] * (clamped_reference(g, u + step) - clamped_reference(g, u - step)) / (2 * step);
  }
  output out = output_new(n), dgate = output_new(n), dup = output_new(n);
  RUN(n, k->clamped_swiglu(1.702f, GPT_OSS_LIMIT, out.pass[pass], gate, up, begin, end));
  RUN(n, k->clamped_swiglu_backward(
             1.702f, GPT_OSS_LIMIT, dgate.pass[pass], dup.pass[pass], dout, gate, up, begin, end));
  CHECK_OUTPUT(out, want, 1e-6, 0.1);
  CHECK_OUTPUT(dgate, want_dgate, 2e-6, 1);
  CHECK_OUTPUT(dup, want_dup, 2e-6, 0.1);
  output_free(&out), output_free(&dgate), output_free(&dup);
  free(gate), free(up), free(dout), free(want), free(want_dgate), free(want_dup);
}

static void test_clamped(const tsr_kernels *k) {
  EACH_SIZE(n) check_clamped(k, n);
  float gate[] = {NAN, 1, INFINITY}, up[] = {1, NAN, 1}, y[3];
  k->clamped_swiglu(1.702f, GPT_OSS_LIMIT, y, gate, up, 0, 3);
  CHECK(isnan(y[0]) && isnan(y[1]) && y[2] > 13 && y[2] < 15);
}

int main(void) {
  each_level(test_unary);
  each_level(test_accuracy);
  each_level(test_arithmetic);
  each_level(test_gated);
  each_level(test_clamped);
  CHECK(tsr_kernels_get("x86-65") == NULL);
  CHECK(tsr_kernels_get(NULL) != NULL);
  return check_done("kernels.elementwise");
}
