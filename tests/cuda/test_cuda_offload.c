// SPDX-License-Identifier: Apache-2.0
/* Training on the emulated device with activations in the host's memory: the bits are those
 * without, on one rank and on meshes, beside recompute, ZeRO and every pipeline schedule. */
#include "tests/cuda/training.h"

/* Two layers; six nodes are a block. */
static const training recipe = {
    .name = "offload",
    .steps = 2,
    .length = 6,
    .batch_units = 4,
    .tp_units = 4,
    .inputs = "tokens $B,$T tokens; targets $B,$T tokens",
    .params =
        "wte 24,16 0; n1 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; wo 16,16 1; m1 16; u1 32,16 0\n"
        "d1 16,32 1; n2 16; vq 16,16 0; vk 16,16 0; vv 16,16 0; vo 16,16 1; m2 16; u2 32,16 0\n"
        "d2 16,32 1; nf 16",
    .calls =
        "x0: embedding(tokens, wte); h1: rmsnorm(x0, n1); q1: linear(h1, wq); k1: linear(h1, wk)\n"
        "v1: linear(h1, wv); a1: attention(q1, k1, v1, head_dim: 4, dropout: 0.1)\n"
        "o1: linear(a1, wo); y1: add(x0, o1); l1: rmsnorm(y1, m1); f1: linear(l1, u1)\n"
        "g1: gelu(f1); e1: linear(g1, d1); x1: add(y1, e1); h2: rmsnorm(x1, n2)\n"
        "q2: linear(h2, vq); k2: linear(h2, vk); v2: linear(h2, vv)\n"
        "a2: attention(q2, k2, v2, head_dim: 4); o2: linear(a2, vo); y2: add(x1, o2)\n"
        "l2: rmsnorm(y2, m2); f2: linear(l2, u2); g2: gelu(f2); e2: linear(g2, d2)\n"
        "r2: dropout(e2, p: 0.1); x2: add(y2, r2); y: rmsnorm(x2, nf); logits: linear(y, wte)\n"
        "loss: cross_entropy(logits, targets, valid: 21)"};

static void check_copies(tsr_arena *arena, const training *t, harness_options mesh) {
  harness h = training_open(arena, t, mesh);
  int copies[2] = {0};
  for (int s = 0; s < h.programs.pipeline->stages; s++)
    for (int i = 0; i < h.programs.of_stage[s]->tasks_count; i++) {
      copies[0] += h.programs.of_stage[s]->tasks[i].op == TSR_OP_OFFLOAD;
      copies[1] += h.programs.of_stage[s]->tasks[i].op == TSR_OP_RELOAD;
    }
  CHECK_AT(
      copies[0] > 0, "pp %d, %d microbatches: nothing is offloaded", mesh.pp,
      (int)mesh.microbatches);
  CHECK_INT(copies[1], copies[0]);
  harness_close(&h);
}

static void check(tsr_dtype precision, const harness_options *meshes, size_t count) {
  tsr_arena *arena = tsr_arena_new();
  training t = recipe;
  t.precision = precision;
  harness_options alone = {.dp = 1, .tp = 1, .microbatches = 2};
  harness_trace want = training_run(arena, &t, alone);
  for (size_t i = 0; i < count; i++) {
    harness_options mesh = meshes[i];
    mesh.offload = true;
    training_check_same(arena, &t, mesh, &want);
    check_copies(arena, &t, mesh);
  }
  tsr_arena_free(arena);
}

#define MESHES(list) list, sizeof list / sizeof *list

int main(void) {
  static const harness_options all[] = {
      {.dp = 1, .tp = 1, .microbatches = 1},
      {.dp = 1, .tp = 1, .microbatches = 4, .offload_blocks = 2},
      {.dp = 2, .tp = 2, .microbatches = 2},
      {.dp = 2, .tp = 1, .microbatches = 2, .zero = 3, .overlap = true},
      {.dp = 1,
       .tp = 1,
       .microbatches = 2,
       .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 2}},
      {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4, .pipeline = TSR_PIPELINE_1F1B},
      {.dp = 1,
       .tp = 1,
       .pp = 2,
       .microbatches = 4,
       .pipeline = TSR_PIPELINE_INTERLEAVED,
       .chunks = 2},
      {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4, .pipeline = TSR_PIPELINE_ZB_V, .chunks = 2},
      {.dp = 2, .tp = 1, .pp = 2, .microbatches = 2, .pipeline = TSR_PIPELINE_GPIPE, .zero = 1}};
  static const harness_options half[] = {
      {.dp = 1, .tp = 2, .microbatches = 2},
      {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4, .pipeline = TSR_PIPELINE_ZB_H1}};
  check(TSR_F32, MESHES(all));
  check(TSR_BF16, MESHES(half));
  return check_done("cuda.offload");
}
