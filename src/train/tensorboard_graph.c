// SPDX-License-Identifier: Apache-2.0
#include "train/tensorboard_graph.h"
#include <string.h>

typedef struct {
  const tsr_graph *graph;
  tsr_arena *arena;
  char **names; /* of the node that has the value; NULL: the forward graph does not use it */
  tsr_tensorboard_node *nodes;
  int count;
} converter;

/* "block.0.attn.wq" is "block/0/attn/wq". */
static char *path_of(tsr_arena *arena, const char *name) {
  char *path = tsr_arena_strdup(arena, name);
  for (char *at = path; *at; at++)
    if (*at == '.' || *at == '@' || *at == ':') *at = *at == '.' ? '/' : '_';
  return path;
}

static tsr_tensorboard_dtype dtype_of(tsr_dtype dtype) {
  switch (dtype) {
  case TSR_I32:
    return TSR_TENSORBOARD_I32;
  case TSR_BF16:
    return TSR_TENSORBOARD_BF16;
  case TSR_F16:
    return TSR_TENSORBOARD_F16;
  case TSR_F32:
  case TSR_NF4:
  case TSR_INT8:
    break;
  }
  return TSR_TENSORBOARD_F32; /* quantised weights have the values of numbers */
}

static tsr_tensorboard_node *add_node(converter *c, int value, const char *op) {
  const tsr_value *v = &c->graph->values[value];
  tsr_tensorboard_node *node = &c->nodes[c->count++];
  int64_t *shape = tsr_arena_array(c->arena, int64_t, TSR_DIMS_MAX);
  *node = (tsr_tensorboard_node){.name = c->names[value], .op = op, .ndim = v->ndim};
  tsr_value_real_shape(c->graph, v, shape);
  node->shape = shape;
  node->dtype = dtype_of(v->dtype);
  return node;
}

/* An input, a parameter or a constant that a node reads. */
static void add_source(converter *c, int value) {
  const tsr_value *v = &c->graph->values[value];
  if (c->names[value]) return;
  c->names[value] = path_of(c->arena, v->name);
  bool is_input = v->kind == TSR_VALUE_INPUT || v->kind == TSR_VALUE_STEP_SCALARS;
  add_node(c, value, is_input ? "Placeholder" : v->kind == TSR_VALUE_PARAM ? "Parameter" : "Const");
}

static void add_op(converter *c, const tsr_node *n) {
  char **inputs = tsr_arena_array(c->arena, char *, n->inputs_count + 1);
  for (int i = 0; i < n->inputs_count; i++) {
    add_source(c, n->inputs[i]);
    inputs[i] = c->names[n->inputs[i]];
  }
  if (!n->outputs_count) return;
  char *name = path_of(c->arena, n->name);
  for (int i = 0; i < n->outputs_count; i++) /* "NAME:1" is the second result */
    c->names[n->outputs[i]] = i ? tsr_arena_printf(c->arena, "%s:%d", name, i) : name;
  tsr_tensorboard_node *node = add_node(c, n->outputs[0], tsr_op_title(n->op));
  node->inputs = inputs;
  node->inputs_count = n->inputs_count;
}

void tsr_tensorboard_graph_add(tsr_tensorboard *writer, const tsr_graph *g) {
  tsr_arena *arena = tsr_arena_new();
  converter c = {.graph = g, .arena = arena};
  c.names = tsr_arena_array(arena, char *, g->values_count + 1);
  c.nodes = tsr_arena_array(arena, tsr_tensorboard_node, g->values_count + 1);
  memset(c.names, 0, sizeof *c.names * (size_t)(g->values_count + 1));
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].section == TSR_FORWARD || g->nodes[i].section == TSR_PROLOGUE)
      add_op(&c, &g->nodes[i]);
  tsr_tensorboard_add_graph(writer, arena, c.nodes, c.count);
  tsr_arena_free(arena);
}
