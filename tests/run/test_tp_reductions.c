// SPDX-License-Identifier: Apache-2.0
/* Sums over tp in half precision (tsr_units.tp_in_half): this file's own tree over the units, whose
 * leaves are sums in double precision, says what a row-parallel layer gives, with and without a
 * bias; and trainings have the same bits on every mesh. */
#include "harness.h"
#include "tests/check.h"
#include <math.h>
#include <string.h>

enum { ROWS = 48, IN = 64, OUT = 40, UNITS = 4, STEPS = 2 };

/* ---- numbers in half precision ---- */

/* Significant bits. */
static int bits_of(tsr_dtype type) { return type == TSR_BF16 ? 8 : 11; }

/* To the nearest, ties to even; of numbers that are normal. */
static double rounded(tsr_dtype type, double x) {
  if (x == 0) return 0;
  int shift = bits_of(type) - 1 - ilogb(x);
  return ldexp(nearbyint(ldexp(x, shift)), -shift);
}

/* Whether x is that close to the middle of two neighbours, where a sum in f32 may be rounded to
 * either. */
static bool is_near_tie(tsr_dtype type, double x, double distance) {
  return rounded(type, x - distance) != rounded(type, x + distance);
}

static double add(tsr_dtype type, double x, double y) {
  return rounded(type, (double)((float)x + (float)y));
}

/* ---- one layer ---- */

static tsr_graph *layer(tsr_arena *arena) {
  tsr_units units = {.batch = 1, .sequence = 1, .tp = UNITS};
  units.tp_in_half = true;
  tsr_graph *g = tsr_graph_new(arena, "layer", units);
  harness_inputs(g, "tokens 4,12 tokens");
  harness_params(g, "wte 24,64; w 40,64 1; b 40; one 64; ones 40");
  for (int p = 3; p < 5; p++) g->params[p].init = (tsr_init){.kind = TSR_INIT_ONES};
  g->params[2].init.b = 2; /* as large as the sums */
  harness_calls(
      g, "x: embedding(tokens, wte); h: linear(x, w); k: linear(x, w, b)\n"
         "x0: mul(x, one); y: mul(h, ones); z: mul(k, ones)");
  tsr_graph_output(g, "x0", harness_find(g, "x0"));
  tsr_graph_output(g, "y", harness_find(g, "y"));
  tsr_graph_output(g, "z", harness_find(g, "z"));
  return g;
}

typedef struct {
  int compared, wrong;
  int otherwise; /* sums that a single rounding would make another number */
} counts;

/* A sum by the binary tree over the units; false: one of them is near a tie. */
static bool
sum_units(tsr_dtype type, const float *x, const float *w, double *ret_sum, double *ret_whole) {
  double leaf[UNITS];
  *ret_whole = 0;
  for (int u = 0; u < UNITS; u++) {
    double sum = 0, size = 0;
    for (int k = u * IN / UNITS; k < (u + 1) * IN / UNITS; k++) {
      double term = (double)x[k] * rounded(type, w[k]);
      sum += term, size += fabs(term);
    }
    if (is_near_tie(type, sum, 1e-6 * size)) return false;
    leaf[u] = rounded(type, sum);
    *ret_whole += sum;
  }
  *ret_sum = add(type, add(type, leaf[0], leaf[1]), add(type, leaf[2], leaf[3]));
  return true;
}

/* Outputs are f32: they have the numbers that the layers read and give in half precision. */
static void check_layer(tsr_dtype type, int tp) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = {.dp = 1, .tp = tp, .threads = 2, .microbatches = 1, .batch_units = 1};
  o.tp_units = UNITS;
  o.precision = type;
  o.vocabulary = 24;
  harness h = harness_open(arena, layer(arena), &o);
  int64_t n;
  harness_step(&h, 0);
  const float *x = harness_read(arena, &h, "x0", &n), *y = harness_read(arena, &h, "y", &n),
              *z = harness_read(arena, &h, "z", &n), *w = harness_read_param(arena, &h, 1, &n),
              *b = harness_read_param(arena, &h, 2, &n);
  counts found = {0};
  for (int i = 0; i < ROWS * OUT; i++) {
    double sum, whole, bias = rounded(type, b[i % OUT]);
    if (!sum_units(type, x + i / OUT * IN, w + i % OUT * IN, &sum, &whole)) continue;
    found.compared++;
    found.wrong += (double)y[i] != sum || (double)z[i] != add(type, sum, bias);
    found.otherwise += rounded(type, whole) != sum;
  }
  CHECK_AT(
      !found.wrong, "%s, tp %d: %d of %d sums are not the tree's", tsr_dtype_name(type), tp,
      found.wrong, found.compared);
  CHECK_AT(
      found.compared > ROWS * OUT * 3 / 4 && found.otherwise > ROWS, "%s: %d compared, %d differ",
      tsr_dtype_name(type), found.compared, found.otherwise);
  harness_close(&h);
  tsr_arena_free(arena);
}

/* ---- trainings ---- */

/* Rows of the embedding, heads that share one key, column- and row-parallel layers, and a
 * vocabulary are split over tp. */
static harness_trace train(tsr_arena *arena, harness_options o, tsr_tree_shape tree) {
  static const tsr_optimizer adamw = HARNESS_ADAMW(0.5);
  tsr_units units = {o.batch_units, o.sequence_units > 0 ? o.sequence_units : 1, o.tp_units};
  units.tp_in_half = true;
  units.tree = o.tree = tree;
  tsr_graph *g = tsr_graph_new(arena, "layers", units);
  int64_t batch = 8 / o.microbatches, n;
  harness_inputs(g, harness_sized(arena, "tokens $B,$T tokens; targets $B,$T tokens", batch, 12));
  harness_params(
      g, "wte 24,16 0; g 16; wq 16,16 0; wk 4,16; wv 16,16 0; wo 16,16 1; bo 16\n"
         "g2 16; w1 32,16 0; b1 32 0; w3 32,16 0; w2 16,32 1");
  harness_calls(
      g, "x: embedding(tokens, wte); n: rmsnorm(x, g); q: linear(n, wq); k1: linear(n, wk)\n"
         "k: expand_heads(k1, heads: 4); v: linear(n, wv); a: attention(q, k, v, head_dim: 4)\n"
         "o: linear(a, wo, bo); y: add(x, o); m: rmsnorm(y, g2); h: linear(m, w1, b1)\n"
         "u: linear(m, w3); s: swiglu(h, u); d: linear(s, w2); d2: scale(d, factor: 0.5)\n"
         "z: add(y, d2); logits: linear(z, wte); loss: cross_entropy(logits, targets, valid: 21)");
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  o.optimizer = &adamw;
  o.vocabulary = 21;
  harness h = harness_open(arena, g, &o);
  harness_trace t = {0};
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    harness_keep(arena, &t, harness_read(arena, &h, "loss", &n), 1);
    harness_keep(arena, &t, harness_read(arena, &h, "clip", &n), 2);
  }
  harness_keep_weights(arena, &h, &t);
  harness_close(&h);
  return t;
}

static void check_meshes(tsr_dtype type, tsr_tree_shape tree) {
  static const harness_options meshes[] = {
      {.dp = 1, .tp = 1, .microbatches = 8},
      {.dp = 1, .tp = 4, .microbatches = 8},
      {.dp = 1, .tp = 4, .microbatches = 8, .sequence_parallel = true},
      {.dp = 4, .tp = 4, .microbatches = 2, .zero = 2},
      {.dp = 1, .tp = 4, .pp = 2, .microbatches = 8, .pipeline = TSR_PIPELINE_1F1B},
      /* in a binary tree alone, in which a rank may have some of the units */
      {.dp = 1, .tp = 2, .microbatches = 1},
      {.dp = 2, .tp = 2, .microbatches = 2, .sequence_parallel = true},
      {.dp = 1, .tp = 2, .cp = 2, .microbatches = 2},
      {.dp = 1, .tp = 2, .microbatches = 4, .recompute = {TSR_RECOMPUTE_BLOCKS, 1}}};
  int count = (int)(sizeof meshes / sizeof *meshes) - (tree == TSR_TREE_FLAT ? 4 : 0);
  tsr_arena *arena = tsr_arena_new();
  harness_trace want = {0};
  for (int i = 0; i < count; i++) {
    harness_options o = meshes[i];
    o.threads = 1 + i % 2;
    o.batch_units = 8;
    o.sequence_units = 4;
    o.tp_units = UNITS;
    o.precision = type;
    harness_trace got = train(arena, o, tree);
    if (i == 0) want = got;
    CHECK_AT(
        got.count == want.count &&
            !memcmp(got.data, want.data, sizeof *got.data * (size_t)got.count),
        "%s, %s: mesh %d", tsr_dtype_name(type), tree == TSR_TREE_FLAT ? "flat" : "binary", i);
  }
  tsr_arena_free(arena);
}

int main(void) {
  static const tsr_dtype types[] = {TSR_BF16, TSR_F16};
  for (int t = 0; t < 2; t++) {
    for (int tp = 1; tp <= UNITS; tp *= 2) check_layer(types[t], tp);
    check_meshes(types[t], TSR_TREE_BINARY);
    check_meshes(types[t], TSR_TREE_FLAT);
  }
  return check_done("run.tp_reductions");
}
