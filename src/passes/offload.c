// SPDX-License-Identifier: Apache-2.0
/* requires: a placed graph of training, with stages; a target with memory of its own
 * produces: a graph in which the backward pass reads activations that were copied to the host's
 * memory, and back, instead of those that the forward pass made
 * invalidates: indices; the new graph has its own
 *
 * A copy to the host stands behind the node that makes the activation, the copy back before the
 * first node of the backward pass that reads it; schedule/offload.h moves both. These stay on the
 * device: what another task needs there until the backward pass (values that another stage
 * receives, results), what is smaller than asked for, what is not made in a block, and what the
 * backward pass reads before it comes to a block. (vDNN, Rhu et al. 2016) */
#include "passes/passes.h"
#include <string.h>

/* Of an old value. */
typedef struct {
  bool read, stays;    /* by the backward pass; in the device's memory, for others' sake */
  bool named;          /* by a node of the backward pass, perhaps for its shape alone */
  tsr_section section; /* in which it is named first */
  int block;           /* of the first such node in the graph's order */
  int host;            /* the new value in the host's memory; -1: none */
  int back;            /* the new value that was copied back; -1: none yet */
} activation;

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  tsr_offloading how;
  activation *of; /* per old value */
  int *map;       /* per old value: the new one */
  int *node_map;  /* per old node */
  int *first;     /* per virtual stage, from TSR_EVERY_STAGE: its first block */
} offload;

static bool is_back(tsr_section s) { return s == TSR_BACKWARD || s == TSR_WEIGHTS; }

/* ---- which activations ---- */

static void note_read(offload *o, const tsr_node *n, int input) {
  activation *a = &o->of[n->inputs[input]];
  if (n->op == TSR_OP_RECEIVE || n->section == TSR_UPDATE) a->stays = true;
  if (!is_back(n->section)) return;
  if (!a->named) a->block = n->block;
  if (!a->named || n->section < a->section) a->section = n->section;
  a->named = true;
  if (input != tsr_op_shape_input(n->op, n->inputs_count)) a->read = true;
}

static void find_reads(offload *o) {
  const tsr_graph *g = o->old;
  for (int i = 0; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++) note_read(o, &g->nodes[i], k);
  for (int i = 0; i < g->outputs_count; i++) o->of[g->outputs[i].value].stays = true;
  if (g->loss >= 0) o->of[g->loss].stays = true;
}

/* The blocks of a virtual stage follow each other. */
static void find_first_blocks(offload *o) {
  const tsr_graph *g = o->old;
  int stages = 0;
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].stage >= stages) stages = g->nodes[i].stage + 1;
  o->first = tsr_arena_array(g->arena, int, stages + 1);
  for (int s = 0; s <= stages; s++) o->first[s] = -1;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    int *first = &o->first[n->stage + 1];
    if (n->section == TSR_FORWARD && n->block >= 0 && (*first < 0 || n->block < *first))
      *first = n->block;
  }
}

static int64_t bytes_of(const offload *o, const tsr_value *v) {
  int64_t elements = 1;
  for (int d = 0; d < v->ndim; d++) elements *= v->shape[d];
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_SHARD)
      elements /= tsr_placement_blocks(v->placement[a], o->how.size[a]);
  return tsr_dtype_size(v->dtype, elements);
}

static bool is_chosen(const offload *o, int value) {
  const tsr_value *v = &o->old->values[value];
  const activation *a = &o->of[value];
  if (v->kind != TSR_VALUE_NODE || !a->read || a->stays || a->block < 0) return false;
  if (v->placement[TSR_DP].kind == TSR_OWNED) return false; /* one rank has it */
  const tsr_node *n = &o->old->nodes[v->node];
  if (n->section != TSR_FORWARD || n->block < 0 || tsr_op_facts(n->op) & TSR_FACT_SIZED)
    return false;
  bool counted = !o->how.blocks || n->block - o->first[n->stage + 1] < o->how.blocks;
  return counted && bytes_of(o, v) >= o->how.min_bytes;
}

/* ---- the new graph ---- */

/* A copied value is what it was but for its node and its name. */
static void describe(const offload *o, int value, const tsr_value *as, const char *name) {
  tsr_value *v = &o->g->values[value];
  int node = v->node, output = v->output;
  *v = *as;
  v->name = name;
  v->node = node;
  v->output = output;
}

static int add_copy(offload *o, tsr_op op, int old, int from, tsr_section section, int block) {
  const tsr_value *v = &o->old->values[old];
  const tsr_node *made = &o->old->nodes[v->node];
  const char *name = tsr_arena_printf(o->g->arena, "%s.%s", tsr_op_name(op), v->name);
  o->g->block = block;
  int copy = tsr_graph_add(o->g, op, section, name, made->location, 1, &from, NULL);
  o->g->nodes[o->g->nodes_count - 1].stage = made->stage;
  describe(o, copy, v, o->g->values[copy].name);
  return copy;
}

/* The value as a node reads it. */
static int read_value(offload *o, const tsr_node *reader, int value) {
  activation *a = &o->of[value];
  if (!is_back(reader->section) || a->host < 0) return o->map[value];
  if (a->back < 0) a->back = add_copy(o, TSR_OP_RELOAD, value, a->host, a->section, a->block);
  return a->back;
}

static void copy_node(offload *o, int old) {
  const tsr_node *n = &o->old->nodes[old];
  int *inputs = tsr_arena_array(o->g->arena, int, n->inputs_count + 1);
  for (int k = 0; k < n->inputs_count; k++) inputs[k] = read_value(o, n, n->inputs[k]);
  tsr_graph_copy_node(o->g, o->old, old, inputs);
  int node = o->node_map[old] = o->g->nodes_count - 1;
  tsr_node *copy = &o->g->nodes[node];
  if (copy->of >= 0) copy->of = o->node_map[copy->of];
  for (int i = 0; i < n->outputs_count; i++) {
    const tsr_value *v = &o->old->values[n->outputs[i]];
    o->map[n->outputs[i]] = copy->outputs[i];
    describe(o, copy->outputs[i], v, v->name);
  }
  for (int i = 0; i < n->outputs_count; i++)
    if (is_chosen(o, n->outputs[i]))
      o->of[n->outputs[i]].host =
          add_copy(o, TSR_OP_OFFLOAD, n->outputs[i], o->map[n->outputs[i]], TSR_FORWARD, n->block);
}

tsr_graph *tsr_pass_offload(const tsr_graph *old, const tsr_offloading *how) {
  offload o = {.old = old, .g = tsr_graph_derive(old), .how = *how};
  o.of = tsr_arena_array(old->arena, activation, old->values_count + 1);
  o.map = tsr_arena_array(old->arena, int, old->values_count + 1);
  o.node_map = tsr_arena_array(old->arena, int, old->nodes_count + 1);
  find_reads(&o);
  find_first_blocks(&o);
  for (int v = 0; v < old->values_count; v++) {
    o.of[v].host = o.of[v].back = -1;
    if (old->values[v].kind != TSR_VALUE_NODE)
      o.map[v] = tsr_graph_copy_value(o.g, &old->values[v]);
  }
  for (int i = 0; i < old->nodes_count; i++) copy_node(&o, i);
  tsr_graph_map_ends(o.g, old, o.map);
  return o.g;
}
