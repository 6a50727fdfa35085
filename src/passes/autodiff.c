// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph with g->loss
 * produces: backward nodes after the forward ones, accumulation over microbatches, g->grads
 * invalidates: nothing; forward nodes keep their indices */
#include "passes/autodiff.h"
#include "passes/gradient_terms.h"
#include "passes/passes.h"
#include <assert.h>
#include <string.h>

typedef tsr_gradient_part part;

static const char *gradient_name(tsr_graph *g, int of, const char *suffix) {
  return tsr_arena_printf(g->arena, "d.%s%s", g->values[of].name, suffix);
}

/* What is added from here on belongs to a forward node. */
static void stamp(tsr_graph *g, int of) {
  g->of = of;
  g->block = of < 0 ? -1 : g->nodes[of].block;
}

/* Makes all matmuls of one precision that are summed into the gradient of `of` one node, and that
 * the first of its parts. It belongs to the first of the forward nodes that use the value: no later
 * stage waits for it. */
static void join_products_of(tsr_gradients *grads, int of, tsr_section section, bool fp8) {
  tsr_graph *g = grads->g;
  part *others = NULL, **end = &others;
  int *inputs = NULL, count = 0, n = 0, of_node = -1, saved = g->of;
  tsr_attrs attrs = {0};
  for (part *p = grads->parts[of]; p; p = p->next) {
    if (p->w < 0 || (p->fp8 != TSR_FP8_OFF) != fp8) continue;
    of_node = p->of;
    attrs.linear.fp8 = p->fp8;
    count++;
  }
  if (!count) return;
  inputs = tsr_arena_array(g->arena, int, 2 * count);
  for (part *p = grads->parts[of], *next; p; p = next) {
    next = p->next;
    if (p->w >= 0 && (p->fp8 != TSR_FP8_OFF) == fp8) {
      inputs[n++] = p->value;
      inputs[n++] = p->w;
    } else {
      *end = p;
      end = &p->next;
    }
  }
  *end = NULL;
  part *joined = tsr_arena_alloc(g->arena, sizeof *joined);
  const char *name = gradient_name(g, of, !others ? "" : fp8 ? ".fp8_products" : ".products");
  stamp(g, of_node);
  int value =
      tsr_graph_add(g, TSR_OP_LINEAR_DX, section, name, g->values[of].location, n, inputs, &attrs);
  stamp(g, saved);
  *joined = (part){others, value, -1, TSR_FP8_OFF, of_node};
  grads->parts[of] = joined;
}

static void join_products(tsr_gradients *grads, int of, tsr_section section) {
  join_products_of(grads, of, section, false);
  join_products_of(grads, of, section, true);
}

/* The gradient of a value: the sum of all that was given to it, or -1. */
static int total(tsr_gradients *grads, int of, tsr_section section) {
  tsr_graph *g = grads->g;
  join_products(grads, of, section);
  if (!grads->parts[of]) return -1;
  int sum = grads->parts[of]->value, k = 0;
  for (part *p = grads->parts[of]->next; p; p = p->next) {
    const char *suffix = p->next ? tsr_arena_printf(g->arena, ".sum%d", ++k) : "";
    sum = tsr_graph_add(
        g, TSR_OP_ADD, section, gradient_name(g, of, suffix), g->values[of].location, 2,
        (int[]){sum, p->value}, NULL);
  }
  return sum;
}

static int accumulated(tsr_graph *g, int value) {
  if (g->microbatches <= 1) return value;
  const char *name = tsr_arena_printf(g->arena, "sum.%s", g->values[value].name);
  return tsr_graph_add(
      g, TSR_OP_ACCUMULATE, TSR_BACKWARD, name, g->values[value].location, 1, &value, NULL);
}

/* Each part is accumulated by itself, so that its units are added in the tree's order, over
 * microbatches and then over ranks; the parts are added when they are complete. */
static void accumulate_parts(tsr_gradients *grads, int of) {
  join_products(grads, of, TSR_BACKWARD);
  for (part *p = grads->parts[of]; p; p = p->next) {
    stamp(grads->g, p->of);
    p->value = accumulated(grads->g, p->value);
  }
  stamp(grads->g, -1);
}

static bool is_trained(const tsr_graph *g, const tsr_value *v) {
  return v->kind == TSR_VALUE_PARAM && !g->params[v->param].is_frozen;
}

/* A value is wanted when a trained parameter flows into it, fixed when nothing does that changes
 * with the microbatch; then it is made once a step. */
static void mark_values(tsr_gradients *grads) {
  tsr_graph *g = grads->g;
  for (int i = 0; i < grads->values; i++) {
    grads->wanted[i] = is_trained(g, &g->values[i]);
    grads->fixed[i] = g->values[i].kind != TSR_VALUE_INPUT;
  }
  for (int i = 0; i < g->nodes_count; i++) {
    tsr_node *n = &g->nodes[i];
    bool any = false, fixed = !(tsr_op_facts(n->op) & TSR_FACT_LOSS);
    for (int k = 0; k < n->inputs_count; k++) {
      any |= grads->wanted[n->inputs[k]];
      fixed &= grads->fixed[n->inputs[k]];
    }
    for (int k = 0; k < n->outputs_count; k++) {
      grads->wanted[n->outputs[k]] = any;
      grads->fixed[n->outputs[k]] = fixed;
    }
    if (fixed) n->section = TSR_PROLOGUE;
  }
}

/* The gradients of the forward nodes' inputs, last node first: of those that are fixed, or of the
 * rest. */
static void go_back(tsr_gradients *grads, int nodes, int loss_node, bool fixed) {
  tsr_graph *g = grads->g;
  for (int i = nodes - 1; i >= 0; i--) {
    if (grads->fixed[g->nodes[i].outputs[0]] != fixed) continue;
    tsr_gradient_call call = {.g = g, .grads = grads, .node = i};
    stamp(g, i);
    call.section = fixed ? TSR_UPDATE : TSR_BACKWARD;
    bool any = i == loss_node;
    for (int k = 0; k < g->nodes[i].outputs_count; k++) {
      int value = g->nodes[i].outputs[k];
      call.dy[k] = grads->wanted[value] ? total(grads, value, call.section) : -1;
      any |= call.dy[k] >= 0;
    }
    if (any) tsr_gradient_apply(&call);
  }
  stamp(g, -1);
}

/* A reduction that a file wrote after the loss is left aside: it comes after the microbatches. */
static void accumulate_loss(tsr_graph *g) {
  int loss = g->loss;
  stamp(g, g->values[tsr_graph_find_loss(g, loss)].node);
  g->loss = accumulated(g, tsr_graph_find_loss(g, loss));
  stamp(g, -1);
  for (int i = 0; i < g->outputs_count; i++)
    if (g->outputs[i].value == loss) g->outputs[i].value = g->loss;
}

/* Dimension 0 of a gradient is what it is of the parameter: experts, or nothing in particular. */
static void mark_experts(tsr_graph *g) {
  for (int p = 0; p < g->params_count; p++) {
    int64_t experts = tsr_param_is_of_experts(&g->params[p]) ? g->params[p].shape[0] : 0;
    if (g->grads[p] >= 0) g->values[g->grads[p]].routed = (tsr_routed){.experts = experts};
  }
}

void tsr_pass_autodiff(tsr_graph *g) {
  int loss = tsr_graph_find_loss(g, g->loss);
  assert(loss >= 0);
  tsr_gradients grads = {.g = g, .values = g->values_count, .forward_counts = -1};
  grads.parts = tsr_arena_array(g->arena, part *, g->values_count);
  grads.wanted = tsr_arena_array(g->arena, bool, g->values_count);
  grads.fixed = tsr_arena_array(g->arena, bool, g->values_count);
  mark_values(&grads);
  int nodes = g->nodes_count, loss_node = g->values[loss].node;
  go_back(&grads, nodes, loss_node, false);
  accumulate_loss(g);
  /* what parameters alone are made of is gone through once, with complete gradients */
  for (int i = 0; i < grads.values; i++)
    if (grads.fixed[i]) accumulate_parts(&grads, i);
  go_back(&grads, nodes, loss_node, true);
  g->grads_count = g->params_count;
  g->grads = tsr_arena_array(g->arena, int, g->params_count);
  for (int i = 0; i < grads.values; i++)
    if (g->values[i].kind == TSR_VALUE_PARAM)
      g->grads[g->values[i].param] = total(&grads, i, TSR_UPDATE);
  mark_experts(g);
}
