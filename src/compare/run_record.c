// SPDX-License-Identifier: Apache-2.0
#include "compare/run_record.h"
#include "base/memory.h"
#include "runtime/weight_hash.h"
#include <stdlib.h>
#include <string.h>

int64_t tsr_traced_elements(const tsr_traced_value *v) {
  int64_t count = 1;
  for (int d = 0; d < v->ndim; d++) count *= v->shape[d];
  return count;
}

bool tsr_traced_same_shape(const tsr_traced_value *a, const tsr_traced_value *b) {
  return a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

static void hash_stored(tsr_run_record *r, tsr_executable *e, bool after) {
  for (int i = 0; i < r->stored_count; i++) {
    uint64_t hash = tsr_executable_hash_value(e, r->stored[i].value);
    if (after) r->stored[i].after = hash;
    else r->stored[i].before = hash;
  }
}

static const tsr_stored_hash *find_stored(const tsr_run_record *r, const char *name) {
  for (int i = 0; i < r->stored_count; i++)
    if (!strcmp(r->stored[i].name, name)) return &r->stored[i];
  return NULL;
}

const tsr_traced_value *tsr_run_record_find_traced(const tsr_run_record *r, const char *name) {
  for (int i = 0; i < r->values_count; i++)
    if (!strcmp(r->values[i].name, name)) return &r->values[i];
  return NULL;
}

const tsr_traced_value *tsr_run_record_find(const tsr_run_record *r, const char *name) {
  const tsr_traced_value *traced = tsr_run_record_find_traced(r, name);
  if (traced) return traced;
  const tsr_stored_hash *stored = find_stored(r, name);
  return stored ? &stored->of : NULL;
}

static void add_stored(tsr_run_record *r, const tsr_graph *g, int value) {
  const tsr_value *v = &g->values[value];
  tsr_traced_value of = {.name = v->name, .value = value, .ndim = v->ndim, .task = -1};
  tsr_value_real_shape(g, v, of.shape);
  r->stored[r->stored_count++] = (tsr_stored_hash){
      .name = v->name, .value = value, .is_state = v->kind == TSR_VALUE_STATE, .of = of};
}

static void find_all_stored(tsr_run_record *r, const tsr_graph *g) {
  r->stored = tsr_arena_array(r->arena, tsr_stored_hash, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM || g->values[v].kind == TSR_VALUE_STATE)
      add_stored(r, g, v);
}

/* A parameter or state, without padding. */
static bool read_stored(tsr_run_record *r, tsr_executable *e, bool before, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  if (!r->numbers || !r->capture.is_stored || r->capture.before != before) return true;
  const tsr_value *v = &g->values[r->of.value];
  const tsr_padding *padding = tsr_value_padding(g, v);
  size_t bytes = sizeof(float) * (size_t)tsr_value_elements(v);
  float *whole = tsr_memory_try(bytes);
  if (!whole)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for '%s'", tsr_text_bytes((int64_t)bytes).text,
        v->name);
  tsr_executable_read(e, r->of.value, whole);
  if (padding) tsr_padding_remove(padding, v->ndim, v->shape, whole);
  memcpy(r->numbers, whole, sizeof(float) * (size_t)tsr_traced_elements(&r->of));
  free(whole);
  return true;
}

/* ---- what the run's observer does ---- */

static bool begin(
    void *context, tsr_executable *e, const tsr_recipe_entry *recipe, int count, int64_t step,
    tsr_diags *diags) {
  tsr_run_record *r = context;
  (void)diags;
  r->recipe = recipe;
  r->recipe_count = count;
  r->first = step;
  r->steps = tsr_arena_array(r->arena, tsr_locked_step, r->last - step + 1);
  find_all_stored(r, tsr_executable_graph(e));
  return true;
}

static bool before(void *context, tsr_executable *e, int64_t step, tsr_diags *diags) {
  tsr_run_record *r = context;
  if (step != r->traced) return true;
  hash_stored(r, e, false);
  r->trace = tsr_executable_trace(r->arena, e);
  if (r->numbers && !r->capture.is_stored)
    tsr_value_trace_capture(r->trace, r->of.value, r->numbers);
  return read_stored(r, e, true, diags);
}

/* Whole numbers below 2^24, as tokens are, are floats as well. */
static void convert_integers(tsr_run_record *r) {
  int64_t count = r->numbers && r->of.dtype == TSR_I32 ? tsr_traced_elements(&r->of) : 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t number;
    memcpy(&number, &r->numbers[i], sizeof number);
    r->numbers[i] = (float)number;
  }
}

static bool after(void *context, tsr_executable *e, const tsr_locked_step *step, tsr_diags *diags) {
  tsr_run_record *r = context;
  r->steps[r->steps_count++] = *step;
  if (step->step != r->traced) return true;
  r->values_count = tsr_value_trace_read(r->trace, &r->values);
  hash_stored(r, e, true);
  convert_integers(r);
  return read_stored(r, e, false, diags);
}

void tsr_run_record_init(
    tsr_arena *arena, int64_t last, int64_t traced, tsr_capture capture,
    const tsr_run_record *earlier, tsr_run_record *r) {
  const tsr_traced_value *of = capture.name ? tsr_run_record_find(earlier, capture.name) : NULL;
  *r = (tsr_run_record){.arena = arena, .last = last, .traced = traced, .capture = capture};
  if (of) {
    r->of = *of;
    r->numbers = tsr_arena_array(arena, float, tsr_traced_elements(of));
  }
  r->observer = (tsr_step_observer){
      .context = r, .last = last, .begin = begin, .before = before, .after = after};
}
