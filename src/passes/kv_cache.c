// SPDX-License-Identifier: Apache-2.0
/* requires: a whole forward graph with stages and `logits`, without loss, before placement
 * produces: the same for new tokens that stand behind others, whose keys and values were kept
 * invalidates: indices; the new graph has its own
 *
 * Which nodes treat every position by itself is what the placement rules know: a graph whose
 * positions are split, one to a part, needs no other part's numbers there. So each node's rule is
 * asked as if positions were split over an axis (cp). What it wants split of the values that no
 * position makes is a table by position, of which the rows of the new tokens are looked up. Of the
 * ops that want other positions too only attention is known here.
 *
 * Ops that read or write rows of experts treat every token by itself, whatever batch and position
 * it is of: their rules are asked as if samples were split, over dp, and a token were one. Rows of
 * experts are then in the place of positions. */
#include "passes/passes.h"
#include "passes/placement_rules.h"
#include <string.h>

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  int64_t length, count; /* positions of the old graph, tokens of the new one */
  bool last_only;
  int logits;                    /* of the old graph */
  int *map;                      /* per old value: the new one, or -1 */
  int *dim;                      /* per old value: which dimension are positions, or -1 */
  bool *needed;                  /* per old value */
  int tokens, positions, counts; /* tokens: of the old graph */
  const char *why;
} caching;

static bool fail(caching *c, const char *why) {
  c->why = why;
  return false;
}

static const char *describe(const caching *c, const tsr_node *n) {
  return tsr_arena_printf(c->g->arena, "%s '%s'", tsr_op_title(n->op), n->name);
}

/* ---- values that exist before the nodes ---- */

static bool find_tokens(caching *c) {
  for (int v = 0; v < c->old->values_count; v++) {
    const tsr_value *x = &c->old->values[v];
    if (x->kind != TSR_VALUE_INPUT || !c->needed[v]) continue;
    if (x->dtype != TSR_I32 || x->ndim != 2 || c->tokens >= 0)
      return fail(
          c, tsr_arena_printf(
                 c->g->arena, "the input '%s' %s is not the text's tokens", x->name,
                 tsr_value_shape_text(c->g->arena, x)));
    c->tokens = v;
    c->length = x->shape[1];
    c->dim[v] = 1;
  }
  return c->tokens >= 0 || fail(c, "no input has tokens");
}

/* In the old order, which a process's programs have in common. */
static void copy_sources(caching *c) {
  for (int v = 0; v < c->old->values_count; v++) {
    tsr_value copy = c->old->values[v];
    if (copy.kind == TSR_VALUE_NODE || (copy.kind == TSR_VALUE_INPUT && v != c->tokens)) continue;
    if (v == c->tokens) copy.shape[1] = c->count;
    c->map[v] = tsr_graph_copy_value(c->g, &copy);
  }
  const tsr_value *tokens = &c->old->values[c->tokens];
  c->positions =
      tsr_graph_input(c->g, TSR_CACHE_POSITIONS, TSR_I32, 1, tokens->shape, tokens->location);
  c->counts = tsr_graph_input(c->g, TSR_CACHE_COUNTS, TSR_I32, 1, tokens->shape, tokens->location);
}

static void mark_needed(caching *c) {
  c->needed[c->logits] = true;
  for (int i = c->old->nodes_count - 1; i >= 0; i--) {
    const tsr_node *n = &c->old->nodes[i];
    bool needed = false;
    for (int o = 0; o < n->outputs_count; o++) needed |= c->needed[n->outputs[o]];
    for (int k = 0; needed && k < n->inputs_count; k++) c->needed[n->inputs[k]] = true;
  }
}

/* ---- nodes ---- */

static void stamp(const caching *c, const tsr_node *like) {
  tsr_node *n = &c->g->nodes[c->g->nodes_count - 1];
  n->stage = like->stage;
  n->block = like->block;
}

/* A node in the place of `like`. */
static int
add(const caching *c, tsr_op op, const tsr_node *like, const char *suffix, int count,
    const int *inputs, const tsr_attrs *attr) {
  const char *name = tsr_arena_printf(c->g->arena, "%s%s", like->name, suffix);
  int id = tsr_graph_add(c->g, op, TSR_FORWARD, name, like->location, count, inputs, attr);
  c->g->values[id].dtype = c->old->values[like->outputs[0]].dtype;
  stamp(c, like);
  return id;
}

static void copy_node(caching *c, int node, const int *inputs) {
  const tsr_node *n = &c->old->nodes[node];
  tsr_graph_copy_node(c->g, c->old, node, inputs);
  for (int o = 0; o < n->outputs_count; o++) {
    int id = c->g->nodes[c->g->nodes_count - 1].outputs[o], dim = c->dim[n->outputs[o]];
    tsr_value *v = &c->g->values[id];
    if (dim >= 0) v->shape[dim] = v->shape[dim] / c->length * c->count;
    if (dim >= 0) v->routed.tokens = v->routed.tokens / c->length * c->count;
    c->map[n->outputs[o]] = id;
  }
}

/* A move that a file writes out. New tokens are whole over cp, so it leaves a value as it is. */
static bool moves_over_cp(const tsr_node *n) { return tsr_node_axis(n) == TSR_CP; }

/* The new value of one that positions have no part in, which is made when it is first used: a table
 * of which only rows are looked up never is. */
static int value_of(caching *c, int old) {
  const tsr_value *v = &c->old->values[old];
  if (c->map[old] >= 0) return c->map[old];
  const tsr_node *n = &c->old->nodes[v->node];
  if (moves_over_cp(n)) return c->map[old] = value_of(c, n->inputs[0]);
  int *inputs = tsr_arena_array(c->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = value_of(c, n->inputs[i]);
  copy_node(c, v->node, inputs);
  return c->map[old];
}

/* Rows of a table (positions, features), straight from the table that it is a slice of. */
static int look_up(caching *c, const tsr_node *n, int table) {
  tsr_attrs attr = {.gather_rows = {.count = c->count}};
  const tsr_value *v = &c->old->values[table];
  const tsr_node *made = v->kind == TSR_VALUE_NODE ? &c->old->nodes[v->node] : NULL;
  if (made && made->op == TSR_OP_SLICE && made->attr.slice.dim == 0) {
    attr.gather_rows.begin = made->attr.slice.begin;
    table = made->inputs[0];
  }
  const char *suffix = tsr_arena_printf(c->g->arena, ".%s", c->old->values[table].name);
  int inputs[] = {value_of(c, table), c->positions};
  int id = add(c, TSR_OP_GATHER_ROWS, n, suffix, 2, inputs, &attr);
  c->g->values[id].dtype = c->g->values[inputs[0]].dtype;
  return id;
}

static bool reads_rows(const tsr_node *n) {
  return tsr_op_facts(n->op) & TSR_FACT_ROUTED || n->op == TSR_OP_EXPERT_PLAN;
}

static bool is_at(tsr_placement p, int dim) { return p.kind == TSR_SHARD && p.dim == dim; }

/* As a rule sees a value with positions: where ops of experts read or write it, batch and positions
 * are one dimension, of tokens. */
static tsr_placement split_of(const tsr_node *n, int dim) {
  return (tsr_placement){dim < 0 ? TSR_REPLICATE : TSR_SHARD, dim < 0 || reads_rows(n) ? 0 : dim};
}

/* The rule's answer for an input: that it stays as it is, or that a table's rows are to be looked
 * up. */
static bool take_input(caching *c, const tsr_node *n, int i, tsr_placement wanted, int *ret_value) {
  int old = n->inputs[i], dim = c->dim[old];
  const tsr_value *v = &c->old->values[old];
  tsr_placement as = split_of(n, dim);
  bool kept = wanted.kind == as.kind && (dim < 0 || wanted.dim == as.dim);
  if (kept) return *ret_value = dim >= 0 ? c->map[old] : value_of(c, old), true;
  bool rope = n->op == TSR_OP_ROPE && i == 1, adds = n->op == TSR_OP_ADD || n->op == TSR_OP_MUL;
  if (dim < 0 && rope) return *ret_value = value_of(c, old), true;
  bool table = dim < 0 && adds && i == 1 && v->ndim == 2 && is_at(wanted, 0) &&
               c->old->values[n->inputs[0]].ndim == 3 && c->dim[n->inputs[0]] == 1;
  if (!table)
    return fail(
        c,
        tsr_arena_printf(c->g->arena, "%s takes '%s' of other positions", describe(c, n), v->name));
  *ret_value = look_up(c, n, old);
  return true;
}

static bool check_rows(caching *c, const tsr_node *n) {
  for (int i = 0; i < n->inputs_count; i++) {
    const tsr_value *v = &c->old->values[n->inputs[i]];
    int dim = c->dim[n->inputs[i]];
    if (dim >= 0 && dim != (tsr_routed_is_rows(v->routed) ? 0 : 1))
      return fail(
          c, tsr_arena_printf(c->g->arena, "%s takes '%s' transposed", describe(c, n), v->name));
  }
  const tsr_value *out = &c->old->values[n->outputs[0]];
  return !out->routed.slots ||
         fail(c, tsr_arena_printf(c->g->arena, "%s drops rows of other tokens", describe(c, n)));
}

/* Which dimension of an output are positions, or rows of tokens. */
static int dim_of(const caching *c, const tsr_node *n, int output, tsr_placement p) {
  if (p.kind != TSR_SHARD) return -1;
  if (!reads_rows(n)) return p.dim;
  return tsr_routed_is_rows(c->old->values[n->outputs[output]].routed) ? 0 : 1;
}

/* Asks the rule what becomes of positions that are split to single ones; in: what it requires. */
static bool ask_rule(caching *c, const tsr_node *n, tsr_placement *in) {
  tsr_placement_rule_call call = {
      .g = c->old, .node = n, .axis = TSR_CP, .parts = c->length, .in = in};
  if (reads_rows(n)) call.axis = TSR_DP;
  call.placed = c->old;
  call.inputs = n->inputs;
  for (int i = 0; i < n->inputs_count; i++) in[i] = split_of(n, c->dim[n->inputs[i]]);
  tsr_placement_rule_apply(&call);
  if (call.error) return fail(c, call.error);
  for (int o = 0; o < n->outputs_count; o++) {
    c->dim[n->outputs[o]] = dim_of(c, n, o, call.out[o]);
    if (call.out[o].kind == TSR_PARTIAL)
      return fail(c, tsr_arena_printf(c->g->arena, "%s adds up positions", describe(c, n)));
  }
  return true;
}

static bool check_attention(caching *c, const tsr_node *n) {
  const tsr_attention_attrs *attr = &n->attr.attention;
  const char *what = !attr->causal ? "is not causal" : attr->dropout != 0 ? "has dropout" : NULL;
  for (int i = 0; i < 3; i++)
    if (c->dim[n->inputs[i]] != 1) what = "is not of the text's positions";
  return !what || fail(c, tsr_arena_printf(c->g->arena, "%s %s", describe(c, n), what));
}

/* in: q, k, v of the new tokens[, sinks] */
static void add_attention(caching *c, const tsr_node *n, const int *in) {
  const tsr_attention_attrs *of = &n->attr.attention;
  bool sinks = n->inputs_count == 4;
  tsr_attrs length = {.kv_cache_append = {c->length}};
  tsr_attrs attr = {.attention_cached = {of->head_dim, of->scale, of->window, of->v_head_dim}};
  int keys = add(
      c, TSR_OP_KV_CACHE_APPEND, n, ".keys", 3, (int[]){in[1], c->positions, c->counts}, &length);
  int values = add(
      c, TSR_OP_KV_CACHE_APPEND, n, ".values", 3, (int[]){in[2], c->positions, c->counts}, &length);
  c->map[n->outputs[0]] =
      add(c, TSR_OP_ATTENTION_CACHED, n, "", sinks ? 6 : 5,
          (int[]){in[0], keys, values, c->positions, c->counts, sinks ? in[3] : -1}, &attr);
}

/* The logits' product is of the last real tokens alone. */
static void slice_last(caching *c, const tsr_node *n, int *value) {
  *value = add(c, TSR_OP_SLICE_LAST, n, ".last", 2, (int[]){*value, c->counts}, NULL);
}

static bool takes_last(const caching *c) { return c->last_only && c->count > 1; }

static bool take_node(caching *c, int node) {
  const tsr_node *n = &c->old->nodes[node];
  tsr_placement *in = tsr_arena_array(c->g->arena, tsr_placement, n->inputs_count);
  int *inputs = tsr_arena_array(c->g->arena, int, n->inputs_count);
  bool random = tsr_op_facts(n->op) & TSR_FACT_RANDOM && n->op != TSR_OP_ATTENTION;
  if (moves_over_cp(n)) {
    c->map[n->outputs[0]] = c->map[n->inputs[0]];
    c->dim[n->outputs[0]] = c->dim[n->inputs[0]];
    return true;
  }
  if (random)
    return fail(c, tsr_arena_printf(c->g->arena, "%s draws random numbers", describe(c, n)));
  if (n->op == TSR_OP_ATTENTION && !check_attention(c, n)) return false;
  if (reads_rows(n) && !check_rows(c, n)) return false;
  if (!ask_rule(c, n, in)) return false;
  for (int i = 0; i < n->inputs_count; i++)
    if (!take_input(c, n, i, in[i], &inputs[i])) return false;
  bool last = takes_last(c) && n->op == TSR_OP_LINEAR && n->outputs[0] == c->logits &&
              c->dim[n->inputs[0]] == 1;
  if (last) slice_last(c, n, &inputs[0]);
  if (n->op == TSR_OP_ATTENTION) add_attention(c, n, inputs);
  else if (n->op == TSR_OP_ROPE)
    c->map[n->outputs[0]] =
        add(c, TSR_OP_ROPE_AT, n, "", 3, (int[]){inputs[0], inputs[1], c->positions}, &n->attr);
  else copy_node(c, node, inputs);
  if (last) c->g->values[c->map[c->logits]].shape[1] = 1;
  else if (takes_last(c) && n->outputs[0] == c->logits) slice_last(c, n, &c->map[c->logits]);
  return true;
}

/* Whether a node works on positions; others are made where they are used. */
static bool has_positions(const caching *c, const tsr_node *n) {
  for (int i = 0; i < n->inputs_count; i++)
    if (c->dim[n->inputs[i]] >= 0) return true;
  return false;
}

static bool take_nodes(caching *c) {
  for (int i = 0; i < c->old->nodes_count; i++) {
    const tsr_node *n = &c->old->nodes[i];
    if (!n->outputs_count || !c->needed[n->outputs[0]] || !has_positions(c, n)) continue;
    if (!take_node(c, i)) return false;
  }
  const tsr_value *logits = &c->old->values[c->logits];
  return (c->dim[c->logits] == 1 && logits->ndim == 3) ||
         fail(
             c, tsr_arena_printf(
                    c->g->arena, "'logits' %s are not (batch, positions, vocabulary)",
                    tsr_value_shape_text(c->g->arena, logits)));
}

bool tsr_pass_cache(
    const tsr_graph *old, int64_t new_tokens, bool last_only, tsr_graph **ret_graph,
    const char **ret_why) {
  caching c = {.old = old, .g = tsr_graph_derive(old), .count = new_tokens};
  c.last_only = last_only;
  c.tokens = -1;
  c.logits = tsr_graph_find_output(old, "logits");
  c.map = tsr_arena_array(old->arena, int, old->values_count);
  c.dim = tsr_arena_array(old->arena, int, old->values_count);
  c.needed = tsr_arena_array(old->arena, bool, old->values_count);
  for (int v = 0; v < old->values_count; v++) c.map[v] = c.dim[v] = -1;
  bool ok = c.logits >= 0 || fail(&c, "the graph has no output 'logits'");
  if (ok) mark_needed(&c);
  ok = ok && find_tokens(&c);
  if (ok) copy_sources(&c);
  ok = ok && take_nodes(&c);
  *ret_why = c.why;
  if (!ok) return false;
  c.g->units.sequence = 1;
  tsr_graph_output(c.g, "logits", c.map[c.logits]);
  *ret_graph = c.g;
  return true;
}
