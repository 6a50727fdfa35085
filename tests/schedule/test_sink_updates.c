// SPDX-License-Identifier: Apache-2.0
/* Updates behind their gradients: where they stand, what it saves, and that it changes no bit. The
 * other way is an optimizer whose updates wait for the norm and then do the same. */
#include "sample.h"
#include "tests/check.h"
#include <math.h>
#include <string.h>

enum { STEPS = 3 };

static tsr_optimizer optimizer_of(tsr_optimizer_kind kind, bool waits) {
  return (tsr_optimizer){
      .kind = kind,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .momentum = 0.9,
      .may_skip = waits};
}

static bool is_update(const tsr_task *t) { return t->op == TSR_OP_ADAMW || t->op == TSR_OP_SGD; }

static bool is_body(const tsr_part *part) {
  return part->section != TSR_PROLOGUE && part->section != TSR_UPDATE;
}

/* ---- where they stand ---- */

typedef struct {
  int updates, stats; /* in the body */
  int late_updates, late_stats;
} counts;

static counts count(const tsr_program *p) {
  counts c = {0};
  for (int k = 0; k < p->parts_count; k++)
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++) {
      const tsr_task *t = &p->tasks[i];
      bool body = is_body(&p->parts[k]), settles = is_update(t) || t->op == TSR_OP_NORM_STATS;
      if (!settles) continue;
      CHECK_INT(t->section, p->parts[k].section);
      CHECK_INT(t->last_only, body && p->lowering.microbatches > 1);
      *(is_update(t) ? (body ? &c.updates : &c.late_updates) : (body ? &c.stats : &c.late_stats)) +=
          1;
    }
  return c;
}

/* The task before an update that last writes what it reads or reads what it changes. */
static int last_need(const tsr_program *p, int update) {
  const tsr_task *u = &p->tasks[update];
  for (int i = update - 1; i >= 0; i--) {
    const tsr_task *t = &p->tasks[i];
    for (int k = 0; k < t->outputs_count; k++)
      if (t->outputs[k].value == u->inputs[1].value) return i;
    for (int k = 0; k < t->inputs_count && t->op != TSR_OP_NORM_STATS; k++)
      if (t->inputs[k].value == u->inputs[0].value) return i;
  }
  return -1;
}

static harness compile(tsr_arena *arena, harness_options o, const tsr_optimizer *optimizer) {
  o = sample_options(o);
  o.optimizer = optimizer;
  return sample_compile(arena, &o);
}

static void test_alone(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_optimizer early = optimizer_of(TSR_RULE_ADAMW, false),
                late = optimizer_of(TSR_RULE_ADAMW, true);
  harness_options o = {.dp = 1, .tp = 1, .microbatches = 1};
  harness h = compile(arena, o, &early), other = compile(arena, o, &late);
  const tsr_program *p = h.programs.of_stage[0], *q = other.programs.of_stage[0];
  counts c = count(p), d = count(q);
  int params = h.graph->params_count;
  CHECK(c.updates == params && c.stats == params && !c.late_updates && !c.late_stats);
  CHECK(d.late_updates == params && d.stats == params && !d.updates && !d.late_stats);
  for (int i = 0; i < p->tasks_count; i++) /* nothing but their like between it and its gradient */
    for (int k = last_need(p, i) + 1; is_update(&p->tasks[i]) && k < i; k++)
      CHECK(is_update(&p->tasks[k]) || p->tasks[k].op == TSR_OP_NORM_STATS);
  tsr_arena_free(arena);
}

/* Weights of 16 KiB each, and little else. */
static int64_t work_bytes(tsr_arena *arena, bool waits) {
  tsr_graph *g = tsr_graph_new(arena, "wide", (tsr_units){1, 1, 1});
  tsr_optimizer optimizer = optimizer_of(TSR_RULE_ADAMW, waits);
  harness_options o = sample_options((harness_options){.dp = 1, .tp = 1, .microbatches = 1});
  tsr_diags *diags = tsr_diags_new(arena);
  harness h;
  harness_inputs(g, "tokens 2,4 tokens; targets 2,4 tokens");
  harness_params(g, "wte 64,64; w1 64,64; w2 64,64; w3 64,64; wo 64,64");
  harness_calls(
      g, "x0: embedding(tokens, wte); x1: linear(x0, w1); x2: linear(x1, w2); x3: linear(x2, w3); "
         "logits: linear(x3, wo); loss: cross_entropy(logits, targets)");
  g->loss = harness_find(g, "loss");
  o.batch_units = o.tp_units = o.sequence_units = 1;
  o.vocabulary = 64;
  o.optimizer = &optimizer;
  CHECK(harness_compile(g, &o, &h, diags));
  return h.programs.of_stage[0]->bytes[TSR_SEGMENT_WORK];
}

/* All gradients wait together, or each is gone with its update. */
static void test_memory(void) {
  enum { GRADIENT = 64 * 64 * 4 };
  tsr_arena *arena = tsr_arena_new();
  int64_t early = work_bytes(arena, false), late = work_bytes(arena, true);
  CHECK(late > 5 * GRADIENT && early < 3 * GRADIENT);
  tsr_arena_free(arena);
}

/* Sums over microbatches are complete with the last one, but for those that several uses or units
 * owe to; what dp owes is completed in the update. */
static void test_others(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_optimizer early = optimizer_of(TSR_RULE_ADAMW, false);
  harness h = compile(arena, (harness_options){.dp = 1, .tp = 2, .microbatches = 4}, &early);
  counts c = count(h.programs.of_stage[0]);
  CHECK(c.updates > c.late_updates && c.late_updates > 0 && c.stats == c.updates);
  CHECK(c.updates + c.late_updates == h.graph->params_count);
  h = compile(arena, (harness_options){.dp = 2, .tp = 1, .microbatches = 1}, &early);
  c = count(h.programs.of_stage[0]);
  CHECK(!c.updates && !c.stats && c.late_updates == h.graph->params_count);
  tsr_optimizer clips = early;
  clips.clip_max_norm = 0.5;
  h = compile(arena, (harness_options){.dp = 1, .tp = 1, .microbatches = 2}, &clips);
  c = count(h.programs.of_stage[0]);
  CHECK(!c.updates && c.late_updates == h.graph->params_count && c.stats > c.late_stats);
  tsr_arena_free(arena);
}

/* ---- the bits ---- */

static harness_trace train(tsr_arena *arena, harness_options o, const tsr_optimizer *optimizer) {
  o = sample_options(o);
  o.optimizer = optimizer;
  o.threads = 2;
  harness h = harness_open(arena, sample_graph(arena, &o), &o);
  harness_trace trace = {0};
  for (int step = 0; step < STEPS; step++) {
    int64_t n;
    harness_step(&h, step);
    harness_keep(arena, &trace, harness_read(arena, &h, "loss", &n), 1);
    float *clip = harness_read(arena, &h, "clip", &n);
    CHECK(n == 3 && isfinite(clip[0]) && clip[0] > 0 && clip[1] == 1 && clip[2] == 1);
    harness_keep(arena, &trace, clip, n);
  }
  harness_keep_weights(arena, &h, &trace);
  harness_close(&h);
  return trace;
}

static void check_bits(harness_options o, tsr_optimizer_kind kind) {
  tsr_arena *arena = tsr_arena_new();
  tsr_optimizer early = optimizer_of(kind, false), late = optimizer_of(kind, true);
  harness_trace a = train(arena, o, &early), b = train(arena, o, &late);
  CHECK(a.count > 1000 && a.count == b.count);
  CHECK_AT(!memcmp(a.data, b.data, sizeof *a.data * (size_t)a.count), "%s", sample_text(arena, &o));
  tsr_arena_free(arena);
}

static void test_bits(void) {
  static const tsr_recomputing all = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1};
  static const harness_options meshes[] = {
      {.dp = 1, .tp = 1, .microbatches = 1},
      {.dp = 1, .tp = 1, .microbatches = 4},
      {.dp = 2, .tp = 2, .microbatches = 2},
      {.dp = 2, .tp = 1, .microbatches = 2, .overlap = true},
      {.dp = 2, .tp = 1, .microbatches = 2, .zero = 1},
      {.dp = 2, .tp = 1, .microbatches = 2, .zero = 2, .overlap = true},
      {.dp = 2, .tp = 1, .microbatches = 4, .zero = 3},
      {.dp = 1,
       .tp = 2,
       .microbatches = 1,
       .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1}},
      {.dp = 1, .tp = 1, .cp = 2, .microbatches = 2, .sequence_parallel = true}};
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    check_bits(meshes[i], TSR_RULE_ADAMW);
    check_bits(meshes[i], TSR_RULE_SGD);
  }
  for (int i = 0; i < HARNESS_ORDERS; i++) {
    harness_options o = {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4};
    o.pipeline = harness_orders[i].kind;
    o.chunks = harness_orders[i].chunks;
    if (i % 2) o.recompute = all;
    check_bits(o, TSR_RULE_ADAMW);
  }
}

int main(void) {
  test_alone();
  test_memory();
  test_others();
  test_bits();
  return check_done("schedule.sink_updates");
}
