// SPDX-License-Identifier: Apache-2.0
/* requires: the calls written out. produces: the Graph, with only what its outputs need. */
#include "model/build.h"
#include <stdlib.h>
#include <string.h>

/* Calls stand in order, so one sweep from the end finds all that is needed. */
static void mark_needed(tsr_flat *f) {
  for (int i = 0; i < f->outputs_count; i++) {
    const tsr_flat_value *v = &f->values[f->output_values[i]];
    if (v->kind == TSR_FLAT_CALL) f->calls[v->index].needed = true;
  }
  for (int i = f->calls_count; i-- > 0;) {
    tsr_flat_call *c = &f->calls[i];
    bool minimizes = !strcmp(c->call.op, "backward") || !strcmp(c->call.op, "autodiff");
    if (!c->needed && !(minimizes && f->options->loss)) continue;
    c->needed = true;
    c->statement->needed = true;
    for (int k = 0; k < c->call.inputs_count; k++) {
      const tsr_flat_value *v = &f->values[c->call.inputs[k]];
      if (v->kind == TSR_FLAT_CALL) f->calls[v->index].needed = true;
    }
  }
}

/* What fills an input: `input` and `labels` are other names of tokens and targets where they are of
 * tokens, and of features. */
static const char *data_of(const tsr_input_decl *d, int ndim) {
  if (!strcmp(d->name, "input")) return d->dtype == TSR_I32 ? "tokens" : "features";
  return !strcmp(d->name, "labels") && ndim == 2 ? "targets" : d->name;
}

static bool emit_input(tsr_flat *f, tsr_graph *g, const tsr_input_decl *d, int *ret_value) {
  int64_t shape[TSR_DIMS_MAX];
  int ndim;
  const char *what = tsr_arena_printf(f->arena, "the shape of '%s'", d->name);
  if (!tsr_expr_shape(d->shape, f->scope, what, 1, TSR_DIMS_MAX, shape, &ndim, f->diags))
    return false;
  *ret_value = tsr_graph_input(g, data_of(d, ndim), d->dtype, ndim, shape, d->location);
  tsr_expr_dims(d->shape, TSR_DIMS_MAX, g->values[*ret_value].dims);
  for (int axis = 0; axis < TSR_AXES; axis++) {
    if (d->layout[axis].kind == TSR_SHARD && d->layout[axis].dim >= ndim)
      return tsr_diag_error(
          f->diags, d->location, "input '%s' %s has no dimension %d to split over %s", d->name,
          tsr_value_shape_text(g->arena, &g->values[*ret_value]), d->layout[axis].dim,
          tsr_axis_name(axis));
    g->values[*ret_value].placement[axis] = d->layout[axis];
  }
  return true;
}

/* Inputs and parameters come to be where they are first used. */
static bool value_of(tsr_flat *f, tsr_graph *g, int index, int *ret_value) {
  tsr_flat_value *v = &f->values[index];
  if (v->value == -1 && v->kind == TSR_FLAT_PARAM) {
    f->params[v->index].decl->used = true;
    v->value = tsr_graph_param(g, &f->params[v->index].param);
  } else if (v->value == -1 && v->kind == TSR_FLAT_INPUT) {
    if (!emit_input(f, g, &f->file->inputs[v->index], &v->value)) v->value = -2;
  }
  *ret_value = v->value;
  return v->value >= 0;
}

static const tsr_flat_param *param_of(const tsr_flat *f, int value) {
  const tsr_flat_value *v = &f->values[value];
  return v->kind == TSR_FLAT_PARAM ? &f->params[v->index] : NULL;
}

static bool tp_has_experts(const tsr_param *p) {
  return p->placement[TSR_TP].kind == TSR_SHARD && p->placement[TSR_TP].dim == 0;
}

/* A plan has rows for the experts that its weights have on each rank of tp. */
static bool check_plan(const tsr_flat *f, const tsr_call *call) {
  const tsr_flat_value *v = &f->values[call->inputs[call->inputs_count - 1]];
  const tsr_call *plan = v->kind == TSR_FLAT_CALL ? &f->calls[v->index].call : NULL;
  if (strcmp(call->op, "expert_linear") != 0 || call->inputs_count != 3 || !plan ||
      strcmp(plan->op, "expert_plan") != 0)
    return true;
  const tsr_flat_param *w = param_of(f, call->inputs[1]),
                       *of = param_of(f, plan->inputs[plan->inputs_count - 1]);
  if (!w || !of || tp_has_experts(&w->param) == tp_has_experts(&of->param)) return true;
  return tsr_diag_error(
      f->diags, call->input_places[1],
      "expert_linear: only one of '%s' and '%s', the weights of its plan, is tp: shard(0)",
      w->param.name, of->param.name);
}

/* The nodes of several results have the call's name; what the file calls each is another one. */
static void
name_results(const tsr_flat *f, tsr_graph *g, const tsr_flat_call *c, const int *values) {
  for (int i = 0; c->outputs_count > 1 && i < c->outputs_count; i++)
    g->nodes[g->values[values[i]].node].result =
        tsr_arena_printf(f->arena, "%s%s", c->prefix, c->statement->results[i]);
}

static bool emit_call(tsr_flat *f, tsr_graph *g, tsr_flat_call *c) {
  tsr_call call = c->call;
  int values[TSR_CALL_INPUTS_MAX], count = 0;
  bool ok = check_plan(f, &c->call);
  for (int i = 0; i < call.inputs_count; i++)
    ok &= value_of(f, g, c->call.inputs[i], &call.inputs[i]);
  ok = ok && !c->statement->failed;
  if (c->is_idle) return f->values[c->outputs].value = ok ? call.inputs[0] : -2, ok;
  g->block = c->block;
  if (ok && !tsr_graph_call(g, &call, values, &count, f->diags)) {
    c->statement->failed = true; /* its other repetitions would fail the same way */
    ok = false;
  }
  if (ok && count != c->outputs_count)
    ok = tsr_diag_error(
        f->diags, call.op_place, "%s gives %d result%s, not %d", call.op, count,
        count == 1 ? "" : "s", c->outputs_count);
  if (ok) name_results(f, g, c, values);
  for (int i = 0; i < c->outputs_count; i++) f->values[c->outputs + i].value = ok ? values[i] : -2;
  return ok;
}

/* Autodiff begins at a loss that an op for losses gives. */
static bool check_loss(const tsr_flat *f, const tsr_graph *g, int output, int value) {
  const tsr_value *v = &g->values[value];
  const char *name = f->outputs[output].value;
  if (tsr_value_elements(v) != 1 || v->dtype != TSR_F32)
    return tsr_diag_error(
        f->diags, f->outputs[output].location, "the loss '%s' is %s, not one number", name,
        tsr_value_shape_text(g->arena, v));
  if (!f->options->training || tsr_graph_find_loss(g, value) >= 0) return true;
  return tsr_diag_error(
      f->diags, f->outputs[output].location,
      "the loss '%s' must be a result of cross_entropy or mse", name);
}

/* What backward() takes is the loss, whether or not an output has that name. */
static bool add_minimized(const tsr_flat *f, tsr_graph *g) {
  if (g->minimized < 0 || !f->options->loss || g->loss == g->minimized) return true;
  if (g->loss >= 0)
    return tsr_diag_error(
        f->diags, g->values[g->minimized].location,
        "'%s' is minimized by backward, but the output 'loss' is another value",
        g->values[g->minimized].name);
  tsr_graph_output(g, "loss", g->minimized);
  g->loss = g->minimized;
  return true;
}

static bool emit_outputs(tsr_flat *f, tsr_graph *g) {
  bool ok = true;
  if (f->outputs_count > TSR_GRAPH_OUTPUTS_MAX)
    return tsr_diag_error(
        f->diags, f->outputs[TSR_GRAPH_OUTPUTS_MAX].location, "%d outputs: a graph has %d at most",
        f->outputs_count, TSR_GRAPH_OUTPUTS_MAX);
  for (int i = 0; i < f->outputs_count; i++) {
    int value;
    if (!value_of(f, g, f->output_values[i], &value)) return false;
    tsr_graph_output(g, f->outputs[i].name, value);
    g->outputs[g->outputs_count - 1].location = f->outputs[i].location;
    if (strcmp(f->outputs[i].name, "loss")) continue;
    g->loss = value;
    ok &= check_loss(f, g, i, value);
  }
  return add_minimized(f, g) && ok;
}

static int compare_names(const void *a, const void *b) {
  const tsr_param *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

/* Training updates f32. */
static bool check_dtypes(const tsr_flat *f, const tsr_graph *g) {
  bool ok = true;
  for (int i = 0; i < g->params_count && g->loss >= 0; i++) {
    const tsr_param *p = &g->params[i];
    if (p->dtype == TSR_F32) continue;
    ok = tsr_diag_error(
        f->diags, p->location, "tensor '%s' is %s, but a graph with a loss stores f32", p->name,
        tsr_dtype_name(p->dtype));
    tsr_diag_hint(f->diags, "training_config.precision: bf16 computes in bf16");
  }
  return ok;
}

/* Every rank updates the bias and the counts of a choice of experts whole. */
static bool check_updated(const tsr_flat *f, const tsr_graph *g) {
  bool ok = true;
  for (int i = 0; i < g->nodes_count; i++) {
    int input = tsr_node_updated_input(&g->nodes[i]);
    const tsr_value *v = input < 0 ? NULL : &g->values[g->nodes[i].inputs[input]];
    for (int axis = 0; v && v->kind == TSR_VALUE_PARAM && axis < TSR_AXES; axis++) {
      if (axis == TSR_CP || v->placement[axis].kind != TSR_SHARD) continue;
      ok = tsr_diag_error(
          f->diags, v->location, "'%s' cannot be split over %s: %s updates all of it on every rank",
          v->name, tsr_axis_name(axis), tsr_op_title(g->nodes[i].op));
    }
  }
  return ok;
}

/* Checkpoints and random numbers go by parameter name. */
static bool check_names(const tsr_flat *f, const tsr_graph *g) {
  const tsr_param **params = tsr_arena_array(f->arena, const tsr_param *, g->params_count + 1);
  for (int i = 0; i < g->params_count; i++) params[i] = &g->params[i];
  qsort(params, (size_t)g->params_count, sizeof *params, compare_names);
  bool ok = true;
  for (int i = 1; i < g->params_count; i++)
    if (!strcmp(params[i]->name, params[i - 1]->name))
      ok = tsr_diag_error(
          f->diags, params[i]->location, "two parameters have the name '%s'", params[i]->name);
  return ok;
}

static bool check_unused(const tsr_flat *f) {
  bool ok = true;
  for (int i = 0; i < f->params_count; i++) {
    tsr_param_decl *d = f->params[i].decl;
    if (d->used) continue;
    d->used = true; /* once, not for every repetition */
    ok = tsr_diag_error(
        f->diags, d->location, "parameter '%s' is not used, so it could not be trained",
        f->params[i].param.name);
  }
  for (int i = 0; i < f->calls_count; i++) {
    tsr_statement *s = f->calls[i].statement;
    if (s->needed) continue;
    s->needed = true;
    tsr_diag_warning(f->diags, s->location, "no output needs '%s'", s->results[0]);
  }
  return ok;
}

/* What a stage sends the next one receives, also where no output needs that. */
static bool check_sends(const tsr_flat *f) {
  bool ok = true;
  for (int i = 0; i < f->calls_count; i++) {
    const tsr_flat_call *send = &f->calls[i];
    bool is_received = strcmp(send->call.op, "send") != 0;
    for (int k = i + 1; k < f->calls_count && !is_received; k++)
      is_received = !strcmp(f->calls[k].call.op, "receive") && f->calls[k].call.inputs_count &&
                    f->calls[k].call.inputs[0] == send->outputs;
    if (is_received) continue;
    const char *result = send->call.result;
    ok = tsr_diag_error(
        f->diags, send->call.op_place, "send: no receive has '%s', so no stage begins with it",
        result);
    tsr_diag_hint(f->diags, "receive(%s, axis=pp, from=…) begins the next stage", result);
  }
  return ok;
}

bool tsr_flat_emit(tsr_flat *flat, tsr_graph *g) {
  bool ok = check_sends(flat);
  mark_needed(flat);
  tsr_graph_reserve(g, flat->calls_count, flat->values_count, flat->params_count);
  for (int i = 0; i < flat->calls_count; i++)
    if (flat->calls[i].needed) ok &= emit_call(flat, g, &flat->calls[i]);
  g->block = -1;
  if (!ok || !emit_outputs(flat, g) || !check_names(flat, g) || !check_dtypes(flat, g) ||
      !check_updated(flat, g))
    return false;
  return !(flat->options->training && g->loss >= 0) || check_unused(flat);
}
