// SPDX-License-Identifier: Apache-2.0
#include "plan/expert_room.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* One layer on one rank. */
typedef struct {
  const tsr_expert_rows *rows;
  int64_t units;     /* whose tokens the rank has, of a microbatch */
  double capacity;   /* as configured; 0: no row is dropped */
  int64_t row_bytes; /* of what the forward pass makes for a row */
} layer;

static bool is_plan(const tsr_task *t) {
  return t->op == TSR_OP_EXPERT_PLAN && t->section == TSR_FORWARD;
}

static bool reads(const tsr_node *n, int value) {
  for (int i = 0; i < n->inputs_count; i++)
    if (n->inputs[i] == value) return true;
  return false;
}

/* What is made by the plan, and of that, up to where rows are combined. */
static int64_t bytes_of_row(const tsr_program *p, int plan) {
  const tsr_graph *g = p->graph;
  bool *of_plan = tsr_arena_array(g->arena, bool, g->values_count);
  int64_t bytes = 2 * tsr_dtype_bytes(TSR_I32);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool made = n->section == TSR_FORWARD && n->outputs_count && reads(n, plan);
    for (int k = 0; k < n->inputs_count && n->section == TSR_FORWARD; k++)
      made |= of_plan[n->inputs[k]];
    if (!made || !tsr_routed_is_rows(g->values[n->outputs[0]].routed)) continue;
    const tsr_tensor *t = &p->tensors[n->outputs[0]];
    of_plan[n->outputs[0]] = true;
    if (t->segment != TSR_SEGMENT_ABSENT)
      bytes += t->shape[t->ndim - 1] * tsr_dtype_bytes(t->dtype);
  }
  return bytes;
}

static layer layer_of(const tsr_program *p, const tsr_task *t) {
  const tsr_lowering *l = &p->lowering;
  int64_t units = l->batch_units > 1 ? l->batch_units : 1;
  if (t->experts->shared[TSR_EP]) units *= l->size[TSR_EP];
  double capacity = p->graph->nodes[t->node].attr.expert_plan.capacity;
  return (layer){t->experts, units, capacity, bytes_of_row(p, t->outputs[0].value)};
}

static bool are_alike(const layer *a, const layer *b) {
  const tsr_expert_rows *x = a->rows, *y = b->rows;
  return x->experts == y->experts && x->choices == y->choices && x->here == y->here &&
         x->tokens == y->tokens && a->capacity == b->capacity && a->row_bytes == b->row_bytes;
}

static int64_t rows_with(const layer *y, double capacity) {
  const tsr_expert_rows *r = y->rows;
  tsr_routed all = {.experts = r->experts, .choices = r->choices};
  if (capacity == 0) return tsr_routed_rows(all, r->tokens, r->here);
  int64_t choices = r->tokens / y->units * r->choices; // of a unit
  double of_unit = (double)choices / (double)r->experts;
  tsr_routed routed = {
      r->experts, r->choices, r->tokens, (int64_t)ceil(capacity * of_unit), r->tokens / y->units};
  return tsr_routed_rows(routed, r->tokens, r->here);
}

static void add_row(const layer *y, double capacity, tsr_text *text) {
  char name[32] = "none dropped";
  int64_t rows = rows_with(y, capacity);
  if (capacity > 0) snprintf(name, sizeof name, "capacity %g", capacity);
  tsr_text_add(
      text, "  %-14s %10s rows  %10s%s\n", name, tsr_text_count(rows).text,
      tsr_text_bytes(rows * y->row_bytes).text, capacity == y->capacity ? ", as planned" : "");
}

/* The configured capacity is one of the rows, in the order of the factors. */
static void print_layer(const layer *y, tsr_text *text) {
  static const double capacities[] = {0, 1, 1.25, 1.5, 2, INFINITY};
  const tsr_expert_rows *r = y->rows;
  tsr_text_add(
      text, "experts of each rank: %lld of %lld, of which a token has %lld; a layer's rows:\n",
      (long long)r->here, (long long)r->experts, (long long)r->choices);
  for (int i = 0; capacities[i] < INFINITY; i++) {
    add_row(y, capacities[i], text);
    if (capacities[i] < y->capacity && y->capacity < capacities[i + 1])
      add_row(y, y->capacity, text);
  }
}

void tsr_expert_room_print(const tsr_programs *programs, tsr_text *text) {
  layer last = {0};
  for (int s = 0; s < programs->pipeline->stages; s++)
    for (int i = 0; i < programs->of_stage[s]->tasks_count; i++) {
      const tsr_task *t = &programs->of_stage[s]->tasks[i];
      if (!is_plan(t)) continue;
      layer here = layer_of(programs->of_stage[s], t);
      if (!last.rows || !are_alike(&last, &here)) print_layer(&here, text);
      last = here;
    }
}
