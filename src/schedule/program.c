// SPDX-License-Identifier: Apache-2.0
/* Queries on a program: sizes, which nodes it has, and which of them share bytes. */
#include "schedule/program.h"
#include <assert.h>

bool tsr_op_is_collective(tsr_op op) { return tsr_op_facts(op) & TSR_FACT_COLLECTIVE; }

int64_t tsr_tensor_elements(const tsr_tensor *t) {
  int64_t n = t->units ? t->units : 1;
  for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}

int64_t tsr_tensor_bytes(const tsr_tensor *t) {
  if (!tsr_dtype_is_quantized(t->dtype)) return tsr_tensor_elements(t) * tsr_dtype_bytes(t->dtype);
  tsr_quantized_layout layout = tsr_tensor_quantized_layout(t);
  return tsr_quantized_bytes(&layout);
}

tsr_quantized_layout tsr_tensor_quantized_layout(const tsr_tensor *t) {
  return (tsr_quantized_layout){
      t->shape[0], t->shape[1], t->unit_shape[0], t->unit_shape[1], tsr_dtype_format(t->dtype)};
}

tsr_tensor_slice tsr_program_slice(const tsr_program *p, int value, const int *coord) {
  const tsr_value *v = &p->graph->values[value];
  const tsr_tensor *t = &p->tensors[value];
  tsr_tensor_slice slice = {.ndim = v->ndim};
  assert(v->ndim <= TSR_SLICE_DIMS_MAX);
  for (int d = 0; d < v->ndim; d++) {
    slice.shape[d] = t->shape[d];
    slice.global[d] = v->shape[d];
  }
  int64_t block[TSR_SLICE_DIMS_MAX] = {0};
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement place = v->placement[a];
    int size = (int)p->lowering.size[a];
    if (place.kind != TSR_SHARD) continue;
    block[place.dim] = block[place.dim] * tsr_placement_blocks(place, size) +
                       tsr_placement_block(place, size, coord[a]);
  }
  for (int d = 0; d < v->ndim; d++) slice.offset[d] = block[d] * slice.shape[d];
  return slice;
}

static bool
holds(const tsr_program *p, const tsr_placement *placement, int but_axis, const int *coord) {
  bool all = true;
  for (int a = 0; a < TSR_AXES; a++)
    if (a != but_axis)
      all &= tsr_placement_holds(placement[a], (int)p->lowering.size[a], coord[a]) != 0;
  return all;
}

bool tsr_program_holds(const tsr_program *p, int value, const int *coord) {
  return holds(p, p->graph->values[value].placement, -1, coord);
}

/* The operands by which a rank runs a task: its outputs, else the first input. A wait for a bucket
 * is for values of several. */
static const tsr_tensor *deciding_operands(const tsr_task *t, int *ret_count) {
  *ret_count = t->outputs_count ? t->outputs_count : t->inputs_count > 0;
  if (t->op == TSR_OP_WAIT && t->bucket) *ret_count = 0;
  return t->outputs_count ? t->outputs : t->inputs;
}

bool tsr_task_runs_on(const tsr_program *p, const tsr_task *t, const int *coord) {
  int count;
  const tsr_tensor *operands = deciding_operands(t, &count);
  for (int i = 0; i < count; i++)
    if (!holds(p, p->graph->values[operands[i].value].placement, t->axis, coord)) return false;
  return true;
}

int64_t tsr_task_ranks_apart(const tsr_program *p, const tsr_task *t) {
  int count;
  const tsr_tensor *operands = deciding_operands(t, &count);
  int64_t apart = 1;
  for (int a = 0; count && a < TSR_AXES; a++) {
    tsr_placement over = p->graph->values[operands[0].value].placement[a];
    if (over.kind == TSR_OWNED && a != t->axis)
      apart *= tsr_placement_blocks(over, (int)p->lowering.size[a]);
  }
  return apart;
}

int tsr_task_input(const tsr_program *p, const tsr_task *t, int index) {
  return t->values ? t->values[index] : p->graph->nodes[t->node].inputs[index];
}

int tsr_task_output(const tsr_program *p, const tsr_task *t, int index) {
  return t->results ? t->results[index] : p->graph->nodes[t->node].outputs[index];
}

int64_t tsr_program_bytes(const tsr_program *program) {
  int64_t sum = 0;
  for (int s = 0; s < TSR_SEGMENTS; s++) sum += s == TSR_SEGMENT_HOST ? 0 : program->bytes[s];
  return sum;
}

int64_t tsr_program_stack_entries(const tsr_program *p, int value) {
  const tsr_value *x = &p->graph->values[value];
  const tsr_lowering *l = &p->lowering;
  if (x->kind != TSR_VALUE_NODE) return 1;
  const tsr_node *n = &p->graph->nodes[x->node];
  if (n->op == TSR_OP_ACCUMULATE) return tsr_tree_of_stored(l->tree, l->microbatches);
  if (n->op != TSR_OP_EXPERT_LINEAR_DW || !tsr_node_accumulates(n)) return 1;
  return tsr_tree_of_depth(l->tree, tsr_expert_rows_of(p, x->node)->leaves);
}

int64_t tsr_program_times(const tsr_program *program, int task) {
  tsr_section section = program->tasks[task].section;
  return section == TSR_PROLOGUE || section == TSR_UPDATE ? 1 : program->lowering.microbatches;
}

int tsr_program_in_place(const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  bool adds = tsr_op_facts(n->op) & TSR_FACT_ADDS;
  bool sums = n->op == TSR_OP_ALL_REDUCE && !tsr_node_accumulates(n);
  if ((!adds && !sums) || tsr_program_is_alias(p, node)) return -1;
  int value = n->inputs[n->inputs_count - 1], from = p->graph->values[value].node;
  if (from < 0 || !tsr_program_has_node(p, from)) return -1;
  if (adds) return p->graph->nodes[from].op == n->op ? value : -1;
  bool own = !tsr_program_is_alias(p, from) && p->graph->nodes[from].op != TSR_OP_RECEIVE;
  return own && p->readers[value] == 1 ? value : -1;
}

/* What is left apart is behind what is added up. */
static int64_t units_summed(const tsr_program *p, const tsr_node *n) {
  int64_t left = p->tensors[n->outputs[0]].units;
  return p->tensors[n->inputs[0]].units / (left ? left : 1);
}

bool tsr_program_is_alias(const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  if (n->op == TSR_OP_RESHAPE) return true;
  if (n->op == TSR_OP_SUM_UNITS) return units_summed(p, n) == 1;
  int axis = tsr_node_axis(n);
  return axis >= 0 && p->lowering.size[axis] == 1;
}

int *tsr_program_roots(const tsr_program *p, tsr_arena *arena) {
  const tsr_graph *g = p->graph;
  int *roots = tsr_arena_array(arena, int, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) {
    int node = g->values[v].node;
    bool alias = node >= 0 && tsr_program_has_node(p, node) && tsr_program_is_alias(p, node);
    roots[v] = alias ? roots[g->nodes[node].inputs[0]] : v;
  }
  return roots;
}
