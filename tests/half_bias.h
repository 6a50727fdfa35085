// SPDX-License-Identifier: Apache-2.0
/* A linear layer and its bias in half precision on the device of harness.h: a sum in double
 * precision says what a single rounding may give. */
#ifndef TSR_TESTS_HALF_BIAS_H
#define TSR_TESTS_HALF_BIAS_H
#include "tests/check.h"
#include "tests/run/harness.h"
#include <math.h>

enum { HALF_BIAS_ROWS = 48, HALF_BIAS_IN = 32, HALF_BIAS_OUT = 40 };

/* Significant bits. */
static int bits_of(tsr_dtype type) { return type == TSR_BF16 ? 8 : 11; }

/* To the nearest, ties to even; of numbers that are normal. */
static double rounded(tsr_dtype type, double x) {
  if (x == 0) return 0;
  int shift = bits_of(type) - 1 - ilogb(x);
  return ldexp(nearbyint(ldexp(x, shift)), -shift);
}

/* Half of the distance between neighbours at x. */
static double half_step(tsr_dtype type, double x) {
  return x == 0 ? 0 : ldexp(1, ilogb(x) - bits_of(type));
}

static tsr_graph *layer(tsr_arena *arena) {
  tsr_graph *g = tsr_graph_new(arena, "layer", (tsr_units){.batch = 1, .sequence = 1, .tp = 1});
  harness_inputs(g, "tokens 4,12 tokens");
  harness_params(g, "wte 24,32; w 40,32; b 40; one 32; ones 40");
  for (int p = 3; p < 5; p++) g->params[p].init = (tsr_init){.kind = TSR_INIT_ONES};
  g->params[2].init.b = 2; /* as large as the sums */
  harness_calls(
      g, "x: embedding(tokens, wte); h: linear(x, w, b); x0: mul(x, one); y: mul(h, ones)");
  tsr_graph_output(g, "x0", harness_find(g, "x0"));
  tsr_graph_output(g, "y", harness_find(g, "y"));
  return g;
}

static bool half_bias_is_fused(const harness *h) {
  const tsr_program *p = h->programs.of_stage[0];
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].fused == TSR_FUSED_EPILOGUE) return true;
  return false;
}

/* Outputs are f32: they have the numbers that the layer reads and gives in half precision. */
static void half_bias_check(tsr_dtype type, bool fused) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = {
      .dp = 1, .tp = 1, .threads = 1, .microbatches = 1, .batch_units = 1, .tp_units = 1};
  o.precision = type;
  o.vocabulary = 24;
  harness h = harness_open(arena, layer(arena), &o);
  int64_t n;
  CHECK(half_bias_is_fused(&h) == fused);
  harness_step(&h, 0);
  const float *x = harness_read(arena, &h, "x0", &n), *y = harness_read(arena, &h, "y", &n),
              *w = harness_read_param(arena, &h, 1, &n), *b = harness_read_param(arena, &h, 2, &n);
  int wrong = 0, rounded_twice = 0;
  for (int i = 0; i < HALF_BIAS_ROWS * HALF_BIAS_OUT; i++) {
    int row = i / HALF_BIAS_OUT, column = i % HALF_BIAS_OUT;
    double sum = 0, size = 0, bias = rounded(type, b[column]);
    for (int k = 0; k < HALF_BIAS_IN; k++) {
      double term = (double)x[row * HALF_BIAS_IN + k] * rounded(type, w[column * HALF_BIAS_IN + k]);
      sum += term, size += fabs(term);
    }
    double bound = half_step(type, sum + bias) + 1e-6 * (size + fabs(bias));
    wrong += !(fabs(y[i] - (sum + bias)) <= bound) || rounded(type, y[i]) != (double)y[i];
    rounded_twice += fabs(rounded(type, rounded(type, sum) + bias) - (sum + bias)) > bound;
  }
  CHECK_AT(
      !wrong, "%s: %d of %d sums are not rounded once", tsr_dtype_name(type), wrong,
      HALF_BIAS_ROWS * HALF_BIAS_OUT);
  CHECK_AT(
      rounded_twice > HALF_BIAS_OUT, "%s: %d would differ", tsr_dtype_name(type), rounded_twice);
  harness_close(&h);
  tsr_arena_free(arena);
}

#endif
