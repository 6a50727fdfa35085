/* needs: a forward graph with g->loss
 * gives: backward nodes after the forward ones, g->grads
 * breaks: nothing; forward nodes keep their indices */
#include "passes/autodiff.h"
#include "graph/infer.h"
#include "passes/passes.h"
#include <assert.h>
#include <string.h>

typedef struct part {
  struct part *next;
  int value, w; /* w >= 0: the product value * w */
} part;

struct tsr_gradients {
  tsr_graph *g;
  part **parts; /* per value of the forward graph, in the order they were given */
  bool *wanted;
  int values;
};

bool tsr_gradient_wanted(const tsr_gradients *grads, int value) {
  return value < grads->values && grads->wanted[value];
}

void tsr_gradient_give_product(tsr_gradients *grads, int of, int dy, int w) {
  if (!tsr_gradient_wanted(grads, of)) return;
  part **end = &grads->parts[of];
  while (*end) end = &(*end)->next;
  *end = tsr_arena_alloc(grads->g->arena, sizeof **end);
  **end = (part){NULL, dy, w};
}

void tsr_gradient_give(tsr_gradients *grads, int of, int value) {
  tsr_gradient_give_product(grads, of, value, -1);
}

static const char *gradient_name(tsr_graph *g, int of, const char *suffix) {
  return tsr_arena_printf(g->arena, "d.%s%s", g->values[of].name, suffix);
}

/* All products owed to `of` as one node, or -1. */
static int gather_products(tsr_gradients *grads, int of, bool alone) {
  tsr_graph *g = grads->g;
  int count = 0;
  for (part *p = grads->parts[of]; p; p = p->next) count += p->w >= 0;
  if (!count) return -1;
  int *inputs = tsr_arena_array(g->arena, int, 2 * count), n = 0;
  for (part *p = grads->parts[of]; p; p = p->next)
    if (p->w >= 0) inputs[n++] = p->value, inputs[n++] = p->w;
  return tsr_graph_add(
      g, TSR_OP_LINEAR_DX, TSR_BACKWARD, gradient_name(g, of, alone ? "" : ".products"),
      g->values[of].place, n, inputs, NULL);
}

/* The gradient of a value from all that was given to it, or -1. */
static int total(tsr_gradients *grads, int of) {
  tsr_graph *g = grads->g;
  int others = 0;
  for (part *p = grads->parts[of]; p; p = p->next) others += p->w < 0;
  int sum = gather_products(grads, of, !others), k = 0;
  for (part *p = grads->parts[of]; p; p = p->next) {
    if (p->w >= 0) continue;
    k++;
    if (sum < 0) {
      sum = p->value;
      continue;
    }
    const char *suffix = k == others ? "" : tsr_arena_printf(g->arena, ".sum%d", k);
    sum = tsr_graph_add(
        g, TSR_OP_ADD, TSR_BACKWARD, gradient_name(g, of, suffix), g->values[of].place, 2,
        (int[]){sum, p->value}, NULL);
  }
  return sum;
}

/* A value is wanted when a parameter flows into it. */
static void mark_wanted(tsr_gradients *grads) {
  tsr_graph *g = grads->g;
  for (int i = 0; i < grads->values; i++) grads->wanted[i] = g->values[i].kind == TSR_VALUE_PARAM;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool any = false;
    for (int k = 0; k < n->inputs_count; k++) any |= grads->wanted[n->inputs[k]];
    for (int k = 0; k < n->outputs_count; k++) grads->wanted[n->outputs[k]] = any;
  }
}

void tsr_pass_autodiff(tsr_graph *g) {
  assert(g->loss >= 0);
  tsr_gradients grads = {.g = g, .values = g->values_count};
  grads.parts = tsr_arena_array(g->arena, part *, g->values_count);
  grads.wanted = tsr_arena_array(g->arena, bool, g->values_count);
  mark_wanted(&grads);
  int loss_node = g->values[g->loss].node;
  for (int i = g->nodes_count - 1; i >= 0; i--) {
    tsr_gradient_call call = {.g = g, .grads = &grads, .node = i};
    bool any = i == loss_node;
    for (int k = 0; k < g->nodes[i].outputs_count; k++) {
      int value = g->nodes[i].outputs[k];
      call.dy[k] = grads.wanted[value] ? total(&grads, value) : -1;
      any |= call.dy[k] >= 0;
    }
    if (any) tsr_gradient_apply(&call);
  }
  g->grads_count = g->params_count;
  g->grads = tsr_arena_array(g->arena, int, g->params_count);
  for (int i = 0; i < grads.values; i++)
    if (g->values[i].kind == TSR_VALUE_PARAM) g->grads[g->values[i].param] = total(&grads, i);
}
