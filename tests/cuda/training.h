// SPDX-License-Identifier: Apache-2.0
/* What the tests of whole trainings on a device are made of: each is near the CPU's, and has the
 * same bits on every mesh. */
#ifndef TSR_TESTS_CUDA_TRAINING_H
#define TSR_TESTS_CUDA_TRAINING_H
#include "tests/cuda/emulated/device.h"
#include "tests/replicas.h"

/* A graph as harness.h writes it, with tokens below 21, and its recipe; a unit of the batch has so
 * many samples (0: one). */
typedef struct {
  const char *name, *inputs, *params, *calls;
  int steps;
  int64_t length, batch_units, tp_units, sequence_units, samples;
  bool zigzag;
  tsr_tree_shape tree; /* flat: runs have so many microbatches that each rank's is a unit */
  tsr_dtype precision;
  bool tp_in_half;    /* tsr_units */
  bool fast;          /* products of f32 may be rounded to TF32 */
  const char *kept;   /* NULL, or a value that is an output of the graph, as the loss is */
  const char *frozen; /* NULL, or a parameter that is not trained */
  bool forward_only;  /* an evaluation */
  bool ignore_some;   /* of the targets */
  float loss_scale;   /* of fp16; 0: 1 */
} training;

static harness training_open(tsr_arena *arena, const training *t, harness_options o) {
  static const tsr_optimizer adamw = HARNESS_ADAMW(1);
  o.threads = 1;
  o.batch_units = t->batch_units;
  o.tp_units = t->tp_units;
  o.sequence_units = t->sequence_units;
  o.zigzag = t->zigzag;
  o.tree = t->tree;
  o.precision = t->precision;
  o.optimizer = &adamw;
  o.vocabulary = 21;
  o.ignore_some = t->ignore_some;
  o.loss_scale = t->loss_scale;
  tsr_units units = {
      .batch = t->batch_units, .sequence = t->sequence_units, .tp = t->tp_units, .tree = t->tree};
  units.tp_in_half = t->tp_in_half;
  tsr_graph *g = tsr_graph_new(arena, t->name, units);
  int64_t batch = t->batch_units / o.microbatches * (t->samples ? t->samples : 1);
  harness_inputs(g, harness_sized(arena, t->inputs, batch, t->length));
  harness_params(g, harness_sized(arena, t->params, batch, t->length));
  harness_calls(g, t->calls);
  for (int i = 0; i < g->params_count; i++)
    g->params[i].is_frozen = t->frozen && !strcmp(g->params[i].name, t->frozen);
  int loss = harness_find(g, "loss");
  if (!t->forward_only) g->loss = loss;
  tsr_graph_output(g, "loss", loss);
  if (t->kept) tsr_graph_output(g, t->kept, harness_find(g, t->kept));
  return harness_open(arena, g, &o);
}

/* Losses and norms of all steps, then the weights. */
static harness_trace training_run(tsr_arena *arena, const training *t, harness_options mesh) {
  harness h = training_open(arena, t, mesh);
  if (harness_device) test_device_check_tasks(&h.programs);
  harness_trace trace = {0};
  int64_t n;
  for (int step = 0; step < t->steps; step++) {
    harness_step(&h, step);
    harness_keep(arena, &trace, harness_read(arena, &h, "loss", &n), 1);
    if (!t->forward_only) harness_keep(arena, &trace, harness_read(arena, &h, "clip", &n), 2);
  }
  harness_keep_weights(arena, &h, &trace);
  const char *differs = differing_replicas(arena, h.executable);
  CHECK_AT(!differs, "%s: replicas of '%s' differ", t->name, differs);
  harness_close(&h);
  return trace;
}

/* To rounding, as a part of the largest number. */
static void training_check_near(
    tsr_arena *arena, const training *t, harness_options mesh, const harness_trace *got) {
  const tsr_device *device = harness_device;
  const tsr_target target = harness_target;
  harness_device = NULL;
  harness_target = (tsr_target){0};
  harness_trace want = training_run(arena, t, mesh);
  harness_device = device;
  harness_target = target;
  double worst = 0, largest = 0, bound = t->precision != TSR_F32 ? 1e-2 : t->fast ? 1e-3 : 1e-5;
  int64_t at = 0;
  CHECK_INT(got->count, want.count);
  for (int64_t i = 0; i < want.count; i++) {
    double apart = fabs((double)got->data[i] - want.data[i]), size = fabs((double)want.data[i]);
    if (!(apart <= worst)) worst = isnan(apart) ? INFINITY : apart, at = i;
    if (size > largest) largest = size;
  }
  CHECK_AT(
      worst < INFINITY && worst <= bound * largest,
      "%s, %s, %lld units, %lld microbatches: number %lld is %.9g, not %.9g", t->name,
      tsr_dtype_name(t->precision), (long long)t->sequence_units, (long long)mesh.microbatches,
      (long long)at, (double)got->data[at], (double)want.data[at]);
}

static void training_check_same(
    tsr_arena *arena, const training *t, harness_options mesh, const harness_trace *want) {
  harness_trace got = training_run(arena, t, mesh);
  int64_t at = 0;
  CHECK_INT(got.count, want->count);
  while (at < want->count && !memcmp(&got.data[at], &want->data[at], sizeof *got.data)) at++;
  CHECK_AT(
      at == want->count,
      "%s, %s, %lld units, pp %d dp %d cp %d%s tp %d%s, zero %d: number %lld is %.9g, not %.9g",
      t->name, tsr_dtype_name(t->precision), (long long)t->sequence_units, mesh.pp, mesh.dp,
      mesh.cp, t->zigzag ? " zigzag" : "", mesh.tp,
      mesh.sequence_parallel ? ", sequence parallel" : "", mesh.zero, (long long)at,
      (double)got.data[at], (double)want->data[at]);
}

/* One rank beside the CPU, the meshes beside that rank. */
static inline void training_check(
    const training *t, int microbatches, const harness_options *meshes, size_t meshes_count) {
  tsr_arena *arena = tsr_arena_new();
  harness_options alone = {.dp = 1, .tp = 1, .microbatches = microbatches};
  harness_trace one = training_run(arena, t, alone);
  training_check_near(arena, t, alone, &one);
  for (size_t i = 0; i < meshes_count; i++) training_check_same(arena, t, meshes[i], &one);
  tsr_arena_free(arena);
}

#endif
