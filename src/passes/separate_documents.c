// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph of text, as it was read
 * produces: the same for samples of several documents: attention sees its own document alone, and
 *           positions (rotary ones, rows of a table) count from the document's first token
 * invalidates: indices; the new graph has its own */
#include "passes/position_rules.h"
#include <string.h>

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  tsr_positions at; /* of the old graph */
  int *map;         /* per old value: the new one */
  int positions;    /* the new input */
} separating;

/* Texts are (batch, positions), and what is recorded of their routing has more dimensions. */
static bool find_inputs(separating *s) {
  const tsr_value *text = NULL;
  for (int v = 0; v < s->old->values_count; v++) {
    const tsr_value *x = &s->old->values[v];
    if (x->kind != TSR_VALUE_INPUT || x->dtype != TSR_I32 || x->ndim < 2) continue;
    if (!text) text = x;
    if (x->shape[1] == text->shape[1]) s->at.dim[v] = 1;
  }
  if (!text) return s->at.why = "no input has tokens", false;
  s->at.length = text->shape[1];
  s->positions =
      tsr_graph_input(s->g, TSR_DOCUMENT_POSITIONS, TSR_I32, 2, text->shape, text->location);
  return true;
}

static int
add(separating *s, tsr_op op, const char *name, const tsr_node *like, int count, const int *inputs,
    const tsr_attrs *attr) {
  int id = tsr_graph_add(s->g, op, like->section, name, like->location, count, inputs, attr);
  tsr_node *n = &s->g->nodes[s->g->nodes_count - 1];
  n->stage = like->stage;
  n->block = like->block;
  n->result = like->result;
  n->stream = like->stream;
  return id;
}

/* Rows of a table (positions, features), straight from the table that it is the begin of. */
static int look_up(separating *s, const tsr_node *n, int value) {
  int64_t begin;
  int table = tsr_positions_table(s->old, value, &begin);
  if (begin) table = value;
  const char *name = tsr_arena_printf(s->g->arena, "%s.%s", n->name, s->old->values[value].name);
  return add(s, TSR_OP_EMBEDDING, name, n, 2, (int[]){s->positions, s->map[table]}, NULL);
}

static void copy_node(separating *s, int node, const int *inputs) {
  const tsr_node *n = &s->old->nodes[node];
  tsr_graph_copy_node(s->g, s->old, node, inputs);
  const tsr_node *copy = &s->g->nodes[s->g->nodes_count - 1];
  for (int o = 0; o < n->outputs_count; o++) s->map[n->outputs[o]] = copy->outputs[o];
}

/* q, k, v, positions[, sinks] in place of q, k, v[, sinks]. */
static void add_attention(separating *s, const tsr_node *n, const int *in) {
  int inputs[] = {in[0], in[1], in[2], s->positions, tsr_node_sinks(n) < 0 ? -1 : in[3]};
  int first = add(s, TSR_OP_DOCUMENT_ATTENTION, n->name, n, n->inputs_count + 1, inputs, &n->attr);
  for (int o = 0; o < n->outputs_count; o++) {
    s->map[n->outputs[o]] = first + o;
    s->g->values[first + o].dtype = s->old->values[n->outputs[o]].dtype;
  }
}

static void add_rope(separating *s, const tsr_node *n, const int *in) {
  int inputs[] = {in[0], in[1], s->positions};
  s->map[n->outputs[0]] = add(s, TSR_OP_ROPE_AT, n->name, n, 3, inputs, &n->attr);
}

static bool take_node(separating *s, int node) {
  const tsr_node *n = &s->old->nodes[node];
  tsr_position_input *kinds = tsr_arena_array(s->g->arena, tsr_position_input, n->inputs_count);
  int *inputs = tsr_arena_array(s->g->arena, int, n->inputs_count);
  bool moves = tsr_node_axis(n) == TSR_CP, has = tsr_positions_has(&s->at, n);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = s->map[n->inputs[i]];
  if (has && moves) s->at.dim[n->outputs[0]] = s->at.dim[n->inputs[0]];
  else if (has && !tsr_positions_inputs(&s->at, n, kinds)) return false;
  for (int i = 0; has && !moves && i < n->inputs_count; i++)
    if (kinds[i] == TSR_POSITIONS_TABLE) inputs[i] = look_up(s, n, n->inputs[i]);
  if (has && n->op == TSR_OP_ATTENTION) add_attention(s, n, inputs);
  else if (has && n->op == TSR_OP_ROPE) add_rope(s, n, inputs);
  else copy_node(s, node, inputs);
  return true;
}

static bool take_nodes(separating *s) {
  for (int v = 0; v < s->old->values_count; v++)
    if (s->old->values[v].kind != TSR_VALUE_NODE)
      s->map[v] = tsr_graph_copy_value(s->g, &s->old->values[v]);
  for (int i = 0; i < s->old->nodes_count; i++) {
    for (int k = 0; k < s->old->stage_marks_count; k++)
      if (s->old->stage_marks[k].node == i) s->g->stage_marks[k].node = s->g->nodes_count;
    if (!take_node(s, i)) return false;
  }
  return true;
}

bool tsr_pass_separate_documents(
    const tsr_graph *old, tsr_location location, tsr_graph **ret_graph, tsr_diags *diags) {
  separating s = {.old = old, .g = tsr_graph_derive(old), .at = tsr_positions_new(old, 0)};
  s.at.adds = true;
  s.map = tsr_arena_array(old->arena, int, old->values_count);
  s.g->stage_marks = tsr_arena_array(old->arena, tsr_stage_mark, old->stage_marks_count);
  s.g->stage_marks_count = s.g->stage_marks_capacity = old->stage_marks_count;
  for (int k = 0; k < old->stage_marks_count; k++) s.g->stage_marks[k] = old->stage_marks[k];
  if (!find_inputs(&s) || !take_nodes(&s))
    return tsr_diag_error(
        diags, location, "documents cannot be separate in this graph: %s", s.at.why);
  tsr_graph_map_ends(s.g, old, s.map);
  s.g->minimized = old->minimized < 0 ? -1 : s.map[old->minimized];
  *ret_graph = s.g;
  return true;
}
