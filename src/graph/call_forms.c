// SPDX-License-Identifier: Apache-2.0
#include "graph/call_forms.h"
#include "graph/infer.h"
#include <math.h>
#include <string.h>

typedef tsr_call_builder builder;

static const char *shape_of(const builder *b, const tsr_value *v) {
  return tsr_value_shape_text(b->g->arena, v);
}

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

bool tsr_call_add_op(const builder *b, tsr_op op) {
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
  const tsr_value *product = &b->g->values[y], *bias = &b->g->values[c->inputs[2]];
  bool fits = bias->ndim <= product->ndim;
  for (int d = 1; fits && d <= bias->ndim; d++)
    fits = bias->shape[bias->ndim - d] == product->shape[product->ndim - d];
  if (!fits)
    return tsr_diag_error(
        b->diags, c->op_place, "%s: the bias '%s' %s does not fit the result %s", c->op, bias->name,
        shape_of(b, bias), shape_of(b, product));
  return give(b, checked(b, TSR_OP_ADD, c->result, 2, (int[]){y, c->inputs[2]}, NULL));
}

/* expert_linear(rows, w, plan[, b]) */
static bool call_expert_linear(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_op_attrs(TSR_OP_EXPERT_LINEAR), &attr)) return false;
  if (c->inputs_count == 3) return tsr_call_add_op(b, TSR_OP_EXPERT_LINEAR);
  const char *name = tsr_arena_printf(b->g->arena, "%s.product", c->result);
  int y = checked(b, TSR_OP_EXPERT_LINEAR, name, 3, c->inputs, NULL);
  if (y < 0) return false;
  int inputs[] = {y, c->inputs[3], c->inputs[2]};
  return give(b, checked(b, TSR_OP_EXPERT_ADD, c->result, 3, inputs, NULL));
}

/* The cos/sin table for these settings: made once, shared by all layers. */
static bool same_table(const tsr_init *a, const tsr_init *b) {
  tsr_init other = *b;
  other.factors = a->factors;
  if (memcmp(a, &other, sizeof other) != 0 || !a->factors != !b->factors) return false;
  return !a->factors || !memcmp(a->factors, b->factors, sizeof(double) * (size_t)(a->a / 2));
}

static int rope_table(const builder *b, int64_t positions, const tsr_init *init) {
  tsr_graph *g = b->g;
  int64_t shape[] = {positions, (int64_t)init->a / 2, 2};
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind == TSR_VALUE_CONST && same_table(v->init, init) && v->shape[0] == positions)
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
  const char *names[] = {"scaling_factor", "yarn_factor", "linear_factor", "factors"};
  bool given[] = {
      r->scaling_factor != 0, r->yarn_factor != 0, r->linear_factor != 0, r->factors.count != 0};
  for (int i = 0, other = -1; i < 4; i++) {
    if (given[i] && other >= 0)
      return tsr_diag_error(
          b->diags, location, "rope: %s and %s are two scalings", names[other], names[i]);
    if (given[i]) other = i;
  }
  if (r->yarn_factor != 0 && !r->original_context_length)
    return tsr_diag_error(
        b->diags, location, "rope: yarn_factor %.15g needs original_context_length",
        r->yarn_factor);
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

/* The features that are turned are pairs, and inside the head. */
static bool check_rotary(const builder *b, const tsr_rope_call_attrs *r, int64_t rotary) {
  tsr_location location = b->call->op_place;
  if (rotary < 2 || rotary % 2)
    return tsr_diag_error(
        b->diags, location, "rope: %s %lld must be even", r->rotary_dim ? "rotary_dim" : "head_dim",
        (long long)rotary);
  if (r->offset >= 0 && r->offset <= r->head_dim - rotary) return true;
  return tsr_diag_error(
      b->diags, location, "rope: features %lld to %lld are not inside a head of %lld",
      (long long)r->offset, (long long)(r->offset + rotary), (long long)r->head_dim);
}

/* One of each pair, above 0. */
static bool check_factors(const builder *b, const tsr_rope_call_attrs *r, int64_t rotary) {
  if (!r->factors.count) return true;
  tsr_location location = b->call->op_place;
  if (r->factors.count != rotary / 2)
    return tsr_diag_error(
        b->diags, location, "rope: %d factors for the %lld pairs of %lld features",
        r->factors.count, (long long)(rotary / 2), (long long)rotary);
  for (int i = 0; i < r->factors.count; i++)
    if (!(r->factors.number[i] > 0))
      return tsr_diag_error(
          b->diags, location, "rope: factor %d is %.15g, not above 0", i, r->factors.number[i]);
  return true;
}

static double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* What cos and sin are multiplied by, as transformers has it. */
static double attention_factor(const tsr_rope_call_attrs *r) {
  bool scaled = r->yarn_factor != 0 || r->factors.count;
  if (scaled && r->attention_factor != 0) return r->attention_factor;
  if (r->yarn_factor == 0) return 1;
  if (r->mscale == 0 || r->mscale_all_dim == 0) return yarn_mscale(r->yarn_factor, 1);
  return yarn_mscale(r->yarn_factor, r->mscale) / yarn_mscale(r->yarn_factor, r->mscale_all_dim);
}

static tsr_init table_of(const tsr_rope_call_attrs *r, int64_t rotary) {
  tsr_init init;
  memset(&init, 0, sizeof init); /* compared bytewise */
  init.kind = TSR_INIT_ROPE;
  init.a = (double)rotary;
  init.b = r->theta;
  init.scaling[0] = r->scaling_factor;
  init.scaling[1] = r->low_freq_factor;
  init.scaling[2] = r->high_freq_factor;
  init.scaling[3] = (double)r->original_context_length;
  if (r->yarn_factor != 0) {
    init.scaling[4] = r->yarn_factor;
    init.scaling[5] = r->beta_fast;
    init.scaling[6] = r->beta_slow;
    init.scaling[7] = r->truncate;
  }
  init.scaling[8] = attention_factor(r);
  init.scaling[9] = r->linear_factor;
  if (r->factors.count) init.factors = r->factors.number;
  return init;
}

static bool call_rope(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_rope_call), &attr)) return false;
  const tsr_rope_call_attrs *rope = &attr.rope_call;
  tsr_attrs turn = {.rope = {rope->head_dim, 1, rope->interleaved, rope->rotary_dim, rope->offset}};
  int64_t rotary = tsr_rope_rotary(&turn.rope);
  const tsr_value *x = &b->g->values[c->inputs[0]];
  if (!check_rotary(b, rope, rotary)) return false;
  if (x->ndim != 3) return fail_infer(b, "its input must be (batch, sequence, heads * head_dim)");
  if (!check_scaling(b, rope) || !check_factors(b, rope, rotary)) return false;
  tsr_init init = table_of(rope, rotary);
  int table = rope_table(b, x->shape[1], &init);
  return give(b, checked(b, TSR_OP_ROPE, c->result, 2, (int[]){c->inputs[0], table}, &turn));
}

/* A dimension that is counted from the last one; one that is nowhere stays as it is. */
static int from_last(int dim, int ndim) { return dim < 0 && dim >= -ndim ? dim + ndim : dim; }

static bool call_split(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_split_call), &attr)) return false;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t sections = attr.split_call.sections;
  int dim = from_last(attr.split_call.dim, x->ndim);
  if (sections < 1 || sections > TSR_CALL_INPUTS_MAX)
    return tsr_diag_error(
        b->diags, c->op_place, "split: %lld sections, not 1 to %d", (long long)sections,
        TSR_CALL_INPUTS_MAX);
  if (dim < 0 || dim >= x->ndim)
    return tsr_diag_error(
        b->diags, c->op_place, "split: '%s' %s has no dimension %d: it has 0 to %d", x->name,
        shape_of(b, x), dim, x->ndim - 1);
  if (x->shape[dim] % sections)
    return tsr_diag_error(
        b->diags, c->op_place, "split: %lld sections do not divide dimension %d of '%s' %s",
        (long long)sections, dim, x->name, shape_of(b, x));
  int64_t size = x->shape[dim] / sections;
  for (int i = 0; i < sections; i++) {
    tsr_attrs part = {.slice = {dim, i * size, (i + 1) * size}};
    const char *name = tsr_arena_printf(b->g->arena, "%s.%d", c->result, i);
    if (!give(b, checked(b, TSR_OP_SLICE, name, 1, c->inputs, &part))) return false;
  }
  return true;
}

/* Along the last dimension where the call names none. */
static bool call_concat(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_concat_call), &attr)) return false;
  int dim = from_last(attr.concat_call.dim, b->g->values[c->inputs[0]].ndim);
  tsr_attrs along = {.concat = {dim}};
  return give(b, checked(b, TSR_OP_CONCAT, c->result, c->inputs_count, c->inputs, &along));
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
  const tsr_call_attr *given = tsr_call_find_attr(c, "shape");
  tsr_location location = given->location;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t have = tsr_value_elements(x), want = 1;
  for (int i = 0; i < shape->count; i++) {
    if (shape->size[i] < 1 || shape->size[i] > have)
      return tsr_diag_error(
          b->diags, location, "reshape: a size of %lld does not fit '%s' %s",
          (long long)shape->size[i], x->name, shape_of(b, x));
    want *= shape->size[i];
  }
  if (want != have)
    return tsr_diag_error(
        b->diags, location, "reshape: '%s' %s has %lld elements, %s has %lld", x->name,
        shape_of(b, x), (long long)have,
        tsr_named_shape_text(b->g->arena, shape->count, shape->size, given->list_names),
        (long long)want);
  int y = tsr_graph_add_shaped(
      b->g, TSR_OP_RESHAPE, TSR_FORWARD, c->result, c->location, 1, c->inputs, NULL, shape->count,
      shape->size);
  for (int d = 0; d < shape->count; d++)
    if (given->list_names[d]) b->g->values[y].dims[d] = given->list_names[d];
  return give(b, y);
}

/* A pair of dimensions exchanged. */
static int transposed(const builder *b, const char *name, int x, int dim0, int dim1) {
  tsr_attrs attr = {.transpose = {dim0, dim1}};
  return checked(b, TSR_OP_TRANSPOSE, name, 1, &x, &attr);
}

static int reshaped(const builder *b, const char *name, int x, int ndim, const int64_t *shape) {
  return tsr_graph_add_shaped(
      b->g, TSR_OP_RESHAPE, TSR_FORWARD, name, b->call->location, 1, &x, NULL, ndim, shape);
}

/* A matrix that all of a tensor's matrices are multiplied by is a weight: (…, K) (K, N), or (N, K)
 * transposed. */
static bool call_matmul(const builder *b) {
  const tsr_call *c = b->call;
  const tsr_value *x = &b->g->values[c->inputs[0]], *w = &b->g->values[c->inputs[1]];
  tsr_attrs attr;
  if (!read_attrs(b, tsr_op_attrs(TSR_OP_MATMUL), &attr)) return false;
  bool turned = attr.matmul.transpose_b;
  if (x->ndim <= 2 || w->ndim != 2 || attr.matmul.transpose_a)
    return tsr_call_add_op(b, TSR_OP_MATMUL);
  int64_t have = x->shape[x->ndim - 1], want = w->shape[turned];
  if (have != want)
    return tsr_diag_error(
        b->diags, c->op_place, "matmul: '%s' %s has %lld to sum over but '%s' %s has %lld", x->name,
        shape_of(b, x), (long long)have, w->name, shape_of(b, w), (long long)want);
  const char *name = tsr_arena_printf(b->g->arena, "%s.transposed", c->result);
  int weight = turned ? c->inputs[1] : transposed(b, name, c->inputs[1], 0, 1);
  if (weight < 0) return false;
  return give(b, checked(b, TSR_OP_LINEAR, c->result, 2, (int[]){c->inputs[0], weight}, NULL));
}

/* (B, H, T, D) → (B, T, H * D), as attention takes it; -1: the value has other dimensions. */
static int join_heads(const builder *b, int input, const char *what) {
  const tsr_value *x = &b->g->values[b->call->inputs[input]];
  const char *name = tsr_arena_printf(b->g->arena, "%s.%s", b->call->result, what);
  int64_t shape[] = {x->shape[0], x->shape[2], x->shape[1] * x->shape[3]};
  int turned =
      transposed(b, tsr_arena_printf(b->g->arena, "%s.turned", name), b->call->inputs[input], 1, 2);
  return turned < 0 ? -1 : reshaped(b, name, turned, 3, shape);
}

/* Inputs (B, H, T, D) agree in what attention requires; its own rule sees them joined. */
static bool check_flash_inputs(const builder *b) {
  const tsr_value *in[3];
  for (int i = 0; i < 3; i++) in[i] = &b->g->values[b->call->inputs[i]];
  const tsr_value *q = in[0], *k = in[1], *v = in[2];
  if (memcmp(k->shape, v->shape, 3 * sizeof *k->shape) != 0)
    return tsr_diag_error(
        b->diags, b->call->op_place, "%s: '%s' is %s but '%s' is %s", b->call->op, k->name,
        shape_of(b, k), v->name, shape_of(b, v));
  if (q->shape[0] == k->shape[0] && q->shape[2] == k->shape[2]) return true;
  return tsr_diag_error(
      b->diags, b->call->op_place, "%s: '%s' %s and '%s' %s differ in batch or sequence",
      b->call->op, q->name, shape_of(b, q), k->name, shape_of(b, k));
}

/* Attention of PyTorch's layout, (batch, heads, sequence, head_dim), which says head_dim. */
static bool call_flash_attention(const builder *b) {
  static const char *const parts[] = {"q", "k", "v"};
  const tsr_call *c = b->call;
  const tsr_value *q = &b->g->values[c->inputs[0]];
  tsr_attrs attr;
  if (q->ndim == 3) return tsr_call_add_op(b, TSR_OP_ATTENTION);
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_flash_attention_call), &attr)) return false;
  const tsr_flash_attention_call_attrs *a = &attr.flash_attention_call;
  int inputs[3];
  for (int i = 0; i < 3; i++) {
    const tsr_value *x = &b->g->values[c->inputs[i]];
    if (x->ndim != 4)
      return tsr_diag_error(
          b->diags, c->input_places[i],
          "%s: '%s' must be (batch, heads, sequence, head_dim), or all inputs (batch, sequence, "
          "heads * head_dim), not %s",
          c->op, x->name, shape_of(b, x));
    if (i < 2 && x->shape[3] != q->shape[3])
      return tsr_diag_error(
          b->diags, c->input_places[i], "%s: '%s' has heads of %lld features, '%s' of %lld", c->op,
          x->name, (long long)x->shape[3], q->name, (long long)q->shape[3]);
  }
  if (!check_flash_inputs(b)) return false;
  for (int i = 0; i < 3; i++) {
    inputs[i] = join_heads(b, i, parts[i]);
    if (inputs[i] < 0) return false;
  }
  q = &b->g->values[c->inputs[0]]; /* the values may have moved */
  int64_t head_dim = q->shape[3], values = b->g->values[c->inputs[2]].shape[3];
  int64_t shape[] = {q->shape[0], q->shape[2], q->shape[1], values};
  tsr_attrs of = {.attention = {head_dim, a->causal, a->scale, a->dropout, a->window}};
  of.attention.soft_cap = a->soft_cap;
  if (values != head_dim) of.attention.v_head_dim = values;
  const char *name = tsr_arena_printf(b->g->arena, "%s.joined", c->result);
  int y = checked(b, TSR_OP_ATTENTION, name, 3, inputs, &of);
  if (y < 0) return false;
  y = reshaped(b, tsr_arena_printf(b->g->arena, "%s.split", c->result), y, 4, shape);
  return give(b, transposed(b, c->result, y, 1, 2));
}

/* ---- stages ---- */

static bool check_stage_axis(const builder *b, tsr_axis axis) {
  return axis == TSR_PP || tsr_diag_error(
                               b->diags, b->call->op_place,
                               "%s: a value moves between stages: its axis is pp, not %s",
                               b->call->op, tsr_axis_name(axis));
}

/* A value that a later stage reads; lowering sends it. */
static bool call_send(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_send_call), &attr) ||
      !check_stage_axis(b, attr.send_call.axis))
    return false;
  int stage = b->g->stage_marks_count;
  if (attr.send_call.to != stage + 1)
    return tsr_diag_error(
        b->diags, c->op_place,
        "send: 'to' is %lld, but the statements here are of stage %d, which sends to stage %d",
        (long long)attr.send_call.to, stage, stage + 1);
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t shape[TSR_DIMS_MAX];
  memcpy(shape, x->shape, sizeof shape);
  return give(b, reshaped(b, c->result, c->inputs[0], x->ndim, shape));
}

/* The first receive from a stage begins the next one; others may follow it at once. */
static bool call_receive(const builder *b) {
  const tsr_call *c = b->call;
  tsr_graph *g = b->g;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_receive_call), &attr) ||
      !check_stage_axis(b, attr.receive_call.axis))
    return false;
  int64_t from = attr.receive_call.from;
  int count = g->stage_marks_count;
  bool follows = count && g->stage_marks[count - 1].node == g->nodes_count && from == count - 1;
  if (from != count && !follows)
    return tsr_diag_error(
        b->diags, c->op_place,
        "receive: 'from' is %lld, but the statements before it are of stage %d", (long long)from,
        count);
  if (!follows) {
    tsr_arena_grow(
        g->arena, (void **)&g->stage_marks, sizeof *g->stage_marks, count,
        &g->stage_marks_capacity);
    g->stage_marks[g->stage_marks_count++] = (tsr_stage_mark){g->nodes_count, c->op_place};
  }
  return give(b, c->inputs[0]);
}

/* Training minimizes the value. */
static bool call_backward(const builder *b) {
  const tsr_call *c = b->call;
  tsr_attrs attr;
  if (!read_attrs(b, tsr_attr_set_of(TSR_ATTRS_none), &attr)) return false;
  const char *name = b->g->values[c->inputs[0]].name;
  if (tsr_graph_find_loss(b->g, c->inputs[0]) < 0)
    return tsr_diag_error(
        b->diags, c->input_places[0], "%s: '%s' must be a result of cross_entropy or mse", c->op,
        name);
  if (b->g->minimized >= 0 && b->g->minimized != c->inputs[0])
    return tsr_diag_error(
        b->diags, c->op_place, "%s: '%s' is minimized already", c->op,
        b->g->values[b->g->minimized].name);
  b->g->minimized = c->inputs[0];
  return give(b, c->inputs[0]);
}

/* ---- the table ---- */

const tsr_call_form tsr_call_forms[] = {
    {"linear", 2, 3, TSR_OP_LINEAR, TSR_ATTRS_none, call_linear},
    {"expert_linear", 3, 4, TSR_OP_EXPERT_LINEAR, TSR_ATTRS_none, call_expert_linear},
    {"matmul", 2, 2, TSR_OP_MATMUL, TSR_ATTRS_matmul, call_matmul},
    {"rope", 1, 1, TSR_OP_ROPE, TSR_ATTRS_rope_call, call_rope},
    {"split", 1, 1, TSR_OP_SLICE, TSR_ATTRS_split_call, call_split},
    {"concat", 2, TSR_CALL_INPUTS_MAX, TSR_OP_CONCAT, TSR_ATTRS_concat_call, call_concat},
    {"flash_attention", 3, 3, TSR_OP_ATTENTION, TSR_ATTRS_flash_attention_call,
     call_flash_attention},
    {"cross_entropy", 2, 2, TSR_OP_CE_LOSS, TSR_ATTRS_cross_entropy_call, call_cross_entropy},
    {"mse", 2, 2, TSR_OP_SQUARED_ERROR, TSR_ATTRS_none, call_mse},
    {"reshape", 1, 1, TSR_OP_RESHAPE, TSR_ATTRS_reshape_call, call_reshape},
    {"send", 1, 1, TSR_OP_RESHAPE, TSR_ATTRS_send_call, call_send},
    {"receive", 1, 1, TSR_OP_RESHAPE, TSR_ATTRS_receive_call, call_receive},
    {"backward", 1, 1, TSR_OP_RESHAPE, TSR_ATTRS_none, call_backward},
    {"autodiff", 1, 1, TSR_OP_RESHAPE, TSR_ATTRS_none, call_backward},
    {"allreduce", 1, 1, TSR_OP_ALL_REDUCE, TSR_ATTRS_move, NULL},
    {"gather", 1, 1, TSR_OP_ALL_GATHER, TSR_ATTRS_all_gather, NULL},
};
const int tsr_call_forms_count = sizeof tsr_call_forms / sizeof *tsr_call_forms;
