// SPDX-License-Identifier: Apache-2.0
/* Training on the emulated device: the same losses, norms and weights as on the CPU, to rounding,
 * and the same bits on every mesh, although a product has other bits for another shape
 * (emulated/product.c). */
#include "schedule/fuse.h"
#include <cuda_runtime_api.h>
#include "device/cuda/random_keys.h"
#include "tests/cuda/training.h"
#include "tests/half_bias.h"
#include <stdlib.h>

#define TOKENS "tokens $B,$T tokens; targets $B,$T tokens"

static const training models[] = {
    {"mlp", "x $B,7; y $B,3", "w1 12,7 0; b1 12 0; w2 3,12 1; b2 3",
     "h: linear(x, w1, b1); t: tanh(h); z: linear(t, w2, b2); loss: mse(z, y)"},
    {"tokens", TOKENS, "wte 24,16 0",
     "x: embedding(tokens, wte); logits: linear(x, wte)\n"
     "loss: cross_entropy(logits, targets, valid: 21)"},
    {"norms", TOKENS, "wte 24,16 0; n1 16; b1 16; n2 16",
     "e: embedding(tokens, wte); x: layernorm(e, n1, b1); g: gelu(x); y: rmsnorm(g, n2)\n"
     "logits: linear(y, wte); loss: cross_entropy(logits, targets, valid: 21)"},
    {"clamped", TOKENS, "wte 24,16 0; gate 32,16 0; up 32,16 0; down 16,32 1",
     "e: embedding(tokens, wte); g: linear(e, gate); u: linear(e, up)\n"
     "c: clamped_swiglu(g, u, limit: 0.02, alpha: 1.7); d: linear(c, down); x: add(e, d)\n"
     "logits: linear(x, wte); loss: cross_entropy(logits, targets, valid: 21)"},
    {"dropout", TOKENS, "wte 24,16 0",
     "e: embedding(tokens, wte); x: dropout(e, p: 0.2); logits: linear(x, wte)\n"
     "loss: cross_entropy(logits, targets, valid: 21)"},
    {"attention", TOKENS, "wte 24,16 0; wq 32,16 0; wk 16,16 0; wv 16,16 0; s 8 0; wo 16,32 1",
     "x: embedding(tokens, wte); q: linear(x, wq); k: linear(x, wk); v: linear(x, wv)\n"
     "a: attention(q, k, v, s, head_dim: 4, dropout: 0.1); o: linear(a, wo); y: add(x, o)\n"
     "logits: linear(y, wte); loss: cross_entropy(logits, targets, valid: 21)"},
    {"values", TOKENS, "wte 24,16 0; wq 32,16 0; wk 16,16 0; wv 32,16 0; wo 16,64 1",
     "x: embedding(tokens, wte); q: linear(x, wq); k: linear(x, wk); v: linear(x, wv)\n"
     "a: attention(q, k, v, head_dim: 4, v_head_dim: 8); o: linear(a, wo); y: add(x, o)\n"
     "logits: linear(y, wte); loss: cross_entropy(logits, targets, valid: 21)"},
    /* An all-reduce over one rank has no task: its result lies where the product's is. */
    {"aliases", TOKENS, "wte 24,16 0; n 16; w 16,16 0; v 16,16 1",
     "y: embedding(tokens, wte); s: gelu(y); z: linear(y, w); z2: linear(z, v); q: rmsnorm(y, n)\n"
     "u0: mul(z2, q); u: mul(u0, s); logits: linear(u, wte)\n"
     "loss: cross_entropy(logits, targets, valid: 21)"},
    /* Outputs are f32: in half precision the norm of one gets a copy. */
    {"kept", TOKENS, "wte 24,16 0; n 16; w 16,16; v 16,16",
     "e: embedding(tokens, wte); o: linear(e, w); x: add(e, o); q: rmsnorm(x, n)\n"
     "m: linear(q, v); s: add(x, m); logits: linear(s, wte)\n"
     "loss: cross_entropy(logits, targets, valid: 21)",
     .kept = "x"},
    {"ends", TOKENS, "wte 24,16 0; w1 16,16; b1 16; w2 16,16; b2 16; n1 16; w3 16,16; n2 16; b3 16",
     "x: embedding(tokens, wte); h: linear(x, w1, b1); g: gelu(h); o: linear(g, w2, b2)\n"
     "y: add(x, o); n: rmsnorm(y, n1); t: linear(n, w3); d: dropout(t, p: 0.1); u: add(y, d)\n"
     "m: layernorm(u, n2, b3); v: linear(m, w2); s: add(u, v); l: layernorm(s, n2, b3)\n"
     "logits: linear(l, wte); loss: cross_entropy(logits, targets, valid: 21)"}};
enum { MODELS = sizeof models / sizeof *models, ENDS = MODELS - 1 };

static training training_of(int model, tsr_dtype precision) {
  training t = models[model];
  t.steps = 3;
  t.length = 6;
  t.batch_units = t.tp_units = 4;
  t.precision = precision;
  return t;
}

/* With one row a bias looks like a residual. */
static void check_one_row(tsr_dtype precision) {
  training t = {
      "one row", "x $B,7; y $B,3", "w1 16,7; b1 16; n 16; w2 3,16",
      "h: linear(x, w1, b1); m: rmsnorm(h, n); z: linear(m, w2); loss: mse(z, y)"};
  t.steps = 3;
  t.batch_units = t.tp_units = 1;
  t.precision = precision;
  training_check(&t, 1, NULL, 0);
}

/* Which nodes of a forward and backward pass fused tasks cover, by form. */
static void check_fused(tsr_dtype precision) {
  tsr_arena *arena = tsr_arena_new();
  training t = training_of(ENDS, precision);
  harness h = training_open(arena, &t, (harness_options){.dp = 1, .tp = 1, .microbatches = 1});
  const tsr_program *p = h.programs.of_stage[0];
  int tasks[TSR_FUSED_FORMS] = {0}, nodes[TSR_FUSED_FORMS] = {0};
  for (int i = 0; i < p->tasks_count; i++) {
    tasks[p->tasks[i].fused]++;
    nodes[p->tasks[i].fused] += p->tasks[i].nodes_count;
  }
  /* in half precision a GEMM adds its bias, and a norm the residual, before which it is rounded; in
   * f32 a GEMM has one of them, and a norm both of a bias and a residual */
  bool exact = precision == TSR_F32;
  CHECK_INT(tasks[TSR_FUSED_EPILOGUE], 2);
  CHECK_INT(nodes[TSR_FUSED_EPILOGUE], 5);
  CHECK_INT(tasks[TSR_FUSED_SUM_NORM], exact ? 2 : 3);
  CHECK_INT(nodes[TSR_FUSED_SUM_NORM], exact ? 5 : 6);
  CHECK_INT(tasks[TSR_FUSED_NORM_DX_SUM], 2);
  CHECK_INT(nodes[TSR_FUSED_NORM_DX_SUM], 4);
  CHECK_INT(tasks[TSR_FUSED_LOGITS_GRADIENT], !exact);
  CHECK_INT(nodes[TSR_FUSED_LOGITS_GRADIENT], exact ? 0 : 3);
  CHECK_INT(tasks[TSR_FUSED_UPDATES], 1);
  CHECK_INT(nodes[TSR_FUSED_UPDATES], 9);
  CHECK_INT(tasks[TSR_FUSED_NORMS], 1);
  CHECK_INT(nodes[TSR_FUSED_NORMS], 9);
  CHECK_INT(nodes[TSR_FUSED_CASTS], exact ? 0 : 9);
  harness_close(&h);
  tsr_arena_free(arena);
}

/* Separate tasks write the gradient of the logits in f32, and each GEMM rounds a copy of it. */
static void check_logits_gradient(int model, tsr_dtype precision) {
  tsr_arena *arena = tsr_arena_new();
  training t = training_of(model, precision);
  harness_options one = {.dp = 1, .tp = 1, .microbatches = 2};
  unsigned fuses = harness_target.fuses;
  harness_target.fuses &= ~(1u << TSR_FUSED_LOGITS_GRADIENT);
  harness_trace want = training_run(arena, &t, one);
  harness_target.fuses = fuses;
  training_check_same(arena, &t, one, &want);
  tsr_arena_free(arena);
}

#ifdef TSR_TESTS_CUDA_RUNTIME_H /* the emulator, which counts */
static unsigned long launches_of[TSR_OPS];
static const tsr_device *counted;

static void run_counted(void *state, const tsr_launch *launch) {
  unsigned long before = emulated_launches();
  counted->run(state, launch);
  launches_of[launch->call.task->op] += emulated_launches() - before;
}

/* All updates are one launch, and all sums of squares; of the additions, in f32 as in bf16, a product's end or a norm does
 * all but those of the two gradients each of x, wte, w2, n2 and b3. */
static void check_launches(tsr_dtype precision) {
  tsr_arena *arena = tsr_arena_new();
  tsr_device device = *harness_device;
  counted = harness_device;
  device.run = run_counted;
  harness_device = &device;
  training t = training_of(ENDS, precision);
  t.steps = 1;
  memset(launches_of, 0, sizeof launches_of);
  training_run(arena, &t, (harness_options){.dp = 1, .tp = 1, .microbatches = 1});
  CHECK_INT(launches_of[TSR_OP_ADAMW], 1);
  CHECK_INT(launches_of[TSR_OP_NORM_STATS], 1);
  CHECK_INT(launches_of[TSR_OP_NORM_JOIN], 1);
  CHECK_INT(launches_of[TSR_OP_ADD], 5);
  harness_device = counted;
  tsr_arena_free(arena);
}
#else
static void check_launches(tsr_dtype precision) { (void)precision; }
#endif

/* From left to right over four units: microbatches', or ranks' that add in turn to a sum of f32. */
static void check_flat(int model, tsr_dtype precision) {
  static const harness_options meshes[] = {
      {.dp = 2, .tp = 1, .microbatches = 2},
      {.dp = 4, .tp = 1, .microbatches = 1},
      {.dp = 2, .tp = 4, .microbatches = 2, .zero = 1},
      {.dp = 2, .tp = 1, .microbatches = 2, .zero = 3}};
  training t = training_of(model, precision);
  t.tree = TSR_TREE_FLAT;
  training_check(&t, 4, meshes, t.kept ? 0 : sizeof meshes / sizeof *meshes);
}

/* Ranks of tp add in half precision, each of them one of four units or several. */
static void check_half_sums(int model, tsr_dtype precision) {
  static const harness_options meshes[] = {
      {.dp = 1, .tp = 4, .microbatches = 1},
      {.dp = 2, .tp = 2, .microbatches = 2, .sequence_parallel = true}};
  training t = training_of(model, precision);
  t.tp_in_half = true;
  t.sequence_units = 4;
  t.length = 8;
  training_check(&t, 1, meshes, t.kept ? 0 : sizeof meshes / sizeof *meshes);
}

static void check_model(int model, bool fast) {
  static const harness_options meshes[] = {
      {.dp = 2, .tp = 1, .microbatches = 1},
      {.dp = 1, .tp = 2, .microbatches = 1},
      {.dp = 1, .tp = 4, .microbatches = 2},
      {.dp = 2, .tp = 2, .microbatches = 1},
      {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4, .pipeline = TSR_PIPELINE_1F1B},
      {.dp = 2, .tp = 1, .microbatches = 2, .zero = 3},
      {.dp = 2, .tp = 2, .microbatches = 1, .recompute = {.kind = TSR_RECOMPUTE_MAPS}}};
  static const tsr_dtype precisions[] = {TSR_F32, TSR_BF16, TSR_F16};
  for (int i = 0; i < 3; i++) {
    training t = training_of(model, precisions[i]);
    t.fast = fast;
    bool no_meshes = fast || precisions[i] == TSR_F16;
    training_check(&t, 1, meshes, no_meshes || t.kept ? 0 : sizeof meshes / sizeof *meshes);
    training_check(&t, 2, NULL, 0);
  }
}

/* A graph that is gone, and a larger one at its address. */
static void check_random_keys(void) {
  tsr_node nodes[64] = {0};
  tsr_graph g = {.nodes = nodes, .nodes_count = 4};
  tsr_step_context step = {.seed = 1};
  cuda_random_keys *keys = NULL;
  nodes[0].stream = nodes[63].stream = "dropout";
  CHECK_INT(cuda_random_keys_set(&keys, &g, &step, NULL), cudaSuccess);
  g.nodes_count = 64;
  CHECK_INT(cuda_random_keys_set(&keys, &g, &step, NULL), cudaSuccess);
  CHECK(keys->staged[63] == tsr_random_key(1, "dropout", 0));
  cuda_random_keys_free(keys);
}

int main(void) {
  check_random_keys();
  check_fused(TSR_F32);
  check_fused(TSR_BF16);
  check_launches(TSR_F32);
  check_launches(TSR_BF16);
  check_logits_gradient(ENDS, TSR_BF16);
  check_logits_gradient(ENDS, TSR_F16);
  check_one_row(TSR_F32);
  check_one_row(TSR_BF16);
  for (int i = 0; i < MODELS; i++) check_model(i, false);
  for (int i = 0; i < MODELS; i++) check_flat(i, i % 2 ? TSR_BF16 : TSR_F32);
  for (int i = 0; i < MODELS; i++) check_half_sums(i, i % 2 ? TSR_BF16 : TSR_F16);
  half_bias_check(TSR_BF16, true);
  half_bias_check(TSR_F16, true);
  /* in products' ends, and where the library has none */
  setenv("EMULATED_CUDA", "ends", 1);
  test_device_open(false);
  half_bias_check(TSR_BF16, true);
  half_bias_check(TSR_F16, true);
  training bf16 = training_of(ENDS, TSR_BF16);
  training_check(&bf16, 1, &(harness_options){.dp = 2, .tp = 2, .microbatches = 1}, 1);
  unsetenv("EMULATED_CUDA");
  test_device_open(true);
  check_model(ENDS, true);
  setenv("EMULATED_CUDA", "ends", 1);
  check_model(ENDS, true);
  return check_done("cuda.run");
}
