// SPDX-License-Identifier: Apache-2.0
#include "direct_run.h"
#include "graph/documents.h"
#include "kernels/kernels.h"
#include "runtime/process.h"
#include "train/step_scalars.h"

enum { STEPS = 3, RATE_PER_MILLE = 20 };

/* ---- numbers ---- */

static uint64_t mix(uint64_t a, uint64_t b) { /* splitmix64 */
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t hash_of(const char *text) {
  uint64_t h = 1;
  while (*text) h = mix(h, (uint64_t)(unsigned char)*text++);
  return h;
}

static double unit_of(uint64_t x) { return (double)(x >> 11) / 4503599627370496.0 - 1; }

/* ---- samples ---- */

typedef struct {
  const tsr_graph *g;
  tsr_synthetic limits; /* tokens and classes that the model has, and whether targets are ignored */
  uint64_t seed;
} samples;

static const tsr_value *find_input(const tsr_graph *g, const char *name) {
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_INPUT && !strcmp(g->values[v].name, name))
      return &g->values[v];
  abort();
}

static bool is_target(const char *name) {
  return !strcmp(name, "targets") || !strcmp(name, "labels");
}

static int32_t token(const samples *s, const char *name, int64_t sample, int64_t i) {
  uint64_t x = mix(mix(s->seed, hash_of(name)), (uint64_t)(sample * 4096 + i));
  if (s->limits.ignores && is_target(name) && x % 7 == 0) return -100;
  int64_t below = strcmp(name, "labels") ? s->limits.tokens : s->limits.classes;
  return (int32_t)((x >> 8) % (uint64_t)(below > 0 ? below : 1));
}

static void fill(void *context, const char *name, int64_t sample, void *row) {
  const samples *s = context;
  const tsr_value *v = find_input(s->g, name);
  int64_t count = tsr_value_elements(v) / v->shape[0], position = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t x = mix(mix(s->seed, hash_of(name)), (uint64_t)(sample * 4096 + i));
    bool begins = i == 0 || x % 5 == 0;
    position = begins ? 0 : position + 1;
    if (tsr_value_is_document_positions(v)) ((int32_t *)row)[i] = (int32_t)position;
    else if (v->dtype == TSR_I32) ((int32_t *)row)[i] = token(s, name, sample, i);
    else ((float *)row)[i] = (float)unit_of(x);
  }
}

static int64_t count_targets(const samples *s, int64_t rows) {
  int64_t count = 0;
  for (int i = 0; i < s->g->values_count; i++) {
    const tsr_value *v = &s->g->values[i];
    if (v->kind != TSR_VALUE_INPUT || v->dtype != TSR_I32 || !is_target(v->name)) continue;
    for (int64_t row = 0; row < rows; row++)
      for (int64_t k = 0; k < tsr_value_elements(v) / v->shape[0]; k++)
        count += token(s, v->name, row, k) >= 0;
    return count;
  }
  return rows;
}

/* ---- weights ---- */

static void set_weights(tsr_arena *arena, tsr_executable *e, uint64_t seed) {
  const tsr_graph *g = tsr_executable_graph(e);
  for (int p = 0; p < g->params_count; p++) {
    const tsr_param *param = &g->params[p];
    int value = tsr_executable_param(e, p);
    const tsr_value *v = &g->values[value];
    if (v->dtype == TSR_NF4 || tsr_param_is_load(g, param)) continue;
    int64_t count = tsr_param_real_elements(param);
    float *real = tsr_arena_array(arena, float, count);
    float *stored = tsr_arena_array(arena, float, tsr_value_elements(v));
    for (int64_t i = 0; i < count; i++)
      real[i] = (float)(0.6 * unit_of(mix(mix(seed, hash_of(param->name)), (uint64_t)i)));
    tsr_padding_add(&param->padding, v->ndim, v->shape, real, stored);
    tsr_executable_write(e, value, stored);
  }
}

/* ---- results ---- */

static void add_value(tsr_arena *arena, const tsr_executable *e, int value, tsr_text *bytes) {
  int64_t count = tsr_value_elements(&tsr_executable_graph(e)->values[value]);
  float *x = tsr_arena_array(arena, float, count);
  tsr_executable_read(e, value, x);
  tsr_text_add_bytes(bytes, x, sizeof *x * (size_t)count);
}

/* Every rank's bytes. */
static void add_parts(tsr_arena *arena, const tsr_executable *e, int value, tsr_text *bytes) {
  const tsr_value *v = &tsr_executable_graph(e)->values[value];
  tsr_part_of_value *parts =
      tsr_arena_array(arena, tsr_part_of_value, tsr_executable_parts_most(e));
  int count = tsr_executable_parts(e, value, false, parts);
  size_t each = (size_t)tsr_dtype_bytes(v->dtype);
  for (int i = 0; i < count; i++) {
    const tsr_part_of_value *part = &parts[i];
    int64_t elements = 1;
    for (int d = 0; d < part->slice.ndim; d++) elements *= part->slice.shape[d];
    for (int64_t at = 0, run = 0; at < elements; at += part->run, run++)
      tsr_text_add_bytes(
          bytes, (const char *)part->address + each * (size_t)(run * part->stride),
          each * (size_t)part->run);
  }
}

static void add_results(tsr_arena *arena, const tsr_executable *e, tsr_text *bytes) {
  const tsr_graph *g = tsr_executable_graph(e);
  int clip = tsr_graph_find_output(g, "clip");
  add_value(arena, e, g->loss, bytes);
  if (clip >= 0) add_value(arena, e, clip, bytes);
  for (int v = 0; v < g->values_count; v++) {
    tsr_value_kind kind = g->values[v].kind;
    bool kept = kind == TSR_VALUE_PARAM || kind == TSR_VALUE_STATE;
    if (kept && g->values[v].dtype != TSR_NF4) add_parts(arena, e, v, bytes);
  }
}

void direct_run(tsr_arena *arena, const tsr_prove_run *run, int number, tsr_text *ret_bytes) {
  const tsr_config *c = run->config;
  const tsr_programs *programs = &run->compiled.programs;
  tsr_diags *diags = tsr_diags_new(arena);
  samples s = {.g = run->compiled.graph, .seed = 77 + (uint64_t)number};
  tsr_process_options o = {
      .parallel = run->parallel, .kernels = tsr_kernels_get(NULL), .threads = 1};
  tsr_process *process;
  tsr_executable *e;
  o.seed = 990 + (uint64_t)number;
  if (!tsr_synthetic_make(c, run->compiled.graph, &s.limits, diags) ||
      !tsr_process_open(arena, &o, programs, 1, &process, &e, diags))
    abort();
  if (number) set_weights(arena, e, o.seed);
  int64_t rows = run->compiled.batch * programs->pipeline->microbatches;
  for (int step = 0; step < STEPS; step++) {
    float scalars[TSR_SCALARS];
    s.seed += 1000;
    tsr_step_facts facts = {step, RATE_PER_MILLE / 1000.0, count_targets(&s, rows), 1};
    tsr_step_scalars_make(&c->optimizer, &facts, scalars);
    tsr_executable_set_step_scalars(e, scalars);
    tsr_executable_run(e, step, fill, &s);
    add_results(arena, e, ret_bytes);
  }
  tsr_process_close(process);
}
