// SPDX-License-Identifier: Apache-2.0
/* What a graph file or a model's sizes can have wrong: exact texts, all in one run. */
#include "tests/model/model_case.h"

static const char head[] = "sizes: {dim: 8, heads: 2, head_dim: dim / heads}\n"
                           "inputs: {features: [batch, dim], values: [batch, 1]}\n"
                           "parameters:\n"
                           "  w: {shape: [1, dim], init: normal(0.02), tp: shard(1)}\n";
static const char tail[] = "graph:\n"
                           "- y: linear(features, w)\n"
                           "- loss: mse(y, values)\n";

/* `graph` follows `head` (or stands alone); `want` is the start of the report without source lines.
 */
static void check_report(int line, const char *graph, const char *model, const char *want) {
  tsr_model_options options = case_options();
  model_case c = case_text(graph, model, &options);
  char *lean = tsr_arena_alloc(c.arena, strlen(c.report) + 1);
  for (char *at = c.report; *at;) {
    size_t length = strcspn(at, "\n") + 1;
    char *bar = memchr(at, '|', length);
    if (!bar || bar - at != 6) strncat(lean, at, length);
    at += length;
  }
  if (*want) CHECK_AT(!c.model, "line %d: was accepted", line);
  CHECK_AT(!strcmp(lean, want), "line %d: says\n%snot\n%s", line, lean, want);
  case_end(&c);
}

static void check_body(int line, const char *body, const char *model, const char *want) {
  char *text = NULL;
  size_t length;
  FILE *f = open_memstream(&text, &length);
  fprintf(f, "%s%s", head, body);
  fclose(f);
  check_report(line, text, model, want);
  free(text);
}

#define REPORT(graph, model, want) check_report(__LINE__, graph, model, want)
#define BODY(body, want) check_body(__LINE__, body, NULL, want)
#define SIZES(model, want) check_body(__LINE__, tail, model, want)

static void check_sizes(void) {
  SIZES(NULL, "");
  SIZES("{dim: 10}", "");
  SIZES(
      "{dims: 10}", "m.yaml:1:2: error: unknown key 'dims' in model_config of the unnamed graph\n"
                    "      = did you mean 'dim'?\n"
                    "      = model_config names no model_type, so its graph is unnamed\n");
  SIZES("{dim: six}", "m.yaml:1:7: error: 'dim' must be a whole number, not the text 'six'\n");
  SIZES("{dim: 0}", "m.yaml:1:7: error: 'dim' must be at least 1, not 0\n");
  SIZES("{dim: 2.5}", "m.yaml:1:7: error: 'dim' must be a whole number, not the number 2.5\n");
  SIZES("{dim: 100, heads: 6}", "m.yaml:1:19: error: heads 6 does not divide dim 100\n");
  SIZES(
      "{dim: x, heads: y}",
      "m.yaml:1:7: error: 'dim' must be a whole number, not the text 'x'\n"
      "m.yaml:1:17: error: 'heads' must be a whole number, not the text 'y'\n");
  SIZES("{model_type: x, runner_type: default}", "");
}

static void check_size_forms(void) {
#define AS_SIZES(sizes)                                                                            \
  "sizes:\n" sizes "inputs: {features: [batch, 8]}\ngraph: [y: relu(features)]\n"
  REPORT(
      AS_SIZES("  n: ~\n"), "{}",
      "m.yaml:1:1: error: 'n' is missing in model_config: the unnamed graph needs it\n");
  REPORT(AS_SIZES("  n: {default: 3, alias: old_n}\n"), "{old_n: 4}", "");
  REPORT(
      AS_SIZES("  n: {default: 3, alias: old_n}\n"), "{n: 3, old_n: 4}",
      "m.yaml:1:8: error: 'old_n' and 'n' are the same size; give one\n");
  REPORT(
      AS_SIZES("  n: {default: 3, alias: [old_n, older.n]}\n"), "{older: {n: 3}, old_n: 4}",
      "m.yaml:1:10: error: 'older.n' and 'old_n' are the same size; give one\n");
  REPORT(
      AS_SIZES("  n: {default: 3, alias: [old_n, {}]}\n"), "{}",
      "g.yaml:2:34: error: expected a name of letters, digits and '_', found a map\n");
#define WORDS "choices: [on_, off_]}\n"
  REPORT(
      AS_SIZES("  a: {default: on_, " WORDS "  b: {default: off_ if a == on_ else on_, " WORDS),
      "{}", "");
  REPORT(
      AS_SIZES("  b: {default: 1 + 1, " WORDS), "{}",
      "g.yaml:2:16: error: '1 + 1' is no choice of 'b'\n");
  REPORT(
      AS_SIZES("  tie: {default: off_, choices: [on_, off_]}\n"), "{tie: onn_}",
      "m.yaml:1:7: error: 'tie' cannot be 'onn_'\n      = did you mean 'on_'?\n");
  REPORT(
      AS_SIZES("  tie: {default: off_, choices: [on_, off_], refused: {half: it is slow}}\n"),
      "{tie: half}",
      "m.yaml:1:7: error: 'tie' cannot be 'half': it is slow\n      = valid: on_, off_\n");
  REPORT(
      AS_SIZES("  tie: {default: off_, choices: [on_, off_], refused: [half]}\n"), NULL,
      "g.yaml:2:55: error: 'refused' must be a map from words to reasons, of a size with "
      "'choices'\n");
  REPORT(
      AS_SIZES("  p: {default: 0.1, min: 0, max: 0.9}\n"), "{p: 1}",
      "m.yaml:1:5: error: 'p' must be at most 0.9, not 1\n");
  REPORT(AS_SIZES("  r.a: 1\n  r.b: 2\n"), "{r: {a: 4, b: 5}}", "");
  REPORT(
      AS_SIZES("  r.alpha: 1\n"), "{r: {alpa: 4}}",
      "m.yaml:1:6: error: unknown key 'alpa' in r of the unnamed graph\n"
      "      = did you mean 'alpha'?\n");
  REPORT(
      AS_SIZES("  n: {default: 3, maxx: 4}\n"), NULL,
      "g.yaml:2:19: error: unknown key 'maxx' in a size\n      = did you mean 'max'?\n");
  REPORT(
      AS_SIZES("  batch: 3\n"), NULL,
      "g.yaml:2:3: error: 'batch' is a size that every graph has\n");
  REPORT(
      AS_SIZES("  on_: {default: true}\n"), "{on_: 1}",
      "m.yaml:1:7: error: 'on_' must be true or false, not the integer 1\n");
  REPORT(
      AS_SIZES("  l: {default: [], kind: list}\n"), "{l: [1, x]}",
      "m.yaml:1:9: error: 'l' must be a list of whole numbers, not the text 'x'\n");
  REPORT(
      AS_SIZES("  a: b + 1\n  b: 2\n"), NULL,
      "g.yaml:2:6: error: unknown name 'b'\n"
      "      = valid: batch, training, tp_units, dp, pp, ep, cp, tp\n");
}

static void check_params(void) {
#define PARAM(text) "  v: {" text "}\ngraph:\n- y: linear(features, w)\n- loss: mse(y, values)\n"
  BODY(PARAM("shape: [2]"), "g.yaml:5:3: error: parameter 'v' has no init\n");
  BODY(
      PARAM("shape: [2], init: zeros, replaces: [w]"),
      "g.yaml:5:42: error: 'replaces' must be the name of a parameter, not a list\n");
  BODY(PARAM("init: zeros"), "g.yaml:5:3: error: 'v' has no shape\n");
  BODY(
      PARAM("shape: [2], init: zeros"),
      "g.yaml:5:3: error: parameter 'v' is not used, so it could not be trained\n");
  BODY(
      PARAM("shape: [2], init: zeroes"), "g.yaml:5:25: error: unknown name 'zeroes'\n"
                                         "      = did you mean 'zeros'?\n");
  BODY(
      PARAM("shape: [2], init: dim"), "g.yaml:5:25: error: 'dim' is not an init of 'v'\n"
                                      "      = valid: zeros, ones, normal, uniform\n");
  BODY(
      PARAM("shape: [2], init: normal"),
      "g.yaml:5:25: error: 'normal' needs its numbers: normal(…)\n");
  BODY(
      PARAM("shape: [2], init: zeros, tp: shard(1)"),
      "g.yaml:5:36: error: parameter 'v' (2) has no dimension 1 to split over tp\n");
  BODY(
      PARAM("shape: [2], init: zeros, tp: split(0)"),
      "g.yaml:5:36: error: unknown function 'split'\n"
      "      = valid: replicate, shard\n");
  BODY(
      PARAM("shape: [2, 2], init: zeros, hf: \"a.{expert}.w\""),
      "g.yaml:5:39: error: parameter 'v' (2, 2) has no dimension of experts for '{expert}' in its "
      "name\n"
      "      = dimension 0 of 'ep: shard(0)' is experts\n");
  BODY(
      PARAM("shape: [2], init: zeros, ep: shard(0), hf: \"a.{expert}\""),
      "g.yaml:5:50: error: parameter 'v' (2) has no dimension of experts for '{expert}' in its "
      "name\n"
      "      = dimension 0 of 'ep: shard(0)' is experts\n");
  BODY(PARAM("shape: [dim / 3], init: zeros"), "g.yaml:5:15: error: 3 does not divide dim 8\n");
  BODY(
      PARAM("shape: [0], init: zeros"),
      "g.yaml:5:15: error: a dimension must be at least 1, not 0\n");
  BODY(
      PARAM("shape: [1, 1, 1, 1, 1, 1], init: zeros"),
      "g.yaml:5:14: error: the shape of 'v' must have 1 to 5 dimensions, not 6\n");
  BODY(
      PARAM("shape: [2], init: zeros, valid0: 3"),
      "g.yaml:5:40: error: 'v' has 2 rows, so 3 cannot be valid\n");
  BODY(
      PARAM("shape: [2], init: zeros, hf: \"a.{block}\""),
      "g.yaml:5:36: error: unknown name 'block' in braces\n"
      "      = valid: batch, training, tp_units, dim, heads, head_dim, vocab_padded, sequence\n");
  BODY(
      PARAM("shape: [2], init: zeros, decay: 1"),
      "g.yaml:5:39: error: 'decay' must be true or false, not the integer 1\n");
  BODY(
      PARAM("shape: [2], init: zeros, tq: shard(0)"),
      "g.yaml:5:32: error: unknown key 'tq' in a parameter\n      = did you mean 'tp'?\n");
}

static void check_calls(void) {
#define CALLS(text) "graph:\n" text
  BODY(
      CALLS("- y: linaer(features, w)\n"),
      "g.yaml:6:6: error: there is no op 'linaer'\n      = did you mean 'linear'?\n");
  BODY(
      CALLS("- y: linear(feature, w)\n- z: relu(q)\n"),
      "g.yaml:6:13: error: 'feature' is no input, parameter or earlier result\n"
      "      = did you mean 'features'?\n"
      "g.yaml:7:11: error: 'q' is no input, parameter or earlier result\n"
      "      = did you mean 'w'?\n");
  BODY(
      CALLS("- y: linear(features, w\n"),
      "g.yaml:6:24: error: the expression ends where ',' or ')' should follow\n");
  BODY(
      CALLS("- y: linear(features, 3)\n"),
      "g.yaml:6:6: error: linear takes 2 or 3 inputs, not 1\n");
  BODY(
      CALLS("- y: dropout(p=0.1, features)\n"),
      "g.yaml:6:21: error: input 'features' stands after a named attribute\n");
  BODY(CALLS("- y: dropout(features, p=0.1, p=0.2)\n"), "g.yaml:6:31: error: 'p' is given twice\n");
  BODY(
      CALLS("- y: dropout(features, q=0.1)\n"),
      "g.yaml:6:24: error: dropout has no attribute 'q'\n      = did you mean 'p'?\n");
  BODY(
      CALLS("- y: dropout(features, p=pp_)\n"), "g.yaml:6:26: error: unknown name 'pp_'\n"
                                                "      = did you mean 'pp'?\n");
  BODY(
      CALLS("- w: relu(features)\n"),
      "g.yaml:6:3: error: 'w' is an input or a parameter, not a result\n");
  BODY(CALLS("- a, b: relu(features)\n"), "g.yaml:6:9: error: relu gives 1 result, not 2\n");
  BODY(CALLS("- a b: relu(features)\n"), "g.yaml:6:3: error: results are separated by ', '\n");
  BODY(CALLS("- a: 3\n"), "g.yaml:6:6: error: expected a call such as add(x, y), found '3'\n");
  BODY(
      CALLS("- a: relu(features)\n  b: relu(features)\n"),
      "g.yaml:7:3: error: a statement has one result, 'a', so what is 'b'?\n"
      "      = beside it may stand: if, depth, as\n");
  BODY(
      CALLS("- relu(features)\n"),
      "g.yaml:6:3: error: a statement is 'result: op(inputs)', not the text 'relu(features)'\n");
  BODY("graph: []\n", "g.yaml:1:1: error: the graph has no statements\n");
  BODY(
      CALLS("- y: relu(add(features, w))\n"),
      "g.yaml:6:11: error: add: 'w' (1, dim 8) does not fit 'features' (batch 4, dim 8): it must "
      "have the same "
      "last dimensions\n");
  BODY(
      CALLS("- y: reshape(features, shape=[batch, 3])\n"),
      "g.yaml:6:24: error: reshape: 'features' (batch 4, dim 8) has 32 elements, (batch 4, 3) has "
      "12\n");
  BODY(
      CALLS("- y: reshape(features, shape=[0 - 1])\n"),
      "g.yaml:6:31: error: 'shape' must be whole numbers above 0, not -1\n"
      "      = batch is 4 here, and sequence 0\n");
  BODY(
      CALLS("- y: all_reduce(features, axis=dq)\n"),
      "g.yaml:6:27: error: 'dq' is not an axis\n      = did you mean 'dp'?\n");
}

static void check_structure(void) {
  BODY(
      "graph:\n- repeat: 3\n  graph:\n  - y: relu(z)\n",
      "g.yaml:8:13: error: 'z' is no input, parameter or earlier result\n      = did you mean "
      "'w'?\n");
  BODY(
      "graph:\n- repeat: {times: 1.5}\n  graph: [y: relu(features)]\n",
      "g.yaml:6:19: error: times must be a whole number, not 1.5\n");
  BODY("graph:\n- repeat: 2\n", "g.yaml:6:3: error: a repeat needs 'graph'\n");
  BODY(
      "graph:\n- graph: [y: relu(features)]\n",
      "g.yaml:6:3: error: a nested 'graph' needs 'if' or 'repeat'\n");
  BODY(
      "graph:\n- repeat: 2\n  graph: [y: relu(features)]\n- z: relu(y)\n",
      "g.yaml:8:11: error: 'y' is no input, parameter or earlier result\n      = did you mean "
      "'w'?\n");
  BODY(
      "graph:\n- repeat: 2\n  graph: [y: relu(features)]\n- repeat: 2\n  graph: [y: "
      "relu(features)]\n",
      "g.yaml:8:3: error: the name 'block' is already taken\n"
      "      = 'as' names what is repeated: give it another name\n");
  BODY(
      "graph:\n- repeat: {times: 100000000}\n  graph: []\n",
      "g.yaml:6:3: error: the graph has more than 200000 calls and repetitions\n");
  BODY(
      "blocks:\n  b: {inputs: [x], graph: [x: b(x)], result: x}\ngraph:\n- y: b(features)\n",
      "g.yaml:6:31: error: blocks call each other more than 16 deep\n");
  BODY(
      "graph:\n- y: linear(features, w)\n- loss: mse(y, values)\noutputs: {loss: y}\n",
      "g.yaml:8:17: error: the loss 'y' is (batch 4, 1), not one number\n");
  BODY(
      "graph:\n- y: linear(features, w)\n- loss: mse(y, values)\noutputs: [los]\n",
      "g.yaml:8:11: error: 'los' is no input, parameter or earlier result\n"
      "      = did you mean 'loss'?\n");
  REPORT(
      "inputs: {tokenz: [2]}\ngraph: [y: relu(tokenz)]\n", NULL,
      "g.yaml:1:10: error: no data fills an input 'tokenz'\n      = did you mean 'tokens'?\n");
  REPORT(
      "input: {}\n", NULL,
      "g.yaml:1:1: error: unknown key 'input' in a graph file\n      = did you mean 'inputs'?\n");
  REPORT("name: a\n", NULL, "g.yaml:1:1: error: the graph file has no 'graph'\n");
  REPORT(
      "- y: relu(x)\n", NULL, "g.yaml:1:11: error: 'x' is no input, parameter or earlier result\n");
}

static void check_tensors(void) {
#define TENSOR(text) "tensors:\n  x: {" text "}\ngraph:\n- y: relu(x)\n"
  REPORT(TENSOR("shape: [4, 8], layout: {partition: [row, col], mesh_axes: [tp, dp]}"), NULL, "");
  REPORT(
      TENSOR("shape: [4, 8], layout: {partition: [rows], mesh_axes: [tp]}"), NULL,
      "g.yaml:2:43: error: a partition names 'row', 'col' or a dimension, not the text 'rows'\n");
  REPORT(
      TENSOR("shape: [4, 8], layout: {partition: [row], mesh_axes: [tq]}"), NULL,
      "g.yaml:2:61: error: 'tq' is not an axis\n      = did you mean 'tp'?\n");
  REPORT(
      TENSOR("shape: [4, 8], layout: {partition: [row], mesh_axes: [tp, dp]}"), NULL,
      "g.yaml:2:60: error: 'partition' has 1 words but 'mesh_axes' has 2\n");
  REPORT(
      TENSOR("shape: [4, 8], layout: {partition: [row, col], mesh_axes: [tp, tp]}"), NULL,
      "g.yaml:2:70: error: axis 'tp' is named twice\n");
  REPORT(
      TENSOR("shape: [4], layout: {partition: [col], mesh_axes: [tp]}"), NULL,
      "g.yaml:2:3: error: parameter 'x' (4) has no dimension 1 to split over tp\n");
  REPORT(
      TENSOR("shape: [4], dtype: f64"), NULL,
      "g.yaml:2:26: error: dtype 'f64' is not one that a graph computes with\n"
      "      = valid: f32, bf16, and i32 of an input\n");
}

static void check_units(void) {
  tsr_model_options options = case_options();
  options.units.tp = 3;
  model_case c = case_text(
      "inputs: {features: [batch, 8], values: [batch, 1]}\n"
      "parameters: {w: {shape: [1, 8], init: zeros, tp: shard(-1)}}\n"
      "graph: [y: \"linear(features, w)\", loss: \"mse(y, values)\"]\n",
      NULL, &options);
  CHECK_AT(
      strstr(
          c.report,
          "g.yaml:2:14: error: parameter 'w': 3 tp units do not divide its dimension 1 of 8\n"),
      "%s", c.report);
  case_end(&c);
}

int main(void) {
  check_sizes();
  check_size_forms();
  check_params();
  check_calls();
  check_structure();
  check_tensors();
  check_units();
  return check_done("model.errors");
}
