// SPDX-License-Identifier: Apache-2.0
/* What a graph file can declare of a class of transformers, on a class that no one has: each kind
 * of key both ways, the choice of a class, files that are not what they should be, and mistakes in
 * the section itself. */
#include "checkpoint/hf_config.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

static const char sizes[] = "name: toy\n"
                            "sizes:\n"
                            "  vocab_size: ~\n"
                            "  pad_token: {default: -1, min: -1}\n"
                            "  num_blocks: ~\n"
                            "  act: {default: silu, choices: [silu, gelu]}\n"
                            "  cap: {default: 0.0, min: 0}\n"
                            "  factors: {default: [], kind: reals}\n"
                            "  full_blocks: {default: [], min: 0}\n"
                            "  theta: {default: 10000.0, min: 1}\n"
                            "  local_theta: {default: 10000.0, min: 1}\n"
                            "  gate.first: {default: 0, min: 0}\n"
                            "  labels: {default: 0, min: 0}\n"
                            "  gate.second: {default: true}\n"
                            "  head: {default: tokens, choices: [tokens, classes]}\n"
                            "inputs:\n"
                            "  features: {shape: [batch, num_blocks], dtype: f32}\n"
                            "graph: [y: relu(features)]\n";
static const char section[] =
    "huggingface:\n"
    "- model_type: toy\n"
    "  architectures: [ToyForCausalLM, ToyModel]\n"
    "  when: head == tokens\n"
    "  keys:\n"
    "    vocab_size: vocab_size\n"
    "    layers: num_blocks\n"
    "    act: {size: act, values: {silu: silu, gelu_new: gelu, gelu_tanh: gelu}, default: silu}\n"
    "    cap: {size: cap, default: 5, if_null: 0, above: 0}\n"
    "    gate.first: {size: gate.first, alias: [older, gates.one], default: 0, min: 0}\n"
    "    gate.second: {size: gate.second, default: gate.first > 1}\n"
    "    types:\n"
    "      {kind: words, values: [full, local], if_null: default,\n"
    "      default: \"list(i, layers, full if (i + 1) % 3 == 0 else local)\",\n"
    "      write: \"list(i, num_blocks, full if contains(full_blocks, i) else local)\"}\n"
    "    rope_theta: {size: theta, default: 10000.0, alias: rope.full.rope_theta}\n"
    "    local_base: {size: local_theta, default: 500.0, alias: rope.local.rope_theta}\n"
    "    rope.rope_type: {alias: rope.full.rope_type, values: [default, long],\n"
    "      write: long if len(factors) > 0 else default}\n"
    "    rope.factors: {size: factors, alias: rope.full.factors, if: rope.rope_type == long}\n"
    "    old_way: {values: [~, 0]}\n"
    "    pad_token_id: {kind: token, size: pad_token}\n"
    "  sizes: {full_blocks: \"where(types, full)\"}\n"
    "  prediction_blocks: layers // 4\n"
    "  checks:\n"
    "  - that: len(types) == layers\n"
    "    else: types are not of {layers} layers\n"
    "  - that: cap != 7\n"
    "    warning: a cap of {cap} is odd\n"
    "  requires:\n"
    "  - that: cap != 9\n"
    "    else: toys have no cap of {cap}\n"
    "- model_type: toy\n"
    "  architectures: ToyForSequenceClassification\n"
    "  like: toy\n"
    "  when: head == classes and labels > 1\n"
    "  prediction_blocks: ~\n"
    "  keys:\n"
    "    num_labels: {kind: members, size: labels, alias: id2label, default: 2}\n"
    "    cap: ~\n"
    "    old_way: {values: [1]}\n"
    "  sizes: {full_blocks: \"where(types, full)\", head: classes}\n"
    "  checks: ~\n";

static tsr_arena *arena;
static tsr_diags *diags;
static tsr_hf_config last;

static void write_graph(const char *text) {
  const char *all = tsr_arena_printf(arena, "%s%s", sizes, text);
  scratch_text("graphs/llama.yaml", all);
}

/* Behind `{"model_type": "toy", "vocab_size": 9, "layers": 4`. */
static const char *imported(const char *rest) {
  const char *json = tsr_arena_printf(
      arena, "{\"model_type\": \"toy\", \"vocab_size\": 9, \"layers\": 4%s}", rest);
  const cJSON *root;
  tsr_text text = {0};
  if (tsr_hf_config_read(arena, "graphs", "c.json", json, strlen(json), &last, &root, diags))
    tsr_hf_config_yaml(&last, &text);
  const char *said = scratch_diags(diags), *head = "transformer_config:\n  model_type: llama\n";
  const char *yaml = text.data ? text.data : "";
  if (!strncmp(yaml, head, strlen(head))) yaml += strlen(head);
  const char *all = tsr_arena_printf(arena, "%s%s", said, yaml);
  tsr_text_free(&text);
  diags = tsr_diags_new(arena);
  return all;
}

static const char *exported(const char *words) {
  const char *text = tsr_arena_printf(
      arena, "transformer_config: {model_type: llama, vocab_size: 9, num_blocks: 4%s}\n", words);
  tsr_config *config;
  tsr_hf_export_config made;
  tsr_text json = {0};
  bool ok =
      tsr_config_parse(arena, "run.yaml", text, strlen(text), NULL, 0, false, &config, diags) &&
      tsr_hf_config_of(arena, config, 0, -1, "graphs", &made, diags);
  if (ok) tsr_hf_config_json(&made, "float32", NULL, &json);
  const char *said = scratch_diags(diags);
  const char *all = tsr_arena_printf(arena, "%s%s", said, ok ? json.data : "");
  tsr_text_free(&json);
  diags = tsr_diags_new(arena);
  return all;
}

static void check_has(const char *text, const char *part) {
  CHECK_AT(strstr(text, part) != NULL, "%s\nhas no\n%s", text, part);
}

/* ---- import ---- */

static void test_keys(void) {
  CHECK_STR(
      imported(""),
      "  vocab_size: 9\n  num_blocks: 4\n  act: silu\n  cap: 5.0\n  full_blocks: [2]\n"
      "  theta: 10000.0\n  local_theta: 500.0\n  gate:\n    second: false\n");
  CHECK_INT(last.prediction_blocks, 1);
  CHECK_STR(
      imported(", \"act\": \"gelu_tanh\", \"cap\": null, \"older\": 2, \"gate\": {\"x\": 1}, "
               "\"gates\": {\"one\": 2}, \"pad_token_id\": -2, \"other\": [1], \"old_way\": 0, "
               "\"types\": [\"full\", \"local\", \"local\", \"full\"]"),
      "  vocab_size: 9\n  pad_token: 7\n  num_blocks: 4\n  act: gelu\n  full_blocks: [0, 3]\n"
      "  theta: 10000.0\n  local_theta: 500.0\n  gate:\n    first: 2\n    second: true\n");
  check_has(imported(", \"gate\": {\"first\": 3}, \"older\": null"), "    first: 3\n");
  check_has(imported(", \"types\": null"), "full_blocks: [2]\n");
  check_has(imported(", \"cap\": 7"), "warning: 'c.json': a cap of 7 is odd\n");
}

/* By the type of a layer, as transformers 5 has it, and as older files do. */
static void test_rope(void) {
  static const char want[] = "  factors: [1.0, 2.5]\n  full_blocks: [2]\n  theta: 40.0\n"
                             "  local_theta: 30.0\n";
  check_has(
      imported(", \"rope_parameters\": {\"full\": {\"rope_type\": \"long\", \"factors\": [1, 2.5], "
               "\"rope_theta\": 40}, \"local\": {\"rope_theta\": 30}}"),
      want);
  check_has(
      imported(", \"rope_theta\": 40, \"local_base\": 30, \"rope_scaling\": {\"type\": \"long\", "
               "\"factors\": [1, 2.5]}"),
      want);
  CHECK_STR(
      imported(", \"rope_parameters\": {\"full\": {\"rope_type\": \"dynamic\"}, \"other\": {}, "
               "\"rope_type\": \"default\"}"),
      "error: 'c.json': rope_parameters.other an object is not supported\n"
      "      = supported: an object for each type of layer\n"
      "error: 'c.json': rope_parameters.rope_type 'default' is not supported\n"
      "      = supported: an object for each type of layer\n"
      "error: 'c.json': rope_parameters.rope_type and rope_parameters.full.rope_type differ\n");
  CHECK_STR(
      imported(", \"rope_theta\": 40, \"rope_parameters\": {\"full\": {\"rope_theta\": 41}}"),
      "error: 'c.json': rope_theta and rope_parameters.full.rope_theta differ\n");
  CHECK_STR(
      imported(", \"rope_scaling\": {\"type\": \"long\", \"factors\": [1, \"x\"]}"),
      "error: 'c.json': key 'rope_scaling.factors' should be a list of numbers, not a string\n");
}

static void test_refused(void) {
  CHECK_STR(
      imported(
          ", \"act\": \"relu\", \"cap\": 0, \"older\": 2, \"gates\": {\"one\": 3}, \"types\": "
          "[\"full\", \"half\"], \"rope_scaling\": 5, \"old_way\": \"x\", \"pad_token_id\": 9"),
      "error: 'c.json': rope_scaling 5 is not supported\n"
      "      = supported: an object\n"
      "error: 'c.json': act 'relu' is not supported\n"
      "      = supported: 'silu', 'gelu_new', 'gelu_tanh'\n"
      "error: 'c.json': key 'cap' should be above 0, not 0\n"
      "error: 'c.json': older and gates.one differ\n"
      "error: 'c.json': types 'half' is not supported\n"
      "      = supported: 'full', 'local'\n"
      "error: 'c.json': old_way 'x' is not supported\n"
      "      = supported: null, 0\n"
      "error: 'c.json': pad_token_id 9 is none of the 9 tokens\n");
  CHECK_STR(
      imported(", \"types\": [\"full\"], \"act\": null, \"old_way\": 2"),
      "error: 'c.json': act null is not supported\n"
      "      = supported: 'silu', 'gelu_new', 'gelu_tanh'\n"
      "error: 'c.json': old_way 2 is not supported\n"
      "      = supported: null, 0\n"
      "error: 'c.json': types are not of 4 layers\n");
  CHECK_STR(
      imported(", \"architectures\": [\"ToyModel\", \"ToyForSequenceClassification\", \"Toy\"]"),
      "error: 'c.json': architectures 'ToyForSequenceClassification' is not supported\n"
      "      = supported: ToyForCausalLM, ToyModel, ToyForSequenceClassification\n"
      "error: 'c.json': architectures 'Toy' is not supported\n"
      "      = supported: ToyForCausalLM, ToyModel, ToyForSequenceClassification\n");
}

/* Of two classes of one type the architecture decides; `like` gives it the keys of the other. */
static void test_architecture(void) {
#define CLASSES ", \"architectures\": [\"ToyForSequenceClassification\"]"
  static const char rest[] = "  vocab_size: 9\n  num_blocks: 4\n  act: silu\n  full_blocks: [2]\n"
                             "  theta: 10000.0\n  local_theta: 500.0\n  labels: %d\n"
                             "  gate:\n    second: false\n  head: classes\n";
  CHECK_STR(imported(CLASSES), tsr_arena_printf(arena, rest, 2));
  CHECK_INT(last.prediction_blocks, 0);
  CHECK_STR(imported(CLASSES ", \"num_labels\": 3"), tsr_arena_printf(arena, rest, 3));
  CHECK_STR(
      imported(CLASSES ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\", \"3\": \"d\"}"),
      tsr_arena_printf(arena, rest, 4));
  CHECK_STR(
      imported(CLASSES ", \"old_way\": null"), "error: 'c.json': old_way null is not supported\n"
                                               "      = supported: 1\n");
}

/* Much of it, and deep: an error or a result, and no more time than the bytes need. */
static void test_hostile(void) {
  tsr_text text = {0};
  tsr_text_add(&text, ", \"types\": [\"full\"");
  for (int i = 0; i < 300000; i++) tsr_text_add(&text, ", \"local\"");
  tsr_text_add(&text, "]");
  CHECK_STR(imported(text.data), "error: 'c.json': types are not of 4 layers\n");
  text.length = 0;
  for (int k = 0; k < 2; k++) {
    tsr_text_add(&text, ", \"%s\": {\"full\": {\"x\": 0", k ? "rope_scaling" : "rope_parameters");
    for (int i = 0; i < 60000; i++) tsr_text_add(&text, ", \"k%d\": %d", k ? 60000 - i : i, i);
    tsr_text_add(&text, "}}");
  }
  CHECK_STR(imported(text.data), "error: 'c.json': rope_scaling and rope_parameters differ\n");
  text.length = 0;
  tsr_text_add(&text, ", \"rope_scaling\": ");
  for (int i = 0; i < 100; i++) tsr_text_add(&text, "{\"full\": ");
  tsr_text_add(&text, "1");
  for (int i = 0; i < 100; i++) tsr_text_add(&text, "}");
  check_has(imported(text.data), "full_blocks: [2]\n");
  tsr_text_free(&text);
  static const char *const numbers[] = {"1e400", "9007199254740993", "-1", "0", "1.5", "{}",
                                        "[[]]"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const char *json =
        tsr_arena_printf(arena, "{\"model_type\": \"toy\", \"vocab_size\": %s}", numbers[i]);
    const cJSON *root;
    CHECK(!tsr_hf_config_read(arena, "graphs", "c.json", json, strlen(json), &last, &root, diags));
    check_has(scratch_diags(diags), "error");
  }
  const char *json = "{\"model_type\": \"toy\", \"vocab_size\": 9, \"layers\": 9007199254740992}";
  const cJSON *root;
  CHECK(!tsr_hf_config_read(arena, "graphs", "c.json", json, strlen(json), &last, &root, diags));
  check_has(
      scratch_diags(diags),
      "error: a list and those inside it have 0 to 65536 items, not 9.00719925474099e+15\n");
  diags = tsr_diags_new(arena);
}

/* ---- export ---- */

static void test_written(void) {
  CHECK_STR(
      exported(", act: gelu, full_blocks: [0], factors: [1.0, 2.5], gate: {first: 2}"),
      "{\n  \"architectures\": [\"ToyForCausalLM\"],\n  \"model_type\": \"toy\",\n"
      "  \"torch_dtype\": \"float32\",\n  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
      "  \"vocab_size\": 9,\n  \"layers\": 4,\n  \"act\": \"gelu_new\",\n  \"cap\": null,\n"
      "  \"gate\": {\n    \"first\": 2,\n    \"second\": true\n  },\n"
      "  \"types\": [\"full\", \"local\", \"local\", \"local\"],\n  \"rope_theta\": 10000.0,\n"
      "  \"local_base\": 10000.0,\n"
      "  \"rope_scaling\": {\n    \"rope_type\": \"long\",\n    \"factors\": [1.0, 2.5]\n  },\n"
      "  \"old_way\": null,\n  \"pad_token_id\": null\n}\n");
  check_has(exported(", pad_token: 3"), "\"pad_token_id\": 3\n");
  check_has(exported(", head: classes, labels: 3"), "[\"ToyForSequenceClassification\"]");
  check_has(exported(", head: classes, labels: 3"), "\"num_labels\": 3,");
  check_has(exported(", head: classes, labels: 3"), "\"rope_scaling\": null,");
  check_has(exported(", cap: 9"), "error: toys have no cap of 9\n");
  check_has(
      exported(", head: classes"),
      "error: transformers has no class for toy: no class of its 'huggingface' has these sizes\n");
}

/* ---- the section ---- */

static void check_mistake(const char *part, const char *other, const char *want) {
  const char *at = strstr(section, part);
  CHECK_AT(at != NULL, "%s", part);
  write_graph(
      tsr_arena_printf(arena, "%.*s%s%s", (int)(at - section), section, other, at + strlen(part)));
  const char *said = imported(""), *end = strchr(said, '\n');
  const char *line = end ? tsr_arena_strndup(arena, said, (size_t)(end - said)) : said;
  CHECK_STR(line, want);
}

static void test_mistakes(void) {
#define AT(place) "graphs/llama.yaml:" place ": error: "
  check_mistake("{kind: token,", "{knd: token,", AT("40:20") "unknown key 'knd' in a key");
  check_mistake(
      "{kind: token,", "{kind: tokn,", AT("40:26") "unknown kind 'tokn' of key 'pad_token_id'");
  check_mistake(
      "layers: num_blocks", "layers: blocks", AT("25:13") "the toy graph has no size 'blocks'");
  check_mistake(
      "layers: num_blocks", "layers: {default: 1}",
      AT("25:5") "key 'layers' needs a 'size', a 'kind' or 'values'");
  check_mistake(
      "layers: num_blocks", "layers: {kind: integer}",
      AT("25:5") "key 'layers' needs a 'size', 'values' or 'write: ~'");
  check_mistake(
      "layers: num_blocks", "layers: {size: num_blocks, values: 3}",
      AT("25:40") "'values' must be a list of values, or a map from them to those of the size, not "
                  "the integer 3");
  check_mistake(
      "layers: num_blocks", "layers: {size: num_blocks, min: x}",
      AT("25:37") "'min' must be a number, not the text 'x'");
  check_mistake(
      "layers: num_blocks", "layers: {size: num_blocks, default: {a: 1}}",
      AT("25:41") "'default' must be an expression, not a map");
  check_mistake("layers // 4", "layer // 4", AT("42:22") "unknown name 'layer'");
  check_mistake("layers // 4", "layers / 3", AT("42:22") "3 does not divide layers 4");
  check_mistake("where(types, full)", "where(types, fall)", AT("41:38") "unknown name 'fall'");
  check_mistake("where(types, full)", "layers", AT("41:25") "size 'full_blocks' cannot be '4'");
  check_mistake(
      "{full_blocks: \"where(types, full)\"}", "{full_blocks: {if: true}}",
      AT("41:11") "size 'full_blocks' has no 'value'");
  check_mistake(
      "    else: types are", "    alse: types are", AT("45:5") "unknown key 'alse' in a check");
  check_mistake(
      "    else: types are not of {layers} layers\n", "",
      AT("44:5") "a check needs 'that' and 'else' or 'warning'");
  check_mistake(
      "  architectures: [ToyForCausalLM, ToyModel]\n", "",
      AT("20:3") "a class of transformers needs 'model_type', 'architectures' and 'keys'");
  check_mistake(
      "- model_type: toy\n  architectures: [", "- model_typ: toy\n  architectures: [",
      AT("53:9") "no class above this one has the model_type 'toy'");
  check_mistake(
      "huggingface:\n", "huggingface: {model_type: toy}\nother:\n",
      AT("19:14") "'huggingface' must be a list of classes, not a map");
  write_graph(section);
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  CHECK(system("mkdir graphs") == 0);
  write_graph(section);
  test_keys();
  test_rope();
  test_refused();
  test_architecture();
  test_hostile();
  test_written();
  test_mistakes();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("hf_classes");
}
