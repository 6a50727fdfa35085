// SPDX-License-Identifier: Apache-2.0
/* A classifier over tiles of rows has the bits of its separate tasks: losses, norms and weights of
 * trainings whose programs differ in that form alone, over types, units, meshes, pipelines, threads
 * and sizes of tiles. */
#include "harness.h"
#include "tests/check.h"
#include <math.h>
#include <string.h>

enum { STEPS = 2 };

/* Twelve nodes, of which the classifier's are the last quarter; its weight may be the embedding, too.
 */
#define BLOCKS                                                                                     \
  "x: embedding(tokens, wte); u: linear(x, up); a: gelu(u); d: linear(a, down); s: add(x, d)\n"    \
  "v: linear(s, in); b: gelu(v); e: linear(b, out); n: rmsnorm(e, g)\n"
static const char *const models[] = {
    BLOCKS "logits: linear(n, wte); loss: cross_entropy(logits, targets, valid: 21)",
    BLOCKS "logits: linear(n, head); loss: cross_entropy(logits, targets, valid: 21)"};
static const char *const params[] = {
    "wte 24,16 0; g 16; up 12,16; down 16,12; in 12,16; out 16,12",
    "wte 24,16 0; g 16; up 12,16; down 16,12; in 12,16; out 16,12; head 24,16 0"};

typedef struct {
  const char *name;
  int64_t batch, length, tile;
  harness_options o;
  bool is_separate;  /* the whole form does not apply */
  bool forward_only; /* an evaluation */
  bool is_frozen;    /* the classifier's weight */
  int parts;         /* that apply where the whole form does not */
} example;

#define AGAIN                                                                                      \
  { .kind = TSR_RECOMPUTE_BLOCKS, .every = 1, .logits = 1 }
#define PP(kind, n) .pp = 2, .pipeline = TSR_PIPELINE_##kind, .chunks = n
static const example examples[] = {
    {"one tile", 2, 6, 384, {.batch_units = 1, .tp_units = 1}, true},
    {"parts of a run", 2, 448, 384, {.batch_units = 1, .tp_units = 1, .threads = 2}},
    {"parts of units", 2, 448, 384, {.batch_units = 2, .tp_units = 4}},
    {"some units a tile", 8, 6, 18, {.batch_units = 8, .tp_units = 4, .threads = 2}},
    {"microbatches", 8, 6, 6, {.batch_units = 8, .tp_units = 1, .microbatches = 4}},
    {"microbatches of tiles", 8, 6, 12, {.batch_units = 8, .tp_units = 4, .microbatches = 2}},
    {"flat tree", 8, 60, 384, {.batch_units = 1, .tp_units = 1, .tree = TSR_TREE_FLAT}},
    {"dp", 8, 6, 6, {.dp = 2, .batch_units = 8, .tp_units = 1, .threads = 2}},
    {"zero 1", 8, 6, 6, {.dp = 4, .batch_units = 8, .tp_units = 4, .zero = 1}},
    {"zero 2, owners",
     8,
     6,
     12,
     {.dp = 2, .batch_units = 4, .tp_units = 1, .zero = 2, .zero_owners = true}},
    {"zero 3", 8, 6, 12, {.dp = 2, .batch_units = 4, .tp_units = 1, .zero = 3}, true},
    {"overlap", 8, 6, 12, {.dp = 2, .batch_units = 8, .tp_units = 1, .overlap = true}},
    {"tp", 8, 6, 12, {.tp = 2, .batch_units = 4, .tp_units = 4}, true},
    {"tp, logits again",
     8,
     6,
     12,
     {.tp = 2, .batch_units = 4, .tp_units = 4, .recompute = AGAIN},
     true,
     .parts = 2},
    {"tp in bf16, logits again",
     8,
     6,
     12,
     {.tp = 2,
      .dp = 2,
      .batch_units = 4,
      .tp_units = 4,
      .precision = TSR_BF16,
      .threads = 2,
      .recompute = AGAIN},
     true,
     .parts = 2},
    {"zero 3, logits again",
     8,
     6,
     12,
     {.dp = 2, .batch_units = 4, .tp_units = 1, .zero = 3, .recompute = AGAIN},
     true,
     .parts = 2},
    {"zero bubble, logits again",
     8,
     6,
     6,
     {PP(ZB_H1, 1), .batch_units = 8, .tp_units = 1, .microbatches = 4, .recompute = AGAIN},
     true,
     .parts = 1},
    {"frozen over tp, logits again",
     8,
     6,
     20,
     {.tp = 2, .batch_units = 8, .tp_units = 4, .threads = 2, .recompute = AGAIN},
     true,
     .is_frozen = true,
     .parts = 2},
    {"evaluation over tp",
     8,
     6,
     20,
     {.tp = 4, .batch_units = 1, .tp_units = 4, .threads = 2},
     true,
     true,
     .parts = 1},
    {"units of positions", 4, 16, 4, {.batch_units = 2, .sequence_units = 4, .tp_units = 1}},
    {"cp", 4, 16, 4, {.cp = 2, .batch_units = 2, .sequence_units = 4, .tp_units = 1}},
    {"cp in zigzag",
     4,
     16,
     4,
     {.cp = 2, .batch_units = 2, .sequence_units = 4, .tp_units = 1, .zigzag = true, .threads = 2}},
    {"1F1B", 8, 6, 6, {PP(1F1B, 1), .batch_units = 8, .tp_units = 1, .microbatches = 4}},
    {"GPipe", 8, 6, 6, {PP(GPIPE, 1), .batch_units = 8, .tp_units = 1, .microbatches = 4}},
    {"interleaved",
     8,
     6,
     6,
     {PP(INTERLEAVED, 2), .batch_units = 8, .tp_units = 4, .microbatches = 4, .threads = 2}},
    {"zero bubble",
     8,
     6,
     6,
     {PP(ZB_H1, 1), .batch_units = 8, .tp_units = 1, .microbatches = 4},
     true},
    {"bf16", 2, 448, 384, {.batch_units = 2, .tp_units = 4, .precision = TSR_BF16, .threads = 2}},
    {"fp16", 8, 6, 18, {.batch_units = 8, .tp_units = 1, .precision = TSR_F16, .loss_scale = 64}},
    {"bf16 over dp",
     8,
     6,
     6,
     {.dp = 2, .batch_units = 8, .tp_units = 4, .precision = TSR_BF16, .microbatches = 2}},
    {"frozen", 8, 6, 20, {.batch_units = 8, .tp_units = 4, .threads = 2}, .is_frozen = true},
    {"evaluation", 8, 6, 20, {.batch_units = 1, .tp_units = 4}, false, true},
    {"evaluation in bf16 over dp",
     8,
     6,
     10,
     {.dp = 2, .batch_units = 4, .tp_units = 1, .precision = TSR_BF16, .threads = 2},
     false,
     true},
    {"recomputed",
     8,
     6,
     12,
     {.batch_units = 8, .tp_units = 1, .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1}}}};
enum { EXAMPLES = sizeof examples / sizeof *examples };

static int64_t tile;
static int64_t rows_of_tile(int64_t columns) { return (void)columns, tile; }

static int count_fused(const harness *h) {
  int count = 0;
  for (int s = 0; s < h->programs.pipeline->stages; s++)
    for (int i = 0; i < h->programs.of_stage[s]->tasks_count; i++)
      count += h->programs.of_stage[s]->tasks[i].fused == TSR_FUSED_LINEAR_CROSS_ENTROPY;
  return count;
}

static int64_t at_least_one(int64_t n) { return n > 1 ? n : 1; }

static harness_trace train(tsr_arena *arena, const example *e, int model, int *ret_fused) {
  static const tsr_optimizer adamw = HARNESS_ADAMW(0.5);
  harness_options o = e->o;
  o.dp = (int)at_least_one(o.dp);
  o.tp = (int)at_least_one(o.tp);
  o.threads = (int)at_least_one(o.threads);
  o.microbatches = at_least_one(o.microbatches);
  o.optimizer = &adamw;
  o.vocabulary = 21;
  o.ignore_some = true;
  tsr_graph *g = tsr_graph_new(
      arena, e->name, (tsr_units){o.batch_units, at_least_one(o.sequence_units), o.tp_units});
  g->units.tree = o.tree;
  int64_t batch = e->batch / o.microbatches;
  const char *inputs = "tokens $B,$T tokens; targets $B,$T tokens";
  harness_inputs(g, harness_sized(arena, inputs, batch, e->length));
  harness_params(g, params[model]);
  g->params[model ? g->params_count - 1 : 0].is_frozen = e->is_frozen;
  harness_calls(g, models[model]);
  int value = harness_find(g, "loss");
  if (!e->forward_only) g->loss = value;
  tsr_graph_output(g, "loss", value);
  harness h = harness_open(arena, g, &o);
  harness_trace t = {0};
  int64_t n;
  *ret_fused = count_fused(&h);
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    float *loss = harness_read(arena, &h, "loss", &n);
    CHECK_AT(n == 1 && isfinite(*loss) && *loss > 0, "%s", e->name);
    harness_keep(arena, &t, loss, n);
    if (!e->forward_only) harness_keep(arena, &t, harness_read(arena, &h, "clip", &n), 2);
  }
  harness_keep_weights(arena, &h, &t);
  harness_close(&h);
  return t;
}

static void check(const example *e, int model) {
  tsr_arena *arena = tsr_arena_new();
  int fused[2];
  tile = e->tile;
  harness_target = (tsr_target){.fuses = 1u << TSR_FUSED_NONE, .tile_rows = rows_of_tile};
  harness_trace want = train(arena, e, model, &fused[0]);
  harness_target.fuses = 1u << TSR_FUSED_LINEAR_CROSS_ENTROPY;
  harness_trace got = train(arena, e, model, &fused[1]);
  CHECK_AT(
      fused[0] == 0 && fused[1] == (e->is_separate ? e->parts : 1), "%s: %d fused", e->name,
      fused[1]);
  CHECK_AT(
      got.count == want.count && want.count >= STEPS &&
          !memcmp(got.data, want.data, sizeof *got.data * (size_t)got.count),
      "%s, model %d: losses %.9g and %.9g, norms %.9g and %.9g", e->name, model,
      (double)want.data[0], (double)got.data[0], (double)want.data[1], (double)got.data[1]);
  tsr_arena_free(arena);
}

int main(void) {
  for (int i = 0; i < EXAMPLES; i++)
    for (int model = 0; model < 2; model++) check(&examples[i], model);
  return check_done("run.classifier");
}
