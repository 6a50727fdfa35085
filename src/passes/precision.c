// SPDX-License-Identifier: Apache-2.0
/* requires: a whole graph with stages, before placement; all its numbers are f32
 * produces: a graph in which what lies between parameters and losses is stored in half precision,
 * on working copies of the parameters, or, of frozen ones, on the only copy; with fp16 a loss scale
 * invalidates: indices; the new graph has its own
 *
 * (Micikevicius et al., "Mixed precision training", 2018) What is a sum over ranks is the placement
 * pass's matter: it keeps such a sum in f32 until it is complete, or adds ranks of tp in half
 * precision. A linear layer and its bias are rounded once, behind the bias, as PyTorch's addmm is:
 * what lies between them is f32, whether a target fuses them or not; but a sum that ranks of tp add
 * in half precision is rounded before it. An activation reads the rounded sum, which the backward
 * pass reads. */
#include "passes/passes.h"
#include <assert.h>
#include <string.h>

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  tsr_precision_types how;
  int *map;         /* per old value: the new one */
  int *copies;      /* per old value: of a parameter its working copy */
  bool *wide;       /* per old value: stays f32 */
  bool *half;       /* per old value: a parameter that is stored in half precision */
  int step_scalars; /* of the new graph, where the loss is scaled */
} narrowing;

static bool is_update(const tsr_node *n) { return tsr_op_facts(n->op) & TSR_FACT_UPDATE; }

/* ---- what stays f32 ---- */

/* What flows back into a parameter, and the sums of it. */
static void mark_gradients(narrowing *w, const tsr_node *n) {
  const tsr_graph *g = w->old;
  bool sums = n->section == TSR_UPDATE || n->op == TSR_OP_ACCUMULATE;
  for (int i = 0; i < n->inputs_count && sums; i++) {
    int from = g->values[n->inputs[i]].node;
    if (from >= 0 && g->nodes[from].section > TSR_FORWARD) w->wide[n->inputs[i]] = true;
  }
}

/* A parameter that an update other than an optimizer's writes: what it keeps are counts and their
 * bias. */
static void mark_kept(narrowing *w, const tsr_node *n) {
  if (n->op == TSR_OP_EXPERT_BIAS || n->op == TSR_OP_EXPERT_LOAD) w->wide[n->inputs[0]] = true;
}

static void mark_node(narrowing *w, const tsr_node *n) {
  unsigned facts = tsr_op_facts(n->op);
  bool reads = facts & (TSR_FACT_WIDE | TSR_FACT_F32_INPUTS);
  bool all =
      facts & (TSR_FACT_WIDE | TSR_FACT_GRADIENT | TSR_FACT_F32_RESULT | TSR_FACT_F32_OUTPUT) ||
      n->section == TSR_UPDATE;
  for (int o = 0; o < n->outputs_count; o++)
    if (all || (facts & TSR_FACT_STATISTICS && o > 0)) w->wide[n->outputs[o]] = true;
  for (int i = 0; i < n->inputs_count && reads; i++)
    if (!(facts & TSR_FACT_F32_INPUTS) || w->old->values[n->inputs[i]].kind != TSR_VALUE_PARAM)
      w->wide[n->inputs[i]] = true; /* a parameter is what its update writes */
  mark_gradients(w, n);
  mark_kept(w, n);
}

/* By the forward pass: what the backward pass reads, and computes again for that, depends on what
 * is kept. */
static int *count_reads(const tsr_graph *g) {
  int *reads = tsr_arena_array(g->arena, int, g->values_count + 1);
  for (int i = 0; i < g->outputs_count; i++) reads[g->outputs[i].value]++;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    for (int k = 0; k < n->inputs_count && n->section <= TSR_FORWARD; k++)
      reads[n->inputs[k]] += k != tsr_op_shape_input(n->op, n->inputs_count);
  }
  return reads;
}

/* Whether a linear layer's sum is added over tp in half precision: its weight is row-parallel. */
static bool is_half_tp_sum(const tsr_graph *g, const tsr_node *linear) {
  const tsr_value *w = &g->values[linear->inputs[1]];
  tsr_placement tp = w->placement[TSR_TP];
  bool rows = w->kind == TSR_VALUE_PARAM && tp.kind == TSR_SHARD && tp.dim == 1;
  return rows && g->units.tp_in_half && g->units.tp > 1;
}

/* What a linear layer gives, if nothing but the addition of its bias reads it. */
static void mark_bias_sums(narrowing *w) {
  const tsr_graph *g = w->old;
  const int *reads = count_reads(g);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool adds = n->op == TSR_OP_ADD && n->inputs[0] != n->inputs[1];
    if (!adds || n->section > TSR_FORWARD) continue;
    const tsr_value *y = &g->values[n->inputs[0]], *row = &g->values[n->inputs[1]];
    bool linear = y->kind == TSR_VALUE_NODE && g->nodes[y->node].op == TSR_OP_LINEAR;
    if (linear && is_half_tp_sum(g, &g->nodes[y->node])) continue;
    if (linear && row->ndim == 1 && y->ndim > 1 && reads[n->inputs[0]] == 1)
      w->wide[n->inputs[0]] = true;
  }
}

static bool mark(narrowing *w, int value, bool wide) {
  bool is_new = wide && !w->wide[value];
  w->wide[value] |= wide;
  return is_new;
}

/* What an op that keeps its input's dtype gives in f32, it must be given in f32; and what is
 * computed again is what it was, though others read it. */
static bool mark_alike(narrowing *w, const tsr_node *n) {
  bool keeps = tsr_op_facts(n->op) & TSR_FACT_KEEPS_DTYPE, changed = false;
  int tensors = n->op == TSR_OP_CONCAT ? n->inputs_count : 1;
  for (int k = 0; keeps && k < tensors; k++)
    changed |= mark(w, n->inputs[k], w->wide[n->outputs[0]]);
  for (int o = 0; o < n->outputs_count && n->again; o++) {
    int first = w->old->nodes[n->of].outputs[o];
    changed |= mark(w, first, w->wide[n->outputs[o]]);
    changed |= mark(w, n->outputs[o], w->wide[first]);
  }
  return changed;
}

static void mark_wide(narrowing *w) {
  const tsr_graph *g = w->old;
  for (int i = 0; i < g->nodes_count; i++) mark_node(w, &g->nodes[i]);
  for (int i = 0; i < g->outputs_count; i++) w->wide[g->outputs[i].value] = true;
  for (int p = 0; p < g->grads_count; p++)
    if (g->grads[p] >= 0) w->wide[g->grads[p]] = true;
  mark_bias_sums(w);
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = g->nodes_count - 1; i >= 0; i--) changed |= mark_alike(w, &g->nodes[i]);
  }
}

/* ---- values and nodes ---- */

static void copy_source(narrowing *w, int old) {
  int value = tsr_graph_copy_value(w->g, &w->old->values[old]);
  if (w->half[old]) w->g->values[value].dtype = w->how.dtype;
  w->map[old] = value;
}

/* Whether a node reads parameters in half precision. */
static bool reads_half(const narrowing *w, const tsr_node *n) {
  unsigned facts = tsr_op_facts(n->op);
  bool wide = facts & (TSR_FACT_WIDE | TSR_FACT_F32_RESULT | TSR_FACT_F32_INPUTS) ||
              (facts & TSR_FACT_KEEPS_DTYPE && w->wide[n->outputs[0]]);
  return !is_update(n) && !wide;
}

/* Whether a node reads input i by a parameter's working copy. */
static bool reads_copy(const narrowing *w, const tsr_node *n, int i) {
  bool param = w->old->values[n->inputs[i]].kind == TSR_VALUE_PARAM;
  bool shape_only = i == tsr_op_shape_input(n->op, n->inputs_count);
  if (tsr_dtype_is_quantized(w->old->values[n->inputs[i]].dtype)) return false;
  return param && !w->half[n->inputs[i]] && w->how.store == TSR_STORE_F32 && !shape_only &&
         reads_half(w, n);
}

/* What a graph that shares the memory of `stored` has of a parameter there. */
static bool is_half_in(const tsr_graph *stored, int param) {
  for (int v = 0; v < stored->values_count; v++)
    if (stored->values[v].kind == TSR_VALUE_PARAM && stored->values[v].param == param)
      return tsr_dtype_is_half(stored->values[v].dtype);
  return false;
}

static bool is_frozen(const narrowing *w, int param) {
  return w->old->params[param].is_frozen || w->how.only_reads;
}

/* A frozen parameter is as its working copy would be, unless an op reads it in f32. */
static void choose_half(narrowing *w) {
  const tsr_graph *g = w->old;
  for (int v = 0; v < g->values_count; v++) {
    if (g->values[v].kind != TSR_VALUE_PARAM) continue;
    bool frozen = is_frozen(w, g->values[v].param);
    if (tsr_dtype_is_quantized(g->values[v].dtype)) continue;
    w->half[v] = !w->wide[v] && (frozen || w->how.store != TSR_STORE_F32);
    if (frozen && w->how.stored) w->half[v] = is_half_in(w->how.stored, g->values[v].param);
  }
  for (int i = 0; i < g->nodes_count && !w->how.stored; i++) {
    const tsr_node *n = &g->nodes[i];
    for (int k = 0; k < n->inputs_count; k++) {
      int param =
          g->values[n->inputs[k]].kind == TSR_VALUE_PARAM ? g->values[n->inputs[k]].param : -1;
      bool shape_only = k == tsr_op_shape_input(n->op, n->inputs_count);
      if (param >= 0 && is_frozen(w, param) && !shape_only && !reads_half(w, n))
        w->half[n->inputs[k]] = false;
    }
  }
}

/* Made once a step where the parameter is; other stages receive the copy. */
static int add_copy(narrowing *w, int old) {
  const tsr_value *v = &w->old->values[old];
  const char *name = tsr_arena_printf(w->g->arena, "%s.%s", v->name, tsr_dtype_name(w->how.dtype));
  int copy =
      tsr_graph_add(w->g, TSR_OP_CAST, TSR_PROLOGUE, name, v->location, 1, &w->map[old], NULL);
  w->g->values[copy].dtype = w->how.dtype;
  w->g->nodes[w->g->nodes_count - 1].stage = tsr_value_stage(w->old, old);
  return copy;
}

/* In the parameters' order. */
static void add_copies(narrowing *w) {
  const tsr_graph *g = w->old;
  bool *read = tsr_arena_array(g->arena, bool, g->values_count);
  for (int i = 0; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++)
      if (reads_copy(w, &g->nodes[i], k)) read[g->nodes[i].inputs[k]] = true;
  for (int v = 0; v < g->values_count; v++)
    if (read[v]) w->copies[v] = add_copy(w, v);
}

static void append_step_scalars(narrowing *w, tsr_node *n) {
  int *inputs = tsr_arena_array(w->g->arena, int, n->inputs_count + 1);
  memcpy(inputs, n->inputs, sizeof *inputs * (size_t)n->inputs_count);
  inputs[n->inputs_count++] = w->step_scalars;
  n->inputs = inputs;
}

static void scale_loss(narrowing *w, tsr_node *n) {
  if (n->op == TSR_OP_CE_LOSS_DX) n->attr.ce_loss_dx.scaled = true;
  else if (
      n->op == TSR_OP_SQUARED_DX || n->op == TSR_OP_CLIP || n->op == TSR_OP_BALANCE_LOSS_DX ||
      n->op == TSR_OP_ROUTER_Z_LOSS_DX)
    append_step_scalars(w, n);
}

static void copy_node(narrowing *w, int old) {
  const tsr_node *n = &w->old->nodes[old];
  int *inputs = tsr_arena_array(w->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++)
    inputs[i] = reads_copy(w, n, i) ? w->copies[n->inputs[i]] : w->map[n->inputs[i]];
  tsr_graph_copy_node(w->g, w->old, old, inputs);
  tsr_node *copy = &w->g->nodes[w->g->nodes_count - 1];
  if (w->how.dtype == TSR_F16) scale_loss(w, copy);
  for (int o = 0; o < copy->outputs_count; o++) {
    tsr_value *v = &w->g->values[copy->outputs[o]];
    w->map[n->outputs[o]] = copy->outputs[o];
    if (tsr_op_facts(n->op) & TSR_FACT_KEEPS_DTYPE) v->dtype = w->g->values[inputs[0]].dtype;
    else if (!w->wide[n->outputs[o]]) v->dtype = w->how.dtype;
  }
}

tsr_graph *tsr_pass_precision(const tsr_graph *old, tsr_precision_types how) {
  assert(tsr_dtype_is_half(how.dtype) && (how.store == TSR_STORE_F32 || how.dtype == TSR_BF16));
  narrowing w = {.old = old, .g = tsr_graph_derive(old), .how = how};
  w.map = tsr_arena_array(old->arena, int, old->values_count);
  w.copies = tsr_arena_array(old->arena, int, old->values_count);
  w.wide = tsr_arena_array(old->arena, bool, old->values_count);
  w.half = tsr_arena_array(old->arena, bool, old->values_count);
  mark_wide(&w);
  choose_half(&w);
  for (int v = 0; v < old->values_count; v++)
    if (old->values[v].kind != TSR_VALUE_NODE) copy_source(&w, v);
  add_copies(&w);
  if (old->step_scalars >= 0) w.g->step_scalars = w.map[old->step_scalars];
  if (how.dtype == TSR_F16) w.step_scalars = tsr_graph_step_scalars(w.g);
  int step_scalars = w.g->step_scalars;
  for (int i = 0; i < old->nodes_count; i++) copy_node(&w, i);
  tsr_graph_map_ends(w.g, old, w.map);
  w.g->step_scalars = step_scalars;
  return w.g;
}
