// SPDX-License-Identifier: Apache-2.0
/* Sums: every summing task's record against the graph, its placements and the recipe's units.
 *
 * Which rows belong to which unit is derived here from the other end: from the global position of a
 * rank's elements, where the record counts a rank's own blocks and leaves. What must hold:
 *   - all operands of a sum are split alike along what is summed, and a sum over a dimension that
 *     an axis splits is partial over that axis;
 *   - the ranks' units are the recipe's, and a rank's are a subtree of the recipe's tree;
 *   - sums over tp are rounded in their units where the recipe adds in half precision, others not;
 *   - each row is summed once, by the block and leaf whose unit its global position is in, on every
 *     rank; rows of a leaf come in an order, and in runs, that no placement changes. */
#include "schedule/verify_sums.h"
#include <string.h>

/* ---- which dimensions an op sums over ---- */

/* `dims` dimensions from first[k] on of operand k. */
typedef struct {
  int operands, input[4], first[4], dims;
} sum_dims;

static void add_operand(sum_dims *s, int input, int first) {
  s->input[s->operands] = input;
  s->first[s->operands++] = first;
}

/* Of the sums that an op makes the one number `index`; no operands: there are no more. */
static sum_dims dims_of(const tsr_graph *g, const tsr_node *n, int index) {
  sum_dims s = {.dims = 1};
  int rank[3] = {0};
  for (int i = 0; i < n->inputs_count && i < 3; i++) rank[i] = g->values[n->inputs[i]].ndim;
  if (index && n->op != TSR_OP_LINEAR_DX) return s;
  switch ((int)n->op) {
  case TSR_OP_LINEAR: /* x (…, K), w (N, K) */
  case TSR_OP_ROUTER:
    add_operand(&s, 0, rank[0] - 1);
    add_operand(&s, 1, 1);
    return s;
  case TSR_OP_EXPERT_LINEAR: /* x (R, K), w (E, N, K) */
    add_operand(&s, 0, 1);
    add_operand(&s, 1, 2);
    return s;
  case TSR_OP_EXPERT_LINEAR_DX: /* dy (R, N), w (E, N, K) */
    add_operand(&s, 0, 1);
    add_operand(&s, 1, 1);
    return s;
  case TSR_OP_ROUTER_DX:
  case TSR_OP_LINEAR_DX: /* pairs of dy (…, N), w (N, K), each a sum over its N */
    if (2 * index >= n->inputs_count) return s;
    add_operand(&s, 2 * index, rank[0] - 1);
    add_operand(&s, 2 * index + 1, 0);
    return s;
  case TSR_OP_MATMUL: /* a (…, M, K), b (…, K, N), or transposed */
    add_operand(&s, 0, n->attr.matmul.transpose_a ? rank[0] - 2 : rank[0] - 1);
    add_operand(&s, 1, n->attr.matmul.transpose_b ? rank[1] - 1 : rank[1] - 2);
    return s;
  case TSR_OP_LINEAR_DW:     /* dy (…, N), x (…, K) */
  case TSR_OP_SQUARED_ERROR: /* y (…, N), targets (…, N) */
    s.dims = rank[0] - 1;
    add_operand(&s, 0, 0);
    add_operand(&s, 1, 0);
    return s;
  case TSR_OP_NORM_DW: /* dy (…, C)[, x (…, C), statistics], w (C) */
    s.dims = rank[0] - 1;
    for (int i = 0; i < n->inputs_count - 1; i++) add_operand(&s, i, 0);
    return s;
  case TSR_OP_ADAPTED_SQUARES: /* w (N, K), a (R, K), b (N, R) */
    add_operand(&s, 0, 1);
    add_operand(&s, 1, 1);
    return s;
  case TSR_OP_EMBEDDING_DW: /* tokens (…), dy (…, C) */
    s.dims = rank[0];
    add_operand(&s, 0, 0);
    add_operand(&s, 1, 0);
    return s;
  case TSR_OP_SUM_TO: /* x (…, shape), like (shape) */
    s.dims = rank[0] - rank[1];
    if (s.dims) add_operand(&s, 0, 0);
    return s;
  case TSR_OP_SUM_HEADS: /* x (…, heads * D), in which units are of whole heads */
  case TSR_OP_CE_STATS:  /* logits (…, V) */
    add_operand(&s, 0, rank[0] - 1);
    return s;
  case TSR_OP_CE_LOSS: /* stats (…, U, 3), targets (…); logits are an input for their gradient */
    s.dims = rank[2];
    add_operand(&s, 2, 0);
    add_operand(&s, 1, 0);
    return s;
  default:
    return s;
  }
}

/* ---- what the recipe demands ---- */

static int64_t one(int64_t n) { return n > 1 ? n : 1; }

static int64_t recipe_units(const tsr_sum_check *c, int axis) {
  const tsr_lowering *l = &c->p->lowering;
  const tsr_units *u = &c->v->graph->units;
  if (axis == TSR_CP) return one(u->sequence);
  return axis == TSR_TP ? one(u->tp) : one(l->batch_units) * tsr_lowering_batch_ranks(l);
}

/* The dimension whose units the output keeps apart: where positions are, the one that cp splits,
 * else the second; else the one that tp splits. Of a vocabulary, all. */
static int find_kept(const tsr_sum_check *c, tsr_op op) {
  tsr_placement cp = c->in->placement[TSR_CP];
  if (op == TSR_OP_CE_STATS) return 0;
  if (!c->out->units) return -1;
  if (!c->out->units_of_sequence) return c->in->placement[TSR_TP].dim - c->first;
  return (cp.kind == TSR_SHARD ? cp.dim : 1) - c->first;
}

static void add_split(tsr_sum_dim *d, tsr_sum_split k) { d->splits[d->splits_count++] = k; }

/* The units that a dimension is split by, from its placement. */
static void find_splits(tsr_sum_check *c, int dim) {
  static const int kinds[TSR_AXES] = {
      [TSR_DP] = TSR_UNITS_BATCH, [TSR_CP] = TSR_UNITS_SEQUENCE, [TSR_TP] = TSR_UNITS_TP};
  static const int axes[] = {TSR_DP, TSR_CP, TSR_TP};
  const tsr_lowering *l = &c->p->lowering;
  tsr_sum_dim *d = &c->dim[dim];
  bool kept = dim == c->kept, positions = kept && c->out->units_of_sequence;
  for (int i = 0; i < 3; i++) {
    int axis = axes[i];
    bool apart = axis == TSR_CP ? c->out->units_of_sequence : axis == TSR_TP && c->out->units > 0;
    bool partial = tsr_sum_is_partial(c, axis, dim);
    if (axis == TSR_DP) partial |= tsr_sum_is_partial(c, TSR_EP, dim);
    if (!partial || apart) continue;
    int64_t global = recipe_units(c, axis), local = global / l->size[axis];
    if (axis == TSR_DP) local = one(l->batch_units);
    bool zigzag = axis == TSR_CP && l->zigzag;
    add_split(d, (tsr_sum_split){kinds[axis], global, local, zigzag});
    c->units[kinds[axis]] = local;
  }
  if (!kept) return;
  int64_t global = c->out->units, local = global;
  if (tsr_sum_is_partial(c, TSR_TP, dim)) local /= l->size[TSR_TP];
  if (positions && tsr_sum_is_partial(c, TSR_CP, dim)) local /= l->size[TSR_CP];
  bool by_tp = tsr_sum_splits(c->in->placement[TSR_TP], c->first + dim);
  add_split(d, (tsr_sum_split){TSR_UNITS_KEPT, global, local, positions && l->zigzag && !by_tp});
  c->units[TSR_UNITS_KEPT] = local;
}

/* The statistics of a vocabulary, (…, units of tp, 3); one that these do not divide has one unit.
 */
static void find_vocabulary(tsr_sum_check *c) {
  int64_t global = recipe_units(c, TSR_TP), local;
  if (c->dim[0].whole % global) global = 1;
  local = global;
  if (tsr_sum_splits(c->in->placement[TSR_TP], c->first)) local /= c->p->lowering.size[TSR_TP];
  add_split(&c->dim[0], (tsr_sum_split){TSR_UNITS_KEPT, global, local, false});
  c->units[TSR_UNITS_KEPT] = local;
}

/* ---- operands ---- */

/* What one operand has of a summed dimension: as long as the first, and split alike. */
static bool check_operand(const tsr_sum_check *c, int input, int dim, int d) {
  const tsr_value *x = &c->v->graph->values[input];
  const tsr_tensor *t = &c->p->tensors[input];
  for (int a = 0; a < TSR_AXES; a++) {
    bool splits = tsr_sum_splits(x->placement[a], dim),
         first = tsr_sum_splits(c->in->placement[a], c->first + d);
    if (c->p->lowering.size[a] == 1) continue;
    if (splits != first &&
        !tsr_verify_say_task(
            c->v, c->s, c->task, -1, "it sums '%s' and '%s', of which %s splits one along the sum",
            c->in->name, x->name, tsr_axis_name(a)))
      return false;
  }
  if (t->shape[dim] == c->dim[d].local && x->shape[dim] == c->dim[d].whole) return true;
  return tsr_verify_say_task(
      c->v, c->s, c->task, -1, "it sums over %lld of '%s' and %lld of '%s'",
      (long long)c->dim[d].local, c->in->name, (long long)t->shape[dim], x->name);
}

static bool check_operands(const tsr_sum_check *c, const tsr_node *n, const sum_dims *s) {
  for (int d = 0; d < s->dims; d++)
    for (int k = 0; k < s->operands; k++)
      if (!check_operand(c, n->inputs[s->input[k]], s->first[k] + d, d)) return false;
  for (int d = 0; d < s->dims && c->r->ndim == s->dims; d++) {
    if (c->r->dim[d].size != c->dim[d].local &&
        !tsr_verify_say_task(
            c->v, c->s, c->task, -1,
            "its record sums over %lld of dimension %d of '%s', which has %lld",
            (long long)c->r->dim[d].size, c->first + d, c->in->name, (long long)c->dim[d].local))
      return false;
  }
  if (c->r->ndim == s->dims) return true;
  return tsr_verify_say_task(
             c->v, c->s, c->task, -1, "its record sums over %d dimensions of '%s', its op over %d",
             c->r->ndim, c->in->name, s->dims) &&
         c->r->ndim >= 0 && c->r->ndim <= TSR_REDUCED_DIMS_MAX;
}

/* ---- units ---- */

/* The units of each axis, which of them are kept apart, and room for these in the output. */
static bool check_counts(const tsr_sum_check *c) {
  const tsr_task *t = c->t;
  const tsr_reduction *r = c->r;
  const tsr_tensor *y = &t->outputs[0];
  const int64_t *want = c->units;
  bool apart = c->apart;
  int64_t room = t->op == TSR_OP_CE_STATS ? y->shape[y->ndim - 2] : one(y->units);
  if (c->samples) room = y->shape[0];
  int64_t blocks = (apart ? want[TSR_UNITS_BATCH] : 1) * want[TSR_UNITS_KEPT];
  if (r->batch == want[TSR_UNITS_BATCH] && r->sequence == want[TSR_UNITS_SEQUENCE] &&
      r->tp == want[TSR_UNITS_TP] && r->kept == want[TSR_UNITS_KEPT] && r->kept_dim == c->kept &&
      r->keeps_batch == apart && blocks == room)
    return true;
  return tsr_verify_say_task(
      c->v, c->s, c->task, -1,
      "its record has %lld batch, %lld sequence, %lld tp units and keeps %lld apart; the recipe "
      "has %lld, %lld, %lld and %lld, and '%s' has room for %lld",
      (long long)r->batch, (long long)r->sequence, (long long)r->tp, (long long)r->kept,
      (long long)want[TSR_UNITS_BATCH], (long long)want[TSR_UNITS_SEQUENCE],
      (long long)want[TSR_UNITS_TP], (long long)want[TSR_UNITS_KEPT], c->out->name,
      (long long)room);
}

/* Units that stand in front of a value, added: the batch's, or all that are left. */
static void check_units(const tsr_sum_check *c, const tsr_node *n) {
  const tsr_value *in = &c->v->graph->values[n->inputs[0]];
  const tsr_tensor *x = &c->p->tensors[n->inputs[0]], *y = &c->p->tensors[n->outputs[0]];
  bool batch = in->batch_units && !c->out->batch_units;
  int64_t left = batch ? one(x->units / in->batch_units) : 1;
  int64_t leaves = batch ? in->batch_units : one(x->units);
  const tsr_reduction *r = c->r;
  bool others = r->keeps_batch || r->batch != 1 || r->sequence != 1 || r->kept != 1;
  if (one(y->units) == left && r->tp == leaves && !others) return;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1, "it adds %lld of the %lld units of '%s', of which %lld remain",
      (long long)r->tp, (long long)x->units, in->name, (long long)one(y->units));
}

/* All that the check of a sum depends on. */
typedef struct {
  tsr_op op;
  tsr_reduction r;
  tsr_placement in[TSR_AXES], out[TSR_AXES];
  int64_t whole[TSR_REDUCED_DIMS_MAX], local[TSR_REDUCED_DIMS_MAX], units, batch_units;
  int first;
  bool units_of_sequence, samples, zigzag; /* zigzag: of the program's positions */
  int64_t ranks_batch_units;
} sum_key;

static sum_key key_of(const tsr_sum_check *c, tsr_op op) {
  sum_key k;
  memset(&k, 0, sizeof k);
  k.op = op;
  memcpy(&k.r, c->r, sizeof k.r);
  memcpy(k.in, c->in->placement, sizeof k.in);
  memcpy(k.out, c->out->placement, sizeof k.out);
  for (int d = 0; d < c->dims; d++) k.whole[d] = c->dim[d].whole, k.local[d] = c->dim[d].local;
  k.units = c->out->units;
  k.batch_units = c->out->batch_units;
  k.first = c->first;
  k.samples = c->samples;
  k.units_of_sequence = c->out->units_of_sequence;
  k.zigzag = c->p->lowering.zigzag;
  k.ranks_batch_units = c->p->lowering.batch_units;
  return k;
}

/* ---- tasks ---- */

static const char *name_tree(tsr_tree_shape tree) {
  return tree == TSR_TREE_FLAT ? "from left to right" : "in a binary tree";
}

/* What the recipe demands of a sum, without a look at the record. */
static void demand(tsr_sum_check *c, const tsr_node *n, const sum_dims *s) {
  const tsr_tensor *x = &c->p->tensors[n->inputs[s->input[0]]];
  for (int k = 0; k < TSR_UNITS_KINDS; k++) c->units[k] = 1;
  c->in = &c->v->graph->values[n->inputs[s->input[0]]];
  c->first = s->first[0];
  c->dims = s->dims;
  c->samples = tsr_op_facts(n->op) & TSR_FACT_LOSS && tsr_loss_samples(n) > 0;
  c->apart = c->samples || c->out->batch_units > 0;
  c->kept = find_kept(c, n->op);
  for (int d = 0; d < s->dims; d++) {
    c->dim[d].whole = c->in->shape[c->first + d];
    c->dim[d].local = x->shape[c->first + d];
    if (n->op != TSR_OP_CE_STATS) find_splits(c, d);
  }
  if (n->op == TSR_OP_CE_STATS) find_vocabulary(c);
  c->strided = c->kept >= 0;
  for (int d = c->kept + 1; c->kept >= 0 && d < s->dims; d++) c->strided &= !c->dim[d].splits_count;
}

/* Sums of units of tp in half precision. */
static void check_rounding(const tsr_sum_check *c) {
  bool over_tp = false;
  for (int d = 0; d < c->dims; d++)
    for (int k = 0; k < c->dim[d].splits_count; k++)
      over_tp |= c->dim[d].splits[k].kind == TSR_UNITS_TP;
  tsr_dtype want = over_tp && tsr_dtype_is_half(c->out->dtype) ? c->out->dtype : TSR_F32;
  if (c->r->rounds != want)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1, "its record rounds each of its sums to %s, '%s' is added in %s",
        tsr_dtype_name(c->r->rounds), c->out->name, tsr_dtype_name(want));
}

/* What ranks add is in f32, but over tp where the recipe has it in half precision. */
static void check_partial(const tsr_sum_check *c) {
  bool may = c->v->graph->units.tp_in_half;
  for (int a = 0; a < TSR_AXES && tsr_dtype_is_half(c->out->dtype); a++)
    if (c->out->placement[a].kind == TSR_PARTIAL && !(may && a == TSR_TP))
      tsr_verify_say_task(
          c->v, c->s, c->task, -1, "'%s' is added over %s in %s, in the recipe in f32",
          c->out->name, tsr_axis_name(a), tsr_dtype_name(c->out->dtype));
}

static void check_sum(tsr_sum_check *c, const tsr_node *n, const sum_dims *s) {
  demand(c, n, s);
  check_rounding(c);
  if (!check_operands(c, n, s)) return;
  sum_key key = key_of(c, n->op);
  if (tsr_verify_is_proved(c->v, &key, sizeof key)) return;
  if (check_counts(c) && tsr_verify_rows(c)) tsr_verify_keep_proved(c->v, &key, sizeof key);
}

/* An op that is not known to sum must not be partial where its inputs are not. */
static void check_other(const tsr_sum_check *c, const tsr_node *n) {
  bool sums = n->op == TSR_OP_EMBEDDING || n->op == TSR_OP_NORM_STATS ||
              n->op == TSR_OP_NORM_JOIN || n->op == TSR_OP_EXPERT_COUNTS ||
              tsr_op_facts(n->op) & TSR_FACT_ROUTED;
  if (c->r->ndim) tsr_verify_say_task(c->v, c->s, c->task, -1, "its record sums, its op does not");
  for (int a = 0; a < TSR_AXES && !sums; a++) {
    bool partial = false, split = false;
    for (int i = 0; i < n->inputs_count; i++) {
      tsr_placement p = c->v->graph->values[n->inputs[i]].placement[a];
      partial |= p.kind == TSR_PARTIAL;
      split |= p.kind == TSR_SHARD;
    }
    if (c->p->lowering.size[a] > 1 && c->out->placement[a].kind == TSR_PARTIAL && split && !partial)
      tsr_verify_say_task(
          c->v, c->s, c->task, -1, "'%s' is partial over %s, and the op does not sum", c->out->name,
          tsr_axis_name(a));
  }
}

/* A sum over microbatches is complete over ep in each of them, and in a flat tree over dp too. */
static void check_accumulated(const tsr_sum_check *c, const tsr_node *n) {
  const tsr_lowering *l = &c->p->lowering;
  bool flat = c->v->graph->units.tree == TSR_TREE_FLAT,
       in_turn = n->op != TSR_OP_ACCUMULATE && n->op != TSR_OP_EXPERT_LINEAR_DW;
  bool partial = c->v->graph->values[n->inputs[0]].placement[TSR_DP].kind == TSR_PARTIAL;
  if (!in_turn && c->v->graph->values[n->inputs[0]].placement[TSR_EP].kind == TSR_PARTIAL &&
      l->size[TSR_EP] > 1)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1, "it adds up microbatches of '%s' before the ranks of ep",
        c->out->name);
  if (flat && !in_turn && partial && l->size[TSR_DP] > 1)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1, "it adds up microbatches of '%s' before the ranks of each",
        c->out->name);
  if (in_turn && !(flat && n->attr.move.axis == TSR_DP))
    tsr_verify_say_task(
        c->v, c->s, c->task, -1,
        "'%s' adds ranks to a sum over microbatches in turn, the recipe does not", c->out->name);
}

static void check_task(tsr_sum_check *c, const tsr_node *n) {
  sum_dims dims = dims_of(c->v->graph, n, 0);
  tsr_reduction next = *c->r;
  if (tsr_node_accumulates(n)) check_accumulated(c, n);
  bool units = c->r->ndim || (tsr_op_is_collective(n->op) && c->v->expert_sums[n->inputs[0]] < 0);
  if (units && c->r->tree != c->v->graph->units.tree)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1, "its record adds its units %s, the recipe %s",
        name_tree(c->r->tree), name_tree(c->v->graph->units.tree));
  if (n->op == TSR_OP_SUM_UNITS) check_units(c, n);
  else if (!dims.operands) check_other(c, n);
  for (int k = 0; dims.operands; dims = dims_of(c->v->graph, n, ++k)) {
    const tsr_tensor *x = &c->p->tensors[n->inputs[dims.input[0]]];
    tsr_sum_check sum = *c;
    if (k) next.dim[0].size = x->shape[dims.first[0]]; /* the same splits of another length */
    if (k) sum.r = &next;
    check_sum(&sum, n, &dims);
  }
}

/* Whether cp splits more than experts: not while text is generated with a cache, when every rank of
 * cp has all tokens. */
static bool splits_positions(const tsr_graph *g) {
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->placement[TSR_CP].kind == TSR_SHARD && !tsr_routed_is_weights(v->routed)) return true;
  }
  return false;
}

/* In a flat tree the units are the microbatches' ranks in turn. */
static void check_order(tsr_verify *v, const tsr_verify_subject *s) {
  const tsr_lowering *l = &s->p->lowering;
  tsr_tree_shape tree = v->graph->units.tree;
  bool several = l->size[TSR_DP] > 1 && l->microbatches > 1;
  if (l->tree != tree)
    tsr_verify_say(
        v, s, "it adds its units %s, the recipe %s", name_tree(l->tree), name_tree(tree));
  if (tree == TSR_TREE_FLAT && several && !l->microbatch_first)
    tsr_verify_say(v, s, "its microbatches do not have samples in the order of their units");
}

/* The units of all ranks and microbatches are the recipe's. */
static void check_recipe(tsr_verify *v, const tsr_verify_subject *s) {
  const tsr_lowering *l = &s->p->lowering;
  const tsr_units *u = &v->graph->units;
  const struct {
    int axis;
    int64_t have, want;
    bool counts;
  } units[] = {
      {TSR_DP, one(l->batch_units) * tsr_lowering_batch_ranks(l) * l->microbatches, one(u->batch),
       !s->p->pipeline->forward_only},
      {TSR_CP, one(l->sequence_units) * l->size[TSR_CP], one(u->sequence),
       splits_positions(v->graph)},
      {TSR_TP, one(l->tp_units) * l->size[TSR_TP], one(u->tp), true}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (units[i].counts && units[i].have != units[i].want)
      tsr_verify_say(
          v, s, "its ranks have %lld units over %s, the recipe %lld", (long long)units[i].have,
          tsr_axis_name(units[i].axis), (long long)units[i].want);
}

static void check_sum_of(tsr_verify *v, const tsr_verify_subject *s, int task, const tsr_task *t) {
  const tsr_node *n = &v->graph->nodes[t->node];
  tsr_sum_check c = {.v = v, .s = s, .p = s->p, .task = task, .t = t, .r = &t->sum};
  c.out = &v->graph->values[n->outputs[0]];
  check_partial(&c);
  check_task(&c, n);
}

void tsr_verify_sums(tsr_verify *v, const tsr_verify_subject *s) {
  check_recipe(v, s);
  check_order(v, s);
  for (int i = 0; i < s->p->tasks_count && !tsr_verify_is_full(v); i++) {
    const tsr_task *t = &s->p->tasks[i];
    const tsr_node *n = &v->graph->nodes[t->node];
    if (t->op == TSR_OP_SEND || t->op == TSR_OP_WAIT || !n->outputs_count) continue;
    for (int k = 0; k < (t->covered ? t->nodes_count : 1); k++)
      check_sum_of(v, s, i, t->covered ? &t->covered[k] : t);
    for (int k = 0; t->fused == TSR_FUSED_GEMMS && k < t->nodes_count; k++) {
      tsr_task of = *t; /* each sums as the whole task */
      of.node = t->nodes[k];
      bool sums = of.node != t->node && v->graph->nodes[of.node].op == t->op;
      if (sums) check_sum_of(v, s, i, &of);
    }
    tsr_verify_norm(v, s, i);
    tsr_verify_fp8(v, s, i);
    tsr_verify_experts(v, s, i);
  }
}
