// SPDX-License-Identifier: Apache-2.0
#include "compare/tensor_dump.h"
#include "base/memory.h"
#include "base/new_file.h"
#include "checkpoint/safetensors.h"
#include "compare/error_bound.h"
#include "train/learning_rate.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_traced_value of;
  bool is_stored;
  int64_t bytes;
  float *numbers;
} kept;

struct tsr_tensor_dump {
  tsr_arena *arena;
  const tsr_config *config;
  tsr_lr_curve curve;
  const char *folder;
  int64_t first, last;
  bool (*wants)(void *context, const char *name);
  void *context;
  kept *tensors;
  int count;
  int64_t bytes;
  float *numbers;
  const char **metadata;
  int pairs;
  tsr_value_trace *trace;
  const char *recipe;
  tsr_step_observer observer;
};

const char *tsr_tensor_dump_path(tsr_arena *arena, const char *folder, int64_t step) {
  return tsr_arena_printf(arena, "%s/step-%08" PRId64 ".safetensors", folder, step);
}

/* ---- which tensors ---- */

static void keep(tsr_tensor_dump *d, const tsr_traced_value *of, bool is_stored) {
  kept *k = &d->tensors[d->count];
  if (!d->wants(d->context, of->name)) return;
  *k = (kept){.of = *of, .is_stored = is_stored, .bytes = sizeof(float)};
  for (int i = 0; i < of->ndim; i++) k->bytes *= of->shape[i];
  d->bytes += k->bytes;
  d->count++;
}

static void add_pair(tsr_tensor_dump *d, const char *key, const char *value) {
  d->metadata[2 * d->pairs] = key;
  d->metadata[2 * d->pairs++ + 1] = value;
}

/* Hugging Face's name of a parameter, as the dump names the tensor. */
static void add_foreign_name(tsr_tensor_dump *d, const tsr_graph *g, const kept *k) {
  bool gradient = !strncmp(k->of.name, "grad.", 5);
  const char *param = k->of.name + (gradient ? 5 : 0);
  for (int p = 0; p < g->params_count; p++)
    if (!strcmp(g->params[p].name, param) && g->params[p].hf_name)
      add_pair(
          d, tsr_arena_printf(d->arena, "hf.%s", k->of.name),
          tsr_arena_printf(d->arena, "%s%s", gradient ? "grad." : "", g->params[p].hf_name));
}

/* Of a parameter. False: there is no memory for it. */
static bool
find_largest(tsr_executable *e, const tsr_value *v, int value, double *ret, tsr_diags *diags) {
  int64_t count = tsr_value_elements(v);
  float *whole = tsr_memory_try(sizeof *whole * (size_t)count);
  if (!whole)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for '%s'", tsr_text_bytes(4 * count).text, v->name);
  tsr_executable_read(e, value, whole);
  *ret = 0;
  for (int64_t i = 0; i < count; i++) *ret = fmax(*ret, fabs((double)whole[i]));
  free(whole);
  return true;
}

/* The errors that parameters may have before a step, relative to their largest element. */
static bool find_errors(
    const tsr_tensor_dump *d, tsr_executable *e, int64_t step, double *errors, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  const tsr_rounding_path *exact = tsr_rounding_paths(d->arena, g, NULL);
  bool is_sgd = d->config->optimizer.type == TSR_OPTIMIZER_SGD;
  double moved = 0;
  for (int64_t s = 0; s + 1 < step; s++) moved += tsr_learning_rate(&d->curve, s);
  for (int p = 0; p < g->params_count && step > 1; p++) {
    int value = tsr_executable_param(e, p);
    double largest = 0;
    if (g->grads[p] < 0) continue;
    if (is_sgd) {
      errors[p] = (double)(step - 1) * tsr_error_bound(exact[g->grads[p]], 0);
      continue;
    }
    if (!find_largest(e, &g->values[value], value, &largest, diags)) return false;
    errors[p] = largest > 0 ? 2 * moved / largest : 1;
  }
  return true;
}

/* What the file of a step says of its tensors. */
static bool describe(tsr_tensor_dump *d, tsr_executable *e, int64_t step, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  double *errors = tsr_arena_array(d->arena, double, g->params_count + 1);
  if (!find_errors(d, e, step, errors, diags)) return false;
  const tsr_rounding_path *paths = tsr_rounding_paths(d->arena, g, errors);
  d->pairs = 0;
  for (int i = 0; i < d->count; i++) {
    const kept *k = &d->tensors[i];
    tsr_rounding_path path = paths[k->of.value];
    add_pair(
        d, tsr_arena_printf(d->arena, "path.%s", k->of.name),
        tsr_arena_printf(d->arena, "%.9g %.9g %.9g", path.roundings, path.stored, path.sums));
    add_foreign_name(d, g, k);
  }
  add_pair(d, "recipe", d->recipe);
  add_pair(d, "step", tsr_arena_printf(d->arena, "%" PRId64, step));
  return true;
}

static bool choose(tsr_tensor_dump *d, tsr_executable *e, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  const tsr_traced_value *values;
  int count = tsr_value_trace_candidates(d->trace, &values);
  d->tensors = tsr_arena_array(d->arena, kept, count + g->values_count + 1);
  for (int i = 0; i < count; i++) keep(d, &values[i], false);
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *is = &g->values[v];
    tsr_traced_value of = {.name = is->name, .value = v, .ndim = is->ndim, .dtype = is->dtype};
    tsr_value_real_shape(g, is, of.shape);
    if (is->kind == TSR_VALUE_PARAM || is->kind == TSR_VALUE_STATE) keep(d, &of, true);
  }
  if (!d->count)
    return tsr_diag_error(diags, TSR_NOWHERE, "--tensors matches no tensor of the run");
  d->numbers = tsr_memory_try((size_t)d->bytes);
  if (!d->numbers)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for the tensors of a step",
        tsr_text_bytes(d->bytes).text);
  float *at = d->numbers;
  for (int i = 0; i < d->count; i++) {
    d->tensors[i].numbers = at;
    at += d->tensors[i].bytes / (int64_t)sizeof *at;
  }
  d->metadata = tsr_arena_array(d->arena, const char *, 4 * d->count + 8);
  return true;
}

/* ---- the observer ---- */

static bool begin(
    void *context, tsr_executable *e, const tsr_recipe_entry *recipe, int count, int64_t step,
    tsr_diags *diags) {
  tsr_tensor_dump *d = context;
  char hash[TSR_HASH_TEXT];
  (void)e, (void)step, (void)diags;
  tsr_recipe_hash(recipe, count, hash);
  d->recipe = tsr_arena_strdup(d->arena, hash);
  return true;
}

static bool read_stored(const kept *k, tsr_executable *e, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  const tsr_value *v = &g->values[k->of.value];
  const tsr_padding *padding = tsr_value_padding(g, v);
  size_t bytes = sizeof(float) * (size_t)tsr_value_elements(v);
  float *whole = tsr_memory_try(bytes);
  if (!whole)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for '%s'", tsr_text_bytes((int64_t)bytes).text,
        k->of.name);
  tsr_executable_read(e, k->of.value, whole);
  if (padding) tsr_padding_remove(padding, v->ndim, v->shape, whole);
  memcpy(k->numbers, whole, (size_t)k->bytes);
  free(whole);
  return true;
}

static bool before(void *context, tsr_executable *e, int64_t step, tsr_diags *diags) {
  tsr_tensor_dump *d = context;
  bool ok = true;
  if (step < d->first) return true;
  if (!d->trace) d->trace = tsr_executable_trace(d->arena, e);
  if (step == d->first && !choose(d, e, diags)) return false;
  if (!describe(d, e, step, diags)) return false;
  for (int i = 0; i < d->count && ok; i++) {
    const kept *k = &d->tensors[i];
    if (k->is_stored) ok = read_stored(k, e, diags);
    else tsr_value_trace_capture(d->trace, k->of.value, k->numbers);
  }
  return ok;
}

/* Complete tensors alone: one that a mesh has only in parts is not written. */
static bool is_there(const tsr_tensor_dump *d, const kept *k) {
  const tsr_traced_value *values;
  int count = k->is_stored ? 0 : tsr_value_trace_read(d->trace, &values);
  for (int i = 0; i < count; i++)
    if (values[i].value == k->of.value) return true;
  return k->is_stored;
}

static bool write_file(tsr_tensor_dump *d, int64_t step, tsr_diags *diags) {
  tsr_safetensor *tensors = tsr_arena_array(d->arena, tsr_safetensor, d->count);
  const kept **of = tsr_arena_array(d->arena, const kept *, d->count);
  int count = 0;
  for (int i = 0; i < d->count; i++) {
    const kept *k = &d->tensors[i];
    if (!is_there(d, k)) continue;
    tensors[count] = (tsr_safetensor){
        .name = k->of.name,
        .dtype = k->of.dtype == TSR_I32 ? "I32" : "F32",
        .ndim = k->of.ndim,
        .bytes = k->bytes};
    memcpy(tensors[count].shape, k->of.shape, sizeof k->of.shape);
    of[count++] = k;
  }
  tsr_text head = {0};
  tsr_safetensors_header(tensors, count, d->metadata, d->pairs, &head);
  tsr_new_file file = {.fd = -1};
  bool ok = tsr_new_file_open(tsr_tensor_dump_path(d->arena, d->folder, step), &file, diags) &&
            tsr_new_file_write(&file, head.data, head.length, diags);
  for (int i = 0; i < count && ok; i++)
    ok = tsr_new_file_write(&file, of[i]->numbers, (size_t)of[i]->bytes, diags);
  ok = ok && tsr_new_file_commit(&file, diags);
  tsr_new_file_drop(&file);
  tsr_text_free(&head);
  return ok;
}

static bool after(void *context, tsr_executable *e, const tsr_locked_step *step, tsr_diags *diags) {
  tsr_tensor_dump *d = context;
  (void)e;
  if (step->step < d->first) return true;
  if (step->step == d->first && !tsr_new_folder(d->folder))
    return tsr_file_cannot("make the folder", d->folder, errno, TSR_NOWHERE, diags);
  return write_file(d, step->step, diags);
}

tsr_tensor_dump *tsr_tensor_dump_new(
    tsr_arena *arena, const tsr_config *config, int64_t steps, const char *folder, int64_t first,
    int64_t last, bool (*wants)(void *context, const char *name), void *context) {
  tsr_tensor_dump *d = tsr_arena_alloc(arena, sizeof *d);
  *d = (tsr_tensor_dump){
      .arena = arena, .folder = folder, .first = first, .last = last, .wants = wants};
  d->context = context;
  d->config = config;
  d->curve = tsr_lr_curve_of(config, steps);
  d->observer = (tsr_step_observer){
      .context = d, .last = last, .begin = begin, .before = before, .after = after};
  return d;
}

const tsr_step_observer *tsr_tensor_dump_observer(const tsr_tensor_dump *d) { return &d->observer; }

int tsr_tensor_dump_count(const tsr_tensor_dump *d, int64_t *ret_bytes) {
  *ret_bytes = d->bytes;
  return d->count;
}
