// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph as it was read
 * produces: the same with adapters beside the chosen linear layers, and with frozen parameters
 * invalidates: indices; the new graph has its own
 *
 * y = x W^T becomes y + x A^T B^T * scale, with A (r, in) and B (out, r) (Hu et al., 2021); with
 * DoRA that times m / |W + scale B A| by rows, of which the norm is a constant (Liu et al., 2024).
 * Weights that are parts of one tensor in Hugging Face's files have one A, as one layer there has:
 * what their layers read goes through A once. */
#include "passes/passes.h"
#include <math.h>
#include <string.h>

/* An A, and what one input has become behind it; of the new graph. */
typedef struct {
  const char *module;
  int param;    /* its value */
  int x, value; /* the value is made of x; -1: of nothing yet */
} shared;

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  const tsr_adapters *adapters;
  int *map; /* per old value: the new one */
  shared *all;
  int count;
} adapting;

const char *tsr_adapter_module(tsr_arena *arena, const tsr_param *param) {
  static const char weight[] = ".weight";
  if (!param->hf_name) return param->name;
  size_t length = strcspn(param->hf_name, "#"), end = sizeof weight - 1;
  if (length > end && !strncmp(param->hf_name + length - end, weight, end)) length -= end;
  return tsr_arena_strndup(arena, param->hf_name, length);
}

/* "#1/3" of a parameter that is a part of a tensor there, else nothing. */
static const char *part_of(const tsr_param *w) {
  const char *part = w->hf_name ? strchr(w->hf_name, '#') : NULL;
  return part ? part : "";
}

/* A parameter beside a weight: its dimension `dim` is dimension `of` of the weight. */
static int add_param(
    const adapting *a, const tsr_param *w, tsr_param *p, const char *suffix, int dim, int of) {
  p->shape[dim] = w->shape[of];
  p->dims[dim] = w->dims[of];
  if (w->padding.dim == of) p->padding = (tsr_padding){dim, w->padding.real, w->padding.blocks};
  for (int axis = 0; axis < TSR_AXES; axis++)
    if (w->placement[axis].kind == TSR_SHARD && w->placement[axis].dim == of)
      p->placement[axis] = (tsr_placement){.kind = TSR_SHARD, .dim = dim};
  p->name = tsr_arena_printf(a->g->arena, "%s.%s", w->name, suffix);
  p->decay = true;
  p->is_adapter = true;
  p->location = w->location;
  return tsr_graph_param(a->g, p);
}

static const char *hf_name(const adapting *a, const tsr_param *w, const char *what, bool whole) {
  if (!w->hf_name) return NULL;
  return tsr_arena_printf(
      a->g->arena, "%s.%s%s", tsr_adapter_module(a->g->arena, w), what, whole ? "" : part_of(w));
}

/* As torch.nn.Linear begins, which PEFT's lora_A is. */
static int add_a(const adapting *a, const tsr_param *w, int64_t rank) {
  int64_t real[TSR_DIMS_MAX];
  tsr_param_real_shape(w, real);
  double bound = 1 / sqrt((double)real[1]);
  tsr_param p = {.ndim = 2, .shape = {rank}, .dtype = TSR_F32};
  p.init = (tsr_init){.kind = TSR_INIT_UNIFORM, .a = -bound, .b = bound};
  p.hf_name = hf_name(a, w, "lora_A.weight", true);
  return add_param(a, w, &p, "lora_a", 1, 1);
}

static int add_b(const adapting *a, const tsr_param *w, int64_t rank) {
  tsr_param p = {.ndim = 2, .shape = {0, rank}, .dtype = TSR_F32};
  p.init = (tsr_init){.kind = TSR_INIT_ZEROS};
  p.hf_name = hf_name(a, w, "lora_B.weight", false);
  return add_param(a, w, &p, "lora_b", 0, 0);
}

static int
add_node(const adapting *a, const tsr_node *of, tsr_op op, const char *suffix, int x, int y) {
  const char *name = tsr_arena_printf(a->g->arena, "%s.%s", of->name, suffix);
  int inputs[] = {x, y};
  return tsr_graph_add(a->g, op, TSR_FORWARD, name, of->location, y < 0 ? 1 : 2, inputs, NULL);
}

static int add_scaled(const adapting *a, const tsr_node *of, int x, double factor) {
  int y = add_node(a, of, TSR_OP_SCALE, "lora_scale", x, -1);
  a->g->nodes[a->g->values[y].node].attr.scale.factor = factor;
  return y;
}

static int add_dropout(const adapting *a, const tsr_node *of, int x) {
  int y = add_node(a, of, TSR_OP_DROPOUT, "lora_dropout", x, -1);
  a->g->nodes[a->g->values[y].node].attr.dropout.p = a->adapters->dropout;
  return y;
}

/* x A^T * scale of a layer's input; made once for all layers that share both. */
static int
through_a(adapting *a, const tsr_node *n, int x, const tsr_param *w, int param, int *ret_a) {
  const tsr_param_training *how = &a->adapters->params[param];
  const char *module = *part_of(w) ? tsr_adapter_module(a->g->arena, w) : w->name;
  shared *s = NULL;
  for (int i = 0; i < a->count; i++)
    if (!strcmp(a->all[i].module, module)) s = &a->all[i];
  if (!s) {
    s = &a->all[a->count++];
    *s = (shared){module, add_a(a, w, how->rank), -1, -1};
  }
  *ret_a = s->param;
  if (s->x == x) return s->value;
  s->x = x;
  if (a->adapters->dropout > 0) x = add_dropout(a, n, x);       /* (…, in) */
  int y = add_node(a, n, TSR_OP_LINEAR, "lora_a", x, s->param); /* (…, r) */
  s->value = how->scale == 1 ? y : add_scaled(a, n, y, how->scale);
  return s->value;
}

/* The value of a weight's B or m, which several nodes may read; -1: it has none yet. */
static int find_param(const adapting *a, const tsr_param *w, const char *suffix) {
  const char *name = tsr_arena_printf(a->g->arena, "%s.%s", w->name, suffix);
  for (int v = a->g->values_count - 1; v >= 0; v--)
    if (a->g->values[v].kind == TSR_VALUE_PARAM && !strcmp(a->g->values[v].name, name)) return v;
  return -1;
}

/* Its first values are the norms of the rows of the weight, which are known when that is loaded. */
static int add_m(const adapting *a, const tsr_param *w) {
  tsr_param p = {.ndim = 1, .dtype = TSR_F32};
  p.init = (tsr_init){.kind = TSR_INIT_ONES};
  p.hf_name = hf_name(a, w, "lora_magnitude_vector", false);
  return add_param(a, w, &p, "lora_m", 0, 0);
}

/* The rows of W + scale B A have the lengths m. */
static int add_magnitude(
    const adapting *a, const tsr_node *n, int y, const int weights[3], double scale,
    const tsr_param *w) {
  tsr_attrs attr = {.scale = {scale}};
  int m = find_param(a, w, "lora_m");
  if (m < 0) m = add_m(a, w);
  const char *name = tsr_arena_printf(a->g->arena, "%s.lora_squares", n->name);
  int squares = tsr_graph_add(
      a->g, TSR_OP_ADAPTED_SQUARES, TSR_FORWARD, name, n->location, 3, weights, &attr); /* (out) */
  int factors = add_node(a, n, TSR_OP_DIVIDE_ROOT, "lora_factors", m, squares);
  return add_node(a, n, TSR_OP_MUL, "lora_product", y, factors);
}

/* The layer's result keeps its name; what W alone makes is NAME.base. */
static void adapt(adapting *a, const tsr_node *n, const int *inputs, int base) {
  int param = a->old->values[n->inputs[1]].param;
  const tsr_param w = a->old->params[param];
  const char *name = tsr_arena_printf(a->g->arena, "%s.base", n->name);
  a->g->nodes[a->g->values[base].node].name = a->g->values[base].name = name;
  const tsr_param_training *how = &a->adapters->params[param];
  int shared_a, low = through_a(a, n, inputs[0], &w, param, &shared_a);
  int b = find_param(a, &w, "lora_b");
  if (b < 0) b = add_b(a, &w, how->rank);
  int added = add_node(a, n, TSR_OP_LINEAR, "lora_b", low, b); /* (…, out) */
  int y = add_node(a, n, TSR_OP_ADD, "lora_sum", base, added);
  if (a->adapters->has_magnitudes)
    y = add_magnitude(a, n, y, (int[]){inputs[1], shared_a, b}, how->scale, &w);
  a->g->nodes[a->g->values[y].node].name = a->g->values[y].name = n->name;
  a->map[n->outputs[0]] = y;
}

bool tsr_adapter_can(const tsr_graph *g, const tsr_node *n) {
  return n->op == TSR_OP_LINEAR && g->values[n->inputs[1]].kind == TSR_VALUE_PARAM;
}

/* The parameter that a linear layer reads, itself or its working copy. */
static int weight_of(const tsr_graph *g, const tsr_node *n) {
  if (n->op != TSR_OP_LINEAR) return -1;
  const tsr_value *w = &g->values[n->inputs[1]];
  if (w->kind == TSR_VALUE_NODE && g->nodes[w->node].op == TSR_OP_CAST)
    w = &g->values[g->nodes[w->node].inputs[0]];
  return w->kind == TSR_VALUE_PARAM ? w->param : -1;
}

bool tsr_adapter_find(const tsr_graph *g, int weight, tsr_adapter *ret) {
  const char *name = tsr_arena_printf(g->arena, "%s.lora_b", g->params[weight].name);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    int b = weight_of(g, n);
    if (b < 0 || strcmp(g->params[b].name, name) != 0) continue;
    const tsr_node *low = &g->nodes[g->values[n->inputs[0]].node];
    *ret = (tsr_adapter){.b = b, .m = -1, .scale = 1};
    name = tsr_arena_printf(g->arena, "%s.lora_m", g->params[weight].name);
    for (int p = 0; p < g->params_count; p++)
      if (!strcmp(g->params[p].name, name)) ret->m = p;
    if (low->op == TSR_OP_SCALE) {
      ret->scale = low->attr.scale.factor;
      low = &g->nodes[g->values[low->inputs[0]].node];
    }
    ret->a = weight_of(g, low);
    return true;
  }
  return false;
}

static void copy_node(adapting *a, int index) {
  const tsr_node *n = &a->old->nodes[index];
  int *inputs = tsr_arena_array(a->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = a->map[n->inputs[i]];
  for (int s = 0; s < a->old->stage_marks_count; s++)
    if (a->old->stage_marks[s].node == index) a->g->stage_marks[s].node = a->g->nodes_count;
  a->g->block = n->block;
  int first = tsr_graph_copy_node(a->g, a->old, index, inputs);
  for (int o = 0; o < n->outputs_count; o++) a->map[n->outputs[o]] = first + o;
  bool adapted =
      tsr_adapter_can(a->old, n) && a->adapters->params[a->old->values[n->inputs[1]].param].rank;
  if (adapted) adapt(a, n, inputs, first);
  a->g->block = -1;
}

/* The old graph's own arrays stay as they are. */
static void begin(adapting *a) {
  tsr_graph *g = a->g;
  int count = a->old->params_count, marks = a->old->stage_marks_count;
  g->params = tsr_arena_array(g->arena, tsr_param, count + 1);
  if (count) memcpy(g->params, a->old->params, sizeof *g->params * (size_t)count);
  g->params_capacity = count;
  for (int p = 0; p < count; p++) {
    g->params[p].is_frozen = a->adapters->params[p].is_frozen;
    if (a->adapters->params[p].is_nf4) g->params[p].dtype = TSR_NF4;
  }
  g->stage_marks = tsr_arena_array(g->arena, tsr_stage_mark, marks + 1);
  if (marks) memcpy(g->stage_marks, a->old->stage_marks, sizeof *g->stage_marks * (size_t)marks);
  g->stage_marks_count = g->stage_marks_capacity = marks;
}

static int copy_source(const adapting *a, int value) {
  tsr_value v = a->old->values[value];
  if (v.kind == TSR_VALUE_PARAM && a->adapters->params[v.param].is_nf4) v.dtype = TSR_NF4;
  return tsr_graph_copy_value(a->g, &v);
}

tsr_graph *tsr_pass_adapters(const tsr_graph *old, const tsr_adapters *adapters) {
  adapting a = {.old = old, .g = tsr_graph_derive(old), .adapters = adapters};
  a.map = tsr_arena_array(old->arena, int, old->values_count + 1);
  a.all = tsr_arena_array(old->arena, shared, old->params_count + 1);
  begin(&a);
  for (int v = 0; v < old->values_count; v++)
    if (old->values[v].kind != TSR_VALUE_NODE) a.map[v] = copy_source(&a, v);
  for (int i = 0; i < old->nodes_count; i++) copy_node(&a, i);
  a.g->minimized = old->minimized < 0 ? -1 : a.map[old->minimized];
  tsr_graph_map_ends(a.g, old, a.map);
  for (int i = 0; i < old->outputs_count; i++) a.g->outputs[i].location = old->outputs[i].location;
  return a.g;
}
