// SPDX-License-Identifier: Apache-2.0
/* What graph files build: repeats, blocks, conditions, nested calls, layouts, what is left out. */
#include "tests/model/model_case.h"

static int count_ops(const tsr_graph *g, tsr_op op) {
  int count = 0;
  for (int i = 0; i < g->nodes_count; i++) count += g->nodes[i].op == op;
  return count;
}

static const char *dump(const model_case *c) {
  tsr_text text = {0};
  if (c->model) tsr_graph_print(c->model->graph, true, &text);
  const char *copy = tsr_arena_strdup(c->arena, text.data ? text.data : c->report);
  tsr_text_free(&text);
  return copy;
}

static bool has_param(const tsr_graph *g, const char *name, const char *hf) {
  for (int i = 0; i < g->params_count; i++)
    if (!strcmp(g->params[i].name, name))
      return !hf || (g->params[i].hf_name && !strcmp(g->params[i].hf_name, hf));
  return false;
}

static void check_depth(void) {
  tsr_model_options options = case_options();
  model_case c = case_text(
      "blocks:\n"
      "  layer:\n"
      "    inputs: [x]\n"
      "    parameters: {w: {shape: [8, 8], init: normal(0.02), hf: \"l.{encoder}.w\"}}\n"
      "    graph: [y: \"relu(linear(x, w))\"]\n"
      "    result: y\n"
      "inputs: {features: [batch, 8]}\n"
      "graph:\n"
      "- x: layer(features)\n"
      "  depth: 12\n"
      "  as: encoder\n",
      NULL, &options);
  CHECK_AT(c.model != NULL, "%s", c.report);
  if (!c.model) return case_end(&c);
  CHECK_INT(count_ops(c.model->graph, TSR_OP_RELU), 12);
  CHECK(has_param(c.model->graph, "encoder.0.w", "l.0.w"));
  CHECK(has_param(c.model->graph, "encoder.11.w", "l.11.w"));
  case_end(&c);
}

static void check_repeat(void) {
  tsr_model_options options = case_options();
  model_case c = case_text(
      "inputs: {features: [batch, 4]}\n"
      "graph:\n"
      "- x: features\n"
      "- repeat: {times: 2, as: outer}\n"
      "  graph:\n"
      "  - repeat: {times: 2, as: inner}\n"
      "    parameters: {w: {shape: [4, 4], init: zeros, if: outer == inner}}\n"
      "    graph:\n"
      "    - if: outer == inner\n"
      "      graph: [x: \"add(x, linear(x, w))\"]\n"
      "      else: [x: \"scale(x, factor=outer + inner * 10)\"]\n"
      "outputs: [x]\n",
      NULL, &options);
  CHECK_STR(
      dump(&c),
      "graph unnamed\n"
      "  input features f32 (4, 4)\n"
      "  param outer.0.inner.0.w f32 (4, 4)\n"
      "  param outer.1.inner.1.w f32 (4, 4)\n"
      "forward\n"
      "  outer.0.inner.0.x.linear f32 (4, 4) = linear(features, outer.0.inner.0.w)\n"
      "  outer.0.inner.0.x f32 (4, 4) = add(features, outer.0.inner.0.x.linear)\n"
      "  outer.0.inner.1.x f32 (4, 4) = scale(outer.0.inner.0.x, factor: 10)\n"
      "  outer.1.inner.0.x f32 (4, 4) = scale(outer.0.inner.1.x, factor: 1)\n"
      "  outer.1.inner.1.x.linear f32 (4, 4) = linear(outer.1.inner.0.x, "
      "outer.1.inner.1.w)\n"
      "  outer.1.inner.1.x f32 (4, 4) = add(outer.1.inner.0.x, outer.1.inner.1.x.linear)\n"
      "output x = outer.1.inner.1.x\n");
  case_end(&c);
}

static void check_results(void) {
  tsr_model_options options = case_options();
  model_case c = case_text(
      "inputs: {features: [batch, 6]}\n"
      "graph:\n"
      "- q, k, v: split(features, sections=3)\n"
      "- y: \"dropout(add(q, v), p: 0.5)\"\n"
      "- z: dropout(y, p=0)\n"
      "- unused: relu(k)\n"
      "outputs: {loss_like: z, first: q}\n",
      NULL, &options);
  CHECK_STR(
      dump(&c), "graph unnamed\n"
                "  input features f32 (4, 6)\n"
                "forward\n"
                "  q.0 f32 (4, 2) = slice(features, dim: 1, begin: 0, end: 2)\n"
                "  q.1 f32 (4, 2) = slice(features, dim: 1, begin: 2, end: 4)\n"
                "  q.2 f32 (4, 2) = slice(features, dim: 1, begin: 4, end: 6)\n"
                "  y.add f32 (4, 2) = add(q.0, q.2)\n"
                "  y f32 (4, 2) = dropout(y.add, p: 0.5)\n"
                "output loss_like = y\n"
                "output first = q.0\n");
  case_end(&c);
}

static const char regression[] = "inputs: {features: [batch, 4], values: [batch, 1]}\n"
                                 "parameters: {w: {shape: [1, 4], init: \"uniform(-1, 1)\"}}\n"
                                 "graph:\n"
                                 "- y: linear(features, w)\n"
                                 "- waste: relu(y)\n"
                                 "- loss: mse(y, values)\n"
                                 "outputs: [loss, y]\n";

static void check_waste(void) {
  tsr_model_options options = case_options();
  model_case c = case_text(regression, NULL, &options);
  CHECK(c.model && c.model->graph->loss >= 0);
  CHECK(strstr(c.report, "g.yaml:5:3: warning: no output needs 'waste'"));
  case_end(&c);
  options.loss = options.training = false;
  c = case_text(regression, NULL, &options);
  CHECK_STR(
      dump(&c), "graph unnamed\n"
                "  input features f32 (4, 4)\n"
                "  param w f32 (1, 4)\n"
                "forward\n"
                "  y f32 (4, 1) = linear(features, w)\n"
                "output y = y\n");
  CHECK_STR(c.report, "");
  case_end(&c);
}

/* Experts keep their braces in the name, and a loop of that name fills them. */
static void check_expert_names(void) {
  tsr_model_options options = case_options();
  model_case c = case_text(
      "inputs: {features: [batch, 8]}\n"
      "graph:\n"
      "- x: features\n"
      "- repeat: {times: 2, as: block}\n"
      "  parameters:\n"
      "    g: {shape: [4, 8], init: zeros}\n"
      "    w: {shape: [4, 8, 8], init: zeros, ep: shard(0), hf: \"l.{block}.{expert}.w\"}\n"
      "  graph:\n"
      "  - s: router(x, g)\n"
      "  - chosen: choose_experts(s, k=2)\n"
      "  - plan: expert_plan(chosen, w)\n"
      "  - r: expert_linear(permute_experts(x, plan), w, plan)\n"
      "  - x: combine_experts(r, expert_weights(s, chosen), plan)\n"
      "- repeat: {times: 2, as: expert}\n"
      "  parameters: {v: {shape: [8, 8], init: zeros, hf: \"v.{expert}\"}}\n"
      "  graph: [x: \"linear(x, v)\"]\n"
      "outputs: [x]\n",
      NULL, &options);
  CHECK_AT(c.model != NULL, "%s", c.report);
  if (c.model) {
    CHECK(has_param(c.model->graph, "block.1.w", "l.1.{expert}.w"));
    CHECK(has_param(c.model->graph, "expert.1.v", "v.1"));
  }
  case_end(&c);
}

static void check_layout(void) {
  tsr_model_options options = case_options();
  model_case c = case_text(
      "tensors:\n"
      "  x: {shape: [4, 6], layout: {partition: [col], mesh_axes: [dp]}, init: normal(1.0)}\n"
      "  features: {shape: [6, 2], input: true, layout: {partition: [1], mesh_axes: [tp]}}\n"
      "graph:\n"
      "- p: matmul(x, features)\n"
      "- y: allreduce(p, axis=dp)\n",
      NULL, &options);
  CHECK_STR(
      dump(&c), "graph unnamed\n"
                "  param x f32 (4, 6) dp:shard(1)\n"
                "  input features f32 (6, 2) tp:shard(1)\n"
                "forward\n"
                "  p f32 (4, 2) = matmul(x, features)\n"
                "  y f32 (4, 2) = all_reduce(p, axis: dp)\n"
                "output y = y\n");
  case_end(&c);
}

static void check_vocabulary(void) {
  const char *graph = "sizes: {vocab_size: {default: 0, min: 0}, max_sequence_length: 16}\n"
                      "inputs: {tokens: {shape: [batch, sequence], dtype: i32}}\n"
                      "parameters: {t: {shape: [vocab_padded, 2], init: zeros, tp: shard(0)}}\n"
                      "graph: [x: \"embedding(tokens, t)\"]\n";
  tsr_model_options options = case_options();
  options.vocab_detected = 65;
  options.units.tp = 4;
  options.sequence = 8;
  model_case c = case_text(graph, "{}", &options);
  CHECK_AT(c.model != NULL, "%s", c.report);
  if (c.model) {
    CHECK_INT(c.model->vocab_size, 65);
    CHECK_INT(c.model->vocab_padded, 68);
    CHECK_INT(c.model->sequence, 8);
    CHECK_INT(c.model->max_sequence_length, 16);
    CHECK_INT(c.model->features, 0);
  }
  case_end(&c);
  c = case_text(graph, "{vocab_size: 60}", &options);
  CHECK(strstr(c.report, "error: vocab_size 60 is less than the 65 tokens of the tokenizer"));
  case_end(&c);
  options.vocab_detected = 0;
  static const struct {
    int64_t vocab, units, stored;
  } padded[] = {{1000, 1, 1000},         {1023, 1, 1023},         {1023, 4, 1024},
                {1024, 1, 1024},         {1025, 1, 1152},         {1025, 3, 1152},
                {1025, 16, 1152},        {1025, 32, 1280},        {50257, 1, 50304},
                {50257, 4, 50304},       {50257, 7, 50176 + 896}, {50304, 8, 50304},
                {128256, 72, 128 * 1008}};
  for (size_t i = 0; i < sizeof padded / sizeof *padded; i++) {
    char sizes[64];
    options.units.tp = padded[i].units;
    snprintf(sizes, sizeof sizes, "{vocab_size: %d}", (int)padded[i].vocab);
    c = case_text(graph, sizes, &options);
    CHECK_AT(c.model != NULL, "%s", c.report);
    if (c.model) CHECK_INT(c.model->vocab_padded, padded[i].stored);
    case_end(&c);
  }
  c = case_text(graph, "{vocab_size: 0}", &options);
  CHECK(strstr(c.report, "error: vocab_size is 0, and there is no tokenizer to count it from"));
  case_end(&c);
}

int main(void) {
  check_depth();
  check_repeat();
  check_results();
  check_waste();
  check_expert_names();
  check_layout();
  check_vocabulary();
  return check_done("model.build");
}
