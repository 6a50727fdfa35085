// SPDX-License-Identifier: Apache-2.0
/* What tsr_graph_call says to every kind of mistake, word by word. */
#include "tests/check.h"
#include "tests/run/harness.h"
#include <stdlib.h>

static tsr_graph *make_graph(tsr_arena *arena) {
  tsr_graph *g = tsr_graph_new(arena, "test", (tsr_units){.batch = 1, .tp = 4});
  harness_inputs(g, "x 2,3,8; t 2,3 tokens; y 2,3,6; flat 6; deep 1,2,2,2,3; deept 1,2,2,2 tokens");
  harness_params(g, "w 4,8; b 4; n 8; table 9,8; cube 2,2,2; s 8,8");
  return g;
}

/* 6 tokens, each of which chooses 2 of 8 experts; and the same of others, of each size. */
static tsr_graph *make_experts(tsr_arena *arena) {
  tsr_graph *g = make_graph(arena);
  harness_inputs(g, "z 2,3,9; ids 12,2 tokens; long 2,4,8; wx 2,3,8; xx 12,8");
  harness_params(g, "e 8,5,8; e9 9,5,8; e7 8,5,7; d 8,8,5");
  harness_calls(
      g, "twelve: choose_experts(xx, k: 2); chosen: choose_experts(x, k: 2); wide: "
         "choose_experts(x, k: 3)\n"
         "weights: expert_weights(x, chosen); ww: expert_weights(x, wide)\n"
         "plan: expert_plan(chosen, e); wplan: expert_plan(wide, e)\n"
         "rows: permute_experts(x, plan); up: expert_linear(rows, e, plan)\n"
         "longs: choose_experts(long, k: 2); lplan: expert_plan(longs, e)\n"
         "lrows: permute_experts(long, lplan)\n"
         "nines: choose_experts(z, k: 2); plan9: expert_plan(nines, e9)\n"
         "others: choose_experts(wx, k: 2); oplan: expert_plan(others, e)\n"
         "orows: permute_experts(x, oplan); otanh: tanh(orows)\n"
         "tplan: expert_plan(twelve, e)");
  return g;
}

/* The messages and hints of a print, without the quoted source: "4: there is no op 'x' = did you
 * mean 'y'?". */
static char *messages(tsr_arena *arena, char *text) {
  char *out = tsr_arena_strdup(arena, "");
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    int column = 0, at = 0;
    if (sscanf(line, "call:1:%d: error: %n", &column, &at) == 1 && at)
      out = tsr_arena_printf(arena, "%s%s%d: %s", out, *out ? " | " : "", column, line + at);
    else if (line[strspn(line, " ")] == '=')
      out = tsr_arena_printf(arena, "%s %s", out, line + strspn(line, " "));
  }
  return out;
}

typedef tsr_graph *graph_maker(tsr_arena *arena);

static void expect(graph_maker *make, const char *call, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_graph *g = make(arena);
  int value;
  bool ok = harness_try(g, call, &value, diags);
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(diags, stream);
  fclose(stream);
  CHECK_AT(!ok, "'%s' is not refused", call);
  CHECK_STR(messages(arena, text), want);
  free(text);
  tsr_arena_free(arena);
}

static void expect_fine(graph_maker *make, const char *call, const char *shape) {
  tsr_arena *arena = tsr_arena_new();
  tsr_graph *g = make(arena);
  int value = harness_call(g, call);
  const tsr_value *v = &g->values[value];
  CHECK_STR(tsr_shape_text(v->ndim, v->shape).text, shape);
  tsr_arena_free(arena);
}

static const struct {
  const char *call, *says;
} mistakes[] = {
    {"r: lineer(x, w)", "4: there is no op 'lineer' = did you mean 'linear'?"},
    {"r: frobnicate(x)", "4: there is no op 'frobnicate'"},
    {"r: softmax_loss(x, t)", "4: there is no op 'softmax_loss'"},
    {"r: linear_dx(x, w)", "4: there is no op 'linear_dx' = did you mean 'linear'?"},
    {"r: linear(x)", "4: linear takes 2 or 3 inputs, not 1"},
    {"r: linear(x, w, b, b)", "4: linear takes 2 or 3 inputs, not 4"},
    {"r: gelu(x, x)", "4: gelu takes 1 input, not 2"},
    {"r: attention(x, x)", "4: attention takes 3 or 4 inputs, not 2"},
    {"r: layernorm(x)", "4: layernorm takes 2 or 3 inputs, not 1"},
    {"r: linear(t, w)", "11: linear: 't' holds tokens, not numbers"},
    {"r: embedding(x, table)", "14: embedding: 'x' holds numbers, not tokens"},
    {"r: embedding(t, t)", "17: embedding: 't' holds tokens, not numbers"},
    {"r: cross_entropy(x, y)", "21: cross_entropy: 'y' holds numbers, not tokens"},
    {"r: linear(x, w, bias: 1)", "17: linear has no attribute 'bias'"},
    {"r: dropout(x, P: 0.1)", "15: dropout has no attribute 'P' = did you mean 'p'?"},
    {"r: dropout(x)", "4: dropout needs the attribute 'p'"},
    {"r: dropout(x)", "4: dropout needs the attribute 'p'"},
    {"r: dropout(x, p: 1)", "4: dropout: p 1 is not in [0, 1)"},
    {"r: dropout(x, p: -0.5)", "4: dropout: p -0.5 is not in [0, 1)"},
    {"r: dropout(x, p: high)", "15: dropout: 'p' must be a number"},
    {"r: dropout(x, p: [1,2])", "15: dropout: 'p' must be a number"},
    {"r: scale(x)", "4: scale needs the attribute 'factor'"},
    {"r: linear(x, cube)",
     "4: linear: the weight 'cube' must have 2 dimensions (out, in), not (2, 2, 2)"},
    {"r: linear(y, w)", "4: linear: 'y' has 6 features but the weight 'w' (4, 8) takes 8"},
    {"r: linear(x, w, n)", "4: linear: the bias 'n' (8) does not fit the result (2, 3, 4)"},
    {"r: matmul(x, w)", "4: matmul: 'x' (2, 3, 8) has 8 to sum over but 'w' (4, 8) has 4"},
    {"r: matmul(y, w, transpose_b: 1)",
     "4: matmul: 'y' (2, 3, 6) has 6 to sum over but 'w' (4, 8) has 8"},
    {"r: matmul(w, x)",
     "4: matmul: 'w' (4, 8) and 'x' (2, 3, 8) must agree in all but the last two dimensions"},
    {"r: matmul(w, table)", "4: matmul: 'w' (4, 8) has 8 to sum over but 'table' (9, 8) has 9"},
    {"r: embedding(t, cube)",
     "4: embedding: the table 'cube' must have 2 dimensions, not (2, 2, 2)"},
    {"r: add(x, y)",
     "4: add: 'y' (2, 3, 6) does not fit 'x' (2, 3, 8): it must have the same last dimensions"},
    {"r: add(n, x)",
     "4: add: 'x' (2, 3, 8) does not fit 'n' (8): it must have the same last dimensions"},
    {"r: sub(x, n)", "4: sub: 'x' is (2, 3, 8) but 'n' is (8)"},
    {"r: mul(x, b)",
     "4: mul: 'b' (4) does not fit 'x' (2, 3, 8): it must have the same last dimensions"},
    {"r: swiglu(x, y)", "4: swiglu: 'x' is (2, 3, 8) but 'y' is (2, 3, 6)"},
    {"r: layernorm(x, b)", "4: layernorm: 'b' is (4) but 'x' has rows of 8"},
    {"r: layernorm(x, n, b)", "4: layernorm: 'b' is (4) but 'x' has rows of 8"},
    {"r: rmsnorm(x, b)", "4: rmsnorm: 'b' is (4) but 'x' has rows of 8"},
    {"r: rope(x)", "4: rope needs the attribute 'head_dim'"},
    {"r: rope(x, head_dim: 3)", "4: rope: head_dim 3 must be even"},
    {"r: rope(x, head_dim: 2.5)", "12: rope: 'head_dim' must be a whole number, not 2.5"},
    {"r: rope(x, head_dim: 6)", "4: rope: head_dim 6 does not divide the 8 features of 'x'"},
    {"r: rope(w, head_dim: 4)", "4: rope: its input must be (batch, sequence, heads * head_dim)"},
    {"r: rope(x, head_dim: 4, theta: many)", "25: rope: 'theta' must be a number"},
    {"r: rope(x, head_dim: 4, thetta: 5)",
     "25: rope has no attribute 'thetta' = did you mean 'theta'?"},
    {"r: attention(x, x, x, w, head_dim: 2)",
     "4: attention: 'w' must have a sink for each of the 4 heads, not (4, 8)"},
    {"r: attention(x, x, x)", "4: attention needs the attribute 'head_dim'"},
    {"r: attention(x, x, x, head_dim: 3)",
     "4: attention: head_dim 3 does not divide the 8 features of 'x'"},
    {"r: attention(x, x, y, head_dim: 2)", "4: attention: 'x' is (2, 3, 8) but 'y' is (2, 3, 6)"},
    {"r: attention(w, w, w, head_dim: 2)",
     "4: attention: 'w' must be (batch, sequence, heads * head_dim), not (4, 8)"},
    {"r: attention(y, x, x, head_dim: 2)",
     "4: attention: 4 key/value heads do not divide 3 query heads"},
    {"r: attention(x, x, x, head_dim: 4, dropout: 1)", "4: attention: dropout 1 is not in [0, 1)"},
    {"r: attention(x, x, x, head_dim: 4, window: -1)",
     "4: attention: window -1 is no number of positions"},
    {"r: attention(x, x, x, head_dim: 4, window: 1.5)",
     "36: attention: 'window' must be a whole number, not 1.5"},
    {"r: attention(x, x, x, head_dim: 4, causal: 0, window: 2)",
     "4: attention: a window needs causal attention"},
    {"r: attention(x, x, x, head_dim: 0)",
     "4: attention: head_dim 0 does not divide the 8 features of 'x'"},
    {"r: transpose(x, dim0: 0)", "4: transpose needs the attribute 'dim1'"},
    {"r: transpose(x, dim0: 0, dim1: 3)",
     "4: transpose: dimensions 0 and 3 of 'x' (2, 3, 8): it has 0 to 2"},
    {"r: transpose(x, dim0: 0, dim1: -4)",
     "4: transpose: dimensions 0 and -4 of 'x' (2, 3, 8): it has 0 to 2"},
    {"r: transpose(x, dim0: 0.5, dim1: 1)",
     "17: transpose: 'dim0' must be a whole number, not 0.5"},
    {"r: slice(x, dim: 2, begin: 4, end: 9)",
     "4: slice: [4, 9) of dimension 2 is not inside 'x' (2, 3, 8)"},
    {"r: slice(x, dim: 2, begin: 4, end: 4)",
     "4: slice: [4, 4) of dimension 2 is not inside 'x' (2, 3, 8)"},
    {"r: slice(x, dim: 3, begin: 0, end: 1)",
     "4: slice: [0, 1) of dimension 3 is not inside 'x' (2, 3, 8)"},
    {"r: split(x)", "4: split needs the attribute 'sections'"},
    {"r: split(x, sections: 3)", "4: split: 3 sections do not divide dimension 2 of 'x' (2, 3, 8)"},
    {"r: split(x, sections: 2, dim: 5)",
     "4: split: 'x' (2, 3, 8) has no dimension 5: it has 0 to 2"},
    {"r: split(x, sections: 0)", "4: split: 0 sections, not 1 to 8"},
    {"r: split(x, sections: 16)", "4: split: 16 sections, not 1 to 8"},
    {"r: reshape(x)", "4: reshape needs the attribute 'shape'"},
    {"r: reshape(x, shape: [5,5])", "15: reshape: 'x' (2, 3, 8) has 48 elements, (5, 5) has 25"},
    {"r: reshape(x, shape: 48)", "15: reshape: 'shape' must be a list of sizes"},
    {"r: reshape(x, shape: [-6,-8])", "15: reshape: a size of -6 does not fit 'x' (2, 3, 8)"},
    {"r: cross_entropy(y, t, valid: 7)",
     "4: cross_entropy: valid 7 is not between 1 and the 6 logits of 'y'"},
    {"r: cross_entropy(x, t, valid: 0)",
     "4: cross_entropy: valid 0 is not between 1 and the 8 logits of 'x'"},
    {"r: cross_entropy(x, deept)",
     "4: cross_entropy: targets 'deept' (1, 2, 2, 2) do not fit logits 'x' (2, 3, 8)"},
    {"r: cross_entropy(flat, t)",
     "4: cross_entropy: targets 't' (2, 3) do not fit logits 'flat' (6)"},
    {"r: cross_entropy(deep, deept)",
     "4: cross_entropy: 'deep' (1, 2, 2, 2, 3) has too many dimensions"},
    {"r: mse(x, y)", "4: mse: 'x' is (2, 3, 8) but 'y' is (2, 3, 6)"},
    {"r: all_reduce(x)", "4: all_reduce needs the attribute 'axis'"},
    {"r: all_reduce(x, axis: dpp)", "18: 'dpp' is not an axis = did you mean 'dp'?"},
    {"r: all_reduce(x, axis: 3)", "18: all_reduce: 'axis' must be an axis's name"},
    {"r: reduce_scatter(x, axis: tp)", "4: reduce_scatter needs the attribute 'dim'"},
    {"r: reduce_scatter(x, axis: tp, dim: 3)",
     "4: reduce_scatter: 'x' (2, 3, 8) has no dimension 3: it has 0 to 2"},
    {"r: all_gather(x, axis: tp, dim: -4)",
     "4: all_gather: 'x' (2, 3, 8) has no dimension -4: it has 0 to 2"},
    {"r: all_to_all(x, axis: tp, from: 2, dim: -1)", "4: all_to_all: 'from' and 'dim' are both 2"},
    {"r: all_to_all(x, axis: tp, from: 5, dim: 1)",
     "4: all_to_all: 'x' (2, 3, 8) has no dimension 5: it has 0 to 2"},
    {"r: scatter(x, axis: tp, dim: 4)",
     "4: scatter: 'x' (2, 3, 8) has no dimension 4: it has 0 to 2"},
};

static const struct {
  const char *call, *says;
} of_experts[] = {
    {"r: choose_experts(x)", "4: choose_experts needs the attribute 'k'"},
    {"r: choose_experts(x, k: 0)",
     "4: choose_experts: k 0 is not in 1 to 8, the experts of 'x' (2, 3, 8)"},
    {"r: choose_experts(x, k: 9)",
     "4: choose_experts: k 9 is not in 1 to 8, the experts of 'x' (2, 3, 8)"},
    {"r: choose_experts(x, k: -1)",
     "4: choose_experts: k -1 is not in 1 to 8, the experts of 'x' (2, 3, 8)"},
    {"r: choose_experts(x, k: 2, groups: 3)",
     "4: choose_experts: groups 3 does not divide the 8 experts of 'x'"},
    {"r: choose_experts(x, k: 2, groups: 0)",
     "4: choose_experts: groups 0 does not divide the 8 experts of 'x'"},
    {"r: choose_experts(x, k: 2, groups: 4, kept_groups: 5)",
     "4: choose_experts: k 2 experts are not in kept_groups 5 of 4 groups of 2"},
    {"r: choose_experts(x, k: 2, groups: 4, kept_groups: 0)",
     "4: choose_experts: k 2 experts are not in kept_groups 0 of 4 groups of 2"},
    {"r: choose_experts(x, k: 3, groups: 4, kept_groups: 1)",
     "4: choose_experts: k 3 experts are not in kept_groups 1 of 4 groups of 2"},
    {"r: choose_experts(x, k: 2, groups: 4, kept_groups: 2, group_top: 3)",
     "4: choose_experts: group_top 3 is not in 1 to 2, the experts of a group"},
    {"r: choose_experts(x, k: 2, groups: 4, kept_groups: 2, group_top: 0)",
     "4: choose_experts: group_top 0 is not in 1 to 2, the experts of a group"},
    {"r: choose_experts(x, b, k: 2)",
     "4: choose_experts: the bias 'b' is (4) but 'x' has 8 experts"},
    {"r: choose_experts(x, w, k: 2)",
     "4: choose_experts: the bias 'w' is (4, 8) but 'x' has 8 experts"},
    {"r: choose_experts(t, k: 2)", "19: choose_experts: 't' holds tokens, not numbers"},
    {"r: choose_experts(x, t, k: 2)", "22: choose_experts: 't' holds tokens, not numbers"},
    {"r: expert_weights(x, t)", "22: expert_weights: 't' holds tokens, not choices of experts"},
    {"r: expert_weights(x, x)", "22: expert_weights: 'x' holds numbers, not choices of experts"},
    {"r: expert_weights(x, plan)",
     "22: expert_weights: 'plan' holds a plan of experts' rows, not choices of experts"},
    {"r: expert_weights(chosen, chosen)",
     "19: expert_weights: 'chosen' holds choices of experts, not numbers"},
    {"r: expert_weights(long, chosen)",
     "4: expert_weights: choices 'chosen' (2, 3, 2) do not fit 'long' (2, 4, 8)"},
    {"r: expert_weights(flat, chosen)",
     "4: expert_weights: choices 'chosen' (2, 3, 2) do not fit 'flat' (6)"},
    {"r: expert_weights(z, chosen)",
     "4: expert_weights: 'chosen' chooses of 8 experts, but 'z' (2, 3, 9) has 9"},
    {"r: expert_weights(y, chosen)",
     "4: expert_weights: 'chosen' chooses of 8 experts, but 'y' (2, 3, 6) has 6"},
    {"r: expert_plan(t, e)", "16: expert_plan: 't' holds tokens, not choices of experts"},
    {"r: expert_plan(x, e)", "16: expert_plan: 'x' holds numbers, not choices of experts"},
    {"r: expert_plan(plan, e)",
     "16: expert_plan: 'plan' holds a plan of experts' rows, not choices of experts"},
    {"r: expert_plan(chosen, w)",
     "4: expert_plan: the weight 'w' must have 3 dimensions (experts, out, in), not (4, 8)"},
    {"r: expert_plan(chosen, e9)",
     "4: expert_plan: 'chosen' chooses of 8 experts, but 'e9' (9, 5, 8) has 9"},
    {"r: expert_plan(chosen, chosen)",
     "24: expert_plan: 'chosen' holds choices of experts, not numbers"},
    {"r: permute_experts(x, chosen)",
     "23: permute_experts: 'chosen' holds choices of experts, not a plan of experts' rows"},
    {"r: permute_experts(x, ids)",
     "23: permute_experts: 'ids' holds tokens, not a plan of experts' rows"},
    {"r: permute_experts(x, x)",
     "23: permute_experts: 'x' holds numbers, not a plan of experts' rows"},
    {"r: permute_experts(t, plan)", "20: permute_experts: 't' holds tokens, not numbers"},
    {"r: permute_experts(long, plan)", "4: permute_experts: 'plan' has rows of 6 tokens, not of 8"},
    {"r: permute_experts(flat, plan)", "4: permute_experts: 'plan' has rows of 6 tokens, not of 1"},
    {"r: permute_experts(rows, plan)",
     "20: permute_experts: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: permute_experts(rows, tplan)",
     "20: permute_experts: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: expert_linear(rows, e, oplan)",
     "27: expert_linear: the rows of 'oplan' lie by the plan 'oplan', not 'plan'"},
    {"r: combine_experts(up, weights, oplan)",
     "33: combine_experts: the rows of 'oplan' lie by the plan 'oplan', not 'plan'"},
    {"r: add(rows, orows)", "14: add: the rows of 'orows' lie by the plan 'oplan', not 'plan'"},
    {"r: swiglu(otanh, rows)",
     "18: swiglu: the rows of 'rows' lie by the plan 'plan', not 'oplan'"},
    {"r: expert_linear(x, e, plan)", "4: expert_linear: 'x' has no rows of experts"},
    {"r: expert_linear(rows, w, plan)",
     "4: expert_linear: the weight 'w' must have 3 dimensions (experts, out, in), not (4, 8)"},
    {"r: expert_linear(rows, e9, plan)",
     "4: expert_linear: 'e9' (9, 5, 8) has 9 experts, the plan 'plan' 8"},
    {"r: expert_linear(rows, e7, plan)",
     "4: expert_linear: 'rows' has 8 features but the weight 'e7' (8, 5, 7) takes 7"},
    {"r: expert_linear(rows, e, plan9)",
     "27: expert_linear: the rows of 'plan9' lie by the plan 'plan9', not 'plan'"},
    {"r: expert_linear(rows, e, lplan)",
     "27: expert_linear: the rows of 'lplan' lie by the plan 'lplan', not 'plan'"},
    {"r: expert_linear(rows, e, wplan)",
     "27: expert_linear: the rows of 'wplan' lie by the plan 'wplan', not 'plan'"},
    {"r: expert_linear(rows, e, chosen)",
     "27: expert_linear: 'chosen' holds choices of experts, not a plan of experts' rows"},
    {"r: expert_linear(rows, e, rows)",
     "27: expert_linear: 'rows' holds numbers, not a plan of experts' rows"},
    {"r: expert_linear(plan, e, plan)",
     "18: expert_linear: 'plan' holds a plan of experts' rows, not numbers"},
    {"r: expert_linear(rows, rows, plan)",
     "24: expert_linear: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: expert_add(x, w, plan)", "4: expert_add: 'x' has no rows of experts"},
    {"r: expert_add(up, w, plan)",
     "4: expert_add: the bias 'w' must be (experts, out), (8, 5), not (4, 8)"},
    {"r: expert_linear(rows, e, plan, w)",
     "4: expert_linear: the bias 'w' must be (experts, out), (8, 5), not (4, 8)"},
    {"r: expert_add(up, w, oplan)",
     "22: expert_add: the rows of 'oplan' lie by the plan 'oplan', not 'plan'"},
    {"r: combine_experts(x, weights, plan)", "4: combine_experts: 'x' has no rows of experts"},
    {"r: combine_experts(up, ww, plan)",
     "4: combine_experts: 'ww' (2, 3, 3) has weights of 3 choices, the plan 'plan' 2"},
    {"r: combine_experts(up, weights, wplan)",
     "33: combine_experts: the rows of 'wplan' lie by the plan 'wplan', not 'plan'"},
    {"r: combine_experts(up, x, plan)",
     "4: combine_experts: 'x' (2, 3, 8) has weights of 8 choices, the plan 'plan' 2"},
    {"r: combine_experts(up, weights, lplan)",
     "33: combine_experts: the rows of 'lplan' lie by the plan 'lplan', not 'plan'"},
    {"r: combine_experts(lrows, weights, plan)",
     "36: combine_experts: the rows of 'plan' lie by the plan 'plan', not 'lplan'"},
    {"r: combine_experts(up, weights, chosen)",
     "33: combine_experts: 'chosen' holds choices of experts, not a plan of experts' rows"},
    {"r: combine_experts(up, rows, plan)",
     "24: combine_experts: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: combine_experts(plan, weights, plan)",
     "20: combine_experts: 'plan' holds a plan of experts' rows, not numbers"},
    {"r: attention(rows, rows, rows, head_dim: 4)",
     "26: attention: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: linear(rows, w)", "11: linear: 'rows' has rows of experts, which only elementwise ops of "
                           "such rows, expert_linear and combine_experts read"},
    {"r: linear(x, rows)", "14: linear: 'rows' has rows of experts, which only elementwise ops of "
                           "such rows, expert_linear and combine_experts read"},
    {"r: dropout(rows, p: 0.1)", "12: dropout: 'rows' has rows of experts, which only elementwise "
                                 "ops of such rows, expert_linear and combine_experts read"},
    {"r: embedding(t, rows)", "17: embedding: 'rows' has rows of experts, which only elementwise "
                              "ops of such rows, expert_linear and combine_experts read"},
    {"r: embedding(chosen, table)", "14: embedding: 'chosen' holds choices of experts, not tokens"},
    {"r: embedding(plan, table)",
     "14: embedding: 'plan' holds a plan of experts' rows, not tokens"},
    {"r: cross_entropy(x, chosen)",
     "21: cross_entropy: 'chosen' holds choices of experts, not tokens"},
    {"r: cross_entropy(rows, t)",
     "18: cross_entropy: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: linear(plan, w)", "11: linear: 'plan' holds a plan of experts' rows, not numbers"},
    {"r: add(x, chosen)", "11: add: 'chosen' holds choices of experts, not numbers"},
    {"r: add(rows, n)", "8: add: 'rows' has rows of experts, which only elementwise ops of such "
                        "rows, expert_linear and combine_experts read"},
    {"r: mul(rows, n)", "8: mul: 'rows' has rows of experts, which only elementwise ops of such "
                        "rows, expert_linear and combine_experts read"},
    {"r: swiglu(rows, up)", "4: swiglu: 'rows' is (12, 8) but 'up' is (12, 5)"},
    {"r: mse(rows, rows)", "14: mse: 'rows' has rows of experts, which only elementwise ops of "
                           "such rows, expert_linear and combine_experts read"},
    {"r: rmsnorm(rows, n)", "12: rmsnorm: 'rows' has rows of experts, which only elementwise ops "
                            "of such rows, expert_linear and combine_experts read"},
    {"r: softmax(rows)", "12: softmax: 'rows' has rows of experts, which only elementwise ops of "
                         "such rows, expert_linear and combine_experts read"},
    {"r: reshape(rows, shape: [2,6,8])",
     "12: reshape: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: slice(rows, dim: 0, begin: 0, end: 2)",
     "10: slice: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: split(rows, sections: 2)", "10: split: 'rows' has rows of experts, which only elementwise "
                                    "ops of such rows, expert_linear and combine_experts read"},
    {"r: transpose(rows, dim0: 0, dim1: 1)",
     "14: transpose: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: all_reduce(rows, axis: dp)",
     "15: all_reduce: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
    {"r: router(rows, s)", "11: router: 'rows' has rows of experts, which only elementwise ops of "
                           "such rows, expert_linear and combine_experts read"},
    {"r: choose_experts(rows, k: 2)",
     "19: choose_experts: 'rows' has rows of experts, which only elementwise ops of such rows, "
     "expert_linear and combine_experts read"},
};

int main(void) {
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
    expect(make_graph, mistakes[i].call, mistakes[i].says);
  for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++)
    expect(make_experts, of_experts[i].call, of_experts[i].says);
  expect_fine(make_graph, "r: linear(x, w, b)", "(2, 3, 4)");
  expect_fine(make_graph, "r: embedding(t, table)", "(2, 3, 8)");
  expect_fine(make_graph, "r: matmul(s, table, transpose_b: 1)", "(8, 9)");
  expect_fine(make_graph, "r: transpose(x, dim0: -1, dim1: 0)", "(8, 3, 2)");
  expect_fine(make_graph, "r: slice(x, dim: -1, begin: 2, end: 5)", "(2, 3, 3)");
  expect_fine(make_graph, "r: split(x, sections: 4)", "(2, 3, 2)");
  expect_fine(make_graph, "r: reshape(x, shape: [4, 12])", "(4, 12)");
  expect_fine(make_graph, "r: attention(x, x, x, head_dim: 4)", "(2, 3, 8)");
  expect_fine(make_graph, "r: cross_entropy(x, t, valid: 7)", "(1)");
  expect_fine(make_graph, "r: mse(x, x)", "(1)");
  expect_fine(make_graph, "r: all_gather(x, axis: tp)", "(2, 3, 8)");
  expect_fine(make_experts, "r: choose_experts(x, k: 8)", "(2, 3, 8)");
  expect_fine(
      make_experts, "r: choose_experts(x, n, k: 4, groups: 4, kept_groups: 2)", "(2, 3, 4)");
  expect_fine(make_experts, "r: expert_weights(x, chosen, normalize: 1)", "(2, 3, 2)");
  expect_fine(make_experts, "r: expert_plan(chosen, e)", "(12, 2)");
  expect_fine(make_experts, "r: permute_experts(x, wplan)", "(18, 8)");
  expect_fine(make_experts, "r: expert_linear(rows, e, plan)", "(12, 5)");
  expect_fine(make_experts, "r: swiglu(up, up)", "(12, 5)");
  expect_fine(make_experts, "r: combine_experts(up, weights, plan)", "(2, 3, 5)");
  return check_done("call");
}
