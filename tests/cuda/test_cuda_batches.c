// SPDX-License-Identifier: Apache-2.0
/* Training with batches of GEMMs (schedule/fuse_gemms.h): on every mesh the bits of one rank that
 * computes each GEMM by itself, whether the library computes all batches, some or none. */
#include "tests/cuda/training.h"
#include <cublasLt.h>
#include <stdlib.h>

/* q, k and v with biases, whose gradients are batches of three; gate and up, two; a group of heads
 * whose q has another shape, and a head that splits the sum of its calls. */
static const training recipe = {
    .name = "batches",
    .steps = 2,
    .length = 6,
    .batch_units = 4,
    .tp_units = 2,
    .inputs = "tokens $B,$T tokens; targets $B,$T tokens",
    .params = "wte 192,16 0; n1 16; c1 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; bq 16 0; bk 16 0\n"
              "bv 16 0; wo 16,16 1; n2 16; wg 32,16 0; wu 32,16 0; wd 16,32 1\n"
              "n3 16; xq 32,16 0; xk 16,16 0; xv 16,16 0; xo 16,32 1",
    .calls = "e: embedding(tokens, wte); h: layernorm(e, n1, c1); q: linear(h, wq, bq)\n"
             "k: linear(h, wk, bk); v: linear(h, wv, bv); qp: rope(q, head_dim: 8)\n"
             "kp: rope(k, head_dim: 8); a: attention(qp, kp, v, head_dim: 8); o: linear(a, wo)\n"
             "y: add(e, o); m: rmsnorm(y, n2); g: linear(m, wg)\n"
             "u: linear(m, wu); s: swiglu(g, u); d: linear(s, wd); z: add(y, d)\n"
             "p: rmsnorm(z, n3); q2: linear(p, xq); k2: linear(p, xk); v2: linear(p, xv)\n"
             "qr: rope(q2, head_dim: 8); kr: rope(k2, head_dim: 8)\n"
             "b: attention(qr, kr, v2, head_dim: 8); o2: linear(b, xo); r: add(z, o2)\n"
             "logits: linear(r, wte); loss: cross_entropy(logits, targets, valid: 21)"};

static const harness_options one = {.dp = 1, .tp = 1, .microbatches = 1};
static const harness_options meshes[] = {
    {.dp = 1, .tp = 1, .microbatches = 1},
    {.dp = 1, .tp = 1, .microbatches = 2},
    {.dp = 2, .tp = 1, .microbatches = 2, .overlap = true},
    {.dp = 1, .tp = 2, .microbatches = 1},
    {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4, .pipeline = TSR_PIPELINE_1F1B},
    {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4, .pipeline = TSR_PIPELINE_ZB_H1},
    {.dp = 2, .tp = 2, .microbatches = 1},
    {.dp = 1, .tp = 2, .microbatches = 1, .sequence_parallel = true},
    {.dp = 2, .tp = 1, .microbatches = 2, .zero = 1},
    {.dp = 2, .tp = 1, .microbatches = 2, .zero = 2, .overlap = true},
    {.dp = 2, .tp = 1, .microbatches = 2, .zero = 3},
    {.dp = 2, .tp = 1, .microbatches = 1, .zero = 1, .zero_owners = true},
    {.dp = 2, .tp = 2, .microbatches = 1, .recompute = {.kind = TSR_RECOMPUTE_MAPS}}};
/* Where the recipe splits sequences. */
static const harness_options rings[] = {
    {.dp = 1, .tp = 1, .microbatches = 1}, {.dp = 1, .cp = 2, .tp = 1, .microbatches = 2}};
#define MESHES(list) list, sizeof list / sizeof *list

static int count_batches(const training *t, harness_options mesh) {
  tsr_arena *arena = tsr_arena_new();
  harness h = training_open(arena, t, mesh);
  int batches = 0;
  for (int s = 0; s < h.programs.pipeline->stages; s++)
    for (int i = 0; i < h.programs.of_stage[s]->tasks_count; i++)
      batches += h.programs.of_stage[s]->tasks[i].fused == TSR_FUSED_GEMMS;
  harness_close(&h);
  tsr_arena_free(arena);
  return batches;
}

#ifdef TSR_TESTS_CUDA_RUNTIME_H /* the emulator, which counts */
static unsigned long count_calls(void) { return emulated_gemm_calls(); }
#else
static unsigned long count_calls(void) { return 0; }
#endif

static harness_trace run_separately(tsr_arena *arena, const training *t) {
  unsigned fuses = harness_target.fuses;
  harness_target.fuses &= ~(1u << TSR_FUSED_GEMMS);
  harness_trace want = training_run(arena, t, one);
  CHECK_INT(count_batches(t, one), 0);
  harness_target.fuses = fuses;
  return want;
}

/* Calls of a run on one rank, beside those without batches. */
static void check_calls(const training *t, unsigned long separate, bool batches) {
  tsr_arena *arena = tsr_arena_new();
  unsigned long before = count_calls();
  training_run(arena, t, one);
  unsigned long calls = count_calls() - before;
  CHECK_AT(
      !calls || (batches ? calls < separate : calls == separate), "%lu calls, of %lu", calls,
      separate);
  tsr_arena_free(arena);
}

static void
check_bits(const training *t, const harness_options *on, size_t meshes_count, const char *faults) {
  tsr_arena *arena = tsr_arena_new();
  if (faults) setenv("EMULATED_CUDA", faults, 1);
  test_device_open(false);
  unsigned long before = count_calls();
  harness_trace want = run_separately(arena, t);
  unsigned long separate = count_calls() - before;
  training_check_near(arena, t, one, &want);
  for (size_t i = 0; i < meshes_count; i++) {
    int batches = count_batches(t, on[i]);
    CHECK_AT(i ? batches > 0 : batches == 6, "mesh %zu has %d batches", i, batches);
    training_check_same(arena, t, on[i], &want);
  }
  check_calls(t, separate, !faults || !strstr(faults, "singles"));
  unsetenv("EMULATED_CUDA");
  tsr_arena_free(arena);
}

int main(void) {
  training f32 = recipe, bf16 = recipe;
  bf16.precision = TSR_BF16;
  check_bits(&f32, MESHES(meshes), NULL);
  check_bits(&bf16, MESHES(meshes), NULL);
  f32.steps = bf16.steps = 1;
  check_bits(&f32, meshes, 3, "choosy");
  check_bits(&bf16, meshes, 3, "singles");
  check_bits(&f32, meshes, 3, "ends"); /* no epilogues: biases are passes of their own */
  check_bits(&bf16, meshes, 3, "ends");
  f32.sequence_units = 2;
  check_bits(&f32, MESHES(rings), NULL);
  return check_done("cuda.batches");
}
