// SPDX-License-Identifier: Apache-2.0
/* What the placement pass makes of small graphs, in its own text. */
#include "tests/check.h"
#include "tests/printed.h"
#include "tests/run/harness.h"
#include <stdlib.h>

typedef struct {
  const char *inputs, *params, *calls;
  int dp, tp;
  bool forward; /* without the loss's gradient */
} placing_case;

/* The nodes of a section ("forward", "backward"), or what was wrong. */
static char *location(tsr_arena *arena, const placing_case *c, harness *ret) {
  tsr_graph *g = tsr_graph_new(arena, "test", (tsr_units){.batch = c->dp, .tp = c->tp});
  harness_inputs(g, c->inputs);
  harness_params(g, c->params);
  harness_calls(g, c->calls);
  if (strstr(c->calls, "loss:") && !c->forward) g->loss = harness_find(g, "loss");
  harness_options o = {
      .dp = c->dp,
      .tp = c->tp,
      .threads = 1,
      .microbatches = 1,
      .batch_units = c->dp,
      .tp_units = c->tp};
  tsr_diags *diags = tsr_diags_new(arena);
  if (!harness_compile(g, &o, ret, diags)) return printed_diags(arena, diags);
  tsr_text text = {0};
  tsr_graph_print(ret->placed, true, &text);
  char *out = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return out;
}

static void expect(const placing_case *c, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  harness h;
  CHECK_STR(location(arena, c, &h), want);
  tsr_arena_free(arena);
}

/* Only what moves data, in order: "all_reduce tp o; …", backward after '|'. */
static void expect_moves(const placing_case *c, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  harness h;
  char *text = location(arena, c, &h), *moves = tsr_arena_strdup(arena, "");
  if (!strncmp(text, "graph", 5)) {
    bool backward = false;
    for (int i = 0; i < h.placed->nodes_count; i++) {
      const tsr_node *n = &h.placed->nodes[i];
      if (n->section != TSR_FORWARD && !backward) moves = tsr_arena_printf(arena, "%s|", moves);
      backward |= n->section != TSR_FORWARD;
      if (!tsr_op_is_collective(n->op) && n->op != TSR_OP_SCATTER) continue;
      moves = tsr_arena_printf(
          arena, "%s %s %s %s;", moves, tsr_op_name(n->op), tsr_axis_name(tsr_node_axis(n)),
          h.placed->values[n->inputs[0]].name);
    }
  } else {
    moves = text;
  }
  CHECK_STR(moves, want);
  tsr_arena_free(arena);
}

static void test_megatron(void) {
  /* columns, then rows: one reduction forward, one backward */
  expect(
      &(placing_case){
          "x 4,6; z 4,6", "n 6; up 8,6 0; down 6,8 1",
          "h: rmsnorm(x, n); u: linear(h, up); g: gelu(u); y: linear(g, down); loss: mse(y, z)", 1,
          2, false},
      "graph test\n"
      "  input x f32 (4, 6)\n"
      "  input z f32 (4, 6)\n"
      "  param n f32 (6)\n"
      "  param up f32 (8, 6) tp:shard(0)\n"
      "  param down f32 (6, 8) tp:shard(1)\n"
      "forward\n"
      "  h f32 (4, 6), h.1 f32 (4) = rmsnorm(x, n)\n"
      "  u f32 (4, 8) tp:shard(1) = linear(h, up)\n"
      "  g f32 (4, 8) tp:shard(1) = gelu(u)\n"
      "  y f32 (4, 6) tp:partial = linear(g, down)\n"
      "  y.reduced_tp f32 (4, 6) = all_reduce(y, axis: tp)\n"
      "  loss f32 (1) = squared_error(y.reduced_tp, z)\n"
      "backward\n"
      "  d.y@loss f32 (4, 6) = squared_error_dx(y.reduced_tp, z)\n"
      "  d.down@y f32 (6, 8) tp:shard(1) = linear_dw(d.y@loss, g, down)\n"
      "  d.g f32 (4, 8) tp:shard(1) = linear_dx(d.y@loss, down)\n"
      "  d.u@g f32 (4, 8) tp:shard(1) = unary_dx(d.g, u, op: gelu)\n"
      "  d.up@u f32 (8, 6) tp:shard(0) = linear_dw(d.u@g, h, up)\n"
      "  d.h f32 (4, 6) tp:partial = linear_dx(d.u@g, up)\n"
      "  d.h.reduced_tp f32 (4, 6) = all_reduce(d.h, axis: tp)\n"
      "  d.n@h f32 (6) = norm_dw(d.h.reduced_tp, x, h.1, n)\n"
      "output d.n = d.n@h\n"
      "output d.up = d.up@u\n"
      "output d.down = d.down@y\n");
  /* every tp member sees a part of the vocabulary; only the rows' statistics travel */
  expect(
      &(placing_case){
          "t 4,3 tokens; u 4,3 tokens", "w 8,6 0",
          "e: embedding(t, w); l: linear(e, w); loss: cross_entropy(l, u)", 2, 2, true},
      "graph test\n"
      "  input t i32 (4, 3) dp:shard(0)\n"
      "  input u i32 (4, 3) dp:shard(0)\n"
      "  param w f32 (8, 6) tp:shard(0)\n"
      "  step_scalars step_scalars f32 (6)\n"
      "forward\n"
      "  e f32 (4, 3, 6) dp:shard(0) tp:partial = embedding(t, w)\n"
      "  e.reduced_tp f32 (4, 3, 6) dp:shard(0) = all_reduce(e, axis: tp)\n"
      "  l f32 (4, 3, 8) dp:shard(0) tp:shard(2) = linear(e.reduced_tp, w)\n"
      "  loss.stats f32 (4, 3, 2, 3) dp:shard(0) tp:shard(2) = softmax_stats(l, u, valid: 8)\n"
      "  loss.stats.gathered_tp f32 (4, 3, 2, 3) dp:shard(0) = all_gather(loss.stats, axis: tp, "
      "dim: 2)\n"
      "  loss f32 (1) dp:partial, loss.1 f32 (4, 3, 2) dp:shard(0) = softmax_loss(l, "
      "loss.stats.gathered_tp, u, step_scalars, valid: 8)\n");
  /* q, k and v owe their input's gradient together */
  placing_case qkv = {
      "x 2,3,8; z 2,3,8",
      "n 8; q 8,8 0; k 4,8 0; v 4,8 0; o 8,8 1; b 8",
      "h: rmsnorm(x, n); hq: linear(h, q); hk: linear(h, k); hv: linear(h, v)\n"
      "a: attention(hq, hk, hv, head_dim: 2); y: linear(a, o, b); loss: mse(y, z)",
      2,
      2,
      false};
  expect_moves(
      &qkv, " all_reduce tp y.product;| all_reduce tp d.h; all_reduce dp d.n@h; all_reduce dp "
            "d.q@hq; all_reduce dp d.k@hk; all_reduce dp d.v@hv; all_reduce dp d.o@y.product; "
            "all_reduce dp d.b@y; all_reduce dp loss;");
}

static void test_completion(void) {
  /* a split weight that meets whole numbers, and the other way round */
  expect_moves(
      &(placing_case){"x 4,6", "w 8,6 0; n 8", "y: linear(x, w); z: rmsnorm(y, n)", 1, 2, true},
      " all_gather tp y;");
  expect_moves(
      &(placing_case){
          "x 4,6", "w 8,6 1; n 8", "y: linear(x, w); z: rmsnorm(y, n); g: gelu(y)", 1, 2, true},
      " scatter tp x; all_reduce tp y;");
  expect_moves(
      &(placing_case){"x 4,6", "w 8,6 1", "y: linear(x, w); z: scale(y, factor: 3)", 1, 2, true},
      " scatter tp x; all_reduce tp y;");
  expect_moves(
      &(placing_case){
          "x 4,6", "w 8,6 1", "y: linear(x, w); z: scale(y, factor: 0.5); r: relu(z)", 1, 2, true},
      " scatter tp x; all_reduce tp z;");
  expect_moves(
      &(placing_case){
          "x 4,6; t 4 tokens", "w 8,6 1", "l: linear(x, w); loss: cross_entropy(l, t)", 1, 2,
          false},
      " scatter tp x; all_reduce tp l;|");
  /* on one rank the same collectives stand in the graph where the recipe has units, and none where
   * it has none */
  expect_moves(
      &(placing_case){"x 4,6; z 4,8", "w 8,6 1", "y: linear(x, w); loss: mse(y, z)", 1, 1, false},
      "|");
  expect_moves(
      &(placing_case){"x 4,6; z 4,8", "w 8,6", "y: linear(x, w); loss: mse(y, z)", 4, 1, false},
      "| all_reduce dp d.w@y; all_reduce dp loss;");
}

static void test_written(void) {
  /* heads survive a reshape */
  expect(
      &(placing_case){
          "x 2,3,8", "q 8,8 0; n 2",
          "h: linear(x, q); r: reshape(h, shape: [2,3,4,2]); m: rmsnorm(r, n)\n"
          "f: reshape(m, shape: [6,8]); g: reshape(h, shape: [2,24])",
          2, 2, true},
      "graph test\n"
      "  input x f32 (2, 3, 8) dp:shard(0)\n"
      "  param q f32 (8, 8) tp:shard(0)\n"
      "  param n f32 (2)\n"
      "forward\n"
      "  h f32 (2, 3, 8) dp:shard(0) tp:shard(2) = linear(x, q)\n"
      "  r f32 (2, 3, 4, 2) dp:shard(0) tp:shard(2) = reshape(h)\n"
      "  m f32 (2, 3, 4, 2) dp:shard(0) tp:shard(2), m.1 f32 (2, 3, 4) dp:shard(0) tp:shard(2) = "
      "rmsnorm(r, n)\n"
      "  f f32 (6, 8) dp:shard(0) tp:shard(1) = reshape(m)\n"
      "  h.gathered_tp f32 (2, 3, 8) dp:shard(0) = all_gather(h, axis: tp, dim: 2)\n"
      "  g f32 (2, 24) dp:shard(0) = reshape(h.gathered_tp)\n");
  /* written-out collectives */
  expect(
      &(placing_case){
          "x 4,8", "c 8,8 0; r 6,8 1",
          "h: linear(x, c); y: linear(h, r); s: all_reduce(y, axis: tp); g: all_gather(h, axis: "
          "tp, dim: 1)\n"
          "p: reduce_scatter(y, axis: tp, dim: 1); t: all_to_all(h, axis: tp, from: 1, dim: 0); u: "
          "scatter(x, axis: tp, dim: 1)",
          1, 2, true},
      "graph test\n"
      "  input x f32 (4, 8)\n"
      "  param c f32 (8, 8) tp:shard(0)\n"
      "  param r f32 (6, 8) tp:shard(1)\n"
      "forward\n"
      "  h f32 (4, 8) tp:shard(1) = linear(x, c)\n"
      "  y f32 (4, 6) tp:partial = linear(h, r)\n"
      "  s f32 (4, 6) = all_reduce(y, axis: tp)\n"
      "  g f32 (4, 8) = all_gather(h, axis: tp, dim: 1)\n"
      "  p f32 (4, 6) tp:shard(1) = reduce_scatter(y, axis: tp, dim: 1)\n"
      "  t f32 (4, 8) tp:shard(0) = all_to_all(h, axis: tp, from: 1, dim: 0)\n"
      "  u f32 (4, 8) tp:shard(1) = scatter(x, axis: tp, dim: 1)\n");
}

static void test_refused(void) {
  expect(
      &(placing_case){"x 4,8", "", "s: all_reduce(x, axis: tp)", 1, 2, true},
      "call:1:1: error: all_reduce over tp: 'x' is not partial there\n");
  expect(
      &(placing_case){"x 4,8", "", "s: all_gather(x, axis: tp)", 1, 2, true},
      "call:1:1: error: all_gather over tp: 'x' is not split there\n");
  expect(
      &(placing_case){"x 4,8", "", "s: all_gather(x, axis: dp, dim: 1)", 2, 2, true},
      "call:1:1: error: all_gather over dp: 'x' is not split along dimension 1 there\n");
  expect(
      &(placing_case){"x 4,8", "", "s: reduce_scatter(x, axis: tp, dim: 0)", 1, 2, true},
      "call:1:1: error: reduce_scatter over tp: 'x' is not partial there\n");
  expect(
      &(placing_case){"x 4,8", "", "s: all_to_all(x, axis: dp, from: 1, dim: 0)", 2, 1, true},
      "call:1:1: error: all_to_all over dp: 'x' is not split along 'from' there\n");
  expect(
      &(placing_case){"x 4,8", "", "s: scatter(x, axis: dp, dim: 1)", 2, 1, true},
      "call:1:1: error: scatter over dp: 'x' is not whole there\n");
  expect(
      &(placing_case){"x 4,8", "", "s: scatter(x, axis: tp, dim: 0)", 2, 2, true},
      "call:1:1: error: 's' (4, 8) cannot be split along dimension 0 over both dp and tp\n");
  /* what cannot be split */
  expect(
      &(placing_case){"x 4,6", "w 7,6 0", "y: linear(x, w)", 1, 2, true},
      "error: 'w' (7, 6) cannot be split over tp: dimension 0 has 7, which 2 does not divide\n");
  expect(
      &(placing_case){"x 4,6", "", "s: scatter(x, axis: tp, dim: 1)", 1, 4, true},
      "call:1:1: error: 's' (4, 6) cannot be split over tp: dimension 1 has 6, which 4 does not "
      "divide\n");
  expect(
      &(placing_case){
          "x 2,3,8", "q 8,8 0; k 4,8 0",
          "h: linear(x, q); k2: linear(x, k); v2: linear(x, k)\n"
          "a: attention(h, k2, v2, head_dim: 2)",
          1, 4, true},
      "call:1:1: error: attention: the 2 heads of 'k2' cannot be split over tp: its units are 4\n");
  expect(
      &(placing_case){"x 2,3,8", "q 8,8 0", "h: linear(x, q); r: rope(h, head_dim: 4)", 1, 4, true},
      "call:1:1: error: rope: the 2 heads of 'h' cannot be split over tp: its units are 4\n");
}

/* How often values are added up over dp: each in one collective, before the update where nothing
 * but the optimizer's state is split. */
static void count_reductions(const tsr_graph *g, const char *name, int zero, int *ret_count) {
  int *times = tsr_arena_array(g->arena, int, g->values_count);
  *ret_count = 0;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool sums =
        n->op == TSR_OP_ALL_REDUCE || n->op == TSR_OP_REDUCE_SCATTER || n->op == TSR_OP_REDUCE;
    if (!sums || tsr_node_axis(n) != TSR_DP) continue;
    const char *value = g->values[n->inputs[0]].name;
    CHECK_AT(!times[n->inputs[0]]++, "%s: '%s' is added up twice", name, value);
    CHECK_AT(zero > 1 || n->section == TSR_UPDATE, "%s: '%s' is not added up once", name, value);
    ++*ret_count;
  }
}

/* A gradient's sum over dp is made once a step, for its norm and for its update: with ZeRO both
 * take the rank's part of it. Here that are five, one for each use of a parameter; and the loss. */
static void test_one_reduction(void) {
  static const tsr_optimizer adamw = {.kind = TSR_RULE_ADAMW, .eps = 1e-8, .clip_max_norm = 1};
  for (int kind = 0; kind < 7; kind++)
    for (int microbatches = 1; microbatches <= 2; microbatches++) {
      int zero = kind < 4 ? kind : kind - 3;
      tsr_arena *arena = tsr_arena_new();
      tsr_graph *g = tsr_graph_new(arena, "test", (tsr_units){.batch = 4, .tp = 1});
      harness_inputs(g, "t 4,3 tokens; u 4,3 tokens");
      harness_params(g, "w 8,6; n 6; o 6,6; b 6");
      harness_calls(
          g, "e: embedding(t, w); h: rmsnorm(e, n); y: linear(h, o, b); l: linear(y, w)\n"
             "loss: cross_entropy(l, u)");
      g->loss = harness_find(g, "loss");
      harness_options o = {.dp = 2, .tp = 1, .threads = 1, .zero = zero, .optimizer = &adamw};
      o.zero_owners = kind >= 4;
      o.microbatches = microbatches;
      o.batch_units = 4;
      o.tp_units = 1;
      harness h;
      int count;
      tsr_diags *diags = tsr_diags_new(arena);
      CHECK(harness_compile(g, &o, &h, diags));
      const char *name = tsr_arena_printf(
          arena, "zero %d%s, %d microbatches", zero, o.zero_owners ? " with owners" : "",
          microbatches);
      count_reductions(h.placed, name, zero, &count);
      CHECK_AT(count == 6 + (zero > 0), "%s: %d sums over dp", name, count); /* and the norm's */
      tsr_arena_free(arena);
    }
}

/* A parameter's owner is the rank at FNV-1a 64 of its name modulo the ranks. The
 * numbers below were computed outside of the program: the hashes end in 56 of "w", 71 of "n", bf of
 * the third name's UTF-8. Each group of hybrid sharding has an owner. */
static void test_owners(void) {
  static const tsr_optimizer sgd = {.kind = TSR_RULE_SGD, .momentum = 0.9};
  static const struct {
    const char *name;
    int of_four, of_two;
  } owners[] = {{"w", 2, 0}, {"n", 1, 1}, {"äö", 3, 1}};
  for (int groups = 1; groups <= 2; groups++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_graph *g = tsr_graph_new(arena, "test", (tsr_units){.batch = 4, .tp = 1});
    harness_inputs(g, "x 4,6; z 4,6");
    harness_params(g, "w 8,6; n 6; äö 6,8");
    harness_calls(g, "h: rmsnorm(x, n); u: linear(h, w); y: linear(u, äö); loss: mse(y, z)");
    g->loss = harness_find(g, "loss");
    harness_options o = {.dp = 4, .tp = 1, .threads = 1, .microbatches = 1, .optimizer = &sgd};
    o.batch_units = 4, o.tp_units = 1;
    o.zero = 2, o.zero_owners = true, o.zero_groups = groups;
    harness h;
    CHECK(harness_compile(g, &o, &h, tsr_diags_new(arena)));
    int found = 0;
    for (int v = 0; v < h.placed->values_count; v++) {
      const tsr_value *x = &h.placed->values[v];
      if (x->kind != TSR_VALUE_PARAM && x->kind != TSR_VALUE_STATE) continue;
      const char *name = h.placed->params[x->param].name;
      int k = 0;
      while (strcmp(owners[k].name, name)) k++;
      CHECK_INT(x->placement[TSR_DP].kind, TSR_OWNED);
      CHECK_INT(x->placement[TSR_DP].groups, groups > 1 ? groups : 0);
      CHECK_AT(
          x->placement[TSR_DP].owner == (groups > 1 ? owners[k].of_two : owners[k].of_four),
          "%s in %d groups: %d", x->name, groups, x->placement[TSR_DP].owner);
      found++;
    }
    CHECK_INT(found, 6);
    tsr_arena_free(arena);
  }
}

int main(void) {
  test_megatron();
  test_owners();
  test_one_reduction();
  test_completion();
  test_written();
  test_refused();
  return check_done("placement");
}
