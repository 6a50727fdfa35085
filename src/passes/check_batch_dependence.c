// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph of a microbatch, and the same file's graph of all of a step's samples
 * produces: whether they are one but for shapes: where a number or a node depends on `batch`, what
 * the step computes depends on how it is split into microbatches, which the recipe does not fix
 * invalidates: nothing */
#include "passes/passes.h"
#include <string.h>

static bool depends(const char *what, const char *name, tsr_location location, tsr_diags *diags) {
  tsr_diag_error(
      diags, location, "%s '%s' depends on batch, the samples of a microbatch: a step has several",
      what, name);
  tsr_diag_hint(diags, "one microbatch a step, or numbers without batch");
  return false;
}

static bool same_init(const tsr_init *a, const tsr_init *b) {
  return a->kind == b->kind && a->a == b->a && a->b == b->b &&
         !memcmp(a->scaling, b->scaling, sizeof a->scaling);
}

static bool same_param(const tsr_param *a, const tsr_param *b) {
  return tsr_params_match(a, b) && same_init(&a->init, &b->init);
}

/* A slice along samples is split where its samples are: its bounds follow their number. */
static bool is_split_along_samples(const tsr_graph *a, const tsr_graph *b, const tsr_node *n) {
  int dim = n->attr.slice.dim, x = n->inputs[0];
  return a->values[x].shape[dim] != b->values[x].shape[dim];
}

/* What parameters alone make has no samples. */
static bool same_weight(const tsr_graph *g, const tsr_graph *step, int value) {
  const tsr_value *a = &g->values[value], *b = &step->values[value];
  return a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

static bool same_const(const tsr_graph *g, const tsr_graph *step, int value) {
  const tsr_value *a = &g->values[value], *b = &step->values[value];
  return a->kind != TSR_VALUE_CONST || (b->kind == TSR_VALUE_CONST && same_init(a->init, b->init));
}

static bool same_node(const tsr_graph *g, const tsr_graph *step, const bool *of_samples, int i) {
  const tsr_node *a = &g->nodes[i], *b = &step->nodes[i];
  if (a->op != b->op || a->inputs_count != b->inputs_count) return false;
  if (memcmp(a->inputs, b->inputs, sizeof *a->inputs * (size_t)a->inputs_count)) return false;
  for (int k = 0; k < a->inputs_count; k++)
    if (!same_const(g, step, a->inputs[k])) return false;
  if (!of_samples[a->outputs[0]] && !same_weight(g, step, a->outputs[0])) return false;
  if (a->op == TSR_OP_SLICE && is_split_along_samples(g, step, a)) return true;
  return tsr_attrs_equal(a->op, &a->attr, &b->attr);
}

bool tsr_pass_check_numbers(const tsr_graph *g, const tsr_graph *step, tsr_diags *diags) {
  for (int p = 0; p < g->params_count; p++)
    if (p >= step->params_count || !same_param(&g->params[p], &step->params[p]))
      return depends("parameter", g->params[p].name, g->params[p].location, diags);
  if (step->params_count > g->params_count) {
    const tsr_param *more = &step->params[g->params_count];
    return depends("parameter", more->name, more->location, diags);
  }
  const bool *of_samples = tsr_graph_depends_on_inputs(g);
  for (int i = 0; i < g->nodes_count; i++)
    if (i >= step->nodes_count || !same_node(g, step, of_samples, i))
      return depends("what makes", g->nodes[i].name, g->nodes[i].location, diags);
  if (step->nodes_count == g->nodes_count) return true;
  const tsr_node *more = &step->nodes[g->nodes_count];
  return depends("what makes", more->name, more->location, diags);
}
