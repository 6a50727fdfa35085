// SPDX-License-Identifier: Apache-2.0
#include "compare/tensor_dump.h"
#include "base/file_read.h"
#include "base/memory.h"
#include "base/new_file.h"
#include "checkpoint/safetensors.h"
#include "compare/error_paths.h"
#include "compare/foreign_place.h"
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
  tsr_arena *scratch; /* of a step */
  const tsr_config *config;
  tsr_lr_curve curve;
  const char *folder;
  int64_t first, last;
  int (*wants)(void *context, const char *name);
  void *context;
  kept *tensors;
  int count;
  int64_t bytes;
  float *numbers;
  const char **metadata, **bounds; /* pairs; of the file of tensors, and of the one beside it */
  int pairs, bounds_pairs;
  tsr_value_trace *trace;
  tsr_value_size *sizes; /* per placed value */
  bool *scaled;          /* per placed value: times the loss scale */
  bool overflows;        /* what is scaled has infinite numbers in this step */
  const char *recipe;
  tsr_step_observer observer;
};

const char *tsr_tensor_dump_bounds_path(tsr_arena *arena, const char *file) {
  const char *dot = tsr_path_ends(file, ".safetensors") ? strrchr(file, '.') : file + strlen(file);
  return tsr_arena_printf(arena, "%.*s.bounds", (int)(dot - file), file);
}

const char *tsr_tensor_dump_path(tsr_arena *arena, const char *folder, int64_t step) {
  return tsr_arena_printf(arena, "%s/step-%08" PRId64 ".safetensors", folder, step);
}

/* ---- which tensors ---- */

/* False: it is not known whether the tensor is wanted. */
static bool keep(tsr_tensor_dump *d, const tsr_traced_value *of, bool is_stored, tsr_diags *diags) {
  kept *k = &d->tensors[d->count];
  int wanted = d->wants(d->context, of->name);
  if (wanted < 0)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "--tensors: the pattern takes too long on '%s'", of->name);
  if (!wanted) return true;
  *k = (kept){.of = *of, .is_stored = is_stored, .bytes = sizeof(float)};
  for (int i = 0; i < of->ndim; i++) k->bytes *= of->shape[i];
  d->bytes += k->bytes;
  d->count++;
  return true;
}

static void add_pair(tsr_tensor_dump *d, const char *key, const char *value) {
  d->metadata[2 * d->pairs] = key;
  d->metadata[2 * d->pairs++ + 1] = value;
}

static void add_bound(tsr_tensor_dump *d, const char *name, tsr_error_path p) {
  d->bounds[2 * d->bounds_pairs] = name;
  d->bounds[2 * d->bounds_pairs++ + 1] =
      tsr_arena_printf(d->scratch, "%.6g %.6g %.6g %.6g", p.roundings, p.stored, p.sums, p.choices);
}

/* What a parameter or its gradient is in Hugging Face's models, as the dump names the tensor. */
static void add_foreign_name(tsr_tensor_dump *d, const tsr_graph *g, const kept *k) {
  bool gradient = !strncmp(k->of.name, "grad.", 5);
  const char *param = k->of.name + (gradient ? 5 : 0);
  tsr_hf_place place;
  for (int p = 0; p < g->params_count; p++) {
    if (strcmp(g->params[p].name, param) || !tsr_hf_place_of(d->scratch, &g->params[p], &place))
      continue;
    const char *text = tsr_foreign_place_text(d->scratch, &place);
    add_pair(
        d, tsr_arena_printf(d->scratch, "hf.%s", k->of.name),
        tsr_arena_printf(d->scratch, "%s%s", gradient ? "grad." : "", place.name));
    if (text) add_pair(d, tsr_arena_printf(d->scratch, "hf_place.%s", k->of.name), text);
  }
}

/* ---- what a file has beside the numbers ---- */

/* A parameter or state, without padding. NULL: there is no memory for it. */
static float *read_whole(tsr_executable *e, int value, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  const tsr_value *v = &g->values[value];
  const tsr_padding *padding = tsr_value_padding(g, v);
  size_t bytes = sizeof(float) * (size_t)tsr_value_elements(v);
  float *whole = tsr_memory_try(bytes);
  if (!whole) {
    tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for '%s'", tsr_text_bytes((int64_t)bytes).text,
        v->name);
    return NULL;
  }
  tsr_executable_read(e, value, whole);
  if (padding) tsr_padding_remove(padding, v->ndim, v->shape, whole);
  return whole;
}

static bool measure_params(tsr_tensor_dump *d, tsr_executable *e, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  for (int p = 0; p < g->params_count; p++) {
    int value = tsr_executable_param(e, p);
    int64_t count = tsr_param_real_elements(&g->params[p]);
    float *whole = read_whole(e, value, diags);
    double squares = 0;
    if (!whole) return false;
    for (int64_t i = 0; i < count; i++) squares += (double)whole[i] * (double)whole[i];
    d->sizes[value].square = squares / (double)count;
    free(whole);
  }
  return true;
}

/* The errors that parameters may have before a step, as mean squares. A step moves a weight of Adam
 * by up to the learning rate, whichever sign a gradient has that is nearly zero, so two runs may be
 * apart by twice the sum of the rates. SGD's updates have the errors of their gradients, or with a
 * loss scale, which may leave out steps, these whole. */
static double *find_errors(
    const tsr_tensor_dump *d, const tsr_graph *g, const tsr_step_sizes *sizes, int64_t step) {
  const tsr_config_optimizer *o = &d->config->optimizer;
  bool is_sgd = o->type == TSR_OPTIMIZER_SGD;
  bool fp16 = d->config->training.precision == TSR_PRECISION_FP16;
  double *errors = tsr_arena_array(d->scratch, double, g->params_count + 1), moved = 0;
  for (int64_t s = 0; s + 1 < step; s++) moved += tsr_learning_rate(&d->curve, s);
  if (is_sgd) moved /= 1 - o->momentum;
  const tsr_error_path *exact = tsr_error_paths(d->scratch, g, sizes);
  for (int p = 0; p < g->params_count && moved > 0; p++) {
    if (g->grads[p] < 0) continue;
    double each = !is_sgd ? 2
                  : fp16  ? sqrt(fmax(0, d->sizes[g->grads[p]].square))
                          : tsr_error_bound(exact[g->grads[p]], 0, 0, 1);
    errors[p] = moved * each * moved * each;
  }
  return errors;
}

/* What flows back from a loss that is scaled, up to the clipping of the gradients. */
static bool *find_scaled(tsr_arena *arena, const tsr_graph *g) {
  bool *scaled = tsr_arena_array(arena, bool, g->values_count + 1);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool any = n->op == TSR_OP_CE_LOSS_DX && n->attr.ce_loss_dx.scaled;
    for (int k = 0; k < n->inputs_count; k++) {
      bool scales = n->inputs[k] == g->step_scalars && n->op != TSR_OP_CE_LOSS_DX;
      any |= scaled[n->inputs[k]] || (scales && n->section == TSR_BACKWARD);
    }
    for (int o = 0; o < n->outputs_count; o++) scaled[n->outputs[o]] = any && n->op != TSR_OP_CLIP;
  }
  return scaled;
}

/* Of what the step has computed; of parameters those before it. */
static void take_sizes(tsr_tensor_dump *d, tsr_executable *e) {
  const tsr_graph *g = tsr_executable_graph(e);
  tsr_value_size *traced = tsr_arena_array(d->scratch, tsr_value_size, g->values_count + 1);
  tsr_value_trace_sizes(d->trace, traced);
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind != TSR_VALUE_PARAM) d->sizes[v] = traced[v];
}

static double loss_scale(const tsr_tensor_dump *d, tsr_executable *e) {
  float scalars[TSR_SCALARS] = {0};
  if (d->config->training.precision != TSR_PRECISION_FP16) return 1;
  tsr_executable_read(e, tsr_executable_graph(e)->step_scalars, scalars);
  return (double)scalars[TSR_SCALAR_LOSS_SCALE];
}

static int64_t numbers_of(const kept *k) { return k->bytes / (int64_t)sizeof(float); }

/* Divides what is scaled by the loss scale, numbers and sizes. */
static void unscale(tsr_tensor_dump *d, const tsr_graph *g, double scale) {
  float factor = 1 / (float)scale;
  for (int v = 0; v < g->values_count; v++)
    if (d->scaled[v] && d->sizes[v].square > 0)
      d->sizes[v].square /= scale * scale, d->sizes[v].mean /= scale;
  d->overflows = false;
  for (int i = 0; i < d->count; i++) {
    const kept *k = &d->tensors[i];
    for (int64_t n = 0; d->scaled[k->of.value] && n < numbers_of(k); n++) {
      d->overflows |= !isfinite(k->numbers[n]);
      k->numbers[n] *= factor;
    }
  }
}

/* What the file of a step says of its tensors. */
static void describe(tsr_tensor_dump *d, const tsr_graph *g, double scale, int64_t step) {
  tsr_step_sizes sizes = {.sizes = d->sizes, .scaled = d->scaled, .loss_scale = scale};
  sizes.errors = find_errors(d, g, &sizes, step);
  const tsr_error_path *paths = tsr_error_paths(d->scratch, g, &sizes);
  d->pairs = d->bounds_pairs = 0;
  for (int i = 0; i < d->count; i++) {
    const kept *k = &d->tensors[i];
    add_bound(d, k->of.name, paths[k->of.value]);
    add_foreign_name(d, g, k);
  }
  add_pair(d, "recipe", d->recipe);
  add_pair(d, "step", tsr_arena_printf(d->scratch, "%" PRId64, step));
}

/* ---- which tensors are kept ---- */

/* What is padded for tp, and the product of a linear layer whose bias a fused task may add. */
static bool is_part(const tsr_graph *g, const tsr_node *n) {
  const char *name = g->values[n->outputs[0]].name;
  return n->op == TSR_OP_LINEAR ? tsr_path_ends(name, ".product")
                                : n->op == TSR_OP_UNSLICE && tsr_path_ends(name, ".padded");
}

/* What other programs, and other meshes, do not have: copies of parameters and of what is computed
 * again, parts of other values, numbers that a node keeps for its gradient, and the norm of all
 * gradients with what follows from it, which depends on the loss scale. */
static bool is_internal(const tsr_graph *g, const tsr_traced_value *v) {
  const tsr_value *value = &g->values[v->value];
  const tsr_node *n = value->node >= 0 ? &g->nodes[value->node] : NULL;
  if (v->is_copy || v->is_again) return true;
  if (!n || is_part(g, n)) return n != NULL;
  unsigned counted = TSR_FACT_STATISTICS | TSR_FACT_LOSS | TSR_FACT_ATTENTION;
  return n->op == TSR_OP_CLIP || n->op == TSR_OP_CE_STATS || n->op == TSR_OP_RING_ROWS ||
         (tsr_op_facts(n->op) & counted && n->section == TSR_FORWARD && value->output > 0);
}

static int by_name(const void *a, const void *b) {
  const kept *x = a, *y = b;
  return strcmp(x->of.name, y->of.name);
}

static bool choose(tsr_tensor_dump *d, tsr_executable *e, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(e);
  const tsr_traced_value *values;
  int count = tsr_value_trace_candidates(d->trace, &values);
  d->tensors = tsr_arena_array(d->arena, kept, count + g->values_count + 1);
  for (int i = 0; i < count; i++)
    if (!is_internal(g, &values[i]) && !keep(d, &values[i], false, diags)) return false;
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *is = &g->values[v];
    tsr_traced_value of = {.name = is->name, .value = v, .ndim = is->ndim, .dtype = is->dtype};
    tsr_value_real_shape(g, is, of.shape);
    bool stored = is->kind == TSR_VALUE_PARAM || is->kind == TSR_VALUE_STATE;
    if (stored && !keep(d, &of, true, diags)) return false;
  }
  if (!d->count)
    return tsr_diag_error(diags, TSR_NOWHERE, "--tensors matches no tensor of the run");
  qsort(d->tensors, (size_t)d->count, sizeof *d->tensors, by_name);
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
  d->bounds = tsr_arena_array(d->arena, const char *, 2 * d->count + 8);
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
  float *whole = read_whole(e, k->of.value, diags);
  if (!whole) return false;
  memcpy(k->numbers, whole, (size_t)k->bytes);
  free(whole);
  return true;
}

static void begin_trace(tsr_tensor_dump *d, tsr_executable *e) {
  const tsr_graph *g = tsr_executable_graph(e);
  d->trace = tsr_executable_trace(d->arena, e);
  tsr_value_trace_measure(d->trace);
  d->sizes = tsr_arena_array(d->arena, tsr_value_size, g->values_count + 1);
  d->scaled = find_scaled(d->arena, g);
}

static bool before(void *context, tsr_executable *e, int64_t step, tsr_diags *diags) {
  tsr_tensor_dump *d = context;
  bool ok = true;
  if (step < d->first) return true;
  if (!d->trace) begin_trace(d, e);
  if (step == d->first && !choose(d, e, diags)) return false;
  for (int i = 0; i < d->count && ok; i++) {
    const kept *k = &d->tensors[i];
    if (k->is_stored) ok = read_stored(k, e, diags);
    else tsr_value_trace_capture(d->trace, k->of.value, k->numbers);
  }
  return ok && measure_params(d, e, diags);
}

/* Complete tensors alone: one that a mesh has only in parts is not written, nor are the
 * gradients of a step that is left out because the loss scale was too large. */
static const kept **find_written(const tsr_tensor_dump *d, const tsr_graph *g, int *ret_count) {
  const kept **written = tsr_arena_array(d->scratch, const kept *, d->count + 1);
  bool *complete = tsr_arena_array(d->scratch, bool, g->values_count + 1);
  const tsr_traced_value *values;
  int traced = tsr_value_trace_read(d->trace, &values);
  for (int i = 0; i < traced; i++) complete[values[i].value] = true;
  *ret_count = 0;
  for (int i = 0; i < d->count; i++) {
    const kept *k = &d->tensors[i];
    bool left_out = d->overflows && d->scaled[k->of.value];
    if (!left_out && (k->is_stored || complete[k->of.value])) written[(*ret_count)++] = k;
  }
  return written;
}

static bool write_tensors(
    const tsr_tensor_dump *d, const kept **written, int count, tsr_new_file *file,
    tsr_diags *diags) {
  tsr_safetensor *tensors = tsr_arena_array(d->scratch, tsr_safetensor, count + 1);
  tsr_text head = {0};
  for (int i = 0; i < count; i++) {
    const kept *k = written[i];
    tensors[i] = (tsr_safetensor){
        .name = k->of.name,
        .dtype = k->of.dtype == TSR_I32 ? "I32" : "F32",
        .ndim = k->of.ndim,
        .bytes = k->bytes};
    memcpy(tensors[i].shape, k->of.shape, sizeof k->of.shape);
  }
  tsr_safetensors_header(tensors, count, d->metadata, d->pairs, &head);
  bool ok = tsr_new_file_write(file, head.data, head.length, diags);
  for (int i = 0; i < count && ok; i++)
    ok = tsr_new_file_write(file, written[i]->numbers, (size_t)written[i]->bytes, diags);
  tsr_text_free(&head);
  return ok;
}

static bool
write_files(const tsr_tensor_dump *d, const tsr_graph *g, int64_t step, tsr_diags *diags) {
  const char *path = tsr_tensor_dump_path(d->arena, d->folder, step); /* diagnostics keep it */
  tsr_new_file tensors = {.fd = -1}, bounds = {.fd = -1};
  tsr_text head = {0};
  int count;
  const kept **written = find_written(d, g, &count);
  tsr_safetensors_header(NULL, 0, d->bounds, d->bounds_pairs, &head);
  bool ok = tsr_new_file_open(path, &tensors, diags) &&
            write_tensors(d, written, count, &tensors, diags) &&
            tsr_new_file_open(tsr_tensor_dump_bounds_path(d->arena, path), &bounds, diags) &&
            tsr_new_file_write(&bounds, head.data, head.length, diags) &&
            tsr_new_files_commit((tsr_new_file *const[]){&tensors, &bounds}, 2, diags);
  tsr_new_file_drop(&tensors);
  tsr_new_file_drop(&bounds);
  tsr_text_free(&head);
  return ok;
}

static bool after(void *context, tsr_executable *e, const tsr_locked_step *step, tsr_diags *diags) {
  tsr_tensor_dump *d = context;
  if (step->step < d->first) return true;
  if (step->step == d->first && !tsr_new_folder(d->folder))
    return tsr_file_cannot("make the folder", d->folder, errno, TSR_NOWHERE, diags);
  d->scratch = tsr_arena_new();
  const tsr_graph *g = tsr_executable_graph(e);
  double scale = loss_scale(d, e);
  take_sizes(d, e);
  unscale(d, g, scale);
  describe(d, g, scale, step->step);
  bool ok = write_files(d, g, step->step, diags);
  tsr_arena_free(d->scratch);
  return ok;
}

tsr_tensor_dump *tsr_tensor_dump_new(
    tsr_arena *arena, const tsr_config *config, int64_t steps, const char *folder, int64_t first,
    int64_t last, int (*wants)(void *context, const char *name), void *context) {
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

void tsr_tensor_dump_free(tsr_tensor_dump *d) { free(d->numbers); }

const tsr_step_observer *tsr_tensor_dump_observer(const tsr_tensor_dump *d) { return &d->observer; }

int tsr_tensor_dump_count(const tsr_tensor_dump *d, int64_t *ret_bytes) {
  *ret_bytes = d->bytes;
  return d->count;
}
