// SPDX-License-Identifier: Apache-2.0
/* A graph file's calls: checked, then added as one node or a few. */
#include "graph/call_attrs.h"
#include "graph/infer.h"
#include <string.h>

typedef struct {
  tsr_graph *g;
  const tsr_call *call;
  int *values, *count;
  tsr_diags *diags;
} builder;

static bool fail_infer(const builder *b, const char *bad) {
  return tsr_diag_error(b->diags, b->call->op_place, "%s: %s", b->call->op, bad);
}

/* Adds a node after its shapes have been checked; the outputs' first value, or -1. */
static int checked(
    const builder *b, tsr_op op, const char *name, int count, const int *inputs,
    const tsr_attrs *attr) {
  tsr_node node = {.op = op, .inputs_count = count, .inputs = (int *)inputs};
  node.attr = attr ? *attr : *tsr_op_attrs(op)->defaults;
  tsr_type types[TSR_OUTPUTS_MAX];
  const char *bad = tsr_infer(b->g, &node, types);
  if (bad) return fail_infer(b, bad) ? 0 : -1;
  return tsr_graph_add(b->g, op, TSR_FORWARD, name, b->call->location, count, inputs, &node.attr);
}

static bool give(const builder *b, int value) {
  if (value < 0) return false;
  b->values[(*b->count)++] = value;
  return true;
}

/* The call's attributes by a set's fields. */
static bool read_attrs(const builder *b, const tsr_attr_set *set, tsr_attrs *ret_attrs) {
  return tsr_call_read_attrs(b->g, b->call, set, ret_attrs, b->diags);
}

static bool call_op(const builder *b, tsr_op op) {
  tsr_attrs attr;
  if (!read_attrs(b, tsr_op_attrs(op), &attr)) return false;
  return give(b, checked(b, op, b->call->result, b->call->inputs_count, b->call->inputs, &attr));
}

static bool call_linear(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_op_attrs(TSR_OP_LINEAR), &attr)) return false;
  if (c->inputs_count == 2)
    return give(b, checked(b, TSR_OP_LINEAR, c->result, 2, c->inputs, NULL));
  const char *name = tsr_arena_printf(b->g->arena, "%s.product", c->result);
  int y = checked(b, TSR_OP_LINEAR, name, 2, c->inputs, NULL);
  if (y < 0) return false;
  return give(b, checked(b, TSR_OP_ADD, c->result, 2, (int[]){y, c->inputs[2]}, NULL));
}

/* The cos/sin table for these settings: made once, shared by all layers. */
static int rope_table(const builder *b, int64_t positions, const tsr_init *init) {
  tsr_graph *g = b->g;
  int64_t shape[] = {positions, (int64_t)init->a / 2, 2};
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind == TSR_VALUE_CONST && !memcmp(&v->init, init, sizeof *init) &&
        v->shape[0] == positions)
      return i;
  }
  const char *name = tsr_arena_printf(g->arena, "rope_table.%d", g->values_count);
  return tsr_graph_const(g, name, init, 3, shape, b->call->location);
}

/* A scaling is applied, or refused: it is none where a number of it is missing. */
static bool check_scaling(const builder *b, const tsr_rope_call_attrs *r) {
  tsr_location location = b->call->op_place;
  if (r->scaling_factor < 0 || r->original_context_length < 0)
    return tsr_diag_error(
        b->diags, location, "rope: '%s' must not be negative",
        r->scaling_factor < 0 ? "scaling_factor" : "original_context_length");
  if (r->scaling_factor == 0) return true;
  if (!r->original_context_length)
    return tsr_diag_error(
        b->diags, location, "rope: scaling_factor %.15g needs original_context_length",
        r->scaling_factor);
  if (r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor) return true;
  return tsr_diag_error(
      b->diags, location,
      "rope: low_freq_factor %.15g must be above 0 and below high_freq_factor %.15g",
      r->low_freq_factor, r->high_freq_factor);
}

static bool call_rope(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_rope_call), &attr)) return false;
  const tsr_rope_call_attrs *rope = &attr.rope_call;
  int64_t head_dim = rope->head_dim;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  if (head_dim < 2 || head_dim % 2)
    return tsr_diag_error(
        b->diags, c->op_place, "rope: head_dim %lld must be even", (long long)head_dim);
  if (x->ndim != 3) return fail_infer(b, "its input must be (batch, sequence, heads * head_dim)");
  if (!check_scaling(b, rope)) return false;
  tsr_init init;
  memset(&init, 0, sizeof init); /* compared bytewise */
  init.kind = TSR_INIT_ROPE;
  init.a = (double)head_dim;
  init.b = rope->theta;
  init.scaling[0] = rope->scaling_factor;
  init.scaling[1] = rope->low_freq_factor;
  init.scaling[2] = rope->high_freq_factor;
  init.scaling[3] = (double)rope->original_context_length;
  int table = rope_table(b, x->shape[1], &init);
  tsr_attrs turn = {.rope = {head_dim, 1}};
  return give(b, checked(b, TSR_OP_ROPE, c->result, 2, (int[]){c->inputs[0], table}, &turn));
}

static bool call_split(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_split_call), &attr)) return false;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t sections = attr.split_call.sections;
  int dim = attr.split_call.dim;
  if (dim < 0) dim += x->ndim;
  if (sections < 1 || sections > TSR_CALL_INPUTS_MAX)
    return tsr_diag_error(
        b->diags, c->op_place, "split: %lld sections, not 1 to %d", (long long)sections,
        TSR_CALL_INPUTS_MAX);
  if (dim < 0 || dim >= x->ndim || x->shape[dim] % sections)
    return tsr_diag_error(
        b->diags, c->op_place, "split: %lld sections do not divide dimension %d of '%s' %s",
        (long long)sections, dim, x->name, tsr_shape_text(x->ndim, x->shape).text);
  int64_t size = x->shape[dim] / sections;
  for (int i = 0; i < sections; i++) {
    tsr_attrs part = {.slice = {dim, i * size, (i + 1) * size}};
    const char *name = tsr_arena_printf(b->g->arena, "%s.%d", c->result, i);
    if (!give(b, checked(b, TSR_OP_SLICE, name, 1, c->inputs, &part))) return false;
  }
  return true;
}

static bool call_cross_entropy(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_cross_entropy_call), &attr)) return false;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t vocabulary = x->shape[x->ndim - 1];
  int64_t valid = tsr_call_find_attr(c, "valid") ? attr.cross_entropy_call.valid : vocabulary;
  if (valid < 1 || valid > vocabulary)
    return tsr_diag_error(
        b->diags, c->op_place,
        "cross_entropy: valid %g is not between 1 and the %lld logits of '%s'", (double)valid,
        (long long)vocabulary, x->name);
  const char *name = tsr_arena_printf(b->g->arena, "%s.stats", c->result);
  tsr_attrs of_stats = {.ce_stats = {valid}}, of_loss = {.ce_loss = {.valid = valid}};
  int stats = checked(b, TSR_OP_CE_STATS, name, 2, c->inputs, &of_stats);
  if (stats < 0) return false;
  int inputs[] = {c->inputs[0], stats, c->inputs[1], tsr_graph_step_scalars(b->g)};
  return give(b, checked(b, TSR_OP_CE_LOSS, c->result, 4, inputs, &of_loss));
}

static bool call_mse(const builder *b) {
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_none), &attr)) return false;
  return give(b, checked(b, TSR_OP_SQUARED_ERROR, b->call->result, 2, b->call->inputs, NULL));
}

static bool call_reshape(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_reshape_call), &attr)) return false;
  const tsr_size_list *shape = &attr.reshape_call.shape;
  tsr_location location = tsr_call_find_attr(c, "shape")->location;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t have = tsr_value_elements(x), want = 1;
  for (int i = 0; i < shape->count; i++) {
    if (shape->size[i] < 1 || shape->size[i] > have)
      return tsr_diag_error(
          b->diags, location, "reshape: a size of %lld does not fit '%s' %s",
          (long long)shape->size[i], x->name, tsr_shape_text(x->ndim, x->shape).text);
    want *= shape->size[i];
  }
  if (want != have)
    return tsr_diag_error(
        b->diags, location, "reshape: '%s' %s has %lld elements, %s has %lld", x->name,
        tsr_shape_text(x->ndim, x->shape).text, (long long)have,
        tsr_shape_text(shape->count, shape->size).text, (long long)want);
  return give(
      b, tsr_graph_add_shaped(
             b->g, TSR_OP_RESHAPE, TSR_FORWARD, c->result, c->location, 1, c->inputs, NULL,
             shape->count, shape->size));
}

typedef struct {
  const char *name;
  int inputs_min, inputs_max;
  tsr_op op;
  bool (*form)(const builder *b); /* NULL: the op as it is */
} callable;

static const callable forms[] = {
    {"linear", 2, 3, TSR_OP_LINEAR, call_linear},
    {"rope", 1, 1, TSR_OP_ROPE, call_rope},
    {"split", 1, 1, TSR_OP_SLICE, call_split},
    {"cross_entropy", 2, 2, TSR_OP_CE_LOSS, call_cross_entropy},
    {"mse", 2, 2, TSR_OP_SQUARED_ERROR, call_mse},
    {"reshape", 1, 1, TSR_OP_RESHAPE, call_reshape},
    {"allreduce", 1, 1, TSR_OP_ALL_REDUCE, NULL}, /* S0's spelling */
    {"gather", 1, 1, TSR_OP_ALL_GATHER, NULL},
};
enum { FORMS = sizeof forms / sizeof *forms };

static const callable plain[] = {
#define OP(id, name, min, max, ...) {name, min, max, TSR_OP_##id, NULL},
#include "graph/ops.def"
#undef OP
};

static bool is_internal(tsr_op op) { return tsr_op_facts(op) & TSR_FACT_INTERNAL; }

static const callable *find_callable(const char *name) {
  for (int i = 0; i < FORMS; i++)
    if (!strcmp(forms[i].name, name)) return &forms[i];
  for (int i = 0; i < TSR_OPS; i++)
    if (!is_internal((tsr_op)i) && !strcmp(plain[i].name, name)) return &plain[i];
  return NULL;
}

const char *const *tsr_graph_call_names(int *ret_count) {
  static const char *names[FORMS + TSR_OPS + 1];
  int n = 0;
  for (int i = 0; i < FORMS; i++) names[n++] = forms[i].name;
  for (int i = 0; i < TSR_OPS; i++)
    if (!is_internal((tsr_op)i) && find_callable(plain[i].name) == &plain[i])
      names[n++] = plain[i].name;
  names[n] = NULL;
  *ret_count = n;
  return names;
}

static bool check_inputs(const builder *b, const callable *c) {
  const tsr_call *call = b->call;
  if (call->inputs_count >= c->inputs_min && call->inputs_count <= c->inputs_max) return true;
  char want[24];
  if (c->inputs_min == c->inputs_max) snprintf(want, sizeof want, "%d", c->inputs_min);
  else snprintf(want, sizeof want, "%d or %d", c->inputs_min, c->inputs_max);
  return tsr_diag_error(
      b->diags, call->op_place, "%s takes %s input%s, not %d", call->op, want,
      c->inputs_max > 1 ? "s" : "", call->inputs_count);
}

/* Tokens and labels can only be looked up or be targets. */
static bool check_types(const builder *b, tsr_op op) {
  bool ok = true;
  for (int i = 0; i < b->call->inputs_count; i++) {
    const tsr_value *v = &b->g->values[b->call->inputs[i]];
    bool want_tokens = (op == TSR_OP_EMBEDDING && i == 0) || (op == TSR_OP_CE_LOSS && i == 1);
    if ((v->dtype == TSR_I32) == want_tokens) continue;
    ok = tsr_diag_error(
        b->diags, b->call->input_places[i], "%s: '%s' holds %s, not %s", b->call->op, v->name,
        want_tokens ? "numbers" : "tokens", want_tokens ? "tokens" : "numbers");
  }
  return ok;
}

bool tsr_graph_call(
    tsr_graph *g, const tsr_call *call, int ret_values[TSR_CALL_INPUTS_MAX], int *ret_count,
    tsr_diags *diags) {
  *ret_count = 0;
  builder b = {.g = g, .call = call, .values = ret_values, .count = ret_count, .diags = diags};
  const callable *c = find_callable(call->op);
  if (!c) {
    int count;
    const char *const *names = tsr_graph_call_names(&count);
    tsr_diag_error(diags, call->op_place, "there is no op '%s'", call->op);
    tsr_diag_nearest(diags, call->op, names, count);
    return false;
  }
  if (!check_inputs(&b, c) || !check_types(&b, c->op)) return false;
  return c->form ? c->form(&b) : call_op(&b, c->op);
}
