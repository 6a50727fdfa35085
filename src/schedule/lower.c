/* needs: a graph with placements
 * gives: tasks in the graph's order, with local shapes and the units that split their sums
 * breaks: nothing */
#include "schedule/program.h"
#include <assert.h>
#include <string.h>

typedef struct {
  tsr_program *p;
  const tsr_graph *g;
  tsr_arena *arena;
} lowering;

bool tsr_op_is_collective(tsr_op op) { return tsr_op_facts(op) & TSR_FACT_COLLECTIVE; }

int64_t tsr_tensor_elements(const tsr_tensor *t) {
  int64_t n = t->units ? t->units : 1;
  for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}

int64_t tsr_program_bytes(const tsr_program *program) {
  int64_t sum = 0;
  for (int s = 0; s < TSR_SEGMENTS; s++) sum += program->bytes[s];
  return sum;
}

static tsr_tensor local_tensor(const lowering *l, int value) {
  const tsr_value *v = &l->g->values[value];
  static const tsr_segment segments[] = {
      [TSR_VALUE_INPUT] = TSR_SEGMENT_INPUT, [TSR_VALUE_HYPER] = TSR_SEGMENT_INPUT,
      [TSR_VALUE_CONST] = TSR_SEGMENT_CONST, [TSR_VALUE_PARAM] = TSR_SEGMENT_PARAM,
      [TSR_VALUE_STATE] = TSR_SEGMENT_STATE, [TSR_VALUE_NODE] = TSR_SEGMENT_WORK};
  tsr_tensor t = {.value = value, .segment = segments[v->kind], .offset = -1, .ndim = v->ndim};
  memcpy(t.shape, v->shape, sizeof t.shape);
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_SHARD) t.shape[v->placement[a].dim] /= l->p->lowering.size[a];
  t.units = v->units;
  if (v->placement[TSR_TP].kind == TSR_PARTIAL) t.units /= l->p->lowering.size[TSR_TP];
  return t;
}

/* The axis that a collective (or the local cut of scatter) works on. */
static int axis_of(const tsr_node *n) {
  return tsr_op_facts(n->op) & (TSR_FACT_COLLECTIVE | TSR_FACT_LOCAL_CUT) ? (int)n->attr[0] : -1;
}

bool tsr_program_is_alias(const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  if (n->op == TSR_OP_RESHAPE) return true;
  if (n->op == TSR_OP_SUM_UNITS) return p->tensors[n->inputs[0]].units == 1;
  int axis = axis_of(n);
  return axis >= 0 && p->lowering.size[axis] == 1;
}

/* How many units the sum that a task computes is made of on this rank: over the batch when it is
 * owed over dp, over tp's units when it is owed over tp in one piece. */
static int64_t units_of(const lowering *l, const tsr_node *n) {
  if (!n->outputs_count || tsr_op_is_collective(n->op)) return 1;
  const tsr_value *out = &l->g->values[n->outputs[0]];
  if (n->op == TSR_OP_CE_STATS) return l->p->tensors[n->outputs[0]].shape[out->ndim - 2];
  if (n->op == TSR_OP_NORM_STATS || n->op == TSR_OP_EMBEDDING) return 1;
  if (out->placement[TSR_DP].kind == TSR_PARTIAL) return l->p->lowering.batch_units;
  if (out->placement[TSR_TP].kind == TSR_PARTIAL && !out->units) return l->p->lowering.tp_units;
  return 1;
}

static void lower_node(lowering *l, int index) {
  const tsr_node *n = &l->g->nodes[index];
  for (int o = 0; o < n->outputs_count; o++)
    l->p->tensors[n->outputs[o]] = local_tensor(l, n->outputs[o]);
  if (tsr_program_is_alias(l->p, index)) return;
  tsr_task *t = &l->p->tasks[l->p->tasks_count++];
  *t = (tsr_task){
      .node = index, .op = n->op, .section = n->section, .inputs_count = n->inputs_count};
  t->axis = axis_of(n);
  t->units = units_of(l, n);
  if (n->section != TSR_UPDATE) l->p->update_begin = l->p->tasks_count;
}

/* Segments that live as long as the run: every value its place, in the graph's order. */
static void place_sources(lowering *l) {
  for (int i = 0; i < l->g->values_count; i++) {
    if (l->g->values[i].kind == TSR_VALUE_NODE) continue;
    tsr_tensor *t = &l->p->tensors[i];
    *t = local_tensor(l, i);
    t->offset = l->p->bytes[t->segment];
    l->p->bytes[t->segment] += (tsr_tensor_elements(t) * 4 + 63) / 64 * 64;
  }
}

/* Copies the tensors, now with offsets, into the tasks; aliases take their source's offset. */
static void bind_tensors(lowering *l) {
  for (int i = 0; i < l->g->nodes_count; i++) {
    const tsr_node *n = &l->g->nodes[i];
    if (!tsr_program_is_alias(l->p, i)) continue;
    const tsr_tensor *from = &l->p->tensors[n->inputs[0]];
    tsr_tensor *to = &l->p->tensors[n->outputs[0]];
    to->segment = from->segment;
    to->offset = from->offset;
  }
  for (int i = 0; i < l->p->tasks_count; i++) {
    tsr_task *t = &l->p->tasks[i];
    const tsr_node *n = &l->g->nodes[t->node];
    if (!t->inputs) t->inputs = tsr_arena_array(l->arena, tsr_tensor, n->inputs_count);
    for (int k = 0; k < n->inputs_count; k++) t->inputs[k] = l->p->tensors[n->inputs[k]];
    for (int k = 0; k < n->outputs_count; k++) t->outputs[k] = l->p->tensors[n->outputs[k]];
  }
}

tsr_program *tsr_program_make(
    const tsr_graph *graph, const tsr_lowering *how, tsr_scratch_rule *scratch,
    const void *context) {
  tsr_program *p = tsr_arena_alloc(graph->arena, sizeof *p);
  *p = (tsr_program){.graph = graph, .lowering = *how};
  p->tasks = tsr_arena_array(graph->arena, tsr_task, graph->nodes_count);
  p->tensors = tsr_arena_array(graph->arena, tsr_tensor, graph->values_count);
  lowering l = {.p = p, .g = graph, .arena = graph->arena};
  place_sources(&l);
  for (int i = 0; i < graph->nodes_count; i++) lower_node(&l, i);
  bind_tensors(&l); /* shapes, for the scratch rule */
  if (scratch)
    for (int i = 0; i < p->tasks_count; i++)
      p->tasks[i].scratch_bytes = scratch(&p->tasks[i], p, context);
  tsr_program_plan_memory(p);
  bind_tensors(&l); /* offsets */
  return p;
}
