// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"
#include "graph/infer.h"
#include <assert.h>
#include <string.h>

int64_t tsr_dtype_bytes(tsr_dtype dtype) {
  assert(!tsr_dtype_is_quantized(dtype));
  return tsr_dtype_is_half(dtype) ? 2 : 4;
}

int64_t tsr_dtype_size(tsr_dtype dtype, int64_t elements) {
  if (!tsr_dtype_is_quantized(dtype)) return elements * tsr_dtype_bytes(dtype);
  tsr_quantized_layout unit = {1, elements, 1, elements, tsr_dtype_format(dtype)};
  return tsr_quantized_bytes(&unit);
}

const char *tsr_dtype_name(tsr_dtype dtype) {
  static const char *const names[] = {"f32", "i32", "bf16", "f16", "nf4", "int8"};
  return names[dtype];
}

const char *tsr_section_name(tsr_section section) {
  static const char *const names[] = {"prologue", "forward", "backward", "weights", "update"};
  return names[section];
}

tsr_graph *tsr_graph_new(tsr_arena *arena, const char *name, tsr_units units) {
  tsr_graph *g = tsr_arena_alloc(arena, sizeof *g);
  *g = (tsr_graph){.arena = arena, .name = name, .step_scalars = -1, .loss = -1, .units = units};
  g->minimized = -1;
  g->block = g->of = -1;
  return g;
}

/* A value whose name is in the arena. */
static int add_named(tsr_graph *g, const tsr_value *value) {
  tsr_arena_grow(
      g->arena, (void **)&g->values, sizeof *g->values, g->values_count, &g->values_capacity);
  g->values[g->values_count] = *value;
  return g->values_count++;
}

static int add_value(tsr_graph *g, const tsr_value *value) {
  int id = add_named(g, value);
  g->values[id].name = tsr_arena_strdup(g->arena, value->name);
  return id;
}

static tsr_value make_value(
    const char *name, tsr_value_kind kind, tsr_dtype dtype, int ndim, const int64_t *shape,
    tsr_location location) {
  assert(ndim >= 1 && ndim <= TSR_DIMS_MAX);
  tsr_value v = {
      .name = name,
      .kind = kind,
      .dtype = dtype,
      .ndim = ndim,
      .node = -1,
      .param = -1,
      .location = location};
  memcpy(v.shape, shape, sizeof *shape * (size_t)ndim);
  return v;
}

void tsr_graph_reserve(tsr_graph *g, int nodes, int values, int params) {
  assert(!g->nodes && !g->values && !g->params);
  g->nodes_capacity = nodes + 1;
  g->values_capacity = values + 1;
  g->params_capacity = params + 1;
  g->nodes = tsr_arena_array(g->arena, tsr_node, g->nodes_capacity);
  g->values = tsr_arena_array(g->arena, tsr_value, g->values_capacity);
  g->params = tsr_arena_array(g->arena, tsr_param, g->params_capacity);
}

int tsr_graph_input(
    tsr_graph *g, const char *name, tsr_dtype dtype, int ndim, const int64_t *shape,
    tsr_location location) {
  tsr_value v = make_value(name, TSR_VALUE_INPUT, dtype, ndim, shape, location);
  return add_value(g, &v);
}

int tsr_graph_param(tsr_graph *g, const tsr_param *param) {
  tsr_arena_grow(
      g->arena, (void **)&g->params, sizeof *g->params, g->params_count, &g->params_capacity);
  tsr_value v = make_value(
      param->name, TSR_VALUE_PARAM, param->dtype, param->ndim, param->shape, param->location);
  v.param = g->params_count;
  if (tsr_param_is_of_experts(param)) v.routed.experts = param->shape[0];
  memcpy(v.placement, param->placement, sizeof v.placement);
  memcpy(v.dims, param->dims, sizeof v.dims);
  int id = add_value(g, &v);
  tsr_param *p = &g->params[g->params_count++];
  *p = *param;
  p->name = g->values[id].name;
  if (param->hf_name) p->hf_name = tsr_arena_strdup(g->arena, param->hf_name);
  if (!p->padding.blocks) p->padding = (tsr_padding){0, p->shape[0], 1};
  return id;
}

int tsr_graph_const(
    tsr_graph *g, const char *name, const tsr_init *init, int ndim, const int64_t *shape,
    tsr_location location) {
  tsr_value v = make_value(name, TSR_VALUE_CONST, TSR_F32, ndim, shape, location);
  tsr_init *copy = tsr_arena_alloc(g->arena, sizeof *copy);
  *copy = *init;
  v.init = copy;
  return add_value(g, &v);
}

int tsr_graph_state(tsr_graph *g, const char *name, int param) {
  const tsr_param *p = &g->params[param];
  tsr_value v = make_value(name, TSR_VALUE_STATE, TSR_F32, p->ndim, p->shape, p->location);
  v.param = param;
  if (tsr_param_is_of_experts(p)) v.routed.experts = p->shape[0];
  memcpy(v.placement, p->placement, sizeof v.placement);
  return add_value(g, &v);
}

int tsr_graph_step_scalars(tsr_graph *g) {
  if (g->step_scalars < 0) {
    int64_t shape[] = {TSR_SCALARS};
    tsr_value v =
        make_value("step_scalars", TSR_VALUE_STEP_SCALARS, TSR_F32, 1, shape, TSR_NOWHERE);
    g->step_scalars = add_value(g, &v);
  }
  return g->step_scalars;
}

void tsr_graph_output(tsr_graph *g, const char *name, int value) {
  tsr_arena_grow(
      g->arena, (void **)&g->outputs, sizeof *g->outputs, g->outputs_count, &g->outputs_capacity);
  g->outputs[g->outputs_count++] = (tsr_graph_end){tsr_arena_strdup(g->arena, name), value, {0}};
}

int tsr_graph_find_output(const tsr_graph *g, const char *name) {
  for (int i = 0; i < g->outputs_count; i++)
    if (!strcmp(g->outputs[i].name, name)) return g->outputs[i].value;
  return -1;
}

void tsr_param_real_shape(const tsr_param *p, int64_t ret_shape[TSR_DIMS_MAX]) {
  memcpy(ret_shape, p->shape, sizeof p->shape);
  if (p->padding.blocks) ret_shape[p->padding.dim] = p->padding.real;
}

int64_t tsr_param_real_elements(const tsr_param *p) {
  int64_t shape[TSR_DIMS_MAX], n = 1;
  tsr_param_real_shape(p, shape);
  for (int d = 0; d < p->ndim; d++) n *= shape[d];
  return n;
}

bool tsr_params_match(const tsr_param *a, const tsr_param *b) {
  return !strcmp(a->name, b->name) && a->ndim == b->ndim &&
         !memcmp(&a->padding, &b->padding, sizeof a->padding) &&
         !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim) &&
         !memcmp(a->placement, b->placement, sizeof a->placement);
}

int tsr_zero_dim(int ndim, tsr_placement tp) {
  if (tp.kind != TSR_SHARD || tp.dim > 0) return 0;
  return ndim == 2 ? 1 : -1;
}

int tsr_graph_find_loss(const tsr_graph *g, int value) {
  for (;;) {
    int node = g->values[value].node;
    if (node < 0) return -1;
    tsr_op op = g->nodes[node].op;
    if (tsr_op_facts(op) & TSR_FACT_LOSS) return value;
    if (op != TSR_OP_ALL_REDUCE) return -1;
    value = g->nodes[node].inputs[0];
  }
}

/* Which input's dimension becomes dimension `d` of the result of an op that does not keep its
 * inputs' dimensions in place; false: the op does. */
static bool find_dim(const tsr_graph *g, const tsr_node *n, int ndim, int d, int *ret_k, int *ret) {
  int inputs = g->values[n->inputs[0]].ndim, last = ndim - 1;
  *ret_k = n->inputs_count > 1 && d == last;
  *ret = d;
  switch ((int)n->op) {
  case TSR_OP_LINEAR: /* w (out, in) */
  case TSR_OP_ROUTER:
    if (d == last) *ret = 0;
    return true;
  case TSR_OP_EMBEDDING: /* table (rows, features) */
    if (d == last) *ret = 1;
    return true;
  case TSR_OP_EXPERT_LINEAR: /* w (experts, out, in) */
    if (d == last) *ret = 1;
    return true;
  case TSR_OP_LINEAR_DX: /* w (out, in) */
    if (d == last) *ret = 1;
    return true;
  case TSR_OP_EXPERT_LINEAR_DX: /* w (experts, out, in) */
    if (d == last) *ret = 2;
    return true;
  case TSR_OP_PERMUTE_EXPERTS: /* x (…, C) to (rows, C) */
    *ret_k = 0;
    *ret = inputs - 1;
    return d == last;
  case TSR_OP_COMBINE_EXPERTS: /* rows (rows, C), weights (…, k) to (…, C) */
    *ret_k = d != last;
    if (d == last) *ret = inputs - 1;
    return true;
  case TSR_OP_MATMUL:
    if (d == last) *ret = g->values[n->inputs[1]].ndim - (n->attr.matmul.transpose_b ? 2 : 1);
    if (d == last - 1) *ret = inputs - (n->attr.matmul.transpose_a ? 1 : 2);
    return true;
  case TSR_OP_TRANSPOSE:
    if (d == n->attr.transpose.dim0) *ret = n->attr.transpose.dim1;
    else if (d == n->attr.transpose.dim1) *ret = n->attr.transpose.dim0;
    return true;
  default:
    return false;
  }
}

/* Dimension d of a result is dimension i of an input. */
static void take_dim(const tsr_graph *g, int input, int i, tsr_value *v, int d) {
  const tsr_value *x = &g->values[input];
  const tsr_padding *p = tsr_value_padding(g, x);
  if (!v->dims[d]) v->dims[d] = x->dims[i];
  if (p && p->dim == i && x->shape[i] == v->shape[d])
    v->padding = (tsr_padding){d, p->real, p->blocks};
}

/* Dimensions have the names and the padding that they have in the inputs, and none where only the
 * size is that of a dimension of an input. */
static void describe_dims(const tsr_graph *g, const tsr_node *n, tsr_value *v) {
  int like = tsr_op_shape_input(n->op, n->inputs_count);
  for (int d = 0; d < v->ndim && n->inputs_count; d++) {
    int k, i;
    if (find_dim(g, n, v->ndim, d, &k, &i)) {
      take_dim(g, n->inputs[k], i, v, d);
      continue;
    }
    for (k = like < 0 ? 0 : like; k < n->inputs_count; k++) {
      const tsr_value *x = &g->values[n->inputs[k]];
      if (d < x->ndim && x->shape[d] == v->shape[d]) take_dim(g, n->inputs[k], d, v, d);
    }
  }
}

/* What multiplies rows of experts is weights of these, whatever made it. Parameters that do so are
 * distributed over ep, whether or not the file says it. */
static void mark_weights(tsr_graph *g, const tsr_node *n) {
  bool bias = n->op == TSR_OP_EXPERT_ADD, linear = n->op == TSR_OP_EXPERT_LINEAR;
  int input = linear || bias ? 1 : n->inputs_count - 1;
  if (!linear && !bias && n->op != TSR_OP_EXPERT_PLAN) return;
  tsr_value *w = &g->values[n->inputs[input]];
  w->routed.experts = w->shape[0];
  if (w->kind != TSR_VALUE_PARAM) return;
  tsr_placement ep = {TSR_SHARD, 0, 0, 0};
  w->placement[TSR_EP] = g->params[w->param].placement[TSR_EP] = ep;
  g->params[w->param].is_expert_bias = bias;
}

/* Adds a node whose name is in the arena, and whose outputs have these types. */
static int add_node(tsr_graph *g, const tsr_node *node, const tsr_type *types) {
  tsr_arena_grow(
      g->arena, (void **)&g->nodes, sizeof *g->nodes, g->nodes_count, &g->nodes_capacity);
  int id = g->nodes_count++;
  tsr_node *n = &g->nodes[id];
  *n = *node;
  n->stream = n->name;
  n->inputs = tsr_arena_array(g->arena, int, n->inputs_count);
  memcpy(n->inputs, node->inputs, sizeof(int) * (size_t)n->inputs_count);
  n->outputs_count = tsr_op_outputs(n->op);
  for (int i = 0; i < n->outputs_count; i++) {
    const char *name = i ? tsr_arena_printf(g->arena, "%s.%d", n->name, i) : n->name;
    tsr_value v = make_value(
        name, TSR_VALUE_NODE, types[i].dtype, types[i].ndim, types[i].shape, n->location);
    v.node = id;
    v.output = i;
    bool other = tsr_routed_is_weights(types[i].routed) && v.shape[0] != types[i].routed.experts;
    if (!other) v.routed = types[i].routed;
    describe_dims(g, n, &v);
    int value = add_named(g, &v);
    g->nodes[id].outputs[i] = value;
  }
  mark_weights(g, &g->nodes[id]);
  return n->outputs_count ? g->nodes[id].outputs[0] : id;
}

static tsr_node make_node(
    const tsr_graph *g, tsr_op op, tsr_section section, const char *name, tsr_location location,
    int inputs_count, const int *inputs, const tsr_attrs *attr) {
  tsr_node n = {
      .op = op,
      .section = section,
      .name = tsr_arena_strdup(g->arena, name),
      .inputs_count = inputs_count,
      .inputs = (int *)inputs,
      .location = location};
  n.block = g->block;
  n.of = g->of;
  if (tsr_op_facts(op) & TSR_FACT_EVERYWHERE) n.stage = TSR_EVERY_STAGE;
  n.attr = attr ? *attr : *tsr_op_attrs(op)->defaults;
  return n;
}

int tsr_graph_add(
    tsr_graph *g, tsr_op op, tsr_section section, const char *name, tsr_location location,
    int inputs_count, const int *inputs, const tsr_attrs *attr) {
  tsr_node node = make_node(g, op, section, name, location, inputs_count, inputs, attr);
  tsr_type types[TSR_OUTPUTS_MAX];
  const char *wrong = tsr_infer(g, &node, types);
  if (wrong) fprintf(stderr, "%s (%s): %s\n", name, tsr_op_name(op), wrong);
  assert(!wrong);
  return add_node(g, &node, types);
}

int tsr_graph_add_shaped(
    tsr_graph *g, tsr_op op, tsr_section section, const char *name, tsr_location location,
    int inputs_count, const int *inputs, const tsr_attrs *attr, int ndim, const int64_t *shape) {
  tsr_node node = make_node(g, op, section, name, location, inputs_count, inputs, attr);
  tsr_type type = {.dtype = TSR_F32, .ndim = ndim};
  memcpy(type.shape, shape, sizeof *shape * (size_t)ndim);
  assert(tsr_op_outputs(op) == 1);
  return add_node(g, &node, &type);
}

int tsr_graph_copy_value(tsr_graph *g, const tsr_value *value) { return add_named(g, value); }

int tsr_graph_copy_node(tsr_graph *g, const tsr_graph *from, int node, const int *inputs) {
  tsr_node copy = from->nodes[node];
  copy.inputs = (int *)inputs;
  tsr_type types[TSR_OUTPUTS_MAX] = {0};
  for (int i = 0; i < copy.outputs_count; i++) {
    const tsr_value *v = &from->values[copy.outputs[i]];
    types[i].dtype = v->dtype;
    types[i].ndim = v->ndim;
    types[i].routed = v->routed;
    memcpy(types[i].shape, v->shape, sizeof v->shape);
  }
  int id = add_node(g, &copy, types);
  const tsr_node *n = &g->nodes[g->nodes_count - 1];
  for (int i = 0; i < copy.outputs_count; i++)
    g->values[n->outputs[i]].padding = from->values[copy.outputs[i]].padding;
  g->nodes[g->nodes_count - 1].stream = from->nodes[node].stream;
  return id;
}

tsr_graph *tsr_graph_derive(const tsr_graph *old) {
  tsr_graph *g = tsr_graph_new(old->arena, old->name, old->units);
  g->params = old->params;
  g->params_count = g->params_capacity = old->params_count;
  g->microbatches = old->microbatches;
  g->drop_units = old->drop_units;
  /* Few passes make many more; what is not used is never touched. */
  g->nodes_capacity = old->nodes_count + old->nodes_count / 2 + 1;
  g->values_capacity = old->values_count + old->values_count / 2 + 1;
  g->nodes = tsr_arena_array(g->arena, tsr_node, g->nodes_capacity);
  g->values = tsr_arena_array(g->arena, tsr_value, g->values_capacity);
  return g;
}

void tsr_graph_map_ends(tsr_graph *g, const tsr_graph *old, const int *map) {
  for (int i = 0; i < old->outputs_count; i++)
    tsr_graph_output(g, old->outputs[i].name, map[old->outputs[i].value]);
  g->loss = old->loss < 0 ? -1 : map[old->loss];
  g->step_scalars = old->step_scalars < 0 ? -1 : map[old->step_scalars];
  if (!old->grads) return;
  g->grads_count = old->grads_count;
  g->grads = tsr_arena_array(old->arena, int, old->grads_count);
  for (int i = 0; i < old->grads_count; i++)
    g->grads[i] = old->grads[i] < 0 ? -1 : map[old->grads[i]];
}

const tsr_padding *tsr_value_padding(const tsr_graph *g, const tsr_value *v) {
  const tsr_padding *p = v->param < 0 ? &v->padding : &g->params[v->param].padding;
  return p->blocks && p->real < v->shape[p->dim] ? p : NULL;
}

void tsr_value_real_shape(const tsr_graph *g, const tsr_value *v, int64_t ret_shape[TSR_DIMS_MAX]) {
  const tsr_padding *p = tsr_value_padding(g, v);
  memcpy(ret_shape, v->shape, sizeof v->shape);
  if (p) ret_shape[p->dim] = p->real;
}

int tsr_value_stage(const tsr_graph *g, int value) {
  const tsr_value *v = &g->values[value];
  if (v->kind == TSR_VALUE_NODE) return g->nodes[v->node].stage;
  return v->param >= 0 ? g->params[v->param].stage : TSR_EVERY_STAGE;
}

int64_t tsr_value_elements(const tsr_value *value) {
  int64_t n = 1;
  for (int i = 0; i < value->ndim; i++) n *= value->shape[i];
  return n;
}
