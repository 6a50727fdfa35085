// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load.h"
#include "base/command_progress.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  const tsr_kernels *kernels;
  const tsr_stored *stored;
  tsr_dtype dtype;
  const tsr_part_of_value *parts;
  int parts_count;
} loading;

static bool wanted(void *context, const tsr_stored_piece *p) {
  const loading *l = context;
  for (int i = 0; i < l->parts_count; i++) {
    const tsr_tensor_slice *slice = &l->parts[i].slice;
    bool waits_in = true;
    for (int d = 0; d < slice->ndim; d++)
      waits_in &= p->begin[d] < slice->offset[d] + slice->shape[d] &&
                  slice->offset[d] < p->begin[d] + p->shape[d];
    if (waits_in) return true;
  }
  return false;
}

static void
take(void *context, const tsr_stored_piece *p, int64_t first, int64_t count, const void *elements) {
  const loading *l = context;
  for (int i = 0; i < l->parts_count; i++)
    tsr_portion_copy(l->kernels, l->stored, p, first, count, elements, l->dtype, &l->parts[i]);
}

static tsr_location place_of(tsr_arena *arena, const tsr_manifest *m) {
  return (tsr_location){.file = tsr_arena_printf(arena, "%s/%s", m->folder, TSR_MANIFEST_NAME)};
}

/* What is stored has the shape that the run has, without padding. */
static bool check_shape(
    const tsr_stored *t, const tsr_value *v, const tsr_param *param, tsr_location location,
    tsr_diags *diags) {
  int64_t shape[TSR_DIMS_MAX];
  memcpy(shape, v->shape, sizeof shape);
  shape[param->padding.dim] = param->padding.real;
  if (t->ndim == v->ndim && !memcmp(t->shape, shape, sizeof(int64_t) * (size_t)v->ndim))
    return true;
  return tsr_diag_error(
      diags, location, "tensor '%s' is %s there, and %s in this run's model", t->name,
      tsr_shape_text(t->ndim, t->shape).text, tsr_shape_text(v->ndim, shape).text);
}

static bool
check_dtype(const tsr_stored *t, const tsr_value *v, tsr_location location, tsr_diags *diags) {
  if (v->kind != TSR_VALUE_STATE || t->dtype == v->dtype) return true;
  return tsr_diag_error(
      diags, location, "tensor '%s' is %s there, and %s in this run", t->name,
      tsr_dtype_name(t->dtype), tsr_dtype_name(v->dtype));
}

/* A bias or counts that balance experts: a run may begin to balance what was trained without. */
static bool balances_experts(const tsr_graph *g, int value) {
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool updates = n->op == TSR_OP_EXPERT_BIAS || n->op == TSR_OP_EXPERT_LOAD;
    if (updates && n->inputs[0] == value) return true;
  }
  return false;
}

/* Whether a checkpoint of that kind has a value. */
static bool is_stored(const tsr_graph *g, const tsr_value *v, tsr_load_kind kind) {
  if (v->kind == TSR_VALUE_STATE) return v->param >= 0 && kind == TSR_LOAD_RUN;
  if (v->kind != TSR_VALUE_PARAM) return false;
  const tsr_param *p = &g->params[v->param];
  bool model = kind == TSR_LOAD_MODEL || kind == TSR_LOAD_START || kind == TSR_LOAD_BASE;
  return model ? !p->is_adapter : !p->is_frozen;
}

/* Every value of the kinds that are asked for has its tensor; NULL entries for the others. */
static bool match(
    tsr_arena *arena, const tsr_manifest *m, const tsr_graph *g, tsr_load_kind kind,
    const tsr_stored **ret_stored, tsr_diags *diags) {
  tsr_location location = place_of(arena, m);
  bool ok = true;
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    if (!is_stored(g, value, kind)) continue;
    const tsr_stored *t = ret_stored[v] = tsr_manifest_find(m, value->name);
    if (!t && kind == TSR_LOAD_BASE && !g->params[value->param].is_frozen) continue;
    bool begins = kind != TSR_LOAD_RUN && balances_experts(g, v);
    begins |= kind == TSR_LOAD_START && g->params[value->param].replaces;
    if (!t && begins)
      tsr_diag_note(
          diags, location, "the checkpoint has no tensor '%s': it begins at its initial value",
          value->name);
    else if (!t)
      ok = tsr_diag_error(
          diags, location, "the checkpoint has no tensor '%s', which this run has", value->name);
    else
      ok &= check_shape(t, value, &g->params[value->param], location, diags) &&
            check_dtype(t, value, location, diags);
  }
  return ok;
}

/* Of a tensor `name`, an optimizer keeps name.m and the like. */
static bool is_state(tsr_arena *arena, const tsr_manifest *m, const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && tsr_manifest_find(m, tsr_arena_strndup(arena, name, (size_t)(dot - name)));
}

/* The output of a model that a run begins with, if the run's model has another one in its place. */
static bool
is_replaced(const tsr_graph *g, const tsr_stored **stored, tsr_load_kind kind, const char *name) {
  if (kind != TSR_LOAD_START && kind != TSR_LOAD_BASE) return false;
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    if (value->kind != TSR_VALUE_PARAM || stored[v]) continue;
    const char *replaces = g->params[value->param].replaces;
    if (replaces && !strcmp(replaces, name)) return true;
  }
  return false;
}

/* Nothing is left behind in silence, but state that is not asked for. */
static bool check_all_used(
    tsr_arena *arena, const tsr_manifest *m, const tsr_graph *g, tsr_load_kind kind,
    const tsr_stored **stored, tsr_diags *diags) {
  bool state = kind == TSR_LOAD_RUN;
  bool *used = tsr_arena_array(arena, bool, m->tensors_count + 1), ok = true;
  for (int v = 0; v < g->values_count; v++)
    if (stored[v]) used[stored[v] - m->tensors] = true;
  for (int i = 0; i < m->tensors_count; i++) {
    const char *name = m->tensors[i].name;
    if (used[i] || !strncmp(name, "history.", 8) || (!state && is_state(arena, m, name))) continue;
    if (is_replaced(g, stored, kind, name)) {
      if (kind == TSR_LOAD_START)
        tsr_diag_note(
            diags, place_of(arena, m),
            "the checkpoint's tensor '%s' is left out: this run's model "
            "has another output",
            name);
      continue;
    }
    ok = tsr_diag_error(
        diags, place_of(arena, m), "the checkpoint has a tensor '%s', which this run has not",
        name);
  }
  return ok;
}

/* The parts of a value in NF4 have memory of their own while they are read; a part that is another
 * one's replica has none. */
static void open_quantized(loading *l, tsr_part_of_value *parts) {
  int kept = 0;
  for (int i = 0; i < l->parts_count; i++) {
    bool replica = false;
    for (int k = 0; k < kept; k++)
      replica |=
          !memcmp(parts[k].slice.offset, parts[i].slice.offset, sizeof parts[i].slice.offset);
    if (replica) continue;
    tsr_part_of_value *p = &parts[kept++];
    *p = parts[i];
    p->run = p->stride = p->slice.shape[0] * p->slice.shape[1];
    p->address = tsr_memory_new(sizeof(float) * (size_t)p->run);
  }
  l->parts_count = kept;
  l->dtype = TSR_F32;
}

static void close_quantized(const loading *l, tsr_executable *executable, int value) {
  for (int i = 0; i < l->parts_count; i++) {
    tsr_executable_quantize(executable, value, l->parts[i].rank, l->parts[i].address, true);
    free(l->parts[i].address);
  }
}

static int64_t bytes_of(const tsr_graph *g, const tsr_stored *const *stored) {
  int64_t bytes = 0;
  for (int v = 0; v < g->values_count; v++)
    if (stored[v]) bytes += tsr_stored_bytes(stored[v]);
  return bytes;
}

bool tsr_checkpoint_load(
    tsr_arena *arena, const tsr_manifest *m, tsr_executable *executable, tsr_load_kind kind,
    bool verify, tsr_diags *diags) {
  const tsr_graph *g = tsr_executable_graph(executable);
  const tsr_stored **stored = tsr_arena_array(arena, const tsr_stored *, g->values_count + 1);
  tsr_part_of_value *parts =
      tsr_arena_array(arena, tsr_part_of_value, tsr_executable_parts_most(executable));
  tsr_checkpoint_reader *in;
  if (!match(arena, m, g, kind, stored, diags)) return false;
  if (!check_all_used(arena, m, g, kind, stored, diags)) return false;
  if (!tsr_checkpoint_reader_open(arena, m, verify, &in, diags)) return false;
  bool ok = true;
  tsr_command_progress_begin("loading", bytes_of(g, stored), NULL);
  for (int v = 0; ok && v < g->values_count; v++) {
    if (!stored[v]) continue;
    loading l = {tsr_executable_kernels(executable), stored[v], g->values[v].dtype, parts, 0};
    bool quantized = tsr_dtype_is_quantized(g->values[v].dtype);
    l.parts_count = quantized ? tsr_executable_parts(executable, v, false, parts)
                              : tsr_executable_open_parts(executable, v, TSR_VIEW_WRITE, parts);
    if (quantized) open_quantized(&l, parts);
    ok = tsr_checkpoint_reader_read(in, stored[v], wanted, take, &l, diags);
    if (quantized) close_quantized(&l, executable, v);
    else tsr_executable_close_parts(executable, v);
    tsr_command_progress_add(tsr_stored_bytes(stored[v]));
  }
  tsr_command_progress_end();
  tsr_checkpoint_reader_close(in);
  return ok;
}

typedef struct {
  float *into;
} numbers;

static void take_numbers(
    void *context, const tsr_stored_piece *p, int64_t first, int64_t count, const void *elements) {
  const numbers *n = context;
  memcpy(n->into + p->begin[0] + first, elements, sizeof(float) * (size_t)count);
}

bool tsr_checkpoint_history(
    tsr_arena *arena, const tsr_manifest *m, float *ret_loss, float *ret_norm, tsr_diags *diags) {
  static const char *const names[] = {"history.loss", "history.grad_norm"};
  tsr_checkpoint_reader *in;
  if (!tsr_checkpoint_reader_open(arena, m, true, &in, diags)) return false;
  bool ok = true;
  for (int i = 0; ok && i < 2; i++) {
    const tsr_stored *t = tsr_manifest_find(m, names[i]);
    numbers n = {i ? ret_norm : ret_loss};
    bool sound = t && t->dtype == TSR_F32 && t->ndim == 1 && t->shape[0] == m->state.step;
    ok = sound ? tsr_checkpoint_reader_read(in, t, NULL, take_numbers, &n, diags)
               : tsr_diag_failure(
                     diags, place_of(arena, m), "'%s' is not a number for each of %lld steps",
                     names[i], (long long)m->state.step);
  }
  tsr_checkpoint_reader_close(in);
  return ok;
}
