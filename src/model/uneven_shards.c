// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph as it was read, whose uneven parameters have their padding and still
 *        their real shape
 * produces: the same with stored shapes; padding of every value is zero
 * invalidates: indices; the new graph has its own
 *
 * Only last dimensions of values are padded, and dimensions of parameters. What an op needs without
 * padding is put together of slices of its blocks. Of the ops that pass padding on sigmoid alone
 * makes more than zero of zero; its result is multiplied by a constant of ones and zeros. */
#include "model/uneven_shards.h"
#include "graph/infer.h"
#include <string.h>

/* A dimension of a new value. */
typedef struct {
  tsr_padding as;
  int64_t stored; /* 0: the value has no padding */
  int real;       /* the value without it, once that is made; else 0 */
} padded;

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  tsr_diags *diags;
  int *map;    /* per old value: the new one; -1: refused, or of a refused one */
  padded *pad; /* per new value */
  int pad_room;
} expander;

/* What a dimension is stored as, in blocks of one length. */
static int64_t stored_size(const tsr_padding *p) {
  return p->blocks * ((p->real + p->blocks - 1) / p->blocks);
}

static bool is_padded(const expander *e, int value) {
  return value < e->pad_room && e->pad[value].stored;
}

static padded padding_of(const expander *e, int value) {
  return is_padded(e, value) ? e->pad[value] : (padded){0};
}

static void note_padding(expander *e, int value, padded p) {
  if (value >= e->pad_room) {
    int room = 2 * value + 64;
    padded *pad = tsr_arena_array(e->g->arena, padded, room);
    if (e->pad_room) memcpy(pad, e->pad, sizeof *pad * (size_t)e->pad_room);
    e->pad = pad, e->pad_room = room;
  }
  p.real = 0;
  e->pad[value] = p;
  e->g->values[value].padding = p.as;
}

static bool is_same(const padded *a, const padded *b) {
  return a->as.real == b->as.real && a->as.blocks == b->as.blocks && a->stored == b->stored;
}

/* ---- with and without padding ---- */

/* Run by run from one layout of a dimension into the other one: their sum. */
static int move_runs(expander *e, int value, const padded *p, bool removes) {
  tsr_graph *g = e->g;
  const char *what =
      tsr_arena_printf(g->arena, "%s.%s", g->values[value].name, removes ? "real" : "stored");
  tsr_location location = g->values[value].location;
  int64_t size = removes ? p->as.real : p->stored;
  int sum = -1, k = 0;
  for (tsr_real_run run = {0}; tsr_padding_next(&p->as, p->stored, 0, p->stored, &run); k++) {
    int64_t from = removes ? run.at : run.begin, to = removes ? run.begin : run.at;
    tsr_attrs cut = {.slice = {p->as.dim, from, from + run.size}};
    tsr_attrs put = {.unslice = {p->as.dim, to, size}};
    const char *name = tsr_arena_printf(g->arena, "%s.%d", what, k);
    const char *cut_name = tsr_arena_printf(g->arena, "%s.slice", name);
    int part = tsr_graph_add(g, TSR_OP_SLICE, TSR_FORWARD, cut_name, location, 1, &value, &cut);
    if (run.size < size)
      part = tsr_graph_add(g, TSR_OP_UNSLICE, TSR_FORWARD, name, location, 1, &part, &put);
    int both[] = {sum, part};
    const char *added = tsr_arena_printf(g->arena, "%s.sum%d", what, k);
    sum = k ? tsr_graph_add(g, TSR_OP_ADD, TSR_FORWARD, added, location, 2, both, NULL) : part;
    if (!removes) g->values[part].padding = g->values[sum].padding = p->as;
  }
  return sum;
}

static int without_padding(expander *e, int value) {
  padded p = padding_of(e, value);
  if (!p.stored) return value;
  if (!p.real) p.real = move_runs(e, value, &p, true);
  return e->pad[value].real = p.real;
}

/* The value with its last dimension as `p` stores it. */
static int with_padding(expander *e, int value, padded p) {
  p.as.dim = e->g->values[value].ndim - 1;
  padded have = padding_of(e, value);
  if (have.stored && have.as.dim == p.as.dim && is_same(&have, &p)) return value;
  int made = move_runs(e, without_padding(e, value), &p, false);
  note_padding(e, made, p);
  return made;
}

/* ---- nodes ---- */

static bool refuse(const expander *e, const tsr_node *n, int value) {
  const tsr_padding *p = &e->pad[value].as;
  tsr_diag_error(
      e->diags, n->location,
      "%s of '%s': its %lld features do not divide over the %lld parts of tp, and this op needs "
      "equal ones",
      tsr_op_title(n->op), e->g->values[value].name, (long long)p->real, (long long)p->blocks);
  tsr_diag_hint(
      e->diags,
      "a multiple of %lld divides; the parts are numerics.units.tp, else the tp of the mesh",
      (long long)p->blocks);
  return false;
}

static bool needs_equal_parts(tsr_op op) {
  return op == TSR_OP_ATTENTION || op == TSR_OP_ROPE || op == TSR_OP_RESHAPE;
}

static bool maps_elements(tsr_op op) {
  switch ((int)op) {
#define OP(ID, name, ...)
#define UNARY(ID, name) case TSR_OP_##ID:
#define GATED(ID, name, F) case TSR_OP_##ID:
#define GATED_DX(ID, name, F)
#include "graph/ops.def"
#undef OP
  case TSR_OP_ADD:
  case TSR_OP_SUB:
  case TSR_OP_MUL:
  case TSR_OP_SCALE:
  case TSR_OP_DROPOUT:
    return true;
  default:
    return false;
  }
}

/* Operands with the padding of the one that has it, which is the result's. */
static padded pad_elements(expander *e, int *inputs, int count) {
  padded p = {0};
  for (int i = 0; i < count && !p.stored; i++) {
    padded x = padding_of(e, inputs[i]);
    if (x.as.dim == e->g->values[inputs[i]].ndim - 1) p = x;
  }
  for (int i = 0; i < count; i++)
    inputs[i] = p.stored ? with_padding(e, inputs[i], p) : without_padding(e, inputs[i]);
  return p;
}

/* x (…, K), w (N, K): both store K as w does, and the result N. */
static padded pad_linear(expander *e, int *inputs) {
  padded w = padding_of(e, inputs[1]);
  if (w.stored && w.as.dim == 1) inputs[0] = with_padding(e, inputs[0], w);
  else inputs[0] = without_padding(e, inputs[0]);
  return w.as.dim == 0 ? w : (padded){0};
}

/* Of a matrix; what has more dimensions goes without padding. */
static padded pad_transpose(expander *e, const tsr_node *n, int *inputs) {
  int a = (int)n->attr.transpose.dim0, b = (int)n->attr.transpose.dim1;
  if (e->g->values[inputs[0]].ndim != 2) inputs[0] = without_padding(e, inputs[0]);
  padded p = padding_of(e, inputs[0]);
  if ((a < 0 ? a + 2 : a) != (b < 0 ? b + 2 : b)) p.as.dim = 1 - p.as.dim;
  return p;
}

/* A softmax leaves out padding that is behind all real logits. */
static void pad_loss(const expander *e, int *inputs, int64_t *valid) {
  padded p = padding_of(e, inputs[0]);
  if (p.stored && p.as.blocks == 1 && (*valid == 0 || *valid > p.as.real)) *valid = p.as.real;
}

static bool reads_rows_of_experts(const expander *e, const tsr_node *n) {
  for (int i = 0; i < n->inputs_count; i++)
    if (tsr_routed_is_rows(e->old->values[n->inputs[i]].routed)) return true;
  return false;
}

/* Rows of experts keep the padding that they have, because no op but these and maps of elements
 * may read them. Of expert_linear, w (E, N, K) has that of its input or of its result; a bias
 * (E, N) gets that of the rows. */
static bool pad_experts(expander *e, const tsr_node *n, int *inputs, padded *ret) {
  padded x = padding_of(e, inputs[0]);
  *ret = n->op == TSR_OP_EXPERT_PLAN ? (padded){0} : x;
  for (int i = 1; i < n->inputs_count && maps_elements(n->op); i++) {
    padded y = padding_of(e, inputs[i]);
    if (!is_same(&x, &y)) return refuse(e, n, inputs[x.stored ? 0 : i]);
  }
  if (n->op == TSR_OP_EXPERT_ADD)
    inputs[1] = x.stored ? with_padding(e, inputs[1], x) : without_padding(e, inputs[1]);
  if (n->op != TSR_OP_EXPERT_LINEAR) return true;
  padded w = padding_of(e, inputs[1]), taken = w.as.dim == 2 ? w : (padded){0};
  *ret = w.as.dim == 1 ? w : (padded){0};
  return is_same(&x, &taken) || refuse(e, n, inputs[x.stored ? 0 : 1]);
}

/* A `send`, which gives its input another name. */
static bool is_renaming(const expander *e, const tsr_node *n) {
  if (n->op != TSR_OP_RESHAPE) return false;
  const tsr_value *x = &e->old->values[n->inputs[0]], *y = &e->old->values[n->outputs[0]];
  return x->ndim == y->ndim && !memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)x->ndim);
}

/* Makes the inputs what the node takes; what the padding of its first output is. */
static bool pad_inputs(expander *e, const tsr_node *n, int *inputs, tsr_attrs *attr, padded *ret) {
  padded first = n->inputs_count ? padding_of(e, inputs[0]) : (padded){0};
  bool softmax = n->op == TSR_OP_CE_STATS || n->op == TSR_OP_CE_LOSS;
  *ret = (padded){0};
  if (n->op == TSR_OP_EXPERT_PLAN || reads_rows_of_experts(e, n))
    return pad_experts(e, n, inputs, ret);
  if (maps_elements(n->op)) return *ret = pad_elements(e, inputs, n->inputs_count), true;
  if (n->op == TSR_OP_LINEAR) return *ret = pad_linear(e, inputs), true;
  if (n->op == TSR_OP_TRANSPOSE) return *ret = pad_transpose(e, n, inputs), true;
  if (tsr_op_moves(n->op) || is_renaming(e, n)) return *ret = first, true;
  if (n->op == TSR_OP_EMBEDDING) {
    *ret = padding_of(e, inputs[1]);
    if (ret->as.dim == 0) *ret = (padded){0};
    return true;
  }
  if (softmax && first.as.blocks == 1) {
    pad_loss(e, inputs, n->op == TSR_OP_CE_LOSS ? &attr->ce_loss.valid : &attr->ce_stats.valid);
    return true;
  }
  for (int i = 0; i < n->inputs_count; i++) {
    if (is_padded(e, inputs[i]) && needs_equal_parts(n->op)) return refuse(e, n, inputs[i]);
    inputs[i] = without_padding(e, inputs[i]);
  }
  return true;
}

/* Ones where an index is real. */
static int padding_mask(expander *e, const padded *p) {
  tsr_init init = {
      .kind = TSR_INIT_PADDING_MASK, .a = (double)p->as.real, .b = (double)p->as.blocks};
  for (int v = 0; v < e->g->values_count; v++) {
    const tsr_value *c = &e->g->values[v];
    if (c->kind == TSR_VALUE_CONST && !memcmp(c->init, &init, sizeof init) &&
        c->shape[0] == p->stored)
      return v;
  }
  const char *name = tsr_arena_printf(
      e->g->arena, "real.%lld_of_%lld", (long long)p->as.real, (long long)p->stored);
  return tsr_graph_const(e->g, name, &init, 1, &p->stored, e->old->nodes[0].location);
}

static void give(expander *e, const tsr_node *n, int first, padded p) {
  for (int o = 0; o < n->outputs_count; o++) e->map[n->outputs[o]] = first + o;
  if (!p.stored) return;
  tsr_value *v = &e->g->values[first];
  if (n->op != TSR_OP_TRANSPOSE && !tsr_op_moves(n->op)) p.as.dim = v->ndim - 1;
  note_padding(e, first, p);
  if (n->op != TSR_OP_SIGMOID) return;
  int inputs[] = {first, padding_mask(e, &p)};
  const char *name = tsr_arena_printf(e->g->arena, "%s.real", e->g->values[first].name);
  int masked = tsr_graph_add(e->g, TSR_OP_MUL, TSR_FORWARD, name, n->location, 2, inputs, NULL);
  note_padding(e, masked, p);
  e->map[n->outputs[0]] = masked;
}

/* The last node's, from its inputs' stored shapes. */
static bool infer_shapes(expander *e, const tsr_node *n) {
  const tsr_node *copy = &e->g->nodes[e->g->nodes_count - 1];
  tsr_type types[TSR_OUTPUTS_MAX];
  const char *bad = tsr_infer(e->g, copy, types);
  if (bad) return tsr_diag_error(e->diags, n->location, "%s: %s", tsr_op_title(n->op), bad);
  for (int o = 0; o < copy->outputs_count; o++)
    memcpy(e->g->values[copy->outputs[o]].shape, types[o].shape, sizeof types[o].shape);
  return true;
}

/* What follows a refused node is left out: its operand has no shape. */
static bool copy_node(expander *e, int index) {
  const tsr_node *n = &e->old->nodes[index];
  int *inputs = tsr_arena_array(e->g->arena, int, n->inputs_count);
  tsr_attrs attr = n->attr;
  padded p;
  for (int o = 0; o < n->outputs_count; o++) e->map[n->outputs[o]] = -1;
  for (int i = 0; i < n->inputs_count; i++)
    if ((inputs[i] = e->map[n->inputs[i]]) < 0) return false;
  e->g->block = n->block;
  for (int s = 0; s < e->old->stage_marks_count; s++)
    if (e->old->stage_marks[s].node == index) e->g->stage_marks[s].node = e->g->nodes_count;
  if (!pad_inputs(e, n, inputs, &attr, &p)) return false;
  int first = tsr_graph_copy_node(e->g, e->old, index, inputs);
  e->g->nodes[e->g->nodes_count - 1].attr = attr;
  if (is_renaming(e, n))
    memcpy(e->g->values[first].shape, e->g->values[inputs[0]].shape, sizeof(int64_t[TSR_DIMS_MAX]));
  else if (n->op != TSR_OP_RESHAPE && !infer_shapes(e, n)) return false;
  if (n->outputs_count) give(e, n, first, p);
  return true;
}

/* ---- the graph ---- */

/* Rows of a table are found by their numbers, so its padding is behind them. */
static void choose_blocks(expander *e) {
  for (int i = 0; i < e->old->nodes_count; i++) {
    const tsr_node *n = &e->old->nodes[i];
    int param = n->op == TSR_OP_EMBEDDING ? e->old->values[n->inputs[1]].param : -1;
    tsr_param *p = param < 0 ? NULL : &e->g->params[param];
    if (!p || p->padding.dim || p->padding.blocks <= 1) continue;
    p->shape[0] = stored_size(&p->padding);
    p->padding.blocks = 1;
  }
}

static void copy_source(expander *e, int old) {
  tsr_value v = e->old->values[old];
  padded p = {0};
  if (v.kind == TSR_VALUE_PARAM) {
    tsr_param *q = &e->g->params[v.param];
    const tsr_padding *as = &q->padding;
    if (as->blocks > 1) q->shape[as->dim] = stored_size(as);
    if (memcmp(q->shape, v.shape, sizeof q->shape)) p = (padded){*as, q->shape[as->dim], 0};
    memcpy(v.shape, q->shape, sizeof v.shape);
  }
  e->map[old] = tsr_graph_copy_value(e->g, &v);
  if (p.stored) note_padding(e, e->map[old], p);
}

/* tp distributes whole experts, not units of them: which parameters these are is known of the
 * statements that read them. */
static void keep_experts(const tsr_graph *g) {
  for (int i = 0; i < g->params_count; i++) {
    tsr_param *p = &g->params[i];
    if (tsr_param_is_of_experts(p) && p->padding.dim == 0 && p->padding.blocks > 1)
      p->padding = (tsr_padding){0, p->shape[0], 1};
  }
}

static bool has_uneven(const tsr_graph *g) {
  for (int p = 0; p < g->params_count; p++)
    if (g->params[p].padding.blocks > 1) return true;
  return false;
}

bool tsr_uneven_expand(const tsr_graph *old, tsr_graph **ret, tsr_diags *diags) {
  *ret = (tsr_graph *)old;
  keep_experts(old);
  if (!has_uneven(old)) return true;
  expander e = {.old = old, .g = tsr_graph_derive(old), .diags = diags};
  e.map = tsr_arena_array(old->arena, int, old->values_count + 1);
  e.g->stage_marks = old->stage_marks;
  e.g->stage_marks_count = e.g->stage_marks_capacity = old->stage_marks_count;
  choose_blocks(&e);
  for (int v = 0; v < old->values_count; v++)
    if (old->values[v].kind != TSR_VALUE_NODE) copy_source(&e, v);
  bool ok = true;
  for (int i = 0; i < old->nodes_count; i++) ok &= copy_node(&e, i);
  *ret = e.g;
  if (!ok) return false;
  for (int i = 0; i < old->outputs_count; i++)
    e.map[old->outputs[i].value] = without_padding(&e, e.map[old->outputs[i].value]);
  e.g->minimized = old->minimized < 0 ? -1 : e.map[old->minimized];
  tsr_graph_map_ends(e.g, old, e.map);
  for (int i = 0; i < old->outputs_count; i++) e.g->outputs[i].location = old->outputs[i].location;
  return true;
}
