// SPDX-License-Identifier: Apache-2.0
/* In half precision a linear layer and its bias are rounded once: a sum in double precision says
 * what the result may be, and trainings have the same bits whether the bias is a part of the GEMM
 * or a task of its own, on every mesh and at every instruction-set level of this CPU. */
#include "harness.h"
#include "tests/check.h"
#include "tests/half_bias.h"
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };

static const char *const types[] = {[TSR_BF16] = "bf16", [TSR_F16] = "fp16"};

/* Column-parallel layers, one of them with a bias that an op computes and one whose sum is read
 * without its bias too, and a row-parallel one before a residual. */
static harness_trace train(tsr_arena *arena, harness_options o, bool fused) {
  static const tsr_optimizer adamw = HARNESS_ADAMW(0.5);
  tsr_graph *g = tsr_graph_new(
      arena, "layers",
      (tsr_units){o.batch_units, o.sequence_units > 0 ? o.sequence_units : 1, o.tp_units});
  int64_t batch = 8 / o.microbatches, n;
  harness_inputs(g, harness_sized(arena, "tokens $B,$T tokens; targets $B,$T tokens", batch, 12));
  harness_params(
      g, "wte 24,16 0; w1 32,16 0; b1 32 0; w3 32,16 0; b3 32 0; w4 32,16 0; b4 32 0; w2 16,32 1; "
         "b2 16; g 16");
  harness_calls(
      g, "x: embedding(tokens, wte); h: linear(x, w1, b1); k: gelu(h)\n"
         "c: tanh(b3); u: linear(x, w3, c); v: linear(x, w4); d: add(v, b4); e: add(v, d)\n"
         "f: mul(k, u); a: add(f, e); o: linear(a, w2, b2)\n"
         "s: add(x, o); n: rmsnorm(s, g); logits: linear(n, wte)\n"
         "loss: cross_entropy(logits, targets, valid: 21)");
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  o.optimizer = &adamw;
  o.vocabulary = 21;
  harness_target.fuses = fused ? 0 : 1u << TSR_FUSED_NONE;
  harness h = harness_open(arena, g, &o);
  harness_trace t = {0};
  CHECK(half_bias_is_fused(&h) == fused);
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    harness_keep(arena, &t, harness_read(arena, &h, "loss", &n), 1);
    harness_keep(arena, &t, harness_read(arena, &h, "clip", &n), 2);
  }
  harness_keep_weights(arena, &h, &t);
  harness_close(&h);
  return t;
}

static void check_meshes(tsr_dtype type, const char *level) {
  static const harness_options meshes[] = {
      {.dp = 1, .tp = 1, .microbatches = 1},
      {.dp = 1, .tp = 1, .microbatches = 4},
      {.dp = 2, .tp = 1, .microbatches = 2},
      {.dp = 1, .tp = 2, .microbatches = 1},
      {.dp = 2, .tp = 4, .microbatches = 1, .sequence_parallel = true, .sequence_units = 4},
      {.dp = 1,
       .tp = 2,
       .microbatches = 2,
       .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1}}};
  tsr_arena *arena = tsr_arena_new();
  harness_trace want[2] = {{0}, {0}}; /* without and with units of positions */
  for (size_t i = 0; i < 2 * sizeof meshes / sizeof *meshes; i++) {
    harness_options o = meshes[i / 2];
    o.threads = 1 + (int)i % 2;
    o.batch_units = 8;
    o.tp_units = 4;
    o.precision = type;
    harness_trace *first = &want[o.sequence_units > 0], got = train(arena, o, i % 2);
    if (!first->count) *first = got;
    CHECK_AT(
        got.count == first->count &&
            !memcmp(got.data, first->data, sizeof *got.data * (size_t)got.count),
        "%s at level %s: mesh %d, %s", types[type], level, (int)i / 2,
        i % 2 ? "fused" : "separate");
  }
  tsr_arena_free(arena);
}

int main(void) {
  int levels = 0;
  for (const char *const *level = tsr_kernels_levels(); *level; level++) {
    if (!tsr_kernels_get(*level)) continue;
    setenv("TESSERA_ISA", *level, 1);
    levels++;
    for (tsr_dtype type = 0; type < sizeof types / sizeof *types; type++) {
      if (!types[type]) continue;
      for (int fused = 0; fused < 2; fused++) {
        harness_target.fuses = fused ? 0 : 1u << TSR_FUSED_NONE;
        half_bias_check(type, fused);
      }
      check_meshes(type, *level);
    }
  }
  CHECK(levels > 0);
  return check_done("run.half_bias");
}
