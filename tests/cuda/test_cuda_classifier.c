// SPDX-License-Identifier: Apache-2.0
/* A classifier over tiles of rows on a GPU: losses, norms and weights of trainings have the bits of
 * the separate tasks, whose logits are all in memory, on every mesh and with every number of
 * microbatches, over types, units, sizes of tiles and pipelines; and they are near the CPU's. A GEMM
 * of the emulated library has other bits for another number of rows (emulated/cublaslt.c). */
#include "schedule/fuse.h"
#include "tests/cuda/training.h"

#define TOKENS "tokens $B,$T tokens; targets $B,$T tokens"
#define BLOCK                                                                                      \
  "x: embedding(tokens, wte); u: linear(x, up); a: gelu(u); d: linear(a, down); s: add(x, d)\n"    \
  "v: linear(s, in); b: gelu(v); e: linear(b, out); n: rmsnorm(e, g)\n"
#define PARAMS "g 16; up 12,16; down 16,12; in 12,16; out 16,12"
#define TIED                                                                                       \
  .params = "wte 24,16 0; " PARAMS,                                                                \
  .calls = BLOCK "logits: linear(n, wte); loss: cross_entropy(logits, targets, valid: 21)"
#define HEAD                                                                                       \
  .params = "wte 24,16 0; " PARAMS "; head 24,16 0",                                               \
  .calls = BLOCK "logits: linear(n, head); loss: cross_entropy(logits, targets, valid: 21)"
/* 21 columns do not begin at multiples of 16 bytes. */
#define ODD                                                                                        \
  .params = "wte 21,15; g 15; up 12,15; down 15,12; in 12,15; out 15,12; head 21,15",              \
  .calls = BLOCK "logits: linear(n, head); loss: cross_entropy(logits, targets, valid: 21)"

/* A program on a mesh; `separate`: the whole form does not apply there, but so many parts. */
typedef struct {
  harness_options mesh;
  bool separate;
  int parts;
} place;

enum { PLACES_MAX = 10 };
typedef struct {
  training t;
  int64_t tile;
  place places[PLACES_MAX]; /* until one without dp */
} example;

#define ONE(n)                                                                                     \
  {                                                                                                \
    { .dp = 1, .tp = 1, .microbatches = (n) }                                                      \
  }
#define DP(n, m)                                                                                   \
  {                                                                                                \
    { .dp = (n), .tp = 1, .microbatches = (m) }                                                    \
  }
#define TP(n, m)                                                                                   \
  { {.dp = 1, .tp = (n), .microbatches = (m)}, true }
/* Logits are computed again in the backward pass. */
#define TP_AGAIN(n, m)                                                                             \
  {                                                                                                \
    {.dp = 1,                                                                                      \
     .tp = (n),                                                                                    \
     .microbatches = (m),                                                                          \
     .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1, .logits = 1}},                        \
        true, 2                                                                                    \
  }
#define PP(kind, n)                                                                                \
  .dp = 1, .tp = 1, .pp = 2, .pipeline = TSR_PIPELINE_##kind, .chunks = (n), .microbatches = 4

static const example examples[] = {
    {{"parts of a run", HEAD, .batch_units = 1, .tp_units = 1, .samples = 2, .length = 13},
     8,
     {ONE(1)}},
    {{"parts of units", TIED, .batch_units = 4, .tp_units = 4, .length = 13},
     5,
     {ONE(1),
      ONE(2),
      ONE(4),
      DP(2, 1),
      DP(4, 1),
      TP(2, 1),
      TP(4, 2),
      TP_AGAIN(2, 1),
      {{.dp = 2, .tp = 2, .microbatches = 2}, true}}},
    {{"some units a tile", HEAD, .batch_units = 8, .tp_units = 2, .length = 6},
     18,
     {ONE(1), ONE(2), {{.dp = 8, .tp = 1, .microbatches = 1}, true}, DP(2, 1), TP(2, 1)}},
    {{"bf16", TIED, .batch_units = 4, .tp_units = 4, .length = 13, .precision = TSR_BF16},
     5,
     {ONE(1),
      ONE(2),
      DP(2, 1),
      TP(4, 1),
      TP_AGAIN(2, 2),
      {{.dp = 2, .tp = 1, .microbatches = 2, .zero = 1}}}},
    {{"fp16", HEAD, .batch_units = 4, .tp_units = 1, .length = 6, .precision = TSR_F16,
      .loss_scale = 64},
     4,
     {ONE(1), ONE(4), DP(2, 2)}},
    {{"odd", ODD, .batch_units = 2, .tp_units = 1, .samples = 1, .length = 11},
     3,
     {ONE(1), ONE(2), DP(2, 1)}},
    {{"odd in bf16", ODD, .batch_units = 2, .tp_units = 1, .length = 11, .precision = TSR_BF16},
     3,
     {ONE(1), ONE(2), DP(2, 1)}},
    {{"flat tree", HEAD, .batch_units = 4, .tp_units = 1, .length = 13, .tree = TSR_TREE_FLAT},
     8,
     {ONE(4), DP(2, 2), DP(4, 1)}},
    {{"ZeRO", HEAD, .batch_units = 4, .tp_units = 1, .length = 6, .precision = TSR_BF16},
     4,
     {ONE(2),
      {{.dp = 2, .tp = 1, .microbatches = 2, .zero = 2}},
      {{.dp = 2, .tp = 1, .microbatches = 2, .zero = 3}, true}}},
    {{"units of positions", TIED, .batch_units = 2, .tp_units = 1, .sequence_units = 4,
      .length = 16},
     4,
     {ONE(1),
      {{.dp = 1, .cp = 2, .tp = 1, .microbatches = 1}},
      {{.dp = 2, .cp = 2, .tp = 1, .microbatches = 1}},
      {{.dp = 1, .cp = 2, .tp = 1, .microbatches = 2}}}},
    {{"zigzag", TIED, .batch_units = 2, .tp_units = 1, .sequence_units = 4, .length = 16,
      .zigzag = true},
     4,
     {ONE(1), {{.dp = 1, .cp = 2, .tp = 1, .microbatches = 2}}}},
    {{"pipelines", TIED, .batch_units = 4, .tp_units = 1, .length = 13},
     5,
     {ONE(4), {{PP(1F1B, 1)}}, {{PP(GPIPE, 1)}}, {{PP(INTERLEAVED, 2)}}, {{PP(ZB_H1, 1)}, true}}},
    {{"recomputed", HEAD, .batch_units = 4, .tp_units = 1, .length = 6},
     4,
     {ONE(2),
      {{.dp = 1,
        .tp = 1,
        .microbatches = 2,
        .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1}}}}},
    {{"frozen", HEAD, .batch_units = 4, .tp_units = 2, .length = 13, .frozen = "head"},
     5,
     {ONE(1), ONE(2), DP(2, 1), TP(2, 1), TP_AGAIN(2, 1)}},
    {{"evaluation", HEAD, .batch_units = 4, .tp_units = 2, .length = 13, .forward_only = true},
     5,
     {ONE(1), DP(2, 1), {{.dp = 1, .tp = 2, .microbatches = 1}, true, 1}}},
    {{"evaluation in bf16", TIED, .batch_units = 8, .tp_units = 1, .length = 6,
      .forward_only = true, .precision = TSR_BF16},
     12,
     {ONE(1), DP(2, 1)}}};
enum { EXAMPLES = sizeof examples / sizeof *examples };

static int64_t tile;
static int64_t rows_of_tile(int64_t columns) { return (void)columns, tile; }

/* How many tasks have tiles of logits. */
static int count_tiles(tsr_arena *arena, const training *t, harness_options mesh) {
  harness h = training_open(arena, t, mesh);
  int tasks = 0;
  for (int s = 0; s < h.programs.pipeline->stages; s++)
    for (int i = 0; i < h.programs.of_stage[s]->tasks_count; i++)
      tasks += h.programs.of_stage[s]->tasks[i].fused == TSR_FUSED_LINEAR_CROSS_ENTROPY;
  harness_close(&h);
  return tasks;
}

static void check(const example *e) {
  tsr_arena *arena = tsr_arena_new();
  unsigned all = harness_target.fuses, separate = all & ~(1u << TSR_FUSED_LINEAR_CROSS_ENTROPY);
  training t = e->t;
  harness_trace want = {0};
  tile = e->tile;
  t.inputs = TOKENS;
  t.steps = 2;
  t.ignore_some = true;
  for (int i = 0; i < PLACES_MAX && e->places[i].mesh.dp; i++) {
    const place *at = &e->places[i];
    harness_target.fuses = separate;
    if (i == 0) want = training_run(arena, &t, at->mesh);
    if (i == 0) training_check_near(arena, &t, at->mesh, &want);
    else training_check_same(arena, &t, at->mesh, &want);
    harness_target.fuses = all;
    int tiles = count_tiles(arena, &t, at->mesh), expected = at->separate ? at->parts : 1;
    CHECK_AT(tiles == expected, "%s, place %d: %d tasks with tiles", t.name, i, tiles);
    training_check_same(arena, &t, at->mesh, &want);
  }
  tsr_arena_free(arena);
}

/* The size of a tile is a part of the recipe: another one has other bits, near the first. */
static void check_sizes(void) {
  tsr_arena *arena = tsr_arena_new();
  training t = examples[0].t;
  harness_options one = {.dp = 1, .tp = 1, .microbatches = 1};
  t.inputs = TOKENS;
  t.steps = 1;
  tile = 26;
  harness_trace whole = training_run(arena, &t, one);
  tile = 8;
  harness_trace tiles = training_run(arena, &t, one);
  int differ = 0;
  for (int64_t i = 0; i < whole.count; i++) differ += whole.data[i] != tiles.data[i];
#ifdef TSR_TESTS_CUDA_RUNTIME_H
  CHECK(differ > 0);
#endif
  CHECK_INT(tiles.count, whole.count);
  tsr_arena_free(arena);
}

int main(void) {
  harness_target.tile_rows = rows_of_tile;
  for (int i = 0; i < EXAMPLES; i++) check(&examples[i]);
  check_sizes();
  return check_done("cuda.classifier");
}
