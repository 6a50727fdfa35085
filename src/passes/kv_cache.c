// SPDX-License-Identifier: Apache-2.0
/* requires: a whole forward graph with stages and `logits`, without loss, before placement
 * produces: the same for new tokens that stand behind others, whose keys and values were kept
 * invalidates: indices; the new graph has its own
 *
 * passes/position_rules.h: which nodes compute every position by itself. */
#include "passes/position_rules.h"
#include <assert.h>
#include <string.h>

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  tsr_cache_shape shape;
  int logits;                           /* of the old graph */
  int head;                             /* what makes them element by element: a product, or they */
  int *map;                             /* per old value: the new one, or -1 */
  tsr_positions at;                     /* of the old graph */
  bool *needed, *of_last;               /* per old value; of_last: of the last real tokens alone */
  int tokens, positions, counts, pages; /* tokens: of the old graph */
} caching;

static bool fail(caching *c, const char *why) {
  c->at.why = why;
  return false;
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
    c->at.length = x->shape[1];
    c->at.dim[v] = 1;
  }
  return c->tokens >= 0 || fail(c, "no input has tokens");
}

/* In the old order, which a process's programs have in common. */
static void copy_sources(caching *c) {
  for (int v = 0; v < c->old->values_count; v++) {
    tsr_value copy = c->old->values[v];
    if (copy.kind == TSR_VALUE_NODE || (copy.kind == TSR_VALUE_INPUT && v != c->tokens)) continue;
    if (v == c->tokens) copy.shape[1] = c->shape.new_tokens;
    c->map[v] = tsr_graph_copy_value(c->g, &copy);
  }
  const tsr_value *tokens = &c->old->values[c->tokens];
  c->positions =
      tsr_graph_input(c->g, TSR_CACHE_POSITIONS, TSR_I32, 1, tokens->shape, tokens->location);
  c->counts = tsr_graph_input(c->g, TSR_CACHE_COUNTS, TSR_I32, 1, tokens->shape, tokens->location);
  int64_t pages[] = {tokens->shape[0], tsr_cache_pages_each(c->at.length, c->shape.page)};
  c->pages = tsr_graph_input(c->g, TSR_CACHE_PAGES, TSR_I32, 2, pages, tokens->location);
  if (!c->shape.pages) c->shape.pages = pages[0] * pages[1];
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
    int id = c->g->nodes[c->g->nodes_count - 1].outputs[o], dim = c->at.dim[n->outputs[o]];
    tsr_value *v = &c->g->values[id];
    if (dim >= 0) v->shape[dim] = v->shape[dim] / c->at.length * c->shape.new_tokens;
    if (dim >= 0) v->routed.tokens = v->routed.tokens / c->at.length * c->shape.new_tokens;
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
  tsr_attrs attr = {.gather_rows = {.count = c->shape.new_tokens}};
  table = tsr_positions_table(c->old, table, &attr.gather_rows.begin);
  const char *suffix = tsr_arena_printf(c->g->arena, ".%s", c->old->values[table].name);
  int inputs[] = {value_of(c, table), c->positions};
  int id = add(c, TSR_OP_GATHER_ROWS, n, suffix, 2, inputs, &attr);
  c->g->values[id].dtype = c->g->values[inputs[0]].dtype;
  return id;
}

static bool check_rows(caching *c, const tsr_node *n) {
  const tsr_value *out = &c->old->values[n->outputs[0]];
  if (!tsr_positions_reads_rows(n) || !out->routed.slots) return true;
  return tsr_positions_refuse(&c->at, n, "drops rows of other tokens");
}

static bool check_attention(caching *c, const tsr_node *n) {
  const tsr_attention_attrs *attr = &n->attr.attention;
  if (n->op != TSR_OP_ATTENTION || (attr->causal && attr->dropout == 0)) return true;
  return tsr_positions_refuse(&c->at, n, !attr->causal ? "is not causal" : "has dropout");
}

/* in: q, k, v of the new tokens[, sinks] */
static void add_attention(caching *c, const tsr_node *n, const int *in) {
  const tsr_attention_attrs *of = &n->attr.attention;
  bool sinks = n->inputs_count == 4;
  tsr_attrs pool = {.kv_cache_append = {c->shape.pages, c->shape.page}};
  tsr_attrs attr = {
      .attention_cached = {of->head_dim, of->scale, of->window, of->v_head_dim, of->soft_cap}};
  int keys =
      add(c, TSR_OP_KV_CACHE_APPEND, n, ".keys", 4,
          (int[]){in[1], c->positions, c->counts, c->pages}, &pool);
  int values =
      add(c, TSR_OP_KV_CACHE_APPEND, n, ".values", 4,
          (int[]){in[2], c->positions, c->counts, c->pages}, &pool);
  c->map[n->outputs[0]] = add(
      c, TSR_OP_ATTENTION_CACHED, n, "", sinks ? 7 : 6,
      (int[]){in[0], keys, values, c->positions, c->counts, c->pages, sinks ? in[3] : -1}, &attr);
}

/* The product of which factors and a soft cap make the logits; they themselves where none is. */
static int find_head(const caching *c) {
  for (int value = c->logits;;) {
    const tsr_value *v = &c->old->values[value];
    const tsr_node *n = v->kind == TSR_VALUE_NODE ? &c->old->nodes[v->node] : NULL;
    if (n && n->op == TSR_OP_LINEAR) return value;
    if (!n || (n->op != TSR_OP_SCALE && n->op != TSR_OP_TANH)) return c->logits;
    value = n->inputs[0];
  }
}

/* The logits' product is of the last real tokens alone. */
static void slice_last(caching *c, const tsr_node *n, int *value) {
  *value = add(c, TSR_OP_SLICE_LAST, n, ".last", 2, (int[]){*value, c->counts}, NULL);
}

static bool takes_last(const caching *c) { return c->shape.last_only && c->shape.new_tokens > 1; }

static bool take_node(caching *c, int node) {
  const tsr_node *n = &c->old->nodes[node];
  tsr_position_input *kinds = tsr_arena_array(c->g->arena, tsr_position_input, n->inputs_count);
  int *inputs = tsr_arena_array(c->g->arena, int, n->inputs_count);
  if (moves_over_cp(n)) {
    c->map[n->outputs[0]] = c->map[n->inputs[0]];
    c->at.dim[n->outputs[0]] = c->at.dim[n->inputs[0]];
    return true;
  }
  if (!check_attention(c, n) || !check_rows(c, n)) return false;
  if (!tsr_positions_inputs(&c->at, n, kinds)) return false;
  for (int i = 0; i < n->inputs_count; i++) {
    int old = n->inputs[i];
    if (kinds[i] == TSR_POSITIONS_TABLE) inputs[i] = look_up(c, n, old);
    else inputs[i] = c->at.dim[old] >= 0 ? c->map[old] : value_of(c, old);
  }
  bool last = takes_last(c) && n->op == TSR_OP_LINEAR && n->outputs[0] == c->head &&
              c->at.dim[n->inputs[0]] == 1;
  bool of_last = n->inputs_count == 1 && c->of_last[n->inputs[0]];
  if (last) slice_last(c, n, &inputs[0]);
  if (n->op == TSR_OP_ATTENTION) add_attention(c, n, inputs);
  else if (n->op == TSR_OP_ROPE)
    c->map[n->outputs[0]] =
        add(c, TSR_OP_ROPE_AT, n, "", 3, (int[]){inputs[0], inputs[1], c->positions}, &n->attr);
  else copy_node(c, node, inputs);
  c->of_last[n->outputs[0]] = last || of_last;
  if (last || of_last) c->g->values[c->map[n->outputs[0]]].shape[1] = 1;
  else if (takes_last(c) && n->outputs[0] == c->logits) slice_last(c, n, &c->map[c->logits]);
  return true;
}

static bool take_nodes(caching *c) {
  for (int i = 0; i < c->old->nodes_count; i++) {
    const tsr_node *n = &c->old->nodes[i];
    if (!n->outputs_count || !c->needed[n->outputs[0]] || !tsr_positions_has(&c->at, n)) continue;
    if (!take_node(c, i)) return false;
  }
  const tsr_value *logits = &c->old->values[c->logits];
  return (c->at.dim[c->logits] == 1 && logits->ndim == 3) ||
         fail(
             c, tsr_arena_printf(
                    c->g->arena, "'logits' %s are not (batch, positions, vocabulary)",
                    tsr_value_shape_text(c->g->arena, logits)));
}

bool tsr_pass_cache(
    const tsr_graph *old, const tsr_cache_shape *shape, tsr_graph **ret_graph,
    const char **ret_why) {
  caching c = {.old = old, .g = tsr_graph_derive(old), .shape = *shape};
  assert(shape->page > 0 && shape->page % TSR_CACHE_PAGE_STEP == 0);
  c.at = tsr_positions_new(old, 0);
  c.tokens = -1;
  c.logits = tsr_graph_find_output(old, "logits");
  c.map = tsr_arena_array(old->arena, int, old->values_count);
  c.needed = tsr_arena_array(old->arena, bool, old->values_count);
  c.of_last = tsr_arena_array(old->arena, bool, old->values_count);
  for (int v = 0; v < old->values_count; v++) c.map[v] = -1;
  bool ok = c.logits >= 0 || fail(&c, "the graph has no output 'logits'");
  if (ok) mark_needed(&c);
  c.head = ok ? find_head(&c) : -1;
  ok = ok && find_tokens(&c);
  if (ok) copy_sources(&c);
  ok = ok && take_nodes(&c);
  *ret_why = c.at.why;
  if (!ok) return false;
  c.g->units.sequence = 1;
  tsr_graph_output(c.g, "logits", c.map[c.logits]);
  *ret_graph = c.g;
  return true;
}
