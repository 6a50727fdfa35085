// SPDX-License-Identifier: Apache-2.0
#include "graph/infer_rule.h"
#include <string.h>

static const char *infer_none(const inference *i) {
  (void)i;
  return NULL;
}

static const char *infer_same(const inference *i) {
  for (int o = 0; o < tsr_op_outputs(i->node->op); o++) i->out[o] = type_of(i->in[0]);
  return NULL;
}

static const char *infer_same2(const inference *i) {
  if (!same_shape(i->in[0], i->in[1]))
    return wrong(
        i, "'%s' is %s but '%s' is %s", i->in[0]->name, shape_of(i, i->in[0]), i->in[1]->name,
        shape_of(i, i->in[1]));
  return infer_same(i);
}

/* The second input's shape is the first one's, or its last dimensions. */
static const char *infer_broadcast(const inference *i) {
  const tsr_value *a = i->in[0], *b = i->in[1];
  bool fits = b->ndim <= a->ndim;
  for (int d = 1; fits && d <= b->ndim; d++) fits = a->shape[a->ndim - d] == b->shape[b->ndim - d];
  if (!fits)
    return wrong(
        i, "'%s' %s does not fit '%s' %s: it must have the same last dimensions", b->name,
        shape_of(i, b), a->name, shape_of(i, a));
  return infer_same(i);
}

static const char *infer_linear(const inference *i) {
  const tsr_value *x = i->in[0], *w = i->in[1];
  if (w->ndim != 2)
    return wrong(
        i, "the weight '%s' must have 2 dimensions (out, in), not %s", w->name, shape_of(i, w));
  if (last_dim(x) != w->shape[1])
    return wrong(
        i, "'%s' has %lld features but the weight '%s' %s takes %lld", x->name,
        (long long)last_dim(x), w->name, shape_of(i, w), (long long)w->shape[1]);
  i->out[0] = type_of(x);
  i->out[0].shape[x->ndim - 1] = w->shape[0];
  return NULL;
}

static const char *infer_linear_dx(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[0].shape[i->in[0]->ndim - 1] = i->in[1]->shape[1];
  return NULL;
}

static const char *infer_linear_dw(const inference *i) {
  i->out[0] = type_of(i->in[2]);
  return NULL;
}

static const char *infer_matmul(const inference *i) {
  const tsr_value *a = i->in[0], *b = i->in[1];
  bool ta = i->node->attr.matmul.transpose_a, tb = i->node->attr.matmul.transpose_b;
  if (a->ndim < 2 || b->ndim != a->ndim ||
      memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)(a->ndim - 2)))
    return wrong(
        i, "'%s' %s and '%s' %s must agree in all but the last two dimensions", a->name,
        shape_of(i, a), b->name, shape_of(i, b));
  int n = a->ndim;
  int64_t ka = a->shape[ta ? n - 2 : n - 1], kb = b->shape[tb ? n - 1 : n - 2];
  if (ka != kb)
    return wrong(
        i, "'%s' %s has %lld to sum over but '%s' %s has %lld", a->name, shape_of(i, a),
        (long long)ka, b->name, shape_of(i, b), (long long)kb);
  i->out[0] = type_of(a);
  i->out[0].shape[n - 2] = a->shape[ta ? n - 1 : n - 2];
  i->out[0].shape[n - 1] = b->shape[tb ? n - 2 : n - 1];
  return NULL;
}

static const char *infer_embedding(const inference *i) {
  const tsr_value *tokens = i->in[0], *table = i->in[1];
  if (tokens->dtype != TSR_I32) return wrong(i, "'%s' holds numbers, not tokens", tokens->name);
  if (table->ndim != 2 || tokens->ndim >= TSR_DIMS_MAX)
    return wrong(
        i, "the table '%s' must have 2 dimensions, not %s", table->name, shape_of(i, table));
  int64_t padding = i->node->attr.embedding.padding;
  if (padding < -1 || padding >= table->shape[0])
    return wrong(
        i, "padding %lld is none of the %lld rows of '%s'", (long long)padding,
        (long long)table->shape[0], table->name);
  i->out[0] = type_of(tokens);
  i->out[0].dtype = TSR_F32;
  i->out[0].shape[i->out[0].ndim++] = table->shape[1];
  return NULL;
}

static const char *check_norm_weight(const inference *i, int input) {
  const tsr_value *x = i->in[0], *w = i->in[input];
  if (w->ndim == 1 && w->shape[0] == last_dim(x)) return NULL;
  return wrong(
      i, "'%s' is %s but '%s' has rows of %lld", w->name, shape_of(i, w), x->name,
      (long long)last_dim(x));
}

static tsr_type row_numbers(const tsr_value *x) {
  tsr_type t = type_of(x);
  if (t.ndim > 1) t.ndim--;
  else t.shape[0] = 1;
  return t;
}

static const char *infer_rmsnorm(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[1] = row_numbers(i->in[0]);
  return check_norm_weight(i, 1);
}

static const char *infer_layernorm(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[1] = i->out[2] = row_numbers(i->in[0]);
  const char *bad = check_norm_weight(i, 1);
  return bad || i->node->inputs_count == 2 ? bad : check_norm_weight(i, 2);
}

static const char *check_heads(const inference *i, int input, int64_t head_dim) {
  const tsr_value *x = i->in[input];
  if (x->ndim != 3)
    return wrong(
        i, "'%s' must be (batch, sequence, heads * head_dim), not %s", x->name, shape_of(i, x));
  if (head_dim < 1 || last_dim(x) % head_dim)
    return wrong(
        i, "%shead_dim %lld does not divide the %lld features of '%s'",
        head_dim != i->node->attr.attention.head_dim ? "v_" : "", (long long)head_dim,
        (long long)last_dim(x), x->name);
  return NULL;
}

static const char *infer_rope(const inference *i) {
  int64_t head_dim = i->node->attr.rope.head_dim;
  const char *bad = check_heads(i, 0, head_dim);
  if (bad) return bad;
  int64_t rotary = tsr_rope_rotary(&i->node->attr.rope);
  const tsr_value *table = i->in[1];
  if (table->ndim != 3 || table->shape[0] < i->in[0]->shape[1] || table->shape[1] != rotary / 2)
    return wrong(
        i, "the table '%s' is %s, too small for '%s' %s", table->name, shape_of(i, table),
        i->in[0]->name, shape_of(i, i->in[0]));
  return infer_same(i);
}

static const char *infer_attention(const inference *i) {
  const tsr_attention_attrs *attr = &i->node->attr.attention;
  int64_t d = attr->head_dim, dv = tsr_node_value_head(i->node);
  for (int k = 0; k < 3; k++) {
    const char *bad = check_heads(i, k, k == 2 ? dv : d);
    if (bad) return bad;
  }
  const tsr_value *q = i->in[0], *k = i->in[1], *v = i->in[2];
  bool fit = k->shape[0] == v->shape[0] && k->shape[1] == v->shape[1];
  if (!fit || last_dim(k) / d != last_dim(v) / dv)
    return wrong(i, "'%s' is %s but '%s' is %s", k->name, shape_of(i, k), v->name, shape_of(i, v));
  if (q->shape[0] != k->shape[0] || q->shape[1] != k->shape[1])
    return wrong(
        i, "'%s' %s and '%s' %s differ in batch or sequence", q->name, shape_of(i, q), k->name,
        shape_of(i, k));
  int64_t heads = last_dim(q) / d, groups = last_dim(k) / d;
  if (heads % groups)
    return wrong(
        i, "%lld key/value heads do not divide %lld query heads", (long long)groups,
        (long long)heads);
  if (attr->window > 0 && !attr->causal) return wrong(i, "a window needs causal attention");
  int at = tsr_node_sinks(i->node);
  const tsr_value *sinks = at < 0 ? NULL : i->in[at];
  if (sinks && (sinks->ndim != 1 || sinks->shape[0] != heads))
    return wrong(
        i, "'%s' must have a sink for each of the %lld heads, not %s", sinks->name,
        (long long)heads, shape_of(i, sinks));
  i->out[0] = type_of(q);
  i->out[0].shape[2] = heads * dv;
  i->out[1] = (tsr_type){TSR_F32, 4, {q->shape[0], heads, q->shape[1], 2}};
  return NULL;
}

static const char *infer_document_attention(const inference *i) {
  const tsr_value *q = i->in[0], *positions = i->in[3];
  const char *bad = infer_attention(i);
  if (bad) return bad;
  bool fit = positions->ndim == 2 && positions->dtype == TSR_I32 &&
             positions->shape[0] == q->shape[0] && positions->shape[1] == q->shape[1];
  return fit ? NULL
             : wrong(
                   i, "'%s' %s are not the positions of '%s' %s", positions->name,
                   shape_of(i, positions), q->name, shape_of(i, q));
}

/* dout, out (B, T, H*Dv), stats, sinks (H) → (B, T, H) */
static const char *infer_attention_sinks_dx(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[0].shape[2] = i->in[3]->shape[0];
  return NULL;
}

static const char *infer_attention_dx(const inference *i) {
  for (int o = 0; o < 3; o++) i->out[o] = type_of(i->in[1 + o]);
  return NULL;
}

static const char *infer_gated_dx(const inference *i) {
  i->out[0] = i->out[1] = type_of(i->in[0]);
  return NULL;
}

static const char *infer_reshape(const inference *i) { return wrong(i, "its shape must be given"); }

static const char *infer_transpose(const inference *i) {
  int a = i->node->attr.transpose.dim0, b = i->node->attr.transpose.dim1, n = i->in[0]->ndim;
  if (a < 0 || b < 0 || a >= n || b >= n)
    return wrong(
        i, "dimensions %d and %d of '%s' %s: it has 0 to %d", a, b, i->in[0]->name,
        shape_of(i, i->in[0]), n - 1);
  i->out[0] = type_of(i->in[0]);
  i->out[0].shape[a] = i->in[0]->shape[b];
  i->out[0].shape[b] = i->in[0]->shape[a];
  if (a != b && (a == 0 || b == 0)) i->out[0].routed = (tsr_routed){0};
  return NULL;
}

static const char *infer_slice(const inference *i) {
  const tsr_value *x = i->in[0];
  const tsr_slice_attrs *attr = &i->node->attr.slice;
  int dim = attr->dim;
  int64_t begin = attr->begin, end = attr->end;
  if (dim < 0 || dim >= x->ndim || begin < 0 || end <= begin || end > x->shape[dim])
    return wrong(
        i, "[%lld, %lld) of dimension %d is not inside '%s' %s", (long long)begin, (long long)end,
        dim, x->name, shape_of(i, x));
  i->out[0] = type_of(x);
  i->out[0].shape[dim] = end - begin;
  return NULL;
}

static const char *check_dim(const inference *i, int dim) {
  const tsr_value *x = i->in[0];
  if (dim >= 0 && dim < x->ndim) return NULL;
  return wrong(
      i, "'%s' %s has no dimension %d: it has 0 to %d", x->name, shape_of(i, x), dim, x->ndim - 1);
}

/* The dimensions that a written-out collective names. */
static const char *infer_collective(const inference *i) {
  const tsr_attrs *attr = &i->node->attr;
  const char *bad = NULL;
  switch ((int)i->node->op) {
  case TSR_OP_ALL_GATHER:
    if (attr->all_gather.dim != -1) bad = check_dim(i, attr->all_gather.dim);
    break;
  case TSR_OP_REDUCE_SCATTER:
  case TSR_OP_SCATTER:
    bad = check_dim(i, attr->scatter.dim);
    break;
  case TSR_OP_ALL_TO_ALL:
    bad = check_dim(i, attr->all_to_all.dim);
    if (!bad) bad = check_dim(i, attr->all_to_all.from);
    if (!bad && attr->all_to_all.from == attr->all_to_all.dim)
      bad = wrong(i, "'from' and 'dim' are both %d", attr->all_to_all.dim);
    break;
  }
  return bad ? bad : infer_same(i);
}

static const char *infer_unslice(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[0].shape[i->node->attr.unslice.dim] = i->node->attr.unslice.size;
  return NULL;
}

/* All dimensions but one agree. */
static const char *infer_concat(const inference *i) {
  const tsr_value *first = i->in[0];
  int dim = i->node->attr.concat.dim;
  const char *bad = check_dim(i, dim);
  if (bad) return bad;
  i->out[0] = type_of(first);
  for (int k = 1; k < i->node->inputs_count; k++) {
    const tsr_value *x = i->in[k];
    bool fits = x->ndim == first->ndim;
    for (int d = 0; fits && d < x->ndim; d++) fits = d == dim || x->shape[d] == first->shape[d];
    if (!fits)
      return wrong(
          i, "'%s' is %s but '%s' is %s: they may differ in dimension %d alone", first->name,
          shape_of(i, first), x->name, shape_of(i, x), dim);
    i->out[0].shape[dim] += x->shape[dim];
  }
  return NULL;
}

static const char *infer_adapted_squares(const inference *i) {
  i->out[0] = (tsr_type){.dtype = TSR_F32, .ndim = 1, .shape = {i->in[0]->shape[0]}};
  return NULL;
}

static const char *infer_expand_heads(const inference *i) {
  const tsr_value *x = i->in[0];
  int64_t heads = i->node->attr.expand_heads.heads;
  if (x->ndim != 3)
    return wrong(i, "'%s' must be (batch, sequence, features), not %s", x->name, shape_of(i, x));
  if (heads < 1 || heads > INT32_MAX)
    return wrong(i, "%lld heads of '%s'", (long long)heads, x->name);
  i->out[0] = type_of(x);
  i->out[0].shape[2] *= heads;
  return NULL;
}

static const char *infer_sum_heads(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[0].shape[2] /= i->node->attr.expand_heads.heads;
  return NULL;
}

static const char *check_targets(const inference *i, int targets) {
  const tsr_value *x = i->in[0], *t = i->in[targets];
  bool fits = t->dtype == TSR_I32 && t->ndim == x->ndim - 1 &&
              !memcmp(t->shape, x->shape, sizeof *t->shape * (size_t)t->ndim);
  if (fits) return NULL;
  return wrong(
      i, "targets '%s' %s do not fit logits '%s' %s", t->name, shape_of(i, t), x->name,
      shape_of(i, x));
}

static const char *infer_ce_stats(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  if (i->out[0].ndim == TSR_DIMS_MAX)
    return wrong(i, "'%s' %s has too many dimensions", i->in[0]->name, shape_of(i, i->in[0]));
  int64_t *vocab = &i->out[0].shape[i->out[0].ndim - 1], units = i->graph->units.tp;
  *vocab = *vocab % units ? 1 : units; /* what does not divide stays whole on every rank */
  i->out[0].shape[i->out[0].ndim++] = 3;
  return check_targets(i, 1);
}

/* One number, or one for each sample. */
static tsr_type type_of_loss(const inference *i) {
  int64_t samples = tsr_loss_samples(i->node);
  return (tsr_type){TSR_F32, 1, {samples ? samples : 1}};
}

static const char *infer_ce_loss(const inference *i) {
  i->out[0] = type_of_loss(i);
  i->out[1] = type_of(i->in[0]);
  i->out[1].shape[i->out[1].ndim - 1] = 2;
  return check_targets(i, 2);
}

static const char *infer_squared(const inference *i) {
  const char *bad = infer_same2(i);
  i->out[0] = type_of_loss(i);
  return bad;
}

static const char *infer_like_last(const inference *i) {
  i->out[0] = type_of(&i->graph->values[i->node->inputs[i->node->inputs_count - 1]]);
  return NULL;
}

/* The pieces (schedule/norm_pieces.h). ep, cp and tp share out experts, so those of experts'
 * weights are their experts; another gradient dp may split (ZeRO), and cp that of a table of
 * positions: the pieces divide by both's units. */
static const char *infer_norm_stats(const inference *i) {
  int64_t batch = i->graph->units.batch > 1 ? i->graph->units.batch : 1,
          sequence = i->graph->units.sequence > 1 ? i->graph->units.sequence : 1, a = batch;
  for (int64_t b = sequence, rest; b; a = b, b = rest) rest = a % b;
  int64_t pieces = batch / a * sequence;
  if (tsr_routed_is_weights(i->in[0]->routed)) pieces = i->in[0]->shape[0];
  i->out[0] = (tsr_type){TSR_F32, 2, {pieces, 1}};
  return NULL;
}

/* With as many rows as the gradient of most pieces has; behind the pieces of others are zeros. */
static const char *infer_norm_join(const inference *i) {
  i->out[0] = (tsr_type){TSR_F32, 2, {1, i->node->inputs_count}};
  for (int k = 0; k < i->node->inputs_count; k++) {
    int64_t pieces = i->graph->values[i->node->inputs[k]].shape[0];
    if (pieces > i->out[0].shape[0]) i->out[0].shape[0] = pieces;
  }
  return NULL;
}

static const char *infer_clip(const inference *i) {
  i->out[0] = (tsr_type){TSR_F32, 1, {3}}; /* norm, factor, whether there is an update */
  return NULL;
}

/* An accumulator, whose size the device defines. */
static const char *infer_ring_acc(const inference *i) {
  i->out[0] = (tsr_type){TSR_F32, 1, {1}};
  return NULL;
}

/* Of x (B, T, heads * head_dim), with heads as wide as those of values. */
static tsr_type value_heads(const inference *i, const tsr_value *x) {
  tsr_type t = type_of(x);
  t.shape[2] = t.shape[2] / i->node->attr.attention.head_dim * tsr_node_value_head(i->node);
  return t;
}

static tsr_type rows_type(const tsr_value *x, int64_t head_dim, int64_t numbers) {
  return (tsr_type){TSR_F32, 4, {x->shape[0], x->shape[2] / head_dim, x->shape[1], numbers}};
}

/* q, k, acc → out (B, T, H*Dv), stats (B, H, T, 2) */
static const char *infer_ring_out(const inference *i) {
  i->out[0] = value_heads(i, i->in[0]);
  i->out[1] = rows_type(i->in[0], i->node->attr.ring_end.head_dim, 2);
  return NULL;
}

/* dout, out, stats → rows (B, H, T, 3) */
static const char *infer_ring_rows(const inference *i) {
  i->out[0] = rows_type(i->in[0], tsr_node_value_head(i->node), 3);
  return NULL;
}

/* q, k, acc → dk, dv */
static const char *infer_ring_dkv_out(const inference *i) {
  i->out[0] = type_of(i->in[1]);
  i->out[1] = value_heads(i, i->in[1]);
  return NULL;
}

/* q, keys, values, positions, counts, pages → out */
static const char *infer_attention_cached(const inference *i) {
  i->out[0] = value_heads(i, i->in[0]);
  return NULL;
}

/* x (B, C, W), positions (B), counts (B), pages (B, pages of a row) → (pages, page, W) */
static const char *infer_kv_cache_append(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[0].shape[0] = i->node->attr.kv_cache_append.pages;
  i->out[0].shape[1] = i->node->attr.kv_cache_append.page;
  return NULL;
}

/* table (T, E), positions (B) → (B, count, E) */
static const char *infer_gather_rows(const inference *i) {
  const tsr_value *table = i->in[0], *positions = i->in[1];
  int64_t count = i->node->attr.gather_rows.count;
  i->out[0] = (tsr_type){table->dtype, 3, {positions->shape[0], count, table->shape[1]}};
  return NULL;
}

/* x (B, C, E), counts (B) → (B, 1, E) */
static const char *infer_slice_last(const inference *i) {
  i->out[0] = type_of(i->in[0]);
  i->out[0].shape[1] = 1;
  return NULL;
}

/* infer_experts.c */
#define infer_choose_experts tsr_infer_choose_experts
#define infer_expert_weights tsr_infer_expert_weights
#define infer_expert_weights_dx tsr_infer_expert_weights_dx
#define infer_expert_plan tsr_infer_expert_plan
#define infer_permute_experts tsr_infer_permute_experts
#define infer_expert_linear tsr_infer_expert_linear
#define infer_expert_add tsr_infer_expert_add
#define infer_expert_linear_dx tsr_infer_expert_linear_dx
#define infer_combine_experts tsr_infer_combine_experts
#define infer_combine_experts_dx tsr_infer_combine_experts_dx
#define infer_balance_loss tsr_infer_balance_loss
#define infer_balance_loss_dx tsr_infer_balance_loss_dx
#define infer_expert_counts tsr_infer_expert_counts

static infer_rule *const rules[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, ...) infer_##infer,
#include "graph/ops.def"
#undef OP
};

const char *tsr_infer(const tsr_graph *g, const tsr_node *node, tsr_type *ret_types) {
  inference i = {.arena = g->arena, .graph = g, .node = node, .out = ret_types};
  for (int k = 0; k < node->inputs_count && k < TSR_CALL_INPUTS_MAX; k++)
    i.in[k] = &g->values[node->inputs[k]];
  return rules[node->op](&i);
}
