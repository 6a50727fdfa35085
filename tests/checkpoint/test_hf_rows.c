// SPDX-License-Identifier: Apache-2.0
/* Parameters that are rows of a fused tensor: parts of unequal length, parts of each head, and both
 * where the tensor is transposed. Imported, they are what plain loops take out of random weights;
 * exported, the tensors are the same bytes again. */
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/safetensors.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

enum { WIDTH = 6, HEADS = 4, GROUPS = 2, HEAD = 2, VOCAB = 5 };
enum { QUERY = HEADS * HEAD, GROUP = GROUPS * HEAD, FUSED = QUERY + 2 * GROUP };

static const char graph[] =
    "name: fused\n"
    "sizes: {vocab_size: ~, max_sequence_length: ~, width: ~, heads: ~, groups: ~, head: ~}\n"
    "inputs:\n"
    "  tokens: {shape: [batch, sequence], dtype: i32}\n"
    "  targets: {shape: [batch, sequence], dtype: i32}\n"
    "parameters:\n"
    "  wte: {shape: [vocab_size, width], init: zeros, hf: body.wte}\n"
    "  q: {shape: [heads * head, width], init: zeros, hf: body.qkv,\n"
    "    hf_rows: [0, heads * head, (heads + 2 * groups) * head]}\n"
    "  k: {shape: [groups * head, width], init: zeros, hf: body.qkv,\n"
    "    hf_rows: [heads * head, (heads + groups) * head, (heads + 2 * groups) * head]}\n"
    "  v: {shape: [groups * head, width], init: zeros, hf: body.qkv,\n"
    "    hf_rows: [(heads + groups) * head, (heads + 2 * groups) * head, (heads + 2 * groups) * "
    "head]}\n"
    "  o: {shape: [width, heads * head], init: zeros, hf: body.o}\n"
    "  q2: &each {shape: [heads * head, width], init: zeros, hf: body.heads,\n"
    "    hf_rows: [0, head, 3 * head]}\n"
    "  k2: {<<: *each, hf_rows: [head, 2 * head, 3 * head]}\n"
    "  v2: {<<: *each, hf_rows: [2 * head, 3 * head, 3 * head]}\n"
    "  bq: &bias {shape: [heads * head], init: zeros, hf: body.bias, hf_rows: [0, head, 3 * "
    "head]}\n"
    "  bk: {<<: *bias, hf_rows: [head, 2 * head, 3 * head]}\n"
    "  bv: {<<: *bias, hf_rows: [2 * head, 3 * head, 3 * head]}\n"
    "  q3: &turned {shape: [heads * head, width], init: zeros, hf: body.turned,\n"
    "    hf_transposed: true, hf_rows: [0, head, 3 * head]}\n"
    "  k3: {<<: *turned, hf_rows: [head, 2 * head, 3 * head]}\n"
    "  v3: {<<: *turned, hf_rows: [2 * head, 3 * head, 3 * head]}\n"
    "graph:\n"
    "- x: embedding(tokens, wte)\n"
    "- x: linear(attention(linear(x, q), linear(x, k), linear(x, v), head_dim=head), o)\n"
    "- y: attention(linear(x, q2, bq), linear(x, k2, bk), linear(x, v2, bv), head_dim=head)\n"
    "- z: attention(linear(x, q3), linear(x, k3), linear(x, v3), head_dim=head)\n"
    "- logits: linear(linear(add(y, z), o), wte)\n"
    "- loss: cross_entropy(logits, targets)\n"
    "outputs: [loss, logits]\n"
    "huggingface:\n"
    "- model_type: toy\n"
    "  architectures: ToyModel\n"
    "  keys: {vocab_size: vocab_size, length: max_sequence_length, width: width, heads: heads,\n"
    "    groups: groups, head: head}\n";
static const char config[] =
    "{\"model_type\": \"toy\", \"vocab_size\": 5, \"length\": 3, \"width\": 6, \"heads\": 4, "
    "\"groups\": 2, \"head\": 2}\n";

static tsr_arena *arena;
static tsr_diags *diags;

typedef struct {
  const char *name;
  int ndim;
  int64_t shape[2];
} tensor;
static const tensor theirs[] = {
    {"body.wte", 2, {VOCAB, WIDTH}},  {"body.qkv", 2, {FUSED, WIDTH}},
    {"body.o", 2, {WIDTH, QUERY}},    {"body.heads", 2, {3 * QUERY, WIDTH}},
    {"body.bias", 1, {3 * QUERY, 1}}, {"body.turned", 2, {WIDTH, 3 * QUERY}}};
enum { THEIRS = sizeof theirs / sizeof *theirs };

static int64_t elements(const tensor *t) { return t->shape[0] * t->shape[1]; }

/* Numbers that differ in each tensor and place. */
static void write_model(int count) {
  tsr_safetensor list[THEIRS];
  tsr_text text = {0};
  uint32_t state = 1;
  for (int i = 0; i < count; i++) {
    list[i] = (tsr_safetensor){theirs[i].name, "F32", theirs[i].ndim};
    memcpy(list[i].shape, theirs[i].shape, sizeof theirs[i].shape);
    list[i].bytes = 4 * elements(&theirs[i]);
  }
  tsr_safetensors_header(list, count, NULL, 0, &text);
  for (int i = 0; i < count; i++)
    for (int64_t k = 0; k < elements(&theirs[i]); k++) {
      state = state * 1664525 + 1013904223;
      float number = (float)(int32_t)state / 1e9f;
      tsr_text_add_bytes(&text, &number, sizeof number);
    }
  CHECK(system("mkdir -p model graphs") == 0);
  scratch_write("model/model.safetensors", text.data, text.length);
  scratch_write("model/config.json", config, strlen(config));
  tsr_text_free(&text);
}

static const float *data_of(const tsr_safetensors *file, const char *name, int64_t count) {
  int at = tsr_safetensors_find(file, name);
  CHECK_AT(at >= 0 && file->tensors[at].bytes == 4 * count, "%s", name);
  return (const float *)(const void *)(file->map + file->tensors[at].offset);
}

/* Row `row` of what it is a part of, and number `column` in that. */
static void check_param(
    const tsr_safetensors *ours, const tsr_safetensors *model, const char *name, const char *of,
    int64_t rows, int64_t columns, int64_t (*place)(int part, int64_t row, int64_t column),
    int part, int64_t all) {
  const float *a = data_of(ours, name, rows * columns), *b = data_of(model, of, all);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      CHECK_AT(a[r * columns + c] == b[place(part, r, c)], "%s (%d, %d)", name, (int)r, (int)c);
}

static int64_t in_order(int part, int64_t row, int64_t column) {
  static const int64_t begin[] = {0, QUERY, QUERY + GROUP};
  return (begin[part] + row) * WIDTH + column;
}

static int64_t of_head(int part, int64_t row, int64_t column) {
  int64_t head = row / HEAD, feature = row % HEAD;
  return ((head * 3 + part) * HEAD + feature) * WIDTH + column;
}

static int64_t of_bias(int part, int64_t row, int64_t column) {
  return of_head(part, row, 0) / WIDTH + column;
}

static int64_t of_turned(int part, int64_t row, int64_t column) {
  return column * (3 * QUERY) + of_head(part, row, 0) / WIDTH;
}

static void check_import(void) {
  static const char *const names[4][3] = {
      {"q", "k", "v"}, {"q2", "k2", "v2"}, {"bq", "bk", "bv"}, {"q3", "k3", "v3"}};
  tsr_safetensors ours, model;
  CHECK(tsr_safetensors_open(arena, "in/rank-00000.safetensors", TSR_NOWHERE, &ours, diags));
  CHECK(tsr_safetensors_open(arena, "model/model.safetensors", TSR_NOWHERE, &model, diags));
  for (int p = 0; p < 3; p++) {
    const char *const *n = &names[0][p];
    int64_t rows = p ? GROUP : QUERY;
    check_param(&ours, &model, n[0], "body.qkv", rows, WIDTH, in_order, p, FUSED * WIDTH);
    check_param(&ours, &model, n[3], "body.heads", QUERY, WIDTH, of_head, p, 3 * QUERY * WIDTH);
    check_param(&ours, &model, n[6], "body.bias", QUERY, 1, of_bias, p, 3 * QUERY);
    check_param(&ours, &model, n[9], "body.turned", QUERY, WIDTH, of_turned, p, 3 * QUERY * WIDTH);
  }
  tsr_safetensors_close(&ours);
  tsr_safetensors_close(&model);
}

static void check_export(void) {
  tsr_safetensors back, model;
  tsr_hf_export_options options = {.graphs_folder = "graphs"};
  CHECK(tsr_hf_export(arena, "in", "back", &options, diags));
  CHECK_STR(scratch_diags(diags), "");
  CHECK(tsr_safetensors_open(arena, "back/model.safetensors", TSR_NOWHERE, &back, diags));
  CHECK(tsr_safetensors_open(arena, "model/model.safetensors", TSR_NOWHERE, &model, diags));
  CHECK_INT(back.tensors_count, THEIRS);
  for (int i = 0; i < THEIRS; i++) {
    int64_t n = elements(&theirs[i]);
    const float *a = data_of(&back, theirs[i].name, n), *b = data_of(&model, theirs[i].name, n);
    CHECK_AT(!memcmp(a, b, (size_t)n * sizeof *a), "%s", theirs[i].name);
    int at = tsr_safetensors_find(&back, theirs[i].name);
    CHECK_INT(back.tensors[at].ndim, theirs[i].ndim);
    CHECK_INT(back.tensors[at].shape[0], theirs[i].shape[0]);
  }
  tsr_safetensors_close(&back);
  tsr_safetensors_close(&model);
}

/* A graph that has not each row of a tensor once. */
static void check_refused(const char *line, const char *other, const char *want) {
  const char *at = strstr(graph, line);
  CHECK_AT(at != NULL, "%s", line);
  const char *changed =
      tsr_arena_printf(arena, "%.*s%s%s", (int)(at - graph), graph, other, at + strlen(line));
  scratch_write("graphs/llama.yaml", changed, strlen(changed));
  tsr_hf_export_options options = {.graphs_folder = "graphs"};
  CHECK(!tsr_hf_export(arena, "in", "other", &options, diags));
  CHECK_STR(scratch_diags(diags), want);
}

static void check_uncovered(void) {
  check_refused(
      "hf_rows: [2 * head, 3 * head, 3 * head]}\n  bq",
      "hf_rows: [head, 2 * head, 3 * head]}\n  bq",
      "error: the graph's parameters for 'body.heads' do not have each of its rows once: row 4 of "
      "each 6\n");
  check_refused(
      "hf_rows: [2 * head, 3 * head, 3 * head]}\n  bq",
      "hf_rows: [2 * head, 3 * head, 4 * head]}\n  bq",
      "error: the graph's parameters for 'body.heads' do not have each of its rows once: row 4 of "
      "each 6\n");
  check_refused(
      "hf_rows: [0, heads * head, (heads + 2 * groups) * head]", "hf_rows: [0, 3, 4]",
      "graphs/llama.yaml:9:14: error: 'q' has 8 rows, which cannot be rows 0 to 3 of every 4\n"
      "    9 |     hf_rows: [0, 3, 4]}\n"
      "      |              ^\n");
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  write_model(THEIRS);
  scratch_write("graphs/llama.yaml", graph, sizeof graph - 1);
  tsr_hf_import_options options = {.graphs_folder = "graphs", .version = "test"};
  bool imported = tsr_hf_import(arena, "model", "in", &options, diags);
  CHECK_STR(scratch_diags(diags), "");
  if (imported) {
    check_import();
    check_export();
    check_uncovered();
  }
  CHECK(imported);
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("hf_rows");
}
