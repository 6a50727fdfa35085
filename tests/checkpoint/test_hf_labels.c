// SPDX-License-Identifier: Apache-2.0
/* Classes of documents in config.json: their number, their names, and what is refused. */
#include "hf_config_reading.h"

#define LLAMA                                                                                      \
  "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForSequenceClassification\"], "          \
  "\"vocab_size\": 50, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, " \
  "\"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05"

static void check_has(const char *text, const char *part) {
  CHECK_AT(strstr(text, part) != NULL, "%s\nhas no\n%s", text, part);
}

static void check_read(const char *rest, const char *num_labels, const char *data) {
  const char *text = read_text(tsr_arena_printf(arena, LLAMA "%s}", rest));
  CHECK_AT(!strncmp(text, "transformer_config:\n", 20), "%s", text);
  check_has(text, num_labels);
  const char *section = strstr(text, "data:\n");
  CHECK_STR(section ? section : text, data);
}

static void test_read(void) {
  check_read(
      ", \"id2label\": {\"1\": \"größer\", \"0\": \"a: 'b'\", \"2\": \"\\\"c\\\"\\n\"}, "
      "\"label2id\": {\"a: 'b'\": 0, \"größer\": 1, \"\\\"c\\\"\\n\": 2}",
      "  num_labels: 3\n",
      "data:\n  format: labels\n  labels: [\"a: 'b'\", \"größer\", \"\\\"c\\\"\\n\"]\n");
  /* two where config.json has none, as in transformers; and by the number that it may have */
  check_read(
      "", "  num_labels: 2\n", "data:\n  format: labels\n  labels: [\"LABEL_0\", \"LABEL_1\"]\n");
  check_read(
      ", \"num_labels\": 3, \"id2label\": null, \"problem_type\": null", "  num_labels: 3\n",
      "data:\n  format: labels\n  labels: [\"LABEL_0\", \"LABEL_1\", \"LABEL_2\"]\n");
  check_read(
      ", \"num_labels\": 3, \"id2label\": {\"0\": \"x\", \"1\": \"y\"}, \"problem_type\": "
      "\"single_label_classification\"",
      "  num_labels: 2\n", "data:\n  format: labels\n  labels: [\"x\", \"y\"]\n");
}

static void check_refused(const char *rest, const char *want) {
  CHECK_STR(read(tsr_arena_printf(arena, LLAMA "%s}", rest)), want);
}

static void test_refused(void) {
  static const char *const types[] = {"regression", "multi_label_classification"};
  for (int i = 0; i < 2; i++)
    check_refused(
        tsr_arena_printf(arena, ", \"problem_type\": \"%s\"", types[i]),
        tsr_arena_printf(
            arena,
            "error: 'config.json': problem_type '%s' is not supported\n"
            "      = supported: null, 'single_label_classification'\n",
            types[i]));
  static const char one[] =
      "error: 'config.json': a model of 1 class is not supported; it has 2 to 65536\n"
      "      = transformers trains one output as a regression\n";
  check_refused(", \"id2label\": {\"0\": \"x\"}", one);
  check_refused(", \"num_labels\": 1", one);
  check_refused(
      ", \"num_labels\": 9007199254740991",
      "error: 'config.json': a model of 9.00719925474099e+15 classes is not supported; it has 2 to "
      "65536\n");
#define ID2LABEL(members) ", \"id2label\": {" members "}"
  check_refused(
      ID2LABEL("\"0\": \"x\", \"2\": \"y\""),
      "error: 'config.json': id2label has the key '2', and should have each number from 0 to 1\n");
  check_refused(
      ID2LABEL("\"0\": \"x\", \"01\": \"y\""),
      "error: 'config.json': id2label has the key '01', and should have each number from 0 to 1\n");
  check_refused(
      ID2LABEL("\"0\": \"x\", \"1\": 1"), "error: 'config.json': id2label has no name for '1'\n");
  check_refused(
      ID2LABEL("\"0\": \"x\", \"1\": \"\""),
      "error: 'config.json': id2label has no name for '1'\n");
  check_refused(
      ID2LABEL("\"0\": \"x\", \"1\": \"x\""), "error: 'config.json': id2label has 'x' twice\n");
  check_refused(
      ", \"id2label\": [\"x\", \"y\"], \"label2id\": 3",
      "error: 'config.json': key 'id2label' should be an object of numbers and names, not a list\n"
      "error: 'config.json': key 'label2id' should be an object, not 3\n");
}

static void test_inverse(void) {
  static const char *const others[] = {"\"x\": 1, \"y\": 0", "\"x\": 0", "\"x\": 0, \"z\": 1"};
  for (int i = 0; i < 3; i++)
    check_has(
        read_text(tsr_arena_printf(
            arena, LLAMA ID2LABEL("\"0\": \"x\", \"1\": \"y\"") ", \"label2id\": {%s}}",
            others[i])),
        "warning: 'config.json': label2id is not the inverse of id2label, whose names are taken\n");
}

/* ---- export ---- */

#define MODEL                                                                                      \
  "transformer_config:\n  model_type: llama\n  vocab_size: 50\n  embedding_dim: 32\n"              \
  "  num_heads: 4\n  num_groups: 2\n  num_blocks: 2\n  max_sequence_length: 64\n"

static void test_written(void) {
  const char *json = json_of(
      MODEL "  num_labels: 3\n  pad_token: 7\ndata: {format: labels, labels: [b, 'a \"q\"', c]}\n",
      "float32", "{}");
  check_has(json, "[\"LlamaForSequenceClassification\"]");
  check_has(json, "\"pad_token_id\": 7,\n");
  check_has(
      json, "  \"id2label\": {\n    \"0\": \"b\",\n    \"1\": \"a \\\"q\\\"\",\n    \"2\": \"c\"\n"
            "  },\n  \"label2id\": {\n    \"b\": 0,\n    \"a \\\"q\\\"\": 1,\n    \"c\": 2\n  },\n"
            "  \"problem_type\": \"single_label_classification\"\n}\n");
  check_has(
      json_of(MODEL "  num_labels: 2\n  pad_token: 7\n", "float32", "{}"),
      "  \"label2id\": {\n    \"LABEL_0\": 0,\n    \"LABEL_1\": 1\n  },\n");
  const char *causal = json_of(MODEL "  pad_token: 7\n", "float32", "{}");
  check_has(causal, "[\"LlamaForCausalLM\"]");
  CHECK(!strstr(causal, "id2label") && !strstr(causal, "problem_type"));
}

/* transformers needs a token for padding, where the model's embedding has none; -1: the tokenizer
 * has none either. */
static void test_padding(void) {
  static const char section[] = MODEL "  num_labels: 2\n";
  for (int token = -1; token < 4; token += 4) {
    tsr_config *config;
    tsr_hf_export_config written;
    tsr_text text = {0};
    tsr_diags *said = tsr_diags_new(arena);
    bool ok =
        tsr_config_parse(arena, "r", section, strlen(section), NULL, 0, false, &config, said) &&
        tsr_hf_config_of(arena, config, 0, token, graphs, &written, said);
    CHECK(ok);
    if (!ok) return;
    tsr_hf_config_json(&written, "float32", NULL, &text);
    check_has(text.data, token < 0 ? "\"pad_token_id\": 0,\n" : "\"pad_token_id\": 3,\n");
    CHECK_STR(
        printed_diags(arena, said),
        token < 0 ? "warning: pad_token_id is 0, because the tokenizer names no token for padding: "
                    "transformers reads a text up to its last token that is another one\n"
                  : "");
    tsr_text_free(&text);
  }
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  test_read();
  test_refused();
  test_inverse();
  test_written();
  test_padding();
  tsr_arena_free(arena);
  return check_done("hf_labels");
}
